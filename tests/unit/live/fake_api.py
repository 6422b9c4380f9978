"""An API server in this process, as a client without sockets and over HTTP on loopback."""

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import yaml
from aiohttp import web

from stower.api.optional_kinds import SERVE
from stower.api.reads import Watch
from stower.api.requests import Request
from stower.api.server import Api
from stower.api.users import ADMIN, UserInfo
from stower.apiserver.tables import load_registry
from stower.live.access import Access
from stower.live.client import JSON, NOT_SENT, Response, WatchStatusError
from stower.live.credentials import Credentials
from stower.pki.certificates import make_certificates
from stower.pki.transports import finish_closing, stop_accepting

Object = dict[str, Any]
Fault = Callable[[str, str], Response | None]
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
TOKEN = "a-token"
PATIENCE_SECONDS = 8.0


class FakeApi:
    """An `Api` behind the interface of stower.live.client.Client.

    `fault`: returns a response to give instead of the API's own, by method and path. `user`: whose
    requests the client's are; with one, roles decide. `is_plain`: optional kinds
    are served where they are defined. `sent` has method and path (without the
    query) of every request, `watched` the paths of watches, `refused` what was forbidden.
    """

    class access:
        server = "https://api.test"

    def __init__(
        self,
        fault: Fault = lambda method, path: None,
        user: UserInfo | None = None,
        is_plain: bool = False,
    ) -> None:
        self.user = user or ADMIN
        self.api = Api(
            load_registry("1.36", () if is_plain else SERVE, native=not is_plain),
            seed=1,
            by_roles=user is not None,
        )
        self.api.bootstrap(time.time_ns())
        self.api.store.visible = self.api.store.revision
        self.fault = fault
        self.sent: list[tuple[str, str]] = []
        self.watched: list[str] = []
        self.refused: list[tuple[str, str]] = []
        self.on_request: Callable[[str, int, float], None] | None = None
        self._changed: set[asyncio.Event] = set()
        self._injected: dict[str, list[bytes]] = {}

    # As a client

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = "",
        may_send: Callable[[], bool] = lambda: True,
    ) -> Response:
        await asyncio.sleep(0)
        if not may_send():
            return Response(NOT_SENT, b"")
        self.sent.append((method, path.partition("?")[0]))
        fault = self.fault(method, path)
        if fault is not None:
            return fault
        status, data = self.handle(method, path, body or b"", content_type, accept, self.user)
        if status == 403:
            self.refused.append(self.sent[-1])
        if self.on_request is not None:
            self.on_request(method, status, 0.001)
        return Response(status, data)

    async def get_with_retry(self, path: str) -> Response:
        return await self.request("GET", path)

    async def watch(
        self, path: str, query: dict[str, str], accept: str = ""
    ) -> AsyncIterator[list[bytes]]:
        fault = self.fault("WATCH", path)
        if fault is not None:
            raise WatchStatusError(fault)
        request = Request(
            "GET", path, time.time_ns(), (*query.items(), ("watch", "1")), accept=accept,
            user=self.user,
        )  # fmt: skip
        watch = self.api.handle(request)
        if isinstance(watch, Watch):
            self.watched.append(path)
        elif watch.status == 403:
            self.refused.append(("WATCH", path))
        if not isinstance(watch, Watch):
            raise WatchStatusError(Response(watch.status, watch.body))
        changed = asyncio.Event()
        self._changed.add(changed)
        try:
            yield []
            while True:
                changed.clear()
                lines = b"".join(watch.poll()).splitlines() + self._injected.pop(path, [])
                if lines:
                    yield lines
                else:
                    await changed.wait()
        finally:
            self._changed.discard(changed)

    # As its owner

    def handle(
        self, method: str, path: str, body: bytes, content_type: str, accept: str = "",
        user: UserInfo = ADMIN,
    ) -> tuple[int, bytes]:  # fmt: skip
        """Carries out a request; status and body."""
        parts = urlsplit(path)
        answer = self.api.handle(
            Request(
                method, unquote(parts.path), time.time_ns(), tuple(parse_qsl(parts.query)), body,
                content_type if body else "", accept, user,
            )
        )  # fmt: skip
        assert not isinstance(answer, Watch)
        self.api.store.visible = self.api.store.revision
        self._notify()
        return answer.status, answer.body

    def inject(self, path: str, event: Object) -> None:
        """Sends an event to the next watch of the path, whatever the API has."""
        self._injected.setdefault(path, []).append(json.dumps(event).encode())
        self._notify()

    def _notify(self) -> None:
        for changed in self._changed:
            changed.set()

    def call(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Object:
        """Carries out a request that must succeed; the decoded body."""
        data = b"" if body is None else json.dumps(body).encode()
        status, answer = self.handle(method, path, data, content_type)
        assert 200 <= status < 300, (status, answer)
        found: Object = json.loads(answer or b"{}")
        return found

    def add_node(self, name: str = "n1", cpu: str = "4") -> None:
        """Creates a node with room for pods."""
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
        node = {"metadata": {"name": name}, "status": {"allocatable": amounts, "capacity": amounts}}
        self.call("POST", NODES, node)

    def add_pod(self, name: str, cpu: str = "1", **spec: Any) -> Object:
        """Creates a pod that waits for a node."""
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        pod = {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
        return self.call("POST", PODS, pod)

    def node_of(self, pod: str) -> str:
        """The node of a pod; "" if it has none."""
        return str(self.call("GET", f"{PODS}/{pod}")["spec"].get("nodeName", ""))

    def events(self) -> dict[str, str]:
        """Notes of Events, by reason."""
        items = self.call("GET", "/apis/events.k8s.io/v1/events")["items"]
        return {item["reason"]: item["note"] for item in items}


async def until(condition: Callable[[], Any]) -> None:
    """Waits until a condition holds. What it waits for takes milliseconds."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.001)


def plain_access(url: str) -> Access:
    """The access to a server without TLS that lets everybody in."""
    return Access(url, Credentials())


@contextlib.asynccontextmanager
async def serving(
    handler: Callable[[web.Request], Any], tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """An HTTP server on loopback that hands every request to a handler; its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    assert runner.server is not None
    loop = asyncio.get_running_loop()
    server = await loop.create_server(runner.server, "127.0.0.1", 0, ssl=tls)
    scheme = "http" if tls is None else "https"
    try:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await stop_accepting(server)
        server.close()
        handlers = runner.server.connections
        transports = [handler.transport for handler in handlers if handler.transport is not None]
        await runner.cleanup()
        for transport in transports:
            transport.abort()  # a TLS transport that closes waits for the client
        await finish_closing()


@contextlib.asynccontextmanager
async def raw_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any],
) -> AsyncIterator[str]:
    """A server on loopback that hands every connection to a function; its address."""
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
            raise

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0.005)  # connections accepted last get their writers meanwhile
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


