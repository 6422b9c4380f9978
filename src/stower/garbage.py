"""Runs Python's cyclic garbage collector by the clock instead of after numbers of allocations, in
processes that hold the objects of a cluster.

API objects form no cycles. The collector's default, a run after every few hundred allocations,
costs an API server a sixth of its CPU, and a scheduler a tenth. Must not know what the process
does.
"""

import asyncio
import contextlib
import gc
import itertools
from collections.abc import AsyncIterator
from typing import Final

SWEEP_SECONDS: Final = 1.0
OLDER_SWEEPS: Final = 60  # young objects are checked in each sweep, older ones in each 60th
ALL_SWEEPS: Final = 900  # all objects: a pause of some 60 ms with 100,000 pods


RARE_THRESHOLDS: Final = (50_000, 20, 50)


def collect_rarely() -> None:
    """Lets the collector run after far more allocations than by default, in processes that compute
    and end: runs of the simulator take a twelfth less CPU time."""
    gc.set_threshold(*RARE_THRESHOLDS)


@contextlib.asynccontextmanager
async def swept_by_the_clock() -> AsyncIterator[None]:
    """Collects garbage by the clock until the context exits. Never collects objects that exist when
    the context is entered."""
    sweeper = asyncio.create_task(_sweep())
    try:
        yield
    finally:
        sweeper.cancel()
        gc.enable()


async def _sweep() -> None:
    gc.collect()
    gc.freeze()
    gc.disable()
    for turn in itertools.count(1):
        await asyncio.sleep(SWEEP_SECONDS)
        gc.collect(2 if turn % ALL_SWEEPS == 0 else 1 if turn % OLDER_SWEEPS == 0 else 0)
