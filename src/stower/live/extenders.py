"""Calls scheduler extenders over HTTP; their answers become events of the engine.

The objects that an extender wants in full are fetched from the API server, as the engine has only
the fields that decisions depend on. Unlike kube-scheduler, a certificate is always checked unless
tlsConfig.insecure is set.

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
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from stower.framework.events import ExtenderAnswered
from stower.framework.extenders import Extender
from stower.framework.writes import CallExtender
from stower.live.access import AccessError
from stower.live.client import Client

if TYPE_CHECKING:
    import aiohttp

# An answer names nodes: there is room for tens of thousands.
ANSWER_BYTES_MAX: Final = 64 << 20
encode = msgspec.json.Encoder().encode
log = logging.getLogger(__name__)


class ExtenderError(Exception):
    """An extender gave no answer, or its tlsConfig is invalid; the text says why."""


class HTTPExtenders:
    """Calls the extenders of a configuration. Owns one HTTP session for all of them."""

    def __init__(
        self,
        extenders: tuple[Extender, ...],
        client: Client,
        on_response: Callable[[ExtenderAnswered], None],
    ) -> None:
        """`client`: of the API server; `on_response`: called with the answer to each write.

        Raises ExtenderError for an invalid tlsConfig.
        """
        self._extenders = extenders
        self._client = client
        self._on_response = on_response
        self._tls = [build_tls_context(extender) for extender in extenders]
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None

    def send(self, write: CallExtender) -> None:
        """Starts a call; `on_response` gets its answer."""
        task = asyncio.create_task(self._call(write))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancels all calls and closes the session."""
        for task in list(self._tasks):
            task.cancel()
        if self._session is not None:
            await self._session.close()

    async def _call(self, write: CallExtender) -> None:
        # Imported only here: it takes a tenth of the start, and most clusters have no extender.
        import aiohttp

        extender = self._extenders[write.extender]
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            async with asyncio.timeout(extender.timeout_ns / 1e9):
                body = await self._post(write, extender)
            self._on_response(ExtenderAnswered(write.id, body))
        except TimeoutError:
            reason = f"no answer within {extender.timeout_ns / 1e9:g} s"
            self._fail(write, reason)
        except (ExtenderError, AccessError, aiohttp.ClientError, OSError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            self._fail(write, reason)
        except Exception as error:
            # Without an answer the engine would never try the pod again.
            log.exception("the call to extender %s failed", extender.url_prefix)
            reason = f"{type(error).__name__}: {error}"
            self._fail(write, reason)

    def _fail(self, write: CallExtender, reason: str) -> None:
        error = f"{write.verb}: {reason}"
        url = self._extenders[write.extender].url_prefix
        log.info("extender %s failed for pod %s/%s: %s", url, write.namespace, write.name, error)
        self._on_response(ExtenderAnswered(write.id, error=error))

    async def _post(self, write: CallExtender, extender: Extender) -> bytes:
        assert self._session is not None  # see _call
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
            async for chunk in response.content.iter_chunked(1 << 16):
                answer += chunk
                if len(answer) > ANSWER_BYTES_MAX:
                    raise ExtenderError(
                        f"POST {url}: the answer has more than {ANSWER_BYTES_MAX} bytes"
                    )
            return bytes(answer)

    # Requests

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
        wanted_names = set(write.nodes)
        node_list = await self._get("/api/v1/nodes?resourceVersion=0")
        nodes = [
            node for node in node_list.get("items", ()) if node["metadata"]["name"] in wanted_names
        ]
        return {"Pod": pod, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None}

    async def _build_victims(self, write: CallExtender, extender: Extender) -> dict[str, Any]:
        if extender.node_cache_capable:
            victims_by_uid = {
                name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}
                for name, (uids, violations) in write.victims.items()
            }
            return {"NodeNameToVictims": None, "NodeNameToMetaVictims": victims_by_uid}
        victims_in_full = {}
        for name, (uids, violations) in write.victims.items():
            selector = quote(f"spec.nodeName={name}", safe="")
            pod_list = await self._get(f"/api/v1/pods?fieldSelector={selector}")
            pods_by_uid = {pod["metadata"]["uid"]: pod for pod in pod_list.get("items", ())}
            pods = [pods_by_uid[uid] for uid in uids if uid in pods_by_uid]
            victims_in_full[name] = {"Pods": pods, "NumPDBViolations": violations}
        return {"NodeNameToVictims": victims_in_full, "NodeNameToMetaVictims": None}

    async def _get(self, path: str) -> dict[str, Any]:
        answer = await self._client.get_with_retry(path)
        if answer.status != 200:
            raise ExtenderError(f"GET {path}: {answer.status} {answer.message}")
        document: dict[str, Any] = msgspec.json.decode(answer.body)
        return document


def build_tls_context(extender: Extender) -> ssl.SSLContext | None:
    """Returns the TLS context of the extender's tlsConfig; None if it has none.

    Raises ExtenderError.
    """
    config = extender.tls_config
    if config is None:
        return None
    try:
        context = ssl.create_default_context(
            cafile=config.ca_file or None,
            cadata=_decode_base64(config.ca_data) if config.ca_data else None,
        )
        if config.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if config.cert_file:
            context.load_cert_chain(config.cert_file, config.key_file or None)
        elif config.cert_data:
            with tempfile.TemporaryDirectory(prefix="stower-extender-") as folder:
                file = Path(folder) / "pair.pem"
                file.touch(mode=0o600)
                file.write_text(
                    _decode_base64(config.cert_data) + "\n" + _decode_base64(config.key_data)
                )
                context.load_cert_chain(file)
    except (OSError, ssl.SSLError, ValueError, binascii.Error) as error:
        raise ExtenderError(f'extender "{extender.url_prefix}": tlsConfig: {error}') from None
    return context


def _decode_base64(text: str) -> str:
    return base64.b64decode(text, validate=True).decode()
