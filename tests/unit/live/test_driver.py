"""A driver's shell: against a server whose history is forgotten, and from a kubeconfig."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from stower.driver import Allocation, Driver, Entry, MemoryLedger
from stower.live import driver as module
from stower.live import reflector
from stower.live.client import Response, WatchStatusError
from stower.live.driver import DriverShell, run_driver, serve
from stower.live.ledger import FileLedger, LedgerError
from stower.live.shell import ShellError
from stower.model.kinds import Pod, ResourceClaim
from tests.unit.live.fake_api import FakeApi, cluster, port_in_use, until

NAME = "shelf.example.com"
CLAIM = {
    "metadata": {"name": "c", "namespace": "default", "uid": "u", "resourceVersion": "2",
                 "finalizers": [f"{NAME}/allocated"]},
    "status": {"allocation": {"devices": {}}},
}  # fmt: skip


class Shelf(Driver):
    """Says what it was to give back."""

    name = NAME

    def __init__(self) -> None:
        self.freed: list[str] = []
        self.done = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def deallocate(self, claim: Entry) -> None:
        self.freed.append(claim.name)
        self.loop.call_soon_threadsafe(self.done.set)


class Forgetful:
    """Has one claim until its watch is asked for, and has forgotten when it went."""

    access: Any = None

    def __init__(self) -> None:
        self.listed: list[str] = []
        self.is_gone = False

    async def request(self, method: str, path: str, *_: Any, **__: Any) -> Response:
        self.listed.append(path)
        items = [CLAIM] if "resourceclaims" in path and not self.is_gone else []
        body = {"metadata": {"resourceVersion": "5"}, "items": items}
        return Response(200, msgspec.json.encode(body))

    async def watch(
        self, path: str, query: dict[str, str], accept: str = ""
    ) -> AsyncIterator[list[bytes]]:
        if "sendInitialEvents" in query:
            raise WatchStatusError(Response(422, b"{}"))  # no lists as streams here
        if "resourceclaims" in path and not self.is_gone:
            self.is_gone = True
            raise WatchStatusError(Response(410, b"{}"))
        yield []
        await asyncio.Event().wait()


def test_what_went_while_nobody_watched_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is listed again, from the server itself and not from what it remembers."""
    monkeypatch.setattr(reflector, "BACKOFF_SECONDS", 0.001)

    async def main() -> tuple[list[str], list[str], MemoryLedger]:
        client, stop = Forgetful(), asyncio.Event()
        client.access = type("Access", (), {"server": "https://x"})
        shelf = Shelf()
        ledger = MemoryLedger({"u": Entry("u", "default", "c", "n", {"devices": {}})})
        anything: Any = client
        shell = DriverShell(anything, shelf, ledger)
        running = asyncio.create_task(shell.run(stop))
        async with asyncio.timeout(10):
            await shelf.done.wait()
        stop.set()
        await running
        assert await shell.executor.close(5)
        return client.listed, shelf.freed, ledger

    listed, freed, ledger = asyncio.run(main())
    assert ["c"] == freed
    assert {} == ledger.entries
    assert 2 == sum("resourceclaims" in path for path in listed)
    assert [] == [path for path in listed if "resourceVersion" in path]


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


class Shop(Driver):
    """Gives to each claim a device of its own. `wait`: called in each allocation."""

    name = NAME

    def __init__(self, wait: Callable[[], None] = lambda: None) -> None:
        self.wait = wait
        self.allocated: list[str] = []
        self.freed: list[str] = []

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Iterable[str]:
        return ()

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        self.wait()
        self.allocated += [claim.metadata.name for claim in claims]
        return [Allocation([("r", "shelf", claim.metadata.name)]) for claim in claims]

    def deallocate(self, claim: Entry) -> None:
        self.freed.append(claim.name)


def shop_api(fault: Any = lambda method, path: None) -> FakeApi:
    """An API with a class of the driver."""
    fake = FakeApi(fault)
    meta = {"metadata": {"name": "shelf"}}
    fake.call("POST", "/apis/stower.dev/v1/resourceclasses", {**meta, "driverName": NAME})
    fake.call("POST", "/apis/resource.k8s.io/v1/deviceclasses", meta)
    return fake


def add_claim(fake: FakeApi, name: str) -> None:
    """An immediate claim: it waits for no pod."""
    meta = {"name": name, "annotations": {"stower.dev/allocation-mode": "Immediate"}}
    requests = [{"name": "r", "exactly": {"deviceClassName": "shelf"}}]
    fake.call("POST", CLAIMS, {"metadata": meta, "spec": {"devices": {"requests": requests}}})


