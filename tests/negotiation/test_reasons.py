"""What people are told of a pod that waits."""

from collections import Counter
from collections.abc import Sequence

import pytest

from stower.driver import Allocation, RefusedError
from stower.framework.writes import CreateEvent
from stower.model.kinds import DeviceClass, Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.model.kinds.resource_claim import ALLOCATION_MODE, IMMEDIATE
from tests.builders import make_node, make_pod
from tests.device_builders import device, device_class, device_slice
from tests.negotiation.scenes import SCHEDULER, Scene, at_each_step
from tests.negotiation_cluster import Counting

FABRIC = "fabric.example.com"


@pytest.mark.behaviour("S0.32")
def test_the_condition_and_the_events_say_whom_the_pod_waits_for() -> None:
    scene = Scene("n1", laws=False)
    scene.class_of("fabric")
    scene.class_of("nic")
    scene.claim("c", "fabric")
    scene.claim("d", "nic")
    scene.pod("p", "c", "d")
    scene.settle()
    both = "default/c of fabric.example.com, default/d of nic.example.com"
    asks = f"waiting for resource driver to provide information: {both}"
    assert asks == scene.message("p")
    scene.answer("p", "c")
    scene.answer("p", "d")
    scene.settle()
    waits = f"waiting for resource driver to allocate resource: {both} on n1"
    assert waits == scene.message("p")
    scene.allocate("c", "n1", "p")
    scene.settle()
    assert waits.replace("default/c of fabric.example.com, ", "") == scene.message("p")
    told = [e.note for e in scene.events if e.reason == "FailedScheduling"]
    assert [asks, waits] == told


@pytest.mark.behaviour("S0.33")
@pytest.mark.parametrize("down", ["fabric", "nic", "both"])
def test_while_a_driver_is_down_its_pods_wait_for_it_by_name(down: str) -> None:
    scene = Scene("n1", "n2", fabric={"n1": 2}, nic={"n1": 2, "n2": 1})
    silent = [name for name in ("fabric", "nic") if down in (name, "both")]
    for name in silent:
        scene.drivers[f"{name}.example.com"].stop()
    scene.pod("p", own=["fabric", "nic"])
    for _ in range(30):
        scene.advance(29)
        assert "" == scene.node_of("p")
        for name in silent:
            assert f"{name}.example.com" in scene.message("p")
    for name in silent:
        scene.drivers[f"{name}.example.com"].start()
    scene.advance(600)
    assert "n1" == scene.node_of("p")


@pytest.mark.behaviour("S0.33")
def test_pods_of_other_drivers_do_not_wait_for_one_that_is_down() -> None:
    scene = Scene("n1", fabric={"n1": 2}, nic={"n1": 2})
    scene.drivers["nic.example.com"].stop()
    scene.pod("p", own=["fabric", "nic"], priority=10)
    scene.pod("q", own=["fabric"])
    scene.settle()
    assert ("", "n1") == (scene.node_of("p"), scene.node_of("q"))


@pytest.mark.parametrize("lacks", ["claim", "node"])
def test_a_pod_that_cannot_be_placed_does_not_hold_back_one_of_lower_rank(lacks: str) -> None:
    """Both may have failed before, over the same drivers: then one goes first."""

    def make() -> Scene:
        scene = Scene("n1", fabric={"n1": 2}, nic={"n1": 1})
        scene.claim("c", "fabric")
        scene.pod("high", "c", own=["nic"], priority=10, cpu="2")
        scene.pod("low", own=["nic", "fabric"])
        return scene

    for step, scene in at_each_step(make):
        if scene.node_of("high"):
            break
        if step % 5:
            continue
        if lacks == "claim":
            scene.delete(ResourceClaim, "c")
        else:
            scene.server.put(make_node("n1", cpu="1"))
        scene.advance(1_500)
        if not scene.node_of("high"):  # it may have been on its way there
            assert "n1" == scene.node_of("low"), step


