"""NodeDeclaredFeatures: keeps pods off nodes whose kubelet lacks a feature that the pod requires.

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
    """Rejects nodes that do not declare all features that the pod requires."""

    name = "NodeDeclaredFeatures"
    reasons = ("node(s) didn't match Pod's required features",)
    events_to_register = Change.NODE_ADDED | Change.NODE_FEATURES

    def filter(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Rejects nodes (code 1) without a required feature."""
        if not shape.required_features:
            return None
        column = state.declared_features
        missing = np.ones(column.code_count, np.int64)
        for declared, code in column.code_of.items():
            missing[code] = not shape.required_features <= set(declared)
        return missing[column.codes[rows]]

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Suggests a kubelet that declares the missing features."""
        node = state.node_at(row)
        declared = set(node.status.declared_features or ())
        missing = sorted(shape.required_features - declared)
        status = msgspec.structs.replace(
            node.status, declared_features=(*sorted(declared), *missing)
        )
        text = f"the kubelet of {NODE_FIELD} lacks {', '.join(missing)}"
        yield Fix(text, 2.0, node=msgspec.structs.replace(node, status=status))

    def hint(self, shape: Shape, event: ClusterEvent) -> bool:
        """Requeues the pod for a node that declares all required features."""
        node = event.node
        return node is not None and shape.required_features <= set(
            node.status.declared_features or ()
        )
