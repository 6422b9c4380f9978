"""Rows that were promised to other pods, and whether one more has room beside them.

Kept per shape and priority: a row is asked again when something on it has changed. What plugins of
scope PODS say is about one pod, and not kept.
"""

from collections.abc import Callable
from typing import Final

from stower.engine.cycle.reference import nominated_on
from stower.framework.dry_run import DryRun
from stower.framework.plugin import Scope
from stower.framework.profile import Profile
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState, PodEntry

ENTRIES_MAX: Final = 64

_Runs = list[Callable[[int], DryRun]]


class Beside:
    """Over one state."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._kept: dict[tuple[str, int, int], _Kept] = {}

    def crowded(self, profile: Profile, entry: PodEntry, best: Ints) -> list[int]:
        """The promised rows, feasible ones (best >= 0), that would not do with both."""
        state = self._state
        rows = [(name, state.row_of(name)) for name in state.nominated]
        rows = [(name, row) for name, row in rows if row >= 0 and best[row] >= 0]
        if not rows:
            return []
        runs, is_kept = self._runs(profile, entry)
        known = self._known(profile, entry) if is_kept else {}
        found = []
        for name, row in rows:
            # Its own promise is not in its way, and makes this row another one for it.
            asked = {} if name == entry.nominated_to else known
            verdict = asked.get(row)
            if verdict is None:
                pods = nominated_on(state, name, entry.pod.priority, entry.uid)
                verdict = asked[row] = bool(pods) and any(_refuses(r, row, pods) for r in runs)
            if verdict:
                found.append(row)
        return found

    def _runs(self, profile: Profile, entry: PodEntry) -> tuple[_Runs, bool]:
        """Of the filters to which other pods make a difference; whether equal pods share them."""
        found: _Runs = []
        is_kept = True
        for plugin in profile.filters:
            if plugin.concerns(entry.shape):
                run = plugin.dry_runs(entry.pod, entry.shape, self._state)
                if run is not None:
                    found.append(run)
                    is_kept = is_kept and plugin.scope is not Scope.PODS
        return found, is_kept

    def _known(self, profile: Profile, entry: PodEntry) -> dict[int, bool]:
        state = self._state
        key = (profile.scheduler_name, entry.shape.serial, entry.pod.priority)
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= ENTRIES_MAX:
                self._kept.clear()
            kept = self._kept[key] = _Kept()
        generation = profile.generation(entry.shape, state)
        node = state.node_log.position
        if (kept.generation, kept.node) != (generation, node) or state.use_log.overrun(kept.use):
            kept.verdicts.clear()
        else:
            for row in state.use_log.cells(kept.use):
                kept.verdicts.pop(row, None)
        kept.generation, kept.node, kept.use = generation, node, state.use_log.position
        return kept.verdicts


class _Kept:
    """Verdicts by row, and as of when."""

    __slots__ = ("generation", "node", "use", "verdicts")

    def __init__(self) -> None:
        self.generation = self.node = self.use = -1
        self.verdicts: dict[int, bool] = {}


def _refuses(runs: Callable[[int], DryRun], row: int, pods: list[PodEntry]) -> bool:
    run = runs(row)
    for entry in pods:
        run.add(entry)
    return bool(run.code())
