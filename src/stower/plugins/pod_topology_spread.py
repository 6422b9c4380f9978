"""PodTopologySpread: spreads matching pods evenly over the domains of a topology.

Source: kube-scheduler plugins/podtopologyspread; KEP-895, 3022 (minDomains), 3094 (node inclusion
policies), 3243 (matchLabelKeys).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np

from stower.framework.args import convert_args, raise_faults
from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.dry_run import CapacityConstraint, DryRun, TreePods, no_usage
from stower.framework.fixes import NODE_FIELD, Fix, with_labels, with_spec
from stower.framework.plugin import MAX_NODE_SCORE, DomainScores, Features, Plugin, Scope
from stower.framework.reasons import Rejection
from stower.framework.tree_rules import SpreadRule, TreeRule
from stower.model.kinds import Node, Pod
from stower.model.kinds.pod import TopologySpreadConstraint
from stower.plugins.bounds import TERMS_MAX, check_count
from stower.plugins.node_affinity import required_rows
from stower.plugins.spread_constraints import (
    DO_NOT_SCHEDULE,
    HOSTNAME,
    SCHEDULE_ANYWAY,
    SYSTEM_DEFAULT_CONSTRAINTS,
    PodTopologySpreadArgs,
    SpreadConstraint,
    args_faults,
    is_match_label_changed,
    may_match,
    resolve_constraint,
)
from stower.plugins.spread_dry_run import (
    MAX_SKEW_EXCEEDED,
    NO_LABEL,
    ConstraintCounts,
    SpreadDryRun,
)
from stower.plugins.taint_toleration import untolerated_rows
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.matcher import Matcher
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape
from stower.state.tallies import Tally

REASON: Final = "node(s) didn't match pod topology spread constraints"
_NO_LABELS: Final[Mapping[str, str]] = {}


class PodTopologySpread(Plugin):
    """Rejects nodes whose domain would exceed maxSkew; prefers domains with few matching pods.

    Tallies count matching pods per node. What is computed for each pod is one sum per domain, if
    not all nodes are eligible, and one look-up per node.
    """

    name = "PodTopologySpread"
    scope = Scope.PODS
    events_to_register = (
        Change.NODE_ADDED | Change.NODE_DELETED | Change.NODE_LABELS | Change.NODE_TAINTS
        | Change.PLACED_POD_ADDED | Change.PLACED_POD_DELETED | Change.PLACED_POD_LABELS
        | Change.OWN_TOLERATIONS | Change.OWN_LABELS
    )  # fmt: skip

    def __init__(
        self,
        default_constraints: tuple[TopologySpreadConstraint, ...] = SYSTEM_DEFAULT_CONSTRAINTS,
        is_system_defaulted: bool = True,
        has_comparison_operators: bool = False,
    ) -> None:
        """`default_constraints`: for pods without constraints of their own. `is_system_defaulted`:
        they are kube-scheduler's defaults."""
        self.default_constraints = default_constraints
        self.is_system_defaulted = is_system_defaulted
        self._has_soft_defaults = any(
            c.when_unsatisfiable == SCHEDULE_ANYWAY for c in default_constraints
        )
        self._has_hard_defaults = any(
            c.when_unsatisfiable == DO_NOT_SCHEDULE for c in default_constraints
        )
        self.has_comparison_operators = has_comparison_operators

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "PodTopologySpread":
        """Reads PodTopologySpreadArgs: defaultConstraints, defaultingType."""
        parsed = convert_args(args, PodTopologySpreadArgs, path)
        raise_faults(args_faults(parsed, path))
        has_comparison_operators = features.taint_toleration_comparison_operators
        if parsed.defaulting_type != "List":
            return cls(has_comparison_operators=has_comparison_operators)
        return cls(parsed.default_constraints, False, has_comparison_operators)

    def is_relevant_to_pod(self, pod: Pod, state: ClusterState) -> bool:
        """Returns whether constraints of the pod's own, or defaults, may apply."""
        if pod.spec.topology_spread_constraints or self._has_hard_defaults:
            return True
        selectors = state.pod_selectors
        return self._has_soft_defaults and bool(selectors.services or selectors.controllers)

    def may_need_others(self, pod: Pod) -> bool:
        """Returns whether constraints may forbid a domain as others have fewer pods."""
        return bool(pod.spec.topology_spread_constraints) or self._has_hard_defaults

    def minds_elsewhere(self, pod: Pod, other: Pod) -> bool:
        """Returns whether hard constraints of the pod's own, or defaults, may apply."""
        return bool(pod.spec.topology_spread_constraints) or self._has_hard_defaults

    # Filter

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Rejects nodes: 1 without a constraint's topology key, 2 beyond its maxSkew."""
        if not pod.spec.topology_spread_constraints and not self._has_hard_defaults:
            return None
        constraints = self._resolve_constraints(pod, state, DO_NOT_SCHEDULE)
        if not constraints:
            return None
        codes = np.zeros(state.row_limit, np.int64)
        for constraint, counts, domains, _ in self._count_domains(
            pod, shape, state, constraints, True
        ):
            values = state.labels.codes(constraint.key, state.all_rows)
            min_count = 0
            if np.count_nonzero(domains) >= max(1, constraint.min_domains):
                min_count = int(counts[domains].min())
            too_many = counts + int(constraint.matches(pod)) - min_count > constraint.max_skew
            constraint_codes = np.where(
                values == 0, NO_LABEL, np.where(too_many[values], MAX_SKEW_EXCEEDED, 0)
            )
            codes = np.where(codes == 0, constraint_codes, codes)
        return codes

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Returns dry runs that count matching pods in a row's domains."""
        if not pod.spec.topology_spread_constraints and not self._has_hard_defaults:
            return None
        constraints = self._resolve_constraints(pod, state, DO_NOT_SCHEDULE)
        if not constraints:
            return None
        constraint_counts = [
            ConstraintCounts(state, *domain_counts)
            for domain_counts in self._count_domains(pod, shape, state, constraints, True)
        ]
        conditions = [
            self._tally(pod, state, c.constraint) or c.constraint.matches for c in constraint_counts
        ]
        matcher = Matcher(conditions, state.tallies)
        return lambda row: SpreadDryRun(pod, constraint_counts, matcher, row)

    def group_constraints(
        self, pod: Pod, shape: Shape, state: ClusterState, tree: TreePods
    ) -> tuple[CapacityConstraint, ...]:
        """Returns how many more matching pods each node may have, for hard constraints that count
        pods per node, where the tree has too few pods for the smallest count to rise."""
        constraints = self._resolve_constraints(pod, state, DO_NOT_SCHEDULE)
        found = {}
        for constraint, counts, domains, _ in self._count_domains(
            pod, shape, state, constraints, True
        ):
            key = constraint.key
            is_per_node = state.labels.is_unique_per_node(key, state.node_count)
            if not is_per_node or not constraint.matches(pod) or not _counts_pods(constraint):
                continue
            smallest = 0
            if _has_least(constraint, domains):
                smallest = int(counts[domains].min())
                matching = sum(constraint.matches(p) for p in tree.pods)
                if matching >= np.count_nonzero(counts[domains] == smallest):
                    continue
            per_domain = constraint.max_skew + smallest - counts
            free = per_domain[state.labels.codes(key, state.all_rows)]
            name = f"{self.name} {shape.serial} {constraint}"
            label = f"nodes within maxSkew {constraint.max_skew} of {key}"
            found[name] = CapacityConstraint(
                name, free.__getitem__, 1, no_usage, MAX_SKEW_EXCEEDED, label=label
            )
        return tuple(found.values())

    def tree_rules(self, pods: Sequence[PodEntry], state: ClusterState) -> Iterable[TreeRule]:
        """Returns the rules of hard constraints."""
        found: dict[tuple[bytes, bytes, bytes], tuple[SpreadRule, set[str]]] = {}
        for entry in pods:
            if not (entry.pod.spec.topology_spread_constraints or self._has_hard_defaults):
                continue
            constraints = self._resolve_constraints(entry.pod, state, DO_NOT_SCHEDULE)
            for constraint, counts, domains, eligible in self._count_domains(
                entry.pod, entry.shape, state, constraints, True
            ):
                constraint_key = msgspec.msgpack.encode(constraint)
                key = (constraint_key, counts.tobytes(), eligible.tobytes())
                if key not in found:
                    counted = pods if _counts_pods(constraint) else ()
                    matched = frozenset(e.uid for e in counted if constraint.matches(e.pod))
                    codes = np.where(
                        eligible, state.labels.codes(constraint.key, state.all_rows), 0
                    )
                    has_least = _has_least(constraint, domains)
                    what = f"maxSkew {constraint.max_skew} over {constraint.key}"
                    rule = SpreadRule(
                        codes, frozenset(), matched, counts.copy(), domains, constraint.max_skew,
                        has_least, what,
                    )  # fmt: skip
                    found[key] = rule, set()
                found[key][1].add(entry.uid)
        return [rule._replace(spreading=frozenset(uids)) for rule, uids in found.values()]

    def is_permanent(self, codes: Ints) -> Bools:
        """Returns bool[codes]: missing keys only. Pods placed later may reduce the skew."""
        lasting: Bools = codes == NO_LABEL
        return lasting

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """Returns the reason. Evictions can only resolve an exceeded skew."""
        if code == NO_LABEL:
            return Rejection((f"{REASON} (missing required label)",))
        return Rejection((REASON,), resolvable=True)

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Suggests a label for the node, a lower minDomains or a higher maxSkew."""
        node = state.node_at(row)
        constraints = self._resolve_constraints(pod, state, DO_NOT_SCHEDULE)
        constraint_counts = self._count_domains(pod, shape, state, constraints, True)
        for i, (constraint, counts, domains, _) in enumerate(constraint_counts):
            value = int(state.labels.codes(constraint.key, state.all_rows)[row])
            if not value:
                text, labels = _missing_label(constraint.key, counts, domains, state)
                yield Fix(text, node=with_labels(node, {**(node.metadata.labels or {}), **labels}))
                relaxed_pod = self._replace_constraint(
                    pod, constraint, i, when_unsatisfiable=SCHEDULE_ANYWAY
                )
                yield Fix(f"the pod has to spread over {constraint.key}", 2.0, relaxed_pod)
                return
            domain_count = int(np.count_nonzero(domains))
            if max(1, domain_count) < constraint.min_domains:
                min_domains = constraint.min_domains
                text = f"there are {domain_count} domains of {constraint.key}, "
                text += f"minDomains is {min_domains}"
                yield Fix(
                    text,
                    pod=self._replace_constraint(
                        pod, constraint, i, min_domains=max(1, domain_count)
                    ),
                )
                return
            min_count = int(counts[domains].min()) if domain_count else 0
            skew = int(counts[value]) + int(constraint.matches(pod)) - min_count
            if skew > constraint.max_skew:
                domain = f"{constraint.key}={(node.metadata.labels or {})[constraint.key]}"
                text = (
                    f"{domain} has {counts[value]} matching pods, the smallest domain {min_count}: "
                )
                text += f"the skew would be {skew}, maxSkew is {constraint.max_skew}"
                relaxed_pod = self._replace_constraint(pod, constraint, i, max_skew=skew)
                yield Fix(text, 1.0 + skew - constraint.max_skew, pod=relaxed_pod)
                return

    def _replace_constraint(
        self, pod: Pod, constraint: SpreadConstraint, index: int, **fields: int | str
    ) -> Pod:
        """Returns the pod with `fields` in its hard constraint of this index. A pod without
        constraints of its own gets the profile's."""
        pod_constraints = pod.spec.topology_spread_constraints
        constraints = [*pod_constraints] if pod_constraints else [
            msgspec.structs.replace(default, label_selector=constraint.selector)
            for default in self.default_constraints
        ]  # fmt: skip
        hard = [
            i
            for i, candidate in enumerate(constraints)
            if candidate.when_unsatisfiable == DO_NOT_SCHEDULE
        ]
        constraints[hard[index]] = msgspec.structs.replace(constraints[hard[index]], **fields)
        return with_spec(pod, topology_spread_constraints=tuple(constraints))

    # Score

    def has_scores(self, pod: Pod, state: ClusterState) -> bool:
        """Returns whether the pod has soft constraints, or default ones and a selector for them."""
        pod_constraints = pod.spec.topology_spread_constraints
        if pod_constraints:
            return any(c.when_unsatisfiable == SCHEDULE_ANYWAY for c in pod_constraints)
        return self._has_soft_defaults and state.pod_selectors.default_selector(pod) is not None

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """Scores nodes higher if their domains have fewer matching pods; 0 without a key."""
        constraints = self._resolve_constraints(pod, state, SCHEDULE_ANYWAY)
        if not constraints:
            return None
        rows, require_all_topologies = state.all_rows, self._requires_all_topologies(pod)
        if self._has_one_domain_constraint(pod, constraints):
            column = state.labels.columns.get(constraints[0].key)
            if column is None:
                return np.zeros(state.row_limit, np.int64)
            values = column.codes[rows]
            has_feasible = np.zeros(column.code_count, np.bool_)
            if feasible[feasible.argmin()]:  # all nodes; takes a third of the time of all()
                has_feasible |= column.used_codes
            else:
                has_feasible[values[feasible]] = True
            result = self._domain_scores(pod, shape, state, constraints[0]).points(has_feasible)
            return result[values]
        ignored = np.zeros(state.row_limit, np.bool_)
        if require_all_topologies:
            for constraint in constraints:
                ignored |= state.labels.codes(constraint.key, rows) == 0
        is_scored = feasible & ~ignored
        total = np.zeros(state.row_limit, np.float64)
        domain_constraints = tuple(
            constraint for constraint in constraints if constraint.key != HOSTNAME
        )
        constraint_counts = self._count_domains(
            pod, shape, state, domain_constraints, require_all_topologies, constraints
        )
        for constraint in constraints:
            values = state.labels.codes(constraint.key, rows)
            if constraint.key == HOSTNAME:
                size = int(np.count_nonzero(is_scored))
                tally = self._tally(pod, state, constraint)
                count = np.zeros(state.row_limit, np.int64) if tally is None else tally.counts[rows]
                cost = count * _weight(size) + (constraint.max_skew - 1)
            else:
                size = int(np.count_nonzero(np.bincount(values[is_scored])))
                _, sums, _, _ = next(constraint_counts)  # in the order of domain_constraints
                cost = (sums * _weight(size) + (constraint.max_skew - 1))[values]
            total += cost if require_all_topologies else np.where(values > 0, cost, 0.0)
        scores: Ints = np.floor(total + 0.5).astype(np.int64)
        scored = scores[is_scored]
        if not len(scored):
            return np.zeros(state.row_limit, np.int64)
        highest, lowest = int(scored.max()), int(scored.min())
        if highest == 0:
            return np.where(ignored, 0, MAX_NODE_SCORE)
        return np.where(ignored, 0, MAX_NODE_SCORE * (highest + lowest - scores) // highest)

    def domain_scores(self, pod: Pod, shape: Shape, state: ClusterState) -> DomainScores | None:
        """Returns the scores of one soft constraint over domains that are more than a node."""
        constraints = self._resolve_constraints(pod, state, SCHEDULE_ANYWAY)
        if not self._has_one_domain_constraint(pod, constraints):
            return None
        return self._domain_scores(pod, shape, state, constraints[0])

    def _has_one_domain_constraint(
        self, pod: Pod, constraints: tuple[SpreadConstraint, ...]
    ) -> bool:
        """Returns whether scores depend on a node's domain of one key alone."""
        is_one = len(constraints) == 1 and constraints[0].key != HOSTNAME
        return is_one and self._requires_all_topologies(pod)

    def _domain_scores(
        self, pod: Pod, shape: Shape, state: ClusterState, constraint: SpreadConstraint
    ) -> DomainScores:
        if constraint.honors_taints or shape.node_selector or shape.node_affinity is not None:
            ((_, sums, _, _),) = self._count_domains(pod, shape, state, (constraint,), True)
        else:
            sums = self._sums(pod, state, constraint)  # on all nodes with the key

        def points(feasible: Bools) -> Ints:
            # Nodes without the key are not scored.
            codes = [code for code in feasible.nonzero()[0].tolist() if code]
            weight, counts, skew = _weight(len(codes)), sums.tolist(), constraint.max_skew - 1
            scores = [math.floor(counts[c] * weight + skew + 0.5) for c in codes]
            highest, lowest = max(scores, default=0), min(scores, default=0)
            result = np.zeros(len(feasible), np.int64)
            for code, score in zip(codes, scores, strict=True):
                result[code] = (
                    MAX_NODE_SCORE * (highest + lowest - score) // highest
                    if highest
                    else MAX_NODE_SCORE
                )
            return result

        return DomainScores(constraint.key, points)

    # Counts

    def _resolve_constraints(
        self, pod: Pod, state: ClusterState, action: str
    ) -> tuple[SpreadConstraint, ...]:
        """Returns the pod's constraints with this action, or the default ones. Raises PluginError
        if there are too many."""
        pod_constraints = pod.spec.topology_spread_constraints
        if pod_constraints:
            check_count(len(pod_constraints), TERMS_MAX, "topology spread constraints")
            return tuple(
                resolve_constraint(c, pod)
                for c in pod_constraints
                if c.when_unsatisfiable == action
            )
        chosen = [c for c in self.default_constraints if c.when_unsatisfiable == action]
        selector = state.pod_selectors.default_selector(pod) if chosen else None
        if selector is None:
            return ()
        return tuple(resolve_constraint(c, pod)._replace(selector=selector) for c in chosen)

    def _requires_all_topologies(self, pod: Pod) -> bool:
        return bool(pod.spec.topology_spread_constraints) or not self.is_system_defaulted

    def _tally(self, pod: Pod, state: ClusterState, constraint: SpreadConstraint) -> Tally | None:
        """Returns the tally of pods that the selector matches; None for an empty selector."""
        if constraint.selector is None or not (
            constraint.selector.match_labels or constraint.selector.match_expressions
        ):
            return None
        namespaces = frozenset((pod.metadata.namespace,))
        return state.tally((namespaces, constraint.selector), live=True)

    def _sums(self, pod: Pod, state: ClusterState, constraint: SpreadConstraint) -> Ints:
        """Returns int64[value codes of the key]: matching pods per domain, on all nodes."""
        tally = self._tally(pod, state, constraint)
        if tally is None:
            return np.zeros(state.labels.code_count(constraint.key), np.int64)
        return tally.domain_counts(constraint.key)

    @staticmethod
    def _domains(state: ClusterState, key: str, size: int) -> Bools:
        """Returns bool[size]: value codes that some node has."""
        column = state.labels.columns.get(key)
        return np.zeros(size, np.bool_) if column is None else column.used_codes

    def _count_domains(
        self,
        pod: Pod,
        shape: Shape,
        state: ClusterState,
        constraints: tuple[SpreadConstraint, ...],
        require_all_topologies: bool,
        key_constraints: tuple[SpreadConstraint, ...] = (),
    ) -> Iterator[tuple[SpreadConstraint, Ints, Bools, Bools]]:
        """Yields each constraint with matching pods per domain, its domains, and eligible nodes.

        The former two are arrays by value code of the key, the last by row.
        `require_all_topologies`: nodes without a key of these constraints, or of `key_constraints`
        if there are any, are not eligible.
        """
        rows = state.all_rows
        eligible = state.present[rows]
        if require_all_topologies:
            for constraint in key_constraints or constraints:
                eligible = eligible & (state.labels.codes(constraint.key, rows) > 0)
        has_affinity: Bools | None = None
        has_taint: Bools | None = None
        if any(t.honors_affinity for t in constraints):
            has_affinity = required_rows(shape, state)
        if any(t.honors_taints for t in constraints):
            has_taint = untolerated_rows(shape, state, self.has_comparison_operators)
        is_full = bool(eligible.all())
        for constraint in constraints:
            mask = eligible
            size = state.labels.code_count(constraint.key)
            is_unfiltered = not (constraint.honors_affinity and has_affinity is not None) and not (
                constraint.honors_taints and has_taint is not None
            )
            if is_full and is_unfiltered:  # all nodes are eligible: the tallies keep their sums
                sums = self._sums(pod, state, constraint)
                yield constraint, sums, self._domains(state, constraint.key, size), eligible
                continue
            if constraint.honors_affinity and has_affinity is not None:
                mask = mask & has_affinity
            if constraint.honors_taints and has_taint is not None:
                mask = mask & ~has_taint
            codes = state.labels.codes(constraint.key, rows)[mask]
            domains = np.bincount(codes, minlength=size) > 0
            tally = self._tally(pod, state, constraint)
            if tally is None:
                yield constraint, np.zeros(size, np.int64), domains, mask
                continue
            # Pods are far fewer than the 2^53 that float64 counts exactly.
            counts = np.bincount(codes, weights=tally.counts[rows][mask], minlength=size)
            yield constraint, counts.astype(np.int64), domains, mask

    # Hints

    def hint_pod(self, pod: Pod, shape: Shape, event: ClusterEvent) -> bool:
        """Requeues the pod for nodes with the topology keys, and pods that constraints match."""
        pod_constraints = pod.spec.topology_spread_constraints
        hard = [
            c
            for c in pod_constraints or self.default_constraints
            if c.when_unsatisfiable == DO_NOT_SCHEDULE
        ]
        if not hard:
            return False  # nothing is refused for soft constraints
        old, new = event.old_pod, event.pod
        for other in (old, new):
            if other is not None and other.metadata.namespace != pod.metadata.namespace:
                return False  # before anything is read: a pod may have a hundred constraints
        is_of_node = event.node is not None or event.old_node is not None
        is_own = bool(event.change & (Change.OWN_TOLERATIONS | Change.OWN_LABELS))
        if pod_constraints and not is_of_node and not is_own:
            others = [other for other in (old, new) if other is not None]
            if not any(may_match(pod, other) for other in others):
                return False
        constraints = tuple(resolve_constraint(c, pod) for c in hard)
        if is_of_node:
            return _is_schedulable_after_node_change(constraints, event.old_node, event.node)
        if event.change & Change.OWN_TOLERATIONS and any(t.honors_taints for t in constraints):
            return True
        if not pod_constraints:
            return True  # defaults: their selector depends on the state, which hints do not have
        if event.change & Change.OWN_LABELS and is_match_label_changed(pod_constraints, old, new):
            return True
        if old is not None and new is not None:
            return any(t.matches(old) != t.matches(new) for t in constraints)
        other = new or old
        return other is not None and any(t.matches(other) for t in constraints)


def _missing_label(
    key: str, counts: Ints, domains: Bools, state: ClusterState
) -> tuple[str, dict[str, str]]:
    """Returns what a node without the key lacks, and the label of the emptiest domain."""
    codes = state.labels.codes(key, state.all_rows)
    values = {
        int(codes[r]): (state.node_at(r).metadata.labels or {}).get(key, "")
        for r in state.present_rows()
    }
    candidates = sorted(
        (int(counts[c]), values[c]) for c in np.flatnonzero(domains).tolist() if c in values
    )
    if not candidates:
        return f"{NODE_FIELD} lacks the label {key}", {key: "a"}
    value = candidates[0][1]
    return f"{NODE_FIELD} lacks the label {key} (for example {key}={value})", {key: value}


def _is_schedulable_after_node_change(
    constraints: tuple[SpreadConstraint, ...], old: Node | None, new: Node | None
) -> bool:
    """Returns whether the node entered, left or changed domains, or its taints changed."""

    def labels(node: Node | None) -> Mapping[str, str]:
        return (node.metadata.labels if node is not None else None) or _NO_LABELS

    was_in_domains = old is not None and all(t.key in labels(old) for t in constraints)
    is_in_domains = new is not None and all(t.key in labels(new) for t in constraints)
    if old is None or new is None:
        return was_in_domains or is_in_domains
    if was_in_domains != is_in_domains:
        return True
    has_moved = any(labels(old).get(t.key) != labels(new).get(t.key) for t in constraints)
    return is_in_domains and (has_moved or (old.spec.taints or ()) != (new.spec.taints or ()))


@lru_cache(4096)
def _weight(size: int) -> float:
    """Returns the logarithm that keeps large topologies from outweighing small ones."""
    return math.log(size + 2)


def _counts_pods(constraint: SpreadConstraint) -> bool:
    """Returns whether placed pods count: an empty selector matches the pod itself alone."""
    selector = constraint.selector
    return selector is not None and bool(selector.match_labels or selector.match_expressions)


def _has_least(constraint: SpreadConstraint, domains: Bools) -> bool:
    """Returns whether the domain with the fewest pods counts: there are enough domains."""
    return bool(np.count_nonzero(domains) >= max(1, constraint.min_domains))
