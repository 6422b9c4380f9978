"""The dashboard over HTTP: static files without secrets, a stream of changes, and views on request.

The stream and the views need authorization. Changes are computed once for all open pages; each page
costs one write.
Source of the rule for headers: OWASP secure headers; nothing is loaded from elsewhere.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from typing import Final

import msgspec
from aiohttp import web

from stower.dashboard.answers import Answers
from stower.dashboard.board import SAMPLE_SECONDS, Board
from stower.dashboard.forked_queries import QueryError
from stower.dashboard.player import Player
from stower.dashboard.source import Rebuild, RunningSource, Source
from stower.dashboard.views import VIEWS, View
from stower.live.authorization import Authorizer
from stower.live.endpoint import Handler, error_response, with_authorization
from stower.live.scheduler import Scheduler
from stower.record.lines import Engine as Built

log = logging.getLogger(__name__)
ROOT: Final = "/dashboard/"
STREAM: Final = "/dashboard/stream"
VIEW: Final = "/dashboard/view/{name}"
MOMENT: Final = "/dashboard/moment"
STATIC: Final = resources.files("stower.dashboard") / "static"
TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
LOOK_SECONDS: Final = 0.5
LOOK_TIMES: Final = 40  # as long as it took: a long queue is looked at less often
IDLE_LOOKS: Final = 3  # before nobody looks any more
WAITING_MAX: Final = 8 << 20  # bytes that a page has not taken: it is closed, and opens again
PAGES_MAX: Final = 500
QUESTION_CHARACTERS_MAX: Final = 8_000
SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,20})?")


class _Page:
    """One that is open, and what it has not been sent yet."""

    def __init__(self, request: web.Request) -> None:
        self.lines: list[bytes] = []
        self.size = 0
        self.awake = asyncio.Event()
        self.is_lost = False
        self._transport = request.transport

    def add_line(self, line: bytes) -> None:
        if self.is_lost:
            return
        self.lines.append(line)
        self.size += len(line)
        self.awake.set()
        if self.size > WAITING_MAX:  # nobody reads
            self.is_lost = True
            self.take()
            if self._transport is not None:
                self._transport.abort()

    def take(self) -> bytes:
        lines, self.lines, self.size = self.lines, [], 0
        self.awake.clear()
        return b"".join(b"data: %s\n\n" % line for line in lines)


class Dashboard:
    """The routes for one source; of a running scheduler, see endpoint.Pages."""

    def __init__(self, rebuild: Rebuild, built: Built | None = None) -> None:
        """`built`: how the engine of the scheduler is built; a recording tells itself."""
        self.watching = Board()
        self._rebuild = rebuild
        self._built = built
        self._answers = Answers()
        self._pages: dict[_Page, None] = {}
        self._looking: asyncio.Task[None] | None = None
        self._sampling: asyncio.Task[None] | None = None

    def __call__(self, scheduler: Scheduler, door: Authorizer) -> Sequence[web.RouteDef]:
        """The routes for a scheduler."""
        assert self._built is not None
        self._sampling = asyncio.create_task(self._sample(scheduler))
        return self.routes(RunningSource(scheduler, self._built), door)

    def routes(self, source: Source, door: Authorizer) -> Sequence[web.RouteDef]:
        """The routes."""

        async def stream(request: web.Request) -> web.StreamResponse:
            return await self._stream(request, source)

        async def view(request: web.Request) -> web.StreamResponse:
            return await self._view(request, source)

        async def home(_: web.Request) -> web.Response:
            raise web.HTTPFound(ROOT)

        found = [
            web.get("/", home),
            web.get(ROOT.rstrip("/"), home),
            web.get(ROOT, _file("index.html")),
            *(web.get(ROOT + file.name, _file(file.name)) for file in STATIC.iterdir()),
            web.get(STREAM, with_authorization(door, stream)),
            web.get(VIEW, with_authorization(door, view)),
        ]
        if isinstance(source, Player):
            found.append(web.post(MOMENT, with_authorization(door, self._moments(source))))
        return found

    def _moments(self, player: Player) -> Handler:
        async def moment(request: web.Request) -> web.StreamResponse:
            """Go to a time, in seconds since the recording's beginning."""
            text = request.query.get("seconds", "")
            if SECONDS.fullmatch(text) is None:
                return error_response(400, f"seconds: got {text!r}, want a number")
            player.go_to(float(text))
            self._answers.forget()
            return web.Response(status=204)

        return moment

    async def _view(self, request: web.Request, source: Source) -> web.StreamResponse:
        """What one page shows, worked out beside the scheduler."""
        name, query = request.match_info["name"], dict(request.query)
        if name not in VIEWS:
            return error_response(404, f"view: got {name!r}, want one of {', '.join(VIEWS)}")
        question = f"{name}?{sorted(query.items())}"
        if len(question) > QUESTION_CHARACTERS_MAX:
            return error_response(
                414, f"the query is longer than {QUESTION_CHARACTERS_MAX:,} characters"
            )

        async def prepare() -> Callable[[], bytes]:
            await source.wait_for_arrival()
            details = await source.pod_object(query.get("pod", "")) if name == "pod" else {}

            def work() -> bytes:
                found = VIEWS[name](View(source, self._rebuild, details), query)
                return msgspec.json.encode(found)

            return work

        try:
            body = await self._answers.get(question, prepare)
        except QueryError as error:
            return error_response(422, str(error))
        return web.Response(body=body, content_type="application/json", headers=HEADERS)

    async def _stream(self, request: web.Request, source: Source) -> web.StreamResponse:
        """Everything, then what changes, for as long as the page is open."""
        if len(self._pages) >= PAGES_MAX:
            return error_response(503, f"too many open pages: the limit is {PAGES_MAX}")
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        page = _Page(request)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(source))
        self._pages[page] = None  # what changes meanwhile comes after
        try:
            for line in self.watching.whole():
                await response.write(b"data: %s\n\n" % line)
            while not page.is_lost:
                await page.awake.wait()
                await response.write(page.take())
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._pages.pop(page, None)
        return response

    async def _look(self, source: Source) -> None:
        """While pages are open: tell all of them what has changed."""
        idle = 0
        while idle < IDLE_LOOKS:
            took_s, began_s = 0.0, time.monotonic()
            for line in self._lines(source):
                for page in list(self._pages) if line else ():
                    page.add_line(line)
                took_s += time.monotonic() - began_s
                await asyncio.sleep(0)
                began_s = time.monotonic()
            await asyncio.sleep(max(LOOK_SECONDS, LOOK_TIMES * took_s))
            idle = 0 if self._pages else idle + 1
        self._looking = None  # at once: whoever opens a page from now on looks anew

    def _lines(self, source: Source) -> Iterator[bytes]:
        try:
            yield from self.watching.look(source)
        except Exception:  # a page that cannot be told must not end the scheduler
            log.exception("cannot update the dashboard")

    async def _sample(self, scheduler: Scheduler) -> None:
        """Whether pages are open or not: they show what has been."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            try:
                self.watching.sample(time.time(), scheduler.engine)
            except Exception:  # the next sample may succeed
                log.exception("cannot sample the scheduler for the dashboard")


def _file(name: str) -> Handler:
    text = (STATIC / name).read_bytes()
    kind = TYPES["." + name.rpartition(".")[2]]

    async def send(_: web.Request) -> web.StreamResponse:
        return web.Response(body=text, content_type=kind, charset="utf-8", headers=HEADERS)

    return send
