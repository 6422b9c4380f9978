"""Somebody crashes, deletes or comes between after each single step of a negotiation."""

from collections.abc import Callable

import pytest

from stower.framework.writes import CreateObject, PatchObject
from stower.model.kinds import Node, Pod, ResourceClaim
from tests.builders import make_node
from tests.negotiation.processes import DriverProcess
from tests.negotiation.scenes import Scene, at_each_step
from tests.negotiation_cluster import Cluster

FABRIC, NIC = "fabric.example.com", "nic.example.com"
LONG = 1_500  # seconds: longer than the longest wait for a driver


def one_claim() -> Scene:
    scene = Scene("n1", "n2", fabric={"n2": 1})
    scene.pod("p", own=["fabric"])
    return scene


def two_drivers() -> Scene:
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1}, nic={"n2": 1})
    scene.pod("p", own=["fabric", "nic"])
    return scene


def shared() -> Scene:
    """Two pods on one claim, of which one also wants what is elsewhere only."""
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1}, nic={"n2": 1})
    scene.claim("c")
    scene.pod("p", "c")
    scene.pod("q", "c", own=["nic"])
    return scene


MAKERS = (one_claim, two_drivers)


@pytest.mark.behaviour("S0.23", "S0.27", "S0.28", "S0.35")
@pytest.mark.parametrize("make", [one_claim, two_drivers, shared])
def test_a_pod_is_deleted(make: Callable[[], Scene]) -> None:
    for step, scene in at_each_step(make):
        scene.delete(Pod, "p")
        scene.delete(Pod, "q")
        scene.advance(60)
        if make is shared:
            scene.delete(ResourceClaim, "c")
            scene.settle()
        assert ([], [], []) == scene.rest(), step
        assert {} == scene.server.all(ResourceClaim), step


@pytest.mark.behaviour("S0.30")
@pytest.mark.parametrize("make", MAKERS)
def test_a_pod_is_deleted_and_another_takes_its_name(make: Callable[[], Scene]) -> None:
    for step, scene in at_each_step(make):
        entries = pod_of(scene).spec.resource_claims or ()
        own = [entry.resource_claim_template_name or "" for entry in entries]
        scene.delete(Pod, "p")
        if scene.server.get(Pod, "default/p") is not None:
            scene.server.remove(pod_of(scene))  # it had a node
        scene.pod("p", own=own, uid="the-next")
        scene.advance(60)
        assert "n2" == scene.node_of("p"), step
        assert ["p-own0", "p-own1"][: len(own)] == scene.allocated(), step


def pod_of(scene: Cluster) -> Pod:
    found = scene.server.get(Pod, "default/p")
    assert isinstance(found, Pod)
    return found


def users_claim() -> Scene:
    scene = Scene("n1", "n2", fabric={"n2": 1}, nic={"n1": 1, "n2": 1})
    scene.claim("c", uid="first")
    scene.pod("p", "c", own=["nic"])
    return scene


@pytest.mark.behaviour("S0.30", "S0.27")
def test_a_claim_is_deleted_and_made_again() -> None:
    """Once it is reserved for a pod that runs, it stays until that ends."""
    for step, scene in at_each_step(users_claim):
        was_bound = scene.node_of("p")
        scene.delete(ResourceClaim, "c")
        for _ in range(200):
            if scene.server.get(ResourceClaim, "default/c") is None:
                scene.claim("c", uid="second")
                break
            if not scene.run(1):
                scene.advance(1)
        scene.advance(LONG)
        assert "n2" == scene.node_of("p"), step
        want = "first" if was_bound else scene.has("c").metadata.uid
        assert want == scene.has("c").metadata.uid, step
        assert ["c", "p-own0"] == scene.rest()[0] == scene.rest()[1], step


@pytest.mark.behaviour("S0.27")
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("who", ["scheduler", "drivers", "both"])
def test_a_restart(make: Callable[[], Scene], lands: bool, who: str) -> None:
    """`lands`: what was sent is carried out after all, after the restart."""
    for step, scene in at_each_step(make):
        crashing = [*scene.drivers.values()] if who != "scheduler" else []
        both = [*crashing, *(scene.schedulers if who != "drivers" else [])]
        for process in both:
            process.stop(lands)
            process.start()
        for write in scene.flying:
            scene.run(3)
            scene.write(write)
        scene.advance(60)
        assert "n2" == scene.node_of("p"), step
        claims = scene.allocated()
        assert (claims, []) == (scene.rest()[0], scene.rest()[2]), step
        assert [] == scene.flagged(), step


@pytest.mark.behaviour("S0.27", "S0.33")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("node", ["stays", "goes"])
def test_a_driver_crashes_at_each_write_of_its_ledger(when: str, node: str) -> None:
    """Between the note and the devices, between devices and note, between notes and writes."""
    for write in range(2):
        scene = two_drivers()
        scene.server.put(scene.server.get(Node, "n1"))
        driver = scene.drivers[FABRIC]
        setattr(driver.ledger, f"crash_{when}", write)
        scene.settle()
        assert not driver.is_up
        if node == "goes":
            scene.server.remove(scene.server.get(Node, "n2"))
        scene.advance(60)
        driver.start()
        scene.advance(LONG)
        placed = scene.node_of("p")
        if node == "stays":
            assert "n2" == placed
            assert ["p-own0", "p-own1"] == scene.rest()[0] == scene.rest()[1]
        else:
            assert "" == placed
            assert ([], []) == scene.rest()[:2]
            assert "cannot allocate" in scene.message("p")


