"""NodeVolumeLimits: no more volumes of a CSI driver on a node than the driver says.

Source: kube-scheduler plugins/nodevolumelimits/csi.go.
"""

from collections.abc import Callable

import numpy as np

from stower.framework.changes import Change, Happened
from stower.framework.dry_run import DryRun
from stower.framework.plugin import Plugin, Scope
from stower.model.kinds import Pod
from stower.model.kinds.pod import Volume
from stower.model.kinds.storage import CSINode, PersistentVolumeClaim, VolumeResources
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape
from stower.state.volumes import Attached, claims_of, inline


class NodeVolumeLimits(Plugin):
    """Refuse nodes on which a driver would have too many."""

    name = "NodeVolumeLimits"
    scope = Scope.PODS
    reasons = ("node(s) exceed max volume count",)
    resolvable = True
    wakes_on = (
        Change.CSI_NODE_ADDED | Change.CSI_NODE_UPDATED | Change.PLACED_POD_DELETED
        | Change.CLAIM_ADDED | Change.ATTACHMENT_DELETED
    )  # fmt: skip

    def concerns(self, shape: Shape) -> bool:
        """Pods with claims or disks."""
        return shape.storage

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """1 where there would be too many."""
        if not state.volumes.csi_nodes:
            return None
        by_driver: dict[str, list[Attached]] = {}
        for name in state.volumes.attached(pod):
            by_driver.setdefault(name[0], []).append(name)
        codes: Ints | None = None
        for driver, names in by_driver.items():
            limits = _limits(driver, state)
            if limits is None:
                continue
            new = np.full(state.row_limit, len(names), np.int64)
            for name in names:
                new[state.volumes.rows_using(name)] -= 1  # there already
            counts = state.volumes.counts(driver)[: state.row_limit] + new
            _add_others(counts, driver, state)
            # A node that is overfull already may take a pod that brings nothing new.
            hit = (limits >= 0) & (new > 0) & (counts > limits)
            codes = hit.astype(np.int64) if codes is None else codes | hit
        return codes

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """The adapter, where the pod has volumes at all."""
        if not state.volumes.csi_nodes or not state.volumes.attached(pod):
            return None
        return super().dry_runs(pod, shape, state)

    def hint_pod(self, pod: Pod, shape: Shape, happened: Happened) -> bool:
        """A limit that was raised, a pod with volumes that is gone, a claim of the pod."""
        old, new = happened.old_object, happened.object
        if isinstance(new, CSINode) and isinstance(old, CSINode):
            before = {d.name: _count(d.allocatable) for d in old.spec.drivers}
            return any(_count(d.allocatable) > before.get(d.name, 0) for d in new.spec.drivers)
        if isinstance(new, PersistentVolumeClaim):
            return new.metadata.namespace == pod.metadata.namespace and any(
                name == new.metadata.name for name, _ in claims_of(pod)
            )
        gone = happened.old_pod
        if happened.change & Change.ATTACHMENT_DELETED:
            gone = pod  # any of its volumes may be one of the driver's
        return gone is None or any(map(_may_count, gone.spec.volumes or ()))


def _limits(driver: str, state: ClusterState) -> Ints | None:
    """int64[row_limit]: the most that the driver takes on each node, -1 for any number."""
    limits: Ints | None = None
    for csi_node in state.volumes.csi_nodes.values():
        row = state.row_of(csi_node.metadata.name)
        for own in csi_node.spec.drivers if row >= 0 else ():
            if own.name == driver and own.allocatable is not None:
                if own.allocatable.count is not None:
                    if limits is None:
                        limits = np.full(state.row_limit, -1, np.int64)
                    limits[row] = own.allocatable.count
    return limits


def _add_others(counts: Ints, driver: str, state: ClusterState) -> None:
    """Count what is attached though no pod of the node uses it."""
    seen = set()
    for node_name, name in state.volumes.others_attached(driver):
        row = state.row_of(node_name)
        if row >= 0 and (row, name) not in seen and not state.volumes.is_attached(name, row):
            seen.add((row, name))
            counts[row] += 1


def _may_count(volume: Volume) -> bool:
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or inline(volume) is not None
    )


def _count(allocatable: VolumeResources | None) -> int:
    return 0 if allocatable is None else allocatable.count or 0
