"""Watches over HTTP: events, bookmarks, timeouts, and watchers that read slowly."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from stower.apiserver import handler
from stower.apiserver.database import Database
from stower.apiserver.handler import BEHIND_BYTES, BOOKMARK_SECONDS
from tests.unit.apiserver.memory import client_of
from tests.unit.apiserver.memory_api import CONFIG_MAPS, MemoryApi, config_map, events, locked
from tests.wire import Wire


@pytest.fixture
def server() -> Iterator[MemoryApi]:
    made = MemoryApi()
    yield made
    made.end()


def create(server: MemoryApi, *names: str, **data: str) -> None:
    for name in names:
        status, answer = server.call("POST", CONFIG_MAPS, config_map(name, **data))
        assert 201 == status, answer


def has_more(wire: Wire) -> bool:
    """Returns whether the client has bytes that the test has not read."""
    return bool(client_of(wire).transport.sent)


def all_names(wire: Wire) -> list[str]:
    """Returns the names of the objects of all unread events."""
    found = []
    while has_more(wire):
        found += [name for _, name in events(wire.chunk())]
    return found


def test_a_watch_sends_existing_objects_and_then_each_change(server: MemoryApi) -> None:
    create(server, "a")
    wire = server.watch()
    assert [("ADDED", "a")] == events(wire.chunk())
    create(server, "b")
    assert [("ADDED", "b")] == events(wire.chunk())
    server.call("PUT", f"{CONFIG_MAPS}/b", config_map("b", k="v"))
    assert [("MODIFIED", "b")] == events(wire.chunk())
    server.call("DELETE", f"{CONFIG_MAPS}/b")
    assert [("DELETED", "b")] == events(wire.chunk())
    assert not has_more(wire)


def test_a_watch_sends_only_selected_objects(server: MemoryApi) -> None:
    wire = server.watch("fieldSelector=metadata.name%3Db")
    create(server, "a", "b")
    assert [("ADDED", "b")] == events(wire.chunk())
    assert not has_more(wire)


def test_watches_from_different_revisions_send_every_event_once(server: MemoryApi) -> None:
    create(server, "a")
    since = server.call("GET", CONFIG_MAPS)[1]["metadata"]["resourceVersion"]
    create(server, "b")
    early, late = server.watch(f"resourceVersion={since}"), server.watch()
    create(server, "c")
    assert ["b", "c"] == all_names(early)
    assert ["a", "b", "c"] == all_names(late)
    assert 2 + 3 == server.handler.events_sent


def test_a_watch_may_send_tables(server: MemoryApi) -> None:
    wire = server.connect()
    table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n"
    wire.send(f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\n{table}")
    assert 200 == wire.answer()[0]
    create(server, "a")
    assert "Table" == json.loads(wire.chunk())["object"]["kind"]


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("timeoutSeconds=7", 7),
        ("timeoutSeconds=70", 70),
        ("timeoutSeconds=999999", 90),
        ("timeoutSeconds=0", 60),
        ("", 60),
    ],
)
def test_a_watch_ends_at_its_timeout(
    server: MemoryApi, monkeypatch: pytest.MonkeyPatch, query: str, seconds: float
) -> None:
    monkeypatch.setattr(handler, "WATCH_SECONDS", 60)
    monkeypatch.setattr(handler, "WATCH_SECONDS_MAX", 90)
    wire = server.watch(query)
    server.loop.advance(seconds - 1)
    assert not has_more(wire)
    server.loop.advance(2)
    assert b"" == wire.chunk()
    assert {} == server.handler.streams
    wire.send("GET /healthz HTTP/1.1\r\n")
    assert 200 == wire.answer()[0], "the connection stays open"


def test_a_watch_sends_bookmarks_only_if_the_request_allows_them(server: MemoryApi) -> None:
    with_bookmarks, without = server.watch("allowWatchBookmarks=true"), server.watch()
    server.loop.advance(BOOKMARK_SECONDS - 1)
    assert not has_more(with_bookmarks)
    server.loop.advance(2)
    (bookmark,) = [json.loads(line) for line in with_bookmarks.chunk().splitlines()]
    assert "BOOKMARK" == bookmark["type"]
    assert str(server.api.store.visible) == bookmark["object"]["metadata"]["resourceVersion"]
    server.loop.advance(BOOKMARK_SECONDS)
    assert b"BOOKMARK" in with_bookmarks.chunk()
    assert not has_more(without)


def test_a_watch_from_a_forgotten_revision_sends_410_and_ends(server: MemoryApi) -> None:
    create(server, "a")
    server.api.store.forget()
    wire = server.watch("resourceVersion=2")
    error = json.loads(wire.chunk())
    assert ("ERROR", 410) == (error["type"], error["object"]["code"])
    assert b"" == wire.chunk()


def test_a_watch_over_http_1_0_is_a_bad_request(server: MemoryApi) -> None:
    wire = server.connect()
    wire.send(f"GET {CONFIG_MAPS}?watch=1 HTTP/1.0\r\n")
    status, _, body = wire.answer()
    assert (400, "a watch requires HTTP/1.1, got HTTP/1.0") == (status, json.loads(body)["message"])


def test_a_slow_watcher_gets_every_event_later(server: MemoryApi) -> None:
    slow, quick = server.watch(), server.watch()
    client_of(slow).transport.is_taken = False
    names = [f"m{number}" for number in range(12)]
    create(server, *names, k="x" * (BEHIND_BYTES // 6))
    assert names == all_names(quick), "the slow watcher delays no other watcher"
    written = client_of(slow).transport.get_write_buffer_size()
    assert BEHIND_BYTES < written < 2 * BEHIND_BYTES, "later events stay in the history"
    client_of(slow).take()
    assert names == all_names(slow)
    create(server, "next")
    assert ["next"] == all_names(slow)


def test_a_slow_watcher_gets_410_when_its_events_are_forgotten(server: MemoryApi) -> None:
    wire = server.watch()
    client_of(wire).transport.is_taken = False
    create(server, *(f"m{number}" for number in range(12)), k="x" * (BEHIND_BYTES // 6))
    server.api.store.forget()
    client_of(wire).take()
    last = [json.loads(line) for line in _until_end(wire).splitlines()][-1]
    assert ("ERROR", 410) == (last["type"], last["object"]["code"])


def _until_end(wire: Wire) -> bytes:
    found = b""
    while chunk := wire.chunk():
        found += chunk
    return found


def test_a_disconnected_watcher_is_removed_at_once(
    server: MemoryApi, caplog: pytest.LogCaptureFixture
) -> None:
    gone, stays = server.watch(), server.watch()
    with caplog.at_level(logging.ERROR):
        client_of(gone).leave()
        (streams,) = server.handler.streams.values()
        assert 1 == len(streams), "before the next event"
        create(server, "a")
    assert ["a"] == all_names(stays)
    assert "" == caplog.text


def test_closing_the_handler_ends_all_watches(server: MemoryApi) -> None:
    wire = server.watch()
    server.loop.do(server.handler.close)
    assert b"" == wire.chunk()


def test_a_watch_sends_no_event_of_a_failed_write(tmp_path: Path) -> None:
    database = Database(tmp_path)
    server = MemoryApi(database=database)
    wire = server.watch()
    with locked(tmp_path):
        assert 500 == server.call("POST", CONFIG_MAPS, config_map("lost"))[0]
    assert not has_more(wire)
    create(server, "kept")
    assert [("ADDED", "kept")] == events(wire.chunk())
    server.end()
    database.close()
