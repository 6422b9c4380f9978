"""TaintToleration: rejects nodes with untolerated taints; prefers nodes with few soft taints.

Source: kube-scheduler plugins/tainttoleration; KEP-5471 for Lt and Gt.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.fixes import NODE_FIELD, Fix, with_spec
from stower.framework.plugin import Features, Normalize, Plugin
from stower.model.kinds import Pod
from stower.model.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    Taint,
    Toleration,
    is_tolerated,
)
from stower.plugins.bounds import TOLERATIONS_MAX, check_count
from stower.state.arrays import Bools, Ints, Rows
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape


def untolerated_rows(
    shape: Shape, state: ClusterState, has_comparison_operators: bool
) -> Bools | None:
    """Returns bool[row_limit]: nodes with an untolerated hard taint; None if there are none."""
    codes = TaintToleration(has_comparison_operators).filter(shape, state, state.all_rows)
    return None if codes is None else codes != 0


class TaintToleration(Plugin):
    """Rejects nodes with untolerated hard taints; scores by the number of untolerated soft taints.

    Hard taints are NoSchedule and NoExecute, soft taints PreferNoSchedule.

    Each distinct set of taints is evaluated once, so that the cost does not grow with the taints
    per node.
    """

    name = "TaintToleration"
    normalize = Normalize.BY_MAXIMUM_REVERSED
    reasons = ("node(s) had untolerated taint(s)",)
    events_to_register = Change.NODE_ADDED | Change.NODE_TAINTS | Change.OWN_TOLERATIONS

    def __init__(self, has_comparison_operators: bool = False) -> None:
        """`has_comparison_operators`: admits the operators Lt and Gt
        (TaintTolerationComparisonOperators)."""
        self.has_comparison_operators = has_comparison_operators

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "TaintToleration":
        """Reads a feature gate; the plugin has no arguments."""
        return cls(features.taint_toleration_comparison_operators)

    def filter(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Rejects rows (code 1) with an untolerated NoSchedule or NoExecute taint."""
        check_count(len(shape.tolerations), TOLERATIONS_MAX, "tolerations")
        return self._evaluate_taint_sets(
            state, rows, lambda taints: int(self._has_untolerated_taint(taints, shape))
        )

    def score(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Counts the PreferNoSchedule taints that are not tolerated."""
        return self._evaluate_taint_sets(
            state, rows, lambda taints: self._count_intolerable_soft_taints(taints, shape)
        )

    def _evaluate_taint_sets(
        self, state: ClusterState, rows: Rows, evaluate: Callable[[tuple[Taint, ...]], int]
    ) -> Ints | None:
        """Returns int64[rows]: the result for each row's set of taints; None if all are 0."""
        taints = state.taints
        codes = taints.codes[rows]
        results = np.zeros(taints.code_count, np.int64)
        has_few_rows = len(codes) < len(taints.code_of)
        for code in sorted(set(codes.tolist())) if has_few_rows else taints.code_of.values():
            if code:
                results[code] = evaluate(taints.values[code] or ())
        return results[codes] if results.any() else None

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Suggests that the pod tolerates the node's taints."""
        taints = [
            taint
            for taint in state.node_at(row).spec.taints or ()
            if self._has_untolerated_taint((taint,), shape)
        ]
        names = ", ".join(map(str, taints))
        tolerations = (Toleration(t.key, "Equal", t.value, t.effect) for t in taints)
        tolerating_pod = with_spec(pod, tolerations=(*(pod.spec.tolerations or ()), *tolerations))
        yield Fix(
            f"the pod does not tolerate {names} of {NODE_FIELD}",
            float(len(taints)),
            pod=tolerating_pod,
        )

    def hint(self, shape: Shape, event: ClusterEvent) -> bool:
        """Requeues the pod for a node with taints that it now tolerates, or a new toleration."""
        if event.node is None:
            return True
        old = event.old_node
        was_rejected = old is None or self._has_untolerated_taint(old.spec.taints or (), shape)
        return was_rejected and not self._has_untolerated_taint(event.node.spec.taints or (), shape)

    def _has_untolerated_taint(self, taints: tuple[Taint, ...], shape: Shape) -> bool:
        return any(
            taint.effect in (NO_SCHEDULE, NO_EXECUTE)
            and not is_tolerated(shape.tolerations, taint, self.has_comparison_operators)
            for taint in taints
        )

    def _count_intolerable_soft_taints(self, taints: tuple[Taint, ...], shape: Shape) -> int:
        soft = tuple(t for t in shape.tolerations if t.effect in ("", PREFER_NO_SCHEDULE))
        return sum(
            taint.effect == PREFER_NO_SCHEDULE
            and not is_tolerated(soft, taint, self.has_comparison_operators)
            for taint in taints
        )
