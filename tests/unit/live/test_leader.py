"""One candidate for a Lease, and what it does about servers that fail."""

import asyncio
import contextlib
import logging
import random
from typing import Any

import pytest

from stower.framework.election import LeaderElectionConfig
from stower.live.access import AccessError
from stower.live.client import Response
from stower.live.leader import LeaderElector
from tests.unit.live.fake_api import FakeApi, until
from tests.virtual_loop import VirtualLoop

MS = 1_000_000
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
CONFIG = LeaderElectionConfig(lease_ns=60_000 * MS, renew_deadline_ns=20_000 * MS, retry_ns=2 * MS)


def candidate(
    client: Any, identity: str = "me", config: LeaderElectionConfig = CONFIG
) -> LeaderElector:
    return LeaderElector(client, identity, config, random.Random(1))


def holder(fake: FakeApi) -> str:
    return str(fake.call("GET", LEASE)["spec"]["holderIdentity"])


def test_a_lease_is_created_renewed_and_given_up() -> None:
    async def story() -> None:
        fake = FakeApi()
        elector = candidate(fake)
        assert not elector.is_leader()
        await elector.acquire()
        assert elector.is_leader()
        assert "me" == holder(fake)
        first = elector.resource_version
        renewing = asyncio.create_task(elector.renew())
        await until(lambda: elector.resource_version != first)
        renewing.cancel()
        await elector.release()
        assert "" == holder(fake)

    asyncio.run(story())


def test_a_candidate_that_does_not_lead_releases_nothing() -> None:
    async def story() -> None:
        fake = FakeApi()
        await candidate(fake).release()
        assert [] == fake.sent
        first, second = candidate(fake, "first"), candidate(fake, "second")
        await first.acquire()
        fake.call(
            "PATCH", LEASE, {"spec": {"holderIdentity": "second"}}, "application/merge-patch+json"
        )
        await first.release()
        assert "second" == holder(fake)
        assert not second.is_leader()

    asyncio.run(story())


def test_leadership_ends_when_another_holds_the_lease() -> None:
    async def story() -> None:
        fake = FakeApi()
        elector = candidate(fake)
        await elector.acquire()
        taken = {"spec": {"holderIdentity": "other"}}
        fake.call("PATCH", LEASE, taken, "application/merge-patch+json")
        async with asyncio.timeout(8):
            await elector.renew()
        assert not elector.is_leader()
        assert "other" == holder(fake)

    asyncio.run(story())


