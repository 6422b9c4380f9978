"""The scheduling cycle: one pod, all nodes, one answer.

Must not know of the queue, of writes or of time.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from stower.engine.cycle import reference
from stower.engine.cycle.evaluation import INFEASIBLE, Evaluation, Evaluations
from stower.engine.cycle.nominated_room import Beside
from stower.engine.cycle.verdict_cache import Verdicts
from stower.engine.preemption.evaluator import Preemption, Search
from stower.framework.negotiation import Wait
from stower.framework.plugin import Plugin
from stower.framework.post_filter import Remedy
from stower.framework.profile import Profile
from stower.framework.reasons import Diagnosis, Rejection
from stower.framework.writes import DeleteObject, PatchObject
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState, PodEntry
from stower.state.shapes import Shape
from stower.state.ties import pick, pod_hash, tie_ranks

FEW: Final = 4


class Cycle:
    """Chooses rows and diagnoses failures over one state, with caches of its own."""

    def __init__(self, state: ClusterState, seed: int) -> None:
        self._state = state
        self._seed = seed.to_bytes(8, "little", signed=True)
        self.keeps_why = False  # best nodes of choices, examples of refusals
        self._last: Ints | None = None  # the scores by which a row was chosen last
        self._evaluations = Evaluations(state)
        self._verdicts = Verdicts(state)
        self._preemption = Preemption(state, self._seed)
        self._beside = Beside(state)
        self._failures: dict[_FailureKey, tuple[tuple[int, ...], Diagnosis, Remedy]] = {}

    def choose(self, profile: Profile, entry: PodEntry) -> int:
        """The row for the pod, or -1 where no node will do.

        Cost: some 5 µs where nothing but the last placement has changed since the shape was last
        asked about; see engine/cycle/evaluation.py for the rest.
        """
        state = self._state
        state.look()
        evaluation = self._evaluations.get(profile, entry.shape)
        own = evaluation.best[: state.row_limit]
        if not len(own):
            return -1
        best, has_scored = self._with_pods(profile, entry, evaluation, own)
        if state.nominated or entry.pod.status.nominated_node_name:
            relative = evaluation.is_normalized or has_scored
            return self._choose_beside_nominated(profile, entry, best, relative)
        return self._pick(best, entry)

    def best_few(self) -> tuple[tuple[str, int], ...]:
        """The best nodes of the last choice and their scores, where these are kept; asked before
        anything else happens."""
        best = self._last
        if not self.keeps_why or best is None or not len(best):
            return ()
        some = np.argpartition(best, -min(FEW, len(best)))[-FEW:]
        rows = sorted(some[best[some] >= 0].tolist(), key=lambda row: (-int(best[row]), row))
        return tuple((self._state.names[row], int(best[row])) for row in rows)

    def choose_among(self, profile: Profile, entry: PodEntry, allowed: Bools, points: Ints) -> int:
        """The same among the allowed rows, with these points on top."""
        best = self.standing(profile, entry)
        best = np.where(allowed & (best >= 0), np.maximum(best + points, 0), INFEASIBLE)
        if self._state.nominated or entry.pod.status.nominated_node_name:
            return self._choose_beside_nominated(profile, entry, best, False)
        return self._pick(best, entry)

    def standing(self, profile: Profile, entry: PodEntry) -> Ints:
        """int64[row_limit]: each row's total score, below 0 where the pod may not go. Read only."""
        self._state.look()
        evaluation = self._evaluations.get(profile, entry.shape)
        own = evaluation.best[: self._state.row_limit]
        return self._with_pods(profile, entry, evaluation, own)[0]

    def _with_pods(
        self, profile: Profile, entry: PodEntry, evaluation: Evaluation, best: Ints
    ) -> tuple[Ints, bool]:
        """`best` with what the plugins of scope PODS say of this very pod; and whether that changes
        scores, which may depend on what else is feasible."""
        state, shape, pod = self._state, entry.shape, entry.pod
        for pre_filter in evaluation.pod_pre_filters:
            if pre_filter.pre_filter_pod(pod, shape, state) is not None:
                return np.full(len(best), INFEASIBLE), False
        refusals = [
            codes
            for plugin in evaluation.pod_filters
            if (codes := plugin.filter_pod(pod, shape, state)) is not None
        ]
        speaking = [(p, w) for p, w in evaluation.pod_scores if p.speaks(pod, state)]
        if not refusals and not speaking:
            return best, False
        feasible, total = best >= 0, best
        for codes in refusals:
            feasible &= codes == 0
        if refusals:
            if evaluation.is_normalized:
                total = evaluation.among(feasible)
            else:
                total = np.where(feasible, best, INFEASIBLE)
            if not (speaking and feasible.any()):
                return total, False
        for plugin, weight in speaking:
            part = plugin.score_pod(pod, shape, state, feasible)
            if part is not None:
                total = total + part * weight  # what is infeasible stays far below 0
        return total, True

    def _pick(self, best: Ints, entry: PodEntry) -> int:
        """The best row, or -1 where none is feasible."""
        self._last = best
        highest = best[best.argmax()]  # twice as fast as max()
        if highest < 0:
            return -1
        hashes = self._state.name_hashes[: len(best)]
        return pick(best == highest, hashes, pod_hash(self._seed, entry.uid))

    def _choose_beside_nominated(
        self, profile: Profile, entry: PodEntry, best: Ints, relative: bool
    ) -> int:
        """Where room was promised to pods of this priority or above, a row must do with them too.

        Only rows that would be chosen are looked at. Refusing one changes no other row's score,
        unless scores are normalised over the feasible rows: then the plain cycle decides.
        """
        state, shape = self._state, entry.shape
        promised = state.row_of(entry.pod.status.nominated_node_name)
        self._last = best
        if promised >= 0 and best[promised] >= 0 and self._has_room(profile, entry, promised):
            return promised
        if relative:
            verdict = reference.judge(profile, state, shape, entry.pod)
            feasible = verdict.feasible
            parts = reference.scores(profile, state, shape, entry.pod, feasible)
            total = reference.total(parts, len(feasible))
            return self._pick(np.where(feasible, total, INFEASIBLE), entry)
        own = best
        while True:
            row = self._pick(own, entry)
            if row < 0 or self._has_room(profile, entry, row):
                return row
            if own is best:
                own = best.copy()
            own[row] = INFEASIBLE

    def _has_room(self, profile: Profile, entry: PodEntry, row: int) -> bool:
        """Whether a feasible row does with the pods nominated to it as well."""
        state = self._state
        pods = reference.nominated_on(state, state.names[row], entry.pod.priority, entry.uid)
        return not pods or (
            reference.refused_with(profile, state, entry.shape, entry.pod, row, pods) is None
        )

    def evaluation(self, profile: Profile, shape: Shape) -> Evaluation:
        """What the profile thinks of all rows for a shape, up to date."""
        self._state.look()
        return self._evaluations.get(profile, shape)

    def would_do(
        self, profile: Profile, entry: PodEntry, row: int, *, lasting: bool = False
    ) -> bool:
        """Whether the pod may go to the row. `lasting`: but for refusals that may end when others
        are placed."""
        evaluation = self.evaluation(profile, entry.shape)
        if evaluation.best[row] < 0:
            return False
        state, shape, pod = self._state, entry.shape, entry.pod
        for pre_filter in evaluation.pod_pre_filters:
            if pre_filter.pre_filter_pod(pod, shape, state) is not None:
                return False
        for plugin in evaluation.pod_filters:
            codes = plugin.filter_pod(pod, shape, state)
            if codes is not None:
                here = codes[row : row + 1]
                if (plugin.lasts(here) if lasting else here != 0).any():
                    return False
        return not state.nominated or self._has_room(profile, entry, row)

    def fail(
        self,
        profile: Profile,
        entry: PodEntry,
        extended: Mapping[str, Rejection] | None = None,
    ) -> tuple[Diagnosis, Remedy]:
        """Why no node will do, and what the PostFilter plugins would do about it. `extended`: nodes
        that extenders have refused.

        Equal pods share one answer while the cluster stays as it is.
        """
        state, pod = self._state, entry.pod
        about_pods = any(
            p.concerns(entry.shape)
            and (p in profile.pod_pre_filters or p.filter_pod(pod, entry.shape, state) is not None)
            for p in (*profile.pod_pre_filters, *profile.pod_filters)
        )
        # Labels and terms about others are not in the shape, nor is what a pod was promised.
        promised = state.nominated or pod.status.nominated_node_name
        shared = not (about_pods or promised or extended)
        key = (
            profile.scheduler_name, entry.shape.serial, pod.priority, pod.spec.preemption_policy
        )  # fmt: skip
        position = (
            state.use_log.position, state.node_log.position, state.budgets.generation,
            profile.generation(entry.shape, state),
        )  # fmt: skip
        known = self._failures.get(key)
        if shared and known is not None and known[0] == position:
            return known[1], known[2]
        if shared:
            verdict = self._verdicts.get(profile, entry.shape, pod)
        else:
            verdict = reference.judge(profile, state, entry.shape, pod)
        if extended:
            verdict.extend({state.row_of(name): why for name, why in extended.items()})
        names = state.names if self.keeps_why else None
        diagnosis = verdict.diagnosis(state.node_count, names)
        remedy = self._remedy(profile, entry, verdict)
        if shared and not remedy.victims and not remedy.patches:
            if len(self._failures) >= Evaluations.ENTRIES_MAX:
                self._failures.clear()
            self._failures[key] = (position, diagnosis, remedy)
        return diagnosis, remedy

    def diagnose(self, profile: Profile, entry: PodEntry) -> tuple[Diagnosis | None, Remedy]:
        """Why a pod of a group that was refused would not be placed alone either, None where it
        would; and what PostFilter plugins do about it but evict others: to give back what it holds
        helps the group even then."""
        verdict = reference.judge(profile, self._state, entry.shape, entry.pod)
        fits = bool(verdict.feasible.any())
        if fits and not (entry.shape.claims or entry.shape.extended):
            return None, Remedy()
        failure = self._preemption.failure(profile, entry, verdict)
        remedies = [
            plugin.post_filter(failure) for plugin in profile.post_filters if not plugin.evicts
        ]
        patches = tuple(patch for remedy in remedies for patch in remedy.patches)
        message = ", ".join(remedy.message for remedy in remedies if remedy.message)
        names = self._state.names if self.keeps_why else None
        diagnosis = None if fits else verdict.diagnosis(self._state.node_count, names)
        return diagnosis, Remedy(message, patches=patches)

    def settle(self, profile: Profile, entry: PodEntry, row: int) -> tuple[Plugin, Wait] | None:
        """What others have to agree with before the pod is bound to the row that was chosen last,
        -1 for none; None where there is nothing."""
        for plugin in profile.settlers:
            if plugin.concerns(entry.shape):
                best = self._beside_promises(profile, entry) if row >= 0 else None
                found = _Found(best, row, self._state, pod_hash(self._seed, entry.uid))
                wait = plugin.settle(entry.pod, entry.shape, self._state, found)
                if wait is not None:
                    return plugin, wait
        return None

    def settle_at(self, profile: Profile, entry: PodEntry, row: int) -> tuple[Plugin, Wait] | None:
        """The same for a row that was chosen for the pod beside others."""
        self._last = self.standing(profile, entry)
        return self.settle(profile, entry, row)

    def _beside_promises(self, profile: Profile, entry: PodEntry) -> Ints:
        """What was found last, without rows that were promised to others and have no room beside
        them: of these only such as would have been chosen were looked at."""
        assert self._last is not None
        full = self._beside.crowded(profile, entry, self._last)
        if not full:
            return self._last
        best = self._last.copy()
        best[full] = INFEASIBLE
        return best

    def candidates(self, profile: Profile, entry: PodEntry) -> "Search":
        """Where evictions would make the pod fit."""
        verdict = reference.judge(profile, self._state, entry.shape, entry.pod)
        return self._preemption.failure(profile, entry, verdict)

    def _remedy(self, profile: Profile, entry: PodEntry, verdict: reference.Verdict) -> Remedy:
        """Source: framework/runtime RunPostFilterPlugins."""
        if not self._state.node_count or not profile.post_filters:
            return Remedy(nominate="")
        failure = self._preemption.failure(profile, entry, verdict)
        messages = []
        patches: tuple[PatchObject | DeleteObject, ...] = ()
        nominate = None
        for plugin in profile.post_filters:
            remedy = plugin.post_filter(failure)
            if remedy == Remedy():
                continue  # it only wanted to know
            patches += remedy.patches
            if not remedy.message:
                return msgspec.structs.replace(remedy, patches=patches)
            messages.append(remedy.message)
            nominate = nominate if remedy.nominate is None else remedy.nominate
        return Remedy(", ".join(messages), nominate, patches=patches)


class _Found:
    """What an attempt has found; see framework.settle.Found."""

    def __init__(self, best: Ints | None, row: int, state: ClusterState, pod: np.uint64) -> None:
        self._best = best
        self._row = row
        self._state = state
        self._pod = pod

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return self._best is not None

    @property
    def count(self) -> int:
        """How many there are."""
        return 0 if self._best is None else int(np.count_nonzero(self._best >= 0))

    def ranked(self, among: Ints | None = None) -> list[int]:
        """The rows that would do, the best first, equal ones as ties are broken."""
        best = self._best
        if best is None:
            return []
        rows = np.flatnonzero(best >= 0) if among is None else among[best[among] >= 0]
        ties = tie_ranks(self._state.name_hashes[rows], self._pod)
        ordered: list[int] = rows[np.lexsort((ties, -best[rows]))].tolist()
        # The chosen one comes first, whether for its points or for what was promised there.
        if self._row in ordered:
            ordered.remove(self._row)
            ordered.insert(0, self._row)
        return ordered


_FailureKey = tuple[str, int, int, str | None]