@pytest.mark.behaviour("S0.33")
def test_a_driver_that_answers_late_is_heard() -> None:
    """Its answers, and what it allocates, come minutes after they were asked for."""
    scene = Scene("n1", "n2", fabric={"n2": 1}, nic={"n1": 1, "n2": 1})
    slow = scene.drivers[FABRIC]
    slow.rests = True
    scene.pod("p", own=["fabric", "nic"])
    for _ in range(200):
        scene.advance(45)
        slow.send() or slow.hear()
        if scene.node_of("p"):
            break
    assert "n2" == scene.node_of("p")


def test_a_pod_for_which_nothing_is_left_names_driver_and_claim_and_keeps_nothing() -> None:
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1}, nic={"n1": 0, "n2": 0})
    scene.pod("p", own=["fabric", "nic"])
    scene.advance(600)
    assert ([], [], ["p"]) == scene.rest()
    said = scene.message("p")
    assert "0/2 nodes are available: 2 node(s) on which nic.example.com cannot allocate" in said
    assert "no suitable node for default/p-own1 of nic.example.com" in said


class Surprising(Counting):
    """It has said that all nodes will do."""

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Sequence[str]:
        """None of them."""
        return []

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        """On n2 only."""
        if node != "n2":
            raise RefusedError("the cable is loose")
        return super().allocate(claims, node)


@pytest.mark.behaviour("S0.33")
def test_a_pod_of_high_rank_whose_driver_is_down_does_not_starve_those_that_failed_once() -> None:
    """They share another driver with it. Its turn ends, however long the driver is waited for."""
    scene = Scene("n1", "n2", laws=False, nic={"n1": 9, "n2": 9}, disk={"n1": 9, "n2": 9})
    scene.add_driver(Surprising(FABRIC, {"n1": 9, "n2": 9}))
    scene.drivers["disk.example.com"].stop()
    scene.pod("high", own=["nic", "disk"], priority=10)
    scene.settle()
    scene.answer("high", "own1")  # then it ends
    scene.advance(300)
    said = scene.said("high")
    assert said is not None
    assert said.spec.attempt
    scene.server.put(make_node("n2", taints=[{"key": "old", "effect": "PreferNoSchedule"}]))
    for i in range(3):
        scene.pod(f"low{i}", own=["nic", "fabric"])
    scene.advance(120)
    assert ["", "n2", "n2", "n2"] == [scene.node_of(n) for n in ("high", "low0", "low1", "low2")]


def test_attempts_of_others_are_no_reason_for_one_of_ones_own() -> None:
    """A pod whose selection has failed is tried again and again; one that waits for a driver which
    is down is not."""
    scene = Scene("n1", "n3", laws=False, nic={"n1": 9, "n3": 9}, slow={"n1": 9, "n3": 9})
    scene.add_driver(Surprising(FABRIC, {"n2": 1}))
    scene.drivers["slow.example.com"].stop()
    scene.pod("waits", own=["slow", "nic"])
    scene.settle()
    engine = scene.engine
    assert engine is not None
    waiting = engine.queue.get("uid-of-default-waits")
    assert waiting is not None
    before = waiting.attempts
    scene.pod("fails", own=["fabric", "nic"])
    scene.settle()
    said = scene.said("fails")
    assert said is not None
    assert said.spec.attempt
    assert before == waiting.attempts


def test_whoever_goes_second_goes_as_soon_as_the_first_has_gone() -> None:
    """Of two that have failed before, over the same drivers."""
    scene = Scene("n1", laws=False, nic={"n1": 9})
    scene.class_of("fabric")
    for name in ("first", "second"):
        scene.pod(name, own=["fabric", "nic"])
        scene.settle()
        scene.answer(name, "own0")
        scene.settle()
        scene.answer(name, "own0", "n1")  # after all it cannot
        scene.settle()
    for name in ("first", "second"):
        scene.answer(name, "own0")
        scene.settle()
    selected = {
        name: said.spec.selected_node for name in ("first", "second") if (said := scene.said(name))
    }
    assert {"first": "n1", "second": ""} == selected
    assert (
        "Another pod that negotiates with fabric.example.com, nic.example.com is tried first"
        == scene.message("second")
    )
    scene.delete(Pod, "first")
    scene.settle()
    said = scene.said("second")
    assert said is not None
    assert "n1" == said.spec.selected_node


