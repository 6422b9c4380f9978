"""ScalarPlugin: base class for third-party plugins that filter and score one node at a time.

A subclass implements `filter_node`, `score_node` or both, and nothing else. Each is called for
every node and every pod, at some 2 µs a call in addition to its own work. Where that is too slow,
implement Plugin, whose methods work on all nodes at once.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from stower.framework.plugin import Plugin, Scope
from stower.framework.reasons import Rejection
from stower.model.kinds import Node, Pod
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

# Distinct reason texts that a plugin may have; further texts become OTHER_REASONS.
TEXTS_MAX: Final = 1_000
OTHER_REASONS: Final = "node(s) were refused for other reasons"


class ScalarPlugin(Plugin):
    """A plugin in terms of single nodes. Subclasses override `filter_node`, `score_node` or both,
    and set `resolvable` where evictions may lift a rejection."""

    scope = Scope.PODS

    def filter_node(self, pod: Pod, node: Node, pods: Sequence[Pod]) -> str:
        """Returns "" where the pod may go to the node, else the reason why not. `pods`: the pods
        that are placed on the node."""
        return ""

    def score_node(self, pod: Pod, node: Node, pods: Sequence[Pod]) -> int:
        """Returns a score of 0 to 100; higher is better. `pods`: the pods that are placed on the
        node."""
        return 0

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Implements Plugin.filter_pod: each distinct reason has a code."""
        if type(self).filter_node is ScalarPlugin.filter_node:
            return None
        codes = np.zeros(state.row_limit, np.int64)
        for row in state.present_rows():
            node = state.nodes[row]
            assert node is not None
            text = self.filter_node(pod, node, [e.pod for e in state.pods_on(row)])
            if not isinstance(text, str):
                raise TypeError(f"filter_node returned {type(text).__name__}, want str")
            if text:
                codes[row] = self._code_of(text)
        return codes

    def has_scores(self, pod: Pod, state: ClusterState) -> bool:
        """Implements Plugin.has_scores: whether the subclass overrides `score_node`."""
        return type(self).score_node is not ScalarPlugin.score_node

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """Implements Plugin.score_pod, for feasible nodes only."""
        if not self.has_scores(pod, state):
            return None
        scores = np.zeros(state.row_limit, np.int64)
        for row in np.flatnonzero(feasible).tolist():
            node = state.nodes[row]
            assert node is not None
            scores[row] = self.score_node(pod, node, [e.pod for e in state.pods_on(row)])
        return scores

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """Implements Plugin.rejection: returns the reason that a code stands for."""
        return Rejection((self._reasons()[code - 1],), self.resolvable)

    def _reasons(self) -> list[str]:
        texts: list[str] = self.__dict__.setdefault("_reason_texts", [])
        return texts

    def _code_of(self, text: str) -> int:
        texts = self._reasons()
        if len(texts) >= TEXTS_MAX and text not in texts:
            text = OTHER_REASONS
        if text not in texts:
            texts.append(text)
        return texts.index(text) + 1
