"""NodeName: restricts a pod with spec.nodeName to that node.

Source: kube-scheduler plugins/nodename.
"""

from collections.abc import Iterable

import numpy as np

from stower.framework.cluster_events import Change
from stower.framework.fixes import Fix, with_spec
from stower.framework.plugin import Plugin
from stower.model.kinds import Pod
from stower.state.arrays import Ints, Rows
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape


class NodeName(Plugin):
    """Rejects all nodes but the one in spec.nodeName."""

    name = "NodeName"
    reasons = ("node(s) didn't match the requested node name",)
    events_to_register = Change.NODE_ADDED

    def filter(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Rejects all rows (code 1) but the named node's."""
        if not shape.node_name:
            return None
        codes = np.ones(state.capacity, np.int64)
        named_row = state.row_of(shape.node_name)
        if named_row >= 0:
            codes[named_row] = 0
        return codes[rows]

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Suggests removing spec.nodeName."""
        text = f"spec.nodeName is {pod.spec.node_name}"
        yield Fix(text, 2.0, pod=with_spec(pod, node_name=""))
