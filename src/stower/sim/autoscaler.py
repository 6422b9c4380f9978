"""A cluster autoscaler, by the rules of Kubernetes' cluster-autoscaler.

Pending pods that fit on no node, nor on a node being added, add nodes of the cheapest group that
fits them. Nodes below half utilization whose pods all fit elsewhere are removed after a while. Fit
is by requests, node selector and taints. Must not know what pods are for.

Source: kubernetes/autoscaler cluster-autoscaler FAQ and simulator (drain, utilization).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from stower.model.kinds import Node, Pod
from stower.model.kinds.pod import Container
from stower.model.kubelet_admission import selects
from stower.model.resources import PODS, amounts, node_room, pod_requests
from stower.model.taints import Taint, is_tolerated
from stower.model.times import SECOND_NS
from stower.sim.server import Server

UNNEEDED_NS: Final = 600 * SECOND_NS  # --scale-down-unneeded-time, --scale-down-delay-after-add
UTILIZATION: Final = 0.5  # --scale-down-utilization-threshold
BACKOFF_NS: Final = 300 * SECOND_NS  # --initial-node-group-backoff-duration
EMPTY_AT_ONCE: Final = 10  # --max-empty-bulk-delete
SAFE: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
CORDONED: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
KEPT: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

Count = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class NodeGroup(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """Nodes that are alike. `boot_seconds`, `pull_seconds`: from and to; where they are not given,
    those of the day count. `price_per_hour`: of one, in any currency. `outages`: from and to, in
    seconds of each day (UTC), when the provider has none of them to give."""

    name: str
    allocatable: dict[str, str | int | float]
    min: Count = 0
    max: Count = 1_000
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    price_per_hour: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 1.0
    boot_seconds: tuple[Seconds, Seconds] | None = None
    pull_seconds: tuple[Seconds, Seconds] | None = None
    outages: tuple[tuple[Seconds, Seconds], ...] = ()


class Machine(msgspec.Struct):
    """A node from when it was ordered. Times in ns; `ready`, `pulled`: when it will be so."""

    name: str
    group: NodeGroup
    ordered_ns: int
    ready_ns: int
    pulled_ns: int
    unneeded_ns: int | None = None


class Bin:
    """A node as room."""

    def __init__(
        self, room: Mapping[str, int], labels: Mapping[str, str], taints: Iterable[Taint]
    ) -> None:
        self.free = dict(room)
        self._labels = labels
        self._taints = [t for t in taints if t.effect in ("NoSchedule", "NoExecute")]

    def take(self, pod: Pod, needs: Mapping[str, int]) -> bool:
        """Put the pod there, if it fits."""
        if not selects(pod, self._labels, ""):
            return False
        if any(not is_tolerated(pod.spec.tolerations or (), taint) for taint in self._taints):
            return False
        if any(self.free.get(name, 0) < amount for name, amount in needs.items()):
            return False
        for name, amount in needs.items():
            self.free[name] -= amount
        return True


def empty_bin(group: NodeGroup) -> Bin:
    """A node of the group that nothing is on."""
    return Bin(node_room(group.allocatable), group.labels, group.taints)


class Autoscaler:
    """Looks at a server; whoever runs it orders and removes."""

    def __init__(
        self,
        server: Server,
        groups: Iterable[NodeGroup],
        order: Callable[[NodeGroup], bool],
        remove: Callable[[Machine], None],
        is_unschedulable: Callable[[Pod], bool] = lambda pod: True,
    ) -> None:
        """`order`: whether the provider gives one; `is_unschedulable`: whether a pod without a node
        counts."""
        self.failed = 0  # orders for which there was none
        self._backs_off_ns: dict[str, int] = {}  # groups of which none is ordered before then
        self.machines: dict[str, Machine] = {}
        self._server = server
        self._groups = tuple(groups)
        self._rooms = {group.name: node_room(group.allocatable) for group in self._groups}
        self._order = order
        self._remove = remove
        self._is_unschedulable = is_unschedulable
        self._grown_ns: int | None = None
        self._needs: dict[str, tuple[Sequence[Container], Mapping[str, int]]] = {}  # by uid

    def scan(self, now_ns: int) -> None:
        """Every ten seconds."""
        bins, left = self._place_pending(now_ns)
        self._grow(left, now_ns)
        self._shrink(bins, now_ns)

    def needs_of(self, pod: Pod) -> Mapping[str, int]:
        """What the pod asks for."""
        found = self._needs.get(pod.metadata.uid)
        if found is None or found[0] is not pod.spec.containers:
            needs = dict(amounts(pod_requests(pod))) | {PODS: 1}
            found = self._needs[pod.metadata.uid] = pod.spec.containers, needs
        return found[1]

    def bin_of(self, machine: Machine, pods: Iterable[Pod]) -> Bin:
        """A node's room with these pods on it. One that is cordoned has none for others."""
        group, node = machine.group, self._server.get(Node, machine.name)
        taints = group.taints if node is None else (node.spec.taints or ())
        if node is not None and node.spec.unschedulable:
            taints = (*taints, CORDONED)
        made = Bin(self._rooms[group.name], group.labels, taints)
        for pod in pods:
            for name, amount in self.needs_of(pod).items():
                made.free[name] = made.free.get(name, 0) - amount
        return made

    def _place_pending(self, now_ns: int) -> tuple[dict[str, Bin], list[Pod]]:
        """All nodes with whatever waits for room put where it fits; and who is left."""
        bins = {
            m.name: self.bin_of(m, self._pods_on(m) if m.ready_ns <= now_ns else ())
            for m in self.machines.values()
        }
        left = []
        pending = filter(self._is_unschedulable, self._server.pods_on("").values())
        for pod in sorted(pending, key=lambda pod: -pod.priority):
            needs = self.needs_of(pod)
            if not any(one.take(pod, needs) for one in bins.values()):
                left.append(pod)
        return bins, left

    def _count(self, group: NodeGroup) -> int:
        return sum(machine.group.name == group.name for machine in self.machines.values())

    # More

    def _grow(self, left: list[Pod], now_ns: int) -> None:
        while left:
            best: tuple[float, str, NodeGroup, list[Pod]] | None = None
            for group in self._groups:
                is_full = self._count(group) >= group.max
                if is_full or now_ns < self._backs_off_ns.get(group.name, 0):
                    continue
                one = Bin(self._rooms[group.name], group.labels, group.taints)
                taken = [pod for pod in left if one.take(pod, self.needs_of(pod))]
                if taken:
                    found = (group.price_per_hour / len(taken), group.name, group, taken)
                    best = min(best, found, key=lambda f: f[:2]) if best is not None else found
            if best is None:
                return
            if not self._order(best[2]):
                self.failed += 1
                self._backs_off_ns[best[2].name] = now_ns + BACKOFF_NS
                continue
            self._grown_ns = now_ns
            gone = {pod.metadata.uid for pod in best[3]}
            left = [pod for pod in left if pod.metadata.uid not in gone]

    # Fewer

    def _shrink(self, bins: dict[str, Bin], now_ns: int) -> None:
        empty: list[Machine] = []
        drained: list[Machine] = []
        there = (m for m in self.machines.values() if m.name in bins)  # those before this scan
        ready = [m for m in there if m.ready_ns <= now_ns]
        for machine in ready:
            if not self._is_unneeded(machine, ready, bins):
                machine.unneeded_ns = None
                continue
            if machine.unneeded_ns is None:
                machine.unneeded_ns = now_ns
            if now_ns - machine.unneeded_ns >= UNNEEDED_NS:
                (drained if self._movable(machine) else empty).append(machine)
        if self._grown_ns is not None and now_ns - self._grown_ns < UNNEEDED_NS:
            return
        for machine in [*empty[:EMPTY_AT_ONCE], *(drained[:1] if not empty else ())]:
            group = machine.group
            if self._count(group) > group.min:
                del self.machines[machine.name]
                self._remove(machine)

    def _pods_on(self, machine: Machine) -> Iterable[Pod]:
        return self._server.pods_on(machine.name).values()

    def _movable(self, machine: Machine) -> list[Pod]:
        """Pods that would have to go elsewhere."""
        return [pod for pod in self._pods_on(machine) if not _is_of_daemon_set(pod)]

    def _is_unneeded(self, machine: Machine, ready: list[Machine], bins: dict[str, Bin]) -> bool:
        node = self._server.get(Node, machine.name)
        notes = (node.metadata.annotations or {}) if node is not None else {}
        if notes.get(KEPT) == "true":
            return False
        room, pods = self._rooms[machine.group.name], self._movable(machine)
        used: dict[str, int] = {}
        for pod in pods:
            if not _is_evictable(pod):
                return False
            for name, amount in self.needs_of(pod).items():
                used[name] = used.get(name, 0) + amount
        for name in ("cpu", "memory"):
            if room.get(name) and used.get(name, 0) / room[name] >= UTILIZATION:
                return False
        others = [bins[m.name] for m in ready if m is not machine]
        return self.fit(pods, others)

    def fit(self, pods: list[Pod], others: list[Bin]) -> bool:
        """Whether all of them do elsewhere, with what waits."""
        taken: list[tuple[Bin, Mapping[str, int]]] = []
        fits = True
        for pod in pods:
            needs = self.needs_of(pod)
            found = next((one for one in others if one.take(pod, needs)), None)
            if found is None:
                fits = False
                break
            taken.append((found, needs))
        for one, needs in taken:
            for name, amount in needs.items():
                one.free[name] += amount
        return fits


def _is_of_daemon_set(pod: Pod) -> bool:
    owner = pod.metadata.controller
    return owner is not None and owner.kind == "DaemonSet"


def _is_evictable(pod: Pod) -> bool:
    """Whether it may be evicted: somebody makes it again, and nobody says otherwise."""
    said: Any = (pod.metadata.annotations or {}).get(SAFE)
    if said is not None:
        return bool(said == "true")
    return pod.metadata.controller is not None
