"""Groups as people use them: cubes of a superslice, leaders and workers, stages of a job."""

from typing import Any

import pytest

from stower.assembly import build_engine
from stower.framework.plugin import read_features
from stower.groups.feasibility import Feasibility, feasibility
from tests.builders import make_node
from tests.device_builders import Agreeing
from tests.group_builders import make_composite, make_group, members

SLICE, CUBE, HOST = "superslice", "cube", "kubernetes.io/hostname"


def cluster(*objects: Any) -> Agreeing:
    return Agreeing(build_engine(), *objects)


def chips(name: str, superslice: str, cube: str, taken: bool = False) -> list[Any]:
    """A host of 4 chips in a cube, maybe in use."""
    labels = {SLICE: superslice, CUBE: cube, HOST: name}
    node = make_node(name, labels=labels)
    node.status.allocatable["example.com/tpu"] = "4"
    busy = members("busy", 1, first=hash_of(name), requests={"example.com/tpu": "4"}, node=name)
    return [node, *(busy if taken else [])]


def hash_of(name: str) -> int:
    """A number of its own for each name."""
    return int.from_bytes(name.encode(), "big")


@pytest.mark.behaviour("S3.34")
def test_cubes_of_one_superslice() -> None:
    """Each worker group needs a whole cube (16 hosts), and the job two cubes of one superslice: the
    first superslice has three cubes, of which two have a host that is taken."""
    hosts: list[Any] = []
    for s, cubes in (("s0", 3), ("s1", 2)):
        for c in range(cubes):
            for h in range(16):
                taken = s == "s0" and c < 2 and h == 0
                hosts += chips(f"{s}-{c}-{h}", s, f"{s}-{c}", taken)
    api = cluster(
        *hosts,
        make_composite("job", 2, key=SLICE),
        make_group("w0", 16, parent="job", key=CUBE),
        make_group("w1", 16, parent="job", key=CUBE),
        *members("w0", 16, requests={"example.com/tpu": "4"}),
        *members("w1", 16, requests={"example.com/tpu": "4"}),
    )
    cubes = {of: {node.rpartition("-")[0] for pod, node in api.bound.items() if pod[:2] == of}
             for of in ("w0", "w1")}  # fmt: skip
    assert [{"s1-0"}, {"s1-1"}] == sorted(cubes.values(), key=sorted)


@pytest.mark.behaviour("S3.34")
def test_prefill_and_decode_replicas_of_leaders_and_workers() -> None:
    """Disaggregated serving: at least one replica of each kind, each on nodes of one rack; a third
    replica has no room, and the others do not wait for it."""
    nodes = [
        make_node(f"{rack}-{i}", cpu="4", labels={"rack": rack}) for rack in "abc" for i in range(2)
    ]
    groups: list[Any] = [make_composite("serving", 2)]
    pods: list[Any] = []
    for kind, replicas in (("prefill", 1), ("decode", 3)):
        groups.append(make_composite(kind, 1, parent="serving"))
        for r in range(replicas):
            name = f"{kind}-{r}"
            groups.append(make_group(name, 3, parent=kind, key="rack"))
            pods += [*members(name, 1, cpu="2"), *members(name, 2, first=1, cpu="2")]
    api = cluster(*nodes, *groups, *pods)
    placed = {pod.rpartition("-")[0] for pod in api.bound}
    assert "prefill-0" in placed
    assert 3 == len(placed)
    assert 9 == len(api.bound)


@pytest.mark.behaviour("S3.34")
def test_stages_of_a_job_share_a_block_and_each_has_its_own_rack() -> None:
    nodes = [
        make_node(f"{b}{r}-{i}", cpu="2", labels={"block": b, "rack": f"{b}{r}"})
        for b, racks in (("x", 2), ("y", 3))
        for r in range(racks)
        for i in range(2)
    ]
    stages = [make_group(f"s{i}", 2, parent="job", key="rack") for i in range(3)]
    pods = [pod for i in range(3) for pod in members(f"s{i}", 2, cpu="2")]
    api = cluster(*nodes, make_composite("job", 3, key="block"), *stages, *pods)
    assert {"y"} == {node[0] for node in api.bound.values()}
    assert 3 == len({node[:2] for node in api.bound.values()})


def test_with_the_gate_off_each_pod_is_placed_alone() -> None:
    engine = build_engine(features=read_features("GenericWorkload=false")[0])
    objects = (make_composite("c", 2), make_group("g", 3, parent="c"), *members("g", 2))
    assert {"g-0": "n1", "g-1": "n1"} == Agreeing(engine, make_node("n1"), *objects).bound


@pytest.mark.behaviour("S3.39")
def test_no_domain_is_left_out_however_many_there_are() -> None:
    """The one rack of 300 that will do is found, whatever share of nodes is to be scored."""
    profile = {"percentageOfNodesToScore": 1}
    nodes = [
        make_node(f"r{r}-{i}", cpu="2" if r == 217 else "1", labels={"rack": f"r{r}"})
        for r in range(300)
        for i in range(2)
    ]
    engine = build_engine({"profiles": [profile]})
    api = Agreeing(engine, *nodes, make_group("g", 2, key="rack"), *members("g", 2, cpu="2"))
    assert {"r217-0", "r217-1"} == set(api.bound.values())


@pytest.mark.behaviour("S3.17")
@pytest.mark.parametrize(
    ("minimum", "placed", "remaining", "refused", "said"),
    [
        (2, 2, 0, 0, Feasibility.SUCCESS),
        (2, 3, 1, 1, Feasibility.SUCCESS),
        (2, 1, 1, 0, Feasibility.WAIT),
        (2, 0, 2, 1, Feasibility.WAIT),
        (2, 1, 0, 1, Feasibility.UNSCHEDULABLE),
        (2, 0, 0, 2, Feasibility.UNSCHEDULABLE),
        (2, 1, 0, 0, Feasibility.UNRESOLVABLE),
        (3, 1, 0, 1, Feasibility.UNRESOLVABLE),
    ],
)
def test_what_a_group_says_of_itself(
    minimum: int, placed: int, remaining: int, refused: int, said: Feasibility
) -> None:
    assert said is feasibility(minimum, placed, remaining, refused)
