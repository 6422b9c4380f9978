"""Servers that are slow, end everything at once, or do not answer: nobody asks without a pause."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stower.cli import object_loader
from stower.cli.inputs import RawObject
from stower.cli.kube import KubeError
from stower.cli.object_loader import Loader
from stower.live.client import Response, WatchStatusError
from stower.live.leader import LeaderElectionConfig, LeaderElector
from stower.live.reflector import Reflector, TypedDecoder
from stower.model.kinds import Pod

EMPTY = Response(200, b'{"metadata":{"resourceVersion":"5"},"items":[]}')
MS = 1_000_000


class Enough(Exception):
    pass


class Ending:
    """A server whose watches end as soon as they stand."""

    def __init__(self, gone: bool) -> None:
        self.watches = self.lists = 0
        self._gone = gone

    async def request(self, *_: Any, **__: Any) -> Response:
        self.lists += 1
        return EMPTY

    async def watch(
        self, _: str, query: dict[str, str], accept: str = ""
    ) -> AsyncIterator[list[bytes]]:
        if "sendInitialEvents" in query:
            raise WatchStatusError(Response(422, b"{}"))  # no lists as streams here
        self.watches += 1
        if self._gone:
            raise WatchStatusError(Response(410, b"{}"))
        yield []


@pytest.mark.parametrize("gone", [False, True])
def test_a_watch_that_ends_at_once_is_a_failure(gone: bool) -> None:
    server, pauses = Ending(gone), 0

    class Watched(Reflector):
        async def _backoff(self, min_s: float = 0.0) -> None:
            nonlocal pauses
            pauses += 1
            self._failures += 1
            if pauses == 5:
                raise Enough

    client: Any = server
    reflector = Watched(
        client, "/api/v1/pods", TypedDecoder(Pod), random.Random(0),
        on_list=lambda: None, on_changes=lambda _: None,
    )  # fmt: skip
    with pytest.raises(Enough):
        asyncio.run(reflector.run())
    assert (5, 5) == (server.watches, reflector._failures)
    assert (5 if gone else 1) == server.lists


class Slow:
    """A server that reads a Lease slowly, and never writes it again."""

    async def request(self, method: str, path: str, body: bytes | None = None) -> Response:
        if method == "GET":
            await asyncio.sleep(0.15)
            return Response(404, b"{}")
        if method == "POST" and not self.written:
            self.written = True
            return Response(201, b"{}")
        await asyncio.sleep(60)
        return Response(0, b"")

    written = False


def test_leadership_lasts_no_longer_than_its_deadline() -> None:
    """However long the requests of one renewal take together."""
    terms = LeaderElectionConfig(lease_ns=400 * MS, renew_deadline_ns=200 * MS, retry_ns=20 * MS)

    async def held_s() -> float:
        client: Any = Slow()
        candidate = LeaderElector(client, "me", terms, random.Random(0))
        clock = asyncio.get_running_loop().time
        await candidate.acquire()
        began = clock()
        await candidate.renew()
        assert not candidate.election.is_leader
        return clock() - began

    assert asyncio.run(held_s()) < 0.4


class Flaky:
    """A server that answers as it is told, then with 201."""

    def __init__(self, answers: list[Response | None]) -> None:
        self.answers = answers
        self.asked = 0

    async def ask(self, method: str, path: str, body: bytes | None = None) -> Response:
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else Response(201, b"{}")
        if answer is None:
            raise KubeError("cannot reach it")
        return answer


GONE, BUSY, THERE = None, Response(429, b"{}"), Response(409, b"{}")


@pytest.mark.parametrize(
    ("answers", "created", "there", "failed"),
    [
        ([GONE, GONE, BUSY], 1, 0, 0),
        ([GONE, THERE], 1, 0, 0),  # the answer was lost, not the pod
        ([THERE], 0, 1, 0),
        ([Response(422, b"{}")], 0, 0, 1),
        ([GONE] * 1000, 0, 0, 1),
    ],
)
def test_a_load_waits_for_a_server_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
    answers: list[Response | None],
    created: int,
    there: int,
    failed: int,
) -> None:
    monkeypatch.setattr(object_loader, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(object_loader, "PAUSE_SECONDS_MAX", 0.002)
    monkeypatch.setattr(object_loader, "PATIENCE_SECONDS", 0.1)
    server: Any = Flaky(answers)
    loader = Loader(server, "default", {("v1", "Pod"): ("/pods", False)})
    data = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}'
    asyncio.run(loader.run([RawObject("p", data)], 0, 0, lambda _: None))
    result = loader.result
    assert (created, there, failed) == (result.created, result.already_there, result.failed)
