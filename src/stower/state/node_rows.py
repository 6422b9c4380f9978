"""Nodes as rows of arrays: what each node has, its labels, taints, features and images.

Every primitive logs its inverse in the journal while a trial is open, and records in the dirty logs
which row it changed: `usage_log` for amounts, `node_log` for the node object itself. Must not know
pods, beyond that rows with pods are not given to another node.
"""

import weakref
from collections.abc import Iterable
from typing import Final

import numpy as np

from stower.model.errors import InvariantError
from stower.model.kinds import Node
from stower.model.resources import PODS, node_room
from stower.model.taints import Taint
from stower.state.arrays import CAPACITY_FIRST, Bools, DirtyLog, ResourceColumn, grow_array
from stower.state.images import Images
from stower.state.journal import Journal, Trial
from stower.state.labels import CodeColumn, LabelColumns
from stower.state.pod_entry import PodEntry
from stower.state.ties import TieBreaker

# Real clusters have some dozens of resources; a user can make up any number of names.
COLUMNS_SWEPT_FIRST: Final = 256


class NodeRows:
    """Holds all nodes as rows. Arrays are int64[capacity] or bool[capacity]; rows in use lie below
    `row_limit`, and `present` says which of them have a node: a row without a node has pods whose
    node is deleted or not seen yet."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.usage_log = DirtyLog()
        self.node_log = DirtyLog()
        self.capacity = CAPACITY_FIRST
        # Grows with the capacity: other arrays over rows are allocated again then.
        self.layout_generation = 0
        self.row_limit = 0
        self.node_count = 0
        self.row_by_name: dict[str, int] = {}
        self.node_names: list[str] = [""] * self.capacity
        self.nodes: list[Node | None] = [None] * self.capacity
        self.pods_by_row: list[dict[str, PodEntry]] = [{} for _ in range(self.capacity)]
        self._free_rows = list(range(self.capacity - 1, -1, -1))
        self.present: Bools = np.zeros(self.capacity, np.bool_)
        self.unschedulable: Bools = np.zeros(self.capacity, np.bool_)
        self.tie_breaker = TieBreaker(self.capacity)
        # A code per distinct tuple of taints: each tuple is evaluated once, then gathered.
        self.taints: CodeColumn[tuple[Taint, ...]] = CodeColumn(self.capacity)
        self.declared_features: CodeColumn[tuple[str, ...]] = CodeColumn(self.capacity)
        # Of resources that some node has, or some pod takes. Others exist while a shape has them.
        self.columns: dict[str, ResourceColumn] = {}
        self._idle_columns: weakref.WeakValueDictionary[str, ResourceColumn] = (
            weakref.WeakValueDictionary()
        )
        self._keep_column = self._add_column
        self.column_generation = 0  # changes with the names in `columns`
        self._sweep_at = COLUMNS_SWEPT_FIRST
        self.columns[PODS] = ResourceColumn(PODS, self.capacity)
        # Requests as scores count them: a pod that requests nothing counts as something.
        self.non_zero_cpu = ResourceColumn("non-zero cpu", self.capacity)
        self.non_zero_memory = ResourceColumn("non-zero memory", self.capacity)
        self.labels = LabelColumns(self.capacity)
        self.images = Images(self.capacity)
        # Rows that changed, but not by a trial, since numbers of nodes per image were refreshed.
        self._touched: dict[int, None] = {}

    # Reading

    @property
    def all_rows(self) -> slice:
        """All rows in use, as an index that gives views."""
        return slice(0, self.row_limit)

    def column(self, name: str) -> ResourceColumn:
        """Returns the resource's column; creates it for a new resource. `columns` has it once a
        node has some of the resource, or a placed pod takes some."""
        column = self.columns.get(name)
        if column is None:
            column = self._idle_columns.get(name)
        if column is None:
            column = ResourceColumn(name, self.capacity, self._keep_column)
            self._idle_columns[name] = column
        return column

    def _add_column(self, column: ResourceColumn) -> None:
        if len(self.columns) >= self._sweep_at:
            self._sweep_columns()
        self.columns[column.name] = column
        self.column_generation += 1
        self._idle_columns.pop(column.name, None)

    def row_of(self, name: str) -> int:
        """Returns the row of a present node, or -1."""
        row = self.row_by_name.get(name, -1)
        return row if row >= 0 and self.present[row] else -1

    def rows_of(self, names: Iterable[str]) -> list[int]:
        """Returns the rows of those nodes that are present, in the order of their names."""
        return [row for row in map(self.row_of, sorted(names)) if row >= 0]

    def present_rows(self) -> list[int]:
        """Returns the rows that have a node, in order."""
        return [int(row) for row in np.flatnonzero(self.present)]

    def node_at(self, row: int) -> Node:
        """Returns the node of a row that has one."""
        node = self.nodes[row]
        assert node is not None
        return node

    def refresh_images(self) -> None:
        """Starts a cycle: rows that changed take the current numbers of nodes per image. Does
        nothing in a trial, which begins no cycle."""
        if not self._touched or self.journal.is_recording:
            return
        if self.images.generation:
            for row in self._touched:
                if self.images.refresh_row(row):
                    self.node_log.add(row)
        self._touched.clear()

    def _touch(self, row: int) -> None:
        """Has numbers of nodes per image refreshed on a row that changed, unless a trial changed
        it, or its end restored it."""
        if not (self.journal.is_recording or self.journal.is_undoing):
            self._touched[row] = None

    def trial(self) -> Trial:
        """Returns a context manager that undoes all changes made inside."""
        return self.journal.trial()

    # Nodes

    def set_node(self, node: Node) -> bool:
        """Adds or replaces a node. Returns whether anything that scheduling reads changed.

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
        """Removes a node; its pods stay counted until they go. Returns False if unknown."""
        row = self.row_of(name)
        if row < 0:
            return False
        old = self.nodes[row]
        self._clear_node(row)
        if self.journal.is_recording:
            self.journal.log(self._undo_set_node, row, old)
        self._release_row_when_final(row)
        return True

    # Primitives

    def _row_for(self, name: str) -> int:
        """Returns the row of that name; takes a free row for a new name."""
        row = self.row_by_name.get(name, -1)
        if row < 0:
            if not self._free_rows:
                self._grow()
            row = self._free_rows.pop()
            self.row_by_name[name] = row
            self.node_names[row] = name
            self.tie_breaker.set_name(row, name)
            self.row_limit = max(self.row_limit, row + 1)
            if self.journal.is_recording:
                self.journal.log(self._release_row, row)
        return row

    def _release_row_when_final(self, row: int) -> None:
        """Releases the row if it is empty, but not before no trial can undo that."""
        if self.journal.is_recording:
            self.journal.defer(self._release_row, row)
        elif not self.journal.is_undoing:
            self._release_row(row)

    def _release_row(self, row: int) -> None:
        """Releases a row that has neither node nor pods."""
        name = self.node_names[row]  # that of free rows is empty, as a laxer API's may be
        is_taken = self.row_by_name.get(name) == row
        if is_taken and self.nodes[row] is None and not self.pods_by_row[row]:
            del self.row_by_name[name]
            self.node_names[row] = ""
            self.tie_breaker.set_name(row, "")
            self._free_rows.append(row)

    def _undo_set_node(self, row: int, old: Node | None) -> None:
        if old is None:
            self._clear_node(row)
        else:
            self._set_node(row, old, node_room(old.status.allocatable))

    def _set_node(self, row: int, node: Node, allocatable: dict[str, int]) -> bool:
        """Writes the node's columns; only what differs from the old node is a change."""
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
            self._touch(row)
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
            self._touch(row)
        return use_changed or object_changed

    def _clear_node(self, row: int) -> None:
        old = self.nodes[row]
        if old is None:
            raise InvariantError(f"cannot clear row {row}: the row has no node")
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
        self._touch(row)

    def _sweep_columns(self) -> None:
        """Drops empty columns. The next sweep comes with twice as many columns, so that the cost
        per column stays constant."""
        for name, column in [*self.columns.items()]:
            column.shrink()
            if not column.has_own_arrays and name != PODS:
                del self.columns[name]
                self._idle_columns[name] = column
        self._sweep_at = max(COLUMNS_SWEPT_FIRST, 2 * len(self.columns))

    def _grow(self) -> None:
        """Doubles the capacity."""
        old, self.capacity = self.capacity, self.capacity * 2
        self.layout_generation += 1
        new = self.capacity
        self.node_names.extend([""] * old)
        self.nodes.extend([None] * old)
        self.pods_by_row.extend({} for _ in range(old))
        self._free_rows.extend(range(new - 1, old - 1, -1))
        self.present = grow_array(self.present, new)
        self.unschedulable = grow_array(self.unschedulable, new)
        self.tie_breaker.grow(new)
        self.taints.grow(new)
        self.declared_features.grow(new)
        self.images.grow(new)
        for column in (
            *self.columns.values(), *self._idle_columns.values(), self.non_zero_cpu,
            self.non_zero_memory,
        ):  # fmt: skip
            column.grow(new)
        self.labels.grow(new)
