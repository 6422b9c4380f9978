"""A driver's shell against a server whose history is forgotten."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from stower.driver import Driver, Entry, MemoryLedger
from stower.live import reflector
from stower.live.client import Response, WatchStatusError
from stower.live.driver import DriverShell

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

    async def watch(self, path: str, query: dict[str, str]) -> AsyncIterator[list[bytes]]:
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