def allocated(fake: FakeApi) -> list[str]:
    items = fake.call("GET", CLAIMS)["items"]
    return [i["metadata"]["name"] for i in items if i.get("status", {}).get("allocation")]


@pytest.fixture
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(reflector, "NOT_SERVED_RETRY_SECONDS", 0.001)


@pytest.mark.usefixtures("_no_pause")
def test_a_driver_allocates_and_frees_from_a_kubeconfig_and_counts_it(tmp_path: Path) -> None:
    async def story() -> tuple[str, str]:
        fake, shop = shop_api(), Shop()
        add_claim(fake, "a")
        stop, ports = asyncio.Event(), asyncio.Queue[int]()

        def on_ready(server: str, port: int | None) -> None:
            assert server.startswith("https://127.0.0.1:")
            assert port is not None
            ports.put_nowait(port)

        async with cluster(fake, tmp_path / "c") as kubeconfig:
            running = asyncio.create_task(
                run_driver(
                    shop,
                    tmp_path / "ledger",
                    stop,
                    kubeconfig=kubeconfig,
                    metrics_port=0,
                    on_ready=on_ready,
                )
            )
            url = f"http://127.0.0.1:{await ports.get()}"
            await until(lambda: allocated(fake) == ["a"])
            add_claim(fake, "b")
            await until(lambda: len(allocated(fake)) == 2)
            fake.call("DELETE", f"{CLAIMS}/a")
            await until(lambda: len(fake.call("GET", CLAIMS)["items"]) == 1)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"{url}/metrics") as response:
                    metrics = await response.text()
                async with session.get(f"{url}/readyz") as response:
                    ready = await response.text()
            stop.set()
            await running
        assert (["a", "b"], ["a"]) == (shop.allocated, shop.freed)
        return metrics, ready

    metrics, ready = asyncio.run(story())
    assert "ok" == ready
    assert "stower_driver_ledger_entries 1.0" in metrics
    assert "stower_driver_pending_claims 0.0" in metrics
    with FileLedger(tmp_path / "ledger", NAME) as ledger:
        assert ["b"] == [entry.name for entry in ledger.entries.values()]


@pytest.mark.usefixtures("_no_pause")
def test_an_allocated_claim_without_an_entry_is_adopted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After the loss of a ledger. A write that the server refuses for good is logged."""
    refusals = [422, 409]

    def fault(method: str, path: str) -> Response | None:
        if method == "PATCH" and "resourceclaims" in path and refusals:
            return Response(refusals.pop(), b'{"message": "no"}')
        return None

    async def story() -> list[Entry]:
        fake = shop_api(fault)
        client: Any = fake
        for ledger in (MemoryLedger(), MemoryLedger()):
            add_claim(fake, f"c{id(ledger)}")
            shell, stop = DriverShell(client, Shop(), ledger), asyncio.Event()
            running = asyncio.create_task(shell.run(stop))
            count = len(fake.call("GET", CLAIMS)["items"])
            await until(lambda: len(allocated(fake)) == count)  # noqa: B023
            await until(lambda: len(ledger.entries) == count)  # noqa: B023
            stop.set()
            await running
            assert await shell.executor.close(5)
            assert 0 == shell.stats()["driver_pending_claims"]
            assert count == shell.stats()["driver_ledger_entries"]
        return list(ledger.entries.values())

    with caplog.at_level(logging.INFO):
        entries = asyncio.run(story())
    assert 2 == len(entries)
    assert (
        "1 allocated claims have no entry in the ledger: calling the driver's adopt()"
        in caplog.messages
    )
    failed = [m for m in caplog.messages if m.startswith("a write to the API server failed: ")]
    assert any(m.endswith(": 422 no") and " ResourceClaim default/c" in m for m in failed)
    assert not any(m.endswith(": 409 no") for m in failed)


@pytest.mark.parametrize("has_time", [True, False])
@pytest.mark.usefixtures("_no_pause")
def test_a_call_that_runs_at_the_stop_has_some_time_to_end(
    has_time: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without it the ledger stays locked: the call may still take something."""
    monkeypatch.setattr(module, "CALL_SECONDS", 5.0 if has_time else 0.01)
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(10)

    async def story() -> None:
        fake = shop_api()
        add_claim(fake, "a")
        stop = asyncio.Event()
        async with cluster(fake, tmp_path / "c") as kubeconfig:
            running = asyncio.create_task(
                run_driver(Shop(wait), tmp_path / "ledger", stop, kubeconfig=kubeconfig)
            )
            await until(begun.is_set)
            stop.set()
            if has_time:
                await asyncio.sleep(0.01)
                go_on.set()
            await running

    try:
        asyncio.run(story())
        if has_time:
            with FileLedger(tmp_path / "ledger", NAME) as ledger:
                assert ["a"] == [entry.name for entry in ledger.entries.values()]
        else:
            with pytest.raises(LedgerError, match="only one process can use a ledger"):
                FileLedger(tmp_path / "ledger", NAME)
        assert has_time is not any(
            "a driver call is still running" in text for text in caplog.messages
        )
    finally:
        go_on.set()


