"""Devices that a claim does not get for a time, as they did not get ready for it before.

A device with binding conditions that fail, or are not met in time, is given back. Chosen anew, it
would keep its pod from others for ever: so the device, and the alternative of a request that has
chosen it, are left out for a time that doubles. Kept in memory: after a restart, the next
failure is seen in the claim as the first was.

Source: KEP-5007 (a timeout clears the allocation, and the pod is scheduled again).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from stower.model.kinds import ResourceClaim
from stower.model.kinds.resource_claim import DeviceResult
from stower.model.times import SECOND_NS
from stower.state.device_usage import PoolID
from stower.state.devices import Devices

FIRST_NS: Final = 60 * SECOND_NS
LONGEST_NS: Final = 3_600 * SECOND_NS
DeviceID = tuple[PoolID, str]


class Avoided(NamedTuple):
    """What a claim does not get now: devices, and alternatives of requests ("request/name")."""

    devices: frozenset[DeviceID] = frozenset()
    alternatives: frozenset[str] = frozenset()


NOTHING: Final = Avoided()


class AvoidedDevices:
    """What is avoided for each claim of one state."""

    def __init__(self, devices: Devices) -> None:
        # By claim uid, and by device or alternative: how often it failed, until when it is avoided.
        self._failures: dict[str, dict[DeviceID | str, tuple[int, int]]] = {}

    def avoid(self, claim: ResourceClaim, results: Iterable[DeviceResult], now_ns: int) -> None:
        """Takes devices of the claim that did not get ready."""
        for uid, failures in [*self._failures.items()]:
            if all(until_ns + LONGEST_NS < now_ns for _, until_ns in failures.values()):
                del self._failures[uid]
        failures = self._failures.setdefault(claim.metadata.uid, {})
        for result in results:
            found: list[DeviceID | str] = [((result.driver, result.pool), result.device)]
            if "/" in result.request:
                found.append(result.request)
            for what in found:
                count = failures.get(what, (0, 0))[0]
                lasts_ns = min(FIRST_NS << min(count, 32), LONGEST_NS)
                failures[what] = (count + 1, now_ns + lasts_ns)

    def of(self, claim: ResourceClaim, now_ns: int) -> Avoided:
        """Returns what the claim does not get now."""
        if not self._failures:
            return NOTHING
        failures = self._failures.get(claim.metadata.uid, {})
        current = [what for what, (_, until_ns) in failures.items() if until_ns > now_ns]
        if not current:
            return NOTHING
        return Avoided(
            frozenset(what for what in current if not isinstance(what, str)),
            frozenset(what for what in current if isinstance(what, str)),
        )

    def next_ns(self, claims: Iterable[ResourceClaim], now_ns: int) -> int | None:
        """Returns when one of the claims may get more than now; None where nothing is avoided."""
        due = [
            until_ns
            for claim in claims
            for _, until_ns in self._failures.get(claim.metadata.uid, {}).values()
            if until_ns > now_ns
        ]
        return min(due, default=None)
