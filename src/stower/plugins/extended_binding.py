"""The claim for a pod's extended resources, written: made, allocated, and told of in the pod.

Its name is decided on before it is there, so its devices are taken from then on. Once it is seen,
it is allocated and reserved as any claim is (claim_binding.py).

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
    """The claim of one pod; see framework.reserve.Reservation."""

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
        """`claim`: as it is to be made."""
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
        self._note = self._make_claim_binding(claim, 0).waiting_event()
        self._claim_binding: ClaimBinding | None = None  # once the claim was seen
        self._create_write_id = 0  # the write, while it is not answered
        self._is_create_sent = False
        self._conflict_ns: int | None = None  # when the creation met a conflict
        told = ExtendedResourceClaimStatus(mappings, meta.name)
        own = pod.metadata
        self._status_patch = PodStatusPatch(
            PatchPodStatus(0, own.namespace, own.name, own.uid, extended_resource_claim=told)
        )
        self._is_released = False

    @property
    def retry_at_ns(self) -> int | None:
        """As for any claim."""
        if self._claim_binding is not None:
            return self._claim_binding.retry_at_ns
        return None if self._conflict_ns is None else self._conflict_ns + CONFLICT_RETRY_NS

    def assume(self, state: ClusterState) -> None:
        """The devices are taken, for a claim that there will be."""
        state.devices.assume_made(msgspec.structs.replace(self._claim, status=self._status))

    def _observe_claim(self, state: ClusterState) -> ResourceClaim | None:
        """The claim, where the API has it; looked after from then on."""
        found = state.devices.api_claim(self._decision.key)
        if found is None or extended_claim_owner(found) != self._pod.metadata.uid:
            return None
        if self._claim_binding is None:
            self._claim_binding = self._make_claim_binding(found, state.now_ns)
            self._claim_binding.assumed_statuses[self._decision.key] = self._status
        return found

    def _make_claim_binding(self, claim: ResourceClaim, now_ns: int) -> ClaimBinding:
        wanted = self._decision._replace(claim=claim)
        return ClaimBinding(
            self._pod, self._node_name, (wanted,), self.timeout_ns, self._gates, now_ns
        )

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """The claim; then what any claim needs; then the pod's status."""
        if self._is_released and self._claim_binding is None:
            return []  # whoever looks at the pod next deletes what was made
        if self._observe_claim(state) is None:
            refused_ns = self._conflict_ns
            is_early = refused_ns is None or state.now_ns - refused_ns < CONFLICT_RETRY_NS
            if self._is_create_sent and is_early:
                return []
            self._is_create_sent, self._conflict_ns = True, None
            self._create_write_id = next_id()
            meta = self._claim.metadata
            whole = msgspec.to_builtins(self._claim)
            return [
                CreateObject(
                    self._create_write_id, ResourceClaim, meta.namespace, meta.name,
                    self._pod.metadata.uid, whole,
                )
            ]  # fmt: skip
        assert self._claim_binding is not None
        found = self._claim_binding.writes(state, next_id)
        if not found and not self._is_released and self._claim_binding.is_done(state):
            return self._status_patch.writes(next_id)
        return found

    def on_answer(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """A name that is taken may be that of the claim itself, written by a try that was lost."""
        if id == self._create_write_id:
            self._create_write_id = 0
            self._is_create_sent = code != UNKNOWN
            self._conflict_ns = state.now_ns if code == CONFLICT else None
            return code in (0, CONFLICT, UNKNOWN)
        if self._status_patch.is_own(id):
            return self._status_patch.answered(code)
        return self._claim_binding is None or self._claim_binding.on_answer(
            state, id, code, version
        )

    def failure_reason(self, state: ClusterState) -> str:
        """Why there is no such claim after all."""
        seen = self._observe_claim(state)
        if self._claim_binding is not None:
            return self._claim_binding.failure_reason(state)
        taken = seen is None and state.devices.api_claim(self._decision.key) is not None
        return f"claim {self._decision.key} is somebody else's" if taken else ""

    def is_done(self, state: ClusterState) -> bool:
        """It is allocated and reserved, and the pod says which it is."""
        self._observe_claim(state)
        return (
            self._status_patch.is_done
            and self._claim_binding is not None
            and self._claim_binding.is_done(state)
        )

    def waiting_event(self) -> tuple[str, str]:
        """As for any claim."""
        return self._note

    def forget(self, state: ClusterState) -> None:
        """Once it was seen, it is known what is being written; before, nothing is allocated."""
        self._is_released = True
        if self._claim_binding is not None:
            self._claim_binding.forget(state)
        else:
            state.devices.restore(self._decision.key)

    def unreserve(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """The claim is for this node alone, and goes."""
        seen = self._observe_claim(state)
        if seen is None:
            return []
        return [msgspec.structs.replace(write, id=next_id()) for write in deletion_writes(seen)]


def deletion_writes(claim: ResourceClaim) -> Iterator[PatchObject | DeleteObject]:
    """What deletes a claim that nobody else uses; without ids."""
    meta = claim.metadata
    finalizers = meta.finalizers or ()
    if FINALIZER in finalizers:
        others = [f for f in finalizers if f != FINALIZER]
        yield patch_of(claim, {"metadata": {"finalizers": others or None}})
    if meta.deletion_timestamp is None:
        yield DeleteObject(0, ResourceClaim, meta.namespace, meta.name, meta.uid)
