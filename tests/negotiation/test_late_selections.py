"""Drivers that call a node suitable and do not allocate there: what the pods hold meanwhile, and
what others get."""

import pytest

from stower.model.kinds import Pod
from tests.builders import make_node, make_pod
from tests.group_builders import make_group
from tests.negotiation.hanging import Hanging
from tests.negotiation.scenes import Scene
from tests.negotiation_cluster import Counting

MANY = [f"n{i:03}" for i in range(200)]


def test_the_pods_of_a_group_give_back_what_they_have_when_one_of_them_is_late() -> None:
    devices = {"n1": 1, "n2": 1}
    scene = Scene("n1", "n2", fabric=devices, nic=devices)
    scene.server.put(make_group("g", 2))
    for name, driver in (("a", "fabric"), ("b", "nic")):
        entry = {"name": "own0", "resourceClaimTemplateName": driver}
        group = {"podGroupName": "g"}
        scene.server.put(make_pod(name, schedulingGroup=group, resourceClaims=[entry]))
    while (said := scene.said("b")) is None or not said.status.resource_claims:
        scene.run(1)
    scene.drivers["nic.example.com"].stop()
    scene.advance(600)
    assert [] == scene.allocated()
    assert "default/b-own0 of nic.example.com (no answer since" in scene.message("b")
    scene.drivers["nic.example.com"].start()
    scene.advance(1_300)
    assert ["n1", "n2"] == sorted({scene.node_of("a"), scene.node_of("b"), "n1", "n2"})
    assert all(scene.node_of(name) for name in "ab")


@pytest.mark.parametrize("priority", [0, 5])
def test_what_a_late_selection_gives_back_goes_to_others(priority: int) -> None:
    scene = Scene("n1", laws=False, fabric={"n1": 1})
    Hanging(scene, "nic", good=[], hung=["n1"])
    scene.pod("p", own=["fabric", "nic"], priority=5)
    scene.advance(1)
    assert ["p-own0"] == scene.allocated()
    scene.pod("q", own=["fabric"], priority=priority)
    scene.advance(60)
    assert "n1" == scene.node_of("q")


@pytest.mark.parametrize("own", [["nic"], ["fabric", "nic"]])
def test_a_node_on_which_nobody_allocates_is_not_the_only_one_of_many(own: list[str]) -> None:
    """It is among the first that are asked about, and the good one is not."""
    scene = Scene(*MANY, laws=False, fabric=dict.fromkeys(MANY, 1))
    probe = Scene(*MANY, laws=False, fabric=dict.fromkeys(MANY, 1), nic={})
    probe.pod("p", own=own)
    probe.advance(1)
    said = probe.said("p")
    assert said is not None
    asked = [obj.spec.potential_nodes for obj in probe.seen if type(obj) is type(said)]
    first = asked[0]
    good = next(name for name in MANY if name not in first)
    Hanging(scene, "nic", good=[good], hung=[first[0]])
    scene.pod("p", own=own)
    scene.advance(600)
    assert good == scene.node_of("p")


def test_pods_whose_selections_are_late_take_no_turns() -> None:
    """Others share a driver with them, whose devices are free."""
    scene = Scene("n1", "n2", laws=False, fabric={"n1": 99, "n2": 0})
    Hanging(scene, "nic", good=[], hung=["n1"])
    for i in range(9):
        scene.pod(f"p{i}", own=["fabric", "nic"])
    scene.advance(600)
    scene.pod("q", own=["fabric"])
    scene.advance(3)
    assert "n1" == scene.node_of("q")


def test_refusals_do_not_make_a_pod_hold_devices_for_longer() -> None:
    """Only selections that were late do: others may be quick elsewhere."""
    scene = Scene("n1", laws=False)
    for driver in ("fabric", "nic"):
        scene.class_of(driver)
    scene.pod("p", own=["fabric", "nic"])
    scene.settle()
    for refusals in ([], ["n1"], [], ["n1"], []):
        scene.answer("p", "own0")
        scene.answer("p", "own1", *refusals)
        scene.advance(31)
    said = scene.said("p")
    assert said is not None
    assert (2, "n1") == (said.spec.attempt, said.spec.selected_node)
    scene.allocate("p-own0", "n1", "p")
    scene.advance(40)
    assert ["p-own0"] == scene.flagged()


@pytest.mark.parametrize(("count", "lasts_s"), [(12, 3), (6, 30)])
def test_pods_that_compete_for_one_device_leave_it_seldom_idle(count: int, lasts_s: int) -> None:
    scene = Scene("n1", laws=False, fabric={"n1": 1})
    for i in range(count):
        scene.pod(f"p{i}", own=["fabric"])
    done: list[str] = []
    seconds = 0
    since = 0
    while len(done) < count and seconds < 100 * count:
        scene.advance(1)
        seconds += 1
        running = [f"p{i}" for i in range(count) if f"p{i}" not in done]
        running = [name for name in running if scene.node_of(name)]
        since = since + 1 if running else 0
        if running and since >= lasts_s:
            scene.delete(Pod, running[0])
            done.append(running[0])
            since = 0
    assert seconds <= count * (lasts_s + 2) + 60, "no more than a few seconds between two"


class Careless(Counting):
    """Calls all nodes suitable, whatever it has."""

    def unsuitable_nodes(self, pod: object, claims: object, nodes: object) -> tuple[str, ...]:
        return ()


def test_a_device_that_is_given_back_is_taken_soon_after_many_refusals() -> None:
    scene = Scene("n1", laws=False)
    scene.server.put(make_node("n1"))
    scene.add_driver(Careless("fabric.example.com", {"n1": 1}))
    for name in ("a", "b"):
        scene.pod(name, own=["fabric"])
        scene.advance(1)
    (runs,) = (name for name in "ab" if scene.node_of(name))
    scene.advance(700)
    scene.delete(Pod, runs)
    scene.advance(60)
    assert "n1" == scene.node_of({"a": "b", "b": "a"}[runs])
