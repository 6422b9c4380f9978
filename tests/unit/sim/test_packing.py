"""sim/packing.py, sim/packing_policies.py: policies place as their formulas say, pod by pod."""

import random
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import pytest

from stower.assembly import build_engine
from stower.model.errors import InvalidObject
from stower.sim import packing
from stower.sim.openb_devices import DRIVER, Machine, Task, Trace
from stower.sim.packing import LOAD_MAX, arrivals, check_trace, run_policy
from stower.sim.packing_policies import BASELINES, POLICIES, PackingBaseline, configuration

MACHINES = (
    Machine("a", 16_000, 65_536, 2, "P100"),
    Machine("b", 64_000, 262_144, 8, "V100"),
    Machine("c", 32_000, 65_536, 4, "T4"),
    Machine("d", 32_000, 65_536, 2, "T4"),
)
TASKS = (
    Task(2_000, 4_096, 1, 300), Task(4_000, 8_192, 1, 600), Task(4_000, 8_192, 1, 1000),
    Task(12_000, 32_768, 2, 1000), Task(6_000, 4_096, 0, 0), Task(1_000, 2_048, 1, 410, ("T4",)),
    Task(1_000, 1_024, 1, 90, ("P100", "V100")), Task(8_000, 16_384, 4, 1000),
)  # fmt: skip
TRACE = Trace(MACHINES, TASKS)


class Node:
    """A node of the twin: what is left of it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.cpu, self.memory = machine.cpu_milli, machine.memory_mib
        self.gpus = [1000] * machine.gpus

    def devices(self, task: Task) -> list[int] | None:
        """The GPUs that the task would be given: those with least left that do."""
        if self.cpu < task.cpu_milli or self.memory < task.memory_mib:
            return None
        if task.models and self.machine.model not in task.models:
            return None
        fit = sorted((free, i) for i, free in enumerate(self.gpus) if free >= task.gpu_milli)
        return [i for _, i in fit[: task.gpus]] if len(fit) >= task.gpus else None


def twin(policy: str, seed: int) -> Iterator[bool]:
    """Of each pod in its turn, whether it was placed. First fit takes the first GPUs that do, which
    the twin does by their order."""
    nodes = [Node(machine) for machine in MACHINES]
    largest_cpu, largest_milli = 64_000, 8_000
    for task in arrivals(TRACE, seed):
        best = None
        for node in nodes:
            given = node.devices(task)
            if given is None:
                continue
            milli = sum(node.gpus)
            left = (node.cpu - task.cpu_milli) / largest_cpu * 0.5
            left += (milli - task.milli) / largest_milli * 0.5
            product = node.cpu / largest_cpu * (task.cpu_milli / largest_cpu)
            product += milli / largest_milli * (task.milli / largest_milli)
            if policy == "first-fit":
                given = [i for i, free in enumerate(node.gpus) if free >= task.gpu_milli]
                given = given[: task.gpus]
            rank = {
                "best-fit": int((1 - left) * 100),
                "dot-product": int((1 - product / 2) * 100),
                "first-fit": 0,
            }[policy]
            if best is None or rank > best[0]:
                best = (rank, node, given)
        if best is not None:
            _, node, given = best
            node.cpu -= task.cpu_milli
            node.memory -= task.memory_mib
            for i in given:
                node.gpus[i] -= task.gpu_milli
        yield best is not None


@pytest.mark.parametrize("policy", BASELINES)
def test_baseline_places_as_its_formula_says(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the whole engine, the same pods are placed as by the twin, and so the same GPUs."""
    got: list[bool] = []
    place: Callable[..., bool] = packing._place
    monkeypatch.setattr(packing, "_place", lambda *a: got.append(place(*a)) or got[-1])
    for seed in range(6):
        got.clear()
        run = run_policy(TRACE, policy, seed)
        assert list(twin(policy, seed)) == got
        assert (len(got), sum(got)) == (run.arrived, run.placed)


def test_whole_trace_arrives_first_and_the_rest_ends_before_130_percent() -> None:
    """Shuffled by the seed; what comes after it are pods of the trace again."""
    for seed in range(20):
        found = arrivals(TRACE, seed)
        assert sorted(map(repr, TASKS)) == sorted(map(repr, found[: len(TASKS)]))
        assert set(found) <= set(TASKS)
        load = sum(task.milli for task in found) / TRACE.capacity_milli
        # The next would pass it, and the largest asks for a quarter of the GPUs.
        assert LOAD_MAX / 100 - 0.25 < load <= LOAD_MAX / 100
    assert arrivals(TRACE, 1) == arrivals(TRACE, 1)
    assert arrivals(TRACE, 1) != arrivals(TRACE, 2)


def test_curve_says_what_was_allocated_before_each_load_was_passed() -> None:
    """Two GPUs, pods of half a GPU: at 24 % none has come, at 25 % one, and 100 % is the end."""
    trace = Trace((Machine("n", 8_000, 8_192, 2, "T4"),), (Task(1_000, 1_024, 1, 500),))
    seen: list[int] = []
    run = run_policy(trace, "best-fit", 0, seen.append)
    assert LOAD_MAX + 1 == len(run.curve)
    expected = [0.0, 0.0, 25.0, 25.0, 50.0, 100.0, 100.0]
    assert expected == [run.curve[load] for load in (0, 24, 25, 49, 50, 100, 130)]
    # Of 2,600 milli the fifth pod is the last that may come; it has no place.
    assert (5, 4) == (run.arrived, run.placed)
    assert list(range(len(seen))) == seen