@pytest.mark.behaviour("S0.40")
def test_a_failed_allocation_is_told_on_the_claim() -> None:
    scene = Scene("n1", "n3", laws=False)
    scene.add_driver(Surprising(FABRIC, {"n1": 1, "n2": 1}))
    scene.claim("c")
    scene.claim("now", allocation_mode=IMMEDIATE)
    scene.pod("p", "c")
    scene.advance(20)
    told = {(e.about[1], e.name, e.reason, e.note) for e in scene.events if e.reporter == FABRIC}
    failed = "AllocationFailed"
    assert {
        ("ResourceClaim", "now", failed, "Cannot allocate devices: the cable is loose"),
        ("ResourceClaim", "c", failed, "Cannot allocate devices on n1: the cable is loose"),
        ("ResourceClaim", "c", failed, "Cannot allocate devices on n3: the cable is loose"),
    } == told
    # The pod names driver and claim, and what was said about the pod the nodes.
    assert "no suitable node for default/c of fabric.example.com" in scene.message("p")
    said = scene.said("p")
    assert said is not None
    (answer,) = said.status.resource_claims or ()
    assert {"n1", "n3"} == {*(answer.unsuitable_nodes or ())}


def test_the_negotiation_needs_its_plugin() -> None:
    off = {"multiPoint": {"disabled": [{"name": "NegotiatedResources"}]}}
    scene = Scene(
        "n1", fabric={"n1": 1},
        configuration={"profiles": [{"schedulerName": SCHEDULER, "plugins": off}]},
    )  # fmt: skip
    scene.claim("c")
    scene.pod("p", "c")
    scene.advance(60)
    assert "" == scene.node_of("p")
    assert scene.said("p") is None
    told = "resource claim default/c is allocated by fabric.example.com: enable NegotiatedResources"
    assert told in scene.message("p")


def test_a_claim_of_two_drivers_is_nobodys() -> None:
    scene = Scene("n1", fabric={"n1": 1}, nic={"n1": 1})
    wants = [
        {"name": name, "exactly": {"deviceClassName": name, "count": 1}}
        for name in ("fabric", "nic")
    ]
    meta = {"name": "c", "namespace": "default", "uid": "c"}
    scene.put(ResourceClaim, {"metadata": meta, "spec": {"devices": {"requests": wants}}})
    scene.pod("p", "c")
    scene.advance(60)
    assert ([], [], []) == scene.rest()
    assert (
        "resource claim default/c asks for classes of different drivers: "
        "fabric of fabric.example.com, nic of nic.example.com"
    ) in scene.message("p")


def test_nor_is_one_that_is_to_be_allocated_at_once() -> None:
    scene = Scene("n1", fabric={"n1": 1}, nic={"n1": 1})
    wants = [
        {"name": name, "exactly": {"deviceClassName": name, "count": 1}}
        for name in ("fabric", "nic")
    ]
    meta = {"name": "c", "namespace": "default", "uid": "c",
            "annotations": {ALLOCATION_MODE: IMMEDIATE}}  # fmt: skip
    scene.put(ResourceClaim, {"metadata": meta, "spec": {"devices": {"requests": wants}}})
    scene.pod("p", "c")
    scene.advance(60)
    assert ([], [], []) == scene.rest()
    assert "asks for classes of different drivers" in scene.message("p")


def test_a_class_that_goes_takes_the_negotiation_with_it() -> None:
    """What is allocated stays with its driver; what is not is nobody's, until there is a class."""
    scene = Scene("n1", fabric={"n1": 2})
    scene.claim("c")
    scene.pod("p", "c")
    scene.settle()
    scene.drivers[FABRIC].stop()
    scene.pod("q", own=["fabric"])
    scene.settle()
    found = scene.server.get(ResourceClass, "fabric")
    scene.server.remove(found)
    scene.drivers[FABRIC].start()
    scene.advance(60)
    assert (["c"], ["c"], ["q"]) == scene.rest()
    assert ("n1", "") == (scene.node_of("p"), scene.node_of("q"))
    assert "device class fabric does not exist" in scene.message("q")
    scene.pod("r", "c")
    scene.settle()
    assert "n1" == scene.node_of("r")
    scene.server.put(found)
    scene.advance(60)
    assert "n1" == scene.node_of("q")


