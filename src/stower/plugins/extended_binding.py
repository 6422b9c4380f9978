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
from stower.plugins.claim_binding import NEWS_NS, ClaimBinding, Wanted
from stower.plugins.claim_consumers import pod_consumer
from stower.plugins.extended_claims import Mappings
from stower.plugins.pod_status_patch import PodTold
from stower.state.cluster import ClusterState
from stower.state.devices import extended_owner


class ExtendedBinding:
    """The claim of one pod; see framework.reserve.Reservation."""

    def __init__(
        self,
        pod: Pod,
        node_name: str,
        claim: ResourceClaim,
        allocation: AllocationResult,
        mappings: Mappings,
        timeout_ns: int,
        gates: DeviceGates,
    ) -> None:
        """`claim`: as it is to be made."""
        self.expired = ClaimBinding.expired
        self.timeout_ns = timeout_ns
        meta = claim.metadata
        self.awaits: tuple[tuple[type, str, str], ...] = (
            (ResourceClaim, meta.namespace, meta.name),
        )
        self._pod = pod
        self._claim = claim
        self._wanted = Wanted(claim, allocation, pod_consumer(pod))
        self._status = ResourceClaimStatus(allocation, (self._wanted.consumer,))
        self._node_name = node_name
        self._gates = gates
        self._note = self._binding(claim, 0).note()
        self._inner: ClaimBinding | None = None  # once the claim was seen
        self._creating = 0  # the write, while it is not answered
        self._is_asked = False
        self._refused_ns: int | None = None  # when the creation met a conflict
        told = ExtendedResourceClaimStatus(mappings, meta.name)
        own = pod.metadata
        self._told = PodTold(
            PatchPodStatus(0, own.namespace, own.name, own.uid, extended_resource_claim=told)
        )
        self._released = False

    @property
    def again_ns(self) -> int | None:
        """As for any claim."""
        if self._inner is not None:
            return self._inner.again_ns
        return None if self._refused_ns is None else self._refused_ns + NEWS_NS

    def hold(self, state: ClusterState) -> None:
        """The devices are taken, for a claim that there will be."""
        state.devices.assume_made(msgspec.structs.replace(self._claim, status=self._status))

    def _seen(self, state: ClusterState) -> ResourceClaim | None:
        """The claim, where the API has it; looked after from then on."""
        found = state.devices.seen_claim(self._wanted.key)
        if found is None or extended_owner(found) != self._pod.metadata.uid:
            return None
        if self._inner is None:
            self._inner = self._binding(found, state.now_ns)
            self._inner.decided[self._wanted.key] = self._status
        return found

    def _binding(self, claim: ResourceClaim, now_ns: int) -> ClaimBinding:
        wanted = self._wanted._replace(claim=claim)
        return ClaimBinding(
            self._pod, self._node_name, (wanted,), self.timeout_ns, self._gates, now_ns
        )

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """The claim; then what any claim needs; then the pod's status."""
        if self._released and self._inner is None:
            return []  # whoever looks at the pod next deletes what was made
        if self._seen(state) is None:
            refused_ns = self._refused_ns
            is_early = refused_ns is None or state.now_ns - refused_ns < NEWS_NS
            if self._is_asked and is_early:
                return []
            self._is_asked, self._refused_ns = True, None
            self._creating = next_id()
            meta = self._claim.metadata
            whole = msgspec.to_builtins(self._claim)
            return [
                CreateObject(
                    self._creating, ResourceClaim, meta.namespace, meta.name,
                    self._pod.metadata.uid, whole,
                )
            ]  # fmt: skip
        assert self._inner is not None
        found = self._inner.writes(state, next_id)
        if not found and not self._released and self._inner.is_done(state):
            return self._told.writes(next_id)
        return found

    def answered(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """A name that is taken may be that of the claim itself, written by a try that was lost."""
        if id == self._creating:
            self._creating = 0
            self._is_asked = code != UNKNOWN
            self._refused_ns = state.now_ns if code == CONFLICT else None
            return code in (0, CONFLICT, UNKNOWN)
        if self._told.is_own(id):
            return self._told.answered(code)
        return self._inner is None or self._inner.answered(state, id, code, version)

    def fault(self, state: ClusterState) -> str:
        """Why there is no such claim after all."""
        seen = self._seen(state)
        if self._inner is not None:
            return self._inner.fault(state)
        taken = seen is None and state.devices.seen_claim(self._wanted.key) is not None
        return f"claim {self._wanted.key} is somebody else's" if taken else ""

    def is_done(self, state: ClusterState) -> bool:
        """It is allocated and reserved, and the pod says which it is."""
        self._seen(state)
        return self._told.is_done and self._inner is not None and self._inner.is_done(state)

    def note(self) -> tuple[str, str]:
        """As for any claim."""
        return self._note

    def release(self, state: ClusterState) -> None:
        """Once it was seen, it is known what is being written; before, nothing is allocated."""
        self._released = True
        if self._inner is not None:
            self._inner.release(state)
        else:
            state.devices.restore(self._wanted.key)

    def undo(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """The claim is for this node alone, and goes."""
        seen = self._seen(state)
        if seen is None:
            return []
        return [msgspec.structs.replace(write, id=next_id()) for write in deletion(seen)]


def deletion(claim: ResourceClaim) -> Iterator[PatchObject | DeleteObject]:
    """What deletes a claim that nobody else uses; without ids."""
    meta = claim.metadata
    finalizers = meta.finalizers or ()
    if FINALIZER in finalizers:
        others = [f for f in finalizers if f != FINALIZER]
        yield patch_of(claim, {"metadata": {"finalizers": others or None}})
    if meta.deletion_timestamp is None:
        yield DeleteObject(0, ResourceClaim, meta.namespace, meta.name, meta.uid)
