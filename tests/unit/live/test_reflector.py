"""A reflector against servers that break watches, forget history, and hide resources."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import pytest

from stower.live import reflector as module
from stower.live.access import AccessError
from stower.live.client import Response, WatchInterrupted, WatchStatusError
from stower.live.reflector import (
    Changes,
    ListError,
    MalformedObject,
    Reflector,
    TriedEveryMinute,
    TypedDecoder,
    UnstructuredDecoder,
)
from stower.model.errors import InvalidObject
from stower.model.kinds import Pod
from tests.unit.live.fake_api import until

Object = dict[str, Any]
Step = Any  # an event, or an exception that ends the watch
FOREVER = "forever"
BOOKMARK = {"k8s.io/initial-events-end": "true"}


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_SECONDS", 0.0005)
    monkeypatch.setattr(module, "NOT_SERVED_RETRY_SECONDS", 0.001)


def pod(name: str, version: int = 1, **spec: Any) -> Object:
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {"containers": [{"name": "c"}], **spec}}


def event(type: str, obj: Object) -> Object:
    return {"type": type, "object": obj}


def end_of_list(version: int) -> Object:
    meta = {"resourceVersion": str(version), "annotations": BOOKMARK}
    return event("BOOKMARK", {"metadata": meta})


def page(*items: Object, version: int = 1, token: str = "") -> Response:
    meta = {"resourceVersion": str(version), "continue": token}
    return Response(200, msgspec.json.encode({"metadata": meta, "items": items}))


class Script:
    """A server that answers lists and watches as it is told, then waits for ever."""

    def __init__(self, lists: list[Any] = [], watches: list[list[Step]] = []) -> None:  # noqa: B006
        self.lists, self.watches = [*lists], [*watches]
        self.paths: list[str] = []
        self.queries: list[dict[str, str]] = []

    async def request(self, method: str, path: str, accept: str = "") -> Response:
        self.paths.append(path)
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch(
        self, path: str, query: dict[str, str], accept: str = ""
    ) -> AsyncIterator[list[bytes]]:
        self.queries.append(query)
        steps = self.watches.pop(0) if self.watches else [FOREVER]
        for step in steps:
            if isinstance(step, Exception):
                raise step
            if step == FOREVER:
                yield []
                await asyncio.Event().wait()
            yield [step if isinstance(step, bytes) else msgspec.json.encode(step)]


class Seen:
    """A reflector, and what it has reported."""

    def __init__(self, server: Script, **options: Any) -> None:
        self.lists = 0
        self.changes: list[tuple[str, str, str]] = []
        self.malformed: list[tuple[str, str]] = []
        client: Any = server
        options = {"on_list": self._on_list, "on_changes": self._on_changes, **options}
        self.reflector = Reflector(
            client, "/pods", options.pop("decoder", TypedDecoder(Pod)), random.Random(1),
            on_malformed=self._on_malformed, **options,
        )  # fmt: skip

    def _on_list(self) -> None:
        self.lists += 1

    def _on_changes(self, changes: Changes) -> None:
        for kind, obj in changes:
            meta = obj.metadata
            self.changes.append((kind.value, meta.name, meta.resource_version))

    def _on_malformed(self, obj: MalformedObject, why: str) -> None:
        self.malformed.append((obj.metadata.name, why))

    def versions(self) -> dict[str, str]:
        """The objects' resourceVersions by name."""
        return {o.metadata.name: o.metadata.resource_version
                for o in self.reflector.objects.values()}  # fmt: skip

    def run(self, condition: Callable[[], Any]) -> None:
        """Runs the reflector until a condition holds, or the reflector ends."""

        async def story() -> None:
            running = asyncio.create_task(self.reflector.run())
            await until(lambda: running.done() or condition())
            running.cancel()
            try:
                await running
            except asyncio.CancelledError:
                pass

        asyncio.run(story())


def test_a_list_that_comes_as_a_watch_is_complete_at_its_bookmark() -> None:
    watch = [event("ADDED", pod("a", 3)), event("ADDED", pod("b", 4)), end_of_list(5),
             event("MODIFIED", pod("a", 6)), event("DELETED", pod("b", 7)), FOREVER]  # fmt: skip
    server = Script(watches=[watch])
    seen = Seen(server, selector="spec.nodeName=n1")
    assert not seen.reflector.has_synced
    seen.run(lambda: len(seen.changes) == 2)
    assert (1, {"a": "6"}, "7") == (seen.lists, seen.versions(), seen.reflector.resource_version)
    assert [("MODIFIED", "a", "6"), ("DELETED", "b", "7")] == seen.changes
    assert seen.reflector.has_synced
    (query,) = server.queries
    assert ("true", "spec.nodeName=n1") == (query["sendInitialEvents"], query["fieldSelector"])
    assert 300 <= int(query["timeoutSeconds"]) <= 600


