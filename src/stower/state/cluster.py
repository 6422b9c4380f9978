"""ClusterState: nodes as rows, pods as entries, and the few primitives that change them.

Pods come and go only through the primitives at the end of the class; each logs its inverse in the
journal while a trial is open, and records in `usage_log` which row it changed.

A pod's life: pending (row -1) -> assumed (placed here, its Bind not answered) -> placed (the API
shows it) -> removed. `forget` takes an assumption back.

Must not know plugins, queues or decisions.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Protocol

from stower.model.derived import forget
from stower.model.errors import InvariantError
from stower.model.kinds import Pod
from stower.model.resources import Claimed
from stower.state.arrays import add_usage
from stower.state.budgets import Budgets
from stower.state.carried_terms import CarriedTerms
from stower.state.devices import Devices
from stower.state.groups import Groups
from stower.state.negotiations import Negotiations
from stower.state.node_rows import NodeRows
from stower.state.pod_entry import PodEntry
from stower.state.pod_selectors import PodSelectors
from stower.state.pod_table import PodTable
from stower.state.ports import HostPorts
from stower.state.shapes import Shape, ShapeTable
from stower.state.tallies import Condition, Tallies, Tally, is_same_class
from stower.state.volumes import Volumes

# New pods kept for plugins that follow arrivals; they read them with every pod that is placed. By
# uid: what is deleted is not kept.
ADDED_PODS_MAX: Final = 4_096


class PlacementListener(Protocol):
    """Counts something of placed pods. Is also called when a trial undoes a change, with the
    inverse of the change."""

    def add_pod(self, entry: PodEntry, row: int) -> None:
        """Called when a pod was placed on a row."""

    def remove_pod(self, entry: PodEntry, row: int) -> None:
        """Called when a pod was removed from a row."""

    def update_pod(self, entry: PodEntry) -> None:
        """Called when the object of a pod was replaced."""

    def grow(self, capacity: int) -> None:
        """Called when the capacity of all arrays over rows has grown."""


class ClusterState(NodeRows):
    """Everything that is known: nodes, pods, and all other objects that scheduling reads."""

    def __init__(self, is_counting_claims: bool = False) -> None:
        """`is_counting_claims`: whether what claims take of their node itself counts (KEP-5517)."""
        super().__init__()
        self.is_counting_claims = is_counting_claims
        self.now_ns = 0  # the time of the current step
        self.ports = HostPorts()
        self.tallies = Tallies(self.labels, self.capacity)
        self.carried_terms = CarriedTerms(self.labels, self.capacity)
        self.pod_selectors = PodSelectors()
        self.budgets = Budgets(self.tally, self.tallies)
        self.volumes = Volumes(self.journal, self.capacity)
        self.devices = Devices(self.journal)
        self.groups = Groups(self.journal)
        self.negotiations = Negotiations(self.journal)
        self.placement_listeners: list[PlacementListener] = []
        self.companions: dict[str, Any] = {}  # by the name of the plugin that has it
        self.shapes = ShapeTable(
            self.column, (self.non_zero_cpu, self.non_zero_memory), self._is_offered
        )
        self._offered = (0, 0)  # generations of columns and of device classes that shapes are of
        self.pods: dict[str, PodEntry] = {}
        # Serials of shapes that no pod has: what is kept by them is to be dropped.
        self.gone_shapes: set[int] = set()
        self.pod_table = PodTable()
        self.uid_by_key: dict[str, str] = {}
        self.other_scheduler_pods: dict[str, Pod] = {}  # by uid: pods without a node
        # The last new pods, oldest first, and their number since the start. They may be deleted by
        # now. Not undone with a trial: pods that a trial added no longer exist.
        self._gone: list[Pod] = []  # pods that were replaced or removed since the step began
        self.added_pods: deque[str] = deque(maxlen=ADDED_PODS_MAX)
        self.added_pod_count = 0
        # By node name, the pods that are nominated to it, by uid.
        self.nominated_pods: dict[str, dict[str, PodEntry]] = {}
        # Entries from before a reset, by uid: pods that are added again keep theirs.
        self.former_entries: dict[str, PodEntry] = {}

    def reset(self) -> None:
        """Forgets everything but the time and what it was created with; it is filled again from
        the API objects. The parts of the state are new objects, its pods keep their entries."""
        entries, now_ns = {**self.former_entries, **self.pods}, self.now_ns
        for pod in (*self._gone, *(entry.pod for entry in entries.values())):
            forget(pod)
        has_composite_groups = self.groups.has_composite_groups
        ClusterState.__init__(self, self.is_counting_claims)
        self.former_entries = entries
        self.groups.has_composite_groups = has_composite_groups
        self.begin_step(now_ns)

    # Reading

    def pods_on(self, row: int) -> list[PodEntry]:
        """Returns the pods of a row, by uid."""
        return [entry for _, entry in sorted(self.pods_by_row[row].items())]

    def placed_pods(self) -> Iterator[PodEntry]:
        """Yields all pods that hold room on a node."""
        return (entry for entry in self.pods.values() if entry.row >= 0)

    def tally(self, *conditions: Condition, live: bool = False) -> Tally:
        """Returns the maintained count of pods per row that meet all conditions: (namespaces or
        None for all, selector). `live` leaves out pods in deletion."""
        return self.tallies.register(conditions, live, self.placed_pods())

    def begin_step(self, now_ns: int) -> None:
        """Starts a step: nothing holds a tally, a term or a pod that is gone, so that they may be
        dropped."""
        self.now_ns = self.devices.now_ns = now_ns
        if self._gone:
            for pod in self._gone:
                forget(pod)
            self._gone.clear()
        shapes = self.shapes
        if shapes.large_bytes > shapes.large_bytes_max:
            used = {e.shape for e in self.pods.values() if e.shape.large_bytes}
            self.gone_shapes |= shapes.drop_large(used)
        if self.tallies.by_conditions:
            self.tallies.begin_step()
        if self.carried_terms.terms:
            self.carried_terms.begin_step()

    # Resources that only pods know

    def _is_offered(self, name: str) -> bool:
        return name in self.columns or name in self.devices.class_by_resource

    def renew_partial_shapes(self) -> None:
        """Gives pods whose shape leaves resources out a new one, if resources are offered since.
        To be called when nodes or device classes have changed."""
        offered = (self.column_generation, self.devices.class_generation)
        if offered == self._offered:
            return
        self._offered = offered
        if not self.shapes.forget_partial():
            return
        for entry in [*self.pods.values()]:
            if entry.shape.is_partial:
                shape = self.shapes.intern(entry.pod, claimed=entry.claimed_resources)
                here = self.node_names[entry.row] if entry.row >= 0 else ""
                self._move(entry, entry.pod, shape, here)

    # Pods

    def add_pending(self, pod: Pod) -> PodEntry:
        """Adds a pod without a node. Raises InvalidObject where a quantity is unreadable."""
        return self._add_entry(pod, self.shapes.intern(pod))

    def add_placed(self, pod: Pod) -> PodEntry:
        """Adds a pod that the API shows on `spec.nodeName`."""
        claimed = self._claimed_resources(pod)
        entry = self._add_entry(pod, self.shapes.intern(pod, claimed=claimed))
        entry.claimed_resources = claimed
        self._place(entry, self._row_for(pod.spec.node_name))
        return entry

    def assume(self, entry: PodEntry, row: int) -> None:
        """Counts a pending pod as placed before the API shows it there."""
        self._place(entry, row)
        if self.journal.is_recording:
            self._set_assumed(entry, True)
        else:
            entry.is_assumed = True

    def assume_claimed_resources(self, entry: PodEntry, claimed: Claimed) -> None:
        """Counts what the claims of an assumed pod take of its node before the API shows it."""
        shape = self.shapes.intern(entry.pod, claimed=claimed)
        self._set_claimed(entry, claimed)
        self._move(entry, entry.pod, shape, self.node_names[entry.row])

    def confirm(self, entry: PodEntry, pod: Pod) -> None:
        """Places the pod where the API shows it: where it was assumed, or elsewhere."""
        claimed = self._claimed_resources(pod)
        shape = self.shapes.intern(pod, claimed=claimed)
        self._set_assumed(entry, False)
        self._set_claimed(entry, claimed)
        self._move(entry, pod, shape, pod.spec.node_name)

    def forget(self, entry: PodEntry) -> None:
        """Withdraws an assumption: the pod is pending again."""
        if not entry.is_assumed:
            raise InvariantError(f"cannot forget pod {entry.pod.key}: the pod is not assumed")
        self._set_assumed(entry, False)
        self._unplace(entry)
        if entry.claimed_resources:
            self._set_claimed(entry, ())
            self._set_view(entry, entry.pod, self.shapes.intern(entry.pod))

    def displace(self, entry: PodEntry) -> None:
        """Takes a pod off its row, for as long as a trial lasts. The entry has the row in
        `displaced_row` until the pod is placed again."""
        if not self.journal.is_recording:
            raise InvariantError(f"cannot displace pod {entry.pod.key}: no trial is open")
        row = entry.row
        self._unplace(entry)
        entry.displaced_row = row

    def update_pending(self, entry: PodEntry, pod: Pod) -> None:
        """Replaces the object of a pending or assumed pod. Resources of a node that claims take by
        the pod's status are ignored: they are left from another attempt, or were decided in this
        attempt."""
        shape = self.shapes.intern(pod, claimed=entry.claimed_resources)
        self._move(entry, pod, shape, self.node_names[entry.row] if entry.row >= 0 else "")

    def remove_pod(self, entry: PodEntry) -> None:
        """Removes a pod that is deleted, or has ended and holds no room any more."""
        if entry.row >= 0:
            self._unplace(entry)
        self.nominate(entry, "")
        self._forget_entry(entry)

    def nominate(self, entry: PodEntry, node_name: str) -> None:
        """Nominates the pod to a node; an empty name withdraws the nomination."""
        old = entry.nominated_node_name
        if old == node_name:
            return
        if old:
            del self.nominated_pods[old][entry.uid]
            if not self.nominated_pods[old]:
                del self.nominated_pods[old]
            self._log_usage(old)
        if node_name:
            self.nominated_pods.setdefault(node_name, {})[entry.uid] = entry
            self._log_usage(node_name)
        entry.nominated_node_name = node_name
        if self.journal.is_recording:
            self.journal.log(self.nominate, entry, old)

    # Primitives

    def _log_usage(self, node_name: str) -> None:
        row = self.row_by_name.get(node_name, -1)
        if row >= 0:
            self.usage_log.add(row)
            self._touch(row)

    def _add_entry(self, pod: Pod, shape: Shape) -> PodEntry:
        former = self.former_entries.pop(pod.metadata.uid, None) if self.former_entries else None
        entry = former.renew(pod, shape) if former is not None else PodEntry(pod, shape)
        if entry.uid in self.pods:
            raise InvariantError(f"cannot add pod {pod.key}: uid {entry.uid} exists already")
        self._insert_entry(entry)
        self.added_pods.append(entry.uid)
        self.added_pod_count += 1
        return entry

    def _insert_entry(self, entry: PodEntry) -> None:
        self.pods[entry.uid] = entry
        self.uid_by_key[entry.key] = entry.uid
        if entry.group_name:
            self.groups.add_pod(entry)
        if self.journal.is_recording:
            self.journal.log(self._forget_entry, entry)

    def _forget_entry(self, entry: PodEntry) -> None:
        del self.pods[entry.uid]
        if self.uid_by_key.get(entry.key) == entry.uid:
            del self.uid_by_key[entry.key]
        if entry.group_name:
            self.groups.remove_pod(entry)
        if self.journal.is_recording:
            self.journal.log(self._insert_entry, entry)
        elif not self.journal.is_undoing:
            self._gone.append(entry.pod)

    def _move(self, entry: PodEntry, pod: Pod, shape: Shape, node_name: str) -> None:
        """Replaces the pod's object and places it on this node; an empty name is no node."""
        here = self.node_names[entry.row] if entry.row >= 0 else ""
        is_same = shape is entry.shape
        if is_same and here and (shape.has_storage or shape.has_claims):
            # Its place is counted for its volumes and claims too. Volumes are immutable in the API,
            # the names of claims that were made for a pod come with its status.
            old = entry.pod
            is_same = (
                old.spec.volumes == pod.spec.volumes
                and old.spec.resource_claims == pod.spec.resource_claims
                and old.status.resource_claim_statuses == pod.status.resource_claim_statuses
            )
        if here == node_name and (is_same or not here):
            self._set_view(entry, pod, shape)
            return
        if here:
            self._unplace(entry)
        self._set_view(entry, pod, shape)
        if node_name:
            # Only now: the row may have been released when the pod left it.
            self._place(entry, self._row_for(node_name))

    def _set_view(self, entry: PodEntry, pod: Pod, shape: Shape) -> None:
        """Replaces the pod's object and shape where it is."""
        if self.journal.is_recording:
            self.journal.log(self._set_view, entry, entry.pod, entry.shape)
        elif pod is not entry.pod and not self.journal.is_undoing:
            self._gone.append(entry.pod)
        group_name = pod.group_name
        changes_group = entry.group_name != group_name  # its label was changed
        if changes_group and entry.group_name:
            self.groups.remove_pod(entry)
        if entry.row >= 0:
            old = entry.pod
            if self.tallies.by_conditions and not is_same_class(old, pod):
                self.tallies.remove_pod(entry, old, entry.row)
                self.tallies.add_pod(entry, pod, entry.row)
            self.pod_table.update_pod(entry, pod)
            if old.spec.affinity != pod.spec.affinity:
                self.carried_terms.count_pod(old, entry.row, -1)
                self.carried_terms.count_pod(pod, entry.row, 1)
        entry.pod = pod
        entry.shape = shape
        entry.group_name = group_name
        for listener in self.placement_listeners:
            listener.update_pod(entry)
        if changes_group:
            self.groups.disruption_units_generation += 1
            if group_name:
                self.groups.add_pod(entry)

    def _place(self, entry: PodEntry, row: int) -> None:
        shape = entry.shape
        add_usage(shape.usage, row, 1)
        entry.row = row
        entry.displaced_row = -1
        self.pods_by_row[row][entry.uid] = entry
        self.pod_table.add_pod(entry, row)
        if shape.ports:
            self.ports.add(row, shape.ports, 1)
        if shape.has_storage:
            self.volumes.add_pod(entry, row)
        if shape.has_claims or shape.extended_requests:
            self.devices.add_pod(entry)
        if self.tallies.by_conditions:
            self.tallies.add_pod(entry, entry.pod, row)
        if entry.pod.spec.affinity is not None:
            self.carried_terms.count_pod(entry.pod, row, 1)
        for listener in self.placement_listeners:
            listener.add_pod(entry, row)
        self.usage_log.add(row)
        if self.journal.is_recording:
            self.journal.log(self._unplace, entry)
        elif not self.journal.is_undoing:
            self._touched[row] = None  # as `_touch`, without a call

    def _unplace(self, entry: PodEntry) -> None:
        row, shape = entry.row, entry.shape
        add_usage(shape.usage, row, -1)
        entry.row = -1
        del self.pods_by_row[row][entry.uid]
        self.pod_table.remove_pod(entry)
        if shape.ports:
            self.ports.add(row, shape.ports, -1)
        if shape.has_storage:
            self.volumes.remove_pod(entry, row)
        if shape.has_claims or shape.extended_requests:
            self.devices.remove_pod(entry)
        if self.tallies.by_conditions:
            self.tallies.remove_pod(entry, entry.pod, row)
        if entry.pod.spec.affinity is not None:
            self.carried_terms.count_pod(entry.pod, row, -1)
        for listener in self.placement_listeners:
            listener.remove_pod(entry, row)
        self.usage_log.add(row)
        if self.journal.is_recording:
            self.journal.log(self._place, entry, row)
        elif not self.journal.is_undoing:
            self._touched[row] = None
        self._release_row_when_final(row)

    def _set_assumed(self, entry: PodEntry, assumed: bool) -> None:
        if self.journal.is_recording and assumed != entry.is_assumed:
            self.journal.log(self._set_assumed, entry, entry.is_assumed)
        entry.is_assumed = assumed

    def _set_claimed(self, entry: PodEntry, claimed: Claimed) -> None:
        if self.journal.is_recording and claimed != entry.claimed_resources:
            self.journal.log(self._set_claimed, entry, entry.claimed_resources)
        entry.claimed_resources = claimed

    def _claimed_resources(self, pod: Pod) -> Claimed:
        """Returns the resources of the node that the claims of a placed pod take, from the pod's
        status."""
        if not self.is_counting_claims:
            return ()
        return pod.status.node_allocatable_resource_claim_statuses or ()

    def _grow(self) -> None:
        super()._grow()
        self.volumes.grow(self.capacity)
        self.tallies.grow(self.capacity)
        self.carried_terms.grow(self.capacity)
        for listener in self.placement_listeners:
            listener.grow(self.capacity)
