"""When a server stops: at a signal, or at the end of standard input."""

import asyncio
import io
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from stower.cli.shutdown import stop_event, wait_for_go


class Input(io.TextIOWrapper):
    """Standard input that is a pipe; the other end is `other`."""

    def __init__(self) -> None:
        ours, self.other = os.pipe()
        super().__init__(os.fdopen(ours, "rb", buffering=0))


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end of standard input that a parent writes to."""
    with Input() as made:
        monkeypatch.setattr(sys, "stdin", made)
        yield made.other


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_server(number: signal.Signals) -> None:
    async def serve() -> None:
        stop = stop_event()
        assert not stop.is_set()
        signal.raise_signal(number)
        await asyncio.wait_for(stop.wait(), 5)

    asyncio.run(serve())


def test_the_end_of_the_parent_stops_a_server(parent: int) -> None:
    """What the parent writes later does not."""

    async def serve() -> None:
        stop = stop_event(with_parent=True)
        os.write(parent, b"x")
        for _ in range(5):
            await asyncio.sleep(0)
        assert not stop.is_set()
        os.close(parent)
        await asyncio.wait_for(stop.wait(), 5)

    asyncio.run(serve())


def test_a_server_begins_when_its_parent_says_so(parent: int) -> None:
    os.write(parent, b"\n")
    wait_for_go(True)
    os.close(parent)
    with pytest.raises(SystemExit) as ended:
        wait_for_go(True)
    assert 0 == ended.value.code
    wait_for_go(False)