def test_an_old_server_is_listed_in_pages() -> None:
    refused = WatchStatusError(Response(422, b"{}"))
    lists = [page(pod("a"), token="t t"), page(pod("b"), version=8)]
    server = Script(lists, [[refused]])
    seen = Seen(server, selector="x=y")
    seen.run(lambda: len(server.queries) == 2)
    assert {"a": "1", "b": "1"} == seen.versions()
    assert ["/pods?limit=500&fieldSelector=x%3Dy",
            "/pods?limit=500&continue=t+t&fieldSelector=x%3Dy"] == server.paths  # fmt: skip
    assert "8" == server.queries[1]["resourceVersion"]


def test_a_stream_that_breaks_is_resumed_where_it_was() -> None:
    """A bookmark moves the position too."""
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    watches = [[end_of_list(5), event("ADDED", pod("a", 6)), WatchInterrupted("cut")],
               [bookmark], [FOREVER]]  # fmt: skip
    server = Script(watches=watches)
    seen = Seen(server)
    seen.run(lambda: len(server.queries) == 3)
    assert ["6", "9"] == [query["resourceVersion"] for query in server.queries[1:]]
    assert (1, 0, 1) == (
        seen.lists, seen.reflector.relist_count, seen.reflector.interruption_count,
    )  # fmt: skip


@pytest.mark.parametrize("is_event", [False, True])
def test_a_forgotten_history_is_listed_again(is_event: bool) -> None:
    """What went meanwhile is in no list, and in no change."""
    gone = WatchStatusError(Response(410, b"{}"))
    last = event("ERROR", {"code": 410, "message": "too old"}) if is_event else gone
    watches = [[event("ADDED", pod("a", 3)), end_of_list(5), last],
               [event("ADDED", pod("b", 7)), end_of_list(8), FOREVER]]  # fmt: skip
    seen = Seen(Script(watches=watches))
    seen.run(lambda: seen.lists == 2)
    assert {"b": "7"} == seen.versions()
    assert [] == seen.changes
    assert 1 == seen.reflector.relist_count


def test_a_streamed_list_that_breaks_is_followed_by_pages() -> None:
    watches = [[event("ADDED", pod("a", 3)), WatchInterrupted("cut")], [FOREVER]]
    seen = Seen(Script([page(pod("b", 4), version=9)], watches))
    seen.run(lambda: seen.lists)
    assert {"b": "4"} == seen.versions()


def test_a_streamed_list_that_ends_before_its_bookmark_is_followed_by_pages() -> None:
    seen = Seen(Script([page(version=9)], [[event("ADDED", pod("a", 3))]]))
    seen.run(lambda: seen.lists)
    assert ({}, 1) == (seen.versions(), seen.reflector.interruption_count)


@pytest.mark.parametrize(
    "line", [b"no JSON", b'{"type": "OTHER", "object": {}}', b'{"type": "ADDED"}']
)
def test_a_line_that_is_no_event_interrupts_the_watch(line: bytes) -> None:
    """The changes before it are reported."""
    server = Script(watches=[[end_of_list(5), event("ADDED", pod("a", 6)), line]])
    seen = Seen(server)
    seen.run(lambda: len(server.queries) == 2)
    assert [("ADDED", "a", "6")] == seen.changes
    assert 1 == seen.reflector.interruption_count


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_first_list_that_is_refused_ends_the_reflector(status: int) -> None:
    refused = WatchStatusError(Response(status, b"{}"))
    seen = Seen(Script([Response(status, b'{"message": "not you"}')], [[refused]]))
    with pytest.raises(ListError, match=f"/pods: {status} not you"):
        seen.run(lambda: False)


