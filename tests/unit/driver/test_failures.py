"""What becomes of a pod when its driver fails."""

from collections.abc import Sequence
from typing import Any

import pytest

from stower.driver import Allocation, Entry, RefusedError
from stower.driver.controller import Controller
from stower.driver.executor import call
from stower.driver.ledger import MemoryLedger
from stower.driver.messages import AllocateCall, DeallocateCall, DeallocateResult
from stower.framework.events import Listed, WriteFailed, WriteOk
from stower.framework.writes import CreateEvent
from stower.model.kinds import Pod, ResourceClaim
from stower.sim.tables import table_sizes
from tests.negotiation_cluster import DRIVER, Cluster, Counting, nodes


class Failing(Counting):
    """Fails on some nodes, and cannot say how far it has come."""

    def __init__(self, *broken: str) -> None:
        super().__init__(DRIVER, {"n1": 1, "n2": 1})
        self.broken = set(broken)
        self.tried: list[str] = []
        self.given_back: list[str] = []

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        self.tried.append(node)
        if node in self.broken:
            raise RuntimeError(f"{node} is broken")
        return super().allocate(claims, node)

    def deallocate(self, claim: Entry) -> None:
        self.given_back.append(claim.node)


class Watched(Cluster):
    """Keeps the Events that are told."""

    told: tuple[CreateEvent, ...] = ()

    def write(self, write: Any) -> WriteOk | WriteFailed:
        if isinstance(write, CreateEvent):
            self.told = (*self.told, write)
        return super().write(write)


def cluster(driver: Counting) -> Watched:
    made = Watched(nodes("n1", "n2"))
    made.add_driver(driver)
    made.start()
    made.claim("c")
    made.pod("p", "c")
    made.settle()
    return made


def test_a_node_on_which_a_driver_fails_is_left_for_another() -> None:
    """Not tried again and again at once; what may have been taken is given back."""
    driver = Failing("n1")
    found = cluster(driver)
    found.advance(10)
    assert "n2" == found.node_of("p")
    assert ["n1", "n2"] == driver.tried
    assert ["n1"] == driver.given_back
    assert ["n2"] == [entry.node for entry in found.drivers[DRIVER].ledger.entries.values()]


def test_a_driver_that_fails_on_each_node_is_asked_again_after_a_while() -> None:
    driver = Failing("n1", "n2")
    found = cluster(driver)
    found.advance(25)
    assert ["n1", "n2"] == sorted(driver.tried)
    found.advance(120)
    assert 6 <= len(driver.tried) <= 12
    driver.broken.clear()
    found.advance(120)
    assert found.node_of("p") in ("n1", "n2")


def test_a_driver_that_always_fails_is_asked_less_and_less_often() -> None:
    driver = Failing("n1", "n2")
    found, calls = cluster(driver), []
    for _ in range(6):
        before = len(driver.tried)
        found.advance(600)
        calls.append(len(driver.tried) - before)
    assert calls == sorted(calls, reverse=True)
    assert (10, 2) >= (calls[0], calls[-1]) >= (6, 1)
    driver.broken.clear()
    found.advance(660)
    assert found.node_of("p") in ("n1", "n2")


def test_what_went_wrong_is_told_and_answered() -> None:
    driver, told = Failing("n1"), list[Exception]()
    taking = AllocateCall(7, (), "n1", (Entry("u", "default", "c", "n1"),))
    ledger = MemoryLedger()
    answer = call(taking, driver, ledger, told.append)
    assert "RuntimeError: n1 is broken" == getattr(answer, "error", "")
    assert ["n1 is broken"] == [str(error) for error in told]
    assert ["u"] == [*ledger.entries], "nobody knows whether anything was taken"


def test_a_refusal_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, told = Failing(), list[Exception]()

    def refuse(_: Entry) -> None:
        raise RefusedError("the fabric is down")

    monkeypatch.setattr(driver, "deallocate", refuse)
    answer = call(
        DeallocateCall(3, Entry("u", "default", "c")), driver, MemoryLedger(), told.append
    )
    assert DeallocateResult(3, "the fabric is down") == answer
    assert [] == told


def test_the_longest_complaint_fits_into_an_event() -> None:
    """Servers refuse notes of more than 1024 bytes."""

    class Talkative(Failing):
        def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
            raise RefusedError("é" * 2000)

    told = cluster(Talkative()).told
    assert 1023 == max(len(event.note.encode()) for event in told)


def test_an_entry_of_an_earlier_claim_of_the_name_is_given_back() -> None:
    old = Entry("old", "default", "c", "n1", {"devices": {}})
    controller = Controller(DRIVER, {"old": old})
    outputs = controller.step(Listed(()), 1)
    assert [old] == [output.entry for output in outputs if isinstance(output, DeallocateCall)]


def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    """Nor of their failures."""

    class Confused(Counting):
        def unsuitable_nodes(
            self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
        ) -> Sequence[str]:
            raise RuntimeError("it cannot tell")

    found = cluster(Confused(DRIVER, {"n1": 1}))
    controller = found.drivers[DRIVER].controller

    def come_and_go(names: Sequence[str]) -> int:
        for name in names:
            found.claim(f"c-{name}")
            found.pod(name, f"c-{name}")
        found.advance(5)
        for name in names:
            found.server.remove(found.server.get(Pod, f"default/{name}"))
            found.server.remove(found.has(f"c-{name}"))
            if (said := found.said(name)) is not None:
                found.server.remove(said)
        found.advance(600)
        return sum(table_sizes(controller).values())

    before = come_and_go(["a"])
    assert come_and_go([f"p{i}" for i in range(20)]) <= before