def test_a_lease_that_expires_is_taken_at_once() -> None:
    """The next regular read is much later. A Lease that says no duration lasts for the default."""
    slow = LeaderElectionConfig(
        lease_ns=30 * MS, renew_deadline_ns=20_000 * MS, retry_ns=600_000 * MS
    )

    async def story() -> None:
        fake = FakeApi()
        lease = {"metadata": {"name": "kube-scheduler"}, "spec": {"holderIdentity": "dead"}}
        fake.call("POST", LEASE.rpartition("/")[0], lease)
        elector = candidate(fake, config=slow)
        async with asyncio.timeout(8):
            await elector.acquire()
        assert elector.is_leader()
        assert 2 == sum(method == "GET" for method, _ in fake.sent)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Response(403, b'{"message": "not you"}'), f"cannot read the Lease {LEASE}: 403 not you"),
        (Response(500, b"{}"), f"cannot read the Lease {LEASE}: 500 {{}}"),
        (Response(200, b"no JSON"), f"cannot read the Lease {LEASE}: "),
        (None, f"cannot read the Lease {LEASE}: no credentials"),
    ],
)
def test_a_problem_is_logged_once_and_the_lease_acquired_when_it_is_over(
    fault: Response | None, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    failing = True

    def answer(method: str, path: str) -> Response | None:
        if failing and fault is None:
            raise AccessError("no credentials")
        return fault if failing else None

    async def story() -> None:
        nonlocal failing
        fake = FakeApi(answer)
        elector = candidate(fake)
        acquiring = asyncio.create_task(elector.acquire())
        await until(lambda: len(fake.sent) >= 3)
        assert not elector.is_leader()
        failing = False
        async with asyncio.timeout(8):
            await acquiring
        assert elector.is_leader()

    asyncio.run(story())
    assert 1 == len(caplog.messages)
    assert text in caplog.text


def test_a_lost_race_for_the_lease_is_no_problem(caplog: pytest.LogCaptureFixture) -> None:
    """Another problem of a write is one."""
    statuses = [409, 422, 0]

    def answer(method: str, path: str) -> Response | None:
        return Response(statuses.pop(0), b"{}") if method == "POST" and statuses else None

    with caplog.at_level(logging.INFO, "stower.live.leader"):
        asyncio.run(candidate(FakeApi(answer)).acquire())
    levels = [record.levelname for record in caplog.records]
    assert ["INFO", "WARNING", "WARNING"] == levels
    assert f"cannot write the Lease {LEASE}: 422 {{}}" == caplog.messages[1]


def test_a_version_that_the_server_does_not_say_is_empty() -> None:
    def answer(method: str, path: str) -> Response | None:
        return Response(201, b"{}") if method == "POST" else None

    elector = candidate(FakeApi(answer))
    asyncio.run(elector.acquire())
    assert "" == elector.resource_version


class Slow(FakeApi):
    """Answers the first requests after these seconds, then at once."""

    def __init__(self, *delays_s: float) -> None:
        super().__init__()
        self._delays_s = [*delays_s]

    async def request(self, *arguments: Any, **options: Any) -> Response:
        if self._delays_s:
            await asyncio.sleep(self._delays_s.pop(0))
        return await super().request(*arguments, **options)


@pytest.mark.parametrize("read_s", [0, 1.5, 5, 9.9])
@pytest.mark.parametrize("write_s", [0, 1.5, 5, 8.5, 9.9])
def test_a_lease_that_was_won_slowly_is_renewed_at_once(read_s: float, write_s: float) -> None:
    """With kube-scheduler's durations: leadership lasts 10 s from the write on."""
    loop = VirtualLoop()
    fake = Slow(read_s, write_s)
    elector = candidate(fake, config=LeaderElectionConfig())

    async def lead() -> None:
        await elector.acquire()
        await elector.renew()

    leading = loop.create_task(lead())
    loop.advance(read_s + write_s + 0.05)
    assert (read_s + write_s >= 2) == (("PUT", LEASE) in fake.sent)
    loop.advance(60)
    assert not leading.done()
    loop.end()


def test_an_attempt_that_fails_is_repeated_a_retry_period_later() -> None:
    loop = VirtualLoop()
    is_failing = False
    fake = FakeApi(lambda method, path: Response(500, b"{}") if is_failing else None)
    elector = candidate(fake, config=LeaderElectionConfig())
    loop.run(elector.acquire())
    is_failing = True
    renewing = loop.create_task(elector.renew())
    asked = len(fake.sent)
    loop.advance(9)
    assert 4 == len(fake.sent) - asked
    assert not renewing.done()
    loop.advance(2)
    assert renewing.done()
    loop.end()


@pytest.mark.parametrize("turns", range(6))
def test_a_cancelled_renewal_ends_whatever_has_just_been_answered(turns: int) -> None:
    """A cancellation that came together with a response used to be lost: the scheduler did not
    stop."""

    class Gated:
        def __init__(self) -> None:
            self.gate = asyncio.Event()
            self.waits = asyncio.Event()
            self.gate.set()

        async def request(self, method: str, *_: Any) -> Response:
            self.waits.set()
            await self.gate.wait()
            return Response(404 if method == "GET" else 201, b"{}")

    async def story() -> None:
        client = Gated()
        elector = candidate(client)
        await elector.acquire()
        client.gate.clear()
        client.waits.clear()
        renewing = asyncio.create_task(elector.renew())
        await client.waits.wait()
        client.gate.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        renewing.cancel()
        client.gate.clear()
        done, _ = await asyncio.wait([renewing], timeout=0.2)
        if not done:
            renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewing
        assert done

    asyncio.run(story())
