"""NodePorts: no two pods of a node take the same host port.

Source: kube-scheduler plugins/nodeports; framework HostPortInfo.CheckConflict.
"""

from collections.abc import Callable, Iterable

import numpy as np

from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.dry_run import DryRun
from stower.framework.fixes import NODE_FIELD, Fix, format_pods
from stower.framework.plugin import Plugin, Scope
from stower.model.kinds import Pod
from stower.model.resources import host_ports
from stower.state.arrays import Ints, Rows
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.ports import ANY_IP, HostPort, HostPorts
from stower.state.shapes import Shape


class NodePorts(Plugin):
    """Refuse nodes on which one of the pod's host ports is taken."""

    name = "NodePorts"
    scope = Scope.USAGE
    reasons = ("node(s) didn't have free ports for the requested pod ports",)
    resolvable = True
    events_to_register = Change.NODE_ADDED | Change.PLACED_POD_DELETED

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
        return lambda row: int(state.ports.has_conflict(row, shape.ports))

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """The ports of a row."""
        return (lambda row: _PortsDryRun(shape, state, row)) if shape.ports else None

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Those leave that have the ports."""
        gone = []
        taken = set()
        for entry in state.pods_on(row):
            theirs = HostPorts()
            theirs.add(0, entry.shape.ports, 1)
            if theirs.has_conflict(0, shape.ports):
                gone.append(entry)
                taken |= {p[1] for p in shape.ports if theirs.has_conflict(0, (p,))}
        if gone:
            ports = ", ".join(map(str, sorted(taken)))
            text = f"port {ports} of {NODE_FIELD} is taken by {format_pods(tuple(gone))}"
            yield Fix(text, 1.0 + len(gone), removed_pods=tuple(gone))

    def hint(self, shape: Shape, event: ClusterEvent) -> bool:
        """Wake for any new node, and for the end of a pod that held one of the ports."""
        if event.old_pod is None:
            return True
        freed = HostPorts()
        freed.add(0, host_ports(event.old_pod), 1)
        return freed.has_conflict(0, shape.ports)


class _PortsDryRun:
    """One row's ports while pods come and go in thought.

    As upstream it is a set: where two pods have a port, it is free when one of them leaves.
    """

    def __init__(self, shape: Shape, state: ClusterState, row: int) -> None:
        self._wanted_ports = shape.ports
        self._used_ports: set[HostPort] = set()
        for entry in state.pods_by_row[row].values():
            self._used_ports.update(entry.shape.ports)

    def add(self, entry: PodEntry) -> None:
        self._used_ports.update(entry.shape.ports)

    def remove(self, entry: PodEntry) -> None:
        self._used_ports.difference_update(entry.shape.ports)

    def code(self) -> int:
        for protocol, port, ip in self._wanted_ports:
            for other in self._used_ports:
                if other[:2] == (protocol, port) and (ANY_IP in (ip, other[2]) or ip == other[2]):
                    return 1
        return 0
