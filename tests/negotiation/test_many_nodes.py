"""Few nodes among many: in how many rounds they are found, and how little is written."""

from typing import Any

import pytest

from stower.framework.writes import CreateObject, DeleteObject, PatchObject
from stower.model.kinds import PodScheduling
from tests.builders import make_node
from tests.negotiation.scenes import Scene
from tests.negotiation_cluster import Counting

FABRIC, NIC = "fabric.example.com", "nic.example.com"


def cluster(count: int, labels: dict[int, dict[str, str]], **devices: list[int]) -> Scene:
    """So many nodes, some with labels of their own, and devices on some of them."""
    scene = Scene(laws=False)
    for i in range(count):
        own = {"kubernetes.io/hostname": f"n{i:04}", **labels.get(i, {})}
        scene.server.put(make_node(f"n{i:04}", labels=own))
    for driver, where in devices.items():
        scene.add_driver(Counting(f"{driver}.example.com", {f"n{i:04}": 1 for i in where}))
    scene.settle()
    return scene


def rounds(scene: Scene, pod: str = "p") -> int:
    """In which round it was when it was last seen."""
    said = [o for o in scene.seen if isinstance(o, PodScheduling) and o.metadata.name == pod]
    return said[-1].spec.round


def counts(scene: Scene, pod: str = "p") -> dict[str, int]:
    """What the scheduler wrote about what is said of the pod."""
    found = dict.fromkeys(("made", "asked", "selected", "cleared", "deleted"), 0)
    for write in scene.spec_writes(pod):
        spec: dict[str, Any] = {}
        if isinstance(write, CreateObject):
            found["made"] += 1
            spec = write.body["spec"]
        elif isinstance(write, DeleteObject):
            found["deleted"] += 1
        elif isinstance(write, PatchObject):
            spec = write.patch["spec"]
            found["asked"] += "potentialNodes" in spec
            found["cleared"] += spec.get("selectedNode") == ""
        found["selected"] += bool(spec.get("selectedNode"))
    return found


@pytest.mark.behaviour("S0.8", "S0.15")
@pytest.mark.parametrize("where", [[0, 1, 2], [50, 100, 150], [197, 198, 199], [3, 4, 199]])
def test_of_200_nodes_the_3_that_will_do_are_found_within_two_rounds(where: list[int]) -> None:
    scene = cluster(200, {}, fabric=where, nic=[*range(200)])
    for pod in ("a", "b", "c"):
        scene.pod(pod, own=["fabric", "nic"])
    scene.advance(5)
    assert sorted(f"n{i:04}" for i in where) == sorted(scene.node_of(pod) for pod in "abc")
    for pod in "abc":
        assert rounds(scene, pod) <= 2
        written = counts(scene, pod)
        assert (1, 1) == (written["made"], written["deleted"])
        assert written["asked"] == rounds(scene, pod) - 1


@pytest.mark.parametrize("own", [["fabric"], ["fabric", "nic"]])
def test_of_1000_nodes_one_of_a_rare_kind_is_found_in_the_first_round(own: list[str]) -> None:
    scene = cluster(1_000, {613: {"accelerated": "yes"}}, fabric=[300, 613], nic=[*range(1_000)])
    for name in ("accelerated",):
        for i in range(6):  # so that the label tells nodes apart, and is not each node's own
            scene.server.put(make_node(f"x{i}", labels={name: "no"}))
    scene.pod("p", own=own)
    scene.advance(5)
    assert "n0613" == scene.node_of("p")
    assert 1 == rounds(scene)


@pytest.mark.parametrize("where", [0, 127, 128, 255, 256, 299])
@pytest.mark.parametrize("own", [["fabric"], ["fabric", "nic"]])
def test_of_300_equal_nodes_the_one_is_found_in_few_rounds(where: int, own: list[str]) -> None:
    scene = cluster(300, {}, fabric=[where], nic=[*range(300)])
    scene.pod("p", own=own)
    scene.advance(5)
    assert f"n{where:04}" == scene.node_of("p")
    assert rounds(scene) <= 4
    written = counts(scene)
    assert (1, 1) == (written["made"], written["deleted"])
    assert written["asked"] == rounds(scene) - 1
    if len(own) > 1:
        assert (1, 0) == (written["selected"], written["cleared"])
    else:
        # One node at each round is tried at once, and taken back as it will not do.
        assert written["selected"] == written["cleared"] + 1 <= rounds(scene) + 1


@pytest.mark.parametrize("drivers", [1, 2, 3])
def test_what_is_written_for_a_pod_that_fits_at_once(drivers: int) -> None:
    own = ["fabric", "nic", "disk"][:drivers]
    scene = cluster(100, {}, **{name: [*range(50, 60)] for name in own})
    scene.pod("p", own=own)
    scene.advance(5)
    assert scene.node_of("p")
    cleared = counts(scene)["cleared"]
    want = {"made": 1, "asked": 0, "selected": 1 + cleared, "cleared": cleared, "deleted": 1}
    assert want == counts(scene)
    assert cleared == 0 or drivers == 1
    for process in scene.drivers.values():
        assert process.controller is not None
        done = process.controller.counts
        # Again where another driver's answer came first.
        assert done.answers <= 1 + drivers
        assert (1, 0, 0) == (done.allocations, done.refusals, done.deallocations)


@pytest.mark.parametrize("own", [["fabric"], ["fabric", "nic"]])
def test_where_none_of_300_will_do_that_is_said_once_and_looked_after_all_the_same(
    own: list[str],
) -> None:
    scene = cluster(300, {}, fabric=[], nic=[*range(300)])
    scene.pod("p", own=own)
    scene.advance(120)
    before, told = rounds(scene), len(scene.events)
    assert "no suitable node for default/p-own0 of fabric.example.com" in scene.message("p")
    scene.advance(300)
    assert told == len(scene.events)
    assert before + 3 <= rounds(scene)
    scene.driver().devices["n0277"] = 1
    scene.advance(631)
    assert "n0277" == scene.node_of("p")


def test_twenty_pods_for_ten_devices_write_no_more_than_they_need() -> None:
    scene = cluster(30, {}, fabric=[*range(10)], nic=[*range(30)])
    for i in range(20):
        scene.pod(f"p{i}", own=["fabric", "nic"])
    scene.advance(900)
    placed = [f"p{i}" for i in range(20) if scene.node_of(f"p{i}")]
    assert 10 == len(placed)
    assert 20 == len(scene.allocated())
    for i in range(20):
        written = counts(scene, f"p{i}")
        assert written["made"] == 1
        assert written["deleted"] == (f"p{i}" in placed)
        assert written["cleared"] <= written["selected"] <= written["cleared"] + 1
        assert written["asked"] <= 2
        assert written["cleared"] <= 10
    before = len(scene.writes)
    scene.advance(900)
    assert before == len(scene.writes)