def test_a_list_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """And a later one that is refused: the server may have been set up anew."""
    refused = WatchStatusError(Response(422, b"{}"))
    lists = [Response(500, b'{"message": "down"}'), Response(200, b"no list"), page(version=3),
             Response(403, b'{"message": "not now"}'), page(pod("a"), version=4)]  # fmt: skip
    gone = WatchStatusError(Response(410, b"{}"))
    seen = Seen(Script(lists, [[refused], [gone]]))
    seen.run(lambda: seen.lists == 2)
    assert {"a": "1"} == seen.versions()
    assert "cannot list /pods: 500 down" in caplog.text
    assert "cannot list /pods: the answer is not a list: " in caplog.text
    assert "cannot list /pods: 403 not now" in caplog.text


def test_pages_that_take_too_long_are_replaced_by_one_list() -> None:
    """410 for a page: its token has expired."""
    refused = WatchStatusError(Response(422, b"{}"))
    lists = [page(pod("a"), token="t"), Response(410, b"{}"), page(pod("b"), version=5)]
    server = Script(lists, [[refused]])
    seen = Seen(server)
    seen.run(lambda: seen.lists)
    assert {"b": "1"} == seen.versions()
    assert "/pods?" == server.paths[-1]


class Shown:
    """An Available with these paths, which are asked for again after a moment."""

    def __init__(self, *paths: str, empty: Sequence[int] = (404,)) -> None:
        self._paths = paths
        self._empty = empty
        self.refused: list[tuple[str, int]] = []

    async def paths(self) -> Sequence[str]:
        return self._paths

    async def wait(self) -> None:
        await asyncio.sleep(0.001)
        self._paths = self._paths or ("/pods",)

    async def refuse(self, path: str, answer: Response) -> bool | None:
        self.refused.append((path, answer.status))
        return True if answer.status in self._empty else None


def test_an_optional_resource_is_empty_until_it_is_served() -> None:
    """What is not shown is not listed."""
    server = Script([page(pod("a"), version=5)])
    seen = Seen(server, available=Shown())
    seen.run(lambda: seen.versions())
    assert {"a": "1"} == seen.versions()
    assert 2 == seen.lists, "once as empty, once with objects"


def test_a_resource_that_is_tried_every_minute_is_empty_until_it_is_served() -> None:
    missing = Response(404, b"{}")
    server = Script([missing, missing, page(pod("a"), version=5)])
    seen = Seen(server, available=TriedEveryMinute("/pods"))
    seen.run(lambda: seen.versions())
    assert {"a": "1"} == seen.versions()
    assert 2 == seen.lists


def test_an_optional_resource_that_is_withdrawn_is_empty() -> None:
    missing = Response(404, b"{}")
    withdrawn = [WatchStatusError(missing)]
    server = Script([page(pod("a"), version=5), missing], [withdrawn, withdrawn])
    shown = Shown("/pods")
    seen = Seen(server, available=shown)
    seen.run(lambda: seen.lists == 2)
    assert {} == seen.versions()
    assert {("/pods", 404)} == {*shown.refused}


@pytest.mark.parametrize("hidden", [False, True])
def test_a_forbidden_list_is_empty_only_if_that_is_expected(hidden: bool) -> None:
    server = Script([Response(403, b'{"message": "not you"}')] * 50)
    seen = Seen(server, available=Shown("/pods", empty=(403, 404) if hidden else (404,)))
    if hidden:
        seen.run(lambda: seen.lists)
    else:
        with pytest.raises(ListError, match="/pods: 403 not you"):
            seen.run(lambda: False)


def test_a_resource_is_looked_for_in_its_other_versions() -> None:
    missing = Response(404, b"{}")
    server = Script([missing, page(pod("a"), version=5)])
    seen = Seen(server, available=Shown("/pods", "/older/pods"))
    seen.run(lambda: len(server.queries))
    assert "/older/pods" == seen.reflector.path
    assert {"a": "1"} == seen.versions()


def test_an_unreadable_object_keeps_its_last_readable_state_until_it_is_deleted() -> None:
    bad = {"metadata": pod("a", 7)["metadata"], "spec": {"containers": "none"}}
    watch = [event("ADDED", pod("a", 3)), end_of_list(5), event("MODIFIED", bad),
             event("DELETED", bad | {"metadata": {**bad["metadata"], "resourceVersion": "8"}}),
             event("ADDED", {**bad, "metadata": {}}), event("ADDED", pod("b", 9)),
             FOREVER]  # fmt: skip
    states = []
    seen = Seen(Script(watches=[watch]))
    seen.reflector._on_malformed = lambda obj, why: states.append(seen.versions())
    seen.run(lambda: "b" in seen.versions())
    assert [{"a": "3"}, {"a": "3"}] == states
    assert [("DELETED", "a", "3"), ("ADDED", "b", "9")] == seen.changes


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_unreadable_object_of_a_list_is_left_out(is_stream: bool) -> None:
    bad = {**pod("a", 7), "spec": {"containers": "none"}}
    if is_stream:
        events = [event("ADDED", bad), event("DELETED", bad), event("ADDED", pod("b", 3))]
        seen = Seen(Script(watches=[[*events, end_of_list(9)], [FOREVER]]))
    else:
        refused = WatchStatusError(Response(422, b"{}"))
        seen = Seen(Script([page(bad, pod("b", 3), version=9)], [[refused]]))
    seen.run(lambda: seen.lists)
    assert {"b": "3"} == seen.versions()
    assert {"a"} == {name for name, _ in seen.malformed}


