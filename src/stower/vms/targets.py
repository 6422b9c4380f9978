"""Finds nodes to which VMs may migrate: a node stays at or below its own watermark with the VM, and
with the VMs that are on their way there.

Must not know the scheduler: whether a pod fits on a node otherwise is asked of `fits`.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from stower.state.arrays import Floats
from stower.vms.amounts import CPU_MASK, MEMORY_MASK, cpu_value, memory_value
from stower.vms.nodes import VmNode, discounted_amount
from stower.vms.pods import PodState

Fits = Callable[[str, str], bool]  # the uid of a pod, the name of a node
Held = Callable[[str], PodState | None]  # namespace/name of a pod


class Plan(NamedTuple):
    """A VM that is to migrate. `source`, `target`: the pods that it leaves and comes to, as
    namespace/name ("": nobody knows); `node`: where there is room for it."""

    source: str
    node: str
    target: str = ""


class Rooms(NamedTuple):
    """What is left below the watermark of each node, and what there is: float64[nodes] each, in
    milli-CPU and bytes. Negative above the watermark."""

    names: list[str]
    cpu: Floats
    cpu_total: Floats
    memory: Floats
    memory_total: Floats


def rooms_of(nodes: Iterable[VmNode]) -> Rooms:
    """Returns the rooms of these nodes."""
    nodes = [*nodes]
    return Rooms(
        [node.name for node in nodes],
        np.array([node.cpu.watermark - node.cpu.reserved for node in nodes], float),
        np.array([node.cpu.total for node in nodes], float),
        np.array([node.memory.watermark - node.memory.reserved for node in nodes], float),
        np.array([node.memory.total for node in nodes], float),
    )


class Targets:
    """Begins searches, each among nodes as they are then."""

    def __init__(self, rooms: Callable[[], Rooms], fits: Fits, held: Held) -> None:
        """`held`: a pod as it counts on a node, None where it does not."""
        self._rooms = rooms
        self._fits = fits
        self.held = held

    def search(self, plans: Iterable[Plan] = ()) -> "TargetSearch":
        """Returns a search. `plans`: of all VMs that are to migrate; they count until their target
        pods do."""
        search = TargetSearch(self._rooms(), self._fits)
        for plan in plans:
            leaves = self.held(plan.source)
            has_come = bool(plan.target) and self.held(plan.target) is not None
            if leaves is not None and not has_come:
                search.take(leaves, plan.node)
        return search


class TargetSearch:
    """A search for the targets of some VMs, one after another."""

    def __init__(self, rooms: Rooms, fits: Fits) -> None:
        self._rooms = rooms
        self._fits = fits
        self._at = {name: i for i, name in enumerate(rooms.names)}
        self._cpu = rooms.cpu.copy()
        self._memory = rooms.memory.copy()
        self._taken: dict[str, tuple[int, int, int]] = {}  # by VM: which node, how much

    def take(self, pod: PodState, node_name: str) -> None:
        """Counts the pod's VM on a node."""
        i = self._at.get(node_name)
        if i is None or pod.vm in self._taken:
            return
        cpu, memory = _amounts(pod)
        self._cpu[i] -= cpu
        self._memory[i] -= memory
        self._taken[pod.vm] = i, cpu, memory

    def find(self, pod: PodState, source: str) -> str:
        """Returns the node with the most room for the pod's VM, "" where there is none."""
        rooms, (cpu, memory) = self._rooms, _amounts(pod)
        left_cpu, left_memory = self._cpu - cpu, self._memory - memory
        if pod.vm in self._taken:
            i, own_cpu, own_memory = self._taken[pod.vm]
            left_cpu[i] += own_cpu
            left_memory[i] += own_memory
        shares = np.minimum(
            left_cpu / np.maximum(rooms.cpu_total, 1),
            left_memory / np.maximum(rooms.memory_total, 1),
        )
        if source in self._at:
            shares[self._at[source]] = -1
        while (most := shares.max(initial=-1)) >= 0:
            name = min(rooms.names[i] for i in np.flatnonzero(shares == most))
            if self._fits(pod.uid, name):
                return name
            shares[self._at[name]] = -1
        return ""

    def lack(self, pod: PodState, source: str) -> str:
        """Returns what the pod's VM lacks on the other nodes, for people."""
        others = np.array([name != source for name in self._rooms.names], bool)
        if not others.any():
            return "there is no other node"
        cpu, memory = (int(r[others].max()) for r in (self._rooms.cpu, self._rooms.memory))
        needs_cpu, needs_memory = pod.cpu.reserved, pod.memory.reserved
        if cpu >= needs_cpu and memory >= needs_memory:
            return "no other node would stay below its watermark and fits its pod otherwise"
        amounts = (
            ("CPU", cpu_value(needs_cpu), cpu_value(max(cpu, 0)), cpu - needs_cpu),
            ("memory", memory_value(needs_memory), memory_value(max(memory, 0)),
             memory - needs_memory),
        )  # fmt: skip
        parts = [
            f"{what} {needs}, at most {has} is free below the watermark of another node"
            for what, needs, has, left in amounts
            if left < 0
        ]
        return "needs " + "; ".join(parts)


def _amounts(pod: PodState) -> tuple[int, int]:
    return discounted_amount(pod.cpu, CPU_MASK), discounted_amount(pod.memory, MEMORY_MASK)
