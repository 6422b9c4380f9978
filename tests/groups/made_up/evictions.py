"""Made-up trees that have room only where others leave, and which of them that are, by trying all.

At most 8 units (single pods, or groups that leave as a whole) of lower priority, some with budgets.
Which sets of them are enough, oracle.py says.
"""

import random
from collections.abc import Iterator
from itertools import combinations
from typing import Any, Final

import msgspec

from tests.groups.made_up.instances import Instance, Pods, documents, planted

UNITS_MAX: Final = 8
HIGH: Final = 100


class Unit(msgspec.Struct):
    """Pods that leave together: the node of each, what each takes, and their priority. `budget`: of
    its pods none may be disrupted. `age`: smaller numbers are older."""

    name: str
    nodes: list[int]
    cpu: int
    priority: int
    budget: bool
    age: int

    @property
    def rank(self) -> tuple[int, bool, int, int]:
        """The more important, the smaller: docs/groups.md."""
        return (-self.priority, len(self.nodes) == 1, -len(self.nodes), self.age)


class Crowded(msgspec.Struct):
    """The problem as it would be without any of the units, and the units."""

    empty: Instance
    units: list[Unit]


def crowded(seed: int) -> Crowded | None:
    """A problem whose room is taken by units; None where nobody is in the way."""
    rng = random.Random(seed)
    empty = planted(seed, rules=False)
    if len(empty.nodes) > 12:
        return None
    units = []
    for i in range(rng.randint(1, UNITS_MAX)):
        count = rng.choice((1, 1, 1, 2, 3))
        nodes = [rng.randrange(len(empty.nodes)) for _ in range(count)]
        unit = Unit(f"u{i}", nodes, rng.randint(1, 4), rng.choice((0, 0, 1, 5)), False, i)
        unit.budget = rng.random() < 0.25
        units.append(unit)
    rng.shuffle(units)
    return Crowded(_with_room(empty, units), units)


def _with_room(instance: Instance, units: list[Unit]) -> Instance:
    """Nodes on which the units fit next to what is bound there."""
    nodes = [msgspec.structs.replace(node) for node in instance.nodes]
    for unit in units:
        for n in unit.nodes:
            nodes[n].cpu = max(nodes[n].cpu, _taken(units, n))
            nodes[n].pods = max(nodes[n].pods, _count(units, n))
    return msgspec.structs.replace(instance, nodes=nodes)


def _taken(units: list[Unit], n: int) -> int:
    return sum(unit.cpu * unit.nodes.count(n) for unit in units)


def _count(units: list[Unit], n: int) -> int:
    return sum(unit.nodes.count(n) for unit in units)


def without(problem: Crowded, leaving: tuple[int, ...]) -> Instance:
    """The problem once these units have left."""
    staying = [unit for i, unit in enumerate(problem.units) if i not in leaving]
    nodes = [
        msgspec.structs.replace(
            node, cpu=node.cpu - _taken(staying, n), pods=node.pods - _count(staying, n)
        )
        for n, node in enumerate(problem.empty.nodes)
    ]
    return msgspec.structs.replace(problem.empty, nodes=nodes)


def sets(problem: Crowded) -> Iterator[tuple[int, ...]]:
    """All sets of units, the best to evict first: the lowest priorities that are enough, then the
    fewest pods whose budget forbids it, then the fewest units, then the least important."""
    units = problem.units
    order = sorted(range(len(units)), key=lambda i: units[i].rank)
    ranks = {i: rank for rank, i in enumerate(order)}
    every = [s for k in range(len(units) + 1) for s in combinations(range(len(units)), k)]

    def key(chosen: tuple[int, ...]) -> Any:
        top = max((units[i].priority for i in chosen), default=-1)
        broken = sum(len(units[i].nodes) for i in chosen if units[i].budget)
        return top, broken, len(chosen), sorted(-ranks[i] for i in chosen)[::-1]

    yield from sorted(every, key=key)


def objects(problem: Crowded) -> list[dict[str, Any]]:
    """Everything, as objects of Kubernetes: the tree has a priority above all units'."""
    found = []
    for data in documents(problem.empty):
        if data["kind"] in ("PodGroup", "CompositePodGroup") or data["kind"] == "Pod":
            data["spec"]["priority"] = HIGH
        found.append(data)
    for unit in problem.units:
        found += _unit_objects(problem, unit)
    return found


def _unit_objects(problem: Crowded, unit: Unit) -> Iterator[dict[str, Any]]:
    is_group = len(unit.nodes) > 1
    created = f"2026-01-01T00:00:{unit.age:02}Z"
    for i, n in enumerate(unit.nodes):
        pods = Pods(-1, 1, unit.name, unit.cpu)
        spec: dict[str, Any] = {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {
                "cpu": str(pods.cpu)}}}],
            "nodeName": problem.empty.nodes[n].name, "priority": unit.priority,
        }  # fmt: skip
        if is_group:
            spec["schedulingGroup"] = {"podGroupName": unit.name}
        name = f"{unit.name}-{i}"
        yield {
            "apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {"name": name, "namespace": "default", "uid": f"Pod-{name}",
                         "labels": {"app": unit.name}, "creationTimestamp": created},
            "status": {"phase": "Running", "startTime": created},
        }  # fmt: skip
    meta = {"name": unit.name, "namespace": "default", "uid": f"Unit-{unit.name}"}
    if is_group:
        yield {
            "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": meta,
            "spec": {"schedulingPolicy": {"gang": {"minCount": len(unit.nodes)}},
                     "disruptionMode": {"all": {}}, "priority": unit.priority},
        }  # fmt: skip
    if unit.budget:
        yield {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {**meta, "uid": f"Budget-{unit.name}"},
            "spec": {"selector": {"matchLabels": {"app": unit.name}}},
            "status": {"disruptionsAllowed": 0},
        }  # fmt: skip
