"""VolumeZone: keeps pods off nodes outside the zones and regions of their volumes.

Source: kube-scheduler plugins/volumezone; cloud-provider volume/helpers LabelZonesToSet.
"""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.dry_run import DryRun
from stower.framework.fixes import NODE_FIELD, Fix
from stower.framework.plugin import Plugin, Scope
from stower.framework.reasons import Rejection
from stower.model.kinds import Pod
from stower.model.kinds.storage import (
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from stower.model.selectors import EXISTS, IN, Requirement
from stower.plugins.volume_fixes import fix_claims
from stower.plugins.volume_shortages import claim_shortages
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape
from stower.state.volumes import claims_of

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
# Zone and region labels of volumes, each with the label compared on nodes that lack it.
LABELS: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    ZONE: ZONE,
    REGION: REGION,
}
Topology = tuple[str, tuple[str, ...]]


class VolumeZone(Plugin):
    """Rejects nodes with zone or region labels that differ from a volume's."""

    name = "VolumeZone"
    scope = Scope.PODS
    reasons = ("node(s) had no available volume zone",)
    events_to_register = (
        Change.NODE_ADDED | Change.NODE_LABELS | Change.CLASS_ADDED | Change.CLAIM_ADDED
        | Change.CLAIM_UPDATED | Change.VOLUME_ADDED | Change.VOLUME_UPDATED
    )  # fmt: skip

    def is_relevant(self, shape: Shape) -> bool:
        """Returns whether the pod has claims or disks."""
        return shape.has_storage

    def pre_filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Rejection | None:
        """Rejects the pod if a claim, a class or a volume is missing."""
        topologies = _topologies(pod, state)
        return Rejection((topologies,)) if isinstance(topologies, str) else None

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Rejects nodes (code 1) whose labels differ from a volume's."""
        topologies = _topologies(pod, state)
        if not topologies or isinstance(topologies, str):
            return None
        rows, limit = state.all_rows, state.row_limit

        def match(key: str, operator: str, values: tuple[str, ...] | None = None) -> Ints:
            return state.labels.match(Requirement(key, operator, values), rows, limit).astype(
                np.int64
            )

        has_labels = np.zeros(limit, np.int64)
        for key in LABELS:
            has_labels |= match(key, EXISTS)
        codes = np.zeros(limit, np.int64)
        for key, values in topologies:
            has_label = match(key, EXISTS)
            other_key = LABELS[key]
            fits = match(key, IN, values) | ((1 - has_label) & match(other_key, IN, values))
            codes |= has_labels & (1 - fits)
        return codes

    def pod_details(self, pod: Pod, shape: Shape, state: ClusterState) -> Iterable[str]:
        """Yields what the pod's claims lack, whatever the node."""
        return claim_shortages(pod, state)

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Suggests volumes in the node's zone, for claims with volumes elsewhere or none."""
        labels = state.node_at(row).metadata.labels or {}
        texts = {}
        for name, is_ephemeral in claims_of(pod):
            claim = state.volumes.claim(f"{pod.metadata.namespace}/{name}")
            if is_ephemeral or claim is None:
                continue
            claim_text = f"claim {claim.key}"
            if not claim.spec.volume_name:
                fault = _unbound_fault(claim, state)
                if fault:
                    texts[name] = f"{claim_text} has no volume: {fault}"
                continue
            volume = state.volumes.volume(claim.spec.volume_name)
            if volume is None:
                texts[name] = f"volume {claim.spec.volume_name} of {claim_text} does not exist"
                continue
            for key, values in _volume_topologies(volume):
                node_value = labels.get(key, labels.get(LABELS[key], ""))
                if node_value not in values:
                    node_text = f"{NODE_FIELD} is in {node_value}" if node_value else NODE_FIELD
                    text = f"the volume of {claim_text} is in {' or '.join(values)}, {node_text}"
                    texts[name] = text if node_value else f"{text} is in no zone"
        yield from fix_claims(pod, state, texts)

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Returns None: evictions do not move volumes."""
        return None

    def hint_pod(self, pod: Pod, shape: Shape, event: ClusterEvent) -> bool:
        """Requeues the pod for a claim of its own, a volume with new labels, and a class that waits
        for its first consumer."""
        old, new = event.old_object, event.object
        if isinstance(new, StorageClass):
            return new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        if isinstance(new, PersistentVolumeClaim):
            return new.metadata.namespace == pod.metadata.namespace and any(
                v.persistent_volume_claim is not None
                and v.persistent_volume_claim.claim_name == new.metadata.name
                for v in pod.spec.volumes or ()
            )
        if isinstance(new, PersistentVolume) and isinstance(old, PersistentVolume):
            return _volume_topologies(new) != _volume_topologies(old)
        return True


def _topologies(pod: Pod, state: ClusterState) -> list[Topology] | str:
    """Returns the zone and region labels of the pod's volumes, or why they are unknown."""
    topologies: list[Topology] = []
    for source in pod.spec.volumes or ():
        if source.persistent_volume_claim is None:
            continue
        name = source.persistent_volume_claim.claim_name
        if not name:
            return "PersistentVolumeClaim had no name"
        claim = state.volumes.claim(f"{pod.metadata.namespace}/{name}")
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if not claim.spec.volume_name:
            fault = _unbound_fault(claim, state)
            if fault:
                return fault
            continue
        volume = state.volumes.volume(claim.spec.volume_name)
        if volume is None:
            return f'persistentvolume "{claim.spec.volume_name}" not found'
        topologies += _volume_topologies(volume)
    return topologies


def _unbound_fault(claim: PersistentVolumeClaim, state: ClusterState) -> str:
    """Returns why a claim without a volume cannot be scheduled, or ""."""
    name = claim.class_name
    if not name:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    storage_class = state.volumes.classes.get(name)
    if storage_class is None:
        return f'storageclass.storage.k8s.io "{name}" not found'
    if storage_class.volume_binding_mode is None:
        return f'VolumeBindingMode not set for StorageClass "{name}"'
    if storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        return "PersistentVolume had no name"
    return ""


def _volume_topologies(volume: PersistentVolume) -> list[Topology]:
    """Returns the volume's labels. Two underscores separate several values of a label."""
    labels = volume.metadata.labels or {}
    topologies = []
    for key in LABELS:
        if key in labels:
            values = [value.strip() for value in labels[key].split("__")]
            if all(values):
                topologies.append((key, tuple(values)))
    return topologies
