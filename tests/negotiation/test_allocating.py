"""What drivers allocate once a node is selected, and what they leave alone."""

from collections.abc import Mapping
from itertools import pairwise

import pytest

from stower.devices.negotiation.overview import Objects, overview
from stower.devices.negotiation.refusals import Refusals
from stower.framework.writes import patch_of
from stower.model.kinds import Node, Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.model.times import SECOND_NS
from tests.negotiation.scenes import Scene, configured, merged, select
from tests.negotiation_cluster import DRIVER, Cluster, Counting, nodes

FABRIC = "fabric.example.com"


@pytest.mark.behaviour("S0.18")
def test_the_selected_node_is_what_makes_a_driver_allocate() -> None:
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1})
    scene.scheduler.stop()
    scene.claim("c")
    scene.pod("p", "c")
    said = select(scene, "p", potentialNodes=["n1", "n2"], round=1)
    scene.advance(100)
    assert [] == scene.allocated()
    said = scene.server.get(PodScheduling, "default/p")
    scene.write(patch_of(said, {"spec": {"selectedNode": "n2"}}))
    scene.settle()
    assert "n2" == scene.pool("c")


@pytest.mark.behaviour("S0.19")
@pytest.mark.parametrize("devices", [{"n1": 1}, {"n1": 1, "n2": 2}])
def test_two_claims_of_one_driver_are_allocated_together_or_not_at_all(
    devices: Mapping[str, int],
) -> None:
    scene = Scene("n1", "n2", fabric=devices)
    scene.pod("p", own=["fabric", "fabric"])
    scene.advance(100)
    want = ["p-own0", "p-own1"] if "n2" in devices else []
    assert want == scene.allocated()
    assert ("n2" if want else "") == scene.node_of("p")
    said = [obj for obj in scene.seen if isinstance(obj, ResourceClaim)]
    assert {"n2"} >= {p for o in said if o.status.allocation for p in [scene.pool(o.metadata.name)]}


@pytest.mark.behaviour("S0.20")
def test_the_finalizer_comes_first_then_allocation_and_reservation_in_one_write() -> None:
    scene = Scene("n1", fabric={"n1": 1})
    scene.pod("p", own=["fabric"])
    scene.settle()
    steps = [
        (bool(c.metadata.finalizers), c.status.allocation is not None, c.is_reserved_for(
            "uid-of-default-p"))
        for c in scene.seen
        if isinstance(c, ResourceClaim)
    ]  # fmt: skip
    assert [(False, False, False), (True, False, False), (True, True, True)] == steps