def own_of_one_driver() -> Scene:
    scene = Scene("n1", fabric={"n1": 2})
    scene.pod("p", own=["fabric", "fabric"])
    return scene


@pytest.mark.behaviour("S0.19", "S0.27")
@pytest.mark.parametrize("lost", [True, False])
def test_a_driver_crashes_between_the_writes_of_two_claims(lost: bool) -> None:
    scene = own_of_one_driver()
    driver = scene.drivers[FABRIC]
    while 1 != len(scene.allocated()):
        scene.run(1)
    (left,) = driver.outbox
    assert isinstance(left, PatchObject)
    assert "allocation" in left.patch["status"]
    driver.stop(lands=not lost)
    scene.advance(200)
    assert "" == scene.node_of("p")
    driver.start()
    for write in scene.flying:
        scene.write(write)
    scene.advance(LONG)
    assert "n1" == scene.node_of("p")
    assert ["p-own0", "p-own1"] == scene.rest()[0] == scene.rest()[1]


@pytest.mark.behaviour("S0.23")
@pytest.mark.parametrize("make", MAKERS)
def test_the_chosen_node_vanishes_and_comes_back(make: Callable[[], Scene]) -> None:
    """While it is away, nothing is kept for it; a pod that was there is gone."""
    for step, scene in at_each_step(make):
        node = scene.server.get(Node, "n2")
        scene.server.remove(node)
        scene.advance(60)
        assert ([], []) == scene.rest()[:2], step
        scene.server.put(node)
        scene.advance(60)
        if scene.server.get(Pod, "default/p") is not None:
            assert "n2" == scene.node_of("p"), step


@pytest.mark.behaviour("S0.36")
@pytest.mark.parametrize("make", [one_claim, two_drivers, shared])
def test_two_schedulers_at_once(make: Callable[[], Scene]) -> None:
    """Both try each pod; the second comes at any time, or is there from the start."""
    for step, scene in at_each_step(make):
        scene.add_scheduler()
        scene.advance(60)
        assert scene.node_of("p"), step
        pods = [pod for pod in ("p", "q") if scene.server.get(Pod, f"default/{pod}") is not None]
        bound = [pod for pod in pods if scene.node_of(pod)]
        assert [] == [said for said in scene.rest()[2] if said in bound], step
        if make is not shared:
            assert "n2" == scene.node_of("p"), step
            assert [] == scene.flagged(), step


@pytest.mark.behaviour("S0.36")
def test_of_two_schedulers_one_creates_what_is_said_and_the_other_reads_it() -> None:
    scene = Scene("n1", fabric={"n1": 1})
    scene.drivers[FABRIC].stop()
    second = scene.add_scheduler()
    scene.settle()
    scene.pod("p", own=["fabric"])
    scene.settle()
    made = [
        w for one in (scene.scheduler, second) for w in one.writes if isinstance(w, CreateObject)
    ]
    assert 2 == len(made), "one of them got 409"
    scene.drivers[FABRIC].start()
    scene.advance(5)
    assert "n1" == scene.node_of("p")
    assert ["p-own0"] == scene.allocated()


@pytest.mark.behaviour("S0.21", "S0.26")
def test_deallocation_is_requested_while_another_pod_reserves_the_claim() -> None:
    """p cannot use the claim where it is and asks for it back; q comes meanwhile, and can."""

    def make() -> Scene:
        scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1}, nic={"n2": 1})
        scene.claim("c")
        scene.pod("maker", "c", nodeSelector={"kubernetes.io/os": "x"})
        scene.server.put(make_node("n1", labels={"kubernetes.io/os": "x"}))
        scene.settle()
        assert "n1" == scene.pool("c")
        scene.delete(Pod, "maker")
        scene.settle()
        scene.pod("p", "c", own=["nic"])
        return scene

    kept = 0
    for step, scene in at_each_step(make):
        if scene.node_of("p"):
            break
        scene.pod("q", "c")
        scene.advance(LONG)
        assert scene.node_of("q"), step
        assert scene.node_of("q") == scene.pool("c"), step
        if scene.pool("c") == "n1":
            kept += 1
            assert "" == scene.node_of("p"), step
            assert ["c"] == scene.allocated(), step
        else:
            assert "n2" == scene.node_of("p"), step
    assert kept, "it came in time once"


def test_a_driver_that_is_down_for_good_leaves_the_others_their_devices() -> None:
    """After each step: others may have what is not allocated yet, and what is goes with the pod."""
    for step, scene in at_each_step(two_drivers):
        process = scene.drivers[NIC]
        assert isinstance(process, DriverProcess)
        process.stop()
        scene.advance(LONG)
        scene.delete(Pod, "p")
        scene.advance(60)
        entries = [e.name for e in scene.drivers[FABRIC].ledger.entries.values()]
        assert [] == entries, step
        process.start()
        scene.advance(60)
        assert ([], [], []) == scene.rest(), step
