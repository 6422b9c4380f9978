"""Dashboard: static files, authorization, the stream of open pages, views, moments."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.test_utils import make_mocked_request

from stower.assembly import build_engine
from stower.cli.recordings import rebuild_engine
from stower.dashboard import answers
from stower.dashboard import app as app_module
from stower.dashboard.app import (
    IDLE_LOOKS,
    LOOK_SECONDS,
    PAGES_MAX,
    QUESTION_CHARACTERS_MAX,
    STATIC,
    WAITING_MAX,
    Dashboard,
)
from stower.dashboard.board import SAMPLE_SECONDS
from stower.dashboard.player import Player, bounds
from stower.framework.events import Tick
from stower.live.authorization import StaticTokenAuthorizer
from stower.live.scheduler import Options, Scheduler
from tests.builders import make_node, make_pod
from tests.unit.dashboard.sources import Still
from tests.unit.record.test_recording import cluster, record
from tests.virtual_loop import VirtualLoop

TOKEN = "secret-token"
DOOR = StaticTokenAuthorizer(TOKEN)
STREAM = "/dashboard/stream"


class Sink(AbstractStreamWriter):
    """The browser's end of a stream. Keeps the bytes that were sent; blocks while `reads` is not
    set."""

    def __init__(self) -> None:
        self.sent = b""
        self.headers: dict[str, str] = {}
        self.reads = asyncio.Event()
        self.reads.set()
        self.is_closed = False

    async def write(self, chunk: Any) -> None:
        """See aiohttp."""
        await self.reads.wait()
        if self.is_closed:
            raise ConnectionResetError("the page is closed")
        self.sent += bytes(chunk)

    async def write_eof(self, chunk: bytes = b"") -> None:
        """See aiohttp."""

    async def drain(self) -> None:
        """See aiohttp."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        """See aiohttp."""

    def enable_chunking(self) -> None:
        """See aiohttp."""

    async def write_headers(self, status_line: str, headers: Any) -> None:
        """See aiohttp."""
        self.headers = dict(headers)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio."""
        return default

    def abort(self) -> None:
        """See asyncio."""
        self.is_closed = True
        self.reads.set()

    def read(self) -> list[dict[str, Any]]:
        """Returns the messages since the last call."""
        events, self.sent = self.sent.split(b"\n\n"), b""
        assert b"" == events.pop(), "every message is complete"
        assert all(event.startswith(b"data: ") for event in events)
        return [json.loads(event.removeprefix(b"data: ") or b"{}") for event in events]


