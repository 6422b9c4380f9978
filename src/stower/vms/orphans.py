"""Knows the pods of nodes that are deleted, for as long as the pods exist.

Where the node comes back before they are gone, they count there before anything is approved on it.
"""

from collections.abc import Iterable
from typing import Final

NODES_MAX: Final = 10_000  # the nodes that were deleted first are forgotten


class Orphans:
    """Uids of pods by the name of their deleted node."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, None]] = {}
        self._nodes: dict[str, str] = {}  # name of the node by uid of the pod

    def add(self, node_name: str, uids: Iterable[str]) -> None:
        """Records the pods of a node that is deleted."""
        for uid in uids:
            self.drop(uid)
            self._nodes[uid] = node_name
            self._pods.setdefault(node_name, {})[uid] = None
        while len(self._pods) > NODES_MAX:
            self.take(next(iter(self._pods)))

    def take(self, node_name: str) -> list[str]:
        """Returns the pods of a node that came back, and forgets them."""
        uids = [*self._pods.get(node_name, ())]
        for uid in uids:
            self.drop(uid)
        return uids

    def drop(self, uid: str) -> None:
        """Forgets a pod."""
        node_name = self._nodes.pop(uid, None)
        if node_name is not None:
            del self._pods[node_name][uid]
            if not self._pods[node_name]:
                del self._pods[node_name]
