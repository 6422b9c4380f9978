"""InterPodAffinity: near some pods, away from others, as both the pod and those there want it.

Source: kube-scheduler plugins/interpodaffinity; KEP-2249 (namespaceSelector). matchLabelKeys and
mismatchLabelKeys (KEP-3633) are merged into the selector by the API server.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import and_
from typing import Any, Final

import msgspec
import numpy as np

from stower.framework.args import Args, convert_args, invalid
from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.dry_run import DryRun
from stower.framework.fixes import (
    NODE_FIELD,
    Fix,
    format_pods,
    format_requirement,
    with_labels,
    with_spec,
)
from stower.framework.plugin import MAX_NODE_SCORE, Features, Plugin, Scope
from stower.framework.reasons import Rejection
from stower.model.kinds import Pod
from stower.model.kinds.pod import PodAffinity, PodAffinityTerm
from stower.plugins.bounds import TERMS_MAX, check_count
from stower.state.arrays import Bools, Ints
from stower.state.carried_terms import CarriedTerm, TermKind, namespaces_of
from stower.state.cluster import ClusterState
from stower.state.matcher import Matcher
from stower.state.pod_entry import PodEntry
from stower.state.pod_selectors import PodSelectors
from stower.state.row_counts import RowCounts
from stower.state.shapes import Shape
from stower.state.tallies import Condition, meets

AFFINITY_NOT_MATCHED: Final = 1
ANTI_AFFINITY_NOT_MATCHED: Final = 2
EXISTING_ANTI_AFFINITY_NOT_MATCHED: Final = 3
WEIGHT_MAX: Final = 100
TERMS_NOUN: Final = "terms about other pods"


class InterPodAffinityArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class InterPodAffinity(Plugin):
    """Refuse nodes whose domains have the wrong pods, or not the right ones; score by the rest.

    What pods are where is in tallies, and what the pods there want in state.carried; both know
    their sums per domain, so that each term costs one look-up per node.
    """

    name = "InterPodAffinity"
    scope = Scope.PODS
    events_to_register = (
        Change.NODE_ADDED | Change.NODE_LABELS | Change.PLACED_POD_ADDED
        | Change.PLACED_POD_DELETED | Change.PLACED_POD_LABELS | Change.OWN_LABELS
    )  # fmt: skip

    def __init__(self, hard_weight: int = 1, ignore_preferred_terms: bool = False) -> None:
        """`hard_weight` of what pods there require; `ignores_preferred`: what they prefer does not
        count for a pod that prefers nothing itself."""
        self.hard_weight = hard_weight
        self.ignore_preferred_terms = ignore_preferred_terms

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "InterPodAffinity":
        """InterPodAffinityArgs: hardPodAffinityWeight, ignorePreferredTermsOfExistingPods."""
        read = convert_args(args, InterPodAffinityArgs, path)
        if not 0 <= read.hard_pod_affinity_weight <= WEIGHT_MAX:
            at, weight = f"{path}.hardPodAffinityWeight", read.hard_pod_affinity_weight
            raise invalid(at, weight, f"not in valid range [0, {WEIGHT_MAX}]")
        return cls(read.hard_pod_affinity_weight, read.ignore_preferred_terms_of_existing_pods)

    def is_relevant_to_pod(self, pod: Pod, state: ClusterState) -> bool:
        """Returns whether the pod, or a placed pod, has affinity terms."""
        return pod.spec.affinity is not None or bool(state.carried_terms.terms)

    # Filter

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """1 where required pods are not near, 2 where avoided ones are, 3 where it is avoided."""
        if pod.spec.affinity is None and not state.carried_terms.terms:
            return None
        affinity_terms, anti_affinity_terms = _required_terms(pod)
        excluded_rows = self._existing_anti_affinity_rows(pod, state)
        if not affinity_terms and not anti_affinity_terms and excluded_rows is None:
            return None
        codes = np.zeros(state.row_limit, np.int64)
        # The first reason is the one that is told: it is written last.
        if excluded_rows is not None:
            np.copyto(codes, EXISTING_ANTI_AFFINITY_NOT_MATCHED, where=excluded_rows)
        for term in anti_affinity_terms:
            tally = state.tally(condition(term, pod, state.pod_selectors))
            np.copyto(
                codes,
                ANTI_AFFINITY_NOT_MATCHED,
                where=_rows_with_matching_pods(tally, term.topology_key, state),
            )
        if affinity_terms:
            np.copyto(
                codes, AFFINITY_NOT_MATCHED, where=~self._affinity_rows(pod, state, affinity_terms)
            )
        return codes

    def _affinity_rows(
        self, pod: Pod, state: ClusterState, terms: tuple[PodAffinityTerm, ...]
    ) -> Bools:
        """bool[row_limit]: nodes with all keys in whose domains are pods that all terms take."""
        conditions = tuple(condition(term, pod, state.pod_selectors) for term in terms)
        tally = state.tally(*conditions)
        found = [_rows_with_matching_pods(tally, term.topology_key, state) for term in terms]
        if not any(rows.any() for rows in found) and meets(pod, conditions):
            # The first of a series that want to be together.
            codes = (state.labels.codes(term.topology_key, state.all_rows) for term in terms)
            return reduce(and_, (values > 0 for values in codes))
        return reduce(and_, found)

    def _existing_anti_affinity_rows(self, pod: Pod, state: ClusterState) -> Bools | None:
        """bool[row_limit]: nodes in domains of pods that avoid this one; None: there are none."""
        if not state.carried_terms.terms:
            return None
        found: Bools | None = None
        labels = state.pod_selectors.labels_of(pod.metadata.namespace)
        for term in state.carried_terms.terms_matching(pod, labels):
            if term.kind is not TermKind.REQUIRED_ANTI_AFFINITY or not term.users:
                continue
            hit = _rows_with_matching_pods(term, term.topology_key, state)
            found = hit if found is None else found | hit
        return found

    def is_permanent(self, codes: Ints) -> Bools:
        """Company may come."""
        return codes > AFFINITY_NOT_MATCHED

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """Only pods that are avoided can be made to leave."""
        if code == AFFINITY_NOT_MATCHED:
            return Rejection(("node(s) didn't match pod affinity rules",))
        if code == ANTI_AFFINITY_NOT_MATCHED:
            return Rejection(("node(s) didn't match pod anti-affinity rules",), True)
        return Rejection(("node(s) didn't satisfy existing pods anti-affinity rules",), True)

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Pods that are in the way leave; the pod does without company that is not there."""
        affinity_terms, anti_affinity_terms = _required_terms(pod)
        if affinity_terms and not self._affinity_rows(pod, state, affinity_terms)[row]:
            yield self._affinity_fix(pod, state, row, affinity_terms)
            return
        for term in anti_affinity_terms:
            asked = condition(term, pod, state.pod_selectors)
            found = tuple(
                e for e in _pods_in_domain(state, term.topology_key, row) if meets(e.pod, (asked,))
            )
            if found:
                selector = _describe_selector(term)
                text = f"{format_pods(found)} with {selector} near {NODE_FIELD} (podAntiAffinity)"
                yield Fix(text, 1.0 + len(found), removed_pods=found)
                text = f"the podAntiAffinity wants nobody with {selector} near {NODE_FIELD}"
                yield Fix(f"{text}: {format_pods(found)} are", 3.0, pod=_remove_terms(pod, [term]))
                return
        labels = state.pod_selectors.labels_of(pod.metadata.namespace)
        keys = {
            t.topology_key
            for t in state.carried_terms.terms_matching(pod, labels)
            if t.kind is TermKind.REQUIRED_ANTI_AFFINITY
        }
        found = tuple(
            {
                entry.uid: entry
                for key in sorted(keys)
                for entry in _pods_in_domain(state, key, row)
                if any(
                    t.topology_key == key
                    and meets(pod, (condition(t, entry.pod, state.pod_selectors),))
                    for t in _required_terms(entry.pod)[1]
                )
            }.values()
        )
        if found:
            pods = format_pods(found)
            text = f"{pods} near {NODE_FIELD} will not have the pod (its podAntiAffinity)"
            yield Fix(text, 1.0 + len(found), removed_pods=found)

    def _affinity_fix(
        self, pod: Pod, state: ClusterState, row: int, affinity_terms: tuple[PodAffinityTerm, ...]
    ) -> Fix:
        """For a pod whose company is not there."""
        node = state.node_at(row)
        labels = node.metadata.labels or {}
        lacking = [term.topology_key for term in affinity_terms if term.topology_key not in labels]
        conditions = tuple(condition(term, pod, state.pod_selectors) for term in affinity_terms)
        anybody = state.tally(*conditions).counts[state.all_rows].any()
        if lacking and not anybody and meets(pod, conditions):
            # The first of a series that want to be together: any node will do that has the keys.
            more = with_labels(node, {**labels, **dict.fromkeys(lacking, "a")})
            return Fix(
                f"{NODE_FIELD} lacks the label {', '.join(lacking)}", float(len(lacking)), node=more
            )
        missed = [t for t in affinity_terms if not self._affinity_rows(pod, state, (t,))[row]]
        if not missed:  # each is there, but not in one and the same pod
            for i, term in enumerate(affinity_terms):
                if self._affinity_rows(pod, state, (*affinity_terms[:i], *affinity_terms[i + 1 :]))[
                    row
                ]:
                    missed = [term]
                    break
        missed = missed or [*affinity_terms]
        company = ", ".join(f"{_describe_selector(t)} by {t.topology_key}" for t in missed)
        text = f"no pod with {company} is near {NODE_FIELD}, as the podAffinity wants"
        return Fix(text, 1.0 + len(missed), pod=_remove_terms(pod, missed))

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Who is in a row's domains."""
        if pod.spec.affinity is None and not state.carried_terms.terms:
            return None
        affinity_terms, anti_affinity_terms = _required_terms(pod)
        terms = state.carried_terms.terms_matching(
            pod, state.pod_selectors.labels_of(pod.metadata.namespace)
        )
        existing_anti_affinity_counts = _counts_by_key(
            (term.topology_key, term.domain_counts(term.topology_key))
            for term in terms
            if term.kind is TermKind.REQUIRED_ANTI_AFFINITY
            and term.domain_counts(term.topology_key).any()
        )
        if not affinity_terms and not anti_affinity_terms and not existing_anti_affinity_counts:
            return None
        return _PreFilterState(
            pod, state, affinity_terms, anti_affinity_terms, existing_anti_affinity_counts
        ).dry_run

    # Score

    def has_scores(self, pod: Pod, state: ClusterState) -> bool:
        """Where somebody wants or is wanted."""
        return bool(state.carried_terms.terms) or pod.spec.affinity is not None

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """Weights of the terms that are met, the pod's and those of the pods there."""
        own = list(_preferred_terms(pod))
        check_count(len(own), TERMS_MAX, TERMS_NOUN)
        if self.ignore_preferred_terms and not own:
            return None
        points = _TopologyScores(state)
        for term, weight in own:
            tally = state.tally(condition(term, pod, state.pod_selectors))
            points.add(tally, weight, term.topology_key)
        if state.carried_terms.terms:
            labels = state.pod_selectors.labels_of(pod.metadata.namespace)
            for carried in state.carried_terms.terms_matching(pod, labels):
                if not carried.users or carried.kind is TermKind.REQUIRED_ANTI_AFFINITY:
                    continue
                weight = self.hard_weight if carried.kind is TermKind.REQUIRED_AFFINITY else 1
                points.add(carried, weight, carried.topology_key)
        total = points.total()
        if total is None:
            return None
        among = total if feasible.all() else total[feasible]
        if not len(among):
            return None
        lowest = int(among.min())
        span = int(among.max()) - lowest
        if not span:
            return np.zeros(state.row_limit, np.int64)
        return points.normalize(total, lowest, span)

    # Hints

    def hint_pod(self, pod: Pod, shape: Shape, event: ClusterEvent) -> bool:
        """Nodes that come to or leave a domain, pods that are wanted or no longer avoided."""
        affinity_terms, anti_affinity_terms = _required_terms(pod)
        node = event.node
        if node is not None:
            labels = node.metadata.labels or {}
            if event.old_node is None:
                # Without terms of its own it is some other pod that keeps it off.
                return (
                    not affinity_terms
                    or bool(anti_affinity_terms)
                    or any(t.topology_key in labels for t in affinity_terms)
                )
            before = event.old_node.metadata.labels or {}
            came = (t.topology_key in labels and labels[t.topology_key] != before.get(
                t.topology_key) for t in affinity_terms)  # fmt: skip
            left = (t.topology_key in before and labels.get(t.topology_key) != before[
                t.topology_key] for t in anti_affinity_terms)  # fmt: skip
            return any(came) or any(left)
        if event.change & Change.OWN_LABELS:
            return True
        old, new = event.old_pod, event.pod
        if affinity_terms and new is not None and _all_may_match(affinity_terms, pod, new):
            if old is None or not _all_may_match(affinity_terms, pod, old):
                return True
        if old is None:
            return False
        # One of several terms may be all that keeps it off; upstream asks for all of them.
        if any(
            _may_match(t, pod, old) and (new is None or not _may_match(t, pod, new))
            for t in anti_affinity_terms
        ):
            return True
        return new is None and any(_may_match(t, old, pod) for t in _required_terms(old)[1])


