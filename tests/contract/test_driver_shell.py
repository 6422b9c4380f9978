"""One driver against an API server: its errors, its slow calls, its end, and watches that are cut.

The claims are immediate: no pod and no scheduler is needed for them.
"""

import asyncio
import contextlib
import logging
import sys
import threading
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stower.apiserver.server_process import Options
from stower.driver import Allocation, Driver, Entry, work_queue
from stower.live import driver as module
from stower.live.calls import DriverExecutor
from stower.live.driver import run_driver
from stower.live.ledger import FileLedger, LedgerError
from stower.model.kinds import Pod, ResourceClaim
from tests.contract.proxy import cutting
from tests.contract.servers import Client, in_thread, until

Object = dict[str, Any]
NAME = "shelf.example.com"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
# aiohttp leaves the sockets of its TLS streams to the end of the loop.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Shelf(Driver):
    """Gives to each claim a thing of its own, if nothing stands in the way."""

    name = NAME

    def __init__(self) -> None:
        self.allocated: list[str] = []
        self.freed: list[str] = []

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Iterable[str]:
        return ()

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        self.allocated += [claim.metadata.name for claim in claims]
        return [Allocation([("r", "shelf", claim.metadata.name)]) for claim in claims]

    def deallocate(self, claim: Entry) -> None:
        self.freed.append(claim.name)


class Served:
    """A driver that runs in a thread."""

    def __init__(self, driver: Driver, ledger: Path, kubeconfig: Path, port: int | None) -> None:
        self.port = 0
        self.error: BaseException | None = None
        self._up = threading.Event()
        self._box: list[Any] = []

        def on_ready(_: str, port: int | None) -> None:
            self.port = port or 0
            self._up.set()

        async def main() -> None:
            stop = asyncio.Event()
            self._box += [asyncio.get_running_loop(), stop]
            await run_driver(
                driver, ledger, stop, kubeconfig=kubeconfig, metrics_port=port, on_ready=on_ready
            )

        self.thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
        self.thread.start()
        assert self._up.wait(30)

    def stop(self) -> None:
        """Ask it to end."""
        loop, stop = self._box
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)


@contextlib.contextmanager
def serving(
    driver: Driver, ledger: Path, kubeconfig: Path, port: int | None = None
) -> Iterator[Served]:
    made = Served(driver, ledger, kubeconfig, port)
    try:
        yield made
    finally:
        made.stop()
        made.thread.join(30)
        assert not made.thread.is_alive()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Client]:
    with in_thread(Options(tmp_path / "state", memory=True)) as (_, client):
        meta = {"metadata": {"name": "shelf"}}
        path = "/apis/stower.dev/v1/resourceclasses"
        assert 201 == client.call("POST", path, {**meta, "driverName": NAME})[0]
        assert 201 == client.call("POST", "/apis/resource.k8s.io/v1/deviceclasses", meta)[0]
        yield client


def add_claims(client: Client, *names: str) -> None:
    for name in names:
        meta = {"name": name, "annotations": {"stower.dev/allocation-mode": "Immediate"}}
        requests = [{"name": "r", "exactly": {"deviceClassName": "shelf"}}]
        claim = {"metadata": meta, "spec": {"devices": {"requests": requests}}}
        status, answer = client.call("POST", CLAIMS, claim)
        assert 201 == status, answer


def allocated(claims: dict[str, Object]) -> list[str]:
    return sorted(name for name, claim in claims.items() if claim["status"].get("allocation"))


@pytest.mark.behaviour("S0.3")
def test_immediate_claims_are_allocated_and_given_back(served: Client, tmp_path: Path) -> None:
    shelf, ledger = Shelf(), tmp_path / "ledger"
    add_claims(served, "a", "b")
    with serving(shelf, ledger, served.kubeconfig):
        claims = until(served, CLAIMS, lambda o: ["a", "b"] == allocated(o))
        assert [f"{NAME}/allocated"] == claims["a"]["metadata"]["finalizers"]
        assert {"shelf"} == set(shelf.classes)
        served.call("DELETE", f"{CLAIMS}/a")
        until(served, CLAIMS, lambda o: "a" not in o)
    with FileLedger(ledger, NAME) as kept:
        assert ["b"] == [entry.name for entry in kept.entries.values()]
    assert (["a", "b"], ["a"]) == (sorted(shelf.allocated), shelf.freed)


