"""VolumeBinding: checks whether nodes reach the pod's volumes, or volumes can be bound there.

Source: kube-scheduler plugins/volumebinding (binder.go); component-helpers storage/volume
(FindMatchingVolume); KEP-1472 (CSIStorageCapacity), KEP-1698 (generic ephemeral volumes).

Not supported: the translation of zone labels of in-tree volumes into those of CSI drivers.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from stower.framework.args import Args, convert_args, invalid, raise_faults
from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.dry_run import DryRun
from stower.framework.fixes import NODE_FIELD, Fix
from stower.framework.plugin import Features, Plugin, Scope
from stower.framework.reasons import Rejection
from stower.framework.reservation import Reservation
from stower.framework.writes import Write, patch_of
from stower.model.kinds import Pod
from stower.model.kinds.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from stower.model.selectors import node_selector_matches
from stower.plugins.bounds import VOLUMES_MAX, check_count
from stower.plugins.provisioning import (
    NO_PROVISIONER,
    has_enough_capacity,
    is_in_allowed_topologies,
    max_volume_bytes,
)
from stower.plugins.volume_fixes import fix_claims
from stower.plugins.volume_matching import (
    VolumeMatcher,
    required_node_selector,
    rows_matching_node_affinity,
)
from stower.plugins.volume_shortages import claim_shortages
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape
from stower.state.volumes import claims_of, is_made_for

NODE_AFFINITY_CONFLICT: Final = 1
NO_MATCH: Final = 2
NO_SPACE: Final = 4
NO_VOLUME: Final = 8
REASONS: Final = (
    (NODE_AFFINITY_CONFLICT, "node(s) didn't match PersistentVolume's node affinity"),
    (NO_MATCH, "node(s) didn't find available persistent volumes to bind"),
    (NO_SPACE, "node(s) did not have enough free storage"),
    (NO_VOLUME, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
)
SECOND_NS: Final = 1_000_000_000


class ShapePoint(Args, frozen=True):
    """A point of the curve of StorageCapacityScoring; checked, not used."""

    utilization: int = 0
    score: int = 0


class VolumeBindingArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration."""

    bind_timeout_seconds: int = 600
    shape: tuple[ShapePoint, ...] | None = None


