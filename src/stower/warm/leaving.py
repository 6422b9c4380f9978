"""Estimates how much longer a node is in use for one more user: the packing of `packing`.

A node goes away once its last user has left. A user who was last active a while ago leaves when the
culler comes; of others, only how long sessions last is known. The cost of a node for a user is the
time for which that user alone is expected to be there: the integral over time of the chance that
the user is there and nobody else is. Users leave independently of each other.

Source: packing by expected emptying times, docs/measurements.md.
"""

from collections.abc import Iterable
from functools import lru_cache
from math import erfc, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from stower.model.kinds.warm_pool import Packing
from stower.model.times import SECOND_NS
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.warm.pools import Pool

Floats = npt.NDArray[np.float64]

STEP_S: Final = 300
STEPS: Final = 72  # six hours
TIMES_S: Final[Floats] = np.linspace(0.5, STEPS - 0.5, STEPS) * STEP_S
SPREAD: Final = 0.8  # of the logarithms of times for which users are active
PART_S: Final = 5  # in which the time is counted that is left to an idle user
PARTS: Final = 60  # of the time between two rounds of the culler, at most
LEAST: Final = 1e-9  # of a chance: its logarithm is wanted


def extra_seconds(state: ClusterState, pool: Pool, pools: Iterable[Pool], rows: Ints) -> Ints:
    """int64[rows]: for how many seconds a new user of the pool is expected to be on the node alone.
    `pools`: those whose users count."""
    how, now_ns, pods = pool.spec.packing, state.now_ns, state.pods
    where = np.full(state.row_limit + 1, -1, np.int64)  # on which of the rows; the last: on none
    where[rows] = np.arange(len(rows))
    known = [
        (entry.row, came_ns, one.last_active_ns.get(uid, now_ns))
        for one in pools
        for uid, came_ns in one.came_ns.items()
        if (entry := pods.get(uid)) is not None
    ]
    on, came, active_ns = np.array(known, np.int64).reshape(-1, 3).T
    at, idle_s = where[on], (now_ns - active_ns) / SECOND_NS
    grace_s = 2 * how.cull_every_seconds  # who is there later than that is not culled
    is_idle = (how.idle_after_seconds <= idle_s) & (idle_s <= how.cull_seconds + grace_s)
    idle, busy = np.flatnonzero(is_idle & (at >= 0)), np.flatnonzero(~is_idle & (at >= 0))

    active = np.zeros((len(rows), STEPS))  # users by their ages
    ages = np.clip((now_ns - came[busy]) // (STEP_S * SECOND_NS), 0, STEPS - 1)
    np.add.at(active, (at[busy], ages), 1)
    chances, (parts_s, culled) = _gone_after(how), _gone_once_idle(how)
    gone = active @ np.log(chances)  # logarithms of the chance that all of a node's users are
    if len(idle):
        idle = idle[np.argsort(at[idle], kind="stable")]
        left = ((how.cull_seconds - idle_s[idle] + how.cull_every_seconds) // parts_s).astype(int)
        theirs = culled[np.clip(left, 0, len(culled) - 1)]
        nodes, first = np.unique(at[idle], return_index=True)
        gone[nodes] += np.add.reduceat(theirs, first)
    alone = np.exp(gone) * (1 - chances[0])
    found: Ints = (alone.sum(axis=1) * STEP_S).astype(np.int64)
    return found


@lru_cache(maxsize=16)
def _gone_once_idle(how: Packing) -> tuple[int, Floats]:
    """For parts of so many seconds: the logarithm of the chance that an idle user whose time is
    over in so many parts (rows), less the time between two rounds of the culler, is gone after a
    time (columns)."""
    every_s = how.cull_every_seconds
    parts_s = max(PART_S, every_s // PARTS)
    parts = np.arange(0, every_s + STEPS * STEP_S + parts_s, parts_s)[:, None]
    left_s = parts + parts_s / 2 - every_s
    return parts_s, np.log(np.clip((TIMES_S - left_s) / every_s, LEAST, 1))


@lru_cache(maxsize=16)
def _gone_after(how: Packing) -> Floats:
    """The chance that a user of an age (rows) who is active now is gone after a time (columns)."""
    ages_s: Floats = np.arange(STEPS, dtype=np.float64)[:, None] * STEP_S
    stopped = 1 - _still_active(how, ages_s, TIMES_S)
    culled_s: Floats = np.maximum(0, TIMES_S - how.cull_seconds - how.cull_every_seconds / 2)
    culled = 1 - _still_active(how, ages_s, culled_s)
    own = how.stop_percent / 100
    chance: Floats = np.clip(own * stopped + (1 - own) * culled, LEAST, 1)
    return chance


def _still_active(how: Packing, ages_s: Floats, times_s: Floats) -> Floats:
    """The chance that who is active at an age is so after a time: by a log-normal distribution."""
    found: Floats = _survival(how, ages_s + times_s) / _survival(how, ages_s)
    return found


def _survival(how: Packing, ages_s: Floats) -> Floats:
    ratio = np.log(np.maximum(ages_s, 1) / how.session_seconds) / (SPREAD * sqrt(2))
    found: Floats = np.maximum(LEAST, 0.5 * np.vectorize(erfc)(ratio))
    return found