def condition(term: PodAffinityTerm, pod: Pod, related: PodSelectors) -> Condition:
    """Whom a term of the pod is about, namespaces of its selector by name."""
    namespaces = namespaces_of(term, pod.metadata.namespace)
    selector = term.namespace_selector
    if selector is None:
        return namespaces, term.label_selector
    if not selector.match_labels and not selector.match_expressions:
        return None, term.label_selector
    return namespaces | related.matching_namespaces(selector), term.label_selector


def _required_terms(pod: Pod) -> tuple[tuple[PodAffinityTerm, ...], tuple[PodAffinityTerm, ...]]:
    affinity = pod.spec.affinity
    if affinity is None:
        return (), ()

    def required_terms(part: PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
        return (part.required if part is not None else None) or ()

    affinity_terms, anti_affinity_terms = (
        required_terms(affinity.pod_affinity),
        required_terms(affinity.pod_anti_affinity),
    )
    check_count(len(affinity_terms) + len(anti_affinity_terms), TERMS_MAX, TERMS_NOUN)
    return affinity_terms, anti_affinity_terms


def _pods_in_domain(state: ClusterState, key: str, row: int) -> list[PodEntry]:
    """The pods of all nodes in the row's domain."""
    codes = state.labels.codes(key, state.all_rows)
    rows = np.flatnonzero((codes == codes[row]) & (codes > 0)).tolist()
    return [entry for each in rows for entry in state.pods_on(each)]


def _remove_terms(pod: Pod, terms: list[PodAffinityTerm]) -> Pod:
    """The pod without these required terms."""
    affinity = pod.spec.affinity
    assert affinity is not None

    def remove_from(part: PodAffinity | None) -> PodAffinity | None:
        if part is None:
            return None
        kept = tuple(term for term in part.required or () if term not in terms)
        return msgspec.structs.replace(part, required=kept or None)

    return with_spec(
        pod,
        affinity=msgspec.structs.replace(
            affinity,
            pod_affinity=remove_from(affinity.pod_affinity),
            pod_anti_affinity=remove_from(affinity.pod_anti_affinity),
        ),
    )


def _describe_selector(term: PodAffinityTerm) -> str:
    """Its selector in words."""
    selector = term.label_selector
    if selector is None:
        return "no labels at all"
    pairs = [f"{k}={v}" for k, v in sorted((selector.match_labels or {}).items())]
    pairs += map(format_requirement, selector.match_expressions or ())
    return " and ".join(pairs) or "any labels"


def _preferred_terms(pod: Pod) -> Iterable[tuple[PodAffinityTerm, int]]:
    affinity = pod.spec.affinity
    if affinity is None:
        return
    for part, sign in ((affinity.pod_affinity, 1), (affinity.pod_anti_affinity, -1)):
        for weighted in (part.preferred if part is not None else None) or ():
            yield weighted.pod_affinity_term, sign * weighted.weight


def _rows_with_matching_pods(counts: RowCounts, key: str, state: ClusterState) -> Bools:
    """bool[row_limit]: nodes in domains of the key in which somebody is counted."""
    rows = state.all_rows
    if state.labels.is_unique_per_node(key, state.node_count):
        return (counts.counts[rows] > 0) & state.present[rows]
    found: Bools = counts.domain_counts(key) > 0
    return found[state.labels.codes(key, rows)]


class _TopologyScores:
    """What terms give to nodes: for each domain of a key, or at once for each row."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._domain_scores: dict[str, Ints] = {}
        self._row_scores: Ints | None = None

    def add(self, counts: RowCounts, weight: int, key: str) -> None:
        """A term's points, if some domain has some."""
        if not weight:
            return
        state = self._state
        of_node = state.labels.is_unique_per_node(key, state.node_count)
        sums = counts.counts[state.all_rows] if of_node else counts.domain_counts(key)
        if not sums.any():
            return
        part = sums if weight == 1 else sums * weight
        known = self._row_scores if of_node else self._domain_scores.get(key)
        part = part if known is None else known + part
        if of_node:
            self._row_scores = part
        else:
            self._domain_scores[key] = part

    def total(self) -> Ints | None:
        """int64[row_limit]: the sums; None where there are no points."""
        state, total = self._state, self._row_scores
        for key, table in self._domain_scores.items():
            part = table[state.labels.codes(key, state.all_rows)]
            total = part if total is None else total + part
        return total

    def normalize(self, total: Ints, lowest: int, span: int) -> Ints:
        """int64[row_limit]: the total as 0 to 100."""
        if self._row_scores is None and len(self._domain_scores) == 1:
            # There are fewer domains than rows, as a rule.
            ((key, table),) = self._domain_scores.items()
            return _normalize(table, lowest, span)[
                self._state.labels.codes(key, self._state.all_rows)
            ]
        return _normalize(total, lowest, span)


def _normalize(points: Ints, lowest: int, span: int) -> Ints:
    # In float64 and cut off, as upstream: 100 * (share), not (100 * part) / whole.
    return (MAX_NODE_SCORE * ((points - lowest) / span)).astype(np.int64)


def _may_match(term: PodAffinityTerm, owner: Pod, pod: Pod) -> bool:
    """Whether a term of the owner takes the pod, as far as can be said without namespaces."""
    return (
        (
            term.namespace_selector is not None
            or pod.metadata.namespace in namespaces_of(term, owner.metadata.namespace)
        )
        and term.label_selector is not None
        and term.label_selector.matches(pod.metadata.labels or {})
    )


def _all_may_match(terms: tuple[PodAffinityTerm, ...], owner: Pod, pod: Pod) -> bool:
    return all(_may_match(term, owner, pod) for term in terms)


def _counts_by_key(found: Iterable[tuple[str, Ints]]) -> dict[str, Ints]:
    """Sums of domain counts (int64[value codes]) per key."""
    result: dict[str, Ints] = {}
    for key, counts in found:
        known = result.get(key)
        result[key] = counts if known is None else known + counts
    return result


class _PreFilterState:
    """What a dry run of any row starts from, for one pod."""

    def __init__(
        self,
        pod: Pod,
        state: ClusterState,
        affinity_terms: tuple[PodAffinityTerm, ...],
        anti_affinity_terms: tuple[PodAffinityTerm, ...],
        existing_anti_affinity_counts: dict[str, Ints],
    ) -> None:
        """`avoiding`: by key, how many pods of each domain carry a term that keeps the pod away."""
        self.pod = pod
        self.state = state
        self.affinity_keys = tuple(term.topology_key for term in affinity_terms)
        self.affinity_terms = tuple(
            condition(term, pod, state.pod_selectors) for term in affinity_terms
        )
        self.anti_affinity_terms = tuple(
            (t.topology_key, condition(t, pod, state.pod_selectors)) for t in anti_affinity_terms
        )
        self.existing_anti_affinity_counts = existing_anti_affinity_counts
        self._labels = state.pod_selectors.labels_of(pod.metadata.namespace)
        self._anti_affinity_matches: dict[CarriedTerm, bool] = {}
        tally = state.tally(*self.affinity_terms) if affinity_terms else None
        counts = [(key, state.tally(of)) for key, of in self.anti_affinity_terms]
        # Those on others, by the numbers of their keys, then the one on company.
        self.matcher = Matcher(
            [*(of for _, of in counts), *([tally] if tally is not None else [])], state.tallies
        )
        self.affinity_counts = (
            [] if tally is None else [tally.domain_counts(k) for k in self.affinity_keys]
        )
        # Matching pods on nodes that have one of the keys: whether there is any company at all.
        self.matching_pod_count = sum(int(counts.sum()) for counts in self.affinity_counts)
        self.is_self_matching = bool(affinity_terms) and meets(pod, self.affinity_terms)
        self.anti_affinity_counts = _counts_by_key(
            (key, of.domain_counts(key)) for key, of in counts
        )

    def is_anti_affinity_match(self, term: CarriedTerm) -> bool:
        """Whether the pod must not meet who carries the term."""
        found = self._anti_affinity_matches.get(term)
        if found is None:
            found = term.kind is TermKind.REQUIRED_ANTI_AFFINITY and term.matches(
                self.pod, self._labels
            )
            self._anti_affinity_matches[term] = found
        return found

    def dry_run(self, row: int) -> DryRun:
        """The dry run of one row."""
        return _AffinityDryRun(self, row)


class _AffinityDryRun:
    """One row's domains while pods come and go in thought."""

    def __init__(self, pre_filter_state: _PreFilterState, row: int) -> None:
        self._pre_filter_state = pre_filter_state
        columns = pre_filter_state.state.labels.columns

        def code_of(key: str) -> int:
            column = columns.get(key)
            return 0 if column is None else int(column.codes[row])

        self._values = [code_of(key) for key in pre_filter_state.affinity_keys]
        self._affinity_counts = [
            int(counts[v]) if v else 0
            for counts, v in zip(pre_filter_state.affinity_counts, self._values, strict=True)
        ]
        self._matching_pod_count = pre_filter_state.matching_pod_count
        self._anti_affinity_counts = {
            k: int(c[v])
            for k, c in pre_filter_state.anti_affinity_counts.items()
            if (v := code_of(k))
        }
        self._existing_anti_affinity_counts = {
            k: int(c[v])
            for k, c in pre_filter_state.existing_anti_affinity_counts.items()
            if (v := code_of(k))
        }
        # Keys that only pods to come may bring.
        self._code_of = code_of

    def add(self, entry: PodEntry) -> None:
        self._count(entry.pod, 1)

    def remove(self, entry: PodEntry) -> None:
        self._count(entry.pod, -1)

    def _count(self, other: Pod, delta: int) -> None:
        pre_filter_state = self._pre_filter_state
        for number in pre_filter_state.matcher.matching_conditions(other):
            if number == len(pre_filter_state.anti_affinity_terms):
                for i, value in enumerate(self._values):
                    if value:
                        self._affinity_counts[i] += delta
                        self._matching_pod_count += delta
            elif (
                key := pre_filter_state.anti_affinity_terms[number][0]
            ) in self._anti_affinity_counts:
                self._anti_affinity_counts[key] += delta
        for term in pre_filter_state.state.carried_terms.terms_of(other):
            if pre_filter_state.is_anti_affinity_match(term) and self._code_of(term.topology_key):
                self._existing_anti_affinity_counts[term.topology_key] = (
                    self._existing_anti_affinity_counts.get(term.topology_key, 0) + delta
                )

    def code(self) -> int:
        if self._affinity_counts:
            if not all(self._values):
                return AFFINITY_NOT_MATCHED
            together = self._pre_filter_state.is_self_matching and not self._matching_pod_count
            if not together and min(self._affinity_counts) <= 0:
                return AFFINITY_NOT_MATCHED
        if any(count > 0 for count in self._anti_affinity_counts.values()):
            return ANTI_AFFINITY_NOT_MATCHED
        if any(count > 0 for count in self._existing_anti_affinity_counts.values()):
            return EXISTING_ANTI_AFFINITY_NOT_MATCHED
        return 0
