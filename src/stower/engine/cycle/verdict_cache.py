"""Caches verdicts on shapes that fit nowhere, refreshed row by row for the next pod of the shape.

They equal those of the reference cycle (engine/cycle/reference.py) where no pod is nominated and no
plugin of scope PODS has an answer. A new verdict takes some 100 µs at 5,000 nodes, a cached one 10.
"""

from typing import Final

from stower.engine.cycle.reference import Verdict, judge
from stower.framework.profile import Profile
from stower.model.kinds import Pod
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

# A verdict takes up to 100 bytes a row.
KEPT_MAX: Final = 64
# With more changed rows than that, all rows are judged again.
ROWS_MAX: Final = 48


class _Cached:
    """A verdict, and the positions in the state's logs that it is valid for."""

    __slots__ = ("generation", "layout", "node_cursor", "use_cursor", "verdict")

    def __init__(self, state: ClusterState, verdict: Verdict, generation: int) -> None:
        self.verdict = verdict
        self.generation = generation
        self.layout = state.layout_generation
        self.node_cursor = state.node_log.position
        self.use_cursor = state.usage_log.position


class VerdictCache:
    """Verdicts by profile and shape; the least recently used is dropped."""

    __slots__ = ("_cache", "_state")

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._cache: dict[tuple[str, int], _Cached] = {}

    def forget_shapes(self, serials: set[int]) -> None:
        """Drops what is kept of shapes that no pod has."""
        self._cache = {k: c for k, c in self._cache.items() if k[1] not in serials}

    def get(self, profile: Profile, shape: Shape, pod: Pod) -> Verdict:
        """Returns the verdict, up to date; valid until the state changes."""
        state = self._state
        state.refresh_images()
        log = state.usage_log
        key = (profile.scheduler_name, shape.serial)
        generation = profile.generation(shape, state)
        cached = self._cache.pop(key, None)
        if (
            cached is None
            or cached.layout != state.layout_generation
            or cached.generation != generation
            or cached.node_cursor != state.node_log.position
            or len(cached.verdict.codes) != state.row_limit
            or log.position - cached.use_cursor > ROWS_MAX
        ):
            cached = _Cached(state, judge(profile, state, shape, pod), generation)
            if len(self._cache) >= KEPT_MAX:
                del self._cache[next(iter(self._cache))]
        elif cached.use_cursor != log.position:
            if cached.verdict.answers:  # else it was refused as a whole, or there is no node
                cached.verdict.refresh(state, sorted(set(log.row_list(cached.use_cursor))))
            cached.use_cursor = log.position
        self._cache[key] = cached
        return cached.verdict
