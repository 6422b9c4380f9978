"""Nodes that are simulated: register, boot, renew their leases and report their status.

Source: pkg/kubelet (kubelet_node_status.go, nodestatus/setters.go), component-helpers lease.
"""

from typing import Any, Final

from stower.controllers.cluster import NODE_INFO, Cluster, NodePool
from stower.controllers.images import Images
from stower.controllers.objects import Object, ObjectStore, created_ns, name_of, uid_of
from stower.controllers.pods import condition
from stower.controllers.runtime import ReconcileResult
from stower.model.resources import is_extended
from stower.model.times import SECOND_NS, micro_time_text, time_ns, time_text

LEASES: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
RENEW_NS: Final = 10 * SECOND_NS
REPORT_NS: Final = 300 * SECOND_NS  # nodeStatusReportFrequency
READY: Final = {"type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "kubelet is posting ready status"}  # fmt: skip
BOOTING: Final = {"type": "Ready", "status": "False", "reason": "KubeletNotReady",
                  "message": "node is booting"}  # fmt: skip
PRESSURES: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


class NodeStatuses:
    """Of all simulated nodes."""

    def __init__(self, cluster: Cluster, images: Images, version: str = "") -> None:
        """`version`: of the kubelets; as the cluster's nodes have it, where none is given."""
        self._version = version
        self._cluster = cluster
        self._images = images
        self._pools: dict[str, NodePool] = {pool.name: pool for pool in cluster.pools}
        self._registered = False
        self._capacity: dict[str, Object] = {}  # as the node had it when it was last looked at

    def register(self, seen: ObjectStore, todo: ReconcileResult) -> None:
        """Make the nodes of the cluster file that are missing, once."""
        if self._registered:
            return
        self._registered = True
        for name, pool, node in self._cluster.nodes():
            if seen.get("nodes", name) is None:
                first = BOOTING if pool.boot_seconds else READY
                status = {**node["status"], "conditions": _conditions(first, todo.now_ns)}
                if self._version:
                    status["nodeInfo"] = {**NODE_INFO, "kubeletVersion": self._version}
                todo.create("nodes", {**node, "status": status})

    def forget(self, name: str) -> None:
        """The node is gone."""
        self._capacity.pop(name, None)

    def reconcile(self, seen: ObjectStore, node: Object, todo: ReconcileResult) -> None:
        """Its lease, conditions, images and what it has to give."""
        self._stay_alive(seen, node, todo)
        status: Object = {}
        conditions = self._report(node, todo)
        if conditions:
            status["conditions"] = conditions
        images = self._images.listed(node, todo)
        if images is not None:
            status["images"] = images
        allocatable = self._allocatable(node)
        if allocatable:
            status["allocatable"] = allocatable
        told = ((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion")
        if self._version and told != self._version:
            status["nodeInfo"] = {**(NODE_INFO if told is None else {}),
                                  "kubeletVersion": self._version}  # fmt: skip
        if status:
            todo.patch("nodes", node, {"status": status}, "status")

    def _report(self, node: Object, todo: ReconcileResult) -> list[Object]:
        ready = condition(node, "Ready") or {}
        if ready.get("status") != "True":
            label = (node["metadata"].get("labels") or {}).get("stower.dev/pool", "")
            pool = self._pools.get(label)
            boot_s = pool.boot_seconds if pool is not None else 0.0
            up_ns = created_ns(node) + round(boot_s * SECOND_NS)
            if up_ns <= todo.now_ns:
                return _conditions(READY, todo.now_ns)
            todo.requeue_at(up_ns)
            return _conditions(BOOTING, todo.now_ns) if not ready else []
        due_ns = (time_ns(ready.get("lastHeartbeatTime")) or 0) + REPORT_NS
        if due_ns > todo.now_ns:
            todo.requeue_at(due_ns)
            return []
        todo.requeue_at(todo.now_ns + REPORT_NS)
        now = time_text(todo.now_ns)
        return [
            {"type": c["type"], "lastHeartbeatTime": now}
            for c in node["status"].get("conditions") or ()
        ]

    def _stay_alive(self, seen: ObjectStore, node: Object, todo: ReconcileResult) -> None:
        name = name_of(node)
        lease = seen.get("leases", f"{LEASES}/{name}")
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS,
                "renewTime": micro_time_text(todo.now_ns)}  # fmt: skip
        if lease is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid_of(node)}
            meta = {"name": name, "namespace": LEASES, "ownerReferences": [owner]}
            todo.create("leases", {"metadata": meta, "spec": spec})
            return
        renewed_ns = time_ns((lease.get("spec") or {}).get("renewTime")) or 0
        due_ns = renewed_ns + RENEW_NS
        if due_ns <= todo.now_ns:
            todo.patch("leases", lease, {"spec": {"renewTime": spec["renewTime"]}})
            due_ns = todo.now_ns + RENEW_NS
        todo.requeue_at(due_ns)

    def _allocatable(self, node: Object) -> dict[str, Any]:
        """What becomes of extended resources that somebody has put into the capacity, or taken out.

        A device plugin may give less than the capacity: that stays until the capacity changes.
        """
        status = node.get("status") or {}
        capacity: dict[str, Any] = status.get("capacity") or {}
        given: dict[str, Any] = status.get("allocatable") or {}
        before = self._capacity.get(name_of(node), capacity)
        self._capacity[name_of(node)] = capacity
        found: dict[str, Any] = {
            name: amount
            for name, amount in capacity.items()
            if is_extended(name)
            and given.get(name) != amount
            and (name not in given or before.get(name) != amount)
        }
        gone = (n for n in given if is_extended(n) and n in before and n not in capacity)
        return found | dict.fromkeys(gone)


def _conditions(ready: Object, now_ns: int) -> list[Object]:
    now = time_text(now_ns)
    made = [
        {"type": type, "status": "False", "reason": reason, "message": message}
        for type, reason, message in PRESSURES
    ]
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return [{**c, **times} for c in (*made, ready)]
