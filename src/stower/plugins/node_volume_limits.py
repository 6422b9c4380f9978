"""NodeVolumeLimits: rejects nodes that would exceed a CSI driver's limit of volumes.

Source: kube-scheduler plugins/nodevolumelimits/csi.go.
"""

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec
import numpy as np

from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.dry_run import DryRun
from stower.framework.fixes import NODE_FIELD, Fix
from stower.framework.plugin import Plugin, Scope
from stower.model.kinds import Pod
from stower.model.kinds.pod import Volume
from stower.model.kinds.storage import CSINode, CSINodeSpec, PersistentVolumeClaim, VolumeResources
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape
from stower.state.volumes import VolumeHandle, claims_of, inline_volume_handle


class NodeVolumeLimits(Plugin):
    """Rejects nodes on which a CSI driver would exceed its limit of volumes."""

    name = "NodeVolumeLimits"
    scope = Scope.PODS
    reasons = ("node(s) exceed max volume count",)
    resolvable = True
    changes_of_one_row = Change.PLACED_POD_DELETED
    events_to_register = (
        Change.CSI_NODE_ADDED | Change.CSI_NODE_UPDATED | Change.PLACED_POD_DELETED
        | Change.CLAIM_ADDED | Change.ATTACHMENT_DELETED
    )  # fmt: skip

    def is_relevant(self, shape: Shape) -> bool:
        """Returns whether the pod has claims or disks."""
        return shape.has_storage

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Rejects nodes (code 1) on which a driver's limit would be exceeded."""
        if not state.volumes.csi_nodes:
            return None
        by_driver: dict[str, list[VolumeHandle]] = {}
        for name in state.volumes.attachable_volumes(pod):
            by_driver.setdefault(name[0], []).append(name)
        codes: Ints | None = None
        for driver, names in by_driver.items():
            limits = _limits(driver, state)
            if limits is None:
                continue
            new = np.full(state.row_limit, len(names), np.int64)
            for name in names:
                new[state.volumes.rows_using(name)] -= 1  # in use there already
            counts = state.volumes.counts(driver)[: state.row_limit] + new
            _add_other_attachments(counts, driver, state)
            # A node beyond its limit accepts a pod without new volumes.
            is_exceeded = (limits >= 0) & (new > 0) & (counts > limits)
            codes = is_exceeded.astype(np.int64) if codes is None else codes | is_exceeded
        return codes

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Suggests a higher limit of volumes on the node."""
        csi_node = state.volumes.csi_nodes[state.node_names[row]]
        drivers, shortages = [], []
        names = state.volumes.attachable_volumes(pod)
        for driver in csi_node.spec.drivers:
            driver_volumes = [name for name in names if name[0] == driver.name]
            counts = state.volumes.counts(driver.name)[: state.row_limit].copy()
            _add_other_attachments(counts, driver.name, state)
            new = sum(not state.volumes.is_attached(name, row) for name in driver_volumes)
            missing = int(counts[row]) + new - _count(driver.allocatable)
            if new and driver.allocatable is not None and missing > 0:
                shortages.append(f"{missing} of {driver.name}")
                resources = VolumeResources(_count(driver.allocatable) + missing)
                driver = msgspec.structs.replace(driver, allocatable=resources)
            drivers.append(driver)
        spec = CSINodeSpec(tuple(drivers))
        larger_csi_node = msgspec.structs.replace(csi_node, spec=spec)
        text = f"{NODE_FIELD} lacks volume attachments: {', '.join(shortages)}"
        yield Fix(text, 1.0 + len(shortages), objects=(larger_csi_node,))

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Returns dry runs of the volumes in use on a row."""
        names = state.volumes.attachable_volumes(pod) if state.volumes.csi_nodes else ()
        limits = {
            driver: driver_limits
            for driver in dict.fromkeys(name[0] for name in names)
            if (driver_limits := _limits(driver, state)) is not None
        }
        if not names:
            return None
        other_attachments: dict[int, set[VolumeHandle]] = {}
        for driver in limits:
            for node_name, name in state.volumes.volume_attachments(driver):
                other_attachments.setdefault(state.row_of(node_name), set()).add(name)
        return lambda row: _LimitsDryRun(
            state, row, names, limits, other_attachments.get(row, set())
        )

    def hint_pod(self, pod: Pod, shape: Shape, event: ClusterEvent) -> bool:
        """Requeues the pod for a raised limit, a deleted pod with volumes, a detached volume, and a
        claim of the pod."""
        old, new = event.old_object, event.object
        if isinstance(new, CSINode) and isinstance(old, CSINode):
            old_limits = {d.name: _count(d.allocatable) for d in old.spec.drivers}
            return any(_count(d.allocatable) > old_limits.get(d.name, 0) for d in new.spec.drivers)
        if isinstance(new, PersistentVolumeClaim):
            return new.metadata.namespace == pod.metadata.namespace and any(
                name == new.metadata.name for name, _ in claims_of(pod)
            )
        removed_pod = event.old_pod
        if event.change & Change.ATTACHMENT_DELETED:
            removed_pod = pod  # any volume of the pod may be one of the driver's
        return removed_pod is None or any(map(_may_count, removed_pod.spec.volumes or ()))


