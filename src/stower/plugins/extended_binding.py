"""Creates the claim for a pod's extended resources, allocates it, and names it in the pod's status.

The claim's name is chosen before the claim exists, and its devices count as in use from then on.
Once the API shows the claim, it is allocated and reserved as any claim is (claim_binding.py).

Source: kube-scheduler plugins/dynamicresources (createExtendedResourceClaimInAPI, bindClaim,
patchPodExtendedResourceClaimStatus, deleteClaim).
"""

from collections.abc import Callable, Iterator

import msgspec

from stower.framework.device_gates import DeviceGates
from stower.framework.retries import CONFLICT, UNKNOWN
from stower.framework.writes import (
    CreateObject,
    DeleteObject,
    PatchObject,
    PatchPodStatus,
    Write,
    patch_of,
)
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.pod import ExtendedResourceClaimStatus
from stower.model.kinds.resource_claim import FINALIZER, AllocationResult, ResourceClaimStatus
from stower.plugins.claim_binding import CONFLICT_RETRY_NS, ClaimBinding, ClaimDecision
from stower.plugins.claim_consumers import pod_consumer
from stower.plugins.extended_claims import RequestMappings
from stower.plugins.pod_status_patch import PodStatusPatch
from stower.state.cluster import ClusterState
from stower.state.devices import extended_claim_owner


