"""What a driver stands: a lost ledger, finalizers taken away by force, mistakes of its author."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest

from stower.driver import Allocation
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.resource_claim import IMMEDIATE
from tests.builders import make_pod
from tests.negotiation.scenes import Scene
from tests.negotiation_cluster import Counting

FABRIC = "fabric.example.com"


class Recording(Counting):
    """Keeps what it was told to give back."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.given_back: list[str] = []

    def deallocate(self, claim: Any) -> None:
        self.given_back.append(claim.name)


def test_a_driver_whose_ledger_is_lost_gives_nothing_twice_and_everything_back() -> None:
    scene = Scene("n1", laws=False)
    driver = Recording(FABRIC, {"n1": 1})
    process = scene.add_driver(driver)
    scene.pod("p", own=["fabric"])
    scene.settle()
    assert "n1" == scene.node_of("p")
    process.stop()
    process.ledger.entries.clear()
    process.start()
    scene.pod("q", own=["fabric"])
    scene.advance(100)
    assert ("", ["p-own0"]) == (scene.node_of("q"), scene.rest()[0])
    scene.delete(Pod, "p")
    scene.advance(100)
    assert ("n1", ["p-own0"]) == (scene.node_of("q"), driver.given_back)


def test_devices_in_use_stay_taken_though_somebody_takes_the_finalizer_away() -> None:
    scene = Scene("n1", fabric={"n1": 1}, laws=False)
    scene.claim("c")
    scene.pod("p", "c")
    scene.settle()
    claim = scene.has("c")
    meta = msgspec.structs.replace(claim.metadata, finalizers=None)
    scene.server.put(msgspec.structs.replace(claim, metadata=meta))
    scene.pod("q", own=["fabric"])
    scene.advance(100)
    assert ("n1", "") == (scene.node_of("p"), scene.node_of("q"))
    scene.server.remove(scene.has("c"))
    scene.advance(100)
    assert "n1" == scene.node_of("q")


@pytest.mark.parametrize("mode", ["", IMMEDIATE])
def test_a_claim_that_was_removed_by_force_leaves_its_devices_to_the_next_of_its_name(
    mode: str,
) -> None:
    fields = {"allocation_mode": mode} if mode else {}
    scene = Scene("n1", fabric={"n1": 1}, laws=False)
    scene.claim("c", uid="old", **fields)
    scene.pod("before", "c")
    scene.settle()
    scene.drivers[FABRIC].stop()
    scene.delete(Pod, "before")
    scene.server.remove(scene.has("c"))
    scene.claim("c", uid="new", **fields)
    scene.drivers[FABRIC].start()
    scene.pod("p", "c")
    scene.advance(100)
    assert ("n1", ["c"]) == (scene.node_of("p"), scene.rest()[0])


class Silent(Counting):
    """It cannot say where."""

    is_broken = True

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Iterable[str]:
        found = super().unsuitable_nodes(pod, claims, nodes)
        if self.is_broken:
            raise KeyError("seats")
        return found


def test_a_driver_that_cannot_say_where_says_so_less_and_less_often() -> None:
    scene = Scene("n1", laws=False)
    driver = Silent(FABRIC, {"n1": 1})
    scene.add_driver(driver)
    scene.pod("p", own=["fabric"])
    scene.advance(3_600)
    told = [e for e in scene.events if e.reason == "AllocationFailed"]
    assert {"Cannot determine unsuitable nodes: KeyError: 'seats'"} == {
        event.note for event in told
    }
    assert 60 <= driver.asked <= 80, "once a minute at last"
    driver.is_broken = False
    scene.advance(61)
    assert "n1" == scene.node_of("p")


class Mistaken(Counting):
    """Gives what it was told to give."""

    given = Allocation()

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        return [self.given for _ in claims]


ONE = ("device", "n1", "d0")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (Allocation([ONE]), "request 'device' has 1 devices, want 2"),
        (Allocation([ONE, ("other", "n1", "d1")]), "request 'device' has 1 devices, want 2"),
        (Allocation([ONE, ONE, ("x", "n1", "d1")]), "request 'x' does not exist in the claim"),
        (Allocation([("device/a", "n1", "d0")]), "request 'device' has no device"),
        (Allocation([ONE, ("device", "n1", "D 1")]), "device 'D 1': a lowercase RFC 1123 label"),
        (Allocation([ONE, ("device", "No Pool", "d")]), "pool 'No Pool': a lowercase RFC 1123"),
        (Allocation([ONE] * 33), "got 33 devices, want at most 32"),
        (Allocation([ONE, ONE], []), "nodes: got none, want names or labels, or None"),
        (Allocation([ONE, ONE], "n1"), "nodes: got 'n1', want a list of names or a mapping of"),
        (Allocation([ONE, ONE], ["n2"]), "nodes: node n1, for which the devices were requested,"),
        (Allocation([ONE, ONE], ["n1", "N 2"]), "node 'N 2': a lowercase RFC 1123 subdomain"),
    ],
)  # fmt: skip
def test_what_was_not_asked_for_is_not_written(given: Allocation, why: str) -> None:
    scene = Scene("n1", laws=False)
    driver = Mistaken(FABRIC, {"n1": 9})
    driver.given = given
    scene.add_driver(driver)
    wants = [{"name": "device", "exactly": {"deviceClassName": "fabric", "count": 2}}]
    meta = {"name": "c", "namespace": "default", "uid": "c"}
    scene.put(ResourceClaim, {"metadata": meta, "spec": {"devices": {"requests": wants}}})
    scene.server.put(make_pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "c"}]))
    scene.advance(100)
    assert ("", []) == (scene.node_of("p"), scene.allocated())
    told = [e.note for e in scene.events if e.reason == "AllocationFailed"]
    assert told[0].startswith(f"Cannot allocate devices on n1: ValueError: default/c: {why}"), told[
        0
    ]
    assert len(told) <= 8
    driver.given = Allocation([ONE, ("device", "n1", "d1")], ["n1"])
    scene.advance(100)
    assert "n1" == scene.node_of("p")
