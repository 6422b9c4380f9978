"""MaxPerOwner: at most so many pods of one owner on a node. One node at a time."""

from collections.abc import Mapping, Sequence
from typing import Any

from stower.framework.args import Args, convert_args, invalid
from stower.framework.cluster_events import Change
from stower.framework.plugin import Features
from stower.framework.scalar_plugin import ScalarPlugin
from stower.model.kinds import Node, Pod


class MaxPerOwnerArgs(Args, frozen=True, rename="camel"):
    """Arguments in a KubeSchedulerConfiguration."""

    max_pods: int = 3


class MaxPerOwner(ScalarPlugin):
    """Refuse nodes that have enough pods with the same label `owner`."""

    name = "MaxPerOwner"
    resolvable = True  # a pod that leaves makes room
    events_to_register = Change.NODE_ADDED | Change.PLACED_POD_DELETED

    def __init__(self, max_pods: int = 3) -> None:
        self.max_pods = max_pods

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "MaxPerOwner":
        """maxPods: 1 or more."""
        read = convert_args(args, MaxPerOwnerArgs, path)
        if read.max_pods < 1:
            raise invalid(f"{path}.maxPods", read.max_pods, "must be 1 or more")
        return cls(read.max_pods)

    def filter_node(self, pod: Pod, node: Node, pods: Sequence[Pod]) -> str:
        """Count the pods of the same owner."""
        owner = (pod.metadata.labels or {}).get("owner")
        if owner is None:
            return ""
        count = sum((other.metadata.labels or {}).get("owner") == owner for other in pods)
        return "" if count < self.max_pods else "node(s) had enough pods of the owner"
