"""Orders the allocations of claims by when the API has shown each for the first time.

The API server shows changes of claims in the order of their revisions. So all schedulers find the
same order among allocations that they have seen being written. Allocations that came with one list
have the same place: which of them was written first is unknown.
"""

from stower.model.kinds.resource_claim import ALLOCATED, ResourceClaim


class AllocationOrder:
    """The places of all allocations that the API shows, by claim key; a later one has a higher
    number. `newest`: the highest number so far."""

    def __init__(self) -> None:
        self.newest = 0
        # By finalizer of a driver that negotiates: its allocations, and the last change of them.
        self._by_driver: dict[str, tuple[int, int]] = {}
        self._changes = 0
        self._places: dict[str, tuple[ResourceClaim, int]] = {}
        self._is_listing = False

    def place(self, key: str) -> int:
        """Returns the place of a claim's allocation, 0 where the API shows none."""
        known = self._places.get(key)
        return known[1] if known is not None else 0

    def begin_list(self) -> None:
        """What is observed until `end_list` came with one list."""
        self.newest += 1
        self._is_listing = True

    def end_list(self) -> None:
        """What is observed from now on is shown by watches, one after another."""
        self._is_listing = False

    def observe(self, key: str, claim: ResourceClaim | None) -> None:
        """Takes a claim as the API shows it now, None where it is deleted."""
        if claim is None or claim.status.allocation is None:
            gone = self._places.pop(key, None)
            if gone is not None and gone[0].metadata.finalizers:
                self._count(gone[0], -1)
            return
        known = self._places.get(key)
        if known is not None and _is_same_allocation(known[0], claim, self._is_listing):
            self._places[key] = (claim, known[1])
            if known[0].metadata.finalizers != claim.metadata.finalizers:
                self._count(known[0], -1)
                self._count(claim, 1)
            return
        if known is not None:
            self._count(known[0], -1)
        self.newest += 0 if self._is_listing else 1
        self._places[key] = (claim, self.newest)
        if claim.metadata.finalizers:
            self._count(claim, 1)

    def _count(self, claim: ResourceClaim, sign: int) -> None:
        for finalizer in claim.metadata.finalizers or ():
            if finalizer.endswith(ALLOCATED):
                self._changes += 1
                count = self._by_driver.pop(finalizer, (0, 0))[0] + sign
                if count:
                    self._by_driver[finalizer] = (count, self._changes)

    def last_change(self, finalizer: str) -> int:
        """Returns a number that is another one after each allocation and deallocation by the driver
        of the finalizer; 0 while it has allocated nothing."""
        return self._by_driver.get(finalizer, (0, 0))[1]

    def adopt(self, other: "AllocationOrder") -> None:
        """Takes over the places of allocations that another state has seen before."""
        self.newest = other.newest + 1
        self._changes += other._changes
        for finalizer, (count, _) in self._by_driver.items():
            before = other._by_driver.get(finalizer, (0, 0))
            self._changes += 1
            is_same = before[0] == count
            self._by_driver[finalizer] = (count, before[1] if is_same else self._changes)
        for key, (claim, _) in [*self._places.items()]:
            known = other._places.get(key)
            is_known = known is not None and _is_same_allocation(known[0], claim, True)
            self._places[key] = (claim, known[1] if known is not None and is_known else self.newest)


def _is_same_allocation(one: ResourceClaim, other: ResourceClaim, is_listed: bool) -> bool:
    """Returns whether a claim has the allocation that it had. What has changed between a watch
    and a list may have been given back meanwhile, and allocated anew."""
    first, second = one.status.allocation, other.status.allocation
    if is_listed and one.metadata.resource_version != other.metadata.resource_version:
        return False
    return (
        one.metadata.uid == other.metadata.uid
        and first is not None
        and second is not None
        and (first is second or first.devices == second.devices)
    )
