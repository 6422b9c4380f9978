"""The scheduling cycle: chooses a node for one pod among all nodes.

Must not know the queue, writes or time.

Source: kube-scheduler schedule_one.go schedulePod; framework/runtime.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from stower.engine.cycle import reference
from stower.engine.cycle.evaluation import Evaluation, EvaluationCache
from stower.engine.cycle.nominated_room import NominatedRoom
from stower.engine.cycle.row_cells import INFEASIBLE, ROWS_MIN, CellMaxima, Layouts
from stower.engine.cycle.verdict_cache import VerdictCache
from stower.engine.preemption.evaluator import Evaluator, Search
from stower.framework.negotiation import Wait
from stower.framework.plugin import DomainScores, Plugin
from stower.framework.post_filter import PostFilterResult, earliest
from stower.framework.profile import Profile
from stower.framework.reasons import Diagnosis, Rejection
from stower.framework.writes import DeleteObject, PatchObject
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape
from stower.state.ties import pod_hash

# Asking plugins for scores by domain costs as much as all scores: where that was in vain for a
# shape, so many of its pods are placed without.
CELLS_SKIPPED: Final = 50
# Nodes whose scores a Decision record keeps.
BEST_NODES: Final = 4

_FailureKey = tuple[str, int, int, str | None]
# Codes of refusals, and the plugins that may score with their weights.
_Answers = tuple[list[Ints], list[tuple[Plugin, int]]]


class SchedulingCycle:
    """Chooses rows and diagnoses failures over one ClusterState, with caches of its own."""

    def __init__(self, state: ClusterState, seed: int) -> None:
        self._state = state
        self._seed = seed.to_bytes(8, "little", signed=True)
        self.keeps_details = False  # whether decisions keep best nodes and examples of refusals
        self._last: Ints | None = None  # the scores that the last row was chosen by
        # Cells with the points of their domains, where the last row was chosen by these.
        self._last_by_cells: tuple[CellMaxima, Ints | None] | None = None
        self._evaluations = EvaluationCache(state)
        self._layouts = Layouts(state)
        self._verdicts = VerdictCache(state)
        self._evaluator = Evaluator(state, self._seed)
        self._nominated_room = NominatedRoom(state)
        self._failures: dict[_FailureKey, tuple[tuple[int, ...], Diagnosis, PostFilterResult]] = {}

    # Choosing a row

    def choose(self, profile: Profile, entry: PodEntry) -> int:
        """Returns the row for the pod, or -1 where it fits on no node.

        Cost: some 5 µs where nothing but the last placement has changed since the shape was last
        evaluated; see engine/cycle/evaluation.py for the rest.
        """
        state = self._state
        state.refresh_images()
        evaluation = self._evaluations.get(profile, entry.shape)
        count = state.row_limit
        best = evaluation.best[:count]
        self._last = self._last_by_cells = None
        if not count:
            return -1
        answers = self._answers(entry, evaluation)
        if answers is None:
            return -1
        nominates = state.nominated_pods or entry.pod.status.nominated_node_name
        if not nominates and count >= ROWS_MIN:
            row = self._pick_by_cells(profile, entry, evaluation, answers)
            if row is not None:
                return row
        has_scored = False
        if any(answers):
            best, has_scored = self._apply(entry, evaluation, best, answers)
        if nominates:
            relative = evaluation.is_normalized or has_scored
            return self._choose_with_nominated(profile, entry, best, relative)
        return self._pick(best, entry)

    def choose_among(self, profile: Profile, entry: PodEntry, allowed: Bools, points: Ints) -> int:
        """Returns the row among the allowed ones, with these points added to the scores."""
        best = self.scores_of(profile, entry)
        best = np.where(allowed & (best >= 0), np.maximum(best + points, 0), INFEASIBLE)
        if self._state.nominated_pods or entry.pod.status.nominated_node_name:
            return self._choose_with_nominated(profile, entry, best, False)
        return self._pick(best, entry)

    def choose_within(self, profile: Profile, entry: PodEntry, rows: Ints) -> int:
        """Returns the best of these rows, -1 where none of them is feasible."""
        if self._state.nominated_pods or entry.pod.status.nominated_node_name:
            allowed = np.zeros(self._state.row_limit, np.bool_)
            allowed[rows] = True
            return self.choose_among(profile, entry, allowed, np.zeros(len(allowed), np.int64))
        best = self.scores_of(profile, entry)
        self._last = self._last_by_cells = None
        if not len(rows):
            return -1
        values = best[rows]
        highest = values[values.argmax()]
        if highest < 0:
            return -1
        tied = rows[values == highest]
        return self._state.tie_breaker.pick_among(tied, pod_hash(self._seed, entry.uid))

    def scores_of(self, profile: Profile, entry: PodEntry) -> Ints:
        """Returns int64[row_limit]: each row's total score, below 0 where it is infeasible. Read
        only."""
        evaluation = self.evaluation(profile, entry.shape)
        own = evaluation.best[: self._state.row_limit]
        answers = self._answers(entry, evaluation)
        if answers is None:
            return np.full(len(own), INFEASIBLE)
        return self._apply(entry, evaluation, own, answers)[0] if any(answers) else own

    def best_nodes(self) -> tuple[tuple[str, int], ...]:
        """Returns the best nodes of the last choice with their scores, if `keeps_details`. Valid
        until the next choice, evaluation or change of the state."""
        if not self.keeps_details:
            return ()
        if self._last_by_cells is not None:
            cell_maxima, points = self._last_by_cells
            rows, best = cell_maxima.top(points, BEST_NODES)
        elif self._last is not None:
            best, rows = self._last, np.arange(len(self._last))
        else:
            return ()
        if not len(best):
            return ()
        some = np.argpartition(best, -min(BEST_NODES, len(best)))[-BEST_NODES:]
        found = [(-int(best[i]), int(rows[i])) for i in some.tolist() if best[i] >= 0]
        return tuple((self._state.node_names[row], -score) for score, row in sorted(found))

    def evaluation(self, profile: Profile, shape: Shape) -> Evaluation:
        """Returns the profile's evaluation of all rows for a shape, up to date."""
        self._state.refresh_images()
        return self._evaluations.get(profile, shape)

    def forget_shapes(self, serials: set[int]) -> None:
        """Drops what is kept of shapes that no pod has."""
        for cache in (self._evaluations, self._verdicts, self._evaluator, self._nominated_room):
            cache.forget_shapes(serials)
        self._failures = {k: f for k, f in self._failures.items() if k[1] not in serials}

    def fits(self, profile: Profile, entry: PodEntry, row: int, *, lasting: bool = False) -> bool:
        """Returns whether the pod may go to the row. `lasting` ignores refusals that may end when
        other pods are placed."""
        evaluation = self.evaluation(profile, entry.shape)
        if evaluation.best[row] < 0:
            return False
        state, shape, pod = self._state, entry.shape, entry.pod
        for pre_filter in evaluation.plugins.pod_pre_filters:
            if pre_filter.pre_filter_pod(pod, shape, state) is not None:
                return False
        for plugin in evaluation.plugins.pod_filters:
            codes = plugin.filter_pod(pod, shape, state)
            if codes is not None:
                here = codes[row : row + 1]
                if (plugin.is_permanent(here) if lasting else here != 0).any():
                    return False
        return not state.nominated_pods or self._has_room(profile, entry, row)

    def lasting_rows(self, profile: Profile, entry: PodEntry) -> Bools:
        """Returns bool[row_limit]: as `fits` with `lasting`, for all rows at once."""
        state, shape, pod = self._state, entry.shape, entry.pod
        evaluation = self.evaluation(profile, shape)
        rows: Bools = evaluation.best[: state.row_limit] >= 0
        for pre_filter in evaluation.plugins.pod_pre_filters:
            if pre_filter.pre_filter_pod(pod, shape, state) is not None:
                return np.zeros_like(rows)
        for plugin in evaluation.plugins.pod_filters:
            codes = plugin.filter_pod(pod, shape, state)
            if codes is not None:
                rows = rows & ~plugin.is_permanent(codes)
        for name in state.nominated_pods:
            row = state.row_of(name)
            if row >= 0 and rows[row]:
                rows[row] = self._has_room(profile, entry, row)
        return rows

    def _answers(self, entry: PodEntry, evaluation: Evaluation) -> _Answers | None:
        """Returns the refusals by plugins of scope PODS, and those that may score; None where one
        refuses the pod as a whole."""
        state, shape, pod = self._state, entry.shape, entry.pod
        plugins = evaluation.plugins
        for pre_filter in plugins.pod_pre_filters:
            if pre_filter.pre_filter_pod(pod, shape, state) is not None:
                return None
        irrelevant: list[Plugin] = []
        refusals: list[Ints] = []
        for plugin in plugins.pod_filters:
            if not plugin.is_relevant_to_pod(pod, state):
                irrelevant.append(plugin)
            elif (codes := plugin.filter_pod(pod, shape, state)) is not None:
                refusals.append(codes)
        scoring: list[tuple[Plugin, int]] = []
        for plugin, weight in plugins.pod_scores:
            if plugin not in irrelevant and plugin.has_scores(pod, state):
                scoring.append((plugin, weight))
        return refusals, scoring

    def _pick_by_cells(
        self, profile: Profile, entry: PodEntry, evaluation: Evaluation, answers: _Answers
    ) -> int | None:
        """Returns the best row, -1 where none is feasible; None where all rows have to be looked
        at: plugins refuse some of them, scores are more than points for domains of one key, or
        drivers will ask for all scores."""
        refusals, scoring = answers
        if refusals or evaluation.plugins.negotiating:
            return None
        if evaluation.skipped_cells:
            evaluation.skipped_cells -= 1
            return None
        evaluation.skipped_cells = CELLS_SKIPPED  # unless they serve
        if any(plugin.name not in profile.domain_scoring for plugin, _ in scoring):
            return None
        key = ""
        scores: list[tuple[DomainScores, int]] = []
        for plugin, weight in scoring:
            found = plugin.domain_scores(entry.pod, entry.shape, self._state)
            if found is None or (key and found.key and found.key != key):
                return None
            if found.key:
                key = found.key
                scores.append((found, weight))
        layout = self._layouts.get(key)
        if layout is None:
            return None
        cell_maxima = evaluation.cell_maxima(layout)
        points: Ints | None = None
        if scores:
            feasible_codes = cell_maxima.feasible_codes
            points = np.zeros(len(feasible_codes), np.int64)
            for found, weight in scores:
                points += found.points(feasible_codes) * weight
        self._last_by_cells = cell_maxima, points
        evaluation.skipped_cells = 0
        return cell_maxima.pick(points, pod_hash(self._seed, entry.uid))

    def _apply(
        self, entry: PodEntry, evaluation: Evaluation, best: Ints, answers: _Answers
    ) -> tuple[Ints, bool]:
        """Returns `best` with these answers, which are some, and whether plugins scored: then
        scores may depend on which rows are feasible."""
        refusals, scoring = answers
        feasible, total = best >= 0, best
        for codes in refusals:
            feasible &= codes == 0
        if refusals:
            if evaluation.is_normalized:
                total = evaluation.scores_among(feasible)
            else:
                total = np.where(feasible, best, INFEASIBLE)
            if not (scoring and feasible.any()):
                return total, False
        for plugin, weight in scoring:
            part = plugin.score_pod(entry.pod, entry.shape, self._state, feasible)
            if part is not None:
                total = total + part * weight  # what is infeasible stays far below 0
        return total, True

    def _pick(self, best: Ints, entry: PodEntry) -> int:
        """Returns the best row, or -1 where none is feasible."""
        self._last, self._last_by_cells = best, None
        highest = best[best.argmax()]  # twice as fast as max()
        if highest < 0:
            return -1
        return self._state.tie_breaker.pick(best == highest, pod_hash(self._seed, entry.uid))

    # Nominated pods

    def _choose_with_nominated(
        self, profile: Profile, entry: PodEntry, best: Ints, relative: bool
    ) -> int:
        """Returns the best row that the pod fits on together with the pods of its priority or above
        that are nominated there.

        Only rows that would be chosen are tried. Refusing one changes no other row's score, unless
        scores are normalised over the feasible rows (`relative`): then the reference cycle decides.
        """
        state, shape = self._state, entry.shape
        nominated = state.row_of(entry.pod.status.nominated_node_name)
        self._last, self._last_by_cells = best, None
        if nominated >= 0 and best[nominated] >= 0 and self._has_room(profile, entry, nominated):
            return nominated
        if relative:
            verdict = reference.judge(profile, state, shape, entry.pod)
            feasible = verdict.feasible
            parts = reference.scores(profile, state, shape, entry.pod, feasible)
            total = reference.total_score(parts, len(feasible))
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
        """Returns whether a feasible row has room for the pod in addition to the pods nominated
        there."""
        state = self._state
        pods = reference.nominated_pods_on(
            state, state.node_names[row], entry.pod.priority, entry.uid
        )
        return not pods or (
            reference.find_refusal(profile, state, entry.shape, entry.pod, row, pods) is None
        )

    # Negotiation

    def negotiate(
        self,
        profile: Profile,
        entry: PodEntry,
        row: int,
        is_of_tree: bool = False,
        may_select: bool = False,
        topology_keys: Sequence[str] = (),
    ) -> tuple[Plugin, Wait] | None:
        """Returns what other components have to accept before the pod is bound to the row that was
        chosen last (-1: no row), and the plugin that requires it; None if no plugin requires
        anything. `is_of_tree`: the row was chosen together with rows for other pods; `may_select`:
        all of these pods are ready; `topology_keys`: see `negotiate_at`."""
        for plugin in profile.plugins_for(entry.shape).negotiating:
            best = self._with_room(profile, entry) if row >= 0 else None
            tie = pod_hash(self._seed, entry.uid)
            found = _FeasibleRows(
                best, row, self._state, tie, is_of_tree, may_select, topology_keys
            )
            wait = plugin.negotiate(entry.pod, entry.shape, self._state, found)
            if wait is not None:
                return plugin, wait
        return None

    def negotiate_at(
        self,
        profile: Profile,
        entry: PodEntry,
        row: int,
        may_select: bool,
        topology_keys: Sequence[str] = (),
    ) -> tuple[Plugin, Wait] | None:
        """Does the same as `negotiate` for a row that was chosen for the pod together with other
        pods, with which it shares the values of these keys."""
        self._last = self.scores_of(profile, entry)
        return self.negotiate(profile, entry, row, True, may_select, topology_keys)

    def _with_room(self, profile: Profile, entry: PodEntry) -> Ints:
        """Returns the last scores without rows that are full with the pods nominated there:
        `choose` has checked only rows that it would have chosen."""
        assert self._last is not None
        full = self._nominated_room.full_rows(profile, entry, self._last)
        if not full:
            return self._last
        best = self._last.copy()
        best[full] = INFEASIBLE
        return best

    # Failures

    def fail(
        self,
        profile: Profile,
        entry: PodEntry,
        extended: Mapping[str, Rejection] | None = None,
        victims: Collection[str] = (),
    ) -> tuple[Diagnosis, PostFilterResult]:
        """Returns why the pod fits on no node, and the result of the PostFilter plugins.
        `extended`: nodes that extenders refused; `victims`: uids of pods that were evicted for it.

        Equal pods share one answer while the cluster does not change.
        """
        state, pod = self._state, entry.pod
        about_pods = any(
            p.is_relevant(entry.shape)
            and (p in profile.pod_pre_filters or p.filter_pod(pod, entry.shape, state) is not None)
            for p in (*profile.pod_pre_filters, *profile.pod_filters)
        )
        # Labels, terms about other pods and nominations are not part of the shape.
        nominated = state.nominated_pods or pod.status.nominated_node_name
        is_shared = not (about_pods or nominated or extended or victims)
        key = (
            profile.scheduler_name, entry.shape.serial, pod.priority, pod.spec.preemption_policy
        )  # fmt: skip
        position = (
            state.usage_log.position, state.node_log.position, state.budgets.generation,
            profile.generation(entry.shape, state),
        )  # fmt: skip
        known = self._failures.get(key)
        if is_shared and known is not None and known[0] == position:
            return known[1], known[2]
        if is_shared:
            verdict = self._verdicts.get(profile, entry.shape, pod)
        else:
            verdict = reference.judge(profile, state, entry.shape, pod)
        if extended:
            verdict.extend({state.row_of(name): why for name, why in extended.items()})
        names = state.node_names if self.keeps_details else None
        diagnosis = verdict.diagnosis(state.node_count, names)
        result = self._post_filter_result(profile, entry, verdict, victims)
        if is_shared and not result.victims and not result.patches:
            if len(self._failures) >= EvaluationCache.ENTRIES_MAX:
                self._failures.clear()
            self._failures[key] = (position, diagnosis, result)
        return diagnosis, result

    def diagnose(
        self, profile: Profile, entry: PodEntry
    ) -> tuple[Diagnosis | None, PostFilterResult]:
        """Returns why a pod of a group that was refused would not be placed alone either, None
        where it would; and the results of PostFilter plugins except preemption: giving back what
        the pod holds helps the group even then."""
        verdict = reference.judge(profile, self._state, entry.shape, entry.pod)
        fits = bool(verdict.feasible.any())
        if fits and not (entry.shape.has_claims or entry.shape.extended_requests):
            return None, PostFilterResult()
        failure = self._evaluator.failure(profile, entry, verdict)
        results = [
            plugin.post_filter(failure)
            for plugin in profile.post_filters
            if not plugin.is_preemption
        ]
        patches = tuple(patch for result in results for patch in result.patches)
        message = ", ".join(result.message for result in results if result.message)
        names = self._state.node_names if self.keeps_details else None
        diagnosis = None if fits else verdict.diagnosis(self._state.node_count, names)
        return diagnosis, PostFilterResult(message, patches=patches, retry_at_ns=earliest(results))

    def candidates(self, profile: Profile, entry: PodEntry) -> "Search":
        """Returns the search for nodes on which evictions would make the pod fit."""
        verdict = reference.judge(profile, self._state, entry.shape, entry.pod)
        return self._evaluator.failure(profile, entry, verdict)

    def _post_filter_result(
        self,
        profile: Profile,
        entry: PodEntry,
        verdict: reference.Verdict,
        victims: Collection[str],
    ) -> PostFilterResult:
        """Runs the PostFilter plugins (framework/runtime RunPostFilterPlugins)."""
        if not self._state.node_count or not profile.post_filters:
            return PostFilterResult(nominated_node_name="")
        failure = self._evaluator.failure(profile, entry, verdict, victims)
        messages = []
        patches: tuple[PatchObject | DeleteObject, ...] = ()
        nominate = None
        results = []
        for plugin in profile.post_filters:
            result = plugin.post_filter(failure)
            if result == PostFilterResult():
                continue
            results.append(result)
            patches += result.patches
            if not result.message:
                return msgspec.structs.replace(result, patches=patches)
            messages.append(result.message)
            nominate = (
                nominate if result.nominated_node_name is None else result.nominated_node_name
            )
        return PostFilterResult(
            ", ".join(messages), nominate, patches=patches, retry_at_ns=earliest(results)
        )


