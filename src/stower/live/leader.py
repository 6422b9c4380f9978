"""Leader election: reads and writes the Lease; framework/election.py decides what to write."""

import asyncio
import logging
import random
import time
from typing import Final
from urllib.parse import quote

import msgspec

from stower.framework.election import JITTER_FACTOR, LeaderElection, LeaderElectionConfig, Object
from stower.framework.retries import CONFLICT
from stower.live.access import AccessError
from stower.live.client import Client, Response
from stower.live.outages import Outages

__all__ = ["LeaderElectionConfig", "LeaderElector", "lease_path"]

log = logging.getLogger(__name__)
NOT_FOUND: Final = 404
READ, WRITE = "cannot read the Lease", "cannot write the Lease"
SECOND_NS: Final = 1_000_000_000
EXPIRY_JITTER_SECONDS: Final = 0.1  # spreads the requests of the candidates when a Lease expires


def lease_path(config: LeaderElectionConfig) -> str:
    """Returns the URL path of the Lease."""
    namespace, name = quote(config.namespace, safe=""), quote(config.name, safe="")
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"


class LeaderElector:
    """One candidate for a Lease: acquires, renews and releases it."""

    def __init__(
        self,
        client: Client,
        identity: str,
        config: LeaderElectionConfig,
        rng: random.Random,
        outages: Outages | None = None,
    ) -> None:
        self.election = LeaderElection(identity, config)
        self._client = client
        self._rng = rng
        self._lease_path = lease_path(config)
        self._leases_path = self._lease_path.rpartition("/")[0]
        self.resource_version = ""  # of the Lease as this candidate last wrote it
        self._outages = outages or Outages()

    async def acquire(self) -> None:
        """Waits until this candidate holds the Lease.

        Reads the Lease twice as often as client-go, and when it expires, so that leadership does
        not stay vacant until the next read.
        """
        retry_s = self.election.config.retry_ns / SECOND_NS
        while True:
            await self._try_acquire_or_renew()
            if self.election.is_leader:
                return
            pause_s = retry_s / 2 * self._rng.uniform(1, JITTER_FACTOR)
            remaining_ns = self.election.lease_expires_at_ns - _now_ns()
            if remaining_ns > 0:
                until_expiry_s = remaining_ns / SECOND_NS + self._rng.uniform(
                    0, EXPIRY_JITTER_SECONDS
                )
                pause_s = min(pause_s, until_expiry_s)
            await asyncio.sleep(pause_s)

    async def renew(self) -> None:
        """Renews the Lease until leadership is lost."""
        while self.election.check_leadership(now_ns := _now_ns()):
            pause_s = max(0, self.election.next_attempt_ns - now_ns) / SECOND_NS
            try:
                # The limit holds for the whole renewal, however slow the server is: the other
                # candidates rely on it.
                async with asyncio.timeout(self.election.remaining_ns(now_ns) / SECOND_NS):
                    await asyncio.sleep(pause_s)
                    await self._try_acquire_or_renew()
            except TimeoutError:
                log.warning("the Lease was not renewed in time: %s", self._lease_path)

    def is_leader(self) -> bool:
        """Returns whether this candidate holds the Lease and its renewal is not overdue."""
        return self.election.check_leadership(_now_ns())

    async def release(self) -> None:
        """Gives the Lease up, so that the next leader need not wait until it expires."""
        if not self.election.is_leader:
            return
        _, lease = await self._get_lease()
        if lease is not None:
            released = self.election.release_lease(lease, time.time_ns())
            if released is not None:
                await self._request("PUT", self._lease_path, released)

    async def _try_acquire_or_renew(self) -> None:
        self.election.begin_attempt(_now_ns())
        answer, lease = await self._get_lease()
        if lease is None and answer.status != NOT_FOUND:
            self._outages.meet(READ, self._lease_path, answer.message, answer.status)
            return
        self._outages.end(self._lease_path, READ)
        requested_at_ns = _now_ns()
        new_lease = self.election.try_acquire_or_renew(lease, requested_at_ns, time.time_ns())
        if new_lease is None:
            self.election.check_leadership(requested_at_ns, is_held_by_other=True)
            return
        if lease is None:
            answer = await self._request("POST", self._leases_path, new_lease)
        else:
            answer = await self._request("PUT", self._lease_path, new_lease)
        if answer.status in (200, 201):
            self.election.confirm_renewal(requested_at_ns)
            self.resource_version = _resource_version(answer)
            self._outages.end(self._lease_path, WRITE)
        elif answer.status == CONFLICT:
            log.info("the Lease %s was not written: %s", self._lease_path, answer.message)
        else:
            self._outages.meet(WRITE, self._lease_path, answer.message, answer.status)

    async def _get_lease(self) -> tuple[Response, Object | None]:
        answer = await self._request("GET", self._lease_path)
        if answer.status != 200:
            return answer, None
        try:
            return answer, msgspec.json.decode(answer.body, type=Object)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Response(0, str(error).encode()), None

    async def _request(self, method: str, path: str, body: Object | None = None) -> Response:
        """Sends one request, which may take as long as the renew deadline at most; never raises."""
        data = None if body is None else msgspec.json.encode(body)
        deadline_s = self.election.config.renew_deadline_ns / SECOND_NS
        try:
            # Not asyncio.wait_for: up to Python 3.11 it loses a cancellation that comes together
            # with the response, and the scheduler would never stop.
            async with asyncio.timeout(deadline_s):
                return await self._client.request(method, path, data)
        except (TimeoutError, AccessError) as error:
            return Response(0, (str(error) or f"no answer within {deadline_s:g} s").encode())


def _now_ns() -> int:
    """The time of the event loop, which never goes back."""
    return int(asyncio.get_running_loop().time() * SECOND_NS)


def _resource_version(answer: Response) -> str:
    try:
        return str(msgspec.json.decode(answer.body)["metadata"]["resourceVersion"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return ""
