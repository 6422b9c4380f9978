"""Caches, for a set of claims, which nodes have devices for them, as one column over all rows.

Equal claims share a column, as equal pods share an evaluation. A row is evaluated again when its
node has changed, or when a device of a pool that it reaches was allocated or released; of rows that
are equal for the search (row_classes.py), one is searched.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from stower.devices.allocator import AllocatedDevices_, Prefer, StepsExhaustedError, allocate
from stower.devices.avoided_devices import NOTHING, AvoidedDevices
from stower.devices.changed_rows import ChangedRows
from stower.devices.effort import OutOfEffort
from stower.devices.inventory import Inventory, Views
from stower.devices.requests import AllocationError, ClaimPlan, plan_of
from stower.devices.row_classes import OWN, RowClasses
from stower.framework.device_gates import DeviceGates
from stower.model.kinds.resource_claim import ResourceClaim
from stower.state.arrays import Bools, Ints, grow_array
from stower.state.cluster import ClusterState
from stower.state.devices import Devices

FITS: Final = 0
NO_DEVICES: Final = 1
INVALID_POOLS: Final = 2
GAVE_UP: Final = 3

COLUMNS_MAX: Final = 256  # distinct sets of claims that are remembered
PLANS_MAX: Final = 4096
ANSWERS_MAX: Final = 4096  # of one column, 100 bytes each
_encode = msgspec.json.Encoder().encode


class Rules(NamedTuple):
    """What one plugin's configuration says: gates, steps of a search, and what it prefers."""

    gates: DeviceGates
    steps_max: int
    prefer: Prefer | None


class Column:
    """One set of claims: a code for each row, and what is wrong with some of them."""

    __slots__ = ("answers", "changed", "codes", "errors", "own_pools", "plans", "todo")

    def __init__(self, plans: tuple[ClaimPlan, ...], state: ClusterState) -> None:
        self.plans = plans
        # Pools with devices that are avoided: rows that reach them are like no others.
        self.own_pools = frozenset(pool for plan in plans for pool, _ in plan.avoided)
        self.codes: Ints = np.full(state.capacity, NO_DEVICES)
        self.errors: dict[int, AllocationError] = {}
        self.todo: dict[int, None] = {}  # rows that were left for another attempt
        self.changed = ChangedRows(state.devices)
        self.answers: dict[int, int] = {}  # codes by what rows are alike in, see RowClasses

    def keep_answer(self, number: int, code: int) -> None:
        """Remembers the code of all rows of a number."""
        if number != OWN:
            if len(self.answers) >= ANSWERS_MAX:
                self.answers.clear()
            self.answers[number] = code