class VolumeBinding(Plugin):
    """Rejects nodes that do not reach the pod's volumes, or where unbound claims cannot be bound.

    A claim that waits for its first consumer gets the smallest suitable volume that exists, or else
    a volume that is provisioned for the chosen node.
    """

    name = "VolumeBinding"
    scope = Scope.PODS
    events_to_register = (
        Change.NODE_ADDED | Change.NODE_LABELS | Change.CLASS_ADDED | Change.CLASS_UPDATED
        | Change.CLAIM_ADDED | Change.CLAIM_UPDATED | Change.VOLUME_ADDED | Change.VOLUME_UPDATED
        | Change.CSI_NODE_ADDED | Change.CSI_NODE_UPDATED | Change.CSI_DRIVER_UPDATED
        | Change.CAPACITY_ADDED | Change.CAPACITY_UPDATED
    )  # fmt: skip

    def __init__(self, timeout_seconds: int = 600) -> None:
        """`timeout_seconds`: how long a pod waits for its claims to be bound."""
        self.timeout_ns = timeout_seconds * SECOND_NS

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "VolumeBinding":
        """Reads VolumeBindingArgs; checks them as ValidateVolumeBindingArgs does."""
        parsed = convert_args(args, VolumeBindingArgs, path)
        faults = []
        if parsed.bind_timeout_seconds < 0:
            text = "invalid BindTimeoutSeconds, should not be a negative value"
            faults.append(invalid(f"{path}.bindTimeoutSeconds", parsed.bind_timeout_seconds, text))
        if parsed.shape is not None:
            gate = "remove it or turn on the feature gate StorageCapacityScoring"
            faults.append(
                invalid(f"{path}.shape", parsed.shape, f"unexpected field `shape`, {gate}")
            )
        raise_faults(faults)
        return cls(parsed.bind_timeout_seconds)

    # PreFilter

    def is_relevant(self, shape: Shape) -> bool:
        """Returns whether the pod has claims or disks."""
        return shape.has_storage

    def pre_filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Rejection | None:
        """Rejects the pod while a claim is missing, or unbound with immediate binding."""
        claims = []
        for name, is_ephemeral in claims_of(pod):
            claim = state.volumes.claim(f"{pod.metadata.namespace}/{name}")
            fault = _claim_fault(pod, name, claim, is_ephemeral)
            if fault:
                return Rejection((fault,))
            assert claim is not None
            claims.append(claim)
        for claim in claims:
            if claim.is_bound:
                continue
            storage_class = state.volumes.classes.get(claim.class_name)
            if storage_class is not None and storage_class.volume_binding_mode is None:
                text = f'VolumeBindingMode not set for StorageClass "{claim.class_name}"'
                return Rejection((text,))
            if claim.spec.volume_name or not _is_delayed_binding(storage_class):
                return Rejection(("pod has unbound immediate PersistentVolumeClaims",))
        return None

    # Filter

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Rejects rows: the code has a bit for each reason."""
        bound, unbound = _split_claims(pod, state)
        if not bound and not unbound:
            return None
        codes = np.zeros(state.row_limit, np.int64)
        open_rows = np.ones(state.row_limit, np.bool_)
        for claim in bound:
            volume = state.volumes.volume(claim.spec.volume_name)
            if volume is None:
                codes[open_rows] = NO_VOLUME
                break
            unreachable_rows = open_rows & ~rows_matching_node_affinity(volume, state)
            codes[unreachable_rows] = NODE_AFFINITY_CONFLICT
            open_rows &= ~unreachable_rows
        if unbound:
            codes |= self._unbound_codes(unbound, state)
        return codes

    def _unbound_codes(self, claims: list[PersistentVolumeClaim], state: ClusterState) -> Ints:
        """Returns int64[row_limit]: what is missing for claims that have no volume yet."""
        limit = state.row_limit
        codes = np.zeros(limit, np.int64)
        possible = np.ones(limit, np.bool_)
        to_match, to_provision = [], []
        for claim in claims:
            if claim.selected_node is None:
                to_match.append(claim)
                continue
            to_provision.append(claim)
            selected = np.zeros(limit, np.bool_)
            row = state.row_of(claim.selected_node)
            if row >= 0:
                selected[row] = True
            possible &= selected
        codes[~possible] = NO_MATCH
        codes_by_claims: dict[tuple[str, ...], Ints] = {}
        for rows, unmatched in VolumeMatcher(to_match, state).unmatched_by_rows():
            key = tuple(claim.key for claim in unmatched)
            if key not in codes_by_claims:
                codes_by_claims[key] = self._provision_codes([*to_provision, *unmatched], state)
            rows = rows[possible[rows]]
            codes[rows] = codes_by_claims[key][rows]
        return codes

    def _provision_codes(self, claims: list[PersistentVolumeClaim], state: ClusterState) -> Ints:
        """Returns int64[row_limit]: why volumes cannot be provisioned for these claims."""
        codes = np.zeros(state.row_limit, np.int64)
        for claim in claims:
            storage_class = state.volumes.classes.get(claim.class_name)
            provisioner = storage_class.provisioner if storage_class is not None else ""
            if storage_class is None or provisioner in ("", NO_PROVISIONER):
                codes[codes == 0] = NO_MATCH
                return codes
            open_rows = codes == 0
            codes[open_rows & ~is_in_allowed_topologies(storage_class, state)] = NO_MATCH
            open_rows = codes == 0
            codes[open_rows & ~has_enough_capacity(claim, storage_class, state)] = NO_SPACE
        return codes

    def pod_details(self, pod: Pod, shape: Shape, state: ClusterState) -> Iterable[str]:
        """Yields what the pod's claims lack, whatever the node."""
        return claim_shortages(pod, state)

    def details(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[str]:
        """Yields what the pod's claims lack on the node, and which volumes come closest."""
        name = state.node_names[row]
        return (line.replace(NODE_FIELD, name) for line in claim_shortages(pod, state, row))

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Suggests volumes that the node reaches, for the claims without them."""
        texts = {}
        for name, is_ephemeral in claims_of(pod):
            claim = state.volumes.claim(f"{pod.metadata.namespace}/{name}")
            fault = _claim_fault(pod, name, claim, is_ephemeral)
            if fault or claim is None:
                texts[name] = fault
            elif not claim.is_bound:
                if _is_delayed_binding(state.volumes.classes.get(claim.class_name)):
                    requests = claim.spec.resources.requests if claim.spec.resources else None
                    size = f"{(requests or {}).get('storage', 'an unknown size')}"
                    request = f"{size} of class {claim.class_name}"
                    texts[name] = f"{NODE_FIELD} has no volume for claim {claim.key} ({request})"
                else:
                    texts[name] = f"claim {claim.key} is not bound to a volume"
            else:
                volume = state.volumes.volume(claim.spec.volume_name)
                if volume is None or not rows_matching_node_affinity(volume, state)[row]:
                    texts[name] = (
                        f"volume {claim.spec.volume_name} of claim {claim.key} is not "
                        f"available on {NODE_FIELD}"
                    )
        yield from fix_claims(pod, state, texts)

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Returns None: evictions do not move volumes."""
        return None

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """Returns the reasons; unresolvable, because no eviction provides a volume."""
        return Rejection(tuple(text for bit, text in REASONS if code & bit))

    # Reserve

    def reserve(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Reservation | None:
        """Binds volumes to the pod's claims, and selects the node for claims to be provisioned."""
        _, unbound = _split_claims(pod, state)
        if not unbound:
            return None
        node_name = state.node_names[row]
        dynamic_provisions = [claim for claim in unbound if claim.selected_node is not None]
        to_match = [claim for claim in unbound if claim.selected_node is None]
        static_bindings, unmatched = VolumeMatcher(to_match, state).match_row(row)
        return _VolumeReservation(
            pod, node_name, static_bindings, [*dynamic_provisions, *unmatched], self.timeout_ns
        )

    # Hints

    def hint_pod(self, pod: Pod, shape: Shape, event: ClusterEvent) -> bool:
        """Requeues the pod for its claims, and for new or changed storage objects. Source: the
        isSchedulableAfter... functions of volume_binding.go."""
        change, old, new = event.change, event.old_object, event.object
        if isinstance(new, PersistentVolumeClaim):
            return new.metadata.namespace == pod.metadata.namespace and any(
                name == new.metadata.name for name, _ in claims_of(pod)
            )
        if isinstance(new, StorageClass) and isinstance(old, StorageClass):
            return new.allowed_topologies != old.allowed_topologies
        if change & Change.CSI_NODE_UPDATED:
            return False  # kube-scheduler checks migrated in-tree plugins, which are left out here
        if change & Change.CSI_DRIVER_UPDATED:
            return _is_schedulable_after_csi_driver_change(pod, event)
        if isinstance(new, CSIStorageCapacity) and isinstance(old, CSIStorageCapacity):
            old_bytes, new_bytes = max_volume_bytes(old), max_volume_bytes(new)
            return new_bytes is not None and (old_bytes is None or new_bytes > old_bytes)
        return True


class _VolumeReservation:
    """Volumes and claims that a pod waits for; see framework.reservation.Reservation."""

    timeout_message = "binding volumes: context deadline exceeded"
    retry_at_ns: int | None = None

    def __init__(
        self,
        pod: Pod,
        node_name: str,
        static_bindings: list[tuple[PersistentVolumeClaim, PersistentVolume]],
        dynamic_provisions: list[PersistentVolumeClaim],
        timeout_ns: int,
    ) -> None:
        self.timeout_ns = timeout_ns
        self._pod = pod
        self._node_name = node_name
        self._static_bindings = static_bindings
        self._dynamic_provisions = dynamic_provisions
        self._is_written = False
        claims = [claim.metadata for claim, _ in static_bindings] + [
            c.metadata for c in dynamic_provisions
        ]
        self.awaited_objects: tuple[tuple[type, str, str], ...] = (
            *((PersistentVolumeClaim, meta.namespace, meta.name) for meta in claims),
            *((PersistentVolume, "", volume.metadata.name) for _, volume in static_bindings),
        )

    def assume(self, state: ClusterState) -> None:
        """Assumes the volumes to be bound, and the node to be selected for the claims."""
        for claim, volume in self._static_bindings:
            state.volumes.assume_bound(volume.metadata.name, claim)
        for claim in self._dynamic_provisions:
            if claim.selected_node is None:
                state.volumes.assume_selected(claim.key, self._node_name)

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Returns claimRef for the volumes, and the selected node for the claims."""
        result: list[Write] = []
        if self._is_written:
            return result
        self._is_written = True
        for claim, volume in self._static_bindings:
            reference = volume.spec.claim_ref
            if reference is not None and reference.uid == claim.metadata.uid:
                continue
            claim_meta = claim.metadata
            claim_ref = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim_meta.namespace,
                "name": claim_meta.name,
                "uid": claim_meta.uid,
                "resourceVersion": claim_meta.resource_version,
            }
            patch: dict[str, Any] = {"spec": {"claimRef": claim_ref}}
            if reference is None:
                patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
            result.append(patch_of(volume, patch, id=next_id()))
        for claim in self._dynamic_provisions:
            if claim.selected_node is None:
                patch = {"metadata": {"annotations": {SELECTED_NODE: self._node_name}}}
                result.append(patch_of(claim, patch, id=next_id()))
        return result

    def on_answer(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """Returns whether the write was accepted: a refusal ends the reservation."""
        return code == 0

    def waiting_event(self) -> tuple[str, str]:
        """Returns no Event."""
        return "", ""

    def unreserve(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Writes nothing: bound volumes stay bound."""
        return []

    def failure_reason(self, state: ClusterState) -> str:
        """Returns why the claims can no longer be bound, or "" (binder.go checkBindings)."""
        fault = self._fault(state)
        return f"binding volumes: {fault}" if fault else ""

    def _fault(self, state: ClusterState) -> str:
        volumes = state.volumes
        row = state.row_of(self._node_name)
        node = state.nodes[row] if row >= 0 else None
        if node is None:
            return f'failed to get node "{self._node_name}": node "{self._node_name}" not found'
        labels = node.metadata.labels or {}
        for claim, bound in self._static_bindings:
            if volumes.api_claim(claim.key) is None:
                missing = f'persistentvolumeclaim "{claim.metadata.name}" not found'
                return f"failed to check binding: {missing}"
            volume = volumes.api_volume(bound.metadata.name)
            if volume is None:
                missing = f'persistentvolume "{bound.metadata.name}" not found'
                return f"failed to check binding: {missing}"
            if not _matches_node_affinity(volume, labels):
                return _node_affinity_message(volume, self._node_name)
            current_volume = volumes.volume(bound.metadata.name)
            reference = current_volume.spec.claim_ref if current_volume is not None else None
            if reference is None or not reference.uid:
                return f'ClaimRef got reset for pv "{bound.metadata.name}"'
        for claim in self._dynamic_provisions:
            current_claim = volumes.claim(claim.key)
            if current_claim is None:
                missing = f'persistentvolumeclaim "{claim.metadata.name}" not found'
                return f"failed to check provisioning pvc: {missing}"
            if current_claim.selected_node != self._node_name:
                return f'provisioning failed for PVC "{claim.metadata.name}"'
            volume = (
                volumes.api_volume(current_claim.spec.volume_name)
                if current_claim.spec.volume_name
                else None
            )
            if volume is not None and not _matches_node_affinity(volume, labels):
                return _node_affinity_message(volume, self._node_name)
        return ""

    def is_done(self, state: ClusterState) -> bool:
        """Returns whether all claims are bound."""
        claims = [claim for claim, _ in self._static_bindings] + self._dynamic_provisions
        current_claims = [state.volumes.api_claim(claim.key) for claim in claims]
        return all(claim is not None and claim.is_bound for claim in current_claims)

    def forget(self, state: ClusterState) -> None:
        """Withdraws what the API does not show yet."""
        for _, volume in self._static_bindings:
            state.volumes.forget_volume(volume.metadata.name)
        for claim in self._dynamic_provisions:
            state.volumes.forget_claim(claim.key)


def _claim_fault(
    pod: Pod, name: str, claim: PersistentVolumeClaim | None, is_ephemeral: bool
) -> str:
    """Returns why the pod cannot use the claim, or ""."""
    if claim is None and is_ephemeral:
        return (
            f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        )
    if claim is None:
        return f'persistentvolumeclaim "{name}" not found'
    if claim.status.phase == "Lost":
        volume = claim.spec.volume_name
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if is_ephemeral and not is_made_for(claim, pod):
        return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"
    return ""


def _split_claims(
    pod: Pod, state: ClusterState
) -> tuple[list[PersistentVolumeClaim], list[PersistentVolumeClaim]]:
    """Returns the pod's claims: bound ones, and those that wait for their first consumer. Raises
    PluginError if there are too many volumes."""
    check_count(len(pod.spec.volumes or ()), VOLUMES_MAX, "volumes")
    bound, unbound = [], []
    for name, _ in claims_of(pod):
        claim = state.volumes.claim(f"{pod.metadata.namespace}/{name}")
        if claim is not None and claim.is_bound:
            bound.append(claim)
        elif claim is not None and not claim.spec.volume_name:
            if _is_delayed_binding(state.volumes.classes.get(claim.class_name)):
                unbound.append(claim)
    return bound, unbound


def _is_delayed_binding(storage_class: StorageClass | None) -> bool:
    return (
        storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
    )


def _matches_node_affinity(volume: PersistentVolume, labels: Mapping[str, str]) -> bool:
    selector = required_node_selector(volume)
    return selector is None or node_selector_matches(selector, labels, "")


def _node_affinity_message(volume: PersistentVolume, node_name: str) -> str:
    name = volume.metadata.name
    reason = "no matching NodeSelectorTerms"
    return f'pv "{name}" node affinity doesn\'t match node "{node_name}": {reason}'


def _is_schedulable_after_csi_driver_change(pod: Pod, event: ClusterEvent) -> bool:
    """Returns whether a driver of the pod's inline volumes no longer publishes its capacity."""
    old, new = event.old_object, event.object
    if old is None or new is None:
        return False
    names = [v.csi.driver for v in pod.spec.volumes or () if v.csi is not None]
    old_capacity, new_capacity = (
        getattr(getattr(o, "spec", None), "storage_capacity", None) for o in (old, new)
    )
    return new.metadata.name in names and bool(old_capacity) and not new_capacity