def test_errors_of_the_author_are_logged_and_answered(
    served: Client, tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither an exception nor sys.exit() ends the process; the call is made again later."""

    class Broken(Shelf):
        def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
            given = super().allocate(claims, node)
            if len(self.allocated) == 1:
                raise RuntimeError("the shelf is empty")
            if len(self.allocated) == 2:
                sys.exit(3)
            return given if len(self.allocated) > 3 else given * 2

    monkeypatch.setattr(work_queue, "BACKOFF_NS", 10_000_000)
    broken = Broken()
    with (
        caplog.at_level(logging.WARNING),
        serving(broken, tmp_path / "ledger", served.kubeconfig),
    ):
        add_claims(served, "a")
        until(served, CLAIMS, lambda o: ["a"] == allocated(o))
        events = until(served, EVENTS, lambda o: len(o) == 3)
    assert ["a"] * 4 == broken.allocated
    assert {
        "Cannot allocate devices: RuntimeError: the shelf is empty",
        "Cannot allocate devices: SystemExit: 3",
        "Cannot allocate devices: ValueError: got 2 allocations, want 1, one for each claim",
    } == {event["note"] for event in events.values()}
    assert {"ResourceClaim"} == {event["regarding"]["kind"] for event in events.values()}
    assert 3 == caplog.text.count("Broken.allocate failed")
    assert 'raise RuntimeError("the shelf is empty")' in caplog.text


def test_what_the_server_refuses_is_told_and_not_asked_for_again_and_again(
    served: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(Shelf):
        def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
            return [Allocation([("r", "pool", "d")], {"no label!": "x"}) for _ in claims]

    with caplog.at_level(logging.WARNING), serving(Wrong(), tmp_path / "l", served.kubeconfig):
        add_claims(served, "a")
        events = until(served, EVENTS, lambda o: len(o) == 2)
    path = "status.allocation.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].key"
    failed = "a write to the API server failed: patch status of ResourceClaim default/a: 422"
    assert 2 == caplog.text.count(failed)  # the second after a second
    assert path in caplog.text
    for event in events.values():
        assert ("AllocationFailed", "a") == (event["reason"], event["regarding"]["name"])
        assert event["note"].startswith(
            "API server rejected the patch of ResourceClaim default/a: "
        )
        assert path in event["note"]


class Slow(Shelf):
    """Waits until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.called, self.go = threading.Event(), threading.Event()

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        self.called.set()
        assert self.go.wait(30)
        return super().allocate(claims, node)


def test_a_call_that_takes_long_keeps_nobody_waiting(
    served: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And has its time to end when the process is told to."""
    slow, ledger, stop = Slow(), tmp_path / "ledger", DriverExecutor.stop

    def stopped(calls: DriverExecutor) -> None:
        stop(calls)
        slow.go.set()

    monkeypatch.setattr(DriverExecutor, "stop", stopped)
    with serving(slow, ledger, served.kubeconfig, 0) as running:
        add_claims(served, "a", "b")
        assert slow.called.wait(30)
        until(served, CLAIMS, lambda o: all(c["metadata"].get("finalizers") for c in o.values()))
        url = f"http://127.0.0.1:{running.port}"
        with urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:
            assert b"ok" == answer.read()
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            assert "stower_driver_calls_waiting 2.0" in answer.read().decode()
        running.stop()
    with FileLedger(ledger, NAME) as kept:
        assert [True] == [entry.allocation is not None for entry in kept.entries.values()]
    assert 1 == len(slow.allocated), "no call is begun after that"
    again = Shelf()
    with serving(again, ledger, served.kubeconfig):
        until(served, CLAIMS, lambda o: ["a", "b"] == allocated(o))
    assert {"a", "b"} == {*slow.allocated, *again.allocated}
    assert 1 == len(again.allocated), "what was taken before is not taken again"


def test_a_call_that_does_not_end_keeps_the_ledger(
    served: Client, tmp_path: Path, monkeypatch: Any
) -> None:
    """Nobody else may take devices while it may still do so."""
    monkeypatch.setattr(module, "CALL_SECONDS", 0.05)
    slow, ledger = Slow(), tmp_path / "ledger"
    with serving(slow, ledger, served.kubeconfig):
        add_claims(served, "a")
        assert slow.called.wait(30)
    with pytest.raises(LedgerError, match="only one process can use a ledger"):
        FileLedger(ledger, NAME)
    slow.go.set()


def test_watches_that_are_cut_lose_nothing_and_double_nothing(
    served: Client, tmp_path: Path
) -> None:
    shelf, names = Shelf(), [f"c{number}" for number in range(24)]
    with (
        cutting(served.kubeconfig, tmp_path / "proxied", 0.4) as cuts,
        serving(shelf, tmp_path / "ledger", tmp_path / "proxied"),
    ):
        gate = threading.Event()
        for start in range(0, 24, 6):
            add_claims(served, *names[start : start + 6])
            before = cuts()
            while cuts() == before:
                gate.wait(0.01)
        until(served, CLAIMS, lambda o: sorted(names) == allocated(o))
    assert sorted(names) == sorted(shelf.allocated)
