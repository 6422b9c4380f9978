"""Finds how many nodes of a kind a load needs.

Nodes are added to a cluster until all pods that wait have a place. Pods that no further node helps
are told apart. No pod is evicted to make room.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from stower.engine.engine import Engine
from stower.framework.events import WatchType
from stower.model.errors import InvalidObject
from stower.model.kinds import Background, Node, Pod, ResourceSlice
from stower.sim.capacity import patient
from stower.sim.node_copies import copy_of_node, slices_of_copy
from stower.sim.node_pods import pods_of_node
from stower.sim.simulation import Use, use_of
from stower.sim.trial_world import TrialWorld, UnplacedPod
from stower.sim.workload import Workload

NODES_MAX = 10_000


class Demand(msgspec.Struct, frozen=True, rename="camel"):
    """How many nodes of a kind a load needs. `nodes`: the smallest number found with which as many
    pods run as with any more; `fewer`: pods that wait with one node less; `unplaced`: pods that no
    more nodes of the kind help; `use`: of all nodes, then."""

    nodes: int
    template: str
    pods: int
    placed: int
    fewer: int
    unplaced: tuple[UnplacedPod, ...]
    use: tuple[Use, ...]


class NodeTemplate(NamedTuple):
    """A node like those that are added. `pods`, `related`: pods and objects among which are those
    that each such node has: of DaemonSets, of the kubelet's own manifests, and devices."""

    node: Node
    pods: tuple[Pod, ...] = ()
    related: tuple[Background, ...] = ()


def nodes_needed(
    workload: Workload,
    template: NodeTemplate,
    build: Callable[[], Engine],
    progress: Callable[[int, int], None] | None = None,
    nodes_max: int = NODES_MAX,
) -> Demand:
    """Returns how many nodes like the template the pods of the workload need beside its own nodes.
    `build` makes an engine for each try. Raises InvalidObject where not even `nodes_max` are
    enough."""
    tried: dict[int, _Try] = {}

    def attempt(count: int) -> _Try:
        if count not in tried:
            tried[count] = _Try(workload, template, build(), count)
            if progress is not None:
                progress(len(tried), len(tried) + 4)
        return tried[count]

    low, high = -1, 0
    while attempt(high).waiting and attempt(high).would_help():
        if high >= nodes_max:
            raise InvalidObject("nodes", high, f"at most {nodes_max:,} nodes, which are too few")
        low, high = high, min(max(1, 2 * high), nodes_max)
    enough = len(attempt(high).waiting)
    while high - low > 1:
        middle = (low + high) // 2
        if len(attempt(middle).waiting) <= enough:
            high = middle
        else:
            low = middle
    found = attempt(high)
    fewer = len(attempt(high - 1).waiting) if high else 0
    return Demand(
        high,
        template.node.metadata.name,
        len(workload.arrivals),
        len(workload.arrivals) - len(found.waiting),
        fewer,
        tuple(UnplacedPod(key, why) for key, why in sorted(found.waiting.items())),
        found.use,
    )


class _Try:
    """A workload that was run with so many more nodes. `waiting`: why each pod waits, by key."""

    def __init__(
        self,
        workload: Workload,
        template: NodeTemplate,
        engine: Engine,
        count: int,
    ) -> None:
        self._template, self._trial = template, TrialWorld(engine)
        self._taken = {node.metadata.name for node in workload.nodes} | {
            template.node.metadata.name
        }
        nodes, own, related = list(workload.nodes), list[Pod](), list(workload.related)
        for _ in range(count):
            node, pods_there, slices = self._more()
            nodes.append(node)
            own += pods_there
            related += slices
        pods = (*workload.placed, *own, *(patient(a.pod) for a in workload.arrivals))
        self._asked = {a.pod.metadata.uid for a in workload.arrivals}
        self._trial.world.start(nodes, pods, related)
        self._trial.world.settle()
        self.use = tuple(use_of(engine.state))
        self.waiting = self._find_waiting()

    def would_help(self) -> bool:
        """Returns whether one more node gives a place to a pod that waits: of pods of groups, which
        have a place together or none, one for each. Ends this try."""
        before, world = set(self.waiting), self._trial.world
        grouped = sum(bool(pod.group_name) for pod in world.list_pending())
        for _ in range(max(1, grouped)):
            node, pods, slices = self._more()
            world.apply_change(WatchType.ADDED, node)
            for one in slices:
                world.apply_change(WatchType.ADDED, one)
            for pod in pods:
                world.add_pod(pod)
        self._trial.settle()
        return set(self._find_waiting()) < before

    def _more(self) -> tuple[Node, list[Pod], list[ResourceSlice]]:
        template = self._template
        node = copy_of_node(template.node, self._taken)
        pods = pods_of_node(template.pods, template.node.metadata.name, node.metadata.name)
        return node, pods, slices_of_copy(template.related, template.node, node)

    def _find_waiting(self) -> dict[str, str]:
        return {
            pod.key: self._trial.reason(pod)
            for pod in self._trial.world.list_pending()
            if pod.metadata.uid in self._asked
        }
