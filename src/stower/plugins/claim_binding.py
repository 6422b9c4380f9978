"""Writes the allocations and reservations of a pod's ResourceClaims before the pod is bound.

No device is allocated twice. A decided allocation counts as in use until the API shows it or
refuses its write for good. A write relies on the version of the claim that the decision was based
on; if that is no longer the latest version, on the next version that is seen.

Source: kube-scheduler plugins/dynamicresources (bindClaim, Unreserve); KEP-5007 (conditions).
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from stower.devices.binding_conditions import (
    binding_deadline_ns,
    binding_fault,
    has_binding_conditions,
    is_ready,
)
from stower.devices.claim_sharing import ClaimSharing, SharedAllocation
from stower.devices.overcommits import Overcommits
from stower.framework.device_gates import DeviceGates
from stower.framework.pod_version import PodVersion
from stower.framework.retries import CONFLICT, UNKNOWN
from stower.framework.writes import Write, patch_of
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.resource_claim import (
    FINALIZER,
    AllocationResult,
    ConsumerReference,
    ResourceClaimStatus,
)
from stower.model.meta import ObjectMeta
from stower.model.times import SECOND_NS, time_text
from stower.plugins.claim_consumers import is_reserved_for_pod
from stower.state.cluster import ClusterState
from stower.state.devices import is_same_or_newer

CONFLICTS_MAX: Final = 20
RENEWALS_MAX: Final = 5
STRIPPED_SHARES_MESSAGE: Final = (
    "the API server dropped the device shares: enable its feature gate DRAConsumableCapacity"
)
# A conflict means that a newer version exists. If the watch does not show a newer version within
# this time, the write is repeated on the same version.
CONFLICT_RETRY_NS: Final = 3 * SECOND_NS


class ClaimDecision(NamedTuple):
    """One claim, its decided allocation (None: it was allocated already), and its consumer;
    `shared` where other pods of a tree rely on the same decision."""

    claim: ResourceClaim
    allocation: AllocationResult | None
    consumer: ConsumerReference
    shared: SharedAllocation | None = None

    @property
    def key(self) -> str:
        """The claim's namespace/name."""
        return self.claim.metadata.key

    def as_shared(self, sharing: ClaimSharing, allocation: AllocationResult) -> "ClaimDecision":
        """Returns the decision as one of several pods: each of them may be the one that writes the
        allocation."""
        if self.allocation is None and sharing.pending(self.key) is None:
            return self
        return self._replace(allocation=allocation, shared=sharing.allocation(self.key))


