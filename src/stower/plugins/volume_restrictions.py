"""VolumeRestrictions: rejects nodes while the pod's disk or ReadWriteOncePod claim is in use.

Source: kube-scheduler plugins/volumerestrictions; KEP-2485 (ReadWriteOncePod).
"""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.dry_run import DryRun
from stower.framework.fixes import NODE_FIELD, Fix, format_pods
from stower.framework.plugin import Plugin, Scope
from stower.framework.reasons import Rejection
from stower.model.kinds import Pod
from stower.model.kinds.storage import READ_WRITE_ONCE_POD, PersistentVolumeClaim
from stower.plugins.volume_fixes import fix_claims
from stower.plugins.volume_shortages import claim_shortages
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape
from stower.state.volumes import Disk, pod_disks

DISK_CONFLICT: Final = 1
READ_WRITE_ONCE_POD_CONFLICT: Final = 2


class VolumeRestrictions(Plugin):
    """Rejects nodes where a disk is in use; all nodes while a ReadWriteOncePod claim is in use."""

    name = "VolumeRestrictions"
    scope = Scope.PODS
    reasons = (
        "node(s) had no available disk",
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod",
    )
    resolvable = True
    events_to_register = Change.NODE_ADDED | Change.PLACED_POD_DELETED | Change.CLAIM_ADDED

    def is_relevant(self, shape: Shape) -> bool:
        """Returns whether the pod has claims or disks."""
        return shape.has_storage

    def pre_filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Rejection | None:
        """Rejects the pod while a claim that it names does not exist."""
        for name in _claim_names(pod):
            if state.volumes.claim(f"{pod.metadata.namespace}/{name}") is None:
                return Rejection((f'persistentvolumeclaim "{name}" not found',))
        return None

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Rejects nodes: 1 for a disk in use, 2 on all nodes for a ReadWriteOncePod claim."""
        disks = pod_disks(pod)
        claims_in_use = _claims_in_use(pod, state)
        if not disks and not claims_in_use:
            return None
        codes = np.full(
            state.row_limit, READ_WRITE_ONCE_POD_CONFLICT if claims_in_use else 0, np.int64
        )
        for disk in disks:
            codes[state.volumes.rows_with_disk_conflict(disk)] = DISK_CONFLICT
        return codes

    def pod_details(self, pod: Pod, shape: Shape, state: ClusterState) -> Iterable[str]:
        """Yields what the pod's claims lack, whatever the node."""
        return claim_shortages(pod, state)

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Suggests the missing claims, or evicting the pods that use a disk or claim."""
        namespace = pod.metadata.namespace
        missing = {
            name: f"claim {namespace}/{name} does not exist"
            for name in _claim_names(pod)
            if state.volumes.claim(f"{namespace}/{name}") is None
        }
        yield from fix_claims(pod, state, missing)
        disks = pod_disks(pod)
        users = tuple(
            entry for entry in state.pods_on(row) if _has_disk_conflict(disks, pod_disks(entry.pod))
        )
        if users:
            text = f"a disk of the pod is in use on {NODE_FIELD} by {format_pods(users)}"
            yield Fix(text, 1.0 + len(users), removed_pods=users)
        for name in _claims_in_use(pod, state):
            rows = state.volumes.rows_with_claim(f"{namespace}/{name}")
            users = tuple(
                entry
                for user_row in sorted(set(rows))
                for entry in state.pods_on(user_row)
                if entry.pod.metadata.namespace == namespace and name in _claim_names(entry.pod)
            )
            text = (
                f"claim {namespace}/{name} is ReadWriteOncePod and in use by {format_pods(users)}"
            )
            yield Fix(text, 1.0 + len(users), removed_pods=users)

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Returns dry runs of the uses of the row's disks, and of the claims on any node."""
        read_write_once_pod_claims, disks = _read_write_once_pod_claims(pod, state), pod_disks(pod)
        conflict_count = len(_claims_in_use(pod, state))
        if not disks and not conflict_count:
            return None
        return lambda row: _RestrictionsDryRun(
            state, row, disks, read_write_once_pod_claims, conflict_count
        )

    def hint_pod(self, pod: Pod, shape: Shape, event: ClusterEvent) -> bool:
        """Requeues the pod for its new claims, and for deleted pods that shared disks or claims."""
        new, old = event.object, event.old_pod
        names = set(_claim_names(pod))
        if isinstance(new, PersistentVolumeClaim):
            return new.metadata.namespace == pod.metadata.namespace and new.metadata.name in names
        if old is None:
            return True
        if old.metadata.namespace != pod.metadata.namespace:
            return False
        return _has_disk_conflict(pod_disks(pod), pod_disks(old)) or not names.isdisjoint(
            _claim_names(old)
        )


class _RestrictionsDryRun:
    """Disks of one row and users of the claims, while a dry run adds and removes pods.

    As in kube-scheduler a pod counts as a user by the name of the claim, whatever its namespace.
    """

    def __init__(
        self,
        state: ClusterState,
        row: int,
        disks: list[Disk],
        read_write_once_pod_claims: set[str],
        conflict_count: int,
    ) -> None:
        self._disks = disks
        self._read_write_once_pod_claims = read_write_once_pod_claims
        self._conflict_count = conflict_count
        self._other_disks = {
            entry.uid: pod_disks(entry.pod)
            for entry in state.pods_by_row[row].values()
            if disks and entry.shape.has_storage
        }

    def add(self, entry: PodEntry) -> None:
        self._conflict_count += self._count_claim_uses(entry)
        if self._disks:
            self._other_disks[entry.uid] = pod_disks(entry.pod)

    def remove(self, entry: PodEntry) -> None:
        self._conflict_count -= self._count_claim_uses(entry)
        self._other_disks.pop(entry.uid, None)

    def _count_claim_uses(self, entry: PodEntry) -> int:
        return sum(name in self._read_write_once_pod_claims for name in _claim_names(entry.pod))

    def code(self) -> int:
        if any(
            _has_disk_conflict(self._disks, other_disks)
            for other_disks in self._other_disks.values()
        ):
            return DISK_CONFLICT
        return READ_WRITE_ONCE_POD_CONFLICT if self._conflict_count > 0 else 0


def _claim_names(pod: Pod) -> list[str]:
    return [
        v.persistent_volume_claim.claim_name
        for v in pod.spec.volumes or ()
        if v.persistent_volume_claim is not None
    ]


def _read_write_once_pod_claims(pod: Pod, state: ClusterState) -> set[str]:
    """Returns the pod's claims that only one pod may use at a time."""
    names = set()
    for name in _claim_names(pod):
        claim = state.volumes.claim(f"{pod.metadata.namespace}/{name}")
        if claim is not None and READ_WRITE_ONCE_POD in (claim.spec.access_modes or ()):
            names.add(name)
    return names


def _claims_in_use(pod: Pod, state: ClusterState) -> list[str]:
    """Returns those of the pod's ReadWriteOncePod claims that are in use."""
    namespace = pod.metadata.namespace
    return [
        name
        for name in sorted(_read_write_once_pod_claims(pod, state))
        if any(state.present[row] for row in state.volumes.rows_with_claim(f"{namespace}/{name}"))
    ]


def _has_disk_conflict(disks: list[Disk], other_disks: list[Disk]) -> bool:
    """Returns whether some disk is in both lists, and not read-only in both."""
    return any(
        name == other and not (read_only and other_read_only)
        for name, read_only in disks
        for other, other_read_only in other_disks
    )
