"""Runs an engine over a workload without faults and reports the result."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from stower.assembly import build_engine
from stower.framework.decisions import Decision, Outcome
from stower.framework.plugin import Features, Plugin
from stower.framework.reasons import count_reasons
from stower.framework.recording import Recording
from stower.model.kinds import Pod, ResourceClaim
from stower.model.resources import PODS
from stower.model.selectors import LabelSelector
from stower.model.times import SECOND_NS
from stower.sim.untried import untried_reason
from stower.sim.workload import Workload
from stower.sim.world import World
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.topology import domain_sums

# Points of the curve of use over arrivals; more would not be seen in a plot.
CURVE_POINTS: Final = 400
# Once all pods have come, so many times the longest backoff passes at most in which fewer than a
# hundredth of the pods that wait are placed: what is left takes more work than it is worth.
IDLE_BACKOFFS_MAX: Final = 5

Progress = Callable[[int, int], None]


class Use(msgspec.Struct, frozen=True):
    """One resource over all nodes: cpu in milli-CPU, everything else in its base unit."""

    resource: str
    allocatable: int
    requested: int

    @property
    def percent(self) -> float:
        """Share in use."""
        return 100 * self.requested / self.allocatable if self.allocatable else 0.0


class WaitingPods(msgspec.Struct, frozen=True):
    """Pods that wait with this message."""

    message: str
    pods: int
    example: str


class Domain(msgspec.Struct, frozen=True, rename="camel"):
    """One topology domain: its nodes, the pods on them (or those that match), use of cpu."""

    value: str
    nodes: int
    pods: int
    cpu_percent: float


class NodeUse(msgspec.Struct, frozen=True):
    """One node's use, for the heat map."""

    name: str
    percent: dict[str, float]


class Placements(msgspec.Struct, frozen=True):
    """How the run leaves pods and claims."""

    pods: tuple[Pod, ...]
    claims: tuple[ResourceClaim, ...]
    evicted: frozenset[str]  # keys of pods


class Report(msgspec.Struct, frozen=True):
    """What one configuration made of the workload."""

    policy: str
    nodes: int
    empty_nodes: int
    pods: int
    placed: int
    pending: int
    ended: int
    evictions: int
    waited_seconds: float  # how long pods waited for their node, all together
    waiting: tuple[WaitingPods, ...]
    refusals: dict[str, int]
    use: tuple[Use, ...]
    domains: tuple[Domain, ...]
    attempts: int
    seconds: float
    pods_per_second: float
    curve: tuple[tuple[int, dict[str, float]], ...]
    node_use: tuple[NodeUse, ...]
    assignments: dict[str, str]
    placements: Placements | None = None  # where the options ask for them


class Options(msgspec.Struct, frozen=True):
    """How to run and what to count."""

    seed: int = 0
    timed: bool = False
    by: str = ""
    match: LabelSelector | None = None
    features: Features = Features()
    plugins: tuple[type[Plugin], ...] = ()  # of others
    has_placements: bool = False