def test_changes_are_read_only_while_there_is_room() -> None:
    """The list itself is read in any case."""

    async def story() -> tuple[int, int]:
        has_room = asyncio.Event()
        has_room.set()
        added = [event("ADDED", pod(f"p{i}", i)) for i in range(6, 9)]
        server = Script(watches=[[end_of_list(5), *added, FOREVER]])
        changes: list[Any] = []

        def on_changes(more: Changes) -> None:
            changes.extend(more)
            has_room.clear()

        client: Any = server
        reflector = Reflector(
            client, "/pods", TypedDecoder(Pod), random.Random(1), on_list=lambda: None,
            on_changes=on_changes, has_room=has_room,
        )  # fmt: skip
        running = asyncio.create_task(reflector.run())
        await until(lambda: changes)
        for _ in range(5):
            await asyncio.sleep(0)
        before = len(changes)
        for _ in range(2):
            has_room.set()
            await until(lambda: not has_room.is_set())
        running.cancel()
        return before, len(changes)

    assert (1, 3) == asyncio.run(story())


def test_other_tasks_run_between_the_batches_of_a_large_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BATCH_SIZE", 2)
    refused = WatchStatusError(Response(422, b"{}"))
    lines = b"\n".join(msgspec.json.encode(event("ADDED", pod(f"w{i}", i))) for i in range(7, 12))

    class Together(Script):
        async def watch(
            self, path: str, query: dict[str, str], accept: str = ""
        ) -> AsyncIterator[list[bytes]]:
            async for some in super().watch(path, query):
                yield [line for line in b"".join(some).split(b"\n") if line]

    batches: list[int] = []
    listed = page(*(pod(f"p{i}", i) for i in range(5)), version=6)
    server = Together([listed], [[refused], [lines, FOREVER]])
    seen = Seen(server, on_changes=lambda changes: batches.append(len(changes)))
    seen.run(lambda: sum(batches) == 5)
    assert [2, 2, 1] == batches
    assert 10 == len(seen.reflector.objects)


def test_missing_credentials_are_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    missing = AccessError("no token")
    seen = Seen(Script([missing, page(pod("a"), version=5)]), available=Shown("/pods"))
    seen.run(lambda: seen.versions())
    assert ["no credentials for /pods: no token"] == caplog.messages


def test_a_watch_that_is_throttled_waits_as_long_as_the_server_asks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(delay_s: float) -> None:
        pauses.append(delay_s)
        await real_sleep(0)

    throttled = WatchStatusError(Response(429, b'{"message": "later"}', 17.0))
    endless = WatchStatusError(Response(429, b'{"message": "later"}', 3600.0))
    server = Script(watches=[[end_of_list(5), throttled], [endless], [FOREVER]])
    seen = Seen(server)

    async def story() -> None:
        running = asyncio.create_task(seen.reflector.run())
        while len(server.queries) < 3:
            await real_sleep(0.001)
        running.cancel()

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert [17.0, module.BACKOFF_SECONDS_MAX] == [pause for pause in pauses if pause >= 1]
    assert "cannot watch /pods: 429 later" in caplog.text


def test_objects_as_dictionaries_have_their_kind() -> None:
    decoder = UnstructuredDecoder("v1", "Pod")
    obj = decoder.decode_object(msgspec.json.encode(pod("a", 3)))
    assert ("v1", "Pod", "a") == (obj["apiVersion"], obj["kind"], obj["metadata"]["name"])
    assert ("a", "3") == (decoder.uid(obj), decoder.resource_version(obj))
    for bad in (b"no JSON", b"[1]"):
        with pytest.raises(InvalidObject):
            decoder.decode_object(bad)
