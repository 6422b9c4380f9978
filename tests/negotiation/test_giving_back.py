"""When claims are given back, in which order, and who may not take what."""

import pytest

from stower.framework.writes import PatchObject, PatchPodStatus, patch_of
from stower.model.kinds import Node, Pod, PodScheduling, ResourceClaim
from stower.model.kinds.resource_claim import DEALLOCATION_REQUESTED, IMMEDIATE
from tests.builders import make_node
from tests.negotiation.scenes import Scene

FABRIC = "fabric.example.com"


def kind_of(write: object) -> str:
    """What a write of S8 does."""
    if isinstance(write, PatchPodStatus):
        name = write.condition.type if write.condition is not None else ""
        return "touch" if name == "stower.dev/ClaimGivenBack" and write.resource_version else ""
    if not isinstance(write, PatchObject):
        return ""
    if write.view is PodScheduling:
        return "clear" if write.patch["spec"].get("selectedNode") == "" else ""
    if DEALLOCATION_REQUESTED in write.patch.get("metadata", {}).get("annotations", {}):
        return f"flag {write.name}"
    if "reservedFor" in write.patch.get("status", {}):
        return f"unreserve {write.name}"
    return ""


def steps(scene: Scene) -> list[str]:
    """What the scheduler wrote to give something back, in order."""
    found = [kind for write in scene.writes if (kind := kind_of(write))]
    # What was refused, as something newer was there, is written once more.
    return [kind for kind, before in zip(found, ["", *found]) if kind != before]


def cordoned(scene: Scene, name: str) -> None:
    scene.server.put(make_node(name, unschedulable=True))


@pytest.mark.behaviour("S0.23", "S0.25")
def test_a_claim_is_given_back_in_order_when_no_node_is_left() -> None:
    """The node is closed after the first of two drivers has allocated there."""
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1}, nic={"n1": 1, "n2": 1})
    scene.pod("p", own=["fabric", "nic"])
    while not scene.allocated():
        scene.run(1)
    scene.drivers["nic.example.com"].stop()
    (first,) = scene.allocated()
    assert "p-own0" == first
    node = scene.pool(first)
    cordoned(scene, node)
    scene.drivers["nic.example.com"].start()
    scene.advance(600)
    other = ({"n1", "n2"} - {node}).pop()
    assert other == scene.node_of("p")
    assert [other] * 2 == [scene.pool("p-own0"), scene.pool("p-own1")]
    given = steps(scene)
    assert "clear" == given[0]
    for claim in scene.flagged():
        at = given.index(f"flag {claim}")
        assert [f"flag {claim}", "touch", f"unreserve {claim}"] == given[at : at + 3]


@pytest.mark.behaviour("S0.23")
def test_claims_on_different_nodes_are_given_back_one_at_a_time() -> None:
    scene = Scene("n1", "n2", fabric={"n1": 2, "n2": 2})
    for claim, node in (("c", "n1"), ("d", "n2")):
        scene.claim(claim)
        scene.server.put(make_node(node, labels={"here": node}))
        scene.pod(f"maker-{claim}", claim, nodeSelector={"here": node})
        scene.settle()
        assert node == scene.pool(claim)
        scene.delete(Pod, f"maker-{claim}")
    scene.settle()
    scene.pod("p", "c", "d")
    scene.advance(60)
    assert scene.pool("c") == scene.pool("d") == scene.node_of("p") != ""
    assert 1 == len(scene.flagged()), "the other one stays where it is"


@pytest.mark.behaviour("S0.23")
@pytest.mark.parametrize("users", [1, 2])
def test_claims_on_a_lost_node_are_given_back_whoever_waits_with_them(users: int) -> None:
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1}, nic={"n1": 2, "n2": 2})
    scene.claim("c")
    for i in range(users):
        scene.pod(f"p{i}", "c", own=["nic"])
    while "c" not in scene.allocated():
        scene.run(1)
    node = scene.pool("c")
    scene.server.remove(scene.server.get(Node, node))
    scene.advance(600)
    other = ({"n1", "n2"} - {node}).pop()
    assert [other] * users == [scene.node_of(f"p{i}") for i in range(users)]
    assert other == scene.pool("c")


