"""Pod groups whose pods have claims that drivers allocate: all pods have devices or none keeps any,
and drivers do not allocate for ever in vain."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from stower.engine.groups.tree_cycle import TreeCycle
from stower.model.kinds import Pod, PodScheduling, ResourceClaim
from stower.model.times import SECOND_NS
from stower.sim.checkers.futile_allocations import FutileAllocations
from stower.sim.script import Script
from stower.sim.trial import Trial

ZONE = "topology.kubernetes.io/zone"
ROOM = {"cpu": "8", "memory": "16Gi", "pods": "20"}
Json = dict[str, Any]


def node(name: str, zone: str = "z") -> Json:
    labels = {"kubernetes.io/hostname": name, ZONE: zone}
    meta = {"name": name, "uid": name, "labels": labels}
    status = {"allocatable": ROOM, "capacity": ROOM}
    return {"do": "add-node", "atMs": 0, "node": {"metadata": meta, "status": status}}


def driver(name: str, devices: Mapping[str, int]) -> list[Json]:
    """A driver whose class has its name."""
    resource_class = {"metadata": {"name": name, "uid": name}, "driverName": f"{name}.example.com"}
    return [
        {"do": "add-resource-class", "atMs": 0, "resourceClass": resource_class},
        {"do": "add-driver", "atMs": 0, "driver": f"{name}.example.com", "devices": devices},
    ]


def group(name: str, minimum: int, key: str = ZONE, priority: int = 0) -> Json:
    spec: Json = {"schedulingPolicy": {"gang": {"minCount": minimum}}, "priority": priority}
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    meta = {"name": name, "namespace": "default", "uid": f"group/{name}"}
    return {"do": "add-group", "atMs": 0, "group": {"metadata": meta, "spec": spec}}


def template(name: str, *claims: tuple[str, int], of: str = "") -> Json:
    """Pods with claims of these classes for so many devices each, of a group."""
    entries = [{"name": f"d{i}", "resourceClaimTemplateName": f"d{i}"} for i in range(len(claims))]
    spec: Json = {"containers": [{"name": "c"}], "resourceClaims": entries}
    if of:
        spec["schedulingGroup"] = {"podGroupName": of}
    requests = [
        {"name": "device", "exactly": {"deviceClassName": cls, "count": n}} for cls, n in claims
    ]
    made = {f"d{i}": {"devices": {"requests": [one]}} for i, one in enumerate(requests)}
    return {"name": name, "spec": spec, "claims": made}


def pods(name: str, count: int, at_ms: int = 1_000, lasts_ms: int = 0) -> list[Json]:
    one: Json = {"do": "add-pod", "atMs": at_ms, "template": name}
    return [{**one, "lastsMs": lasts_ms} if lasts_ms else one for _ in range(count)]


def script(happenings: Sequence[Json], *templates: Json, seed: int = 1, **more: Any) -> Script:
    document = {
        "apiVersion": "stower.dev/v1", "kind": "Script", "seed": seed, "faults": [],
        "activeMs": 600_000, "templates": templates, "happenings": happenings, **more,
    }  # fmt: skip
    return msgspec.convert(document, Script)


def nodes(count: int, zone: str = "z") -> list[Json]:
    return [node(f"{zone}{i}", zone) for i in range(count)]


def devices(count: int, zone: str = "z", each: int = 1) -> dict[str, int]:
    """The devices of the nodes that `nodes` makes."""
    return {f"{zone}{i}": each for i in range(count)}


class Run:
    """A run that breaks no law: when pods were bound, and allocations that ended in vain."""

    def __init__(
        self, what: Script, on_scheduling: Callable[[PodScheduling], object] | None = None
    ) -> None:
        """`on_scheduling`: is given each version of each PodScheduling."""
        self._on_scheduling = on_scheduling
        trial = Trial(what, known=())
        self.bound_s: dict[str, float] = {}
        self.futile: dict[str, int] = {}
        trial.server.tell.append(lambda change: self._on_change(trial, change))
        count = FutileAllocations._count

        def counted(law: Any, claim: ResourceClaim, *more: Any) -> None:
            self.futile[claim.metadata.key] = self.futile.get(claim.metadata.key, 0) + 1
            count(law, claim, *more)

        with patch.object(FutileAllocations, "_count", counted):
            self.found = trial.run()
        assert "" == self.found.law, self.found.what

    def _on_change(self, trial: Trial, change: Any) -> None:
        pod = change[2]
        if isinstance(pod, PodScheduling) and self._on_scheduling is not None:
            self._on_scheduling(pod)
        if isinstance(pod, Pod) and pod.spec.node_name:
            self.bound_s.setdefault(pod.metadata.name, trial.agenda.now_ns / SECOND_NS)


SEEDS = range(1, 4)
ONE = ("a", 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_with_too_few_devices_does_not_take_them_for_ever(seed: int) -> None:
    """Three devices, four pods: some attempts, further and further apart."""
    load = [*nodes(3), *driver("a", devices(3)), group("g", 4), *pods("g", 4)]
    run = Run(script(load, template("g", ONE, of="g"), seed=seed))
    assert {} == run.bound_s
    assert 1 <= max(run.futile.values()) <= 8


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_without_enough_devices_leave_them_to_others(seed: int) -> None:
    """Single pods that come later have devices once a group has given them back."""
    load = [*nodes(3), *driver("a", devices(3)), group("g", 4), group("h", 4)]
    load += [*pods("g", 4), *pods("h", 4), *pods("solo", 2, 60_000)]
    run = Run(
        script(
            load, template("g", ONE, of="g"), template("h", ONE, of="h"), template("solo", ONE),
            seed=seed,
        )
    )  # fmt: skip
    assert 2 == len(run.bound_s)
    assert max(run.bound_s.values()) < 180


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_goes_to_the_domain_that_has_enough(seed: int) -> None:
    """That the first domains have too few shows only in attempts; these follow one another."""
    load = [*nodes(3, "x"), *nodes(2, "y"), *nodes(4)]
    load += driver("a", {**devices(3, "x"), **devices(2, "y"), **devices(4)})
    load += [group("g", 4), *pods("g", 4)]
    run = Run(script(load, template("g", ONE, of="g"), seed=seed))
    assert 4 == len(run.bound_s)
    assert max(run.bound_s.values()) < 180


@pytest.mark.parametrize("key", [ZONE, ""])
def test_pods_of_a_group_share_out_the_nodes_of_two_drivers(key: str) -> None:
    """Each node has one device of each driver; the pod that a driver refuses goes elsewhere."""
    load = [*nodes(4), *driver("a", devices(4)), *driver("b", devices(4))]
    load += [group("g", 4, key), *pods("g", 4)]
    run = Run(script(load, template("g", ONE, ("b", 1), of="g")))
    assert 4 == len(run.bound_s)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_two_groups_that_want_the_same_devices_one_has_them(seed: int) -> None:
    load = [*nodes(4), *driver("a", devices(4)), *driver("b", devices(4))]
    load += [group("g", 4), group("h", 4), *pods("g", 4), *pods("h", 4)]
    both = ("b", 1)
    run = Run(
        script(load, template("g", ONE, both, of="g"), template("h", ONE, both, of="h"), seed=seed)
    )
    assert 1 == len({name[0] for name in run.bound_s})
    assert 4 == len(run.bound_s)


@pytest.mark.parametrize("seed", SEEDS)
def test_pods_that_want_different_numbers_of_devices_are_packed(seed: int) -> None:
    load = [*nodes(3), *driver("a", devices(3, each=2)), group("g", 4)]
    load += [*pods("g", 3), *pods("big", 1)]
    run = Run(
        script(load, template("g", ONE, of="g"), template("big", ("a", 2), of="g"), seed=seed)
    )
    assert 4 == len(run.bound_s)


def test_a_group_has_devices_soon_after_a_pod_has_left_them() -> None:
    """The group does not wait for the end of its delay."""
    load = [*nodes(3), *driver("a", devices(3)), group("g", 3)]
    load += [*pods("solo", 1, 500, 300_000), *pods("g", 3, 5_000)]
    run = Run(script(load, template("g", ONE, of="g"), template("solo", ONE)))
    assert 4 == len(run.bound_s)
    assert 300 < run.bound_s["g-2"] < 360


def test_devices_that_any_node_can_use_are_learned_at_once() -> None:
    """Three seats, four pods, six nodes: not an attempt for each node."""
    load = [*nodes(6), *driver("a", {"": 3}), group("g", 4), *pods("g", 4)]
    run = Run(script(load, template("g", ONE, of="g")))
    assert {} == run.bound_s
    assert max(run.futile.values()) <= 8


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_group_that_cannot_be_tried_any_more_leaves_its_devices(
    seed: int, is_deleted: bool
) -> None:
    """One of its pods is deleted, or has another preemption policy than the others."""
    load = [*nodes(3), *driver("a", devices(3)), group("g", 4), *pods("g", 4)]
    odd = template("odd", of="g")
    odd["spec"]["preemptionPolicy"] = "Never"
    gone = {"do": "delete-pod", "atMs": 12_000, "pod": "g-2"}
    load += [gone] if is_deleted else pods("odd", 1, 12_000)
    load += pods("solo", 3, 60_000)
    run = Run(script(load, template("g", ONE, of="g"), odd, template("solo", ONE), seed=seed))
    assert 3 == len(run.bound_s)
    assert max(run.bound_s.values()) < 180


def test_a_large_group_is_not_placed_again_at_each_answer() -> None:
    """Each pod's driver answers twice: about nodes, and with an allocation."""
    count, placements = 32, []
    load = [*nodes(count), *driver("a", devices(count)), group("g", count), *pods("g", count)]
    attempt = TreeCycle.attempt

    def counted(cycle: TreeCycle, *more: Any, **fields: Any) -> Any:
        placements.append(None)
        return attempt(cycle, *more, **fields)

    with patch.object(TreeCycle, "attempt", counted):
        run = Run(script(load, template("g", ONE, of="g")))
    assert count == len(run.bound_s)
    assert len(placements) < count


