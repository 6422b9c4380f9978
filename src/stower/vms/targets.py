"""Finds nodes to which VMs may migrate: a node stays at or below its own watermark with the VM, and
with the VMs that are on their way there.

Must not know the scheduler: whether a pod fits on a node otherwise is asked of `fits`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from stower.vms.amounts import cpu_value, memory_value
from stower.vms.nodes import Use, VmNode, discounted_amount
from stower.vms.pods import Holding, PodState

Fits = Callable[[str, str], bool]  # the uid of a pod, the name of a node


class Inbound(NamedTuple):
    """A VM that is to migrate: the uid of the pod that it leaves, and its planned node."""

    uid: str
    node: str
    cpu: Holding
    memory: Holding


class Targets:
    """The planned targets of migrations whose target pods have no node yet, by VM."""

    def __init__(self, nodes: Callable[[], Mapping[str, VmNode]], fits: Fits) -> None:
        """`nodes`: all nodes by name."""
        self._nodes = nodes
        self._fits = fits
        self._inbound: dict[str, Inbound] = {}

    def plan(self, pod: PodState, node_name: str) -> None:
        """Counts the pod's VM on a node until its target pod counts there."""
        self._inbound[pod.vm] = Inbound(pod.uid, node_name, pod.cpu, pod.memory)

    def on_pod(self, pod: PodState) -> None:
        """Takes a pod that counts on a node now: the target pod of a VM ends its plan."""
        planned = self._inbound.get(pod.vm) if pod.vm else None
        if planned is not None and planned.uid != pod.uid:
            del self._inbound[pod.vm]

    def forget(self, uid: str) -> None:
        """Forgets the plan for the VM of a pod."""
        for vm in [vm for vm, one in self._inbound.items() if one.uid == uid]:
            del self._inbound[vm]

    def drop(self, vm: str) -> None:
        """Forgets the plan of a VM that does not migrate any more."""
        self._inbound.pop(vm, None)

    def find(self, pod: PodState, source: str) -> str:
        """Returns the node with the most room for the pod's VM, "" where there is none."""
        inbound: dict[str, list[Inbound]] = {}
        for vm, one in self._inbound.items():
            if vm != pod.vm:
                inbound.setdefault(one.node, []).append(one)
        rooms = sorted(
            (-room, name)
            for name, node in self._nodes().items()
            if name != source and (room := _least_room(node, pod, inbound.get(name, []))) >= 0
        )
        return next((name for _, name in rooms if self._fits(pod.uid, name)), "")

    def lack(self, pod: PodState, source: str) -> str:
        """Returns what the pod's VM lacks on the other nodes, for people."""
        others = [node for name, node in self._nodes().items() if name != source]
        if not others:
            return "there is no other node"
        cpu = max(node.cpu.watermark - node.cpu.reserved for node in others)
        memory = max(node.memory.watermark - node.memory.reserved for node in others)
        if cpu >= pod.cpu.reserved and memory >= pod.memory.reserved:
            return "no other node would stay below its watermark and fits its pod otherwise"
        amounts = (
            ("CPU", cpu_value(pod.cpu.reserved), cpu_value(max(cpu, 0)), cpu - pod.cpu.reserved),
            ("memory", memory_value(pod.memory.reserved), memory_value(max(memory, 0)),
             memory - pod.memory.reserved),
        )  # fmt: skip
        parts = [
            f"{what} {needs}, at most {has} is free below the watermark of another node"
            for what, needs, has, left in amounts
            if left < 0
        ]
        return "needs " + "; ".join(parts)


def _least_room(node: VmNode, pod: PodState, inbound: list[Inbound]) -> float:
    """Returns the share of the node that is left below its watermark with the pod, of the resource
    of which less is left; negative where the pod has no room."""
    return min(
        _room(node.cpu, pod.cpu, [one.cpu for one in inbound]),
        _room(node.memory, pod.memory, [one.memory for one in inbound]),
    )


def _room(use: Use, own: Holding, inbound: list[Holding]) -> float:
    taken = sum(discounted_amount(holding, use.mask) for holding in (own, *inbound))
    return (use.watermark - use.reserved - taken) / max(use.total, 1)
