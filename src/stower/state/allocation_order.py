"""Orders the allocations of claims by when the API has shown each for the first time.

The API server shows changes of claims in the order of their revisions. So all schedulers find the
same order among allocations that they have seen being written. Allocations that came with one list
have the same place: which of them was written first is unknown.
"""

from stower.model.kinds.resource_claim import ResourceClaim


class AllocationOrder:
    """The places of all allocations that the API shows, by claim key; a later one has a higher
    number. `newest`: the highest number so far."""

    def __init__(self) -> None:
        self.newest = 0
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
            self._places.pop(key, None)
            return
        known = self._places.get(key)
        if known is not None and _is_same_allocation(known[0], claim, self._is_listing):
            self._places[key] = (claim, known[1])
            return
        self.newest += 0 if self._is_listing else 1
        self._places[key] = (claim, self.newest)

    def adopt(self, other: "AllocationOrder") -> None:
        """Takes over the places of allocations that another state has seen before."""
        self.newest = other.newest + 1
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