@pytest.mark.parametrize("zones", [1, 2, 8])
def test_a_group_among_many_nodes_goes_where_its_drivers_have_devices(zones: int) -> None:
    """Two of three nodes have too few devices, more than drivers can refuse at once: the group is
    placed on nodes that all of its pods know to be suitable, instead of on those that nobody was
    asked about yet, again and again."""
    names = [f"z{i % zones}-{i}" for i in range(400)]
    load = [node(name, name.partition("-")[0]) for name in names]
    load += driver("a", {name: 2 if i % 3 == 0 else 1 for i, name in enumerate(names)})
    load += [group("g", 6), *pods("g", 6)]
    rounds: dict[str, int] = {}
    what = script(load, template("g", ("a", 2), of="g"), activeMs=60_000)
    run = Run(what, lambda said: rounds.update({said.metadata.name: said.spec.round}))
    assert 6 == len(run.bound_s)
    assert max(rounds.values()) <= 3
    assert not run.futile


@pytest.mark.parametrize("minimum", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_minimum_of_a_group_is_placed_though_there_is_nothing_for_its_other_pods(
    minimum: int, seed: int
) -> None:
    """One or two of 600 nodes have enough devices, each for one pod: it is placed there, instead of
    all pods being asked about elsewhere for ever."""
    names = [f"z{i % 3}-{i}" for i in range(600)]
    fitting = {names[155], names[158]} if minimum == 2 else {names[155]}
    load = [node(name, name.partition("-")[0]) for name in names]
    load += driver("a", {n: 3 if n in fitting else i % 3 for i, n in enumerate(names)})
    load += [group("g", minimum), *pods("g", 5)]
    what = script(load, template("g", ONE, ONE, ONE, of="g"), seed=seed, activeMs=60_000)
    run = Run(what)
    assert minimum == len(run.bound_s)
    assert max(run.bound_s.values()) < 30


@pytest.mark.parametrize("is_grouped", [True, False])
@pytest.mark.parametrize(("seed", "many"), [(1, 24), (2, 24), (3, 24), (3, 12)])
def test_nobody_evicts_again_and_again_for_devices_that_drivers_refuse(
    seed: int, many: int, is_grouped: bool
) -> None:
    """All nodes are full of less important pods, and none has a device: drivers are asked about
    what a first eviction has freed, and pods are spared for longer and longer after that."""
    low: Json = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "8"}}}]}}
    high = template("g", ("a", 1), of="g" if is_grouped else "")
    high["spec"]["containers"] = low["spec"]["containers"]
    load = [*nodes(many), *driver("a", {}), *pods("low", many)]
    if is_grouped:
        load.append(group("g", 2, key="", priority=100))
    load += [{**one, "priority": 100} for one in pods("g", 2, 60_000)]
    evicted = set()

    class Watching(Run):
        def _on_change(self, trial: Trial, change: Any) -> None:
            pod = change[2]
            if isinstance(pod, Pod) and pod.metadata.name.startswith("low"):
                if pod.metadata.deletion_timestamp is not None:
                    evicted.add(pod.metadata.uid)
            super()._on_change(trial, change)

    run = Watching(script(load, {"name": "low", **low}, high, seed=seed))
    assert not any(name.startswith("g") for name in run.bound_s)
    assert 2 <= len(evicted) <= 16
