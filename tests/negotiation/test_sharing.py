"""Claims that several pods use, that several nodes reach, or that have no devices."""

from collections.abc import Sequence

import msgspec
import pytest

from stower.driver import Allocation
from stower.framework.writes import PatchObject
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.resource_claim import IMMEDIATE, RESERVED_FOR_MAX, ConsumerReference
from tests.builders import make_node, make_pod
from tests.device_builders import device, device_class, device_slice
from tests.negotiation.scenes import Scene
from tests.negotiation_cluster import Cluster, Counting

FABRIC = "fabric.example.com"


@pytest.mark.behaviour("S0.21")
def test_when_two_pods_race_for_one_claim_one_wins_and_the_other_shares_it() -> None:
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1})
    scene.claim("c")
    scene.pod("p", "c", nodeSelector={})
    scene.pod("q", "c")
    scene.settle()
    assert [scene.pool("c")] * 2 == [scene.node_of("p"), scene.node_of("q")]
    assert ["p", "q"] == sorted(scene.users("c"))
    allocations = {
        obj.status.allocation.devices.results[0].pool
        for obj in scene.seen
        if isinstance(obj, ResourceClaim) and obj.status.allocation is not None
    }
    assert 1 == len(allocations)
    assert [] == scene.flagged()


@pytest.mark.behaviour("S0.21")
@pytest.mark.parametrize("pods", [2, 3, 4])
def test_pods_with_a_claim_in_common_and_one_each_of_another_driver(pods: int) -> None:
    """Two nodes would do for the shared claim, one of them for all the others."""
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1}, nic={"n1": 1, "n2": 4})
    scene.claim("c")
    for i in range(pods):
        scene.pod(f"p{i}", "c", own=["nic"])
    scene.advance(600)
    placed = [scene.node_of(f"p{i}") for i in range(pods)]
    node = scene.pool("c")
    room = {"n1": 1, "n2": 4}[node]
    assert min(room, pods) == placed.count(node)
    # Those that found no room keep nothing.
    assert 1 + min(room, pods) == len(scene.allocated())


def full(users: int) -> Scene:
    """A claim with so many users that run."""
    scene = Scene(fabric={"n1": 2})
    scene.server.put(make_node("n1", cpu="1000", memory="1000Gi", pods="1000"))
    scene.claim("c")
    scene.pod("p0", "c")
    scene.settle()
    claim = scene.has("c")
    others = [
        ConsumerReference("", "pods", f"p{i}", f"uid-of-default-p{i}") for i in range(1, users)
    ]
    scene.scheduler.stop()
    scene.keeper.is_up = False
    reserved = (*(claim.status.reserved_for or ()), *others)
    status = msgspec.structs.replace(claim.status, reserved_for=reserved)
    scene.server.put(msgspec.structs.replace(claim, status=status))
    for i in range(1, users):
        scene.pod(f"p{i}", "c", nodeName="n1")
    scene.keeper.is_up = True
    scene.start()
    scene.settle()
    assert users == len(scene.users("c"))
    return scene


@pytest.mark.behaviour("S0.31")
def test_a_claim_has_256_users_and_the_next_one_waits() -> None:
    scene = full(RESERVED_FOR_MAX - 1)
    scene.pod("a", "c")
    scene.pod("b", "c")
    scene.advance(5)
    ((name, other),) = [(a, b) for a, b in ("ab", "ba") if not scene.node_of(a)]
    assert "n1" == scene.node_of(other)
    assert RESERVED_FOR_MAX == len(scene.users("c"))
    why = "resource claim default/c of fabric.example.com is in use by 256 pods, the maximum"
    assert why in scene.message(name)
    assert [] == scene.flagged()
    written = len(scene.writes)
    scene.advance(600)
    assert written == len(scene.writes)
    scene.delete(Pod, "p7")
    scene.advance(10)
    assert "n1" == scene.node_of(name)


def test_a_pod_whose_shared_claim_is_full_does_not_keep_its_own() -> None:
    scene = full(RESERVED_FOR_MAX)
    scene.pod("late", "c", own=["fabric"])
    scene.advance(600)
    assert "" == scene.node_of("late")
    assert ["c"] == scene.allocated()


def test_many_pods_reserve_one_claim_without_being_in_each_others_way() -> None:
    """One write for each, though all of them may be bound at once."""
    scene = Scene("n1", fabric={"n1": 1})
    scene.claim("c")
    for i in range(30):
        scene.pod(f"p{i}", "c")
    scene.settle()
    assert ["n1"] * 30 == [scene.node_of(f"p{i}") for i in range(30)]
    writes = [w for w in scene.writes if isinstance(w, PatchObject) and w.view is ResourceClaim]
    assert 30 == len(writes)
    assert [] == [e.note for e in scene.events if e.note.startswith("running PreBind")]


