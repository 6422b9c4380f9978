"""Groups rows that are equal for a device search, so that one row of each class is searched.

A class number stands for the devices that a row reaches, in order, and their use, without the names
of nodes, pools and devices. A number never changes its meaning, so that results for the number stay
valid.
"""

from typing import Final

from stower.devices.changed_rows import ChangedRows
from stower.devices.inventory import Inventory, PoolView, Views
from stower.model.kinds import Node
from stower.state.cluster import ClusterState
from stower.state.devices import Devices

OWN: Final = -1  # devices choose nodes by themselves: the row is like no other
# So many numbers more than there were rows and pools to tell apart are remembered.
SPARE: Final = 16_384


class RowClasses:
    """What each row reaches, and its number; with partitions, or where that feature is off."""

    def __init__(self, devices: Devices, partitionable: bool) -> None:
        self._devices = devices
        self._inventory = devices.extension(Inventory)
        self._partitionable = partitionable
        self._changed = ChangedRows(devices)
        self._views: dict[int, tuple[tuple[int, int], Node, Views]] = {}
        self._rows: list[int] = []
        self._numbers: dict[object, int] = {}
        self._next = 0
        self._numbers_max = SPARE
        self._begun = 0  # how often all numbers were forgotten

    def views(self, state: ClusterState, row: int) -> Views:
        """The pools that the row's node reaches."""
        node = state.node_at(row)
        self._inventory.refresh()
        version = self._inventory.version_for(node)
        known = self._views.get(row)
        if known is None or known[0] != version or known[1] is not node:
            views = self._inventory.views(node, self._partitionable)
            known = self._views[row] = (version, node, views)
        return known[2]

    def numbers(self, state: ClusterState) -> list[int]:
        """By row, up to date; of rows without a node, any. Read only."""
        changed = self._changed.take_rows(state)
        is_full = len(self._numbers) > self._numbers_max
        if is_full:
            self._numbers.clear()
            self._begun += 1
        if changed is None or is_full:
            self._rows = [OWN] * state.capacity
            changed = [*range(state.row_limit)]
        for row in changed:
            if state.present[row]:
                self._rows[row] = self._number_of(self.views(state, row))
            else:
                self._views.pop(row, None)
        if is_full:
            self._numbers_max = 2 * len(self._numbers) + SPARE
        return self._rows

    def number(self, state: ClusterState, row: int) -> int:
        """The number of one row as it is now, which in a trial may be what nobody will see again:
        costs less than `numbers` where a trial is about this row only."""
        return self._number_of(self.views(state, row))

    def _number_of(self, views: Views) -> int:
        found = []
        for view in views:
            if view.chooses_nodes:
                return OWN
            begun, version, number = view.likeness
            now = self._devices.usage_version(view.pool.id)
            if begun != self._begun or version != now:
                number = self._number(self._content_key(view))
                view.likeness = (self._begun, now, number)
            found.append(number)
        return self._number(tuple(found))

    def _content_key(self, view: PoolView) -> object:
        """All that a search looks at. Of pools that it does not go into, their names are told."""
        pool = view.pool
        if view.is_incomplete or view.fault:
            return (pool.id, view.is_incomplete, view.fault)
        devices = tuple((record.content.serial, record.taints) for record in view.records)
        what = self._number((devices, tuple(pool.counters.items())))
        used = self._devices.usage(pool.id)
        if not used:
            return what
        places = view.places
        uses = tuple(sorted((places[name], use) for name, use in used.items() if name in places))
        # Those that others reach draw on the same counters.
        free = tuple(pool.free_counters(self._devices).values()) if pool.counters else ()
        return (what, uses, free)

    def _number(self, what: object) -> int:
        number = self._numbers.get(what)
        if number is None:
            number = self._numbers[what] = self._next
            self._next += 1
        return number
