"""stower.garbage: collections of cyclic garbage at fixed times."""

import gc
from collections.abc import Iterator

import pytest

from stower.garbage import ALL_SWEEPS, OLDER_SWEEPS, SWEEP_SECONDS, swept_by_the_clock
from tests.virtual_loop import VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.end()
    gc.unfreeze()
    gc.enable()


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The generation of each collection."""
    found: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda generation=2: found.append(generation))
    return found


def test_collections_follow_the_clock_while_the_block_lasts(
    loop: VirtualLoop, collections: list[int]
) -> None:
    """Young objects every second, older objects every minute, all objects every 15 minutes."""
    context = swept_by_the_clock()
    loop.run(context.__aenter__())
    loop.turns()
    assert ([2], False) == (collections, gc.isenabled())
    collections.clear()
    loop.advance(SWEEP_SECONDS * ALL_SWEEPS)
    assert ALL_SWEEPS == len(collections)
    assert (1, 2) == (collections[OLDER_SWEEPS - 1], collections[-1])
    assert ALL_SWEEPS // OLDER_SWEEPS - 1 == collections.count(1)
    collections.clear()
    loop.run(context.__aexit__(None, None, None))
    loop.advance(10 * SWEEP_SECONDS)
    assert ([], True) == (collections, gc.isenabled())


def test_block_that_fails_gives_collections_back_to_the_interpreter(
    loop: VirtualLoop, collections: list[int]
) -> None:
    async def failing() -> None:
        async with swept_by_the_clock():
            raise KeyError("x")

    with pytest.raises(KeyError):
        loop.run(failing())
    assert gc.isenabled()
