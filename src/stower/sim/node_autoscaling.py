"""The cluster autoscaler of a run with faults, and the provider of its nodes.

Scans until the active time ends. A node that is ordered registers after its boot time, and has the
images after its pull time. A node that is removed takes its pods with it.
"""

import random
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from stower.framework.events import WatchType
from stower.model.defaults import with_node_defaults
from stower.model.kinds import Node, Pod
from stower.model.times import SECOND_NS, time_text
from stower.sim.agenda import Agenda
from stower.sim.autoscaler import Autoscaler, Machine, NodeGroup
from stower.sim.nodes import Kubelets
from stower.sim.server import Change, Server

SCAN_NS: Final = 10 * SECOND_NS  # --scan-interval
IMAGE_BYTES: Final = 1 << 30
ZONES: Final = 3


class NodeAutoscaling:
    """The autoscaler of a run, once `start` is called."""

    def __init__(
        self,
        agenda: Agenda,
        server: Server,
        kubelets: Kubelets,
        chance: random.Random,
        active_ns: int,
    ) -> None:
        """`active_ns`: when the last scan is over."""
        self._agenda = agenda
        self._server = server
        self._kubelets = kubelets
        self._chance = chance
        self._active_ns = active_ns
        self._autoscaler: Autoscaler | None = None
        self._images: tuple[str, ...] = ()
        self.ordered = 0
        self.removed = 0

    def start(self, groups: Iterable[NodeGroup], images: tuple[str, ...]) -> None:
        """Begins to scan for these node groups; does nothing if it has begun. `images`: those that
        nodes pull."""
        if self._autoscaler is not None:
            return
        self._autoscaler = Autoscaler(
            self._server, groups, self._order, self._remove, is_unschedulable
        )
        self._images = images
        self._server.tell.append(self._on_change)
        self._scan()

    def _scan(self) -> None:
        if self._autoscaler is None or self._agenda.now_ns >= self._active_ns:
            return
        self._autoscaler.scan(self._agenda.now_ns)
        self._agenda.schedule_after(SCAN_NS, self._scan)

    def _order(self, group: NodeGroup) -> bool:
        assert self._autoscaler is not None
        name = f"{group.name}-{self.ordered}"
        self.ordered += 1
        now_ns = self._agenda.now_ns
        ready_ns = now_ns + int(self._chance.uniform(*(group.boot_seconds or (0, 0))) * SECOND_NS)
        pull_ns = int(self._chance.uniform(*(group.pull_seconds or (0, 0))) * SECOND_NS)
        machine = Machine(name, group, now_ns, ready_ns, ready_ns + pull_ns)
        self._autoscaler.machines[name] = machine
        self._agenda.schedule_at(machine.ready_ns, lambda: self._register(machine))
        self._agenda.schedule_at(machine.pulled_ns, lambda: self._finish_pull(name))
        return True

    def _register(self, machine: Machine) -> None:
        assert self._autoscaler is not None
        if machine.name not in self._autoscaler.machines:
            return
        group, number = machine.group, self.ordered
        document: dict[str, Any] = {
            "metadata": {
                "name": machine.name, "uid": f"{machine.name}-0",
                "creationTimestamp": time_text(self._agenda.now_ns),
                "labels": {
                    **group.labels, "kubernetes.io/hostname": machine.name,
                    "kubernetes.io/os": "linux",
                    "topology.kubernetes.io/zone": f"zone-{number % ZONES}",
                },
            },
            "spec": {"taints": msgspec.to_builtins(group.taints)},
            "status": {"allocatable": group.allocatable, "capacity": group.allocatable},
        }  # fmt: skip
        self._server.put(with_node_defaults(msgspec.convert(document, Node), f"{machine.name}-0"))

    def _finish_pull(self, name: str) -> None:
        node = self._server.get(Node, name)
        if node is None:
            return
        listed = {"images": [{"names": [i], "sizeBytes": IMAGE_BYTES} for i in self._images]}
        images = msgspec.convert(listed, type(node.status)).images
        status = msgspec.structs.replace(node.status, images=images)
        self._server.put(msgspec.structs.replace(node, status=status))

    def _remove(self, machine: Machine) -> None:
        self.removed += 1
        self._kubelets.remove_node(machine.name)

    def _on_change(self, change: Change) -> None:
        _, kind, obj = change
        if self._autoscaler is not None and kind is WatchType.DELETED and isinstance(obj, Node):
            self._autoscaler.machines.pop(obj.metadata.name, None)


def is_unschedulable(pod: Pod) -> bool:
    """Returns whether a scheduler has found no node for the pod."""
    return any(
        one.type == "PodScheduled" and one.status == "False" and one.reason == "Unschedulable"
        for one in pod.status.conditions or ()
    )
