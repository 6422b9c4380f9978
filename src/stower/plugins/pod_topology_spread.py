"""PodTopologySpread: pods that are alike lie evenly over the domains of a topology.

Source: kube-scheduler plugins/podtopologyspread; KEP-895, 3022 (minDomains), 3094 (node inclusion
policies), 3243 (matchLabelKeys).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np

from stower.framework.args import convert_args, raise_faults
from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.dry_run import DryRun
from stower.framework.fixes import NODE_FIELD, Fix, with_labels, with_spec
from stower.framework.plugin import MAX_NODE_SCORE, Features, Plugin, Scope
from stower.framework.reasons import Rejection
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
from stower.state.shapes import Shape
from stower.state.tallies import Tally

REASON: Final = "node(s) didn't match pod topology spread constraints"
_NO_LABELS: Final[Mapping[str, str]] = {}


class PodTopologySpread(Plugin):
    """Refuse nodes whose domain has too many already; prefer domains with few.

    Counts per node are tallies; what is worked out for each pod is one sum per domain, where not
    all nodes count, and one look-up per node.
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
        """`defaults` for pods without constraints of their own; `system`: they are upstream's."""
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
        """PodTopologySpreadArgs: defaultConstraints, defaultingType."""
        read = convert_args(args, PodTopologySpreadArgs, path)
        raise_faults(args_faults(read, path))
        has_comparison_operators = features.taint_toleration_comparison_operators
        if read.defaulting_type != "List":
            return cls(has_comparison_operators=has_comparison_operators)
        return cls(read.default_constraints, False, has_comparison_operators)

    def is_relevant_to_pod(self, pod: Pod, state: ClusterState) -> bool:
        """Returns whether constraints of the pod's own, or defaults, may apply."""
        if pod.spec.topology_spread_constraints or self._has_hard_defaults:
            return True
        selectors = state.pod_selectors
        return self._has_soft_defaults and bool(selectors.services or selectors.controllers)

    # Filter

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """1 where a node lacks a constraint's key, 2 where its domain would have too many."""
        if not pod.spec.topology_spread_constraints and not self._has_hard_defaults:
            return None
        spread_constraints = self._resolve_constraints(pod, state, DO_NOT_SCHEDULE)
        if not spread_constraints:
            return None
        codes = np.zeros(state.row_limit, np.int64)
        for spread_constraint, counts, domains, _ in self._count_domains(
            pod, shape, state, spread_constraints, True
        ):
            values = state.labels.codes(spread_constraint.key, state.all_rows)
            min_count = 0
            if np.count_nonzero(domains) >= max(1, spread_constraint.min_domains):
                min_count = int(counts[domains].min())
            too_many = (
                counts + int(spread_constraint.matches(pod)) - min_count
                > spread_constraint.max_skew
            )
            verdict = np.where(
                values == 0, NO_LABEL, np.where(too_many[values], MAX_SKEW_EXCEEDED, 0)
            )
            codes = np.where(codes == 0, verdict, codes)
        return codes

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """How many are in a row's domains."""
        if not pod.spec.topology_spread_constraints and not self._has_hard_defaults:
            return None
        spread_constraints = self._resolve_constraints(pod, state, DO_NOT_SCHEDULE)
        if not spread_constraints:
            return None
        constraint_counts = [
            ConstraintCounts(state, *found)
            for found in self._count_domains(pod, shape, state, spread_constraints, True)
        ]
        conditions = [
            self._tally(pod, state, c.spread_constraint) or c.spread_constraint.matches
            for c in constraint_counts
        ]
        matcher = Matcher(conditions, state.tallies)
        return lambda row: SpreadDryRun(pod, constraint_counts, matcher, row)

    def is_permanent(self, codes: Ints) -> Bools:
        """What is uneven may become even."""
        lasting: Bools = codes == NO_LABEL
        return lasting

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """Only what pods have filled can pods leave again."""
        if code == NO_LABEL:
            return Rejection((f"{REASON} (missing required label)",))
        return Rejection((REASON,), resolvable=True)

    # Score

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Label the node, or allow a greater skew."""
        node = state.node_at(row)
        spread_constraints = self._resolve_constraints(pod, state, DO_NOT_SCHEDULE)
        constraint_counts = self._count_domains(pod, shape, state, spread_constraints, True)
        for i, (spread_constraint, counts, domains, _) in enumerate(constraint_counts):
            value = int(state.labels.codes(spread_constraint.key, state.all_rows)[row])
            if not value:
                text, labels = _label(spread_constraint.key, counts, domains, state)
                yield Fix(text, node=with_labels(node, {**(node.metadata.labels or {}), **labels}))
                return
            found = int(np.count_nonzero(domains))
            if max(1, found) < spread_constraint.min_domains:
                wanted = spread_constraint.min_domains
                text = f"there are {found} domains of {spread_constraint.key}, "
                text += f"minDomains wants {wanted}"
                yield Fix(
                    text,
                    pod=self._replace_constraint(
                        pod, spread_constraint, i, min_domains=max(1, found)
                    ),
                )
                return
            min_count = int(counts[domains].min()) if found else 0
            skew = int(counts[value]) + int(spread_constraint.matches(pod)) - min_count
            if skew > spread_constraint.max_skew:
                where = (
                    f"{spread_constraint.key}={(node.metadata.labels or {})[spread_constraint.key]}"
                )
                text = f"{where} has {counts[value]} of these pods, the emptiest {min_count}: "
                text += f"spread with maxSkew {spread_constraint.max_skew} would need {skew}"
                mended = self._replace_constraint(pod, spread_constraint, i, max_skew=skew)
                yield Fix(text, 1.0 + skew - spread_constraint.max_skew, pod=mended)
                return

    def _replace_constraint(
        self, pod: Pod, spread_constraint: SpreadConstraint, number: int, **fields: int
    ) -> Pod:
        """The pod with these fields in its hard constraint of that number; where it has none of its
        own, the profile's become its own."""
        own = pod.spec.topology_spread_constraints
        every = [*own] if own else [
            msgspec.structs.replace(default, label_selector=spread_constraint.selector)
            for default in self.default_constraints
        ]  # fmt: skip
        hard = [
            i
            for i, constraint in enumerate(every)
            if constraint.when_unsatisfiable == DO_NOT_SCHEDULE
        ]
        every[hard[number]] = msgspec.structs.replace(every[hard[number]], **fields)
        return with_spec(pod, topology_spread_constraints=tuple(every))

    def has_scores(self, pod: Pod, state: ClusterState) -> bool:
        """Where the pod says how, or somebody selects it."""
        own = pod.spec.topology_spread_constraints
        if own:
            return any(c.when_unsatisfiable == SCHEDULE_ANYWAY for c in own)
        return self._has_soft_defaults and state.pod_selectors.default_selector(pod) is not None

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """The fewer in its domains, the more; nodes that lack a key get nothing."""
        spread_constraints = self._resolve_constraints(pod, state, SCHEDULE_ANYWAY)
        if not spread_constraints:
            return None
        rows, require_all_topologies = state.all_rows, self._requires_all_topologies(pod)
        if (
            require_all_topologies
            and len(spread_constraints) == 1
            and spread_constraints[0].key != HOSTNAME
        ):
            return self._score_domains(pod, shape, state, spread_constraints[0], feasible)
        ignored = np.zeros(state.row_limit, np.bool_)
        if require_all_topologies:
            for spread_constraint in spread_constraints:
                ignored |= state.labels.codes(spread_constraint.key, rows) == 0
        judged = feasible & ~ignored
        total = np.zeros(state.row_limit, np.float64)
        wide = tuple(
            spread_constraint
            for spread_constraint in spread_constraints
            if spread_constraint.key != HOSTNAME
        )
        constraint_counts = self._count_domains(
            pod, shape, state, wide, require_all_topologies, spread_constraints
        )
        for spread_constraint in spread_constraints:
            values = state.labels.codes(spread_constraint.key, rows)
            if spread_constraint.key == HOSTNAME:
                size = int(np.count_nonzero(judged))
                tally = self._tally(pod, state, spread_constraint)
                found = np.zeros(state.row_limit, np.int64) if tally is None else tally.counts[rows]
                part = found * _weight(size) + (spread_constraint.max_skew - 1)
            else:
                size = int(np.count_nonzero(np.bincount(values[judged])))
                _, sums, _, _ = next(constraint_counts)  # in the order of the terms
                part = (sums * _weight(size) + (spread_constraint.max_skew - 1))[values]
            total += part if require_all_topologies else np.where(values > 0, part, 0.0)
        scores: Ints = np.floor(total + 0.5).astype(np.int64)
        among = scores[judged]
        if not len(among):
            return np.zeros(state.row_limit, np.int64)
        highest, lowest = int(among.max()), int(among.min())
        if highest == 0:
            return np.where(ignored, 0, MAX_NODE_SCORE)
        return np.where(ignored, 0, MAX_NODE_SCORE * (highest + lowest - scores) // highest)

    def _score_domains(
        self,
        pod: Pod,
        shape: Shape,
        state: ClusterState,
        spread_constraint: SpreadConstraint,
        feasible: Bools,
    ) -> Ints:
        """The same for one constraint: worked out once per domain, then looked up."""
        column = state.labels.columns.get(spread_constraint.key)
        if column is None:
            return np.zeros(state.row_limit, np.int64)
        values = column.codes[state.all_rows]
        if (
            spread_constraint.honors_taints
            or shape.node_selector
            or shape.node_affinity is not None
        ):
            ((_, sums, _, _),) = self._count_domains(pod, shape, state, (spread_constraint,), True)
        else:
            sums = self._sums(pod, state, spread_constraint)  # of all nodes that have the key
        # Nodes without the key are not judged.
        if feasible[feasible.argmin()]:  # all of them; a third of the time of all()
            codes = list(column.code_of.values())
        else:
            codes = [code for code in np.unique(values[feasible]).tolist() if code]
        weight, counts, extra = _weight(len(codes)), sums.tolist(), spread_constraint.max_skew - 1
        scores = [math.floor(counts[c] * weight + extra + 0.5) for c in codes]
        highest, lowest = max(scores, default=0), min(scores, default=0)
        points = [0] * column.code_count
        for code, score in zip(codes, scores, strict=True):
            points[code] = (
                MAX_NODE_SCORE * (highest + lowest - score) // highest
                if highest
                else MAX_NODE_SCORE
            )
        result: Ints = np.array(points, np.int64)[values]
        return result

    # What is counted

    def _resolve_constraints(
        self, pod: Pod, state: ClusterState, action: str
    ) -> tuple[SpreadConstraint, ...]:
        own = pod.spec.topology_spread_constraints
        if own:
            check_count(len(own), TERMS_MAX, "topology spread constraints")
            return tuple(resolve_constraint(c, pod) for c in own if c.when_unsatisfiable == action)
        chosen = [c for c in self.default_constraints if c.when_unsatisfiable == action]
        selector = state.pod_selectors.default_selector(pod) if chosen else None
        if selector is None:
            return ()
        return tuple(resolve_constraint(c, pod)._replace(selector=selector) for c in chosen)

    def _requires_all_topologies(self, pod: Pod) -> bool:
        return bool(pod.spec.topology_spread_constraints) or not self.is_system_defaulted

    def _tally(
        self, pod: Pod, state: ClusterState, spread_constraint: SpreadConstraint
    ) -> Tally | None:
        """The pods that the selector takes; None where it takes none."""
        if spread_constraint.selector is None or not (
            spread_constraint.selector.match_labels or spread_constraint.selector.match_expressions
        ):
            return None
        where = frozenset((pod.metadata.namespace,))
        return state.tally((where, spread_constraint.selector), live=True)

    def _sums(self, pod: Pod, state: ClusterState, spread_constraint: SpreadConstraint) -> Ints:
        """int64[value codes of the key]: pods per domain, of all nodes."""
        tally = self._tally(pod, state, spread_constraint)
        if tally is None:
            return np.zeros(state.labels.code_count(spread_constraint.key), np.int64)
        return tally.domain_counts(spread_constraint.key)

    @staticmethod
    def _domains(state: ClusterState, key: str, size: int) -> Bools:
        """bool[size]: value codes that some node has."""
        column = state.labels.columns.get(key)
        return np.zeros(size, np.bool_) if column is None else column.used_codes

    def _count_domains(
        self,
        pod: Pod,
        shape: Shape,
        state: ClusterState,
        spread_constraints: tuple[SpreadConstraint, ...],
        require_all_topologies: bool,
        key_constraints: tuple[SpreadConstraint, ...] = (),
    ) -> Iterator[tuple[SpreadConstraint, Ints, Bools, Bools]]:
        """Each term with the pods per domain, which domains there are (both by value code), and
        which nodes count (by row).

        `every`: nodes that lack a key of one of these terms, or of `keyed`, do not count.
        """
        rows = state.all_rows
        eligible = state.present[rows]
        if require_all_topologies:
            for spread_constraint in key_constraints or spread_constraints:
                eligible = eligible & (state.labels.codes(spread_constraint.key, rows) > 0)
        affine: Bools | None = None
        untolerated: Bools | None = None
        if any(t.honors_affinity for t in spread_constraints):
            affine = required_rows(shape, state)
        if any(t.honors_taints for t in spread_constraints):
            untolerated = untolerated_rows(shape, state, self.has_comparison_operators)
        full = bool(eligible.all())
        for spread_constraint in spread_constraints:
            mask = eligible
            size = state.labels.code_count(spread_constraint.key)
            bare = not (spread_constraint.honors_affinity and affine is not None) and not (
                spread_constraint.honors_taints and untolerated is not None
            )
            if full and bare:  # all nodes count: their sums are kept
                sums = self._sums(pod, state, spread_constraint)
                yield (
                    spread_constraint,
                    sums,
                    self._domains(state, spread_constraint.key, size),
                    eligible,
                )
                continue
            if spread_constraint.honors_affinity and affine is not None:
                mask = mask & affine
            if spread_constraint.honors_taints and untolerated is not None:
                mask = mask & ~untolerated
            codes = state.labels.codes(spread_constraint.key, rows)[mask]
            domains = np.bincount(codes, minlength=size) > 0
            tally = self._tally(pod, state, spread_constraint)
            if tally is None:
                yield spread_constraint, np.zeros(size, np.int64), domains, mask
                continue
            # Pods are far fewer than the 2^53 that float64 counts exactly.
            counts = np.bincount(codes, weights=tally.counts[rows][mask], minlength=size)
            yield spread_constraint, counts.astype(np.int64), domains, mask

    # Hints

    def hint_pod(self, pod: Pod, shape: Shape, event: ClusterEvent) -> bool:
        """Nodes with the keys, and pods that the constraints count."""
        own = pod.spec.topology_spread_constraints
        hard = [
            c for c in own or self.default_constraints if c.when_unsatisfiable == DO_NOT_SCHEDULE
        ]
        spread_constraints = tuple(resolve_constraint(c, pod) for c in hard)
        if event.node is not None or event.old_node is not None:
            return _is_schedulable_after_node_change(spread_constraints, event.old_node, event.node)
        if event.change & Change.OWN_TOLERATIONS and any(
            t.honors_taints for t in spread_constraints
        ):
            return True
        old, new = event.old_pod, event.pod
        for other in (old, new):
            if other is not None and other.metadata.namespace != pod.metadata.namespace:
                return False
        if not own:
            return True  # by defaults: whom they count is known to the state alone
        if event.change & Change.OWN_LABELS and is_match_label_changed(own, old, new):
            return True
        if old is not None and new is not None:
            return any(t.matches(old) != t.matches(new) for t in spread_constraints)
        other = new or old
        return other is not None and any(t.matches(other) for t in spread_constraints)


def _label(
    key: str, counts: Ints, domains: Bools, state: ClusterState
) -> tuple[str, dict[str, str]]:
    """What a node lacks that is in no domain, and the label that puts it into the emptiest."""
    codes = state.labels.codes(key, state.all_rows)
    values = {
        int(codes[r]): (state.node_at(r).metadata.labels or {}).get(key, "")
        for r in state.present_rows()
    }
    known = sorted(
        (int(counts[c]), values[c]) for c in np.flatnonzero(domains).tolist() if c in values
    )
    if not known:
        return f"{NODE_FIELD} lacks the label {key}", {key: "a"}
    value = known[0][1]
    return f"{NODE_FIELD} lacks the label {key} (with {value}, say)", {key: value}


def _is_schedulable_after_node_change(
    spread_constraints: tuple[SpreadConstraint, ...], old: Node | None, new: Node | None
) -> bool:
    def labels(node: Node | None) -> Mapping[str, str]:
        return (node.metadata.labels if node is not None else None) or _NO_LABELS

    before = old is not None and all(t.key in labels(old) for t in spread_constraints)
    after = new is not None and all(t.key in labels(new) for t in spread_constraints)
    if old is None or new is None:
        return before or after
    if before != after:
        return True
    moved = any(labels(old).get(t.key) != labels(new).get(t.key) for t in spread_constraints)
    return after and (moved or (old.spec.taints or ()) != (new.spec.taints or ()))


@lru_cache(4096)
def _weight(size: int) -> float:
    """The logarithm that keeps small topologies from being drowned by large ones."""
    return math.log(size + 2)