class ExtendedClaimBinding:
    """Creates and binds the claim of one pod; see framework.reservation.Reservation."""

    def __init__(
        self,
        pod: Pod,
        node_name: str,
        claim: ResourceClaim,
        allocation: AllocationResult,
        mappings: RequestMappings,
        timeout_ns: int,
        gates: DeviceGates,
    ) -> None:
        """Creates the reservation. `claim`: the object to create in the API."""
        self.timeout_message = ClaimBinding.timeout_message
        self.timeout_ns = timeout_ns
        meta = claim.metadata
        self.awaited_objects: tuple[tuple[type, str, str], ...] = (
            (ResourceClaim, meta.namespace, meta.name),
        )
        self._pod = pod
        self._claim = claim
        self._decision = ClaimDecision(claim, allocation, pod_consumer(pod))
        self._status = ResourceClaimStatus(allocation, (self._decision.consumer,))
        self._node_name = node_name
        self._gates = gates
        self._waiting_event = self._make_claim_binding(claim, 0).waiting_event()
        self._claim_binding: ClaimBinding | None = None  # once the claim was seen
        self._create_write_id = 0  # id of the creation until it is answered, else 0
        self._is_create_sent = False
        self._conflict_ns: int | None = None  # when the creation met a conflict
        claim_status = ExtendedResourceClaimStatus(mappings, meta.name)
        pod_meta = pod.metadata
        self._status_patch = PodStatusPatch(
            PatchPodStatus(
                0,
                pod_meta.namespace,
                pod_meta.name,
                pod_meta.uid,
                extended_resource_claim=claim_status,
            )
        )
        self._is_released = False

    @property
    def retry_at_ns(self) -> int | None:
        """The time at which to repeat the creation or a write of the claim after a conflict."""
        if self._claim_binding is not None:
            return self._claim_binding.retry_at_ns
        return None if self._conflict_ns is None else self._conflict_ns + CONFLICT_RETRY_NS

    @property
    def pod_resource_version(self) -> str:
        """The version of the pod that its binding relies on, "" before the claim is done."""
        return self._claim_binding.pod_resource_version if self._claim_binding is not None else ""

    def restart(self, state: ClusterState) -> bool:
        """Waits for a newer version of the pod, after a binding was refused."""
        return self._claim_binding is not None and self._claim_binding.restart(state)

    def assume(self, state: ClusterState) -> None:
        """Assumes the devices to be in use by a claim that does not exist yet."""
        state.devices.assume_made(msgspec.structs.replace(self._claim, status=self._status))

    def _observe_claim(self, state: ClusterState) -> ResourceClaim | None:
        """Returns the claim if the API has it; creates its ClaimBinding the first time."""
        claim = state.devices.api_claim(self._decision.key)
        if claim is None or extended_claim_owner(claim) != self._pod.metadata.uid:
            return None
        if self._claim_binding is None:
            self._claim_binding = self._make_claim_binding(claim, state.now_ns)
            self._claim_binding.assumed_statuses[self._decision.key] = self._status
        return claim

    def _make_claim_binding(self, claim: ResourceClaim, now_ns: int) -> ClaimBinding:
        decision = self._decision._replace(claim=claim)
        return ClaimBinding(
            self._pod, self._node_name, (decision,), self.timeout_ns, self._gates, now_ns
        )

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Creates the claim; then writes what any claim needs; then patches the pod's status."""
        if self._is_released and self._claim_binding is None:
            return []  # the next attempt of the pod deletes the claim if it was created
        if self._observe_claim(state) is None:
            conflict_ns = self._conflict_ns
            has_no_retry_due = conflict_ns is None or state.now_ns - conflict_ns < CONFLICT_RETRY_NS
            if self._is_create_sent and has_no_retry_due:
                return []
            self._is_create_sent, self._conflict_ns = True, None
            self._create_write_id = next_id()
            meta = self._claim.metadata
            body = msgspec.to_builtins(self._claim)
            return [
                CreateObject(
                    self._create_write_id, ResourceClaim, meta.namespace, meta.name,
                    self._pod.metadata.uid, body,
                )
            ]  # fmt: skip
        assert self._claim_binding is not None
        result = self._claim_binding.writes(state, next_id)
        if not result and not self._is_released and self._claim_binding.is_done(state):
            return self._status_patch.writes(next_id)
        return result

    def on_answer(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """Continues after a conflict: an earlier request may have created the claim unnoticed."""
        if id == self._create_write_id:
            self._create_write_id = 0
            self._is_create_sent = code != UNKNOWN
            self._conflict_ns = state.now_ns if code == CONFLICT else None
            return code in (0, CONFLICT, UNKNOWN)
        if self._status_patch.is_own(id):
            return self._status_patch.handle_answer(state, code, version)
        return self._claim_binding is None or self._claim_binding.on_answer(
            state, id, code, version
        )

    def failure_reason(self, state: ClusterState) -> str:
        """Returns why the pod can no longer have the claim, or ""."""
        claim = self._observe_claim(state)
        if self._claim_binding is not None:
            return self._claim_binding.failure_reason(state)
        is_name_taken = claim is None and state.devices.api_claim(self._decision.key) is not None
        return (
            f"claim {self._decision.key} exists and was not created for this pod"
            if is_name_taken
            else ""
        )

    def is_done(self, state: ClusterState) -> bool:
        """Returns whether the claim is allocated and reserved, and the pod's status names it."""
        self._observe_claim(state)
        return (
            self._status_patch.is_done
            and self._claim_binding is not None
            and self._claim_binding.is_done(state)
        )

    def waiting_event(self) -> tuple[str, str]:
        """Returns the Event for devices with binding conditions."""
        return self._waiting_event

    def forget(self, state: ClusterState) -> None:
        """Withdraws the assumption. Before the claim is seen nothing is allocated; later
        ClaimBinding tracks which writes are pending."""
        self._is_released = True
        if self._claim_binding is not None:
            self._claim_binding.forget(state)
        else:
            state.devices.restore(self._decision.key)

    def unreserve(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Deletes the claim, which is valid for this node only."""
        claim = self._observe_claim(state)
        if claim is None:
            return []
        return [msgspec.structs.replace(write, id=next_id()) for write in deletion_writes(claim)]


def deletion_writes(claim: ResourceClaim) -> Iterator[PatchObject | DeleteObject]:
    """Yields the writes, without ids, that delete a claim which has no other consumers."""
    meta = claim.metadata
    finalizers = meta.finalizers or ()
    if FINALIZER in finalizers:
        others = [f for f in finalizers if f != FINALIZER]
        yield patch_of(claim, {"metadata": {"finalizers": others or None}})
    if meta.deletion_timestamp is None:
        yield DeleteObject(0, ResourceClaim, meta.namespace, meta.name, meta.uid)
