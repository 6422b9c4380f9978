"""A candidate for leadership: reads and writes the Lease that `election` decides on."""

import asyncio
import logging
import random
import time
from typing import Final
from urllib.parse import quote

import msgspec

from stower.framework.election import JITTER_FACTOR, Election, Object, Terms
from stower.framework.retries import CONFLICT
from stower.live.access import AccessError
from stower.live.client import Answer, Client

__all__ = ["Candidate", "Terms"]

log = logging.getLogger(__name__)
NOT_FOUND: Final = 404
SECOND_NS: Final = 1_000_000_000
AFTER_SECONDS: Final = 0.1  # candidates do not all ask in the moment in which a Lease ends


class Candidate:
    """One scheduler's bid for a Lease."""

    def __init__(self, client: Client, identity: str, terms: Terms, chance: random.Random) -> None:
        self.election = Election(identity, terms)
        self._client = client
        self._chance = chance
        namespace, name = quote(terms.namespace, safe=""), quote(terms.name, safe="")
        self._all = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._one = f"{self._all}/{name}"
        self.version = ""  # of the Lease, when it was written last
        self._told = ""

    async def acquire(self) -> None:
        """Until the Lease is ours. It is read twice as often as client-go does, and when it runs
        out, so that nobody has to wait for the next look."""
        retry_s = self.election.terms.retry_ns / SECOND_NS
        while True:
            await self._try()
            if self.election.leads:
                return
            pause_s = retry_s / 2 * self._chance.uniform(1, JITTER_FACTOR)
            left_ns = self.election.runs_out_ns - time.monotonic_ns()
            if left_ns > 0:
                soon_s = left_ns / SECOND_NS + self._chance.uniform(0, AFTER_SECONDS)
                pause_s = min(pause_s, soon_s)
            await asyncio.sleep(pause_s)

    async def hold(self) -> None:
        """Renew it, until it is lost."""
        while self.election.check(now_ns := time.monotonic_ns()):
            try:
                # All of a renewal, however slow the server: others count on it.
                async with asyncio.timeout(self.election.left_ns(now_ns) / SECOND_NS):
                    await asyncio.sleep(self.election.terms.retry_ns / SECOND_NS)
                    await self._try()
            except TimeoutError:
                log.warning("the Lease %s was not renewed in time", self._one)

    def leads_still(self) -> bool:
        """Whether the Lease is ours for some time yet."""
        return self.election.check(time.monotonic_ns())

    async def release(self) -> None:
        """Give it up, so that nobody waits for it to run out."""
        if not self.election.leads:
            return
        _, lease = await self._read()
        if lease is not None:
            given_up = self.election.released(lease, time.time_ns())
            if given_up is not None:
                await self._ask("PUT", self._one, given_up)

    async def _try(self) -> None:
        asked_at_ns = time.monotonic_ns()
        answer, lease = await self._read()
        if lease is None and answer.status != NOT_FOUND:
            self._tell(f"cannot be read: {answer.message or answer.status}")
            return
        wanted = self.election.next(lease, time.monotonic_ns(), time.time_ns())
        if wanted is None:
            self.election.check(time.monotonic_ns(), other_holds=True)
            return
        if lease is None:
            answer = await self._ask("POST", self._all, wanted)
        else:
            answer = await self._ask("PUT", self._one, wanted)
        if answer.status in (200, 201):
            self.election.wrote(asked_at_ns)
            self.version = _version(answer)
            self._told = ""
        elif answer.status == CONFLICT:
            log.info("the Lease %s was not written: %s", self._one, answer.message)
        else:
            self._tell(f"cannot be written: {answer.message or answer.status}")

    def _tell(self, what: str) -> None:
        """Say what goes wrong, once: who waits for leadership must not wait in silence."""
        if what != self._told:
            self._told = what
            log.warning("the Lease %s %s", self._one, what)

    async def _read(self) -> tuple[Answer, Object | None]:
        answer = await self._ask("GET", self._one)
        if answer.status != 200:
            return answer, None
        try:
            return answer, msgspec.json.decode(answer.body, type=Object)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Answer(0, str(error).encode()), None

    async def _ask(self, method: str, path: str, body: Object | None = None) -> Answer:
        """One request, which may not take longer than leadership lasts."""
        data = None if body is None else msgspec.json.encode(body)
        deadline_s = self.election.terms.renew_deadline_ns / SECOND_NS
        try:
            return await asyncio.wait_for(self._client.ask(method, path, data), deadline_s)
        except (TimeoutError, AccessError) as error:
            return Answer(0, (str(error) or "no answer in time").encode())


def _version(answer: Answer) -> str:
    try:
        return str(msgspec.json.decode(answer.body)["metadata"]["resourceVersion"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return ""
