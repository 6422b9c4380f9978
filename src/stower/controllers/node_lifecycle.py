"""Node lifecycle controller: taints nodes that are not ready and evicts pods without a toleration.

Also deletes the pods of nodes that no longer exist.

Source: pkg/controller/nodelifecycle, pkg/controller/tainteviction, pkg/controller/podgc.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from stower.controllers.node_status import LEASES
from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from stower.controllers.pods import condition, evict, is_finished
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.model.taints import Taint, Toleration, tolerates
from stower.model.times import SECOND_NS, time_ns, time_text

GRACE_NS: Final = 50 * SECOND_NS  # kube-controller-manager --node-monitor-grace-period
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
OURS: Final = (UNREACHABLE, NOT_READY, UNSCHEDULABLE)
UNKNOWN: Final = {"status": "Unknown", "reason": "NodeStatusUnknown",
                  "message": "Kubelet stopped posting node status."}  # fmt: skip
# A pod whose node was not listed yet would look like one of a node that is gone.
GONE_NS: Final = 20 * SECOND_NS


class NodeLifecycleController(BaseController):
    """Keys: node/NAME and pod/NAMESPACE/NAME."""

    name = "node-lifecycle-controller"
    kinds = ("nodes", "pods", "leases")

    def __init__(self) -> None:
        self._alive: dict[str, tuple[str, int]] = {}  # renewTime, and when it was seen
        self._tainted: dict[tuple[str, str, str], int] = {}  # seen since, of those without a time
        self._missing: dict[str, int] = {}  # nodes that pods name and nobody knows, and since when

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The node, or the pod; all pods of a node whose taints have changed."""
        if kind == "leases":
            return (f"node/{name_of(obj)}",) if namespace_of(obj) == LEASES else ()
        if kind == "pods":
            return (f"pod/{key_of(obj)}",) if obj["spec"].get("nodeName") else ()
        keys = [f"node/{name_of(obj)}"]
        taints = _no_execute(obj)
        lost = _is_lost(obj)
        if old is None or old is obj or taints != _no_execute(old) or lost != _is_lost(old):
            keys += [f"pod/{key_of(pod)}" for pod in seen.pods_on(name_of(obj))]
        return keys

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Say what is to be done for the key, as things are."""
        what, _, name = key.partition("/")
        if what == "pod":
            pod = seen.get("pods", name)
            if pod is not None:
                self._pod(seen, pod, todo)
            return
        node = seen.get("nodes", name)
        if node is not None:
            self._missing.pop(name, None)
            there = {_taint_key(node, taint) for taint in _no_execute(node)}
            for known in [k for k in self._tainted if k[0] == name and k not in there]:
                del self._tainted[known]
            self._node(seen, node, todo)

    def _node(self, seen: ObjectStore, node: Object, todo: ReconcileResult) -> None:
        name = name_of(node)
        lease = seen.get("leases", f"{LEASES}/{name}")
        ready = condition(node, "Ready")
        if lease is not None:
            renewed = str((lease.get("spec") or {}).get("renewTime") or "")
            known = self._alive.get(name)
            if known is None or known[0] != renewed:
                known = self._alive[name] = (renewed, todo.now_ns)
            due_ns = known[1] + GRACE_NS
            if due_ns > todo.now_ns:
                todo.requeue_at(due_ns)
            elif ready is not None and ready.get("status") != "Unknown":
                self._mark_lost(node, todo)
                ready = {**ready, "status": "Unknown"}
        self._taint(node, (ready or {}).get("status"), todo)

    def _mark_lost(self, node: Object, todo: ReconcileResult) -> None:
        now = time_text(todo.now_ns)
        types = [c["type"] for c in node["status"].get("conditions") or ()]
        conditions = [{"type": type, **UNKNOWN, "lastTransitionTime": now} for type in types]
        todo.patch("nodes", node, {"status": {"conditions": conditions}}, "status")

    def _taint(self, node: Object, ready: str | None, todo: ReconcileResult) -> None:
        """The taints that the node's state calls for, beside those of others."""
        wanted: list[tuple[str, str]] = []
        if ready is not None and ready != "True":
            key = UNREACHABLE if ready == "Unknown" else NOT_READY
            wanted += [(key, "NoSchedule"), (key, "NoExecute")]
        if node["spec"].get("unschedulable"):
            wanted.append((UNSCHEDULABLE, "NoSchedule"))
        taints = list(node["spec"].get("taints") or ())
        have = {(t["key"], t["effect"]) for t in taints if t["key"] in OURS}
        if ready is None:
            have = {pair for pair in have if pair[0] == UNSCHEDULABLE}
        if have == set(wanted):
            return
        kept = [t for t in taints if t["key"] not in OURS or (t["key"], t["effect"]) in wanted]
        for key, effect in wanted:
            if (key, effect) not in have:
                taint: Any = {"key": key, "effect": effect}
                if effect == "NoExecute":
                    taint["timeAdded"] = time_text(todo.now_ns)
                kept.append(taint)
        # Taints have no merge key that others could not touch meanwhile.
        meta = {"resourceVersion": node["metadata"]["resourceVersion"]}
        todo.patch("nodes", node, {"metadata": meta, "spec": {"taints": kept or None}})

    def _pod(self, seen: ObjectStore, pod: Object, todo: ReconcileResult) -> None:
        node = seen.get("nodes", pod["spec"]["nodeName"])
        if node is None:
            name = pod["spec"]["nodeName"]
            due_ns = self._missing.setdefault(name, todo.now_ns) + GONE_NS
            if due_ns <= todo.now_ns:
                todo.delete("pods", pod, grace_s=0)
            else:
                todo.requeue_at(due_ns)
            return
        if is_finished(pod) or is_ending(pod):
            return
        ready = condition(pod, "Ready")
        if _is_lost(node) and ready is not None and ready.get("status") == "True":
            unknown = {"type": "Ready", "status": "False",
                       "lastTransitionTime": time_text(todo.now_ns)}  # fmt: skip
            todo.patch("pods", pod, {"status": {"conditions": [unknown]}}, "status")
            return
        evicted_ns = self._evicted_at(pod, node, todo.now_ns)
        if evicted_ns is None:
            return
        if evicted_ns > todo.now_ns:
            todo.requeue_at(evicted_ns)
        else:
            evict(pod, "DeletionByTaintManager", "Taint manager", todo)

    def _evicted_at(self, pod: Object, node: Object, now_ns: int) -> int | None:
        """When the node's NoExecute taints end the pod; None: never."""
        tolerations = [msgspec.convert(t, Toleration) for t in pod["spec"].get("tolerations") or ()]
        lasts: list[int] = []
        for given in _no_execute(node):
            taint = msgspec.convert(given, Taint)
            mine = [t for t in tolerations if tolerates(t, taint)]
            if not mine:
                return 0
            seconds = [t.toleration_seconds for t in mine if t.toleration_seconds is not None]
            if seconds:
                added_ns = time_ns(given.get("timeAdded"))
                if added_ns is None:  # put there by hand: from when we first saw it
                    added_ns = self._tainted.setdefault(_taint_key(node, given), now_ns)
                lasts.append(added_ns + max(0, min(seconds)) * SECOND_NS)
        return min(lasts) if lasts else None


def _is_lost(node: Object) -> bool:
    return (condition(node, "Ready") or {}).get("status") == "Unknown"


def _taint_key(node: Object, taint: Object) -> tuple[str, str, str]:
    return name_of(node), uid_of(node), str(taint.get("key"))


def _no_execute(node: Object) -> list[Object]:
    return [t for t in node["spec"].get("taints") or () if t.get("effect") == "NoExecute"]
