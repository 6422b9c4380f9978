"""ClusterState: nodes as rows, pods as entries, and the few primitives that change them.

Nodes and pods come and go only through the primitives at the end of the class; each logs its
inverse in the journal while a trial is open, and says in the dirty logs which row it changed:
`use_log` for what is placed on a row or promised there, `node_log` for the node object itself.

A pod's life: pending (row -1) -> assumed (placed by us, its write not yet answered) -> placed (the
API says so) -> gone. `forget` takes an assumption back.

Must not know of plugins, queues or decisions.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

import numpy as np

from stower.model.errors import InvariantError
from stower.model.kinds import Node, Pod
from stower.model.resources import PODS, Claimed, node_room
from stower.model.taints import Taint
from stower.state.arrays import CAPACITY_FIRST, Bools, DirtyLog, ResourceColumn, grow_array
from stower.state.budgets import Budgets
from stower.state.carried_terms import CarriedTerms
from stower.state.devices import Devices
from stower.state.groups import Groups
from stower.state.images import Images
from stower.state.journal import Journal, Trial
from stower.state.labels import CodeColumn, LabelColumns
from stower.state.negotiations import Negotiations
from stower.state.pod_selectors import PodSelectors
from stower.state.pod_table import PodTable
from stower.state.ports import HostPorts
from stower.state.shapes import Shape, ShapeTable
from stower.state.tallies import Condition, Tallies, Tally, is_same_class
from stower.state.ties import name_hash
from stower.state.volumes import Volumes

# Real clusters have some dozens of resources; many more are names that somebody makes up.
COLUMNS_SWEPT_FIRST: Final = 256
# Who follows the arrivals reads them with every pod that is placed; many may come with one event.
ADDED_PODS_MAX: Final = 4_096


class PodEntry:
    """One pod as the state knows it. `row` is -1 while it has no node."""

    __slots__ = (
        "claimed_resources",
        "eviction_backoff_until_ns",
        "is_assumed",
        "is_deletion_pending",
        "nominated_node_name",
        "pending_write_count",
        "pod",
        "rank",
        "row",
        "shape",
        "slot",
        "uid",
        "written_version",
    )

    def __init__(self, pod: Pod, shape: Shape) -> None:
        self.uid = pod.metadata.uid
        self.pod = pod
        self.shape = shape
        self.row = -1
        self.rank: tuple[int, int, int, str] | None = None  # importance, once somebody asked
        self.slot = -1  # in the table of placed pods
        self.is_assumed = False
        self.eviction_backoff_until_ns = (
            0  # until then it is asked last to leave: its deletion was refused
        )
        self.is_deletion_pending = (
            False  # its deletion by us was accepted; the API does not show it yet
        )
        self.nominated_node_name = ""  # the node on which room was promised
        self.written_version = ""  # that a write of ours has made, be it seen yet or not
        self.pending_write_count = 0  # of ours that are not answered
        self.claimed_resources: Claimed = ()  # what its claims take of its node, where counted


class PlacementListener(Protocol):
    """Who counts something of pods that hold room. What is undone with a trial is told as well: the
    inverse of each change."""

    def add_pod(self, entry: PodEntry, row: int) -> None:
        """A pod holds room on a row."""

    def remove_pod(self, entry: PodEntry, row: int) -> None:
        """It does so no more."""

    def update_pod(self, entry: PodEntry) -> None:
        """Its object is another one."""

    def grow(self, capacity: int) -> None:
        """There are more rows."""


class ClusterState:
    """All that is known. Arrays are int64[capacity] or bool[capacity]; rows in use lie below
    `row_limit`, and `present` says which of them have a node (a row without one still carries pods
    that are bound to a node that is gone, or not yet seen)."""

    def __init__(self, is_counting_claims: bool = False) -> None:
        """`counts_claims`: whether what claims take of their node itself is in use (KEP-5517)."""
        self.is_counting_claims = is_counting_claims
        self.journal = Journal()
        self.now_ns = 0  # the time of what is being dealt with, as events bring it
        self.usage_log = DirtyLog()
        self.node_log = DirtyLog()
        self.capacity = CAPACITY_FIRST
        self.layout_generation = (
            0  # grows with the capacity: whoever holds arrays over rows makes new ones
        )
        self.row_limit = 0
        self.node_count = 0
        self.row_by_name: dict[str, int] = {}
        self.node_names: list[str] = [""] * self.capacity
        self.nodes: list[Node | None] = [None] * self.capacity
        self.pods_by_row: list[dict[str, PodEntry]] = [{} for _ in range(self.capacity)]
        self._free_rows = list(range(self.capacity - 1, -1, -1))
        self.present: Bools = np.zeros(self.capacity, np.bool_)
        self.unschedulable: Bools = np.zeros(self.capacity, np.bool_)
        self.name_hashes = np.zeros(self.capacity, np.uint64)
        # Code per distinct tuple of taints: each is judged once, then gathered.
        self.taints: CodeColumn[tuple[Taint, ...]] = CodeColumn(self.capacity)
        # What nodes declare that they can do.
        self.declared_features: CodeColumn[tuple[str, ...]] = CodeColumn(self.capacity)
        self.columns: dict[str, ResourceColumn] = {}
        self._sweep_at = COLUMNS_SWEPT_FIRST
        self.column(PODS)
        # What pods count as when nodes are scored: those that ask for nothing count as something.
        self.non_zero_cpu = ResourceColumn("non-zero cpu", self.capacity)
        self.non_zero_memory = ResourceColumn("non-zero memory", self.capacity)
        self.labels = LabelColumns(self.capacity)
        self.images = Images(self.capacity)
        self._image_cursors = (0, 0)  # up to where of the logs rows have looked at the images
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
        # What plugins have brought that goes on beside scheduling, by the plugin's name.
        self.companions: dict[str, Any] = {}
        self.shapes = ShapeTable(self.column, (self.non_zero_cpu, self.non_zero_memory))
        self.pods: dict[str, PodEntry] = {}
        self.pod_table = PodTable()
        self.uid_by_key: dict[str, str] = {}
        self.other_scheduler_pods: dict[
            str, None
        ] = {}  # pods without a node that others schedule, by uid
        # The last pods that were new, oldest first, and how many there were in all; they may be
        # gone by now. Not undone with a trial: those that came in one are gone.
        self.added_pods: deque[PodEntry] = deque(maxlen=ADDED_PODS_MAX)
        self.added_pod_count = 0
        # Node name -> pods that were promised room there, by uid.
        self.nominated_pods: dict[str, dict[str, PodEntry]] = {}

    # Reading

    @property
    def all_rows(self) -> slice:
        """Every row in use, as an index that gives views."""
        return slice(0, self.row_limit)

    def column(self, name: str) -> ResourceColumn:
        """The resource's column, made where the resource is new."""
        column = self.columns.get(name)
        if column is None:
            if len(self.columns) >= self._sweep_at:
                self._sweep_columns()
            column = self.columns[name] = ResourceColumn(name, self.capacity)
        return column

    def row_of(self, name: str) -> int:
        """The row of a present node, or -1."""
        row = self.row_by_name.get(name, -1)
        return row if row >= 0 and self.present[row] else -1

    def rows_of(self, names: Iterable[str]) -> list[int]:
        """The rows of those nodes that are present, in the order of their names."""
        return [row for row in map(self.row_of, sorted(names)) if row >= 0]

    def present_rows(self) -> list[int]:
        """Rows that have a node, in order."""
        return [int(row) for row in np.flatnonzero(self.present)]

    def node_at(self, row: int) -> Node:
        """The node of a row that has one."""
        node = self.nodes[row]
        assert node is not None
        return node

    def pods_on(self, row: int) -> list[PodEntry]:
        """The pods of a row, by uid."""
        return [entry for _, entry in sorted(self.pods_by_row[row].items())]

    def placed_pods(self) -> Iterator[PodEntry]:
        """All pods that hold room."""
        return (entry for entry in self.pods.values() if entry.row >= 0)

    def tally(self, *conditions: Condition, live: bool = False) -> Tally:
        """The kept count of pods per row that meet all conditions: (namespaces or None for all,
        selector). `live`: without those that are being deleted."""
        return self.tallies.register(conditions, live, self.placed_pods())

    def begin_step(self, now_ns: int) -> None:
        """An event is taken in: nobody holds on to anything that is counted here."""
        self.now_ns = now_ns
        for counts in (self.tallies, self.carried_terms):
            counts.begin_step()

    def refresh_images(self) -> None:
        """A cycle begins: rows on which something has changed see what is new elsewhere."""
        use, node = self.usage_log.position, self.node_log.position
        was_use, was_node = self._image_cursors
        if use == was_use and node == was_node:
            return
        if not self.images.generation:
            self._image_cursors = (use, node)
            return
        if self.usage_log.is_overrun(was_use) or self.node_log.is_overrun(was_node):
            changed = self.present_rows()
        else:
            changed = self.usage_log.row_list(was_use) + self.node_log.row_list(was_node)
        for row in changed:
            if self.images.refresh_row(row):
                self.node_log.add(row)
        self._image_cursors = (use, self.node_log.position)

    def trial(self) -> Trial:
        """`with state.trial():` undoes all that is done inside."""
        return self.journal.trial()

    # Nodes

    def set_node(self, node: Node) -> bool:
        """Add or replace a node. Returns whether anything that scheduling reads has changed.

        Raises InvalidObject, with nothing changed, where a quantity of the node is none.
        """
        allocatable = node_room(node.status.allocatable)
        row = self._row_for(node.metadata.name)
        old = self.nodes[row]
        changed = self._set_node(row, node, allocatable)
        if self.journal.is_recording:
            self.journal.log(self._undo_set_node, row, old)
        return changed

    def remove_node(self, name: str) -> bool:
        """Remove a node; its pods stay counted until they are removed. False if unknown."""
        row = self.row_of(name)
        if row < 0:
            return False
        old = self.nodes[row]
        self._clear_node(row)
        if self.journal.is_recording:
            self.journal.log(self._undo_set_node, row, old)
        self._release_row_when_final(row)
        return True

    # Pods

    def add_pending(self, pod: Pod) -> PodEntry:
        """A pod without a node. Raises InvalidObject where a quantity is none."""
        return self._add_entry(pod, self.shapes.intern(pod))

    def add_placed(self, pod: Pod) -> PodEntry:
        """A pod that the API says is on `spec.nodeName`."""
        claimed = self._claimed_resources(pod)
        entry = self._add_entry(pod, self.shapes.intern(pod, claimed=claimed))
        entry.claimed_resources = claimed
        self._place(entry, self._row_for(pod.spec.node_name))
        return entry

    def assume(self, entry: PodEntry, row: int) -> None:
        """Count a pending pod as placed before the API agrees."""
        self._place(entry, row)
        self._set_assumed(entry, True)

    def assume_claimed_resources(self, entry: PodEntry, claimed: Claimed) -> None:
        """Count what the claims of an assumed pod take of its node before the API says so."""
        shape = self.shapes.intern(entry.pod, claimed=claimed)
        self._set_claimed(entry, claimed)
        self._move(entry, entry.pod, shape, self.node_names[entry.row])

    def confirm(self, entry: PodEntry, pod: Pod) -> None:
        """The API says where the pod is: where it was assumed, or elsewhere."""
        claimed = self._claimed_resources(pod)
        shape = self.shapes.intern(pod, claimed=claimed)
        self._set_assumed(entry, False)
        self._set_claimed(entry, claimed)
        self._move(entry, pod, shape, pod.spec.node_name)

    def forget(self, entry: PodEntry) -> None:
        """Take an assumption back: the pod is pending again."""
        if not entry.is_assumed:
            raise InvariantError(f"forget {entry.pod.key}: it is not assumed")
        self._set_assumed(entry, False)
        self._unplace(entry)
        if entry.claimed_resources:
            self._set_claimed(entry, ())
            self._set_view(entry, entry.pod, self.shapes.intern(entry.pod))

    def displace(self, entry: PodEntry) -> None:
        """Take a pod off its row, for as long as a trial lasts."""
        if not self.journal.is_recording:
            raise InvariantError(f"displace {entry.pod.key}: no trial is open")
        self._unplace(entry)

    def update_pending(self, entry: PodEntry, pod: Pod) -> None:
        """A pending or assumed pod has changed. What its status says that claims take of a node is
        left over from another attempt, or what was decided in this one."""
        shape = self.shapes.intern(pod, claimed=entry.claimed_resources)
        self._move(entry, pod, shape, self.node_names[entry.row] if entry.row >= 0 else "")

    def remove_pod(self, entry: PodEntry) -> None:
        """The pod is gone, or has ended and holds no room any more."""
        if entry.row >= 0:
            self._unplace(entry)
        self.nominate(entry, "")
        self._forget_entry(entry)

    def nominate(self, entry: PodEntry, node_name: str) -> None:
        """Promise the pod room on a node; an empty name takes the promise back."""
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

    def _add_entry(self, pod: Pod, shape: Shape) -> PodEntry:
        entry = PodEntry(pod, shape)
        if entry.uid in self.pods:
            raise InvariantError(f"pod {pod.key} with uid {entry.uid} is already known")
        self._know_entry(entry)
        self.added_pods.append(entry)
        self.added_pod_count += 1
        return entry

    def _know_entry(self, entry: PodEntry) -> None:
        self.pods[entry.uid] = entry
        self.uid_by_key[entry.pod.key] = entry.uid
        if entry.pod.group_name:
            self.groups.add_pod(entry)
        if self.journal.is_recording:
            self.journal.log(self._forget_entry, entry)

    def _forget_entry(self, entry: PodEntry) -> None:
        del self.pods[entry.uid]
        if self.uid_by_key.get(entry.pod.key) == entry.uid:
            del self.uid_by_key[entry.pod.key]
        if entry.pod.group_name:
            self.groups.remove_pod(entry)
        if self.journal.is_recording:
            self.journal.log(self._know_entry, entry)

    def _move(self, entry: PodEntry, pod: Pod, shape: Shape, node_name: str) -> None:
        """Show the pod as it is now, on this node; an empty name is none."""
        here = self.node_names[entry.row] if entry.row >= 0 else ""
        if here == node_name and (shape is entry.shape or not here):
            self._set_view(entry, pod, shape)
            return
        if here:
            self._unplace(entry)
        self._set_view(entry, pod, shape)
        if node_name:
            # Only now: the row may have been given back when the pod left it.
            self._place(entry, self._row_for(node_name))

    def _set_view(self, entry: PodEntry, pod: Pod, shape: Shape) -> None:
        if self.journal.is_recording:
            self.journal.log(self._set_view, entry, entry.pod, entry.shape)
        moves = entry.pod.group_name != pod.group_name  # its label was changed
        if moves and entry.pod.group_name:
            self.groups.remove_pod(entry)
        if entry.row >= 0:
            old = entry.pod
            if self.tallies and not is_same_class(old, pod):
                self.tallies.remove_pod(entry, old, entry.row)
                self.tallies.add_pod(entry, pod, entry.row)
            self.pod_table.update_pod(entry, pod)
            if old.spec.affinity != pod.spec.affinity:
                self.carried_terms.count_pod(old, entry.row, -1)
                self.carried_terms.count_pod(pod, entry.row, 1)
        entry.pod = pod
        entry.shape = shape
        for watcher in self.placement_listeners:
            watcher.update_pod(entry)
        if moves:
            self.groups.disruption_units_generation += 1
            if pod.group_name:
                self.groups.add_pod(entry)

    def _place(self, entry: PodEntry, row: int) -> None:
        shape = entry.shape
        for column, amount in shape.usage:
            column.add(row, amount)
        entry.row = row
        self.pods_by_row[row][entry.uid] = entry
        self.pod_table.add_pod(entry, row)
        if shape.ports:
            self.ports.add(row, shape.ports, 1)
        if shape.has_storage:
            self.volumes.add_pod(entry, row)
        if shape.has_claims or shape.extended_requests:
            self.devices.add_pod(entry)
        if self.tallies:
            self.tallies.add_pod(entry, entry.pod, row)
        if entry.pod.spec.affinity is not None:
            self.carried_terms.count_pod(entry.pod, row, 1)
        for watcher in self.placement_listeners:
            watcher.add_pod(entry, row)
        self.usage_log.add(row)
        if self.journal.is_recording:
            self.journal.log(self._unplace, entry)

    def _unplace(self, entry: PodEntry) -> None:
        row, shape = entry.row, entry.shape
        for column, amount in shape.usage:
            column.add(row, -amount)
        entry.row = -1
        del self.pods_by_row[row][entry.uid]
        self.pod_table.remove_pod(entry)
        if shape.ports:
            self.ports.add(row, shape.ports, -1)
        if shape.has_storage:
            self.volumes.remove_pod(entry, row)
        if shape.has_claims or shape.extended_requests:
            self.devices.remove_pod(entry)
        if self.tallies:
            self.tallies.remove_pod(entry, entry.pod, row)
        if entry.pod.spec.affinity is not None:
            self.carried_terms.count_pod(entry.pod, row, -1)
        for watcher in self.placement_listeners:
            watcher.remove_pod(entry, row)
        self.usage_log.add(row)
        if self.journal.is_recording:
            self.journal.log(self._place, entry, row)
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
        """What the claims of a pod with a node take of it, as the API says."""
        if not self.is_counting_claims:
            return ()
        return pod.status.node_allocatable_resource_claim_statuses or ()

    def _row_for(self, name: str) -> int:
        """The row of that name, taking a free one where it has none."""
        row = self.row_by_name.get(name, -1)
        if row < 0:
            if not self._free_rows:
                self._grow()
            row = self._free_rows.pop()
            self.row_by_name[name] = row
            self.node_names[row] = name
            self.name_hashes[row] = name_hash(name)
            self.row_limit = max(self.row_limit, row + 1)
            if self.journal.is_recording:
                self.journal.log(self._release_row, row)
        return row

    def _release_row_when_final(self, row: int) -> None:
        """Give the row back if it is empty, but not before it is sure to stay so."""
        if self.journal.is_recording:
            self.journal.defer(self._release_row, row)
        elif not self.journal.is_undoing:
            self._release_row(row)

    def _release_row(self, row: int) -> None:
        """Give back a row that has neither node nor pods."""
        if self.node_names[row] and self.nodes[row] is None and not self.pods_by_row[row]:
            del self.row_by_name[self.node_names[row]]
            self.node_names[row] = ""
            self.name_hashes[row] = 0
            self._free_rows.append(row)

    def _undo_set_node(self, row: int, old: Node | None) -> None:
        if old is None:
            self._clear_node(row)
        else:
            self._set_node(row, old, node_room(old.status.allocatable))

    def _set_node(self, row: int, node: Node, allocatable: dict[str, int]) -> bool:
        """Write the node's columns; only what differs from the old node counts as a change."""
        old = self.nodes[row]
        self.nodes[row] = node
        before: dict[str, int] = {}
        if old is not None:
            same = old.status.allocatable == node.status.allocatable
            before = allocatable if same else node_room(old.status.allocatable)
        use_changed = before != allocatable
        if use_changed:
            for name in before:
                if name not in allocatable:
                    self.column(name).set_allocatable(row, 0)
            for name, amount in allocatable.items():
                self.column(name).set_allocatable(row, amount)
            self.usage_log.add(row)
        object_changed = old is None
        if old is None:
            self.present[row] = True
            self.node_count += 1
        old_labels = (old.metadata.labels if old is not None else None) or {}
        labels = node.metadata.labels or {}
        if old_labels != labels:
            self.labels.set(row, old_labels, labels)
            object_changed = True
        taints = node.spec.taints or ()
        if taints != ((old.spec.taints if old is not None else None) or ()):
            self.taints.set(row, taints or None)
            object_changed = True
        declared = node.status.declared_features or ()
        if declared != ((old.status.declared_features if old is not None else None) or ()):
            self.declared_features.set(row, declared or None)
            object_changed = True
        if node.spec.unschedulable != self.unschedulable[row]:
            self.unschedulable[row] = node.spec.unschedulable
            object_changed = True
        generation = self.images.generation
        self.images.set(row, old, node)
        object_changed |= generation != self.images.generation
        if object_changed:
            self.node_log.add(row)
        return use_changed or object_changed

    def _clear_node(self, row: int) -> None:
        old = self.nodes[row]
        if old is None:
            raise InvariantError(f"row {row} has no node to clear")
        self.nodes[row] = None
        for name in node_room(old.status.allocatable):
            column = self.column(name)
            column.set_allocatable(row, 0)
        self.present[row] = False
        self.node_count -= 1
        self.labels.set(row, old.metadata.labels or {}, {})
        self.taints.set(row, None)
        self.declared_features.set(row, None)
        self.unschedulable[row] = False
        self.images.set(row, old, None)
        self.usage_log.add(row)
        self.node_log.add(row)

    def _sweep_columns(self) -> None:
        """Take the arrays from columns of which nothing is left. The next sweep comes when there
        are twice as many columns, so that sweeping costs little for each."""
        for column in self.columns.values():
            column.shrink()
        self._sweep_at = 2 * len(self.columns)

    def _grow(self) -> None:
        """Double the capacity."""
        old, self.capacity = self.capacity, self.capacity * 2
        self.layout_generation += 1
        new = self.capacity
        self.node_names.extend([""] * old)
        self.nodes.extend([None] * old)
        self.pods_by_row.extend({} for _ in range(old))
        self._free_rows.extend(range(new - 1, old - 1, -1))
        self.present = grow_array(self.present, new)
        self.unschedulable = grow_array(self.unschedulable, new)
        self.name_hashes = grow_array(self.name_hashes, new)
        self.taints.grow(new)
        self.declared_features.grow(new)
        self.volumes.grow(new)
        self.images.grow(new)
        for column in (*self.columns.values(), self.non_zero_cpu, self.non_zero_memory):
            column.grow(new)
        self.labels.grow(new)
        self.tallies.grow(new)
        self.carried_terms.grow(new)
        for watcher in self.placement_listeners:
            watcher.grow(new)
