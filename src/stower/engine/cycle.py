"""The scheduling cycle: one pod, all nodes, one answer.

Must not know of the queue, of writes or of time.
"""

import numpy as np

from stower.engine import plain
from stower.engine.evaluation import Evaluations
from stower.framework.profile import Profile
from stower.framework.reasons import Diagnosis
from stower.state.cluster import ClusterState, PodEntry
from stower.state.shapes import Shape
from stower.state.ties import pick, pod_hash


class Cycle:
    """Chooses rows and diagnoses failures over one state, with caches of its own."""

    def __init__(self, state: ClusterState, seed: int) -> None:
        self._state = state
        self._seed = seed.to_bytes(8, "little", signed=True)
        self._evaluations = Evaluations(state)
        self._diagnoses: dict[tuple[str, int], tuple[tuple[int, int], Diagnosis]] = {}

    def choose(self, profile: Profile, entry: PodEntry) -> int:
        """The row for the pod, or -1 where no node will do.

        Cost: some 5 µs where nothing but the last placement has changed since the shape was last
        asked about; see engine/evaluation.py for the rest.
        """
        state = self._state
        if state.nominated:
            return self._choose_among_nominated(profile, entry)
        evaluation = self._evaluations.get(profile, entry.shape)
        best = evaluation.best[: state.row_limit]
        if not len(best):
            return -1
        highest = best[best.argmax()]  # twice as fast as max()
        if highest < 0:
            return -1
        hashes = state.name_hashes[: state.row_limit]
        return pick(best == highest, hashes, pod_hash(self._seed, entry.uid))

    def diagnose(self, profile: Profile, entry: PodEntry) -> Diagnosis:
        """Why no node will do. Equal pods share one answer while the cluster stays as it is."""
        state = self._state
        position = (state.use_log.position, state.node_log.position)
        key = (profile.scheduler_name, entry.shape.serial)
        known = self._diagnoses.get(key)
        if known is not None and known[0] == position and not state.nominated:
            return known[1]
        pod = entry.pod
        verdict = plain.judge(profile, state, entry.shape, pod.priority, entry.uid)
        diagnosis = verdict.diagnosis(state.node_count)
        if not state.nominated:
            if len(self._diagnoses) >= Evaluations.ENTRIES_MAX:
                self._diagnoses.clear()
            self._diagnoses[key] = (position, diagnosis)
        return diagnosis

    def _choose_among_nominated(self, profile: Profile, entry: PodEntry) -> int:
        """The plain cycle: with room promised to others, and a promised node tried first."""
        state, shape = self._state, entry.shape
        verdict = plain.judge(profile, state, shape, entry.pod.priority, entry.uid)
        feasible = verdict.feasible & state.present[state.all_rows]
        if verdict.pre_filter is not None or not feasible.any():
            return -1
        promised = state.row_of(entry.pod.status.nominated_node_name)
        if promised >= 0 and feasible[promised]:
            return promised
        total = self._totals(profile, shape, feasible)
        hashes = state.name_hashes[: state.row_limit]
        return pick(total == total.max(), hashes, pod_hash(self._seed, entry.uid))

    def _totals(
        self, profile: Profile, shape: Shape, feasible: np.ndarray[tuple[int], np.dtype[np.bool_]]
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        parts = plain.scores(profile, self._state, shape, feasible)
        return np.where(feasible, plain.total(parts, len(feasible)), -1)
