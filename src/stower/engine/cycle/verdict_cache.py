"""Verdicts on shapes that fit nowhere, kept up to date row by row for the next pod of the shape.

Exactly those of the reference cycle (engine/cycle/reference.py), where nothing was promised to
anyone and no plugin has a say about this very pod. A verdict anew takes some 100 µs at 5,000 nodes,
this one 10 µs.
"""

from typing import Final

from stower.engine.cycle.reference import Verdict, judge
from stower.framework.profile import Profile
from stower.model.kinds import Pod
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

# A verdict takes up to 100 bytes a row.
KEPT_MAX: Final = 64
# With more changed rows than that, all are asked about anew.
ROWS_MAX: Final = 48


class _Kept:
    """A verdict, and up to where it knows of changes."""

    __slots__ = ("generation", "layout", "node_cursor", "use_cursor", "verdict")

    def __init__(self, state: ClusterState, verdict: Verdict, generation: int) -> None:
        self.verdict = verdict
        self.generation = generation
        self.layout = state.layout
        self.node_cursor = state.node_log.position
        self.use_cursor = state.use_log.position


class Verdicts:
    """By profile and shape, the least recently used dropped."""

    __slots__ = ("_kept", "_state")

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._kept: dict[tuple[str, int], _Kept] = {}

    def get(self, profile: Profile, shape: Shape, pod: Pod) -> Verdict:
        """The verdict, up to date. Valid until the next change."""
        state = self._state
        state.look()
        log = state.use_log
        key = (profile.scheduler_name, shape.serial)
        generation = profile.generation(shape, state)
        kept = self._kept.pop(key, None)
        if (
            kept is None
            or kept.layout != state.layout
            or kept.generation != generation
            or kept.node_cursor != state.node_log.position
            or len(kept.verdict.codes) != state.row_limit
            or log.position - kept.use_cursor > ROWS_MAX
        ):
            kept = _Kept(state, judge(profile, state, shape, pod), generation)
            if len(self._kept) >= KEPT_MAX:
                del self._kept[next(iter(self._kept))]
        elif kept.use_cursor != log.position:
            if kept.verdict.answers:  # else it was refused as a whole, or there is no node
                kept.verdict.look_again(state, sorted(set(log.cells(kept.use_cursor))))
            kept.use_cursor = log.position
        self._kept[key] = kept
        return kept.verdict
