"""Writes that are carried out after their author has crashed, and notes that outlive one."""

from collections.abc import Sequence
from typing import Any

import pytest

from stower.driver import Allocation, RefusedError
from stower.framework.events import Observed, WatchType
from stower.framework.writes import Bind
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.resource_claim import IMMEDIATE
from tests.negotiation.processes import Counting
from tests.negotiation.scenes import Scene

FABRIC = "fabric.example.com"


@pytest.mark.behaviour("S0.23", "S0.27")
def test_a_binding_that_was_sent_before_the_claim_was_given_back_does_not_land() -> None:
    """The scheduler crashes; the claim is deleted; the next gives it back; the binding comes."""
    scene = Scene("n1", fabric={"n1": 1})
    scene.claim("c")
    scene.pod("p", "c")
    binding = None
    while binding is None:
        scene.run(1)
        binding = next((w for w in scene.scheduler.outbox if isinstance(w, Bind)), None)
    scene.scheduler.stop(lands=True)
    scene.delete(ResourceClaim, "c")
    scene.start()
    scene.advance(10)
    assert ([], []) == scene.rest()[:2]
    for write in scene.flying:
        scene.write(write)
    assert "" == scene.node_of("p")
    scene.claim("c", uid="another")
    scene.advance(60)
    assert "n1" == scene.node_of("p")


@pytest.mark.behaviour("S0.20", "S0.26")
@pytest.mark.parametrize("when", ["before", "after", "never"])
def test_an_allocation_that_was_sent_before_a_crash_never_outlives_its_devices(when: str) -> None:
    """It lands before the driver is back, after that, or not at all; meanwhile the pod has gone."""
    scene = Scene("n1", fabric={"n1": 1})
    scene.claim("c")
    scene.pod("p", "c")
    driver = scene.drivers[FABRIC]
    while not any("allocation" in getattr(w, "patch", {}).get("status", {}) for w in driver.outbox):
        scene.run(1)
    driver.stop(lands=True)
    if when == "before":
        scene.write(scene.flying[0])
    scene.delete(Pod, "p")
    scene.settle()
    driver.start()
    if when == "after":
        scene.run(2)
        scene.write(scene.flying[0])
    scene.advance(60)
    assert scene.rest()[0] == scene.rest()[1] == (["c"] if when == "before" else [])
    scene.pod("q", "c")
    scene.advance(60)
    assert "n1" == scene.node_of("q")


class Broken(Counting):
    """It refuses whatever it is asked for."""

    broken = False
    given_back = 0

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        """While it is broken, nothing."""
        if self.broken:
            raise RefusedError("broken")
        return super().allocate(claims, node)

    def deallocate(self, claim: object) -> None:
        """It is counted."""
        self.given_back += 1


@pytest.mark.parametrize("mode", ["", IMMEDIATE])
def test_a_note_that_was_made_before_a_crash_goes_when_nothing_can_be_taken(mode: str) -> None:
    """Otherwise it counts as a device that is taken, and the driver is asked without end."""
    scene = Scene("n1")
    driver = Broken(FABRIC, {"n1": 1})
    process = scene.add_driver(driver)
    process.ledger.crash_after = 0
    scene.claim("c", **({"allocation_mode": mode} if mode else {}))
    scene.pod("p", "c")
    scene.settle()
    assert not process.is_up
    assert ["c"] == scene.rest()[0]
    driver.broken = True
    process.start()
    scene.advance(10)
    assert ([], []) == scene.rest()[:2]
    assert 1 == driver.given_back, "nobody knows what was taken"
    told = [event for event in scene.events if event.reason == "AllocationFailed"]
    assert 1 <= len(told) <= 6
    driver.broken = False
    scene.advance(100)
    assert "n1" == scene.node_of("p")


def test_a_binding_does_not_conflict_with_what_the_scheduler_said_of_the_pod_itself() -> None:
    """Its watch of pods is slow: nothing of what it wrote has come back when all is allocated."""
    scene = Scene("n1", fabric={"n1": 1}, nic={"n1": 1})
    scheduler, slow = scene.scheduler, []
    tell = scheduler.tell

    def told(event: Any) -> None:
        is_pod = isinstance(event, Observed) and isinstance(event.object, Pod)
        slow.append(event) if is_pod and event.type is WatchType.MODIFIED else tell(event)

    scheduler.tell = told  # type: ignore[method-assign]
    scene.claim("c", "fabric")
    scene.claim("d", "nic")
    scene.pod("p", "c", "d")
    scene.settle()
    assert "n1" == scene.node_of("p")
    assert 3 <= len(slow)
    assert ["Bind"] == [type(w).__name__ for w in scene.writes if isinstance(w, Bind)]