def over_http(fake: FakeApi) -> Callable[[web.Request], Any]:
    """The handler that serves a fake over HTTP, watches included."""

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if "watch" not in request.query:
            answer = await fake.request(
                request.method, request.path_qs, body, request.content_type,
                request.headers.get("Accept", ""),
            )  # fmt: skip
            return web.Response(status=answer.status, body=answer.body, content_type=JSON)
        query = {key: value for key, value in request.query.items() if key != "watch"}
        response = web.StreamResponse()
        try:
            async for lines in fake.watch(request.path, query):
                if not response.prepared:
                    await response.prepare(request)
                await response.write(b"".join(line + b"\n" for line in lines))
        except WatchStatusError as error:
            return web.Response(status=error.status)
        except ConnectionError:
            pass  # the client has gone
        return response

    return handle


@contextlib.asynccontextmanager
async def cluster(fake: FakeApi, folder: Path) -> AsyncIterator[Path]:
    """The fake over HTTPS; the kubeconfig of its server."""
    make_certificates(folder, ("127.0.0.1",))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.crt", folder / "server.key")
    async with serving(over_http(fake), tls) as url:
        authority = base64.b64encode((folder / "ca.crt").read_bytes()).decode()
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump({
            "clusters": [{"name": "c", "cluster": {
                "server": url, "certificate-authority-data": authority}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }))  # fmt: skip
        yield path


@contextlib.contextmanager
def port_in_use() -> Iterator[int]:
    """A port of loopback on which another socket listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]
