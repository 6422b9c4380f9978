"""Finds allocations that do not hold beside those that were written earlier.

Schedulers that know nothing of each other may allocate one device at the same time. Each of them
then finds the same allocation to be the later one, by the order in which the API shows them
(state/allocation_order.py), and whoever wrote that one gives it back (engine/binding/
overcommitted_claims.py). Allocations of the same place count as earlier than each other.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from stower.devices.inventory import Inventory, Pool
from stower.model.kinds import ResourceClaim
from stower.model.kinds.resource_claim import DeviceResult
from stower.state.device_usage import UNUSED, PoolID, to_nano
from stower.state.devices import Devices, is_same_or_newer

# The condition of a pod that says which allocation of its claims is about to be given back: no pod
# is bound that relies on it. Its message is the claim's `mark_of`.
GIVEN_BACK: Final = "stower.dev/DevicesGivenBack"


def mark_of(claim: ResourceClaim) -> str:
    """Returns what identifies one version of a claim."""
    meta = claim.metadata
    return f"{meta.key} {meta.uid} {meta.resource_version}"


class Overcommits:
    """Compares the allocations of one state, as the API shows them."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._inventory = devices.extension(Inventory)
        self._marks: dict[str, str] = {}  # by claim key, as pods have them

    def observe_mark(self, mark: str) -> None:
        """Takes the message of a pod's condition GIVEN_BACK; one that is about an older version
        than the claim has, or than another pod says, is over."""
        key, version = mark.partition(" ")[0], mark.rpartition(" ")[2]
        claim, known = self._devices.api_claim(key), self._marks.get(key, "").rpartition(" ")[2]
        if claim is None or not is_same_or_newer(version, claim.metadata.resource_version):
            return
        if not known or is_same_or_newer(version, known):
            self._marks[key] = mark

    def is_given_back(self, claim: ResourceClaim) -> bool:
        """Returns whether a pod says that this version of the claim is about to be given back. No
        claim is given back that a bound pod uses."""
        key = claim.metadata.key
        mark = self._marks.get(key) if self._marks else None
        return mark == mark_of(claim) and not self._devices.has_bound_users(key)

    def forget_mark(self, key: str, version: str) -> None:
        """Drops the mark of a claim that the API shows in this version, "" for deleted, unless it
        is about that version or a later one."""
        marked = self._marks.get(key, "").rpartition(" ")[2]
        if marked and not (version and is_same_or_newer(marked, version)):
            del self._marks[key]

    def reason(self, claim: ResourceClaim) -> str:
        """Returns why nobody may be bound who relies on the claim's allocation: it does not hold
        beside earlier ones, or it is about to be given back. Costs a look at the usage of each
        device; more only where a device is overcommitted."""
        if self._marks and self.is_given_back(claim):
            return "its devices are given back"
        return self._conflict(claim) if self.has_overcommitted(claim) else ""

    def has_overcommitted(self, claim: ResourceClaim) -> bool:
        """Returns whether one of the claim's devices is overcommitted."""
        for result in claim.results:
            pool = (result.driver, result.pool)
            if not result.admin_access and self.is_overcommitted(pool, result.device):
                return True
        return False

    def is_overcommitted(self, pool: PoolID, device: str) -> bool:
        """Returns whether claims have more of a device than there is, whoever was earlier."""
        usage = self._devices.usage(pool).get(device, UNUSED)
        if usage.exclusive_count > 1 or (usage.exclusive_count and usage.share_count):
            return True
        self._inventory.refresh()
        counted = self._inventory.pool_with_counters(pool)
        if not usage.consumed_capacity and counted is None:
            return False
        content = self._inventory.content(pool, device)
        if content is None:
            return False
        for name, nano in usage.consumed_capacity:
            capacity = content.capacity.get(name)
            if capacity is not None and nano > capacity.whole.nano:
                return True
        if counted is None or not content.counters:
            return False
        left = self._left(counted)
        return left is None or any(left.get(counter, 0) < 0 for counter in content.counters)

    def _left(self, pool: Pool) -> Mapping[tuple[str, str], int] | None:
        """Returns what all claims together leave of a pool's counters; None where a device is in
        use of which nobody knows how much it takes."""
        if any(self._inventory.content(pool.id, n) is None for n in self._devices.usage(pool.id)):
            return None
        return pool.free_counters(self._devices)

    def count(self) -> int:
        """Returns how many devices are overcommitted. Costs a look at all devices in use."""
        found = 0
        self._inventory.refresh()
        for id, used in self._devices.usage_view().items():
            pool = self._inventory.pool_with_counters(id)
            left = self._left(pool) if pool is not None else {}
            for device, usage in used.items():
                content = self._inventory.content(id, device)
                counters = content.counters if content is not None and pool is not None else {}
                is_over = usage.exclusive_count > 1 or (
                    usage.exclusive_count > 0 and usage.share_count > 0
                )
                for name, nano in usage.consumed_capacity:
                    whole = content.capacity.get(name) if content is not None else None
                    is_over |= whole is not None and nano > whole.whole.nano
                is_over |= left is not None and any(left.get(c, 0) < 0 for c in counters)
                found += is_over
        return found

    def _conflict(self, claim: ResourceClaim) -> str:
        """Returns what the earlier allocations leave too little of, "" where they leave enough."""
        earlier = self._earlier(claim)
        for result in claim.results:
            if not result.admin_access:
                reason = self._device_conflict(result, claim, earlier)
                if reason:
                    return reason
        for id in dict.fromkeys((r.driver, r.pool) for r in claim.results if not r.admin_access):
            pool = self._inventory.pool_with_counters(id)
            reason = self._counter_conflict(pool, claim, earlier) if pool is not None else ""
            if reason:
                return reason
        return ""

    def _earlier(self, claim: ResourceClaim) -> list[ResourceClaim]:
        """Returns the claims that use pools of the claim and were allocated before, or at a time
        that is unknown. What bound pods use is earlier than what none uses."""
        devices, own = self._devices, claim.metadata.key
        place, is_used = devices.allocation_order.place(own), devices.has_bound_users(own)
        pools = dict.fromkeys((result.driver, result.pool) for result in claim.results)
        found = []
        for key in dict.fromkeys(k for pool in pools for k in devices.claims_of_pool(pool)):
            other = devices.api_claim(key)
            if key == own or other is None or other.status.allocation is None:
                continue
            other_place = devices.allocation_order.place(key)
            is_tied = other_place == place and not (is_used and not devices.has_bound_users(key))
            if other_place < place or is_tied:
                found.append(other)
        return found

    def _device_conflict(
        self, result: DeviceResult, claim: ResourceClaim, earlier: Iterable[ResourceClaim]
    ) -> str:
        id = (result.driver, result.pool, result.device)
        name = "/".join(id)
        taken: dict[str, int] = {}
        for other, theirs in _uses(earlier):
            if (theirs.driver, theirs.pool, theirs.device) != id:
                continue
            if theirs.share_id is None or result.share_id is None:
                return f"device {name} was allocated to claim {other.metadata.key} before"
            _add(taken, theirs)
        for own in claim.results:
            if (own.driver, own.pool, own.device) == id and not own.admin_access:
                _add(taken, own)
        content = self._inventory.content(id[:2], result.device)
        for capacity, nano in taken.items():
            whole = content.capacity.get(capacity) if content is not None else None
            if whole is not None and nano > whole.whole.nano:
                return f"{capacity} of device {name} was allocated to other claims before"
        return ""

    def _counter_conflict(
        self, pool: Pool, claim: ResourceClaim, earlier: Iterable[ResourceClaim]
    ) -> str:
        """Returns the counter of which the devices of the claim and of earlier ones take more than
        there is; one that the claim's own devices take some of. A device of an earlier claim that
        was never seen may take all."""
        own = {r.device for _, r in _uses([claim]) if (r.driver, r.pool) == pool.id}
        used = [r.device for _, r in _uses(earlier) if (r.driver, r.pool) == pool.id]
        left, unknown = dict(pool.counters), ""
        for name in dict.fromkeys([*used, *own]):
            content = self._inventory.content(pool.id, name)
            unknown = unknown or (name if content is None and name not in own else "")
            for counter, nano in content.counters.items() if content is not None else ():
                if counter in left:
                    left[counter] -= nano
        for name in own:
            content = self._inventory.content(pool.id, name)
            for counter in content.counters if content is not None else ():
                if unknown:
                    return (
                        f"device {unknown} of pool {pool.key} was allocated before and is unknown"
                    )
                if left.get(counter, 0) < 0:
                    return (
                        f"counter {'/'.join(counter)} of pool {pool.key} was allocated to other "
                        "claims before"
                    )
        return ""


def _uses(claims: Iterable[ResourceClaim]) -> Iterator[tuple[ResourceClaim, DeviceResult]]:
    for claim in claims:
        for result in claim.results:
            if not result.admin_access:
                yield claim, result


def _add(taken: dict[str, int], result: DeviceResult) -> None:
    for name, text in (result.consumed_capacity or {}).items():
        taken[name] = taken.get(name, 0) + max(to_nano(text), 0)