@pytest.mark.behaviour("S0.23", "S0.26")
def test_a_claim_that_others_use_is_not_taken_from_them() -> None:
    """p would do on n2 alone, where the claim cannot go while q runs with it."""
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1}, nic={"n2": 1})
    scene.server.put(make_node("n1", labels={"here": "yes"}))
    scene.claim("c")
    scene.pod("q", "c", nodeSelector={"here": "yes"})
    scene.settle()
    scene.pod("p", "c", own=["nic"])
    scene.advance(600)
    assert (["c"], []) == (scene.allocated(), scene.flagged())
    assert "" == scene.node_of("p")
    assert "default/p-own0 of nic.example.com" in scene.message("p")
    scene.delete(Pod, "q")
    scene.advance(60)
    assert "n2" == scene.node_of("p")


@pytest.mark.behaviour("S0.23", "S0.26")
def test_while_a_flagged_claim_is_in_use_a_pod_keeps_nothing_else() -> None:
    scene = Scene("n1", fabric={"n1": 2})
    scene.claim("c")
    scene.pod("q", "c")
    scene.settle()
    scene.drivers[FABRIC].stop()
    scene.claim("d")
    scene.pod("p", "c", "d")
    scene.settle()
    driver = scene.drivers[FABRIC]
    driver.start()
    while "d" not in scene.allocated():
        assert driver.work()
    scene.flag("c")  # a user wants the device back when q is done
    scene.advance(60)
    assert "" == scene.node_of("p")
    assert ["c"] == scene.allocated(), "d was given back"
    assert ["q"] == scene.users("c"), "no new reservation"
    wants = f"waiting for resource driver to deallocate resource: default/c of {FABRIC}"
    assert wants in scene.message("p")
    scene.delete(Pod, "q")
    scene.advance(60)
    assert "n1" == scene.node_of("p")


@pytest.mark.behaviour("S0.23")
def test_a_pod_that_waits_for_its_turn_keeps_no_devices() -> None:
    """Each would wait for the other: for its turn, and for the devices."""
    scene = Scene("n1", laws=False)
    for driver in ("fabric", "nic"):
        scene.class_of(driver)
    for name in ("first", "second"):
        scene.pod(name, own=["fabric", "nic"])
        scene.settle()
        for entry in ("own0", "own1"):
            scene.answer(name, entry)
        scene.settle()
    scene.answer("first", "own1", "n1")  # after all it cannot
    scene.advance(28)
    scene.answer("first", "own1")
    scene.advance(12)  # the selection for the second one has timed out
    for entry in ("own0", "own1"):
        scene.answer("second", entry)
    scene.allocate("second-own0", "n1", "second")  # and comes to pass all the same
    scene.advance(9)
    assert [] == scene.flagged(), "the first one may be quick"
    scene.advance(2)
    assert ["second-own0"] == scene.flagged()
    assert "is tried first" in scene.has("second-own0").metadata.annotations[DEALLOCATION_REQUESTED]
    assert [] == scene.users("second-own0")


@pytest.mark.behaviour("S0.39")
def test_a_selection_that_is_late_gives_back_what_the_pod_alone_has() -> None:
    """All of it, in two claims; and nothing is selected before all drivers have answered anew."""
    scene = Scene("n1", laws=False)
    for driver in ("fabric", "nic", "disk"):
        scene.class_of(driver)
    scene.pod("p", own=["fabric", "nic", "disk"])
    scene.settle()
    for entry in ("own0", "own1", "own2"):
        scene.answer("p", entry)
    scene.settle()
    for claim in ("p-own0", "p-own1"):
        scene.allocate(claim, "n1", "p")
    scene.advance(29)
    assert [] == scene.flagged()
    scene.advance(9)
    assert ["p-own0", "p-own1"] == scene.flagged()
    assert ([], []) == (scene.users("p-own0"), scene.users("p-own1"))
    why = scene.has("p-own0").metadata.annotations[DEALLOCATION_REQUESTED]
    assert "timed out waiting for the allocation of default/p-own2 of disk.example.com" in why
    said = scene.said("p")
    assert said is not None
    assert ("", 2, 1) == (said.spec.selected_node, said.spec.round, said.spec.attempt)


