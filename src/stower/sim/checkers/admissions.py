"""Law `admissions`: a kubelet admits each pod that the scheduler binds to its node."""

from typing import Final

from stower.framework.events import WatchType
from stower.model.kinds import Node, Pod
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker, Court
from stower.sim.kubelet_admission import NODE_AFFINITY, NODE_PORTS, OUT_OF, TAINTS, requested
from stower.sim.server import Change

# A bind was decided at most so long before it was carried out: on what was there then, a message
# that is late, a scheduler that is frozen and the retries of the write included.
DECIDED_NS: Final = 120 * SECOND_NS
REASONS: Final = (NODE_PORTS, NODE_AFFINITY, TAINTS)


class Admissions(Checker):
    """Compares each rejection of a kubelet with what changed on the node since the bind.

    No bind causes a rejection, unless the node has changed since: its allocatable, its labels or
    its taints, a pod of it was resized, or a pod was created on it with `nodeName` set.
    """

    law = "admissions"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._pods: dict[str, Pod] = {}
        self._nodes: dict[str, Node] = {}
        self._bound_ns: dict[str, int] = {}  # by uid of the pod
        self._changed_ns: dict[str, int] = {}  # by node: when anything named above happened last

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
        if before is None or not _is_alike(before, node):
            self._changed_ns[name] = self.court.agenda.now_ns

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
        if was_created_there or was_resized:
            self._changed_ns[name] = now_ns
        if pod.status.phase == "Failed" and (before is None or before.status.phase != "Failed"):
            self._check_rejection(pod)

    def _check_rejection(self, pod: Pod) -> None:
        reason, name = pod.status.reason, pod.spec.node_name
        if not reason.startswith(OUT_OF) and reason not in REASONS:
            return
        since_ns = self._bound_ns[pod.metadata.uid] - DECIDED_NS
        if self._changed_ns.get(name, 0) > max(since_ns, 0):
            return
        raise self.violation(
            f"pod {pod.key} is rejected by the kubelet of node {name} with {reason}, but nothing "
            "changed there since it was bound"
        )


def _is_alike(old: Node, new: Node) -> bool:
    return (
        old.status.allocatable == new.status.allocatable
        and (old.metadata.labels or {}) == (new.metadata.labels or {})
        and (old.spec.taints or ()) == (new.spec.taints or ())
    )
