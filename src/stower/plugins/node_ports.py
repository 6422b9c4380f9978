"""NodePorts: no two pods of a node take the same host port.

Source: kube-scheduler plugins/nodeports; framework HostPortInfo.CheckConflict.
"""

from collections.abc import Callable

import numpy as np

from stower.framework.changes import Change, Happened
from stower.framework.plugin import Plugin, Scope
from stower.model.resources import host_ports
from stower.state.arrays import Ints, Rows
from stower.state.cluster import ClusterState
from stower.state.ports import HostPorts
from stower.state.shapes import Shape


class NodePorts(Plugin):
    """Refuse nodes on which one of the pod's host ports is taken."""

    name = "NodePorts"
    scope = Scope.USE
    reasons = ("node(s) didn't have free ports for the requested pod ports",)
    resolvable = True
    wakes_on = Change.NODE_ADDED | Change.PLACED_POD_DELETED

    def filter(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """1 on rows where a port is taken."""
        if not shape.ports:
            return None
        codes = np.zeros(state.capacity, np.int64)
        codes[state.ports.conflicts(shape.ports)] = 1
        return codes[rows]

    def filter_row(self, shape: Shape, state: ClusterState) -> Callable[[int], int] | None:
        """The same for one row."""
        if not shape.ports:
            return None
        return lambda row: int(state.ports.conflict_at(row, shape.ports))

    def hint(self, shape: Shape, happened: Happened) -> bool:
        """Wake for any new node, and for the end of a pod that held one of the ports."""
        if happened.old_pod is None:
            return True
        freed = HostPorts()
        freed.add(0, host_ports(happened.old_pod), 1)
        return freed.conflict_at(0, shape.ports)
