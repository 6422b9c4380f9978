"""Tries the moves of a plan one after the other in a world, and returns them as steps that a person
or a script carries out: cordon, evict, uncordon.

The node that pods leave is cordoned meanwhile, so that they do not come back to it. A plan whose
pods end elsewhere than planned is told as it went; moves that leave a pod without a node are not
proposed.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from stower.engine.engine import Engine
from stower.framework.events import Hold, Listed, WatchType
from stower.model.kinds import Pod
from stower.sim.capacity import make_pending
from stower.sim.rebalance import Relocation, RelocationSearch
from stower.sim.trial_world import TrialWorld, UnplacedPod
from stower.sim.workload import Workload
from stower.state.pod_entry import PodEntry

MOVES_MAX: Final = 100  # of one plan, where nothing is said


class Step(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One step. `node`: the node that is cordoned or uncordoned, or that the pod leaves; `pod`,
    `to`: the pod that is evicted, and the node that it got when the step was tried."""

    action: Literal["cordon", "evict", "uncordon"]
    node: str
    pod: str = ""
    to: str = ""


class Plan(msgspec.Struct, frozen=True, rename="camel"):
    """Steps that let pods that wait run, or that empty nodes. `moves`: evictions; `bound`: no plan
    for the same pods or number of nodes has fewer; `places`: the nodes of pods that waited;
    `emptied`: nodes without pods but those that belong to them; `unplaced`: pods that still wait;
    `searched`: sets of pods that were tried; `kept`: why pods do not move, by key."""

    steps: tuple[Step, ...]
    moves: int
    bound: int
    places: dict[str, str]
    emptied: tuple[str, ...]
    unplaced: tuple[UnplacedPod, ...]
    searched: int
    kept: dict[str, str]


def plan_placements(
    workload: Workload,
    build: Callable[[], Engine],
    only: Callable[[Pod], bool] = lambda pod: True,
    moves_max: int = MOVES_MAX,
) -> Plan:
    """Returns moves that let the pods that wait run, those of the highest priority first. `only`:
    which pods; `build` makes an engine for each try."""
    engine = _engine_of(workload, build())
    state = engine.state
    waiting = [e for e in state.pods.values() if e.row < 0 and only(e.pod)]
    waiting = [e for e in waiting if not (e.pod.spec.scheduling_gates or e.is_deletion_pending)]
    order = {arrival.pod.metadata.uid: i for i, arrival in enumerate(workload.arrivals)}
    waiting.sort(key=lambda e: (-e.pod.priority, order.get(e.uid, 0)))
    search = RelocationSearch(engine)
    found: list[Relocation] = []
    count = 0
    with state.trial():
        for _, relocation in search.place(waiting):
            if relocation and relocation.moves and count + len(relocation.moves) <= moves_max:
                found.append(relocation)
                count += len(relocation.moves)
    tried = _try_all(workload, build, found, state.node_names)
    helped = tried.helped
    places = {
        arrival.pod.key: helped[arrival.pod.metadata.uid]
        for arrival in workload.arrivals
        if arrival.pod.metadata.uid in helped
    }
    unplaced = [
        UnplacedPod(entry.pod.key, tried.reason(entry.pod))
        for entry in waiting
        if not tried.node_of(entry.uid)
    ]
    bound = search.fewest_for([e for e in state.pods.values() if e.uid in helped])
    return Plan(
        tried.steps, tried.moves, bound, places, (), tuple(unplaced), search.searched, search.kept
    )


def plan_empty_nodes(
    workload: Workload, build: Callable[[], Engine], count: int, moves_max: int = MOVES_MAX
) -> Plan:
    """Returns moves that empty so many nodes, or fewer where no more can be."""
    engine = _engine_of(workload, build())
    search = RelocationSearch(engine)
    counts = search.fewest_on_nodes()
    with engine.state.trial():
        found = search.empty(count, moves_max)
    bound = sum(counts[: len(found)])
    tried = _try_all(workload, build, found, engine.state.node_names)
    return Plan(
        tried.steps, tried.moves, bound, {}, tuple(tried.emptied), (), search.searched, search.kept
    )


