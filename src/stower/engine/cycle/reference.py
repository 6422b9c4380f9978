"""The scheduling cycle without caches: every plugin over every row.

The oracle of every cache (the property tests compare them), and what runs where a cache would not
pay: the diagnosis of pods that fit nowhere, nominated pods, explanation. Must not know writes, the
queue or time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

import numpy as np

from stower.framework.plugin import MAX_NODE_SCORE, Normalize, Plugin, Scope
from stower.framework.profile import Profile
from stower.framework.reasons import Diagnosis, Rejection, RejectionCount
from stower.model.kinds import Pod
from stower.state.arrays import Bools, Ints, distinct
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape

# In `refused_by`, in addition to indices into the profile's filters.
FEASIBLE = -1
PRE_FILTER = -2
ABSENT = -3
EXTENDER = -4
# The plugin name under which extenders refuse (framework.ExtenderName).
EXTENDERS = "Extender"
EXAMPLES = 3


class Verdict:
    """The feasible rows of a pod, and which plugin refused each other row.

    refused_by: int64[row_limit], an index into profile.filters, FEASIBLE, PRE_FILTER, EXTENDER or
    ABSENT; codes: int64[row_limit], the refusing plugin's code. `pre_filter` is set where a plugin
    refused the pod as a whole; `restricted_by` names the plugins that left only some nodes.
    """

    def __init__(self, profile: Profile, shape: Shape, count: int) -> None:
        self.profile = profile
        self.shape = shape
        self.refused_by: Ints = np.full(count, FEASIBLE, np.int64)
        self.codes: Ints = np.zeros(count, np.int64)
        self.pre_filter: tuple[Plugin, Rejection] | None = None
        self.restricted_by: tuple[str, ...] = ()
        # Codes of each filter by its index, for all rows; nominated pods are not counted.
        self.answers: dict[int, Ints | None] = {}
        self._own: set[int] = set()  # indices of answers that may be written to
        self._extended: dict[int, Rejection] = {}
        self._refusals: dict[tuple[int, int], Bools] | None = None

    @property
    def feasible(self) -> Bools:
        """bool[row_limit]; no row where the pod was refused as a whole."""
        free: Bools = self.refused_by == FEASIBLE
        return free if self.pre_filter is None else free & False

    def extend(self, refused: Mapping[int, Rejection]) -> None:
        """Adds the rows that extenders refused."""
        for row, why in refused.items():
            if row >= 0 and self.refused_by[row] == FEASIBLE:
                self.refused_by[row] = EXTENDER
                self._extended[row] = why

    def refusals(self) -> dict[tuple[int, int], Bools]:
        """Returns bool[row_limit], the refused rows, by filter index or PRE_FILTER and code."""
        if self._refusals is not None:
            return self._refusals
        found = self._refusals = {}
        present = np.bincount(self.refused_by - EXTENDER)
        for i in (np.flatnonzero(present) + EXTENDER).tolist():
            if i in (EXTENDER, ABSENT, FEASIBLE):
                continue
            rows = self.refused_by == i
            codes = self.codes[rows]
            if (codes == codes[0]).all():
                found[i, int(codes[0])] = rows
                continue
            for code in distinct(codes).tolist():
                found[i, code] = rows & (self.codes == code)
        return found

    def refresh(self, state: ClusterState, rows: Iterable[int]) -> None:
        """Updates rows on which pods came or went. Only for verdicts that count no nominated pods
        and have no answer of a plugin of scope PODS."""
        checks: list[tuple[int, Callable[[int], int], Ints | None]] = []
        for i, plugin in enumerate(self.profile.filters):
            answer = self.answers[i]
            if plugin.scope is Scope.USAGE:
                check = plugin.filter_row(self.shape, state)
                if check is None:
                    continue
                if answer is None or i not in self._own:
                    self._own.add(i)
                    answer = np.zeros_like(self.codes) if answer is None else answer.copy()
                    self.answers[i] = answer
                checks.append((i, check, answer))
            elif answer is not None:
                checks.append((i, answer.item, None))
        refusals = self.refusals()
        for row in rows:
            was = int(self.refused_by[row]), int(self.codes[row])
            if was[0] in (ABSENT, PRE_FILTER):
                continue
            now = FEASIBLE, 0
            for i, check, answer in checks:
                code = check(row)
                if answer is not None:
                    answer[row] = code
                if code and now[0] == FEASIBLE:
                    now = i, code
            if now != was:
                self.refused_by[row], self.codes[row] = now
                if was in refusals:
                    refusals[was][row] = False
                    if not refusals[was].any():
                        del refusals[was]
                if now[0] != FEASIBLE:
                    if now not in refusals:
                        refusals[now] = np.zeros(len(self.codes), np.bool_)
                    refusals[now][row] = True

    def resolvable(self) -> Bools:
        """Returns bool[row_limit]: refused rows that evictions may make feasible."""
        if self.pre_filter is not None:
            there: Bools = self.refused_by != ABSENT
            return there & self.pre_filter[1].may_evict
        result = np.zeros(len(self.refused_by), np.bool_)
        for (i, code), rows in self.refusals().items():
            if i >= 0 and self.profile.filters[i].rejection(self.shape, code).may_evict:
                result |= rows
        return result

    def rejection(self, row: int) -> tuple[str, Rejection] | None:
        """Returns the plugin that refused the row ("" for PreFilter's node names) and its
        rejection; None where the row is feasible."""
        refused_by = int(self.refused_by[row])
        if refused_by == PRE_FILTER:
            return "", self._pre_filter_rejection()
        if refused_by == EXTENDER:
            return EXTENDERS, self._extended[row]
        if refused_by < 0:
            return None
        plugin = self.profile.filters[refused_by]
        return plugin.name, plugin.rejection(self.shape, int(self.codes[row]))

    def diagnosis(self, node_count: int, names: Sequence[str] | None = None) -> Diagnosis:
        """Returns the refusals, counted; with example nodes where `names` of rows are given."""
        if self.pre_filter is not None:
            plugin, rejection = self.pre_filter
            refused = RejectionCount(plugin.name, rejection, node_count)
            return Diagnosis(node_count, (), refused, frozenset((plugin.name,)))
        entries, examples = [], []
        plugins = set(self.restricted_by)
        for (refused_by, code), rows in sorted(self.refusals().items(), key=itemgetter(0)):
            count = int(np.count_nonzero(rows))
            if refused_by == PRE_FILTER:
                entries.append(RejectionCount("", self._pre_filter_rejection(), count))
            else:
                plugin = self.profile.filters[refused_by]
                plugins.add(plugin.name)
                entries.append(
                    RejectionCount(plugin.name, plugin.rejection(self.shape, code), count)
                )
            if names is not None:
                some = np.flatnonzero(rows)[:EXAMPLES].tolist()
                examples.append(tuple(names[row] for row in some))
        for row in sorted(self._extended):
            plugins.add(EXTENDERS)
            entries.append(RejectionCount(EXTENDERS, self._extended[row], 1))
            if names is not None:
                examples.append((names[row],))
        return Diagnosis(node_count, tuple(entries), None, frozenset(plugins), tuple(examples))

    def _pre_filter_rejection(self) -> Rejection:
        names = " ".join(sorted(self.restricted_by))
        return Rejection((f"node(s) didn't satisfy plugin(s) [{names}]",))


def judge(profile: Profile, state: ClusterState, shape: Shape, pod: Pod) -> Verdict:
    """Filters all rows for a pod of this shape. Pods of its priority or above that are nominated to
    a row count as placed there (RunFilterPluginsWithNominatedPods)."""
    state.refresh_images()
    verdict = Verdict(profile, shape, state.row_limit)
    np.copyto(verdict.refused_by, ABSENT, where=~state.present[state.all_rows])
    if not state.node_count:
        return verdict  # upstream returns before it runs any plugin
    allowed = pre_filter(verdict, state, pod)
    if verdict.pre_filter is not None:
        return verdict
    if allowed is not None:
        outside = verdict.refused_by == FEASIBLE
        outside[state.rows_of(allowed)] = False
        verdict.refused_by[outside] = PRE_FILTER
    for i, plugin in enumerate(profile.filters):
        codes = verdict.answers[i] = filter_codes(plugin, pod, shape, state, state.all_rows)
        if codes is not None:
            hit = (codes != 0) & (verdict.refused_by == FEASIBLE)
            np.copyto(verdict.refused_by, i, where=hit)
            np.copyto(verdict.codes, codes, where=hit)
    for name in sorted(state.nominated_pods):
        row = state.row_of(name)
        pods = nominated_pods_on(state, name, pod.priority, pod.metadata.uid)
        if row >= 0 and pods and verdict.refused_by[row] not in (ABSENT, PRE_FILTER):
            refused = find_refusal(profile, state, shape, pod, row, pods)
            if refused is not None:
                verdict.refused_by[row], verdict.codes[row] = refused
    return verdict


def filter_codes(
    plugin: Plugin, pod: Pod, shape: Shape, state: ClusterState, rows: slice
) -> Ints | None:
    """Returns a filter's codes for these rows, whatever its scope; None where all pass."""
    if plugin.scope is not Scope.PODS:
        return plugin.filter(shape, state, rows)
    if not plugin.is_relevant(shape):
        return None
    codes = plugin.filter_pod(pod, shape, state)
    return None if codes is None else codes[rows]


def pre_filter(
    verdict: Verdict, state: ClusterState, pod: Pod | None = None
) -> frozenset[str] | None:
    """Runs PreFilter into the verdict. Returns the names of the nodes left, None for all.

    Without a pod, only plugins run whose answer depends on the shape.
    """
    allowed: frozenset[str] | None = None
    profile = verdict.profile
    answer: Rejection | frozenset[str] | None
    for plugin in profile.shape_pre_filters if pod is None else profile.pre_filters:
        if plugin.scope is Scope.PODS and pod is not None:
            if not plugin.is_relevant(verdict.shape):
                continue
            answer = plugin.pre_filter_pod(pod, verdict.shape, state)
        else:
            answer = plugin.pre_filter(verdict.shape, state)
        if isinstance(answer, Rejection):
            verdict.pre_filter = (plugin, answer)
            return None
        if answer is not None:
            allowed = answer if allowed is None else allowed & answer
            verdict.restricted_by = (*verdict.restricted_by, plugin.name)
            if not allowed:
                names = " ".join(sorted(verdict.restricted_by))
                text = f"node(s) didn't satisfy plugin(s) [{names}] simultaneously"
                if len(verdict.restricted_by) == 1:
                    text = f"node(s) didn't satisfy plugin {names}"
                verdict.pre_filter = (plugin, Rejection((text,)))
                return None
    return allowed


def nominated_pods_on(state: ClusterState, name: str, priority: int, uid: str) -> list[PodEntry]:
    """Returns the other pods of this priority or above that are nominated to this node."""
    nominated = state.nominated_pods.get(name)
    if not nominated:
        return []
    return [
        entry
        for _, entry in sorted(nominated.items())
        if entry.uid != uid and entry.row < 0 and entry.pod.priority >= priority
    ]


def find_refusal(
    profile: Profile,
    state: ClusterState,
    shape: Shape,
    pod: Pod,
    row: int,
    pods: list[PodEntry],
) -> tuple[int, int] | None:
    """Returns the (filter index, code) that refuses the row once these pods are on it, None where
    all filters pass. A feasible row passes with the nominated pods and without them."""
    for i, plugin in enumerate(profile.filters):
        runs = plugin.dry_runs(pod, shape, state) if plugin.is_relevant(shape) else None
        if runs is None:
            codes = filter_codes(plugin, pod, shape, state, slice(row, row + 1))
            code = 0 if codes is None else int(codes[0])
        else:
            run = runs(row)
            for entry in pods:
                run.add(entry)
            code = run.code()
        if code:
            return i, code
    return None


def scores(
    profile: Profile, state: ClusterState, shape: Shape, pod: Pod, feasible: Bools
) -> dict[str, Ints]:
    """Returns int64[row_limit] per score plugin, normalised and weighted; only feasible rows are
    meaningful. A plugin that scores all rows 0 is left out, unless its scores are reversed."""
    result = {}
    for plugin, weight in profile.scores:
        if plugin.scope is Scope.PODS:
            if not plugin.is_relevant(shape):
                continue
            part = plugin.score_pod(pod, shape, state, feasible)
            if part is not None:
                result[plugin.name] = part * weight
            continue
        raw = plugin.score(shape, state, state.all_rows)
        if raw is not None or plugin.normalize is Normalize.BY_MAXIMUM_REVERSED:
            if raw is None:
                raw = np.zeros(len(feasible), np.int64)
            result[plugin.name] = normalize(raw, feasible, plugin.normalize) * weight
    return result


def normalize(raw: Ints, feasible: Bools, how: Normalize) -> Ints:
    """Returns raw scores as 0 to 100, relative to the highest among the feasible rows."""
    if how is Normalize.NONE:
        return raw
    highest = int(raw[feasible].max(initial=0))
    if highest == 0:
        reverse = how is Normalize.BY_MAXIMUM_REVERSED
        return np.full(len(raw), MAX_NODE_SCORE if reverse else 0, np.int64)
    share: Ints = MAX_NODE_SCORE * raw // highest
    return MAX_NODE_SCORE - share if how is Normalize.BY_MAXIMUM_REVERSED else share


def total_score(parts: dict[str, Ints], count: int) -> Ints:
    """Returns int64[count]: the sum of all plugins' scores."""
    result = np.zeros(count, np.int64)
    for part in parts.values():
        result += part
    return result
