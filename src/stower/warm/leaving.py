"""Estimates how much longer a node is in use for one more user: the packing of `packing`.

A node goes away once its last user has left. A user who was last active a while ago leaves when the
culler comes; of others, only how long sessions last is known. The cost of a node for a user is the
time for which that user alone is expected to be there: the integral over time of the chance that
the user is there and nobody else is. Users leave independently of each other.

Source: packing by expected emptying times, docs/measurements.md.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from stower.model.kinds.warm_pool import Packing
from stower.model.times import SECOND_NS
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.warm.pools import Pool
from stower.warm.sharing import users_on

Floats = npt.NDArray[np.float64]

STEP_S: Final = 300
STEPS: Final = 72  # six hours
LEAST: Final = 1e-9  # of a chance: its logarithm is wanted


def extra_seconds(state: ClusterState, pool: Pool, pools: Iterable[Pool], rows: Ints) -> Ints:
    """int64[rows]: for how many seconds a new user of the pool is expected to be on the node alone.
    `pools`: those whose users count."""
    how, pools = pool.spec.packing, [*pools]
    times_s = (np.arange(STEPS) + 0.5) * STEP_S
    active = users_on(state, pools)[rows].astype(np.float64)
    gone = np.zeros((len(rows), STEPS))  # logarithms of the chance that all of a node's users are
    grace_s = 2 * how.cull_every_seconds  # who is there later than that is not culled
    where = {row: i for i, row in enumerate(rows.tolist())}
    for uid, last_ns in chain.from_iterable(one.last_active_ns.items() for one in pools):
        entry, idle_s = state.pods.get(uid), (state.now_ns - last_ns) / SECOND_NS
        i = where.get(entry.row, -1) if entry is not None else -1
        if i >= 0 and how.idle_after_seconds <= idle_s <= how.cull_seconds + grace_s:
            active[i] -= 1
            is_gone = (times_s - (how.cull_seconds - idle_s)) / how.cull_every_seconds
            gone[i] += np.log(np.clip(is_gone, LEAST, 1))
    gone += np.maximum(active, 0)[:, None] * np.log(_gone_after(how))
    alone = np.exp(gone) * (1 - _gone_after(how))
    found: Ints = (alone.sum(axis=1) * STEP_S).astype(np.int64)
    return found


@lru_cache(maxsize=16)
def _gone_after(how: Packing) -> Floats:
    """The chance that a user who is active now is gone after each step."""
    ages_s = (np.arange(STEPS) + 0.5) * STEP_S
    stops = 1 - np.exp(-ages_s / how.session_seconds)
    culled_s = np.maximum(0.0, ages_s - how.cull_seconds - how.cull_every_seconds / 2)
    culled = 1 - np.exp(-culled_s / how.session_seconds)
    own = how.stop_percent / 100
    chance: Floats = np.clip(own * stops + (1 - own) * culled, LEAST, 1)
    return chance
