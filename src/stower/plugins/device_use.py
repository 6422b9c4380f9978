"""Devices as a resource to be scored: how many of a class a node has, and how many are in use.

Where devices stand in for an extended resource that a node does not have itself (KEP-5004), scores
by use count the devices.

Source: kube-scheduler plugins/noderesources/resource_allocation.go (calculateDRAResourceTotals).
Different from upstream: of pools that are incomplete or replaced nothing counts.
"""

import numpy as np

from stower.devices.changed_rows import ChangedRows
from stower.devices.inventory import Inventory, Record
from stower.model.kinds import DeviceClass, Node
from stower.state.arrays import Ints, ResourceColumn
from stower.state.cluster import ClusterState
from stower.state.devices import Devices


class DeviceUse:
    """By class."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._inventory = devices.extension(Inventory)
        self._classes: dict[str, _ClassTotals] = {}

    def column(
        self, column: ResourceColumn, class_name: str, state: ClusterState
    ) -> ResourceColumn:
        """The column, with devices of the class on the rows that have nothing of the resource."""
        device_class = self._devices.classes[class_name]
        known = self._classes.get(class_name)
        if known is None or known.device_class is not device_class:
            known = self._classes[class_name] = _ClassTotals(device_class, self._devices)
        known.refresh(state, self._inventory)
        stands = column.allocatable == 0
        return ResourceColumn.from_arrays(
            column.name,
            np.where(stands, known.count, column.allocatable),
            np.where(stands, known.used, column.requested),
        )


def with_devices(column: ResourceColumn, state: ClusterState) -> ResourceColumn:
    """The column of a resource, with the devices that stand in for it."""
    class_name = state.devices.class_by_resource.get(column.name)
    if class_name is None:
        return column
    return state.devices.extension(DeviceUse).column(column, class_name, state)


class _ClassTotals:
    """One class: devices and devices in use, int64[capacity]."""

    def __init__(self, device_class: DeviceClass, devices: Devices) -> None:
        self.device_class = device_class
        self.count: Ints = np.zeros(0, np.int64)
        self.used: Ints = np.zeros(0, np.int64)
        self._changed_rows = ChangedRows(devices)

    def refresh(self, state: ClusterState, inventory: Inventory) -> None:
        """Look at what has changed."""
        rows = self._changed_rows.since_last(state)
        if rows is None or len(self.count) != state.capacity:
            rows = [*range(state.row_limit)]
            self.count = np.zeros(state.capacity, np.int64)
            self.used = np.zeros(state.capacity, np.int64)
        for row in rows:
            self.count[row], self.used[row] = (
                self._totals(state.node_at(row), state, inventory) if state.present[row] else (0, 0)
            )

    def _totals(self, node: Node, state: ClusterState, inventory: Inventory) -> tuple[int, int]:
        count = used = 0
        for view in inventory.views(node):
            in_use = state.devices.usage(view.pool.id)
            for record in view.records:
                if (record.nodes is None or record.nodes.include(node)) and self._is_in_class(
                    record
                ):
                    count += 1
                    used += record.name in in_use
        return count, used

    def _is_in_class(self, record: Record) -> bool:
        return all(
            selector.cel is None or record.content.match(selector.cel.expression, True) is True
            for selector in self.device_class.spec.selectors or ()
        )