class Networked(Counting):
    """A box that the nodes of a rack, or these nodes, reach."""

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        """The same as ever, but in reach of others."""
        where = {"rack": "a"} if self.devices.get("by-label") else ["n1", "n2"]
        found = super().allocate(claims, node)
        return [Allocation(allocation.devices, where) for allocation in found]


@pytest.mark.behaviour("S0.34")
@pytest.mark.parametrize("by_label", [0, 1])
def test_pods_use_a_network_attached_device_wherever_it_reaches(by_label: int) -> None:
    scene = Scene(laws=False)
    for name, rack in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        scene.server.put(make_node(name, cpu="1", labels={"rack": rack}))
    scene.add_driver(Networked(FABRIC, {"n1": 1, "n2": 1, "n3": 1, "by-label": by_label}))
    scene.claim("c")
    for i in range(3):
        scene.pod(f"p{i}", "c", cpu="1")
        scene.settle()
    first = [scene.node_of(f"p{i}") for i in range(3)]
    assert ["", "n1", "n2"] == sorted(first), "n3 does not reach it"
    assert 2 == len(scene.users("c"))
    for i in range(3):
        scene.delete(Pod, f"p{i}")
    scene.advance(3_600)
    # Made by a user: it stays as it is until it is deleted.
    assert ["c"] == scene.allocated()
    assert [] == scene.flagged()
    scene.delete(ResourceClaim, "c")
    scene.advance(5)
    assert ([], [], []) == scene.rest()
    assert {} == scene.server.all(ResourceClaim)


@pytest.mark.behaviour("S0.34", "S0.35")
def test_a_pods_own_claim_goes_with_it_and_a_users_stays() -> None:
    scene = Scene("n1", fabric={"n1": 2})
    scene.claim("c")
    scene.pod("p", "c", own=["fabric"])
    scene.settle()
    assert ["c", "p-own0"] == scene.allocated()
    driver = scene.drivers[FABRIC]
    driver.stop()
    scene.delete(Pod, "p")
    scene.advance(60)
    own = scene.has("p-own0")
    assert own.metadata.deletion_timestamp is not None
    assert own.status.allocation is not None
    driver.start()
    scene.advance(60)
    assert (["c"], ["c"], []) == scene.rest()
    assert ["default/c"] == [*scene.server.all(ResourceClaim)]
    versions = [obj for obj in scene.seen if obj.metadata.uid == own.metadata.uid]
    last = [(bool(o.metadata.finalizers), o.status.allocation is not None) for o in versions[-3:]]
    assert [(True, True), (True, False), (True, False)] == last, "gone with the finalizer"


class Optional(Counting):
    """What is not there is done without."""

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Sequence[str]:
        """All nodes will do."""
        return []

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        """Nothing."""
        return [Allocation() for _ in claims]


@pytest.mark.behaviour("S0.37")
def test_a_pod_runs_with_a_claim_for_which_nothing_was_allocated() -> None:
    cluster = Cluster([make_node("n1")])
    cluster.start()
    cluster.add_driver(Optional(FABRIC, {}))
    cluster.claim("c")
    cluster.claim("now", allocation_mode=IMMEDIATE)
    cluster.pod("p", "c", "now")
    cluster.settle()
    assert "n1" == cluster.node_of("p")
    for name in ("c", "now"):
        allocation = cluster.has(name).status.allocation
        assert allocation is not None
        assert None is allocation.devices.results
        assert cluster.has(name).is_reserved_for("uid-of-default-p")


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("driver", ["fabric", "structured"])
def test_a_claim_that_two_entries_of_a_pod_name_is_one_claim(devices: int, driver: str) -> None:
    scene = Scene("n1", laws=driver == "fabric", fabric={"n1": devices})
    if driver == "structured":
        scene.server.put(device_class("structured"))
        scene.server.put(device_slice("n1", device("g1"), device("g2")))
    scene.claim("c", driver)
    entries = [{"name": name, "resourceClaimName": "c"} for name in ("a", "b")]
    scene.server.put(make_pod("p", resourceClaims=entries))
    scene.pod("q", own=["fabric"])
    scene.advance(10)
    assert "n1" == scene.node_of("p")
    assert ["p"] == scene.users("c")
    room = devices - (driver == "fabric")
    assert ("n1" if room else "") == scene.node_of("q")


def test_a_claim_on_a_lost_node_is_given_back_though_a_pod_of_another_scheduler_has_it() -> None:
    """That pod has no node either."""
    scene = Scene("n1", laws=False)
    scene.class_of("fabric")
    scene.claim("c")
    scene.pod("p", "c")
    scene.pod("other", "c", schedulerName="other")
    scene.allocate("c", "lost", "p", "other")
    scene.settle()
    assert ["c"] == scene.flagged()
