"""Extenders over HTTP: the engine's questions sent, their answers given back as events.

The objects that an extender wants to see whole are fetched from the API server, as the engine knows
only those fields that decisions depend on. Unlike kube-scheduler, a certificate is always checked
unless tlsConfig.insecure says otherwise.

Source: kube-scheduler extender.go; k8s.io/kube-scheduler/extender/v1.
"""

import asyncio
import base64
import binascii
import logging
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgspec

from stower.framework.events import ExtenderAnswered
from stower.framework.extenders import Extender
from stower.framework.writes import CallExtender
from stower.live.access import AccessError
from stower.live.client import Client

# An answer names nodes: this is room for tens of thousands.
ANSWER_BYTES_MAX: Final = 64 << 20
encode = msgspec.json.Encoder().encode
log = logging.getLogger(__name__)


class ExtenderError(Exception):
    """No answer; the text says why."""


class HTTPExtenders:
    """All of a configuration's."""

    def __init__(
        self,
        extenders: tuple[Extender, ...],
        client: Client,
        on_response: Callable[[ExtenderAnswered], None],
    ) -> None:
        """`client`: of the API server. Raises ExtenderError for certificates that are none."""
        self._extenders = extenders
        self._client = client
        self._on_response = on_response
        self._tls = [build_tls_context(extender) for extender in extenders]
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None

    def send(self, write: CallExtender) -> None:
        """Ask; the answer comes as an event."""
        task = asyncio.create_task(self._call(write))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Ask no more."""
        for task in list(self._tasks):
            task.cancel()
        if self._session is not None:
            await self._session.close()

    async def _call(self, write: CallExtender) -> None:
        extender = self._extenders[write.extender]
        try:
            async with asyncio.timeout(extender.timeout_ns / 1e9):
                body = await self._post(write, extender)
            self._on_response(ExtenderAnswered(write.id, body))
        except TimeoutError:
            why = f"no answer within {extender.timeout_ns / 1e9:g} s"
            self._on_response(ExtenderAnswered(write.id, error=f"{write.verb}: {why}"))
        except (ExtenderError, AccessError, aiohttp.ClientError, OSError) as error:
            why = " ".join(str(error).split()) or type(error).__name__
            self._on_response(ExtenderAnswered(write.id, error=f"{write.verb}: {why}"))
        except Exception as error:
            # Without an answer no pod would ever be tried again.
            log.exception("asking extender %s", extender.url_prefix)
            why = f"{type(error).__name__}: {error}"
            self._on_response(ExtenderAnswered(write.id, error=f"{write.verb}: {why}"))

    async def _post(self, write: CallExtender, extender: Extender) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        action = getattr(extender, f"{write.verb}_verb")
        url = f"{extender.url_prefix.rstrip('/')}/{action}"
        body = encode(await self._build_args(write, extender))
        tls = self._tls[write.extender]
        request = self._session.post(
            url,
            data=body,
            headers={"Content-Type": "application/json"},
            ssl=True if tls is None else tls,
            server_hostname=extender.tls_config.server_name or None
            if extender.tls_config is not None
            else None,
            allow_redirects=False,
        )
        async with request as response:
            if response.status != 200:
                raise ExtenderError(f"POST {url}: status {response.status}, want 200")
            answer = bytearray()
            async for part in response.content.iter_chunked(1 << 16):
                answer += part
                if len(answer) > ANSWER_BYTES_MAX:
                    raise ExtenderError(f"POST {url}: more than {ANSWER_BYTES_MAX} bytes")
            return bytes(answer)

    # Questions

    async def _build_args(self, write: CallExtender, extender: Extender) -> dict[str, Any]:
        if write.verb == "bind":
            return {
                "PodName": write.name,
                "PodNamespace": write.namespace,
                "PodUID": write.uid,
                "Node": write.nodes[0],
            }
        namespace, name = quote(write.namespace, safe=""), quote(write.name, safe="")
        pod = await self._get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        if write.verb == "preempt":
            return {"Pod": pod, **await self._build_victims(write, extender)}
        if extender.node_cache_capable:
            return {"Pod": pod, "Nodes": None, "NodeNames": write.nodes}
        wanted = set(write.nodes)
        found = await self._get("/api/v1/nodes?resourceVersion=0")
        nodes = [n for n in found.get("items", ()) if n["metadata"]["name"] in wanted]
        return {"Pod": pod, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None}

    async def _build_victims(self, write: CallExtender, extender: Extender) -> dict[str, Any]:
        if extender.node_cache_capable:
            meta = {
                name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}
                for name, (uids, violations) in write.victims.items()
            }
            return {"NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
        whole = {}
        for name, (uids, violations) in write.victims.items():
            selector = quote(f"spec.nodeName={name}", safe="")
            found = await self._get(f"/api/v1/pods?fieldSelector={selector}")
            there = {p["metadata"]["uid"]: p for p in found.get("items", ())}
            pods = [there[uid] for uid in uids if uid in there]
            whole[name] = {"Pods": pods, "NumPDBViolations": violations}
        return {"NodeNameToVictims": whole, "NodeNameToMetaVictims": None}

    async def _get(self, path: str) -> dict[str, Any]:
        answer = await self._client.get_with_retry(path)
        if answer.status != 200:
            raise ExtenderError(f"GET {path}: {answer.status} {answer.message}")
        found: dict[str, Any] = msgspec.json.decode(answer.body)
        return found


def build_tls_context(extender: Extender) -> ssl.SSLContext | None:
    """How the extender's certificate is checked; None: as usual."""
    own = extender.tls_config
    if own is None:
        return None
    try:
        context = ssl.create_default_context(
            cafile=own.ca_file or None, cadata=_decode_base64(own.ca_data) if own.ca_data else None
        )
        if own.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if own.cert_file:
            context.load_cert_chain(own.cert_file, own.key_file or None)
        elif own.cert_data:
            with tempfile.TemporaryDirectory(prefix="stower-extender-") as folder:
                file = Path(folder) / "pair.pem"
                file.touch(mode=0o600)
                file.write_text(_decode_base64(own.cert_data) + "\n" + _decode_base64(own.key_data))
                context.load_cert_chain(file)
    except (OSError, ssl.SSLError, ValueError, binascii.Error) as error:
        raise ExtenderError(f'extender "{extender.url_prefix}": tlsConfig: {error}') from None
    return context


def _decode_base64(text: str) -> str:
    return base64.b64decode(text, validate=True).decode()
