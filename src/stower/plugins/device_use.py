"""Counts DRA devices, present and in use, as an extended resource that plugins can score.

A device class may back an extended resource on nodes that do not list the resource themselves
(KEP-5004). Scores by utilization count the devices there.

Source: kube-scheduler plugins/noderesources/resource_allocation.go (calculateDRAResourceTotals).
Differs from kube-scheduler: devices of incomplete or superseded pools do not count.
"""

import numpy as np

from stower.devices.changed_rows import ChangedRows
from stower.devices.inventory import Inventory, Record
from stower.model.kinds import DeviceClass, Node
from stower.state.arrays import Ints, ResourceColumn
from stower.state.cluster import ClusterState
from stower.state.devices import Devices


class DeviceUse:
    """Device totals of one state, by device class."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._inventory = devices.extension(Inventory)
        self._classes: dict[str, _ClassTotals] = {}

    def column(
        self, column: ResourceColumn, class_name: str, state: ClusterState
    ) -> ResourceColumn:
        """Returns a copy of the column, with the class's devices on rows that lack the resource."""
        device_class = self._devices.classes[class_name]
        totals = self._classes.get(class_name)
        if totals is None or totals.device_class is not device_class:
            totals = self._classes[class_name] = _ClassTotals(device_class, self._devices)
        totals.refresh(state, self._inventory)
        is_backed = column.allocatable == 0
        return ResourceColumn.from_arrays(
            column.name,
            np.where(is_backed, totals.count, column.allocatable),
            np.where(is_backed, totals.used, column.requested),
        )


def with_devices(column: ResourceColumn, state: ClusterState) -> ResourceColumn:
    """Returns the column with the devices that back its resource; itself if no class does."""
    class_name = state.devices.class_by_resource.get(column.name)
    if class_name is None:
        return column
    return state.devices.extension(DeviceUse).column(column, class_name, state)


class _ClassTotals:
    """Totals of one class: `count` of devices and `used` devices, int64[capacity] each."""

    def __init__(self, device_class: DeviceClass, devices: Devices) -> None:
        self.device_class = device_class
        self.count: Ints = np.zeros(0, np.int64)
        self.used: Ints = np.zeros(0, np.int64)
        self._changed_rows = ChangedRows(devices)

    def refresh(self, state: ClusterState, inventory: Inventory) -> None:
        """Recounts the rows whose node or pools have changed."""
        rows = self._changed_rows.take_rows(state)
        if rows is None or len(self.count) != state.capacity:
            rows = [*range(state.row_limit)]
            self.count = np.zeros(state.capacity, np.int64)
            self.used = np.zeros(state.capacity, np.int64)
        for row in rows:
            self.count[row], self.used[row] = (
                self._totals(state.node_at(row), state, inventory) if state.present[row] else (0, 0)
            )

    def _totals(self, node: Node, state: ClusterState, inventory: Inventory) -> tuple[int, int]:
        """Returns the number of devices that the node reaches, and how many of them are in use."""
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
