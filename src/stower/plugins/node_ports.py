"""NodePorts: keeps two pods with the same host port off the same node.

Source: kube-scheduler plugins/nodeports; framework HostPortInfo.CheckConflict.
"""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.dry_run import CapacityConstraint, DryRun, TreePods, one_per_row
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
    """Rejects nodes on which one of the pod's host ports is in use."""

    name = "NodePorts"
    scope = Scope.USAGE
    reasons = ("node(s) didn't have free ports for the requested pod ports",)
    resolvable = True
    changes_of_one_row = Change.PLACED_POD_DELETED
    events_to_register = Change.NODE_ADDED | Change.PLACED_POD_DELETED

    def filter(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Rejects rows (code 1) on which a port is in use."""
        if not shape.ports:
            return None
        codes = np.zeros(state.capacity, np.int64)
        codes[state.ports.conflicts(shape.ports)] = 1
        return codes[rows]

    def filter_row(self, shape: Shape, state: ClusterState) -> Callable[[int], int] | None:
        """Returns the filter for one row at a time."""
        if not shape.ports:
            return None
        return lambda row: int(state.ports.has_conflict(row, shape.ports))

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Returns dry runs of the ports in use on a row."""
        return (lambda row: _PortsDryRun(shape, state, row)) if shape.ports else None

    def group_constraints(
        self, pod: Pod, shape: Shape, state: ClusterState, tree: TreePods
    ) -> tuple[CapacityConstraint, ...]:
        """Returns an amount of 1 per host port: no two pods of a group use it on one node."""
        return tuple(
            CapacityConstraint(
                _name(port),
                partial(_free_ports, state, port),
                1,
                partial(_uses, port),
                1,
                empty=one_per_row,
            )
            for port in dict.fromkeys(shape.ports)
        )

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Suggests evicting the pods that use the ports."""
        users = []
        conflicting_ports = set()
        for entry in state.pods_on(row):
            used_ports = HostPorts()
            used_ports.add(0, entry.shape.ports, 1)
            if used_ports.has_conflict(0, shape.ports):
                users.append(entry)
                conflicting_ports |= {p[1] for p in shape.ports if used_ports.has_conflict(0, (p,))}
        if users:
            ports = ", ".join(map(str, sorted(conflicting_ports)))
            text = f"port {ports} of {NODE_FIELD} is taken by {format_pods(tuple(users))}"
            yield Fix(text, 1.0 + len(users), removed_pods=tuple(users))

    def hint(self, shape: Shape, event: ClusterEvent) -> bool:
        """Requeues the pod for a new node, and for a deleted pod that used one of the ports."""
        if event.old_pod is None:
            return True
        freed_ports = HostPorts()
        freed_ports.add(0, host_ports(event.old_pod), 1)
        return freed_ports.has_conflict(0, shape.ports)


def _name(port: HostPort) -> str:
    protocol, number, ip = port
    at = "" if ip == ANY_IP else f" at {ip}"
    return f"host port {number}/{protocol}{at}"


def _free_ports(state: ClusterState, port: HostPort, rows: slice) -> Ints:
    free = np.ones(state.capacity, np.int64)
    free[state.ports.conflicts((port,))] = 0
    return free[rows]


def _uses(port: HostPort, shape: Shape) -> int:
    used = HostPorts()
    used.add(0, shape.ports, 1)
    return int(used.has_conflict(0, (port,)))


class _PortsDryRun:
    """Ports in use on one row, while a dry run adds and removes pods.

    As in kube-scheduler the ports are a set: a port of two pods is free when one of them is
    removed.
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