class FitCache:
    """All columns over one state's devices."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._avoided = devices.extension(AvoidedDevices)
        self._alike = {
            gate: RowClasses(devices, gate) for gate in (False, True)
        }  # by `partitionable`
        self._columns: dict[tuple[object, ...], Column] = {}
        self._plans: dict[tuple[object, ...], ClaimPlan] = {}

    def plans(self, claims: Sequence[ResourceClaim], rules: Rules) -> tuple[ClaimPlan, ...]:
        """What the claims ask for, without what is avoided now. Raises AllocationError."""
        found = []
        for index, claim in enumerate(claims):
            avoided = self._avoided.of(claim, self._devices.now_ns)
            key = (
                _encode(claim.spec.devices), index, self._devices.class_generation, rules.gates,
                avoided,
            )  # fmt: skip
            plan = self._plans.pop(key, None)
            if plan is None:
                plan = plan_of(claim, index, self._devices.classes, rules.gates)
                if avoided is not NOTHING:
                    plan = plan.without(avoided)
                if len(self._plans) >= PLANS_MAX:
                    del self._plans[next(iter(self._plans))]  # the least recently used
            self._plans[key] = plan
            found.append(plan)
        return tuple(found)

    def column(
        self,
        claims: Sequence[ResourceClaim],
        state: ClusterState,
        rules: Rules,
        sought: Bools | None = None,
    ) -> Column:
        """The column of these claims, up to date. Raises AllocationError; one that is about a
        row alone only where the claims can be met on no other. `sought`: bool[row_limit], the rows
        that are looked at; the others say nothing."""
        column = self._column(self.plans(claims, rules), state, rules)
        with self._devices.extension(Inventory).effort.at(state.now_ns):
            self._refresh(column, state, rules, sought)
        errors = [row for row in column.errors if sought is None or sought[row]]
        if errors:
            codes = column.codes if sought is None else column.codes[: len(sought)][sought]
            fits = (codes == FITS).any()
            # In the order of names: rows are numbered as nodes came.
            for row in sorted(errors, key=lambda row: state.node_names[row]):
                error = column.errors[row]
                if not (fits and error.here):
                    raise error
        return column

    def _column(self, plans: tuple[ClaimPlan, ...], state: ClusterState, rules: Rules) -> Column:
        key = (tuple(map(id, plans)), rules.gates, rules.steps_max, rules.prefer)
        column = self._columns.pop(key, None)
        if column is None:
            column = Column(plans, state)
            if len(self._columns) >= COLUMNS_MAX:
                del self._columns[next(iter(self._columns))]  # the least recently used
        self._columns[key] = column
        return column

    def _refresh(
        self, column: Column, state: ClusterState, rules: Rules, sought: Bools | None
    ) -> None:
        changed = column.changed.take_rows(state)
        todo = column.todo
        if changed is None:
            todo.clear()
            column.errors.clear()
            rows = state.present_rows()
            column.codes = grow_array(column.codes, state.capacity)
            column.codes[:] = NO_DEVICES
        else:
            rows = [row for row in (*todo, *changed) if state.present[row]]
            for row in changed:
                column.errors.pop(row, None)
                column.codes[row] = NO_DEVICES  # also where there is no node any more
        alike = self._alike[rules.gates.partitionable].numbers(state)
        answers = column.answers
        effort = self._devices.extension(Inventory).effort
        column.todo = dict.fromkeys(rows)
        now = [row for row in column.todo if sought is None or sought[row]]
        for i, row in enumerate(now):
            number = alike[row]
            if column.own_pools and self._is_own(column, state, row, rules):
                number = OWN
            code = answers.get(number)
            if code is None:
                try:
                    effort.check()
                    code = self._code(column.plans, state, row, rules)
                except OutOfEffort:
                    left = len(now) - i
                    raise AllocationError(
                        "evaluating all devices exceeds the budget of one attempt: "
                        f"{left} nodes are left for the next attempt"
                    ) from None
                except AllocationError as error:  # not for others: it may name the devices
                    column.codes[row] = NO_DEVICES
                    column.errors[row] = error
                    column.todo.pop(row, None)
                    continue
                column.keep_answer(number, code)
            column.codes[row] = code
            column.todo.pop(row, None)

    def _is_own(self, column: Column, state: ClusterState, row: int, rules: Rules) -> bool:
        views = self.views(state, row, rules)
        return any(view.pool.id in column.own_pools for view in views)

    def views(self, state: ClusterState, row: int, rules: Rules) -> Views:
        """The pools that the row's node reaches."""
        return self._alike[rules.gates.partitionable].views(state, row)

    def likeness(self, state: ClusterState, rules: Rules) -> list[int]:
        """By row, its number in RowClasses, up to date. Read only."""
        return self._alike[rules.gates.partitionable].numbers(state)

    def code(
        self, plans: tuple[ClaimPlan, ...], state: ClusterState, row: int, rules: Rules
    ) -> int:
        """Whether the row has devices. Raises AllocationError where something is wrong. For trials
        about one row: looks at no other."""
        column = self._column(plans, state, rules)
        number = self._alike[rules.gates.partitionable].number(state, row)
        if column.own_pools and self._is_own(column, state, row, rules):
            number = OWN
        code = column.answers.get(number)
        if code is not None:
            return code
        effort = self._devices.extension(Inventory).effort
        try:
            with effort.at(state.now_ns):
                effort.check()
                code = self._code(plans, state, row, rules)
        except OutOfEffort:
            return GAVE_UP
        column.keep_answer(number, code)
        return code

    def _code(
        self, plans: tuple[ClaimPlan, ...], state: ClusterState, row: int, rules: Rules
    ) -> int:
        code = FITS
        try:
            if self.allocate(plans, state, row, rules) is None:
                code = NO_DEVICES
        except StepsExhaustedError:
            code = GAVE_UP
        except AllocationError as error:
            if not error.on_node_only:
                raise
            code = INVALID_POOLS
        return code

    def allocate(
        self, plans: tuple[ClaimPlan, ...], state: ClusterState, row: int, rules: Rules
    ) -> AllocatedDevices_ | None:
        """The devices that the claims would be given on the row."""
        return allocate(
            plans,
            self.views(state, row, rules),
            state.node_at(row),
            self._devices,
            rules.gates,
            rules.steps_max,
            rules.prefer,
        )

    def allocate_preferred(
        self,
        plans: tuple[ClaimPlan, ...],
        state: ClusterState,
        row: int,
        rules: Rules,
        prefer: Prefer,
    ) -> AllocatedDevices_ | None:
        """The same in an order for this row alone, unless that is too long a search."""
        try:
            return self.allocate(plans, state, row, rules._replace(prefer=prefer))
        except StepsExhaustedError:
            return self.allocate(plans, state, row, rules)
