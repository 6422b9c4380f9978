"""NodeUnschedulable: keeps pods off cordoned nodes.

Source: kube-scheduler plugins/nodeunschedulable; the reason text is verbatim.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.fixes import NODE_FIELD, Fix
from stower.framework.plugin import Plugin
from stower.model.kinds import Pod
from stower.model.taints import NO_SCHEDULE, Taint, is_tolerated
from stower.state.arrays import Ints, Rows
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class NodeUnschedulable(Plugin):
    """Rejects cordoned nodes, unless the pod tolerates the taint of cordoned nodes."""

    name = "NodeUnschedulable"
    reasons = ("node(s) were unschedulable",)
    events_to_register = Change.NODE_ADDED | Change.NODE_TAINTS | Change.OWN_TOLERATIONS

    def filter(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Rejects cordoned rows (code 1)."""
        if is_tolerated(shape.tolerations, TAINT):
            return None
        return state.unschedulable[rows].astype(np.int64)

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Suggests uncordoning the node."""
        node = state.node_at(row)
        taints = tuple(taint for taint in node.spec.taints or () if taint.key != TAINT.key)
        spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=taints)
        yield Fix(f"{NODE_FIELD} is cordoned", node=msgspec.structs.replace(node, spec=spec))

    def hint(self, shape: Shape, event: ClusterEvent) -> bool:
        """Requeues the pod for a node that is no longer cordoned, or a toleration of the taint."""
        if event.node is None:
            return is_tolerated(shape.tolerations, TAINT)
        was_rejected = event.old_node is None or event.old_node.spec.unschedulable
        return was_rejected and not event.node.spec.unschedulable
