"""Writes against a server that answers as it is told."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stower.framework import retries
from stower.framework.events import WriteFailed, WriteOk
from stower.framework.writes import (
    Bind,
    CreateEvent,
    CreateObject,
    PatchObject,
    PatchPodStatus,
    Write,
)
from stower.live import dispatcher
from stower.live.client import Response
from stower.live.dispatcher import Dispatcher
from stower.model.kinds import ResourceClaim
from stower.model.kinds.pod import PodCondition
from tests.virtual_loop import VirtualLoop


class Server:
    """Answers each request after the loop has turned; keeps what was asked."""

    def __init__(self, answer: Callable[[str, int], Response]) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.most = 0
        self._now = 0
        self._answer = answer
        self._tries: Counter[str] = Counter()

    async def request(
        self, method: str, path: str, body: bytes, content_type: str, **_: Any
    ) -> Response:
        self._now += 1
        self.most = max(self.most, self._now)
        self.asked.append((method, path, body))
        self._tries[path] += 1
        answer = self._answer(path, self._tries[path])
        await asyncio.sleep(0)
        self._now -= 1
        return answer


def carry_out(
    server: Server, writes: list[Write], in_flight: int = 8
) -> list[WriteOk | WriteFailed]:
    answers: list[WriteOk | WriteFailed] = []

    async def main() -> None:
        client: Any = server
        doing = Dispatcher(
            client, random.Random(1), answers.append, lambda _: None, lambda: 0, "i", in_flight
        )
        doing.send(writes)
        await doing.close(10)
        assert 0 == doing.pending_count

    asyncio.run(main())
    return answers


def test_nothing_is_sent_once_leadership_is_lost() -> None:
    """Not even another try: the process may have stood still meanwhile."""
    asked: list[str] = []

    class Failing:
        async def request(self, method: str, path: str, *rest: Any, **more: Any) -> Response:
            asked.append(path)
            return Response(503, b"")

    answers: list[WriteOk | WriteFailed] = []

    async def main() -> None:
        client: Any = Failing()
        doing = Dispatcher(
            client, random.Random(1), answers.append, lambda _: None, lambda: 0, "i", 1,
            lambda: not asked,
        )  # fmt: skip
        doing.send([bind(1), bind(2)])
        await doing.close(10)

    asyncio.run(main())
    assert 1 == len(asked)
    assert [(1, 0), (2, 0)] == [(a.id, a.code) for a in answers if isinstance(a, WriteFailed)]


def bind(id: int, name: str = "") -> Bind:
    name = name or f"p{id}"
    return Bind(id, "default", name, f"uid-{name}", "n0")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSE_SECONDS", 0.0)


def test_all_are_answered_and_so_many_are_in_flight() -> None:
    server = Server(lambda path, tries: Response(201, b""))
    answers = carry_out(server, [bind(i) for i in range(100)])
    assert {WriteOk(i) for i in range(100)} == set(answers)
    assert 8 == server.most


def test_writes_of_one_pod_go_one_after_the_other() -> None:
    condition = PodCondition("PodScheduled", "False", "Unschedulable", "no")
    patch = PatchPodStatus(1, "default", "p", "uid-p", condition)
    server = Server(lambda path, tries: Response(429 if tries < 3 else 200, b""))
    answers = carry_out(server, [patch, bind(2, "p"), bind(3)])
    assert [1, 2] == [a.id for a in answers if a.id != 3]
    paths = [path for _, path, _ in server.asked]
    assert paths.index("/api/v1/namespaces/default/pods/p/binding") > max(
        i for i, path in enumerate(paths) if path.endswith("/p/status")
    )


@pytest.mark.parametrize(
    ("status", "tried", "code"),
    [(0, 1, 0), (409, 1, 409), (429, 5, 429), (500, 1, 504), (502, 1, 504), (503, 5, 504)],
)
def test_a_binding_that_may_have_been_made_is_left_to_the_engine(
    status: int, tried: int, code: int
) -> None:
    server = Server(lambda path, tries: Response(status, b'{"message":"why"}'))
    assert [WriteFailed(1, code, "why")] == carry_out(server, [bind(1)])
    assert tried == len(server.asked)


@pytest.mark.parametrize(
    ("lost", "write"),
    [
        (503, Bind(1, "default", "p1", "uid-p1", "n0")),
        (0, PatchObject(1, ResourceClaim, "default", "c", "uid-c", "7", {"status": {}}, "status")),
        (504, PatchObject(1, ResourceClaim, "default", "c", "uid-c", "7", {"status": {}})),
        (0, CreateObject(1, ResourceClaim, "default", "c", "uid-p1", {})),
    ],
)  # fmt: skip
def test_a_conflict_after_a_lost_try_says_nothing_of_who_made_it(lost: int, write: Write) -> None:
    """That try may have been carried out, and the conflict be with it."""
    server = Server(lambda path, tries: Response(lost if tries == 1 else 409, b'{"message":"why"}'))
    assert [WriteFailed(1, 504, "why")] == carry_out(server, [write])
    assert 2 == len(server.asked)


def test_events_that_are_too_many_are_dropped_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "EVENTS_MAX", 3)
    server = Server(lambda path, tries: Response(201, b""))
    events: list[Write] = [
        CreateEvent(i, "default", "p", "u", "Normal", "Scheduled", "Binding", "x", 0)
        for i in range(5)
    ]
    answers = carry_out(server, events)
    assert 5 == len(answers)
    assert 2 == sum(isinstance(a, WriteFailed) for a in answers)


def test_the_event_of_a_pod_follows_its_binding_however_many_wait() -> None:
    """Three thousand pods are bound one after the other; each Event is queued as its pod is
    bound."""
    loop, bound_s, told_s = VirtualLoop(), dict[str, float](), dict[str, float]()
    made: list[Dispatcher] = []

    class Steady:
        async def request(
            self, method: str, path: str, body: bytes, *_: Any, **__: Any
        ) -> Response:
            await asyncio.sleep(0.001)
            told = json.loads(body)
            if told["kind"] == "Event":
                told_s[told["regarding"]["uid"]] = loop.time()
            else:
                uid = told["metadata"]["uid"]
                bound_s[uid] = loop.time()
                note = ("Normal", "Scheduled", "Binding", "x", 0)
                made[0].send([CreateEvent(0, "default", uid, uid, *note)])
            return Response(201, b"{}")

    async def main() -> None:
        client: Any = Steady()
        made.append(
            Dispatcher(client, random.Random(1), lambda _: None, lambda _: None, lambda: 0, "i", 1)
        )
        made[0].send([Bind(i, "default", f"p{i}", f"u{i}", "n") for i in range(3_000)])

    loop.run(main())
    loop.advance(10)
    loop.end()
    assert 3_000 == len(told_s) == len(bound_s)
    assert max(told_s[uid] - bound_s[uid] for uid in bound_s) < 1


@pytest.mark.parametrize("trouble", ["429", "slow"])
def test_events_that_are_throttled_or_slow_hold_up_no_binding(trouble: str) -> None:
    """EventRateLimit refuses Events alone; they may have a slow store of their own."""
    loop = VirtualLoop()
    bound: list[str] = []

    class Throttling:
        async def request(self, method: str, path: str, *_: Any, **__: Any) -> Response:
            await asyncio.sleep(0.02)
            if path.endswith("/binding"):
                bound.append(path)
            elif trouble == "slow":
                await asyncio.sleep(5)
            else:
                return Response(429, b"{}", 1.0)
            return Response(201, b"{}")

    made: list[Dispatcher] = []

    async def main() -> None:
        client: Any = Throttling()
        made.append(
            Dispatcher(client, random.Random(1), lambda _: None, lambda _: None, lambda: 0, "i", 8)
        )
        note = ("Normal", "Scheduled", "Binding", "x", 0)
        made[0].send([CreateEvent(i, "default", "p", "u", *note) for i in range(100)])
        made[0].send([Bind(i, "default", f"p{i}", f"u{i}", "n") for i in range(400)])

    loop.run(main())
    loop.advance(400 * 0.02 / 8 + 0.1)
    assert 400 == len(bound)
    assert 8 == made[0].window.size
    closing = loop.create_task(made[0].close(30))
    loop.advance(1.5)
    assert closing.done(), "nobody waits for Events that are late"
    assert closing.result()
    loop.end()


def test_a_transition_time_is_told_only_of_a_transition() -> None:
    server = Server(lambda path, tries: Response(200, b""))
    condition = PodCondition("PodScheduled", "False", "Unschedulable", "no")
    carry_out(server, [PatchPodStatus(1, "a b", "p/q", "u", condition, "")])
    method, path, body = server.asked[0]
    assert ("PATCH", "/api/v1/namespaces/a%20b/pods/p%2Fq/status") == (method, path)
    assert b'"lastTransitionTime":"1970-01-01T00:00:00Z"' in body
    assert b'"nominatedNodeName":null' in body


def test_conditions_are_removed_by_their_types() -> None:
    server = Server(lambda path, tries: Response(200, b""))
    removed = ("example.com/Old", "example.com/Older")
    carry_out(server, [PatchPodStatus(1, "default", "p", "u", removed_conditions=removed)])
    (_, _, body) = server.asked[0]
    assert {
        "metadata": {"uid": "u"},
        "status": {"conditions": [{"type": type, "$patch": "delete"} for type in removed]},
    } == msgspec.json.decode(body)
