"""A pod's claims, written: the allocation that was decided, and the reservation for the pod.

Nothing is given twice: what was decided counts as taken until the API shows it or a write of it was
refused for good; a write relies on the version of the claim that it was decided on, and where that
is not the last one, on the next that is seen.

Source: kube-scheduler plugins/dynamicresources (bindClaim, Unreserve); KEP-5007 (conditions).
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from stower.framework.device_gates import DeviceGates
from stower.framework.retries import CONFLICT, UNKNOWN
from stower.framework.writes import Write, patch_of
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.resource_claim import (
    FINALIZER,
    AllocationResult,
    ConsumerReference,
    DeviceResult,
    DeviceStatus,
    ResourceClaimStatus,
)
from stower.model.times import SECOND_NS, time_ns, time_text
from stower.plugins.claim_consumers import is_reserved
from stower.state.cluster import ClusterState
from stower.state.devices import is_as_new

CONFLICTS_MAX: Final = 20
STRIPPED: Final = (
    "the API server drops the shares of devices: it needs the feature DRAConsumableCapacity"
)
# A conflict means that something newer is there; where it does not come, try again on the same.
NEWS_NS: Final = 3 * SECOND_NS


class Wanted(NamedTuple):
    """One claim, what was decided for it (None where it was allocated already), and for whom."""

    claim: ResourceClaim
    allocation: AllocationResult | None
    consumer: ConsumerReference

    @property
    def key(self) -> str:
        return self.claim.metadata.key


class ClaimBinding:
    """The claims of one pod; see framework.reserve.Reservation."""

    expired = "device binding timeout: context deadline exceeded"

    def __init__(
        self,
        pod: Pod,
        node_name: str,
        wanted: tuple[Wanted, ...],
        timeout_ns: int,
        gates: DeviceGates,
        now_ns: int,
    ) -> None:
        self.timeout_ns = timeout_ns
        self._binding = gates.binding  # devices may have conditions that must be true first
        self._group_claims = gates.group_claims
        for one in wanted if gates.binding else ():
            # What others have waited for is not waited for as long again.
            due_ns = due(one.claim, timeout_ns) if not is_ready(one.claim) else None
            if due_ns is not None and due_ns - now_ns < self.timeout_ns:
                self.timeout_ns = max(due_ns - now_ns, 0)
                self.expired = f"device binding timeout: claim={one.claim.metadata.name}"
        self.awaits: tuple[tuple[type, str, str], ...] = tuple(
            (ResourceClaim, one.claim.metadata.namespace, one.claim.metadata.name) for one in wanted
        )
        self._pod = pod
        self._node_name = node_name
        self._wanted = wanted
        self._asked: dict[int, tuple[str, bool]] = {}  # writes not answered: key, is it the status
        self._used: dict[str, str] = {}  # by key: the version that was written on, or refused
        self._written: dict[str, str] = {}  # by key: the version that has the status, "" unknown
        self._unknown: dict[str, str] = {}  # by key: the version on which the status was lost
        self._conflicts = 0
        self._refused_ns: dict[str, int] = {}  # by key: when the last write met a conflict
        self._released = False
        self.decided: dict[str, ResourceClaimStatus] = {}  # by key: what is counted on
        self._stripped: dict[str, None] = {}  # claims of which the API server drops a part

    @property
    def again_ns(self) -> int | None:
        """When to look for what did not come."""
        return min(self._refused_ns.values()) + NEWS_NS if self._refused_ns else None

    def hold(self, state: ClusterState) -> None:
        """The devices are taken, the claims reserved."""
        for one in self._wanted:
            status = one.claim.status
            if one.allocation is None and self._may_use(one.claim):
                continue
            reserved = (*(status.reserved_for or ()), one.consumer)
            allocation = one.allocation or status.allocation
            held = ResourceClaimStatus(allocation, reserved, status.devices)
            self.decided[one.key] = held
            state.devices.assume_status(one.key, held)

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """First the finalizer, so that nobody deletes what is in use; then the status."""
        found: list[Write] = []
        asked = {key for key, _ in self._asked.values()}
        for one in self._wanted:
            seen = state.devices.seen_claim(one.key)
            if self._released and not self._is_doubtful(one, seen, state):
                continue
            if seen is None or one.key in asked or self._is_settled(one, seen, state):
                continue
            meta = seen.metadata
            if meta.uid != one.claim.metadata.uid or meta.deletion_timestamp is not None:
                continue
            used = self._used.get(one.key)
            if used is not None and is_as_new(used, meta.resource_version):
                refused_ns = self._refused_ns.get(one.key, state.now_ns)
                if state.now_ns - refused_ns < NEWS_NS:
                    continue  # something newer is on its way
            self._refused_ns.pop(one.key, None)
            patch, subresource = self._patch(one, seen, state.now_ns)
            id = next_id()
            self._asked[id] = (one.key, bool(subresource))
            self._used[one.key] = meta.resource_version
            found.append(patch_of(seen, patch, subresource, id))
        return found

    def _is_doubtful(self, one: Wanted, seen: ResourceClaim | None, state: ClusterState) -> bool:
        """Whether nobody can say if the claim's status was written: the same write tells it."""
        lost = self._unknown.get(one.key)
        if lost is None:
            return False
        if seen is not None and not is_as_new(seen.metadata.resource_version, _after(lost)):
            return True
        # What was seen since is later than the write.
        del self._unknown[one.key]
        self._let_go(state, one.key)
        return False

    def _patch(self, one: Wanted, seen: ResourceClaim, now_ns: int) -> tuple[dict[str, Any], str]:
        allocates = one.allocation is not None and seen.status.allocation is None
        finalizers = seen.metadata.finalizers or ()
        if allocates and FINALIZER not in finalizers:
            return {"metadata": {"finalizers": [*finalizers, FINALIZER]}}, ""
        reserved = [*_others(seen, one.consumer.uid), one.consumer]
        status: dict[str, Any] = {"reservedFor": msgspec.to_builtins(reserved)}
        if allocates:
            status["allocation"] = msgspec.to_builtins(one.allocation)
        known = seen.status.allocation
        if self._binding and (known is None or known.allocation_timestamp is None):
            status.setdefault("allocation", {})["allocationTimestamp"] = time_text(now_ns)
        return {"status": status}, "status"

    def _may_use(self, claim: ResourceClaim) -> bool:
        return is_reserved(claim, self._pod, self._group_claims)

    def _is_reserved(self, seen: ResourceClaim, state: ClusterState) -> bool:
        return self._may_use(seen) and not state.devices.is_revoked(seen)

    def _is_settled(self, one: Wanted, seen: ResourceClaim, state: ClusterState) -> bool:
        """Whether there is nothing to write: it is as wanted, or cannot be any more."""
        known = seen.status.allocation
        if known is None:
            return one.allocation is None
        if one.allocation is not None and not is_same(known, one.allocation):
            return True
        return self._is_reserved(seen, state)

    def answered(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """What was refused because something newer is there is tried on that; what nobody knows of
        is tried again, and refused if it was carried out."""
        key, is_status = self._asked.pop(id, ("", False))
        if code == 0:
            if is_status:
                self._unknown.pop(key, None)
                self._written[key] = version
                state.devices.uphold(key, version)
                if self._released:
                    self._expect(state, key, version)
            return True
        if code == CONFLICT:
            self._conflicts += 1
            self._refused_ns[key] = state.now_ns
            if self._released and key in self._unknown:
                # The one that was lost may have been carried out: what comes next will show it.
                # Until then it is asked again, as there are conflicts with nothing.
                self._used.pop(key, None)
                if self._conflicts >= CONFLICTS_MAX:
                    self._expect(state, key, _after(self._unknown.pop(key)))
            elif self._released:
                self._let_go(state, key)
            return self._conflicts < CONFLICTS_MAX
        if code == UNKNOWN:
            used = self._used.pop(key, "")
            if is_status:
                self._unknown.setdefault(key, used)
            return True
        self._unknown.pop(key, None)
        if self._released:
            self._let_go(state, key)
        return False

    def fault(self, state: ClusterState) -> str:
        """Why the pod cannot have its claims after all."""
        for one in self._wanted:
            seen = state.devices.seen_claim(one.key)
            key = one.key
            if seen is None or seen.metadata.uid != one.claim.metadata.uid:
                return f'resourceclaim "{one.claim.metadata.name}" not found'
            if seen.metadata.deletion_timestamp is not None:
                return f"claim {key} got deleted in the meantime"
            known = seen.status.allocation
            written = self._written.get(key)
            version = seen.metadata.resource_version
            is_late = one.allocation is None or (written and is_as_new(version, written))
            if known is None:
                if is_late:
                    return f"claim {key} got deallocated elsewhere in the meantime"
                continue
            if one.allocation is not None and not is_same(known, one.allocation):
                if is_same(known, one.allocation, but_for_shares=True) and is_late:
                    self._stripped[key] = None
                    return f"claim {key}: {STRIPPED}"
                return f"claim {key} got allocated elsewhere in the meantime"
            if self._binding:
                found = binding_fault(seen)
                if found:
                    return found
        return ""

    def is_done(self, state: ClusterState) -> bool:
        """The API shows all claims allocated, reserved for the pod and ready."""
        for one in self._wanted:
            seen = state.devices.seen_claim(one.key)
            if seen is None or seen.status.allocation is None:
                return False
            if not self._is_reserved(seen, state):
                return False
            if self._binding and not is_ready(seen):
                return False
        return True

    def note(self) -> tuple[str, str]:
        """That devices have to be made ready, where they have."""
        allocations = (one.allocation or one.claim.status.allocation for one in self._wanted)
        if self._binding and any(a is not None and waits_for(a) for a in allocations):
            return (
                "BindingConditionsPending",
                f"waiting for binding conditions for device on node {self._node_name}",
            )
        return "", ""

    def release(self, state: ClusterState) -> None:
        """What is being written stays taken until it is known what became of it."""
        self._released = True
        asked = {key for key, is_status in self._asked.values() if is_status}
        for one in self._wanted:
            if one.key in self._written:
                self._expect(state, one.key, self._written[one.key])
            elif one.key not in asked and one.key not in self._unknown:
                self._let_go(state, one.key)

    def _let_go(self, state: ClusterState, key: str) -> None:
        if self._is_held(state, key):
            state.devices.restore(key)

    def _expect(self, state: ClusterState, key: str, version: str) -> None:
        if self._is_held(state, key):
            state.devices.expect(key, version)

    def _is_held(self, state: ClusterState, key: str) -> bool:
        """Whether what is counted on is what was decided here: by now there may be another claim of
        that name, or another decision, be it for the same pod."""
        claim = state.devices.claim(key)
        return claim is not None and claim.status is self.decided.get(key)

    def undo(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """The pod's reservations; an allocation stays, for the next attempt or whoever is next, and
        so does the reservation of a group, whose other pods may need it. Not one that the API
        server has made another of: that has devices alone that others share."""
        found: list[Write] = []
        for one in self._wanted:
            seen = state.devices.seen_claim(one.key)
            if seen is None or not seen.is_reserved_for(self._pod.metadata.uid):
                continue
            state.devices.revoke(seen)
            others = msgspec.to_builtins(_others(seen, self._pod.metadata.uid))
            status: dict[str, Any] = {"reservedFor": others or None}
            if one.key in self._stripped and not others:
                status["allocation"] = None
            found.append(patch_of(seen, {"status": status}, "status", next_id()))
        return found


def _others(claim: ResourceClaim, uid: str) -> list[ConsumerReference]:
    """Whoever else uses the claim."""
    return [other for other in claim.status.reserved_for or () if other.uid != uid]


def _after(version: str) -> str:
    """The version of whatever comes after an object of that version."""
    return str(int(version) + 1) if version.isdigit() else version


def is_same(one: AllocationResult, other: AllocationResult, but_for_shares: bool = False) -> bool:
    """Whether two allocations are of the same devices and shares; `but_for_shares`: or would be,
    had not one of them lost some."""

    def devices(allocation: AllocationResult) -> list[tuple[str, ...]]:
        results = allocation.devices.results or ()
        shares = ["" if but_for_shares else r.share_id or "" for r in results]
        return [(r.request, r.driver, r.pool, r.device, s) for r, s in zip(results, shares)]

    return devices(one) == devices(other)


def due(claim: ResourceClaim, timeout_ns: int) -> int | None:
    """Until when its devices should have been bound; None where nothing has to be."""
    allocation = claim.status.allocation
    if allocation is None:
        return None
    since_ns = time_ns(allocation.allocation_timestamp)
    waits = any(r.binding_conditions is not None for r in allocation.devices.results or ())
    return since_ns + timeout_ns if waits and since_ns is not None else None


def waits_for(allocation: AllocationResult) -> bool:
    """Whether some of its devices must be bound first."""
    return any(result.binding_conditions for result in allocation.devices.results or ())


def binding_fault(claim: ResourceClaim) -> str:
    """Which condition says that a device cannot be bound, or ""."""
    for result in _binding_results(claim):
        status = device_status(claim, result)
        for condition in (status.conditions if status is not None else None) or ():
            failed = condition.type in (result.binding_failure_conditions or ())
            if failed and condition.status == "True":
                return (
                    f"device binding failed: claim={claim.metadata.name}, "
                    f'reason={condition.reason}, message="{condition.message}"'
                )
    return ""


def is_ready(claim: ResourceClaim) -> bool:
    """Whether all that its devices must be is true."""
    for result in _binding_results(claim):
        status = device_status(claim, result)
        true = {c.type for c in (status.conditions if status else None) or () if c.status == "True"}
        if not true.issuperset(result.binding_conditions or ()):
            return False
    return True


def _binding_results(claim: ResourceClaim) -> list[DeviceResult]:
    allocation = claim.status.allocation
    results = allocation.devices.results or () if allocation is not None else ()
    return [result for result in results if result.binding_conditions]


def device_status(claim: ResourceClaim, result: DeviceResult) -> DeviceStatus | None:
    """What the driver says of a device of the claim, of the share in question."""
    for status in claim.status.devices or ():
        same = (status.driver, status.pool, status.device) == (
            result.driver, result.pool, result.device,
        )  # fmt: skip
        if same and (status.share_id or None) == result.share_id:
            return status
    return None
