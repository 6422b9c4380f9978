"""The dashboard over HTTP: files that hold no secrets, and a stream for whoever is let in.

However many pages are open, what has changed is worked out once; for each page it costs a write.
Source of the rule for headers: OWASP secure headers; nothing is loaded from elsewhere.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Final

from aiohttp import web

from stower.dashboard.board import Board
from stower.live.endpoint import Answering, guarded
from stower.live.letting_in import Doorkeeper
from stower.live.scheduler import Scheduler

log = logging.getLogger(__name__)
ROOT: Final = "/dashboard/"
STREAM: Final = "/dashboard/stream"
TYPES: Final = {
    "index.html": "text/html", "app.js": "text/javascript", "map.js": "text/javascript",
    "preact.js": "text/javascript", "style.css": "text/css",
}  # fmt: skip
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
LOOK_SECONDS: Final = 0.5
WAITING_MAX: Final = 8 << 20  # bytes that a page has not taken: it is closed, and opens again
PAGES_MAX: Final = 500


class _Page:
    """One that is open, and what it has not been sent yet."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.size = 0
        self.awake = asyncio.Event()

    def tell(self, line: bytes) -> None:
        self.lines.append(line)
        self.size += len(line)
        self.awake.set()

    def taken(self) -> bytes:
        lines, self.lines, self.size = self.lines, [], 0
        self.awake.clear()
        return b"".join(b"data: %s\n\n" % line for line in lines)


class Dashboard:
    """Routes for one scheduler; see endpoint.Pages."""

    def __init__(self) -> None:
        self.watching = Board()
        self._pages: dict[_Page, None] = {}
        self._looking: asyncio.Task[None] | None = None

    def __call__(self, scheduler: Scheduler, door: Doorkeeper) -> Sequence[web.RouteDef]:
        """The routes."""

        async def stream(request: web.Request) -> web.StreamResponse:
            return await self._stream(request, scheduler)

        async def home(_: web.Request) -> web.Response:
            raise web.HTTPFound(ROOT)

        return (
            web.get("/", home),
            web.get(ROOT, _file("index.html")),
            *(web.get(ROOT + name, _file(name)) for name in TYPES if name != "index.html"),
            web.get(STREAM, guarded(door, stream)),
        )

    async def _stream(self, request: web.Request, scheduler: Scheduler) -> web.StreamResponse:
        """Everything, then what changes, for as long as the page is open."""
        if len(self._pages) >= PAGES_MAX:
            return web.Response(status=503, text=f"{PAGES_MAX} pages are open already\n")
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        page = _Page()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(scheduler))
        self._pages[page] = None  # what changes meanwhile comes after
        try:
            for line in (b'{"begin":true}', *self.watching.whole(), self.watching.recent()):
                await response.write(b"data: %s\n\n" % line)
            while page.size <= WAITING_MAX:
                await page.awake.wait()
                await response.write(page.taken())
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._pages.pop(page, None)
        return response

    async def _look(self, scheduler: Scheduler) -> None:
        """While pages are open: tell all of them what has changed."""
        idle = 0
        with contextlib.suppress(asyncio.CancelledError):
            while idle < 3:
                for line in self._lines(scheduler):
                    for page in list(self._pages) if line else ():
                        page.tell(line)
                    await asyncio.sleep(0)
                idle = 0 if self._pages else idle + 1
                await asyncio.sleep(LOOK_SECONDS)
        self._looking = None

    def _lines(self, scheduler: Scheduler) -> Iterator[bytes]:
        try:
            yield from self.watching.look(scheduler)
        except Exception:  # a page that cannot be told must not end the scheduler
            log.exception("the dashboard")


def _file(name: str) -> Answering:
    text = (resources.files("stower.dashboard") / "static" / name).read_bytes()

    async def send(_: web.Request) -> web.StreamResponse:
        return web.Response(body=text, content_type=TYPES[name], charset="utf-8", headers=HEADERS)

    return send