@pytest.mark.parametrize("takes", [True, False])
def test_a_class_that_becomes_one_of_listed_devices_hands_its_claims_over(takes: bool) -> None:
    """The scheduler allocates them then; what the driver has taken meanwhile it gives back."""
    scene = Scene("n1", laws=False, fabric={"n1": 1})
    scene.server.put(device_class("fabric"))
    scene.server.put(device_slice("n1", device("g1")))
    assert scene.server.get(DeviceClass, "fabric") is not None
    driver = scene.drivers[FABRIC]
    scene.claim("c")
    scene.pod("p", "c")
    driver.ledger.crash_after = 1 if takes else None
    driver.ledger.crash_before = None if takes else 0
    scene.settle()
    assert not driver.is_up
    scene.server.remove(scene.server.get(ResourceClass, "fabric"))
    scene.advance(20)
    driver.start()
    scene.advance(60)
    # Its finalizer is there: it is the driver's still, and is finished.
    assert "n1" == scene.node_of("p")
    assert (["c"], ["c"], []) == scene.rest()


def test_a_class_that_comes_last_is_noticed_at_once() -> None:
    """Until then the claim was one that nobody's devices can meet."""
    scene = Scene("n1", laws=False)
    scene.put(DeviceClass, {"metadata": {"name": "fabric", "uid": "fabric-devices"}, "spec": {
        "selectors": [{"cel": {"expression": "false"}}]}})  # fmt: skip
    scene.claim("c", "fabric")
    scene.pod("p", "c")
    scene.settle()
    assert "cannot allocate all claims" in scene.message("p")
    scene.class_of("fabric")
    scene.settle()
    waits = f"waiting for resource driver to allocate resource: default/c of {FABRIC} on n1"
    assert waits == scene.message("p")


def test_a_node_that_nobody_has_seen_yet_changes_nothing_for_those_that_wait() -> None:
    """A pod is bound to it, so that there is one row more than at the last attempt."""
    scene = Scene("n1", fabric={"n1": 1}, laws=False)
    assert scene.engine is not None
    term = {"matchExpressions": [{"key": "x", "operator": "Exists"}]}
    scene.class_of("slow", suitableNodes={"nodeSelectorTerms": [term]})
    scene.claim("c", "slow")
    scene.pod("p", "c")
    scene.settle()
    scene.advance(400)
    scene.server.put(make_pod("other", node="unknown"))
    scene.settle()
    scene.engine.drain()
    scene.advance(400)
    decisions = scene.engine.drain()
    assert decisions
    assert all("excluded by resource class slow" in each.message for each in decisions)


def test_a_round_has_one_event_for_each_thing_that_the_pod_waits_for() -> None:
    """Not one for each answer of a driver."""
    devices = {f"n{i}": 1 for i in range(1, 4)}
    scene = Scene(*devices, fabric=devices, nic=devices)
    pods = [f"p{i}" for i in range(6)]
    for name in pods:
        scene.pod(name, own=["fabric", "nic"])
    scene.advance(60)
    rounds = {
        obj.metadata.name: obj.spec.round for obj in scene.seen if isinstance(obj, PodScheduling)
    }
    written = [write for write in scene.writes if isinstance(write, CreateEvent)]
    for name in pods:
        notes = [write.note for write in written if write.name == name]
        heads = Counter(note.partition(":")[0] for note in notes if not note.startswith("0/"))
        assert max(heads.values()) <= rounds[name] + 1
    assert 3 == len([name for name in pods if scene.node_of(name)])


def test_an_event_tells_of_nodes_that_are_refused_in_the_same_round() -> None:
    scene = Scene("n1", laws=False)
    for driver, claim in (("fabric", "c"), ("nic", "d")):
        scene.class_of(driver)
        scene.claim(claim, driver)
    scene.pod("p", "c", "d", cpu="2")
    scene.settle()
    scene.answer("p", "c")
    scene.advance(40)
    scene.server.put(make_node("n1", cpu="1"))
    scene.settle()
    scene.advance(900)
    assert any("Insufficient cpu" in event.note for event in scene.events)
