"""Law `admissions`: a kubelet admits each pod that the scheduler binds to its node."""

from typing import Final

from stower.framework.events import WatchType
from stower.model.kinds import Node, Pod
from stower.model.kubelet_admission import NODE_AFFINITY, NODE_PORTS, OUT_OF, TAINTS, requested
from stower.model.resources import node_room
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker, Court
from stower.sim.server import Change

# A bind was decided at most so long before it was carried out: on what was there then, a message
# that is late, a scheduler that is frozen and the retries of the write included.
DECIDED_NS: Final = 120 * SECOND_NS
# What changes on a node, and which of it each reason is about.
ROOM, PODS, LABELS, TAINTED = "room", "pods", "labels", "taints"
CONCERNS: Final = {NODE_PORTS: (PODS,), NODE_AFFINITY: (LABELS,), TAINTS: (TAINTED,)}


class Admissions(Checker):
    """Compares each rejection of a kubelet with what changed on the node since the bind.

    No bind causes a rejection, unless what it is about has changed since: for want of room, the
    node has less allocatable, a pod of it was resized, or a pod was created on it with `nodeName`
    set; for ports, such a pod; for affinity, its labels; for taints, its taints. A node that comes
    anew is another one.
    """

    law = "admissions"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._pods: dict[str, Pod] = {}
        self._nodes: dict[str, Node] = {}
        self._bound_ns: dict[str, int] = {}  # by uid of the pod
        # By node, and by what changed there: when that happened last.
        self._changed_ns: dict[tuple[str, str], int] = {}

    def on_change(self, change: Change) -> None:
        """Record changes of nodes, and look at each pod that a kubelet rejects."""
        _, kind, obj = change
        if isinstance(obj, Node):
            self._record_node(kind, obj)
        elif isinstance(obj, Pod):
            self._record_pod(kind, obj)

    def _record_node(self, kind: WatchType, node: Node) -> None:
        name, before = node.metadata.name, self._nodes.pop(node.metadata.name, None)
        if kind is not WatchType.DELETED:
            self._nodes[name] = node
        for what in _changes(before, node):
            self._changed_ns[name, what] = self.court.agenda.now_ns

    def _record_pod(self, kind: WatchType, pod: Pod) -> None:
        uid, name = pod.metadata.uid, pod.spec.node_name
        before = self._pods.pop(uid, None)
        if kind is WatchType.DELETED:
            self._bound_ns.pop(uid, None)
            return
        self._pods[uid] = pod
        if not name:
            return
        now_ns = self.court.agenda.now_ns
        self._bound_ns.setdefault(uid, now_ns)
        was_created_there = kind is WatchType.ADDED and before is None
        was_resized = (
            before is not None
            and bool(before.spec.node_name)
            and before.spec.containers != pod.spec.containers
        ) or (before is not None and requested(before) != requested(pod))
        if was_created_there:
            self._changed_ns[name, PODS] = now_ns
        if was_resized:
            self._changed_ns[name, ROOM] = now_ns
        if pod.status.phase == "Failed" and (before is None or before.status.phase != "Failed"):
            self._check_rejection(pod)

    def _check_rejection(self, pod: Pod) -> None:
        reason, name = pod.status.reason, pod.spec.node_name
        if not reason.startswith(OUT_OF) and reason not in CONCERNS:
            return
        since_ns = max(self._bound_ns[pod.metadata.uid] - DECIDED_NS, 0)
        concerns = (ROOM, PODS) if reason.startswith(OUT_OF) else CONCERNS[reason]
        if any(self._changed_ns.get((name, what), 0) > since_ns for what in concerns):
            return
        raise self.violation(
            f"pod {pod.key} is rejected by the kubelet of node {name} with {reason}, but nothing "
            "changed there since it was bound"
        )


def _changes(old: Node | None, new: Node) -> list[str]:
    """Returns what is not as it was, and may keep a pod from the node."""
    if old is None:
        return [ROOM, PODS, LABELS, TAINTED]
    had, has = node_room(old.status.allocatable), node_room(new.status.allocatable)
    found = [ROOM] if any(has.get(name, 0) < amount for name, amount in had.items()) else []
    if (old.metadata.labels or {}) != (new.metadata.labels or {}):
        found.append(LABELS)
    if (old.spec.taints or ()) != (new.spec.taints or ()):
        found.append(TAINTED)
    return found