async def ask(
    app: web.Application, path: str, method: str = "GET", token: str = TOKEN, sink: Any = None
) -> Any:
    """Returns the response of the route that matches a request."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    more = {"writer": sink, "transport": sink} if sink is not None else {}
    found = await app.router.resolve(make_mocked_request(method, path))
    request = make_mocked_request(method, path, headers, match_info=dict(found), **more)
    return await found.handler(request)


class Pages:
    """The routes of a dashboard on a virtual clock, and the pages that a test has opened."""

    def __init__(self, dashboard: Dashboard | None = None, source: Any = None) -> None:
        """Without a source, the test adds the routes."""
        self.loop = VirtualLoop()
        self.app = web.Application()
        self.open_pages: list[asyncio.Task[Any]] = []
        if source is not None:
            dashboard = dashboard or Dashboard(rebuild_engine)
            self.app.add_routes(dashboard.routes(source, DOOR))

    def ask(self, path: str, **more: Any) -> Any:
        """Returns the response to a request."""
        return self.loop.run(ask(self.app, path, **more))

    def open(self) -> Sink:
        """Returns a new page that follows the stream."""
        sink = Sink()
        self.open_pages.append(self.loop.create_task(ask(self.app, STREAM, sink=sink)))
        self.loop.turns()
        return sink

    def close(self, number: int) -> None:
        """Closes the page, as a browser does."""
        self.open_pages[number].cancel()
        self.loop.turns()


@pytest.fixture
def source() -> Still:
    pod = make_pod("p1", node="n1")
    meta = msgspec.structs.replace(pod.metadata, creation_timestamp="2026-09-21T14:13:20Z")
    return Still(make_node("n1"), msgspec.structs.replace(pod, metadata=meta))


@pytest.fixture
def pages(source: Still) -> Iterator[Pages]:
    made = Pages(source=source)
    yield made
    made.loop.end()


def rows(messages: list[dict[str, Any]]) -> set[str]:
    """Returns the names of the nodes in messages."""
    return {node["name"] for one in messages for node in one.get("rows", {}).values() if node}


# Files


def test_static_files_need_no_token_and_load_nothing_from_other_hosts(pages: Pages) -> None:
    types = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
    names = [file.name for file in STATIC.iterdir()]
    assert {"index.html", "app.js", "style.css"} <= {*names}
    for name in names:
        found = pages.ask(f"/dashboard/{name}", token="")
        assert (200, types[name.partition(".")[2]]) == (found.status, found.content_type)
        assert (STATIC / name).read_bytes() == found.body
        assert "default-src 'none'" in found.headers["Content-Security-Policy"]
        assert ("nosniff", "no-store") == (
            found.headers["X-Content-Type-Options"], found.headers["Cache-Control"]
        )  # fmt: skip
    assert pages.ask("/dashboard/", token="").body == (STATIC / "index.html").read_bytes()
    with pytest.raises(web.HTTPNotFound):
        pages.ask("/dashboard/other")


@pytest.mark.parametrize("path", ["/", "/dashboard"])
def test_short_paths_redirect_to_the_page(pages: Pages, path: str) -> None:
    with pytest.raises(web.HTTPFound) as found:
        pages.ask(path, token="")
    assert "/dashboard/" == found.value.location


@pytest.mark.parametrize("path", [STREAM, "/dashboard/view/groups"])
def test_the_stream_and_the_views_need_the_token(pages: Pages, path: str) -> None:
    assert [401, 401] == [pages.ask(path, token=token).status for token in ("", "wrong")]


# The stream


def test_a_page_gets_all_nodes_and_then_changed_nodes(pages: Pages, source: Still) -> None:
    page = pages.open()
    assert "text/event-stream" == page.headers["Content-Type"]
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    first = page.read()
    assert {"n1"} == rows(first)
    assert {"begin": True} == first[0]
    source.add(make_node("n2"))
    pages.loop.advance(LOOK_SECONDS)
    later = page.read()
    assert {"n2"} == rows(later), "n1 is unchanged"
    assert any("standing" in one for one in later)


def test_all_pages_get_the_same_changes(pages: Pages, source: Still) -> None:
    early = pages.open()
    pages.loop.advance(3 * LOOK_SECONDS)
    late = pages.open()
    assert {"n1"} == rows(late.read()), "a late page gets all nodes"
    early.read()
    source.add(make_node("n2"))
    pages.loop.advance(LOOK_SECONDS)
    assert early.sent
    assert early.sent == late.sent


def test_a_closed_page_gets_nothing_more(pages: Pages, source: Still) -> None:
    gone, stays = pages.open(), pages.open()
    pages.close(0)
    gone.sent = stays.sent = b""
    source.add(make_node("n2"))
    pages.loop.advance(2 * LOOK_SECONDS)
    assert b"" == gone.sent
    assert {"n2"} == rows(stays.read())


def test_a_broken_connection_ends_the_stream_of_its_page(pages: Pages, source: Still) -> None:
    page = pages.open()
    page.is_closed = True
    source.add(make_node("n2"))
    pages.loop.advance(2 * LOOK_SECONDS)
    assert pages.open_pages[0].done()
    assert pages.open_pages[0].exception() is None


def test_the_board_is_idle_while_no_page_is_open(pages: Pages, source: Still) -> None:
    pages.open()
    pages.close(0)
    pages.loop.advance((IDLE_LOOKS + 1) * LOOK_SECONDS)
    assert not asyncio.all_tasks(pages.loop)
    source.add(make_node("n2"))
    page = pages.open()
    assert {"n1", "n2"} == rows(page.read()), "the next page starts it again"


def test_a_page_that_reads_nothing_is_disconnected_at_a_limit(
    pages: Pages, source: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "WAITING_MAX", 2_000)
    assert WAITING_MAX > 2_000
    stuck, reads = pages.open(), pages.open()
    stuck.reads.clear()
    for number in range(20):
        source.add(make_node(f"more-{number}"))
        pages.loop.advance(LOOK_SECONDS)
    assert stuck.is_closed
    assert pages.open_pages[0].done()
    assert {f"more-{number}" for number in range(20)} <= rows(reads.read())


def test_the_number_of_open_pages_is_limited(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "PAGES_MAX", 2)
    assert PAGES_MAX > 2
    pages.open()
    pages.open()
    refused = pages.ask(STREAM)
    assert (503, "too many open pages: the limit is 2\n") == (refused.status, refused.text)
    pages.close(0)
    assert pages.open().sent


def test_an_exception_of_the_board_is_logged_and_pages_stay_open(
    pages: Pages,
    source: Still,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails() -> dict[str, Any]:
        raise KeyError("a fault")

    page = pages.open()
    monkeypatch.setattr(source, "get_position", fails)
    with caplog.at_level(logging.ERROR):
        pages.loop.advance(2 * LOOK_SECONDS)
    assert "a fault" in caplog.text
    monkeypatch.undo()
    page.read()
    source.add(make_node("n2"))
    pages.loop.advance(2 * LOOK_SECONDS)
    assert {"n2"} == rows(page.read())


# Answers


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the pause between two answers."""
    monkeypatch.setattr(answers, "PAUSE_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_view_is_json_that_is_not_stored(pages: Pages) -> None:
    found = pages.ask("/dashboard/view/pod?pod=default/p1")
    assert (200, "application/json", "no-store") == (
        found.status, found.content_type, found.headers["Cache-Control"]
    )  # fmt: skip
    shown = json.loads(found.body)
    assert "placed" == shown["explanation"]["verdict"]
    assert ["created"] == [one["what"] for one in shown["timeline"]], "of the API object"


@pytest.mark.usefixtures("at_once")
def test_an_invalid_query_is_unprocessable_with_a_reason(pages: Pages) -> None:
    found = pages.ask("/dashboard/view/what-if?add=many")
    assert (422, True) == (found.status, found.text.startswith('add: got "many"'))


def test_unknown_views_and_long_queries_are_refused(pages: Pages) -> None:
    assert 404 == pages.ask("/dashboard/view/other").status
    long = pages.ask(f"/dashboard/view/groups?x={'y' * QUESTION_CHARACTERS_MAX}")
    assert (414, "the query is longer than 8,000 characters\n") == (long.status, long.text)


# A recording


def test_a_page_sets_the_moment_of_a_player(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    record(path, cluster())
    dashboard = Dashboard(rebuild_engine)
    player = Player(path, rebuild_engine, dashboard.watching, bounds(path))
    pages = Pages(dashboard, player)
    for seconds in ("5e-9", "x", "", "-1", "1" * 10, "1.", "١"):
        refused = pages.ask(f"/dashboard/moment?seconds={seconds}", method="POST")
        assert (400, True) == (refused.status, "want a number" in refused.text)
    assert 204 == pages.ask("/dashboard/moment?seconds=0.000000003", method="POST").status
    assert 401 == pages.ask("/dashboard/moment?seconds=1", method="POST", token="").status
    assert 3e-9 == player.get_position()["recording"]["wanted"]
    with pytest.raises(web.HTTPMethodNotAllowed):
        pages.ask("/dashboard/moment?seconds=1")
    pages.loop.end()


def test_a_running_scheduler_has_no_route_for_moments(pages: Pages) -> None:
    with pytest.raises(web.HTTPNotFound):
        pages.ask("/dashboard/moment?seconds=1", method="POST")


@pytest.mark.usefixtures("at_once")
def test_a_view_is_computed_again_for_another_moment(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    record(path, cluster(pods=1))
    dashboard = Dashboard(rebuild_engine)
    player = Player(path, rebuild_engine, dashboard.watching, bounds(path))
    pages = Pages(dashboard, player)
    playing = pages.loop.create_task(player.run())
    verdicts = []
    for seconds in ("0", "0.000000001"):
        pages.ask(f"/dashboard/moment?seconds={seconds}", method="POST")
        found = json.loads(pages.ask("/dashboard/view/pod?pod=default/p0").body)
        verdicts.append(found["explanation"]["verdict"] if "explanation" in found else "")
    assert ["", "placed"] == verdicts
    assert not playing.done()
    pages.loop.end()


# A running scheduler


def test_a_scheduler_is_sampled_while_no_page_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Still(make_node("n1"))
    pages, dashboard = Pages(), Dashboard(rebuild_engine, source.get_built())
    clock = SimpleNamespace(time=pages.loop.time, monotonic=pages.loop.time)
    monkeypatch.setattr(app_module, "time", clock)

    async def begin() -> None:
        client: Any = SimpleNamespace(access=None)
        scheduler = Scheduler(client, lambda: build_engine(None), Options("me"))
        scheduler.engine = source.engine
        pages.app.add_routes(dashboard(scheduler, DOOR))

    pages.loop.run(begin())
    pages.loop.advance(SAMPLE_SECONDS)
    for _ in range(2):
        dashboard.watching.on_step(Tick(), 0.0)
        pages.loop.advance(SAMPLE_SECONDS)
    history = [sample for one in pages.open().read() for sample in one.get("history", ())]
    assert [1 / SAMPLE_SECONDS] * 2 == [sample["events"] for sample in history]
    pages.loop.end()


def test_a_sample_that_fails_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Still(make_node("n1"))
    pages, dashboard = Pages(), Dashboard(rebuild_engine, source.get_built())
    times: list[float] = []

    def sample(at_s: float, engine: Any) -> None:
        times.append(at_s)
        raise IndexError("planted")

    monkeypatch.setattr(dashboard.watching, "sample", sample)

    async def begin() -> None:
        client: Any = SimpleNamespace(access=None)
        scheduler = Scheduler(client, lambda: build_engine(None), Options("me"))
        pages.app.add_routes(dashboard(scheduler, DOOR))

    pages.loop.run(begin())
    for _ in range(3):
        pages.loop.advance(SAMPLE_SECONDS)
    assert 3 == len(times)
    pages.loop.end()
