"""ScalarPlugin: a plugin that looks at one node at a time.

For plugins of one's own: write `filter_node`, `score_node` or both, and nothing else is needed.
Each is called for every node and every pod, some 2 µs a call beside its own work; where that is too
slow, write a Plugin, whose methods see all nodes at once.
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

# Texts of refusals that are told apart; a plugin that makes up more is cut short.
TEXTS_MAX: Final = 1_000
OTHER_REASONS: Final = "node(s) were refused for other reasons"


class ScalarPlugin(Plugin):
    """Override `filter_node`, `score_node` or both. `resolvable`: whether evictions might help."""

    scope = Scope.PODS

    def filter_node(self, pod: Pod, node: Node, pods: Sequence[Pod]) -> str:
        """ "" where the pod may go to the node, on which these pods are; else why not."""
        return ""

    def score_node(self, pod: Pod, node: Node, pods: Sequence[Pod]) -> int:
        """0 to 100: the more, the better the node."""
        return 0

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """A code for each text."""
        if type(self).filter_node is ScalarPlugin.filter_node:
            return None
        codes = np.zeros(state.row_limit, np.int64)
        for row in state.present_rows():
            node = state.nodes[row]
            assert node is not None
            text = self.filter_node(pod, node, [e.pod for e in state.pods_on(row)])
            if not isinstance(text, str):
                raise TypeError(f"filter_node gave {type(text).__name__}, want str")
            if text:
                codes[row] = self._code_of(text)
        return codes

    def has_scores(self, pod: Pod, state: ClusterState) -> bool:
        """Where it scores at all."""
        return type(self).score_node is not ScalarPlugin.score_node

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """Of the feasible nodes."""
        if not self.has_scores(pod, state):
            return None
        scores = np.zeros(state.row_limit, np.int64)
        for row in np.flatnonzero(feasible).tolist():
            node = state.nodes[row]
            assert node is not None
            scores[row] = self.score_node(pod, node, [e.pod for e in state.pods_on(row)])
        return scores

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """The text of a code."""
        return Rejection((self._texts()[code - 1],), self.resolvable)

    def _texts(self) -> list[str]:
        texts: list[str] = self.__dict__.setdefault("_said", [])
        return texts

    def _code_of(self, text: str) -> int:
        texts = self._texts()
        if len(texts) >= TEXTS_MAX and text not in texts:
            text = OTHER_REASONS
        if text not in texts:
            texts.append(text)
        return texts.index(text) + 1
