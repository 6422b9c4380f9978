"""Claims that several pods of a pod group tree use and that are not allocated yet: the tree's first
pod decides on the devices, and the others go where these reach.

Only the pods of one attempt share so; for all others, such a claim is being allocated. The decision
stands as long as one of the pods relies on it. Must not know how claims are written.

Source: kube-scheduler plugins/dynamicresources (pendingAllocations of a PodGroup's cycle).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from stower.model.kinds import ResourceClaim
from stower.model.kinds.resource_claim import ResourceClaimStatus
from stower.state.devices import Devices


class SharedAllocation:
    """One decided allocation. `status`: of the claim as assumed last; `holders`: those that rely on
    it; `version`: of the claim, once written with it, "" before; `base_version`: that the last
    write of `writer` relied on."""

    __slots__ = ("base_version", "holders", "status", "version", "writer")

    def __init__(self) -> None:
        self.status: ResourceClaimStatus | None = None
        self.holders: set[object] = set()
        self.version = ""
        self.base_version = ""
        self.writer: object | None = None


class ClaimSharing:
    """What the pods of the attempt that is under way share: an extension of Devices."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._keys: frozenset[str] = frozenset()
        self._allocations: dict[str, SharedAllocation] = {}

    @contextmanager
    def among(self, keys: Iterable[str]) -> Iterator[None]:
        """An attempt for pods that share these claims, by key. Claims of which an earlier attempt
        has decided are not shared with its pods."""
        before = self._keys, self._allocations, self._devices.is_sharing
        self._devices.is_sharing = True
        self._keys = frozenset(k for k in keys if self._devices.assumed_claim(k) is None)
        self._allocations = {}
        try:
            yield
        finally:
            self._keys, self._allocations, self._devices.is_sharing = before

    def pending(self, key: str) -> ResourceClaim | None:
        """Returns the claim with the allocation that an earlier pod of the attempt has decided;
        None where there is none."""
        if key not in self._keys:
            return None
        assumed, shown = self._devices.assumed_claim(key), self._devices.api_claim(key)
        if assumed is None or shown is None or shown.status.allocation is not None:
            return None
        return assumed if assumed.status.allocation is not None else None

    def allocation(self, key: str) -> SharedAllocation | None:
        """Returns the shared allocation of a claim that is to be allocated, or of which an earlier
        pod has decided; None where the claim is not shared."""
        if key not in self._keys:
            return None
        if self.pending(key) is None:  # what an earlier trial decided is gone
            self._allocations[key] = SharedAllocation()
        return self._allocations[key]