def start(driver: Driver, tmp_path: Path, **options: Any) -> None:
    """Runs a driver that must not start, or is stopped before."""

    async def story() -> None:
        stop = asyncio.Event()
        if options.pop("is_stopped", False):
            stop.set()
        await run_driver(driver, tmp_path / "ledger", stop, **options)

    asyncio.run(story())


def test_a_driver_that_cannot_run_says_why_in_one_line(tmp_path: Path) -> None:
    class Nameless(Driver):
        pass

    with pytest.raises(
        ShellError, match=r"Nameless\.name is empty: want the driverName of its ResourceClass"
    ):
        start(Nameless(), tmp_path)
    with pytest.raises(
        ShellError, match=r"metrics_port: got 70000, want 0 \(any free port\) to 65535"
    ):
        start(Shop(), tmp_path, metrics_port=70_000)
    with pytest.raises(ShellError, match="missing: no such file"):
        start(Shop(), tmp_path, kubeconfig=tmp_path / "missing")
    with (
        FileLedger(tmp_path / "ledger", NAME),
        pytest.raises(LedgerError, match="only one process can use a ledger"),
    ):
        start(Shop(), tmp_path)


def test_a_driver_that_is_stopped_before_it_starts_leaves_its_ledger(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(shop_api(), tmp_path / "c") as kubeconfig:
            await asyncio.to_thread(start, Shop(), tmp_path, kubeconfig=kubeconfig, is_stopped=True)

    asyncio.run(story())
    with FileLedger(tmp_path / "ledger", NAME) as ledger:
        assert {} == ledger.entries


def test_a_port_of_metrics_that_is_taken_ends_the_driver(tmp_path: Path) -> None:
    async def story(port: int) -> None:
        async with cluster(shop_api(), tmp_path / "c") as kubeconfig:
            await asyncio.to_thread(
                start, Shop(), tmp_path, kubeconfig=kubeconfig, metrics_port=port
            )

    with port_in_use() as port, pytest.raises(ShellError, match=f"cannot listen on port {port}: "):
        asyncio.run(story(port))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_runs_until_a_signal(
    number: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it prints says how to stop it."""
    up, down = threading.Event(), threading.Event()
    box: list[Path] = []

    async def api() -> None:
        async with cluster(shop_api(), tmp_path / "c") as kubeconfig:
            box.append(kubeconfig)
            up.set()
            while not down.is_set():
                await asyncio.sleep(0.001)

    class Ending(Shop):
        """Ends with a signal once its shell runs."""

        @property
        def taken(self) -> Any:
            return {}

        @taken.setter
        def taken(self, _: Any) -> None:
            os.kill(os.getpid(), number)

    thread = threading.Thread(target=lambda: asyncio.run(api()), daemon=True)
    thread.start()
    assert up.wait(10)
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        serve(Ending(), ledger=tmp_path / "ledger", kubeconfig=box[0], metrics_port=0)
    finally:
        down.set()
        thread.join(10)
    text = capsys.readouterr().out
    assert text.startswith(f"{NAME} is connected to https://127.0.0.1:")
    assert "metrics are on http://127.0.0.1:" in text
    assert text.endswith("Stop it with Ctrl-C.\n")
    assert before == {name: signal.getsignal(name) for name in before}


def test_serve_ends_the_process_with_one_line_if_it_cannot(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as found:
        serve(Shop(), ledger=tmp_path / "ledger", kubeconfig=tmp_path / "missing")
    assert f"{NAME}: --kubeconfig {tmp_path}/missing: no such file" == str(found.value)