def _engine_of(workload: Workload, engine: Engine) -> Engine:
    """An engine that knows the workload and schedules nothing."""
    pods = (*workload.placed, *(arrival.pod for arrival in workload.arrivals))
    engine.step(Hold(True), 0)
    engine.step(Listed((*workload.related, *workload.nodes, *pods)), 0)
    return engine


class _Tried:
    """The steps that were tried in a world. `emptied`: names of nodes."""

    def __init__(self, workload: Workload, engine: Engine) -> None:
        self.steps: tuple[Step, ...] = ()
        self.moves = 0
        self.emptied: list[str] = []
        self._trial = TrialWorld(engine)
        self._world = self._trial.world
        self._nodes = {node.metadata.name: node for node in workload.nodes}
        self._asked = [arrival.pod.metadata.uid for arrival in workload.arrivals]
        pods = (*workload.placed, *(arrival.pod for arrival in workload.arrivals))
        self._world.start(workload.nodes, pods, workload.related)
        self._trial.settle()
        self._at_first = self._placed()

    @property
    def helped(self) -> dict[str, str]:
        """Nodes of pods that run and did not before the first step, by uid."""
        return {uid: self.node_of(uid) for uid in self._placed() - self._at_first}

    def run(self, found: Relocation, node_names: Sequence[str]) -> bool:
        """Tries the steps of one relocation; returns whether all of its pods have a node then."""
        last_rows = {move.from_row: i for i, move in enumerate(found.moves)}
        main = node_names[found.row]
        steps: list[Step] = []
        self._cordon(main, steps)  # nobody is to come to it meanwhile
        is_good, before, is_emptied = True, self._placed(), found.entry is None
        for i, move in enumerate(found.moves):
            name = node_names[move.from_row]
            self._cordon(name, steps)
            target = self._evict(move.entry)
            steps.append(Step("evict", name, move.entry.pod.key, target))
            is_good &= bool(target)
            if not is_emptied and last_rows[move.from_row] == i:
                self._uncordon(name, steps)
        self._trial.settle()
        if not is_emptied:  # also if it is another pod than planned
            is_good &= before < self._placed()
        if is_good:
            self.steps += tuple(steps)
            self.moves += len(found.moves)
            self.emptied += [main] if is_emptied else []
        return is_good

    def node_of(self, uid: str) -> str:
        """Returns the node of a pod, "" for none."""
        pod = self._world.pods.get(uid)
        return pod.spec.node_name if pod is not None else ""

    def reason(self, pod: Pod) -> str:
        """Returns why a pod waits after all steps."""
        return self._trial.reason(pod)

    def _placed(self) -> set[str]:
        return {uid for uid in self._asked if self.node_of(uid)}

    def _cordon(self, name: str, steps: list[Step]) -> None:
        """Cordons a node that is not yet. One that somebody has cordoned before stays so."""
        if not self._nodes[name].spec.unschedulable:
            steps.append(Step("cordon", name))
            self._set_unschedulable(name, True)

    def _uncordon(self, name: str, steps: list[Step]) -> None:
        if any(step.action == "cordon" and step.node == name for step in steps):
            steps.append(Step("uncordon", name))
            self._set_unschedulable(name, False)

    def _set_unschedulable(self, name: str, is_cordoned: bool) -> None:
        known = self._nodes[name]
        spec = msgspec.structs.replace(known.spec, unschedulable=is_cordoned)
        self._nodes[name] = msgspec.structs.replace(known, spec=spec)
        self._world.apply_change(WatchType.MODIFIED, self._nodes[name])

    def _evict(self, entry: PodEntry) -> str:
        """Has a pod leave, and its controller make it again; returns its node then."""
        pod = entry.pod
        again = make_pending(pod, pod.metadata.name, f"{pod.metadata.uid}-moved")
        made, claims = self._world.recreate(pod, again)
        self._world.delete_pod(pod.metadata.uid)
        self._trial.add(made, claims)
        self._trial.settle()
        return self.node_of(made.metadata.uid)


def _try_all(
    workload: Workload,
    build: Callable[[], Engine],
    found: list[Relocation],
    node_names: Sequence[str],
) -> _Tried:
    """Tries all relocations in their order; without one that does not work, all are tried again."""
    left = list(found)
    while True:
        tried = _Tried(workload, build())
        bad = next((r for r in left if not tried.run(r, node_names)), None)
        if bad is None:
            return tried
        left.remove(bad)