class _FeasibleRows:
    """The feasible rows of an attempt; see framework.negotiation."""

    def __init__(
        self,
        best: Ints | None,
        row: int,
        state: ClusterState,
        pod: int,
        is_of_tree: bool = False,
        may_select: bool = False,
        topology_keys: Sequence[str] = (),
    ) -> None:
        self.chosen_row = row
        self._topology_keys = topology_keys
        self.is_of_tree = is_of_tree
        self.may_select = may_select
        self._best = best
        self._row = row
        self._state = state
        self._pod = pod

    @property
    def has_rows(self) -> bool:
        """Whether there is a feasible row."""
        return self._best is not None

    @property
    def count(self) -> int:
        """The number of feasible rows."""
        return 0 if self._best is None else int(np.count_nonzero(self._best >= 0))

    def domain_rows(self) -> Bools | None:
        """Returns the rows that share the chosen row's values of the topology keys."""
        state = self._state
        if not self._topology_keys or self.chosen_row < 0:
            return None
        found = np.ones(state.row_limit, np.bool_)
        for key in self._topology_keys:
            codes = state.labels.codes(key, state.all_rows)
            found &= codes == codes[self.chosen_row]
        return found

    def ranked_rows(self, among: Ints | None = None) -> list[int]:
        """Returns the feasible rows, the best first, equal ones in the order of ties."""
        best = self._best
        if best is None:
            return []
        rows = np.flatnonzero(best >= 0) if among is None else among[best[among] >= 0]
        ordered = self._state.tie_breaker.rank(rows, best[rows], self._pod)
        # The chosen row comes first, whether for its score or for a nomination there.
        if self._row in ordered:
            ordered.remove(self._row)
            ordered.insert(0, self._row)
        return ordered