def test_shares_that_fit_no_single_gpu_do_not_fit() -> None:
    """What extended resources cannot tell: of three pods of 600 milli, two GPUs take two."""
    trace = Trace((Machine("n", 8_000, 8_192, 2, "T4"),), (Task(1_000, 1_024, 1, 600),))
    run = run_policy(trace, "best-fit", 0)
    assert (4, 2, 60.0) == (run.arrived, run.placed, run.curve[-1])


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch) -> list[packing.World]:
    """The worlds of the runs, to be looked at afterwards."""
    found: list[packing.World] = []

    class Kept(packing.World):
        """A world that is kept."""

        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            found.append(self)

    monkeypatch.setattr(packing, "World", Kept)
    return found


def test_random_takes_any_gpu_that_will_do(worlds: list[packing.World]) -> None:
    """Of eight, each gets about an eighth of many small pods; best fit fills one after another."""
    pods = 400
    machine = Machine("n", 1_000_000, 1_000_000, 8, "T4")
    trace = Trace((machine,), (Task(1, 1, 1, 2),) * pods + (Task(1, 1, 8, 1000),))
    for policy in ("random", "best-fit"):
        run_policy(trace, policy, 0)
    counts = []
    for world in worlds:
        used = world.engine.state.devices.usage((DRIVER, "n"))
        counts.append([use.share_count for _, use in sorted(used.items())])
    by_chance, packed = counts
    assert 500 == packed[0]
    assert 8 == len(by_chance)
    # Five standard deviations of a share of an eighth.
    assert all(abs(count - sum(by_chance) / 8) < 5 * (sum(by_chance) * 7 / 64) ** 0.5
               for count in by_chance)  # fmt: skip


def test_pods_that_fit_nowhere_leave_nothing_behind(worlds: list[packing.World]) -> None:
    """Neither they nor their claims are kept, nor tried again."""
    run = run_policy(TRACE, "dot-product", 3)
    (world,) = worlds
    assert run.placed < run.arrived
    assert [] == world.list_pending()
    pods = world.pods.values()
    claims = {claim.metadata.name for claim in world.engine.state.devices.claims()}
    assert {pod.metadata.name for pod in pods if pod.spec.resource_claims} == claims


def test_same_seed_gives_the_same_run_and_another_another() -> None:
    """Of the random policy too."""
    chance = random.Random(0)
    tasks = tuple(Task(500, 64, 1, chance.randrange(100, 900, 10)) for _ in range(40))
    trace = Trace(MACHINES, tasks)
    assert run_policy(trace, "random", 1) == run_policy(trace, "random", 1)
    assert run_policy(trace, "random", 1).curve != run_policy(trace, "random", 2).curve


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_a_configuration_that_runs(policy: str) -> None:
    """All that --policy takes can be built."""
    build_engine(configuration(policy), plugins=(PackingBaseline,))


def test_baseline_that_is_none_is_refused() -> None:
    """By the plugin that would have to be it."""
    document = configuration("best-fit")
    document["profiles"][0]["pluginConfig"][1]["args"]["policy"] = "worst-fit"
    with pytest.raises(InvalidObject) as caught:
        build_engine(document, plugins=(PackingBaseline,))
    assert "first-fit, best-fit, dot-product" in str(caught.value)


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (Trace((), TASKS), "nodes"),
        (Trace(MACHINES, ()), "pods"),
        (Trace(MACHINES, (Task(1, 1, 0, 0),)), "pods"),
        (Trace((*MACHINES, MACHINES[0]), TASKS), "sn"),
    ],
)
def test_trace_that_never_fills_a_gpu_is_refused(trace: Trace, expected: str) -> None:
    """Pods would come for ever, or none at all."""
    with pytest.raises(InvalidObject) as caught:
        check_trace(trace)
    assert expected == caught.value.path


@pytest.mark.parametrize("policy", ["random", "fgd"])
def test_fragments_are_what_typical_pods_cannot_use(policy: str) -> None:
    """Against one GPU and one typical pod after another."""
    run = run_policy(TRACE, policy, 3, keeps_arrivals=True)
    assert run == msgspec.structs.replace(run_policy(TRACE, policy, 3), arrivals=run.arrivals)
    assert run.placed == sum(bool(arrival.node) for arrival in run.arrivals)
    nodes = {machine.name: Node(machine) for machine in MACHINES}
    for arrival in run.arrivals:
        if arrival.node:
            node, task = nodes[arrival.node], arrival.task
            node.cpu -= task.cpu_milli
            assert task.gpus == len(arrival.gpus)
            for gpu in arrival.gpus:
                node.gpus[int(gpu.removeprefix("gpu-"))] -= task.gpu_milli
    counts = sorted(Counter(TASKS).items(), key=lambda item: (-item[1], _key(item[0])))
    assert len(counts) == len(TASKS)
    lost = [
        free
        for node in nodes.values()
        for task, _ in counts  # 95 % of eight equally frequent ones are all of them
        for free in node.gpus
        if node.cpu < task.cpu_milli
        or not task.gpus
        or (task.models and node.machine.model not in task.models)
        or sum(one >= task.gpu_milli for one in node.gpus) < task.gpus
        or free < task.gpu_milli
    ]
    free = sum(sum(node.gpus) for node in nodes.values())
    assert run.fragments[-1] == pytest.approx(100 * sum(lost) / len(TASKS) / TRACE.capacity_milli)
    ratio = 100 * sum(lost) / len(TASKS) / free if free else 0.0
    assert run.fragment_ratio[-1] == pytest.approx(ratio)
    assert len(run.fragments) == len(run.fragment_ratio) == LOAD_MAX + 1


def _key(task: Task) -> tuple[int, int, int, tuple[str, ...]]:
    return task.cpu_milli, task.gpus, task.gpu_milli, task.models
