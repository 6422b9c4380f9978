"""The rule LeastMemory: the VMs leave that have the least memory to copy; `stower vms --plan`."""

import itertools
import json
import random
from pathlib import Path

import pytest

from stower.framework.writes import CreateObject
from stower.vms.migration_rules import Leaving, smallest_set
from tests.builders import make_node
from tests.contract.in_process import stower_in_process
from tests.vms.rig import Rig, vm_pod
from tests.vms.test_nowhere import dumped

GI = 1 << 30
SPARE = make_node("spare", cpu="100", memory="1000Gi")


def brute_force(found: list[Leaving], cpu: int, memory: int) -> int | None:
    """The least cost of all sets that free so much, None where there is none."""
    sets = itertools.chain.from_iterable(
        itertools.combinations(found, n) for n in range(len(found) + 1)
    )
    enough = [
        sum(one.cost for one in each)
        for each in sets
        if sum(one.cpu for one in each) >= cpu and sum(one.memory for one in each) >= memory
    ]
    return min(enough, default=None)


def test_the_smallest_set_is_that_of_brute_force() -> None:
    chance = random.Random(1)
    for _ in range(400):
        found = []
        for _ in range(chance.randint(1, 8)):
            size, cpu = chance.choice((1, 2, 4, 8, 16)), chance.choice((0, 250, 500, 1000, 4000))
            found.append(Leaving(size, cpu, size // chance.choice((1, 2))))
        cpu, memory = chance.choice((0, 1, 700, 3000)), chance.choice((0, 0, 3, 12))
        best = brute_force(found, cpu, memory)
        chosen = smallest_set(found, cpu, memory)
        if best is None:
            assert [] == chosen
            continue
        assert len(chosen) == len(set(chosen))
        assert best == sum(found[i].cost for i in chosen)
        assert cpu <= sum(found[i].cpu for i in chosen)
        assert memory <= sum(found[i].memory for i in chosen)


def test_a_search_among_many_ends_with_a_set_that_is_enough() -> None:
    chance = random.Random(1)
    found = [Leaving(chance.randint(1, 999), chance.randint(1, 999), 1) for _ in range(2_000)]
    chosen = smallest_set(found, 200_000, 0)
    assert 200_000 <= sum(found[i].cpu for i in chosen)


@pytest.mark.behaviour("S4.13")
def test_the_vm_with_the_least_memory_leaves_that_is_enough() -> None:
    """By neon's rule it is the oldest, whatever its memory."""
    pods = [
        vm_pod("old", node="n1", use=(2, 32), moves=True, created=1),
        vm_pod("small", node="n1", use=(0.5, 1), moves=True, created=2),
        vm_pod("fits", node="n1", use=(2, 4), moves=True, created=3),
        vm_pod("rest", node="n1", use=(6, 4), created=4),
    ]
    node = make_node("n1", cpu="10", memory="100Gi")  # 10.5 CPUs are reserved, 9 is the watermark
    assert ["schedplugin-old-pod"] == Rig(node, SPARE).start(*pods).migrations()
    rig = Rig(node, SPARE, migrationRule="LeastMemory").start(*pods)
    assert ["schedplugin-fits-pod"] == rig.migrations()
    assert [] == rig.advance(60).migrations()


def test_who_has_nowhere_to_go_is_replaced_by_the_next_best() -> None:
    pods = [
        vm_pod("fits", node="n1", use=(2, 4), moves=True),
        vm_pod("two", node="n1", use=(1, 3), moves=True),
        vm_pod("three", node="n1", use=(1, 3), moves=True),
        vm_pod("rest", node="n1", use=(6.5, 4)),
        vm_pod("other", node="n2", use=(8, 4)),
        vm_pod("another", node="n3", use=(8, 4)),
    ]
    nodes = [make_node(f"n{i}", cpu="10", memory="100Gi") for i in (1, 2, 3)]
    rig = Rig(*nodes, migrationRule="LeastMemory").start(*pods)
    assert {"schedplugin-two-pod", "schedplugin-three-pod"} == {*rig.migrations()}


def test_a_rule_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(Exception, match="migrationRule: value must be one of OldestFirst, LeastM"):
        Rig(migrationRule="Youngest")


# The plan


def planned(path: str, *more: str) -> dict[str, object]:
    code, out, error = stower_in_process("vms", "all", path, "--plan", *more, "-o", "json")
    assert 0 == code, error
    found: dict[str, object] = json.loads(out)
    return found


def test_the_plan_is_what_the_scheduler_does_then(tmp_path: Path) -> None:
    sizes = {"n1": [2, 3, 1.5, 3], "n2": [4], "n3": [2]}
    path = dumped(tmp_path / "cluster.json", sizes)
    for rule in ("OldestFirst", "LeastMemory"):
        plan = planned(path, "--rule", rule)
        pods = [
            vm_pod(f"{node}-{i}", node=node, use=(size, 1), moves=True, created=i)
            for node, cpus in sizes.items()
            for i, size in enumerate(cpus)
        ]
        nodes = [make_node(name, cpu="10", memory="100Gi") for name in sizes]
        rig = Rig(*nodes, migrationRule=rule).start(*pods)
        made = {
            (
                "default/" + write.body["spec"]["vmName"],
                write.body["metadata"]["annotations"]["stower.dev/planned-node"],
            )
            for write in rig.writes
            if isinstance(write, CreateObject)
        }
        moves = plan["moves"]
        assert isinstance(moves, list)
        assert made == {(move["vm"], move["target"]) for move in moves}
        assert (["n1"], []) == (plan["aboveBefore"], plan["aboveAfter"])
        assert sum(move["bytes"] for move in moves) == plan["bytes"] == GI * len(moves)


def test_no_more_are_planned_at_once_than_may_be(tmp_path: Path) -> None:
    path = dumped(tmp_path / "cluster.json", {"n1": [1] * 12, "n2": [1]})
    assert [1, 1, 1] == [move["round"] for move in planned(path)["moves"]]  # type: ignore[attr-defined]
    moves = planned(path, "--at-once", "2")["moves"]
    assert [1, 1, 2] == [move["round"] for move in moves]  # type: ignore[attr-defined]


def test_the_plan_says_which_nodes_stay_above(tmp_path: Path) -> None:
    path = dumped(tmp_path / "cluster.json", {"n1": [2, 2, 2, 2, 1.7], "n2": [2, 2, 2, 2]})
    code, out, _ = stower_in_process("vms", "all", path, "--plan")
    assert 0 == code
    assert "0 migrations with 0 of memory. Nodes above their watermark: 1 now, 1 after" in out
    assert "No VM of these has somewhere to go: n1" in out
    code, out, _ = stower_in_process("vms", "all", path, "--plan", "--watermark", "1")
    assert "No node is above its watermark." in out
    for words in (("n1", path, "--plan"), ("all", path, "--rule", "LeastMemory")):
        code, _, error = stower_in_process("vms", *words)
        assert 2 == code
        assert "--plan" in error