@pytest.mark.behaviour("S0.39")
def test_a_node_on_which_nothing_comes_to_pass_is_given_up_after_a_timeout() -> None:
    scene = Scene("n1", "n2", laws=False, configuration=configured(selectionTimeout="5s"))
    scene.class_of("fabric")
    scene.claim("c")
    scene.pod("p", "c")
    scene.settle()
    said = scene.said("p")
    assert said is not None
    first = said.spec.selected_node
    scene.advance(4.9)
    assert scene.said("p") == said
    scene.advance(1.4)  # the longest that a first attempt waits: a quarter more
    assert [{"selectedNode": "", "attempt": 1}] == merged(scene.spec_writes("p"))[:1]
    said = scene.said("p")
    assert said is not None
    assert said.spec.selected_node == ({"n1", "n2"} - {first}).pop(), "another one"
    times = [scene.now_ns]
    for _ in range(4):
        attempt = said.spec.attempt
        while said is None or said.spec.attempt == attempt:
            scene.advance(1)
            said = scene.said("p")
        times.append(scene.now_ns)
    waits = [(b - a) // SECOND_NS for a, b in pairwise(times)]
    assert waits == sorted(waits)
    assert waits[-1] > 8 * waits[0], waits


@pytest.mark.behaviour("S0.28")
def test_what_was_said_goes_when_the_pod_is_bound_and_drivers_ignore_the_dead() -> None:
    scene = Scene("n1", fabric={"n1": 1})
    scene.pod("p", own=["fabric"])
    scene.settle()
    assert "n1" == scene.node_of("p")
    assert scene.said("p") is None
    scene.delete(Pod, "p")
    scene.settle()
    # Of a pod that was deleted, and of one that came after it under its name.
    scene.keeper.is_up = False
    scene.scheduler.stop()
    scene.claim("c")
    select(scene, "gone", selectedNode="n1", potentialNodes=["n1"], round=1)
    scene.pod("q", "c", uid="another")
    select(scene, "q", selectedNode="n1", potentialNodes=["n1"], round=1)
    scene.advance(60)
    assert ([], [], ["gone", "q"]) == scene.rest()
    scene.keeper.is_up = True
    scene.start()
    scene.advance(10)
    assert "n1" == scene.node_of("q")
    assert (["c"], ["c"], []) == scene.rest()


def test_a_driver_may_be_asked_about_nodes_that_it_does_not_know() -> None:
    """Nobody told it of them; and what it says of nodes that are not there does no harm."""
    scene = Scene("n1", "n2", laws=False)
    scene.class_of("fabric")
    scene.class_of("nic")
    scene.claim("c", "fabric")
    scene.claim("d", "nic")
    scene.pod("p", "c", "d")
    scene.settle()
    scene.answer("p", "c", "n1", "nobody", "n7")
    scene.answer("p", "d", "nobody")
    scene.settle()
    assert [{"selectedNode": "n2"}] == merged(scene.spec_writes("p"))
    cluster = Cluster(nodes("n1"))
    cluster.start()
    cluster.add_driver(Counting(FABRIC, {"elsewhere": 4}))
    cluster.claim("c")
    cluster.pod("p", "c")
    cluster.advance(10)
    assert "no suitable node for default/c of fabric.example.com" in cluster.message("p")


@pytest.mark.behaviour("S0.43")
def test_a_claim_that_was_allocated_meanwhile_is_not_waited_for() -> None:
    scene = Scene("n1", "n2", "n3", laws=False)
    scene.class_of("fabric")
    scene.class_of("nic")
    scene.claim("c", "fabric")
    scene.claim("d", "nic")
    scene.pod("p", "c", "d")
    scene.settle()
    scene.answer("p", "d", "n1")
    scene.settle()
    said = scene.said("p")
    assert said is not None
    assert "" == said.spec.selected_node, "the other driver has not answered"
    scene.allocate("c", "n3")
    scene.settle()
    assert [{"selectedNode": "n3"}] == merged(scene.spec_writes("p"))
    scene.allocate("d", "n3", driver="nic.example.com")
    scene.settle()
    assert "n3" == scene.node_of("p")


@pytest.mark.behaviour("S0.43")
def test_a_driver_looks_at_the_claim_before_it_acts_on_what_was_said() -> None:
    """The selection is old: the claim has its devices, on another node."""
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1})
    scene.claim("c")
    scene.pod("q", "c")
    scene.settle()
    (node,) = {"n1", "n2"} - {scene.pool("c")}
    scene.scheduler.stop()
    scene.pod("p", "c")
    select(scene, "p", selectedNode=node, potentialNodes=[node], round=1)
    before = scene.has("c")
    scene.advance(100)
    assert before == scene.has("c")
    assert (["c"], ["c"], ["p"]) == scene.rest()


def test_a_driver_that_refuses_what_it_called_suitable_is_asked_less_and_less_often() -> None:
    """Both at once, and again and again: nobody may write without end."""
    scene = Scene("n1", "n2", laws=False)
    scene.class_of("fabric")
    scene.claim("c")
    scene.pod("p", "c")
    scene.settle()
    selections = []
    for hour in range(2):
        before = len(scene.spec_writes("p"))
        for _ in range(hour * 3_600, (hour + 1) * 3_600, 5):
            said = scene.said("p")
            assert said is not None
            if said.spec.selected_node:
                scene.answer("p", "c", said.spec.selected_node)
                scene.settle()
                scene.answer("p", "c")
            scene.advance(5)
        selections.append(sum(
            bool(spec.get("selectedNode")) for spec in merged(scene.spec_writes("p")[before:])
        ))  # fmt: skip
    assert 25 > selections[0] > selections[1] == 12, "each node every ten minutes"
    assert "resource driver refused all nodes that were selected" in scene.message("p")
    kinds = (Pod, ResourceClaim, ResourceClass, PodScheduling, Node)
    shown = overview(Objects(*(scene.server.all(kind).values() for kind in kinds)))
    assert shown is not None
    assert "drivers refused all that were selected" in shown.negotiations[0].claims[0].awaits


def test_a_driver_whose_devices_come_and_go_does_not_refuse_always() -> None:
    refusals = Refusals()

    def fail(second: int, changes: int, is_late: bool = False) -> int:
        now_ns = second * SECOND_NS
        refusals.add("uid", "n1", DRIVER, now_ns, now_ns, changes, is_late)
        found = refusals.get("uid", "n1")
        assert found is not None
        return (found.until_ns - now_ns) // SECOND_NS

    assert [0, 30, 60, 0, 30] == [
        fail(0, 5), fail(100, 5), fail(200, 5), fail(300, 7), fail(400, 7)
    ]  # fmt: skip
    assert 30 == fail(400, 7), "the same selection"
    assert [30, 60, 120] == [fail(500, 8, True), fail(600, 8, True), fail(700, 8, True)]
    assert 3 == refusals.late_count("uid")
    assert (None, 0) == (refusals.get("uid", "n2"), refusals.late_count("another"))
