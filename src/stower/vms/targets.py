"""Finds nodes to which VMs may migrate: a node stays at or below its own watermark with the VM, and
with the VMs that are on their way there.

Must not know the scheduler: whether a pod fits on a node otherwise is asked of `fits`.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from stower.vms.amounts import cpu_value, memory_value
from stower.vms.nodes import Use, VmNode, discounted_amount
from stower.vms.pods import Holding, PodState

Fits = Callable[[str, str], bool]  # the uid of a pod, the name of a node


Held = Callable[[str], PodState | None]  # namespace/name of a pod


class Plan(NamedTuple):
    """A VM that is to migrate. `source`, `target`: the pods that it leaves and comes to, as
    namespace/name ("": nobody knows); `node`: where there is room for it."""

    source: str
    node: str
    target: str = ""


class Targets:
    """Finds targets among nodes as they are when it is asked."""

    def __init__(self, fits: Fits, held: Held) -> None:
        """`held`: a pod as it counts on a node, None where it does not."""
        self._fits = fits
        self.held = held

    def find(
        self, pod: PodState, source: str, nodes: Iterable[VmNode], plans: Iterable[Plan] = ()
    ) -> str:
        """Returns the node with the most room for the pod's VM, "" where there is none. `plans`: of
        all VMs that are to migrate; they count until their target pods do."""
        inbound: dict[str, list[PodState]] = {}
        for plan in plans:
            leaves = self.held(plan.source)
            has_come = bool(plan.target) and self.held(plan.target) is not None
            if leaves is not None and leaves.vm != pod.vm and not has_come:
                inbound.setdefault(plan.node, []).append(leaves)
        rooms = sorted(
            (-room, node.name)
            for node in nodes
            if node.name != source
            and (room := _least_room(node, pod, inbound.get(node.name, []))) >= 0
        )
        return next((name for _, name in rooms if self._fits(pod.uid, name)), "")

    @staticmethod
    def lack(pod: PodState, source: str, nodes: Iterable[VmNode]) -> str:
        """Returns what the pod's VM lacks on the other nodes, for people."""
        others = [node for node in nodes if node.name != source]
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


def _least_room(node: VmNode, pod: PodState, inbound: list[PodState]) -> float:
    """Returns the share of the node that is left below its watermark with the pod, of the resource
    of which less is left; negative where the pod has no room."""
    return min(
        _room(node.cpu, pod.cpu, [one.cpu for one in inbound]),
        _room(node.memory, pod.memory, [one.memory for one in inbound]),
    )


def _room(use: Use, own: Holding, inbound: list[Holding]) -> float:
    taken = sum(discounted_amount(holding, use.mask) for holding in (own, *inbound))
    return (use.watermark - use.reserved - taken) / max(use.total, 1)