@pytest.mark.behaviour("S0.39")
def test_what_a_pod_shares_stays_when_its_selection_is_late() -> None:
    scene = Scene("n1", laws=False)
    for driver in ("fabric", "nic"):
        scene.class_of(driver)
    scene.claim("c", "fabric")
    scene.claim("d", "nic")
    scene.pod("user", "c")
    scene.settle()
    scene.allocate("c", "n1", "user")
    scene.settle()
    assert "n1" == scene.node_of("user")
    scene.pod("p", "c", "d")
    scene.advance(100)
    assert ([], ["c"]) == (scene.flagged(), scene.allocated())


@pytest.mark.behaviour("S0.23")
@pytest.mark.parametrize("silent", ["about a claim to give back", "about the nodes"])
def test_a_pod_keeps_no_devices_while_it_waits_for_a_silent_driver(silent: str) -> None:
    scene = Scene("n1", laws=False)
    for driver in ("fabric", "nic"):
        scene.class_of(driver)
    scene.pod("p", own=["fabric", "nic"])
    scene.settle()
    for entry in ("own0", "own1"):
        scene.answer("p", entry)
    scene.settle()
    cordoned(scene, "n1")
    scene.allocate("p-own0", "n1", "p")
    if silent == "about the nodes":
        scene.answer("p", "own1", "n1", round=0)  # before it was asked the last time
        expected = ["p-own0"]
    else:
        scene.allocate("p-own1", "n1", "p", driver="nic.example.com")
        expected = ["p-own0", "p-own1"]
    scene.advance(20)
    assert expected[:-1] == scene.flagged()
    scene.advance(20)
    assert expected == scene.flagged()
    assert [] == scene.users(expected[-1])


@pytest.mark.behaviour("S0.26")
@pytest.mark.parametrize("how", ["flagged", "deleted"])
def test_the_device_is_freed_first_then_the_status_then_flag_and_finalizer(how: str) -> None:
    scene = Scene("n1", fabric={"n1": 1})
    scene.claim("c")
    scene.pod("q", "c")
    scene.settle()
    scene.scheduler.stop()
    scene.flag("c") if how == "flagged" else scene.delete(ResourceClaim, "c")
    scene.advance(60)
    assert (["c"], ["c"], []) == scene.rest(), "while it is in use"
    del scene.seen[:]
    scene.delete(Pod, "q")
    found = []
    for _ in scene.units():
        claim = scene.server.get(ResourceClaim, "default/c")
        leaving = claim is not None and DEALLOCATION_REQUESTED in (claim.metadata.annotations or {})
        leaving |= claim is not None and claim.metadata.deletion_timestamp is not None
        finalizer = claim is not None and bool(claim.metadata.finalizers)
        allocated = claim is not None and claim.status.allocation is not None
        state = (scene.rest()[0] != [], allocated, finalizer, leaving)
        if not found or found[-1] != state:
            found.append(state)
    assert [
        (True, True, True, True), (False, True, True, True), (False, False, True, True),
        (False, False, False, False),
    ] == found  # fmt: skip


@pytest.mark.behaviour("S0.26")
def test_a_flagged_claim_without_allocation_is_not_pending() -> None:
    scene = Scene("n1", fabric={"n1": 1})
    driver = scene.drivers[FABRIC]
    driver.stop()
    scene.claim("c")
    scene.flag("c")
    scene.pod("p", "c")
    scene.advance(60)
    assert scene.said("p") is None
    assert "waiting for resource driver to deallocate resource" in scene.message("p")
    driver.start()
    scene.settle()
    assert "n1" == scene.node_of("p")
    assert DEALLOCATION_REQUESTED not in (scene.has("c").metadata.annotations or {})


@pytest.mark.behaviour("S0.24")
def test_an_immediate_claim_stays_though_its_pod_fits_elsewhere_only() -> None:
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1})
    scene.claim("now", allocation_mode=IMMEDIATE)
    scene.settle()
    assert "n1" == scene.pool("now")
    cordoned(scene, "n1")
    scene.pod("p", "now", own=["fabric"])
    scene.advance(3_600)
    assert (["now"], []) == (scene.allocated(), scene.flagged())
    assert "1 node(s) on which default/now of fabric.example.com is not available" in scene.message(
        "p"
    )


