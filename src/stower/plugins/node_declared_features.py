"""NodeDeclaredFeatures: a pod that needs what only some kubelets can do goes to one of these.

Source: kube-scheduler plugins/nodedeclaredfeatures; component-helpers nodedeclaredfeatures;
KEP-5328.
"""

from collections.abc import Iterable

import msgspec
import numpy as np

from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.fixes import NODE_FIELD, Fix
from stower.framework.plugin import Plugin
from stower.model.kinds import Pod
from stower.state.arrays import Ints, Rows
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape


class NodeDeclaredFeatures(Plugin):
    """Refuse nodes that do not declare all that the pod needs."""

    name = "NodeDeclaredFeatures"
    reasons = ("node(s) didn't match Pod's required features",)
    events_to_register = Change.NODE_ADDED | Change.NODE_FEATURES

    def filter(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """1 where something is not declared."""
        if not shape.required_features:
            return None
        column = state.declared_features
        missing = np.ones(column.code_count, np.int64)
        for declared, code in column.code_of.items():
            missing[code] = not shape.required_features <= set(declared)
        return missing[column.codes[rows]]

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Have a kubelet that can do it."""
        node = state.node_at(row)
        declared = set(node.status.declared_features or ())
        missing = sorted(shape.required_features - declared)
        status = msgspec.structs.replace(
            node.status, declared_features=(*sorted(declared), *missing)
        )
        text = f"the kubelet of {NODE_FIELD} lacks {', '.join(missing)}"
        yield Fix(text, 2.0, node=msgspec.structs.replace(node, status=status))

    def hint(self, shape: Shape, event: ClusterEvent) -> bool:
        """Wake for a node that declares all of it."""
        node = event.node
        return node is not None and shape.required_features <= set(
            node.status.declared_features or ()
        )