class _LimitsDryRun:
    """Volumes in use on one row, while a dry run adds and removes pods. Volumes attached without a
    pod stay attached."""

    def __init__(
        self,
        state: ClusterState,
        row: int,
        names: tuple[VolumeHandle, ...],
        limits: dict[str, Ints],
        other_attachments: set[VolumeHandle],
    ) -> None:
        self._state = state
        self._names = names
        self._limits = {driver: int(driver_limits[row]) for driver, driver_limits in limits.items()}
        self._other_attachments = other_attachments
        self._users: Counter[VolumeHandle] = Counter()
        for entry in state.pods_by_row[row].values():
            self.add(entry)

    def add(self, entry: PodEntry) -> None:
        if entry.shape.has_storage:
            self._users.update(self._state.volumes.attachable_volumes(entry.pod))

    def remove(self, entry: PodEntry) -> None:
        if entry.shape.has_storage:
            self._users.subtract(self._state.volumes.attachable_volumes(entry.pod))

    def code(self) -> int:
        users = self._users
        for driver, limit in self._limits.items():
            new = sum(name[0] == driver and not users[name] for name in self._names)
            if limit < 0 or not new:
                continue
            used = sum(name[0] == driver and count > 0 for name, count in users.items())
            if (
                used + new + sum(n[0] == driver and not users[n] for n in self._other_attachments)
                > limit
            ):
                return 1
        return 0


def _limits(driver: str, state: ClusterState) -> Ints | None:
    """Returns int64[row_limit]: the driver's limits on nodes, -1 for none; None: no limits."""
    limits: Ints | None = None
    for csi_node in state.volumes.csi_nodes.values():
        row = state.row_of(csi_node.metadata.name)
        for csi_driver in csi_node.spec.drivers if row >= 0 else ():
            if csi_driver.name == driver and csi_driver.allocatable is not None:
                if csi_driver.allocatable.count is not None:
                    if limits is None:
                        limits = np.full(state.row_limit, -1, np.int64)
                    limits[row] = csi_driver.allocatable.count
    return limits


def _add_other_attachments(counts: Ints, driver: str, state: ClusterState) -> None:
    """Adds to `counts` the attached volumes that no pod of the node uses."""
    seen = set()
    for node_name, name in state.volumes.volume_attachments(driver):
        row = state.row_of(node_name)
        if row >= 0 and (row, name) not in seen and not state.volumes.is_attached(name, row):
            seen.add((row, name))
            counts[row] += 1


def _may_count(volume: Volume) -> bool:
    """Returns whether the volume may count towards a limit."""
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or inline_volume_handle(volume) is not None
    )


def _count(allocatable: VolumeResources | None) -> int:
    return 0 if allocatable is None else allocatable.count or 0
