"""A way to a server on which requests fail: refused, lost before or after they were carried out,
late, answered by whoever wants to; and watches are cut.
"""

import asyncio
import base64
import contextlib
import random
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

# Status and body of an answer, or None: the server answers.
Answering = Callable[[str, str], tuple[int, bytes] | None]
HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}

REFUSAL = "no server today"
LISTED_S = 1.0  # what a watch says first is a list


@dataclass
class Faults:
    """How much goes wrong. `share`: of requests that are no watches; `codes`: statuses with which
    these are refused, none: all kinds of faults; `cut_s`: how long a watch stands; `lag_s`: how
    late watches are at most; `delivered`: told what they deliver; `answers`: asked first; `lists`:
    nothing is streamed that can be listed."""

    share: float = 0.0
    codes: tuple[int, ...] = ()
    lag_s: float = 0.0
    delivered: Callable[[str, bytes], None] = lambda path, data: None
    cut_s: float | None = None
    answers: Answering = lambda method, path: None
    lists: bool = False
    seed: int = 0
    met: Counter[str] = field(default_factory=Counter)
    bound: Counter[str] = field(default_factory=Counter)  # bindings that were carried out, by path


@contextlib.contextmanager
def faulty(kubeconfig: Path, proxied: Path, faults: Faults) -> Iterator[str]:
    """Write a kubeconfig whose server is the way with faults; yields its address."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    target, authority = cluster["server"], cluster.pop("certificate-authority-data")
    tls = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
    ready, stop = threading.Event(), asyncio.Event()
    box: list[Any] = []

    async def main() -> None:
        proxy = _Proxy(target, tls, faults)
        async with proxy.running() as port:
            box.extend((port, asyncio.get_running_loop()))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(30)
    url = f"http://127.0.0.1:{box[0]}"
    cluster["server"] = url
    for user in config["users"]:
        for name in ("client-certificate-data", "client-key-data"):
            user["user"].pop(name, None)
    proxied.write_text(yaml.safe_dump(config))
    proxied.chmod(0o600)
    try:
        yield url
    finally:
        box[1].call_soon_threadsafe(stop.set)
        thread.join(30)


class _Proxy:
    def __init__(self, target: str, tls: ssl.SSLContext, faults: Faults) -> None:
        self._target = target
        self._tls = tls
        self._faults = faults
        self._chance = random.Random(faults.seed)
        self._session: aiohttp.ClientSession | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            self._session = session
            app = web.Application(client_max_size=1 << 26)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            try:
                yield runner.addresses[0][1]
            finally:
                await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        own = self._faults.answers(request.method, request.path)
        if own is not None:
            return web.Response(status=own[0], body=own[1], content_type="application/json")
        if self._faults.lists and "sendInitialEvents" in request.query:
            return web.Response(status=422, text="sendInitialEvents is forbidden for watch")
        if request.query.get("watch") in ("1", "true"):
            return await self._watch(request)
        fault = self._chance.random() < self._faults.share
        kind = self._chance.choice(("refused", "throttled", "lost", "unanswered", "late"))
        if not fault:
            return await self._forward(request)
        if self._faults.codes:
            code = self._chance.choice(self._faults.codes)
            self._faults.met[f"{code}"] += 1
            return web.Response(status=code, text=REFUSAL)
        self._faults.met[kind] += 1
        if kind == "refused":
            return web.Response(status=503, text=REFUSAL)
        if kind == "throttled":
            return web.Response(status=429, text="too many", headers={"Retry-After": "1"})
        if kind == "late":
            await asyncio.sleep(self._chance.uniform(0.05, 1.0))
            return await self._forward(request)
        if kind == "unanswered":  # carried out, and nobody is told
            await self._forward(request)
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)

    def _headers(self, request: web.Request) -> dict[str, str]:
        return {k: v for k, v in request.headers.items() if k.lower() not in HOP}

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        body = await request.read()
        async with self._session.request(
            request.method, self._target + request.path_qs, data=body or None,
            headers=self._headers(request),
        ) as answer:  # fmt: skip
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in HOP}
            if request.path.endswith("/binding") and answer.status < 300:
                self._faults.bound[request.path] += 1
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(
            self._target + request.path_qs, headers=self._headers(request), timeout=timeout
        ) as answer:
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in HOP}
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            with contextlib.suppress(TimeoutError, ConnectionError, aiohttp.ClientError):
                async with asyncio.timeout(self._faults.cut_s):
                    await self._pass_on(answer, request, response)
                    return response
            self._faults.met["cut"] += 1
            if request.transport is not None:
                request.transport.abort()
            return response

    async def _pass_on(
        self, answer: aiohttp.ClientResponse, request: web.Request, response: web.StreamResponse
    ) -> None:
        """Delivers what a watch says, in its order, each piece as late as it is the turn of."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        clock = asyncio.get_running_loop().time

        async def read() -> None:
            lag_s, until = 0.0, clock() + LISTED_S
            async for data in answer.content.iter_any():
                if clock() >= until:
                    lag_s = self._chance.choice((0.0, self._chance.uniform(0, self._faults.lag_s)))
                    until = clock() + self._chance.uniform(1, 5)
                queue.put_nowait((clock() + lag_s, data))
            queue.put_nowait((0.0, b""))

        reading = asyncio.ensure_future(read())
        try:
            while (piece := await queue.get())[1]:
                await asyncio.sleep(piece[0] - clock())
                await response.write(piece[1])
                self._faults.delivered(request.path, piece[1])
            await reading
        finally:
            reading.cancel()
