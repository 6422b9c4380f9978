"""Counts the free devices that a request could use on each row, as capacity constraints for groups.

Counts only devices that one node alone reaches and that are allocated as a whole; returns no
constraint for a request that could use other devices too. A count is an upper bound: taints are
considered, constraints and capacities are not.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from stower.devices.changed_rows import ChangedRows
from stower.devices.effort import OutOfEffort
from stower.devices.fit_cache import ANSWERS_MAX, FitCache, Rules
from stower.devices.inventory import Inventory, PoolView, Record, Views
from stower.devices.requests import AllocationError, Alternative, ClaimPlan
from stower.devices.row_classes import OWN
from stower.framework.dry_run import CapacityConstraint, no_usage
from stower.model.kinds import ResourceClaim
from stower.model.taints import Toleration, is_tolerated
from stower.state.arrays import Ints, grow_array
from stower.state.cluster import ClusterState
from stower.state.device_usage import UNUSED
from stower.state.devices import Devices

COLUMNS_MAX: Final = 256
NO_AMOUNT: Final = -1  # of a row: some device is shared, a partition, or reached by others too


class DeviceFilter(NamedTuple):
    """Which devices: of a driver ("" for any), chosen by all of these expressions."""

    driver: str
    expressions: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class RowCount(NamedTuple):
    """Free devices of one row, or NO_AMOUNT, and whose they are, used or not."""

    amount: int
    drivers: tuple[str, ...]


class Column:
    """One DeviceFilter: free devices by row, and whose they are, used or not. `known`: counts by
    what rows are alike in, see RowClasses, and by which of their pools others reach too."""

    __slots__ = ("changed", "counts", "drivers", "known")

    def __init__(self, state: ClusterState) -> None:
        self.counts: Ints = np.zeros(state.capacity, np.int64)
        self.changed = ChangedRows(state.devices)
        self.drivers: dict[str, None] = {}
        self.known: dict[tuple[int, tuple[bool, ...]], RowCount] = {}

    @property
    def is_amount(self) -> bool:
        """Whether devices can be counted on all rows."""
        return not (self.counts == NO_AMOUNT).any()


class Stock:
    """All columns over one state's devices."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._inventory = devices.extension(Inventory)
        self._columns: dict[tuple[DeviceFilter, Rules], Column] = {}

    def capacity_constraints(
        self, claims: Sequence[ResourceClaim], state: ClusterState, rules: Rules
    ) -> tuple[CapacityConstraint, ...]:
        """What a pod with these claims needs some of."""
        try:
            with self._inventory.effort.at(state.now_ns):
                return self._capacity_constraints(
                    self._devices.extension(FitCache).plans(claims, rules), state, rules
                )
        except AllocationError:
            return ()  # it will have no devices at all
        except OutOfEffort:
            self._columns.popitem()  # half of it is counted
            return ()  # nothing is promised

    def _capacity_constraints(
        self, plans: Sequence[ClaimPlan], state: ClusterState, rules: Rules
    ) -> tuple[CapacityConstraint, ...]:
        needs: dict[str, int] = {}
        counts: dict[str, Ints] = {}

        def add_need(name: str, of: Ints, number: int) -> None:
            needs[name] = needs.get(name, 0) + number
            counts[name] = of

        for request in (request for plan in plans for request in plan.requests):
            if len(request) != 1 or request[0].takes_all or request[0].admin:
                continue
            asked = request[0]
            column = self._column(_want_of(asked), state, rules)
            if not column.is_amount:
                continue
            every = None
            if len(column.drivers) == 1:
                (driver,) = column.drivers
                whole = self._column(DeviceFilter(driver), state, rules)
                if whole.is_amount:
                    every = whole.counts
                    add_need(f"devices of {driver}", every, asked.number)
            if every is None or (every != column.counts).any():
                add_need(_name_of(asked), column.counts, asked.number)
        return tuple(
            CapacityConstraint(
                name, partial(_free, counts[name]), number, no_usage, 0, is_discrete=True
            )
            for name, number in needs.items()
        )

    def _column(self, want: DeviceFilter, state: ClusterState, rules: Rules) -> Column:
        key = (want, rules)
        column = self._columns.pop(key, None)
        if column is None:
            column = Column(state)
            if len(self._columns) >= COLUMNS_MAX:
                del self._columns[next(iter(self._columns))]  # the least recently used
        self._columns[key] = column
        changed = column.changed.take_rows(state)
        if changed is None:
            column.counts = grow_array(column.counts, state.capacity)
            column.counts[:] = 0
            column.drivers.clear()
            changed = state.present_rows()
        cache = self._devices.extension(FitCache)
        alike = cache.likeness(state, rules) if changed else []
        for row in changed:
            column.counts[row] = 0
            if state.present[row]:
                found = self._count_row(
                    want, column, alike[row], cache.views(state, row, rules), rules
                )
                column.counts[row] = found.amount
                column.drivers |= dict.fromkeys(found.drivers)
        return column

    def _count_row(
        self, want: DeviceFilter, column: Column, number: int, views: Views, rules: Rules
    ) -> RowCount:
        """Returns the count of a row with these views: that of an equal row, if one is known."""
        if number == OWN:
            return self._count(want, views, rules)
        key = (number, tuple(self._is_of_one(view) for view in views))
        found = column.known.get(key)
        if found is None:
            if len(column.known) >= ANSWERS_MAX:
                column.known.clear()
            found = column.known[key] = self._count(want, views, rules)
        return found

    def _count(self, want: DeviceFilter, views: Views, rules: Rules) -> RowCount:
        count = 0
        drivers: dict[str, None] = {}
        for view in views:
            if view.fault:
                continue
            used = self._devices.usage(view.pool.id)
            for record in view.records:
                if not _chooses(want, record, rules):
                    continue
                drivers[record.content.driver] = None
                if not self._is_amount(view, record):
                    return RowCount(NO_AMOUNT, (*drivers,))
                is_open = not rules.gates.taints or all(
                    taint.effect == "None" or is_tolerated(want.tolerations, taint)
                    for taint in record.taints
                )
                count += is_open and used.get(record.name, UNUSED) == UNUSED
        return RowCount(count, (*drivers,))

    def _is_amount(self, view: PoolView, record: Record) -> bool:
        content = record.content
        if content.is_shared or content.counters or record.nodes is not None:
            return False
        return self._is_of_one(view)

    def _is_of_one(self, view: PoolView) -> bool:
        """Whether one node alone reaches the pool."""
        users = self._inventory.nodes_of(view.pool.id)
        return users is not None and len(users) == 1


def _chooses(want: DeviceFilter, record: Record, rules: Rules) -> bool:
    content = record.content
    if want.driver and content.driver != want.driver:
        return False
    listed = rules.gates.list_attributes
    return all(content.match(expression, listed) is True for expression in want.expressions)


def _want_of(asked: Alternative) -> DeviceFilter:
    selectors = (*asked.class_selectors, *asked.selectors)
    expressions = (s.cel.expression if s.cel is not None else "" for s in selectors)
    return DeviceFilter("", tuple(expressions), asked.tolerations)


def _name_of(asked: Alternative) -> str:
    chosen = [s.cel.expression for s in asked.selectors if s.cel is not None]
    by = f" with {' and '.join(chosen)}" if chosen else ""
    return f"devices of class {asked.class_name}{by}"


def _free(counts: Ints, rows: slice) -> Ints:
    return counts[rows]