def simulate(
    workload: Workload,
    policy: str,
    configuration: Mapping[str, Any] | None,
    options: Options,
    progress: Progress | None = None,
    recording: Recording | None = None,
) -> Report:
    """Run the workload under the configuration. Raises InvalidObject for a configuration that is
    none.

    The same workload, configuration and seed give the same report, but for the time that it took.
    """
    engine = build_engine(
        configuration,
        seed=options.seed,
        features=options.features,
        plugins=options.plugins,
        contains_errors=False,
    )
    attempts = 0

    def count(decision: Decision) -> None:
        nonlocal attempts
        attempts += 1
        last[decision.uid] = decision

    last: dict[str, Decision] = {}
    world = World(engine, count, recording)
    curve: list[tuple[int, dict[str, float]]] = []
    total = len(workload.arrivals)
    stride = max(1, total // CURVE_POINTS)

    looking = 0.0

    def on_arrival(number: int) -> None:
        nonlocal looking
        if number % stride == 0 or number == total:
            began = time.perf_counter()
            curve.append((number, _shares(engine.state)))
            if progress is not None:
                progress(number, total)
            looking += time.perf_counter() - began

    started = time.perf_counter()
    if workload.at_once:
        run_at_once(world, workload, last)
        on_arrival(total)
    elif options.timed or workload.is_history:
        run_timed(world, workload, on_arrival)
    else:
        world.start(workload.nodes, workload.placed, workload.related)
        for number, arrival in enumerate(workload.arrivals, 1):
            world.add_pod(arrival.pod)
            on_arrival(number)
        _retry(world, last)
    # The scheduler's time: looking at it for the report does not count.
    seconds = time.perf_counter() - started - looking
    return _report(workload, policy, options, world, last, attempts, seconds, tuple(curve))


def run_at_once(world: World, workload: Workload, last: Mapping[str, Decision]) -> None:
    """Schedules all pods of a workload that are pending at its start. `last`: the last decision for
    each pod, by uid, which the world keeps up to date."""
    pods = (*workload.placed, *(arrival.pod for arrival in workload.arrivals))
    world.start(workload.nodes, pods, workload.related)
    world.settle()
    _retry(world, last)


def _retry(world: World, last: Mapping[str, Decision]) -> None:
    """Lets time pass for as long as attempts bring something new: some have no answer yet, as the
    scheduler limits the work of each."""
    before: dict[str, str] = {}
    idle_count = 0
    while idle_count < IDLE_BACKOFFS_MAX:
        waiting = [pod.metadata.uid for pod in world.list_pending()]
        decisions = {uid: last[uid] for uid in waiting if uid in last}
        messages = {uid: decision.message for uid, decision in decisions.items()}
        has_errors = any(d.outcome is Outcome.ERROR for d in decisions.values())
        if messages == before and not has_errors:
            break
        before = messages
        world.advance(world.now_ns + world.engine.limits.backoff_max_ns)
        placed = len(waiting) - len(world.list_pending())
        idle_count = idle_count + 1 if 100 * placed < max(1, len(waiting)) else 0
    if world.list_pending():
        # Whoever waits is tried once more, beside the pods that came after it: the last attempt
        # says what is so at the end.
        limits = world.engine.limits
        world.advance(world.now_ns + limits.unschedulable_max_ns + limits.backoff_max_ns)


def run_timed(world: World, workload: Workload, arrived: Callable[[int], None]) -> None:
    """Everything at its own time; ends come first where both are due, and changes of a pod after
    the pod."""
    world.start(workload.nodes, workload.placed, workload.related, workload.lasts_ns)
    uids = {arrival.pod.metadata.uid for arrival in workload.arrivals}
    moments = [
        (happened.at_ns, 3 if happened.object.metadata.uid in uids else 1, i)
        for i, happened in enumerate(workload.happened)
    ]
    for i, arrival in enumerate(workload.arrivals):
        moments.append((arrival.at_ns, 2, i))
        if arrival.ends_ns is not None:
            # A pod that ends at once has lived for a moment all the same.
            at_ns = max(arrival.ends_ns, arrival.at_ns + 1)
            moments.append((at_ns, 0, i))
    number = 0
    for at_ns, what, i in sorted(moments):
        world.advance(at_ns)
        if what == 2:
            arrival = workload.arrivals[i]
            world.add_pod(arrival.pod, arrival.lasts_ns)
            number += 1
            arrived(number)
        elif what in (1, 3):
            happened = workload.happened[i]
            world.apply_change(happened.type, happened.object)
        else:
            world.delete_pod(workload.arrivals[i].pod.metadata.uid)
    # What the last end made room for may still be waiting out its backoff.
    world.advance(world.now_ns + world.engine.limits.backoff_max_ns)


def _report(
    workload: Workload,
    policy: str,
    options: Options,
    world: World,
    last: Mapping[str, Decision],
    attempts: int,
    seconds: float,
    curve: tuple[tuple[int, dict[str, float]], ...],
) -> Report:
    state = world.engine.state
    arrived = {a.pod.metadata.uid for a in workload.arrivals}
    placed = sum(d.outcome is Outcome.PLACED for uid, d in last.items() if uid in arrived)
    waiting = _count_waiting(world, last)
    pending = sum(entry.pods for entry in waiting)
    refusals: dict[str, int] = {}
    for pod in world.list_pending():
        decision = last.get(pod.metadata.uid)
        if decision is not None and decision.diagnosis is not None:
            for reason in count_reasons(decision.diagnosis.refused):
                refusals[reason] = refusals.get(reason, 0) + 1
    rows = state.present_rows()
    return Report(
        policy=policy,
        nodes=state.node_count,
        empty_nodes=sum(not state.pods_by_row[row] for row in rows),
        pods=len(workload.arrivals),
        placed=placed,
        pending=pending,
        ended=sum(uid not in world.pods for uid in arrived),
        evictions=len(world.evicted),
        waited_seconds=_wait_seconds(workload, last),
        waiting=waiting,
        refusals=dict(sorted(refusals.items(), key=lambda item: (-item[1], item[0]))),
        use=use_of(state),
        domains=_domains(state, options) if options.by else (),
        attempts=attempts,
        seconds=seconds,
        pods_per_second=len(workload.arrivals) / seconds if seconds else 0.0,
        curve=curve,
        node_use=tuple(_node_use(state, row) for row in rows),
        assignments={
            pod.key: pod.spec.node_name for pod in world.pods.values() if pod.spec.node_name
        },
        placements=_placements(world) if options.has_placements else None,
    )


def _placements(world: World) -> Placements:
    left = tuple(world.pods.values())
    evicted = frozenset(pod.key for pod in world.evicted) - {pod.key for pod in left}
    return Placements(left, world.claims, evicted)


def _wait_seconds(workload: Workload, last: Mapping[str, Decision]) -> float:
    """Of the pods that were placed, from when they came."""
    total = 0
    for arrival in workload.arrivals:
        decision = last.get(arrival.pod.metadata.uid)
        if decision is not None and decision.outcome is Outcome.PLACED:
            total += max(0, decision.at_ns - arrival.at_ns)
    return total / SECOND_NS


def _count_waiting(world: World, last: Mapping[str, Decision]) -> tuple[WaitingPods, ...]:
    """Pending pods by message, most first."""
    groups: dict[str, list[str]] = {}
    for pod in world.list_pending():
        decision = last.get(pod.metadata.uid)
        message = untried_reason(world.engine, pod) if decision is None else decision.message
        groups.setdefault(message, []).append(pod.key)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(WaitingPods(message, len(keys), keys[0]) for message, keys in ordered)


def use_of(state: ClusterState) -> tuple[Use, ...]:
    """All resources that some node has, pods last."""
    live = state.present[state.all_rows]
    result = []
    for name in sorted(state.columns, key=lambda name: (name == PODS, "/" in name, name)):
        column = state.columns[name]
        allocatable = _total(column.allocatable[state.all_rows][live])
        requested = _total(column.requested[state.all_rows][live])
        if allocatable or requested:
            result.append(Use(name, allocatable, requested))
    return tuple(result)


def _total(amounts: Ints) -> int:
    """The exact sum: bytes of a cluster can outgrow 64 bits, so the halves are summed apart."""
    return (int((amounts >> 32).sum()) << 32) + int((amounts & 0xFFFF_FFFF).sum())


def _shares(state: ClusterState) -> dict[str, float]:
    return {use.resource: round(use.percent, 3) for use in use_of(state)}


def _node_use(state: ClusterState, row: int) -> NodeUse:
    percent = {}
    for name, column in state.columns.items():
        if column.allocatable_cells[row]:
            percent[name] = round(
                100 * column.requested_cells[row] / column.allocatable_cells[row], 2
            )
    return NodeUse(state.node_names[row], percent)


def _domains(state: ClusterState, options: Options) -> tuple[Domain, ...]:
    """Nodes, pods and use of cpu per value of the topology key."""
    rows = state.all_rows
    cpu = state.column("cpu")
    counts = state.columns[PODS].requested[rows]
    if options.match is not None:
        counts = state.tally((None, options.match)).counts[rows]
    nodes = domain_sums(state, options.by, np.ones(state.row_limit, np.int64))
    pods = domain_sums(state, options.by, counts)
    used = domain_sums(state, options.by, cpu.requested[rows])
    room = domain_sums(state, options.by, cpu.allocatable[rows])
    return tuple(
        Domain(
            value, nodes[value], pods[value], 100 * used[value] / room[value] if room[value] else 0
        )
        for value in nodes
    )
