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
from stower.plugins.claim_consumers import is_reserved_for_pod
from stower.state.cluster import ClusterState
from stower.state.devices import is_same_or_newer

CONFLICTS_MAX: Final = 20
STRIPPED_SHARES_MESSAGE: Final = (
    "the API server drops the shares of devices: it needs the feature DRAConsumableCapacity"
)
# A conflict means that something newer is there; where it does not come, try again on the same.
CONFLICT_RETRY_NS: Final = 3 * SECOND_NS


class ClaimDecision(NamedTuple):
    """One claim, what was decided for it (None where it was allocated already), and for whom."""

    claim: ResourceClaim
    allocation: AllocationResult | None
    consumer: ConsumerReference

    @property
    def key(self) -> str:
        return self.claim.metadata.key


class ClaimBinding:
    """The claims of one pod; see framework.reserve.Reservation."""

    timeout_message = "device binding timeout: context deadline exceeded"

    def __init__(
        self,
        pod: Pod,
        node_name: str,
        decisions: tuple[ClaimDecision, ...],
        timeout_ns: int,
        gates: DeviceGates,
        now_ns: int,
    ) -> None:
        self.timeout_ns = timeout_ns
        self._has_binding_conditions = (
            gates.binding
        )  # devices may have conditions that must be true first
        self._has_group_claims = gates.group_claims
        for decision in decisions if gates.binding else ():
            # What others have waited for is not waited for as long again.
            due_ns = (
                binding_deadline_ns(decision.claim, timeout_ns)
                if not is_ready(decision.claim)
                else None
            )
            if due_ns is not None and due_ns - now_ns < self.timeout_ns:
                self.timeout_ns = max(due_ns - now_ns, 0)
                self.timeout_message = (
                    f"device binding timeout: claim={decision.claim.metadata.name}"
                )
        self.awaited_objects: tuple[tuple[type, str, str], ...] = tuple(
            (ResourceClaim, decision.claim.metadata.namespace, decision.claim.metadata.name)
            for decision in decisions
        )
        self._pod = pod
        self._node_name = node_name
        self._decisions = decisions
        self._pending_writes: dict[
            int, tuple[str, bool]
        ] = {}  # writes not answered: key, is it the status
        self._base_versions: dict[
            str, str
        ] = {}  # by key: the version that was written on, or refused
        self._status_versions: dict[
            str, str
        ] = {}  # by key: the version that has the status, "" unknown
        self._unknown_writes: dict[
            str, str
        ] = {}  # by key: the version on which the status was lost
        self._conflicts = 0
        self._conflict_times_ns: dict[str, int] = {}  # by key: when the last write met a conflict
        self._is_released = False
        self.assumed_statuses: dict[str, ResourceClaimStatus] = {}  # by key: what is counted on
        self._stripped_claims: dict[str, None] = {}  # claims of which the API server drops a part

    @property
    def retry_at_ns(self) -> int | None:
        """When to look for what did not come."""
        return (
            min(self._conflict_times_ns.values()) + CONFLICT_RETRY_NS
            if self._conflict_times_ns
            else None
        )

    def assume(self, state: ClusterState) -> None:
        """The devices are taken, the claims reserved."""
        for decision in self._decisions:
            status = decision.claim.status
            if decision.allocation is None and self._is_reserved_for_pod(decision.claim):
                continue
            reserved = (*(status.reserved_for or ()), decision.consumer)
            allocation = decision.allocation or status.allocation
            held = ResourceClaimStatus(allocation, reserved, status.devices)
            self.assumed_statuses[decision.key] = held
            state.devices.assume_status(decision.key, held)

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """First the finalizer, so that nobody deletes what is in use; then the status."""
        found: list[Write] = []
        asked = {key for key, _ in self._pending_writes.values()}
        for decision in self._decisions:
            current_claim = state.devices.api_claim(decision.key)
            if self._is_released and not self._is_write_unknown(decision, current_claim, state):
                continue
            if (
                current_claim is None
                or decision.key in asked
                or self._has_nothing_to_write(decision, current_claim, state)
            ):
                continue
            meta = current_claim.metadata
            if meta.uid != decision.claim.metadata.uid or meta.deletion_timestamp is not None:
                continue
            used = self._base_versions.get(decision.key)
            if used is not None and is_same_or_newer(used, meta.resource_version):
                refused_ns = self._conflict_times_ns.get(decision.key, state.now_ns)
                if state.now_ns - refused_ns < CONFLICT_RETRY_NS:
                    continue  # something newer is on its way
            self._conflict_times_ns.pop(decision.key, None)
            patch, subresource = self._patch(decision, current_claim, state.now_ns)
            id = next_id()
            self._pending_writes[id] = (decision.key, bool(subresource))
            self._base_versions[decision.key] = meta.resource_version
            found.append(patch_of(current_claim, patch, subresource, id))
        return found

    def _is_write_unknown(
        self, decision: ClaimDecision, current_claim: ResourceClaim | None, state: ClusterState
    ) -> bool:
        """Whether nobody can say if the claim's status was written: the same write tells it."""
        lost = self._unknown_writes.get(decision.key)
        if lost is None:
            return False
        if current_claim is not None and not is_same_or_newer(
            current_claim.metadata.resource_version, _next_version(lost)
        ):
            return True
        # What was seen since is later than the write.
        del self._unknown_writes[decision.key]
        self._forget(state, decision.key)
        return False

    def _patch(
        self, decision: ClaimDecision, current_claim: ResourceClaim, now_ns: int
    ) -> tuple[dict[str, Any], str]:
        allocates = decision.allocation is not None and current_claim.status.allocation is None
        finalizers = current_claim.metadata.finalizers or ()
        if allocates and FINALIZER not in finalizers:
            return {"metadata": {"finalizers": [*finalizers, FINALIZER]}}, ""
        reserved = [*_other_consumers(current_claim, decision.consumer.uid), decision.consumer]
        status: dict[str, Any] = {"reservedFor": msgspec.to_builtins(reserved)}
        if allocates:
            status["allocation"] = msgspec.to_builtins(decision.allocation)
        known = current_claim.status.allocation
        if self._has_binding_conditions and (known is None or known.allocation_timestamp is None):
            status.setdefault("allocation", {})["allocationTimestamp"] = time_text(now_ns)
        return {"status": status}, "status"

    def _is_reserved_for_pod(self, claim: ResourceClaim) -> bool:
        return is_reserved_for_pod(claim, self._pod, self._has_group_claims)

    def _is_reserved(self, current_claim: ResourceClaim, state: ClusterState) -> bool:
        return self._is_reserved_for_pod(current_claim) and not state.devices.is_revoked(
            current_claim
        )

    def _has_nothing_to_write(
        self, decision: ClaimDecision, current_claim: ResourceClaim, state: ClusterState
    ) -> bool:
        """Whether there is nothing to write: it is as wanted, or cannot be any more."""
        known = current_claim.status.allocation
        if known is None:
            return decision.allocation is None
        if decision.allocation is not None and not is_same_allocation(known, decision.allocation):
            return True
        return self._is_reserved(current_claim, state)

    def on_answer(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """What was refused because something newer is there is tried on that; what nobody knows of
        is tried again, and refused if it was carried out."""
        key, is_status = self._pending_writes.pop(id, ("", False))
        if code == 0:
            if is_status:
                self._unknown_writes.pop(key, None)
                self._status_versions[key] = version
                state.devices.cancel_revocation(key, version)
                if self._is_released:
                    self._expect(state, key, version)
            return True
        if code == CONFLICT:
            self._conflicts += 1
            self._conflict_times_ns[key] = state.now_ns
            if self._is_released and key in self._unknown_writes:
                # The one that was lost may have been carried out: what comes next will show it.
                # Until then it is asked again, as there are conflicts with nothing.
                self._base_versions.pop(key, None)
                if self._conflicts >= CONFLICTS_MAX:
                    self._expect(state, key, _next_version(self._unknown_writes.pop(key)))
            elif self._is_released:
                self._forget(state, key)
            return self._conflicts < CONFLICTS_MAX
        if code == UNKNOWN:
            used = self._base_versions.pop(key, "")
            if is_status:
                self._unknown_writes.setdefault(key, used)
            return True
        self._unknown_writes.pop(key, None)
        if self._is_released:
            self._forget(state, key)
        return False

    def failure_reason(self, state: ClusterState) -> str:
        """Why the pod cannot have its claims after all."""
        for decision in self._decisions:
            current_claim = state.devices.api_claim(decision.key)
            key = decision.key
            if current_claim is None or current_claim.metadata.uid != decision.claim.metadata.uid:
                return f'resourceclaim "{decision.claim.metadata.name}" not found'
            if current_claim.metadata.deletion_timestamp is not None:
                return f"claim {key} got deleted in the meantime"
            known = current_claim.status.allocation
            written = self._status_versions.get(key)
            version = current_claim.metadata.resource_version
            is_late = decision.allocation is None or (
                written and is_same_or_newer(version, written)
            )
            if known is None:
                if is_late:
                    return f"claim {key} got deallocated elsewhere in the meantime"
                continue
            if decision.allocation is not None and not is_same_allocation(
                known, decision.allocation
            ):
                if is_same_allocation(known, decision.allocation, ignore_shares=True) and is_late:
                    self._stripped_claims[key] = None
                    return f"claim {key}: {STRIPPED_SHARES_MESSAGE}"
                return f"claim {key} got allocated elsewhere in the meantime"
            if self._has_binding_conditions:
                found = binding_fault(current_claim)
                if found:
                    return found
        return ""

    def is_done(self, state: ClusterState) -> bool:
        """The API shows all claims allocated, reserved for the pod and ready."""
        for decision in self._decisions:
            current_claim = state.devices.api_claim(decision.key)
            if current_claim is None or current_claim.status.allocation is None:
                return False
            if not self._is_reserved(current_claim, state):
                return False
            if self._has_binding_conditions and not is_ready(current_claim):
                return False
        return True

    def waiting_event(self) -> tuple[str, str]:
        """That devices have to be made ready, where they have."""
        allocations = (
            decision.allocation or decision.claim.status.allocation for decision in self._decisions
        )
        if self._has_binding_conditions and any(
            a is not None and has_binding_conditions(a) for a in allocations
        ):
            return (
                "BindingConditionsPending",
                f"waiting for binding conditions for device on node {self._node_name}",
            )
        return "", ""

    def forget(self, state: ClusterState) -> None:
        """What is being written stays taken until it is known what became of it."""
        self._is_released = True
        asked = {key for key, is_status in self._pending_writes.values() if is_status}
        for decision in self._decisions:
            if decision.key in self._status_versions:
                self._expect(state, decision.key, self._status_versions[decision.key])
            elif decision.key not in asked and decision.key not in self._unknown_writes:
                self._forget(state, decision.key)

    def _forget(self, state: ClusterState, key: str) -> None:
        if self._is_own_assumption(state, key):
            state.devices.restore(key)

    def _expect(self, state: ClusterState, key: str, version: str) -> None:
        if self._is_own_assumption(state, key):
            state.devices.expect(key, version)

    def _is_own_assumption(self, state: ClusterState, key: str) -> bool:
        """Whether what is counted on is what was decided here: by now there may be another claim of
        that name, or another decision, be it for the same pod."""
        claim = state.devices.claim(key)
        return claim is not None and claim.status is self.assumed_statuses.get(key)

    def unreserve(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """The pod's reservations; an allocation stays, for the next attempt or whoever is next, and
        so does the reservation of a group, whose other pods may need it. Not one that the API
        server has made another of: that has devices alone that others share."""
        found: list[Write] = []
        for decision in self._decisions:
            current_claim = state.devices.api_claim(decision.key)
            if current_claim is None or not current_claim.is_reserved_for(self._pod.metadata.uid):
                continue
            state.devices.revoke(current_claim)
            others = msgspec.to_builtins(_other_consumers(current_claim, self._pod.metadata.uid))
            status: dict[str, Any] = {"reservedFor": others or None}
            if decision.key in self._stripped_claims and not others:
                status["allocation"] = None
            found.append(patch_of(current_claim, {"status": status}, "status", next_id()))
        return found


def _other_consumers(claim: ResourceClaim, uid: str) -> list[ConsumerReference]:
    """Whoever else uses the claim."""
    return [other for other in claim.status.reserved_for or () if other.uid != uid]


def _next_version(version: str) -> str:
    """The version of whatever comes after an object of that version."""
    return str(int(version) + 1) if version.isdigit() else version


def is_same_allocation(
    one: AllocationResult, other: AllocationResult, ignore_shares: bool = False
) -> bool:
    """Whether two allocations are of the same devices and shares; `but_for_shares`: or would be,
    had not one of them lost some."""

    def devices(allocation: AllocationResult) -> list[tuple[str, ...]]:
        results = allocation.devices.results or ()
        shares = ["" if ignore_shares else r.share_id or "" for r in results]
        return [(r.request, r.driver, r.pool, r.device, s) for r, s in zip(results, shares)]

    return devices(one) == devices(other)


def binding_deadline_ns(claim: ResourceClaim, timeout_ns: int) -> int | None:
    """Until when its devices should have been bound; None where nothing has to be."""
    allocation = claim.status.allocation
    if allocation is None:
        return None
    since_ns = time_ns(allocation.allocation_timestamp)
    waits = any(r.binding_conditions is not None for r in allocation.devices.results or ())
    return since_ns + timeout_ns if waits and since_ns is not None else None


def has_binding_conditions(allocation: AllocationResult) -> bool:
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
