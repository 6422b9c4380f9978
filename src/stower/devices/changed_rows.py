"""Finds the rows to evaluate again since the last call: rows whose node, or a pool that the node
reaches, has changed.
"""

from stower.devices.inventory import Inventory
from stower.state.cluster import ClusterState
from stower.state.devices import Devices


class ChangedRows:
    """One reader's place in what has happened to nodes and devices."""

    __slots__ = (
        "_devices", "_inventory", "_log_position", "_node_position", "_own", "_reach_position",
        "_seen",
    )  # fmt: skip

    def __init__(self, devices: Devices, own: bool = False) -> None:
        """`own`: of pools, those alone count that nodes are named to reach."""
        self._own = own
        self._devices = devices
        self._inventory = devices.extension(Inventory)
        self._seen = (-1, -1)
        self._log_position = 0
        self._reach_position = 0
        self._node_position = 0

    def take_rows(self, state: ClusterState) -> list[int] | None:
        """The rows, each once, also those that have no node any more; None for all there are."""
        devices, inventory, nodes = self._devices, self._inventory, state.node_log
        inventory.refresh()
        seen = (inventory.wide_version, state.layout_generation)
        pools = devices.pools_changed_since(self._log_position)
        names = inventory.log.entries_since(self._reach_position)
        start = self._node_position
        self._log_position, self._reach_position = devices.log_position, inventory.log.position
        self._node_position = nodes.position
        if seen != self._seen or pools is None or names is None or nodes.is_overrun(start):
            self._seen = seen
            return None
        if not (pools or names) and start == nodes.position:
            return []
        found = dict.fromkeys(nodes.row_list(start))
        found |= dict.fromkeys(map(state.row_of, names))
        for pool in dict.fromkeys(pools):
            users = inventory.nodes_of(pool)
            if users is None and not self._own:
                return None
            found |= dict.fromkeys(map(state.row_of, users or ()))
        return [row for row in found if row >= 0]
