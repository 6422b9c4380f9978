"""Handles watch events of nodes: updates the state, and wakes waiting pods.

Must not know how pods are scheduled.

Source: kube-scheduler eventhandlers.go.
"""

from typing import Protocol

from stower.engine.context import Context
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.framework.cluster_events import Change, ClusterEvent, node_change, node_event
from stower.model.errors import InvalidObject
from stower.model.kinds import Node


class DomainObserver(Protocol):
    """Receives changed topology domains; attached if groups are used."""

    def on_domain_change(self) -> None:
        """Called when a node's labels have changed."""


class NodeEvents:
    """Applies nodes that watches show."""

    def __init__(self, context: Context, queue: SchedulingQueue) -> None:
        self._state = context.state
        self._queue = queue
        self.groups: DomainObserver | None = None

    def handle_node(self, node: Node) -> None:
        """Applies a node that came or changed. A node with an unreadable quantity counts as
        deleted: no pod can be placed on it."""
        state = self._state
        row = state.row_of(node.metadata.name)
        old = state.nodes[row] if row >= 0 else None
        try:
            if not state.set_node(node):
                return
        except InvalidObject:
            self.handle_deletion(node.metadata.name)
            return
        state.renew_partial_shapes()
        if old is not None and old.metadata.labels != node.metadata.labels:
            if self.groups is not None:
                self.groups.on_domain_change()
        change = node_change(old, node)
        if change and self._queue.is_waiting:
            resources = state.devices.class_by_resource
            self._queue.wake(node_event(change, old, node, resources), state.now_ns)

    def handle_deletion(self, name: str) -> None:
        """Removes a node."""
        state = self._state
        row = state.row_of(name)
        old = state.nodes[row] if row >= 0 else None
        if state.remove_node(name) and self._queue.is_waiting:
            self._queue.wake(ClusterEvent(Change.NODE_DELETED, old_node=old), state.now_ns)

    def keep_only(self, names: set[str]) -> None:
        """Removes all nodes but these."""
        for row in self._state.present_rows():
            if self._state.node_names[row] not in names:
                self.handle_deletion(self._state.node_names[row])