@pytest.mark.behaviour("S0.42")
def test_a_pod_whose_claim_is_pinned_elsewhere_is_told_so_and_not_retried_for_ever() -> None:
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1})
    scene.server.put(make_node("n2", labels={"here": "yes"}))
    scene.claim("now", allocation_mode=IMMEDIATE)
    scene.settle()
    scene.pod("p", "now", nodeSelector={"here": "yes"})
    scene.advance(600)
    said = scene.message("p")
    assert "0/2 nodes are available" in said
    assert "1 node(s) on which default/now of fabric.example.com is not available" in said
    written = len(scene.writes)
    scene.advance(24 * 3_600)
    assert written == len(scene.writes)


@pytest.mark.behaviour("S0.22")
def test_an_allocation_stays_when_the_selected_node_changes_meanwhile() -> None:
    """The driver allocates as the scheduler changes selectedNode."""
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1})
    scene.scheduler.stop()
    scene.claim("c")
    scene.pod("p", "c")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-of-default-p"}
    spec = {"selectedNode": "n1", "potentialNodes": ["n1", "n2"], "round": 1}
    meta = {"name": "p", "namespace": "default", "uid": "ps", "ownerReferences": [owner]}
    scene.put(PodScheduling, {"metadata": meta, "spec": spec})
    driver = scene.drivers[FABRIC]
    while not any("allocation" in getattr(w, "patch", {}).get("status", {}) for w in driver.outbox):
        assert driver.work()
    for name in ("", "n2"):
        said = scene.server.get(PodScheduling, "default/p")
        scene.write(patch_of(said, {"spec": {"selectedNode": name}}))
    scene.advance(100)
    assert "n1" == scene.pool("c"), "it lands, and stays"
    assert (["c"], ["c"], ["p"]) == scene.rest()
    # The scheduler takes it as it is.
    scene.start()
    scene.advance(10)
    assert "n1" == scene.node_of("p")
    assert [] == scene.flagged()


@pytest.mark.behaviour("S0.22", "S0.23")
def test_an_allocation_that_lands_late_is_given_back_if_it_does_not_fit() -> None:
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1})
    scene.pod("p", own=["fabric"])
    driver = scene.drivers[FABRIC]
    while not any("allocation" in getattr(w, "patch", {}).get("status", {}) for w in driver.outbox):
        scene.run(1)
    said = scene.said("p")
    assert said is not None
    chosen = said.spec.selected_node
    cordoned(scene, chosen)
    scene.write(patch_of(said, {"spec": {"selectedNode": ""}}))
    scene.advance(100)
    assert ({"n1", "n2"} - {chosen}).pop() == scene.node_of("p") == scene.pool("p-own0")
    assert ["p-own0"] == scene.flagged()


def test_a_pod_without_one_of_its_claims_does_not_keep_the_others() -> None:
    """The user has deleted it; other pods may have what was allocated with it."""
    scene = Scene("n1", fabric={"n1": 1}, nic={"n1": 1})
    scene.drivers["nic.example.com"].stop()
    scene.claim("c", "nic")
    scene.pod("p", "c", own=["fabric"])
    scene.settle()
    scene.answer("p", "c")
    scene.advance(20)
    assert ["p-own0"] == scene.allocated()
    scene.delete(ResourceClaim, "c")
    scene.advance(60)
    assert 'resourceclaim "c" not found' in scene.message("p")
    assert [] == scene.allocated()
    scene.pod("q", own=["fabric"])
    scene.settle()
    assert "n1" == scene.node_of("q")


def test_a_users_claim_stays_allocated_while_another_claim_is_not_seen_yet() -> None:
    scene = Scene("n1", fabric={"n1": 2})
    scene.claim("c")
    scene.pod("maker", "c")
    scene.settle()
    scene.delete(Pod, "maker")
    scene.pod("p", "c", "late")
    scene.advance(60)
    assert ["c"] == scene.allocated()
    scene.claim("late")
    scene.settle()
    assert "n1" == scene.node_of("p")
    assert [] == scene.flagged()
