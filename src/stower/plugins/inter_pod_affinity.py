"""InterPodAffinity: filters and scores nodes by affinity and anti-affinity to other pods.

Applies the pod's own terms, and the terms of placed pods that match the pod.

Source: kube-scheduler plugins/interpodaffinity; KEP-2249 (namespaceSelector). matchLabelKeys and
mismatchLabelKeys (KEP-3633) are merged into the selector by the API server.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from operator import and_
from typing import Any, Final

import msgspec
import numpy as np

from stower.framework.args import Args, convert_args, invalid
from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.dry_run import CapacityConstraint, DryRun, TreePods, no_usage, one_per_row
from stower.framework.fixes import (
    NODE_FIELD,
    Fix,
    format_pods,
    format_requirement,
    with_labels,
    with_spec,
)
from stower.framework.plugin import MAX_NODE_SCORE, DomainScores, Features, Plugin, Scope
from stower.framework.reasons import Rejection
from stower.framework.tree_rules import TreeRule
from stower.model.kinds import Pod
from stower.model.kinds.pod import PodAffinity, PodAffinityTerm
from stower.plugins.affinity_dry_run import (
    AFFINITY_NOT_MATCHED,
    ANTI_AFFINITY_NOT_MATCHED,
    EXISTING_ANTI_AFFINITY_NOT_MATCHED,
    DryRunCounts,
    condition,
    counts_by_key,
)
from stower.plugins.affinity_tree_rules import apart_rules, near_rules
from stower.plugins.bounds import TERMS_MAX, check_count
from stower.state.arrays import Bools, Ints
from stower.state.carried_terms import TermKind, namespaces_of
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.row_counts import RowCounts
from stower.state.shapes import Shape
from stower.state.tallies import Condition, meets

WEIGHT_MAX: Final = 100
TERMS_NOUN: Final = "pod affinity and anti-affinity terms"


class InterPodAffinityArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class InterPodAffinity(Plugin):
    """Rejects nodes by required terms about pods in their domains; scores nodes by the other terms.

    Tallies count pods per node, and `state.carried_terms` counts the terms of placed pods per node.
    Both keep sums per domain, so that each term costs one look-up per node.
    """

    name = "InterPodAffinity"
    scope = Scope.PODS
    events_to_register = (
        Change.NODE_ADDED | Change.NODE_LABELS | Change.PLACED_POD_ADDED
        | Change.PLACED_POD_DELETED | Change.PLACED_POD_LABELS | Change.OWN_LABELS
    )  # fmt: skip

    def __init__(self, hard_weight: int = 1, ignore_preferred_terms: bool = False) -> None:
        """`hard_weight`: weight of the required affinity of placed pods. `ignore_preferred_terms`:
        preferred terms of placed pods do not count for pods that have none themselves."""
        self.hard_weight = hard_weight
        self.ignore_preferred_terms = ignore_preferred_terms

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "InterPodAffinity":
        """Reads InterPodAffinityArgs: hardPodAffinityWeight, ignorePreferredTermsOfExistingPods."""
        parsed = convert_args(args, InterPodAffinityArgs, path)
        if not 0 <= parsed.hard_pod_affinity_weight <= WEIGHT_MAX:
            field, weight = f"{path}.hardPodAffinityWeight", parsed.hard_pod_affinity_weight
            raise invalid(field, weight, f"not in valid range [0, {WEIGHT_MAX}]")
        return cls(parsed.hard_pod_affinity_weight, parsed.ignore_preferred_terms_of_existing_pods)

    def is_relevant_to_pod(self, pod: Pod, state: ClusterState) -> bool:
        """Returns whether the pod, or a placed pod, has affinity terms."""
        return pod.spec.affinity is not None or bool(state.carried_terms.terms)

    def may_need_others(self, pod: Pod) -> bool:
        """Returns whether the pod requires others in its domain."""
        return bool(_required_terms(pod)[0])

    def needs_other(self, pod: Pod, other: Pod) -> bool:
        """Returns whether a term of the pod's required affinity matches the other one."""
        return any(_may_match(term, pod, other) for term in _required_terms(pod)[0])

    def minds_elsewhere(self, pod: Pod, other: Pod) -> bool:
        """Returns whether one of the two has required terms."""
        return any(_required_terms(pod)) or any(_required_terms(other))

    # Filter

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Rejects nodes: 1 by the pod's affinity, 2 by its anti-affinity, 3 by placed pods'."""
        if pod.spec.affinity is None and not state.carried_terms.terms:
            return None
        affinity_terms, anti_affinity_terms = _required_terms(pod)
        excluded_rows = self._existing_anti_affinity_rows(pod, state)
        if not affinity_terms and not anti_affinity_terms and excluded_rows is None:
            return None
        codes = np.zeros(state.row_limit, np.int64)
        # A row has one code, the first violated rule: that rule is written last.
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
        """Returns bool[row_limit]: nodes that have all topology keys, and in each of these domains
        a pod that matches all terms."""
        conditions = tuple(condition(term, pod, state.pod_selectors) for term in terms)
        tally = state.tally(*conditions)
        rows_by_term = [_rows_with_matching_pods(tally, term.topology_key, state) for term in terms]
        if not any(rows.any() for rows in rows_by_term) and meets(pod, conditions):
            # The first pod of a group whose pods match their own affinity.
            codes = (state.labels.codes(term.topology_key, state.all_rows) for term in terms)
            return reduce(and_, (values > 0 for values in codes))
        return reduce(and_, rows_by_term)

    def _existing_anti_affinity_rows(self, pod: Pod, state: ClusterState) -> Bools | None:
        """Returns bool[row_limit]: nodes in domains of pods whose anti-affinity matches this pod;
        None if there are none."""
        if not state.carried_terms.terms:
            return None
        result: Bools | None = None
        labels = state.pod_selectors.labels_of(pod.metadata.namespace)
        for term in state.carried_terms.terms_matching(pod, labels):
            if term.kind is not TermKind.REQUIRED_ANTI_AFFINITY or not term.users:
                continue
            matching_rows = _rows_with_matching_pods(term, term.topology_key, state)
            result = matching_rows if result is None else result | matching_rows
        return result

    def group_constraints(
        self, pod: Pod, shape: Shape, state: ClusterState, tree: TreePods
    ) -> tuple[CapacityConstraint, ...]:
        """Returns an amount of 1 per anti-affinity term that the pod itself matches, where each
        node is a domain of its own: then no two such pods of a group are on one node."""
        found = {}
        for term in _required_terms(pod)[1]:
            if not state.labels.is_unique_per_node(term.topology_key, state.node_count):
                continue
            if meets(pod, (condition(term, pod, state.pod_selectors),)):
                # Other namespaces may differ from pod to pod: the filter has refused their rows.
                own = frozenset((pod.metadata.namespace,)), term.label_selector
                name = f"nodes without pods of {_describe_selector(term)}"
                counts = state.tally(own)
                found[name] = CapacityConstraint(
                    name, partial(_free_of, counts), 1, no_usage, 1, empty=one_per_row
                )
        return tuple(found.values())

    def tree_rules(self, pods: Sequence[PodEntry], state: ClusterState) -> Iterable[TreeRule]:
        """Returns the rules of required terms that pods of the tree match."""
        if all(entry.pod.spec.affinity is None for entry in pods):
            return ()
        return (*apart_rules(pods, state), *near_rules(pods, state))

    def is_permanent(self, codes: Ints) -> Bools:
        """Returns bool[codes]: all but unmatched affinity, which a pod placed later may match."""
        return codes > AFFINITY_NOT_MATCHED

    def is_permanent_for(self, pod: Pod, state: ClusterState, codes: Ints, tree: TreePods) -> Bools:
        """Returns bool[codes]: unmatched affinity too, unless a pod of the tree matches the terms
        and may come first: it has other terms itself, or no pod matches them yet."""
        lasting = self.is_permanent(codes)
        unmatched: Bools = codes == AFFINITY_NOT_MATCHED
        if not unmatched.any():
            return lasting
        terms, conditions = _affinity(pod, state)
        if _is_matched(terms, conditions, state):
            may_end = _has_others_that_match(terms, conditions, tree)
        else:
            may_end = any(meets(other, conditions) for other in tree.pods)
        return lasting if may_end else lasting | unmatched

    def common_keys(
        self, pod: Pod, state: ClusterState, tree: TreePods
    ) -> tuple[tuple[str, str], ...]:
        """Returns the keys of the pod's affinity, where it matches the terms itself and no other
        pod does yet: the first one decides on the domains of all with these terms."""
        terms, conditions = _affinity(pod, state)
        if not terms or not meets(pod, conditions) or _is_matched(terms, conditions, state):
            return ()
        if _has_others_that_match(terms, conditions, tree):
            return ()
        return tuple(dict.fromkeys((term.topology_key, str(terms)) for term in terms))

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """Returns the reason. Evictions can only resolve anti-affinity."""
        if code == AFFINITY_NOT_MATCHED:
            return Rejection(("node(s) didn't match pod affinity rules",))
        if code == ANTI_AFFINITY_NOT_MATCHED:
            return Rejection(("node(s) didn't match pod anti-affinity rules",), True)
        return Rejection(("node(s) didn't satisfy existing pods anti-affinity rules",), True)

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Suggests evicting pods that violate anti-affinity, or removing terms from the pod."""
        affinity_terms, anti_affinity_terms = _required_terms(pod)
        if affinity_terms and not self._affinity_rows(pod, state, affinity_terms)[row]:
            yield self._affinity_fix(pod, state, row, affinity_terms)
            return
        for term in anti_affinity_terms:
            query = condition(term, pod, state.pod_selectors)
            peers = tuple(
                e for e in _pods_in_domain(state, term.topology_key, row) if meets(e.pod, (query,))
            )
            if peers:
                selector = _describe_selector(term)
                text = (
                    f"{format_pods(peers)} with {selector} in the {term.topology_key} domain of "
                    f"{NODE_FIELD} (podAntiAffinity)"
                )
                yield Fix(text, 1.0 + len(peers), removed_pods=peers)
                text = (
                    f"the podAntiAffinity excludes the {term.topology_key} domain of {NODE_FIELD}"
                )
                yield Fix(
                    f"{text}: {format_pods(peers)} with {selector}",
                    3.0,
                    pod=_remove_terms(pod, [term]),
                )
                return
        labels = state.pod_selectors.labels_of(pod.metadata.namespace)
        keys = {
            t.topology_key
            for t in state.carried_terms.terms_matching(pod, labels)
            if t.kind is TermKind.REQUIRED_ANTI_AFFINITY
        }
        peers = tuple(
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
        if peers:
            pods = format_pods(peers)
            text = f"the podAntiAffinity of {pods} excludes the pod from {NODE_FIELD}"
            yield Fix(text, 1.0 + len(peers), removed_pods=peers)

    def _affinity_fix(
        self, pod: Pod, state: ClusterState, row: int, terms: tuple[PodAffinityTerm, ...]
    ) -> Fix:
        """Returns labels for the node, or the pod without its unmatched affinity terms."""
        node = state.node_at(row)
        labels = node.metadata.labels or {}
        new_keys = [term.topology_key for term in terms if term.topology_key not in labels]
        conditions = tuple(condition(term, pod, state.pod_selectors) for term in terms)
        has_matching_pods = state.tally(*conditions).counts[state.all_rows].any()
        if new_keys and not has_matching_pods and meets(pod, conditions):
            # The first pod of a group whose pods match their own affinity: any node with the keys.
            labelled_node = with_labels(node, {**labels, **dict.fromkeys(new_keys, "a")})
            return Fix(
                f"{NODE_FIELD} lacks the label {', '.join(new_keys)}",
                float(len(new_keys)),
                node=labelled_node,
            )
        unmatched = [t for t in terms if not self._affinity_rows(pod, state, (t,))[row]]
        if not unmatched:  # each term matches, but no pod matches all
            for i, term in enumerate(terms):
                if self._affinity_rows(pod, state, (*terms[:i], *terms[i + 1 :]))[row]:
                    unmatched = [term]
                    break
        unmatched = unmatched or [*terms]
        selectors = ", ".join(
            f"{_describe_selector(t)} in its {t.topology_key} domain" for t in unmatched
        )
        text = f"{NODE_FIELD} has no pod with {selectors} (podAffinity)"
        return Fix(text, 1.0 + len(unmatched), pod=_remove_terms(pod, unmatched))

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Returns dry runs that count the matching pods in a row's domains."""
        if pod.spec.affinity is None and not state.carried_terms.terms:
            return None
        affinity_terms, anti_affinity_terms = _required_terms(pod)
        terms = state.carried_terms.terms_matching(
            pod, state.pod_selectors.labels_of(pod.metadata.namespace)
        )
        existing_anti_affinity_counts = counts_by_key(
            (term.topology_key, term.domain_counts(term.topology_key))
            for term in terms
            if term.kind is TermKind.REQUIRED_ANTI_AFFINITY
            and term.domain_counts(term.topology_key).any()
        )
        if not affinity_terms and not anti_affinity_terms and not existing_anti_affinity_counts:
            return None
        return DryRunCounts(
            pod, state, affinity_terms, anti_affinity_terms, existing_anti_affinity_counts
        ).dry_run

    # Score

    def has_scores(self, pod: Pod, state: ClusterState) -> bool:
        """Returns whether the pod has affinity terms, or placed pods carry terms."""
        return bool(state.carried_terms.terms) or pod.spec.affinity is not None

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """Scores by the weights of matched terms, of the pod and of placed pods: 0 to 100."""
        topology_scores = self._topology_scores(pod, state)
        total = topology_scores.total()
        if total is None:
            return None
        feasible_scores = total if feasible.all() else total[feasible]
        if not len(feasible_scores):
            return None
        lowest = int(feasible_scores.min())
        span = int(feasible_scores.max()) - lowest
        if not span:
            return np.zeros(state.row_limit, np.int64)
        return topology_scores.normalize(total, lowest, span)

    def domain_scores(self, pod: Pod, shape: Shape, state: ClusterState) -> DomainScores | None:
        """Returns the scores where all matched terms are about domains of one key."""
        found = self._topology_scores(pod, state).only_key()
        if found is None:
            return None
        key, table = found

        def points(feasible: Bools) -> Ints:
            feasible_scores = table[feasible]
            if not len(feasible_scores):
                return np.zeros(len(table), np.int64)
            lowest = int(feasible_scores.min())
            span = int(feasible_scores.max()) - lowest
            return _normalize(table, lowest, span) if span else np.zeros(len(table), np.int64)

        return DomainScores(key, points)

    def _topology_scores(self, pod: Pod, state: ClusterState) -> "_TopologyScores":
        """Returns the weights of matched terms, of the pod and of placed pods."""
        topology_scores = _TopologyScores(state)
        preferred_terms = list(_preferred_terms(pod))
        check_count(len(preferred_terms), TERMS_MAX, TERMS_NOUN)
        if self.ignore_preferred_terms and not preferred_terms:
            return topology_scores
        for term, weight in preferred_terms:
            tally = state.tally(condition(term, pod, state.pod_selectors))
            topology_scores.add(tally, weight, term.topology_key)
        if state.carried_terms.terms:
            labels = state.pod_selectors.labels_of(pod.metadata.namespace)
            for carried in state.carried_terms.terms_matching(pod, labels):
                if not carried.users or carried.kind is TermKind.REQUIRED_ANTI_AFFINITY:
                    continue
                weight = self.hard_weight if carried.kind is TermKind.REQUIRED_AFFINITY else 1
                topology_scores.add(carried, weight, carried.topology_key)
        return topology_scores

    # Hints

    def hint_pod(self, pod: Pod, shape: Shape, event: ClusterEvent) -> bool:
        """Requeues the pod for nodes that join or leave a domain of its terms, for pods that now
        match its affinity, and for pods that no longer match an anti-affinity."""
        affinity_terms, anti_affinity_terms = _required_terms(pod)
        node = event.node
        if node is not None:
            labels = node.metadata.labels or {}
            if event.old_node is None:
                # A pod without affinity terms may be rejected by the terms of placed pods.
                return (
                    not affinity_terms
                    or bool(anti_affinity_terms)
                    or any(t.topology_key in labels for t in affinity_terms)
                )
            old_labels = event.old_node.metadata.labels or {}
            joins = (t.topology_key in labels and labels[t.topology_key] != old_labels.get(
                t.topology_key) for t in affinity_terms)  # fmt: skip
            leaves = (t.topology_key in old_labels and labels.get(t.topology_key) != old_labels[
                t.topology_key] for t in anti_affinity_terms)  # fmt: skip
            return any(joins) or any(leaves)
        if event.change & Change.OWN_LABELS:
            return True
        old, new = event.old_pod, event.pod
        if affinity_terms and new is not None and _all_may_match(affinity_terms, pod, new):
            if old is None or not _all_may_match(affinity_terms, pod, old):
                return True
        if old is None:
            return False
        # One matching term is enough to reject the pod; kube-scheduler requires all to match.
        if any(
            _may_match(t, pod, old) and (new is None or not _may_match(t, pod, new))
            for t in anti_affinity_terms
        ):
            return True
        return new is None and any(_may_match(t, old, pod) for t in _required_terms(old)[1])


def _required_terms(pod: Pod) -> tuple[tuple[PodAffinityTerm, ...], tuple[PodAffinityTerm, ...]]:
    """Returns required affinity and anti-affinity terms. Raises PluginError if too many."""
    affinity = pod.spec.affinity
    if affinity is None:
        return (), ()

    def required(part: PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
        return (part.required if part is not None else None) or ()

    terms, anti_terms = required(affinity.pod_affinity), required(affinity.pod_anti_affinity)
    check_count(len(terms) + len(anti_terms), TERMS_MAX, TERMS_NOUN)
    return terms, anti_terms


def _affinity(
    pod: Pod, state: ClusterState
) -> tuple[tuple[PodAffinityTerm, ...], tuple[Condition, ...]]:
    """Returns the pod's required affinity, and the conditions that other pods have to meet."""
    terms = _required_terms(pod)[0]
    return terms, tuple(condition(term, pod, state.pod_selectors) for term in terms)


def _is_matched(
    terms: tuple[PodAffinityTerm, ...], conditions: tuple[Condition, ...], state: ClusterState
) -> bool:
    """Returns whether a placed pod meets all conditions, in a domain of one of the terms: then
    none of the pods may come first."""
    tally = state.tally(*conditions)
    return any(_rows_with_matching_pods(tally, t.topology_key, state).any() for t in terms)


def _has_others_that_match(
    terms: tuple[PodAffinityTerm, ...], conditions: tuple[Condition, ...], tree: TreePods
) -> bool:
    """Returns whether a pod of the tree meets the conditions of these affinity terms, and has other
    terms itself."""
    return any(_required_terms(p)[0] != terms and meets(p, conditions) for p in tree.pods)


def _free_of(counts: RowCounts, rows: slice) -> Ints:
    """Returns int64[rows]: 1 for rows without such a pod."""
    free: Ints = (counts.counts[rows] == 0).astype(np.int64)
    return free


def _pods_in_domain(state: ClusterState, key: str, row: int) -> list[PodEntry]:
    """Returns the pods of all nodes in the row's domain."""
    codes = state.labels.codes(key, state.all_rows)
    rows = np.flatnonzero((codes == codes[row]) & (codes > 0)).tolist()
    return [entry for domain_row in rows for entry in state.pods_on(domain_row)]


def _remove_terms(pod: Pod, terms: list[PodAffinityTerm]) -> Pod:
    """Returns the pod without these required terms."""
    affinity = pod.spec.affinity
    assert affinity is not None

    def remove_from(part: PodAffinity | None) -> PodAffinity | None:
        if part is None:
            return None
        required = tuple(term for term in part.required or () if term not in terms)
        return msgspec.structs.replace(part, required=required or None)

    return with_spec(
        pod,
        affinity=msgspec.structs.replace(
            affinity,
            pod_affinity=remove_from(affinity.pod_affinity),
            pod_anti_affinity=remove_from(affinity.pod_anti_affinity),
        ),
    )


def _describe_selector(term: PodAffinityTerm) -> str:
    """Returns the term's label selector in words."""
    selector = term.label_selector
    if selector is None:
        return "a null labelSelector"
    pairs = [f"{k}={v}" for k, v in sorted((selector.match_labels or {}).items())]
    pairs += map(format_requirement, selector.match_expressions or ())
    return " and ".join(pairs) or "any labels"


def _preferred_terms(pod: Pod) -> Iterable[tuple[PodAffinityTerm, int]]:
    """Yields the preferred terms with their weights, which are negative for anti-affinity."""
    affinity = pod.spec.affinity
    if affinity is None:
        return
    for part, sign in ((affinity.pod_affinity, 1), (affinity.pod_anti_affinity, -1)):
        for weighted in (part.preferred if part is not None else None) or ():
            yield weighted.pod_affinity_term, sign * weighted.weight


def _rows_with_matching_pods(counts: RowCounts, key: str, state: ClusterState) -> Bools:
    """Returns bool[row_limit]: nodes in domains of `key` that have a count above 0."""
    rows = state.all_rows
    if state.labels.is_unique_per_node(key, state.node_count):
        return (counts.counts[rows] > 0) & state.present[rows]
    has_count: Bools = counts.domain_counts(key) > 0
    return has_count[state.labels.codes(key, rows)]


class _TopologyScores:
    """Sums the scores of terms: per domain of each key, or per row for keys unique to each node."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._domain_scores: dict[str, Ints] = {}
        self._row_scores: Ints | None = None

    def add(self, counts: RowCounts, weight: int, key: str) -> None:
        """Adds the counts of a term times its weight; does nothing if all counts are 0."""
        if not weight:
            return
        state = self._state
        is_per_row = state.labels.is_unique_per_node(key, state.node_count)
        sums = counts.counts[state.all_rows] if is_per_row else counts.domain_counts(key)
        if not sums.any():
            return
        scores = sums if weight == 1 else sums * weight
        previous = self._row_scores if is_per_row else self._domain_scores.get(key)
        scores = scores if previous is None else previous + scores
        if is_per_row:
            self._row_scores = scores
        else:
            self._domain_scores[key] = scores

    def total(self) -> Ints | None:
        """Returns int64[row_limit]: the sums; None if nothing was added."""
        state, total = self._state, self._row_scores
        for key, table in self._domain_scores.items():
            scores = table[state.labels.codes(key, state.all_rows)]
            total = scores if total is None else total + scores
        return total

    def only_key(self) -> tuple[str, Ints] | None:
        """Returns the key and its int64[value codes], where no other key has scores; "" where none
        has any; None where nodes have scores of their own, or several keys have some."""
        if self._row_scores is not None or len(self._domain_scores) > 1:
            return None
        return next(iter(self._domain_scores.items()), ("", np.zeros(1, np.int64)))

    def normalize(self, total: Ints, lowest: int, span: int) -> Ints:
        """Returns int64[row_limit]: the total scaled to 0 to 100."""
        if self._row_scores is None and len(self._domain_scores) == 1:
            # There are usually fewer domains than rows.
            ((key, table),) = self._domain_scores.items()
            return _normalize(table, lowest, span)[
                self._state.labels.codes(key, self._state.all_rows)
            ]
        return _normalize(total, lowest, span)


def _normalize(scores: Ints, lowest: int, span: int) -> Ints:
    # float64, truncated, as in kube-scheduler: 100 * (share), not (100 * part) / whole.
    return (MAX_NODE_SCORE * ((scores - lowest) / span)).astype(np.int64)


def _may_match(term: PodAffinityTerm, owner: Pod, pod: Pod) -> bool:
    """Returns whether a term of `owner` may match the pod; labels of namespaces are not checked."""
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
