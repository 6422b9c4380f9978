"""NodeUnschedulable: keep pods off cordoned nodes.

Source: kube-scheduler plugins/nodeunschedulable; reason text kept verbatim.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from stower.framework.cluster_events import Change, Happened
from stower.framework.fixes import NODE, Fix
from stower.framework.plugin import Plugin
from stower.model.kinds import Pod
from stower.model.taints import NO_SCHEDULE, Taint, tolerated
from stower.state.arrays import Ints, Rows
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class NodeUnschedulable(Plugin):
    """Refuse cordoned nodes, unless the pod tolerates the taint that stands for it."""

    name = "NodeUnschedulable"
    reasons = ("node(s) were unschedulable",)
    wakes_on = Change.NODE_ADDED | Change.NODE_TAINTS | Change.OWN_TOLERATIONS

    def filter(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """1 on cordoned rows."""
        if tolerated(shape.tolerations, TAINT):
            return None
        return state.unschedulable[rows].astype(np.int64)

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Uncordon the node."""
        node = state.node_at(row)
        taints = tuple(taint for taint in node.spec.taints or () if taint.key != TAINT.key)
        spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=taints)
        yield Fix(f"{NODE} is cordoned", node=msgspec.structs.replace(node, spec=spec))

    def hint(self, shape: Shape, happened: Happened) -> bool:
        """Wake for a node that is no longer cordoned, or a toleration that covers it."""
        if happened.node is None:
            return tolerated(shape.tolerations, TAINT)
        was = happened.old_node is None or happened.old_node.spec.unschedulable
        return was and not happened.node.spec.unschedulable
