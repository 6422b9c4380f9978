"""Measures the allocation rate of a packing policy: pods of a trace arrive until the GPUs are full.

The rule of the OpenB studies: pods arrive one after another and none ends; a pod that fits nowhere
counts as arrived and is not retried. The result is the allocated share of the GPUs at each amount
of requested GPUs.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from stower.assembly import build_engine
from stower.framework.events import WatchType
from stower.model.errors import InvalidObject
from stower.sim.gpu_fragments import GpuFragments
from stower.sim.openb_devices import (
    NAMESPACE,
    Maker,
    Task,
    Trace,
    device_class,
    node_of,
    slice_of,
)
from stower.sim.packing_policies import PackingBaseline, configuration
from stower.sim.world import World
from stower.state.cluster import ClusterState

LOAD_MAX: Final = 130  # % of the GPUs that are asked for in the end
PERCENT: Final = 100

OnLoad = Callable[[int], None]  # told of each whole percent that has arrived


class Arrival(msgspec.Struct, frozen=True):
    """A pod of a run: what it needs, and where it went, "" and () for nowhere."""

    task: Task
    node: str
    gpus: tuple[str, ...]


class Run(msgspec.Struct, frozen=True):
    """One policy under one seed. `curve`: % allocated when 0, 1, ... LOAD_MAX % had arrived;
    `fragments`, `fragment_ratio`: fragments in % of all GPUs, and of what is free, at the same
    loads (gpu_fragments.py); `arrivals`: all pods in their order, where they were asked for."""

    policy: str
    seed: int
    curve: tuple[float, ...]
    arrived: int
    placed: int
    fragments: tuple[float, ...] = ()
    fragment_ratio: tuple[float, ...] = ()
    arrivals: tuple[Arrival, ...] = ()


def check_trace(trace: Trace) -> None:
    """Raise InvalidObject for a trace that never fills a GPU."""
    if not trace.machines:
        raise InvalidObject("nodes", 0, "a node list with at least one node that has GPUs")
    if not any(task.milli for task in trace.tasks):
        raise InvalidObject("pods", 0, "a pod list with at least one pod that requests GPUs")
    names = Counter(machine.name for machine in trace.machines)
    for name, count in names.items():
        if not name or count > 1:
            raise InvalidObject("sn", name, "a unique name for each node")


def arrivals(trace: Trace, seed: int) -> list[Task]:
    """The whole trace, shuffled; then pods of it at random (any may come again) until the next
    would pass LOAD_MAX % of the GPUs. The trace must pass check_trace."""
    chance = random.Random(seed)
    found = list(trace.tasks)
    chance.shuffle(found)
    most = LOAD_MAX * trace.capacity_milli
    load = sum(task.milli for task in found)
    while True:
        task = trace.tasks[chance.randrange(len(trace.tasks))]
        if (load + task.milli) * PERCENT > most:
            return found
        found.append(task)
        load += task.milli


def run_policy(
    trace: Trace,
    policy: str,
    seed: int,
    on_load: OnLoad | None = None,
    keeps_arrivals: bool = False,
) -> Run:
    """Let all pods of the seed arrive under the policy. The same trace, policy and seed give the
    same run. `keeps_arrivals`: whether to say where each pod went."""
    engine = build_engine(
        configuration(policy), seed=seed, plugins=(PackingBaseline,), contains_errors=False
    )
    world = World(engine, lambda _: None)
    machines = trace.machines
    world.start(map(node_of, machines), (), (device_class(), *map(slice_of, machines)))
    maker = Maker()
    capacity = trace.capacity_milli
    coming = arrivals(trace, seed)
    curve: list[float] = []
    fragments, lost, ratios = GpuFragments(trace), list[float](), list[float]()
    kept: list[Arrival] = []
    arrived = used = placed = 0

    def note() -> None:
        curve.append(PERCENT * used / capacity)
        found = fragments.measure(engine.state)
        lost.append(PERCENT * found.lost_milli / capacity)
        ratios.append(found.ratio_percent)

    for number, task in enumerate(coming):
        # Before the pod that passes a load, that load has arrived.
        while len(curve) <= LOAD_MAX and (arrived + task.milli) * PERCENT > len(curve) * capacity:
            note()
            if on_load is not None:
                on_load(len(curve) - 1)
        arrived += task.milli
        name = f"{seed}-{number}"
        is_placed = _place(world, maker, task, name)
        if is_placed:
            used += task.milli
            placed += 1
        if keeps_arrivals:
            node = world.pods[name].spec.node_name if is_placed else ""
            kept.append(Arrival(task, node, _gpus(engine.state, name) if is_placed else ()))
    while len(curve) <= LOAD_MAX:
        note()
    return Run(
        policy, seed, tuple(curve), len(coming), placed, tuple(lost), tuple(ratios), tuple(kept)
    )


def _gpus(state: ClusterState, name: str) -> tuple[str, ...]:
    """The GPUs of the pod's claim, which has its name."""
    claim = state.devices.api_claim(f"{NAMESPACE}/{name}")
    return tuple(result.device for result in claim.results) if claim is not None else ()


def _place(world: World, maker: Maker, task: Task, name: str) -> bool:
    """Whether there was a node for the pod; otherwise it is gone again."""
    pod, claim = maker.make(task, name)
    if claim is not None:
        world.apply_change(WatchType.ADDED, claim)
    world.add_pod(pod)
    if world.pods[name].spec.node_name:
        return True
    world.delete_pod(name)
    return False
