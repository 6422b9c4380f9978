"""Finds nodes whose free room is reserved for nominated pods.

Answers are kept per shape and priority; a row is evaluated again when its node or its pods have
changed. Answers of plugins of scope PODS are about one pod, and not kept. Must not know how rows
are scored.
"""

from collections.abc import Callable
from typing import Final

from stower.engine.cycle.reference import nominated_pods_on
from stower.framework.dry_run import DryRun
from stower.framework.plugin import Scope
from stower.framework.profile import Profile
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry

ENTRIES_MAX: Final = 64

_DryRuns = list[Callable[[int], DryRun]]


class NominatedRoom:
    """Caches, for one ClusterState, which rows have room for a pod in addition to the nominated
    pods."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._cache: dict[tuple[str, int, int], _Cached] = {}

    def full_rows(self, profile: Profile, entry: PodEntry, best: Ints) -> list[int]:
        """Returns the feasible rows (best >= 0) that cannot take both the pod and the pods that
        are nominated there."""
        state = self._state
        rows = [(name, state.row_of(name)) for name in state.nominated_pods]
        rows = [(name, row) for name, row in rows if row >= 0 and best[row] >= 0]
        if not rows:
            return []
        runs, is_shared = self._dry_runs(profile, entry)
        cached = self._cached_rows(profile, entry) if is_shared else {}
        found = []
        for name, row in rows:
            # Its own nomination is not in its way: its answer for that row is its own.
            answers = {} if name == entry.nominated_node_name else cached
            is_full = answers.get(row)
            if is_full is None:
                pods = nominated_pods_on(state, name, entry.pod.priority, entry.uid)
                is_full = answers[row] = bool(pods) and any(_refuses(r, row, pods) for r in runs)
            if is_full:
                found.append(row)
        return found

    def _dry_runs(self, profile: Profile, entry: PodEntry) -> tuple[_DryRuns, bool]:
        """Returns the dry runs of filters to which other pods matter, and whether all pods of the
        shape share their answers."""
        found: _DryRuns = []
        is_shared = True
        for plugin in profile.filters:
            if plugin.is_relevant(entry.shape):
                run = plugin.dry_runs(entry.pod, entry.shape, self._state)
                if run is not None:
                    found.append(run)
                    is_shared = is_shared and plugin.scope is not Scope.PODS
        return found, is_shared

    def forget_shapes(self, serials: set[int]) -> None:
        """Drops what is kept of shapes that no pod has."""
        self._cache = {k: c for k, c in self._cache.items() if k[1] not in serials}

    def _cached_rows(self, profile: Profile, entry: PodEntry) -> dict[int, bool]:
        state = self._state
        key = (profile.scheduler_name, entry.shape.serial, entry.pod.priority)
        cached = self._cache.get(key)
        if cached is None:
            if len(self._cache) >= ENTRIES_MAX:
                self._cache.clear()
            cached = self._cache[key] = _Cached()
        generation = profile.generation(entry.shape, state)
        node = state.node_log.position
        if (cached.generation, cached.node) != (generation, node) or state.usage_log.is_overrun(
            cached.use
        ):
            cached.answers.clear()
        else:
            for row in state.usage_log.row_list(cached.use):
                cached.answers.pop(row, None)
        cached.generation, cached.node, cached.use = generation, node, state.usage_log.position
        return cached.answers


class _Cached:
    """Answers by row, and the positions in the state's logs that they are valid for."""

    __slots__ = ("answers", "generation", "node", "use")

    def __init__(self) -> None:
        self.generation = self.node = self.use = -1
        self.answers: dict[int, bool] = {}


def _refuses(runs: Callable[[int], DryRun], row: int, pods: list[PodEntry]) -> bool:
    run = runs(row)
    for entry in pods:
        run.add(entry)
    return bool(run.code())