class ClaimBinding:
    """Allocates and reserves the claims of one pod; see framework.reservation.Reservation."""

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
        # Devices may have conditions that must be true before the pod is bound.
        self._has_binding_conditions = gates.binding
        self._has_group_claims = gates.group_claims
        for decision in decisions if gates.binding else ():
            # A claim allocated by an earlier attempt has used up part of its timeout.
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
        # Unanswered writes by id: the claim's key, and whether the status is written.
        self._pending_writes: dict[int, tuple[str, bool]] = {}
        # By claim key: the version that the last write relied on, also if that write was refused.
        self._base_versions: dict[str, str] = {}
        # By claim key: the version that contains the written status; "" if the answer lacked it.
        self._status_versions: dict[str, str] = {}
        # By claim key: the version that a status write with unknown outcome relied on.
        self._unknown_writes: dict[str, str] = {}
        self._conflicts = 0
        self._conflict_times_ns: dict[str, int] = {}  # by claim key: of the last conflict
        self._is_released = False
        self.assumed_statuses: dict[str, ResourceClaimStatus] = {}  # by claim key
        # Keys of claims whose device shares the API server drops.
        self._stripped_claims: dict[str, None] = {}
        # Keys of claims whose allocation another one was before: the engine gives them back.
        self._overcommitted_claims: dict[str, None] = {}
        self._version = PodVersion(pod.metadata.uid)
        self._renewals = 0

    @property
    def retry_at_ns(self) -> int | None:
        """The time at which to repeat a write, or a binding, that met a conflict although no newer
        version was seen."""
        awaited_ns = self._version.awaited_until_ns
        if not self._conflict_times_ns:
            return awaited_ns
        due_ns = min(self._conflict_times_ns.values()) + CONFLICT_RETRY_NS
        return due_ns if awaited_ns is None else min(due_ns, awaited_ns)

    @property
    def pod_resource_version(self) -> str:
        """The newest version of the pod that was known when its claims were done."""
        return self._version.value

    def restart(self, state: ClusterState) -> bool:
        """Waits for a newer version of the pod, after a binding was refused."""
        self._renewals += 1
        self._version.reject(state.now_ns)
        return self._renewals <= RENEWALS_MAX

    def assume(self, state: ClusterState) -> None:
        """Assumes the devices to be in use and the claims to be reserved."""
        for decision in self._decisions:
            status = decision.claim.status
            if decision.allocation is None and self._is_reserved_for_pod(decision.claim):
                continue
            others = [c for c in status.reserved_for or () if c.uid != decision.consumer.uid]
            consumers = (*others, decision.consumer)
            allocation = decision.allocation or status.allocation
            assumed_status = ResourceClaimStatus(allocation, consumers, status.devices)
            self.assumed_statuses[decision.key] = assumed_status
            if decision.shared is not None:
                decision.shared.status = assumed_status
                decision.shared.holders.add(self)
            state.devices.assume_status(decision.key, assumed_status)

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Returns the finalizers first, so that claims in use cannot be deleted; then statuses."""
        result: list[Write] = []
        pending_keys = {key for key, _ in self._pending_writes.values()}
        for decision in self._decisions:
            current_claim = state.devices.api_claim(decision.key)
            if self._is_released and not self._is_write_unknown(decision, current_claim, state):
                continue
            if (
                current_claim is None
                or decision.key in pending_keys
                or self._has_nothing_to_write(decision, current_claim, state)
            ):
                continue
            meta = current_claim.metadata
            if meta.uid != decision.claim.metadata.uid or meta.deletion_timestamp is not None:
                continue
            # A pod that has given up only asks what became of its write: nobody wakes it later.
            if not self._is_released and self._waits_for_other(decision, meta, state.now_ns):
                continue
            base_version = self._base_versions.get(decision.key)
            if base_version is not None and is_same_or_newer(base_version, meta.resource_version):
                conflict_ns = self._conflict_times_ns.get(decision.key, state.now_ns)
                if state.now_ns - conflict_ns < CONFLICT_RETRY_NS:
                    continue  # the watch has yet to show a newer version
            self._conflict_times_ns.pop(decision.key, None)
            patch, subresource = self._patch(decision, current_claim, state.now_ns)
            id = next_id()
            self._pending_writes[id] = (decision.key, bool(subresource))
            self._base_versions[decision.key] = meta.resource_version
            if decision.shared is not None:
                decision.shared.writer = self
                decision.shared.base_version = meta.resource_version
            result.append(patch_of(current_claim, patch, subresource, id))
        return result

    def _waits_for_other(self, decision: ClaimDecision, meta: ObjectMeta, now_ns: int) -> bool:
        """Returns whether another pod has written on this version: all but one would conflict."""
        shared = decision.shared
        if shared is None or shared.writer in (None, self):
            return False
        if not is_same_or_newer(shared.base_version, meta.resource_version):
            self._conflict_times_ns.pop(decision.key, None)
            return False
        since_ns = self._conflict_times_ns.setdefault(decision.key, now_ns)
        return now_ns - since_ns < CONFLICT_RETRY_NS

    def _is_write_unknown(
        self, decision: ClaimDecision, current_claim: ResourceClaim | None, state: ClusterState
    ) -> bool:
        """Returns whether it is unknown if the claim's status was written. Repeating the write
        shows whether it was."""
        base_version = self._unknown_writes.get(decision.key)
        if base_version is None:
            return False
        if current_claim is not None and not is_same_or_newer(
            current_claim.metadata.resource_version, _next_version(base_version)
        ):
            return True
        # A version after the write has been seen: the API shows the outcome.
        del self._unknown_writes[decision.key]
        self._forget(state, decision.key)
        return False

    def _patch(
        self, decision: ClaimDecision, current_claim: ResourceClaim, now_ns: int
    ) -> tuple[dict[str, Any], str]:
        """Returns the next patch of the claim and the subresource to patch: "" or "status"."""
        allocates = decision.allocation is not None and current_claim.status.allocation is None
        finalizers = current_claim.metadata.finalizers or ()
        if allocates and FINALIZER not in finalizers:
            return {"metadata": {"finalizers": [*finalizers, FINALIZER]}}, ""
        consumers = [*_other_consumers(current_claim, decision.consumer.uid), decision.consumer]
        status: dict[str, Any] = {"reservedFor": msgspec.to_builtins(consumers)}
        if allocates:
            status["allocation"] = msgspec.to_builtins(decision.allocation)
        allocation = current_claim.status.allocation
        if self._has_binding_conditions and (
            allocation is None or allocation.allocation_timestamp is None
        ):
            status.setdefault("allocation", {})["allocationTimestamp"] = time_text(now_ns)
        return {"status": status}, "status"

    def _is_reserved_for_pod(self, claim: ResourceClaim) -> bool:
        return is_reserved_for_pod(claim, self._pod, self._has_group_claims)

    def _is_reserved(self, current_claim: ResourceClaim, state: ClusterState) -> bool:
        """Returns whether the claim is reserved for the pod, and has not been revoked since."""
        return self._is_reserved_for_pod(current_claim) and not state.devices.is_revoked(
            current_claim
        )

    def _has_nothing_to_write(
        self, decision: ClaimDecision, current_claim: ResourceClaim, state: ClusterState
    ) -> bool:
        """Returns whether the claim is as decided, or can no longer become so."""
        allocation = current_claim.status.allocation
        if allocation is None:
            return decision.allocation is None
        if decision.allocation is not None and not is_same_allocation(
            allocation, decision.allocation
        ):
            return True
        return self._is_reserved(current_claim, state)

    def on_answer(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """Repeats a write after a conflict, on the newer version. Repeats a write with unknown
        outcome; if the first one was carried out, the second meets a conflict."""
        key, is_status = self._pending_writes.pop(id, ("", False))
        if code == 0:
            if is_status:
                self._unknown_writes.pop(key, None)
                self._status_versions[key] = version
                if version == self._base_versions.get(key):  # the server had nothing to change
                    state.devices.cancel_revocation(key, version)
                if self._is_released:
                    self._expect(state, key, version)
            return True
        if code == CONFLICT:
            self._conflicts += 1
            self._conflict_times_ns[key] = state.now_ns
            if self._is_released and key in self._unknown_writes:
                # The write with unknown outcome may have been carried out: the next version will
                # show it. Until then the write is repeated, because a server may report a conflict
                # although there is no newer version.
                self._base_versions.pop(key, None)
                if self._conflicts >= CONFLICTS_MAX:
                    self._expect(state, key, _next_version(self._unknown_writes.pop(key)))
            elif self._is_released:
                self._forget(state, key)
            return self._conflicts < CONFLICTS_MAX
        if code == UNKNOWN:
            base_version = self._base_versions.pop(key, "")
            if is_status:
                self._unknown_writes.setdefault(key, base_version)
            return True
        self._unknown_writes.pop(key, None)
        if self._is_released:
            self._forget(state, key)
        return False

    def failure_reason(self, state: ClusterState) -> str:
        """Returns why the pod can no longer have its claims, or ""."""
        for decision in self._decisions:
            current_claim = state.devices.api_claim(decision.key)
            key = decision.key
            if current_claim is None or current_claim.metadata.uid != decision.claim.metadata.uid:
                return f'resourceclaim "{decision.claim.metadata.name}" not found'
            if current_claim.metadata.deletion_timestamp is not None:
                return f"claim {key} got deleted in the meantime"
            allocation = current_claim.status.allocation
            status_version = self._status_versions.get(key)
            version = current_claim.metadata.resource_version
            is_allocation_expected = decision.allocation is None or (
                status_version and is_same_or_newer(version, status_version)
            )
            if allocation is None:
                if is_allocation_expected:
                    return f"claim {key} got deallocated elsewhere in the meantime"
                continue
            if decision.allocation is not None and not is_same_allocation(
                allocation, decision.allocation
            ):
                if (
                    is_same_allocation(allocation, decision.allocation, ignore_shares=True)
                    and is_allocation_expected
                ):
                    self._stripped_claims[key] = None
                    return f"claim {key}: {STRIPPED_SHARES_MESSAGE}"
                return f"claim {key} got allocated elsewhere in the meantime"
            reason = state.devices.extension(Overcommits).reason(current_claim)
            if reason:
                self._overcommitted_claims[key] = None
                return f"claim {key}: {reason}"
            if self._has_binding_conditions:
                fault = binding_fault(current_claim)
                if fault:
                    return fault
        return ""

    def is_done(self, state: ClusterState) -> bool:
        """Returns whether the API shows all claims allocated, reserved for the pod and ready."""
        for decision in self._decisions:
            current_claim = state.devices.api_claim(decision.key)
            if current_claim is None or current_claim.status.allocation is None:
                return False
            if not self._is_reserved(current_claim, state):
                return False
            if self._has_binding_conditions and not is_ready(current_claim):
                return False
        version = self._version.newest(state)
        if version is None:
            return False
        self._version.value = version
        return True

    def waiting_event(self) -> tuple[str, str]:
        """Returns the Event for devices with binding conditions."""
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
        """Withdraws the assumptions. An allocation whose write is pending, unknown or not visible
        yet stays in use until its outcome is known."""
        self._is_released = True
        pending_keys = {key for key, is_status in self._pending_writes.values() if is_status}
        for decision in self._decisions:
            if decision.key in self._status_versions:
                self._expect(state, decision.key, self._status_versions[decision.key])
            elif decision.key not in pending_keys and decision.key not in self._unknown_writes:
                self._forget(state, decision.key)

    def _forget(self, state: ClusterState, key: str) -> None:
        shared = self._shared_allocation(key)
        if shared is not None and shared.version:
            self._expect(state, key, shared.version)
        elif self._is_own_assumption(state, key) and self._is_last_holder(shared):
            state.devices.restore(key)

    def _expect(self, state: ClusterState, key: str, version: str) -> None:
        """Keeps the assumption until the API shows `version` of the claim."""
        shared = self._shared_allocation(key)
        if shared is not None:
            shared.version = version
        if self._is_own_assumption(state, key) and self._is_last_holder(shared):
            state.devices.expect(key, version)

    def _shared_allocation(self, key: str) -> SharedAllocation | None:
        return next((d.shared for d in self._decisions if d.key == key), None)

    def _is_last_holder(self, shared: SharedAllocation | None) -> bool:
        """Releases a shared decision; returns whether nobody else relies on it."""
        if shared is None:
            return True
        shared.holders.discard(self)
        return not shared.holders

    def _is_own_assumption(self, state: ClusterState, key: str) -> bool:
        """Returns whether the state assumes this decision. By now there may be another claim of the
        same name, or another decision, even for the same pod."""
        claim = state.devices.claim(key)
        shared = self._shared_allocation(key)
        own = shared.status if shared is not None else self.assumed_statuses.get(key)
        return claim is not None and claim.status is own

    def unreserve(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Removes the pod's reservations.

        Allocations stay for the next attempt or the next consumer. Reservations of a pod group stay
        too, because its other pods may need them. An allocation whose shares the API server has
        dropped is removed if no consumer is left: it would hold shared devices exclusively. What
        is overcommitted is given back by the engine.
        """
        result: list[Write] = []
        for decision in self._decisions:
            if decision.key in self._overcommitted_claims:
                continue
            current_claim = state.devices.api_claim(decision.key)
            if current_claim is None or not current_claim.is_reserved_for(self._pod.metadata.uid):
                continue
            state.devices.revoke(current_claim)
            other_consumers = msgspec.to_builtins(
                _other_consumers(current_claim, self._pod.metadata.uid)
            )
            status: dict[str, Any] = {"reservedFor": other_consumers or None}
            if decision.key in self._stripped_claims and not other_consumers:
                status["allocation"] = None
            result.append(patch_of(current_claim, {"status": status}, "status", next_id()))
        return result


def _other_consumers(claim: ResourceClaim, uid: str) -> list[ConsumerReference]:
    """Returns the claim's consumers except `uid`."""
    return [consumer for consumer in claim.status.reserved_for or () if consumer.uid != uid]


def _next_version(version: str) -> str:
    """Returns the lowest version that an object can have after this version."""
    return str(int(version) + 1) if version.isdigit() else version


def is_same_allocation(
    first: AllocationResult, second: AllocationResult, ignore_shares: bool = False
) -> bool:
    """Returns whether two allocations have the same devices and shares. `ignore_shares`: compares
    the devices only, for an allocation that has lost shares."""

    def devices(allocation: AllocationResult) -> list[tuple[str, ...]]:
        results = allocation.devices.results or ()
        shares = ["" if ignore_shares else r.share_id or "" for r in results]
        return [(r.request, r.driver, r.pool, r.device, s) for r, s in zip(results, shares)]

    return devices(first) == devices(second)
