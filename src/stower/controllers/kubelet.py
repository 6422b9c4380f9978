"""The kubelets of simulated nodes: register nodes, renew their leases, start and stop their pods.

A node is simulated when its providerID begins with stower://. Annotations of a pod control its run:

    stower.dev/run-seconds     the pod ends after this time (without: when it is deleted)
    stower.dev/exit-code       with this exit code (default 0: it has succeeded)
    stower.dev/start-seconds   the pod takes this time to start, after its images are pulled
    stower.dev/stop-seconds    the pod takes this time to stop, within its grace period

The annotation stower.dev/fail: "true" on a node stops its kubelet. State that no object holds (an
image pull under way) starts again after a restart, as on a rebooted machine.

Source: pkg/kubelet (kubelet_node_status.go, status/generate.go, lifecycle/predicate.go).
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from stower.controllers.claims import (
    consumers_of,
    extended_of,
    group_of,
    hindrance,
    is_allocated,
    is_group,
)
from stower.controllers.cluster import Cluster, NodePool
from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from stower.controllers.pod_status import (
    backoff_until_ns,
    end_backoff,
    pod_condition,
    readiness,
    resized,
    resources,
    restart_containers,
    running,
    since_ns,
    terminated,
    waiting,
)
from stower.controllers.pods import claims_of, condition, is_finished, phase
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.model.errors import InvalidObject
from stower.model.kinds import Pod
from stower.model.resources import PODS, Amounts, amounts, node_room, pod_requests
from stower.model.times import SECOND_NS, micro_time_text, time_ns, time_text

PROVIDER: Final = "stower://"
LEASES: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
RENEW_NS: Final = 10 * SECOND_NS
REPORT_NS: Final = 300 * SECOND_NS  # nodeStatusReportFrequency
RUN: Final = "stower.dev/run-seconds"
EXIT: Final = "stower.dev/exit-code"
START: Final = "stower.dev/start-seconds"
STOP: Final = "stower.dev/stop-seconds"
FAIL: Final = "stower.dev/fail"
REGISTER: Final = "register"
# Below this, nobody would see that a pod is waiting for its image.
SHOW_WAITING_NS: Final = SECOND_NS
READY: Final = {"type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "kubelet is posting ready status"}  # fmt: skip
BOOTING: Final = {"type": "Ready", "status": "False", "reason": "KubeletNotReady",
                  "message": "node is booting"}  # fmt: skip
UNPREPARED: Final = "FailedPrepareDynamicResources"
PRESSURES: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


def is_simulated(node: Object | None) -> bool:
    """A kubelet of ours runs on it."""
    provider = str((node or {}).get("spec", {}).get("providerID") or "")
    return provider.startswith(PROVIDER)


def is_dead(node: Object) -> bool:
    """Its kubelet is told to be dead."""
    return (node["metadata"].get("annotations") or {}).get(FAIL) == "true"


def seconds_of(pod: Object, name: str) -> float | None:
    """A time that an annotation gives; None where it gives none."""
    text = (pod["metadata"].get("annotations") or {}).get(name, "")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None


class Kubelets(BaseController):
    """Keys: `register`, node/NAME and pod/NAMESPACE/NAME."""

    name = "kubelet"
    kinds = ("nodes", "pods", "leases", "persistentvolumeclaims", "resourceclaims")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pools: dict[str, NodePool] = {pool.name: pool for pool in cluster.pools}
        self._registered = False
        self._pulled: dict[str, dict[str, int]] = {}  # node: image: when it is there
        self._asked: dict[str, Amounts] = {}  # by uid of the pod
        self._admitted: dict[str, dict[str, None]] = {}  # node: uids
        self._seen_since: dict[str, int] = {}  # uid of the pod: when nothing was in its way
        self._unprepared: dict[str, tuple[int, str]] = {}  # uid: since when, and what was told

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """What a node, a pod or a lease concerns."""
        if kind == "leases":
            if namespace_of(obj) != LEASES:
                return ()
            return (f"node/{name_of(obj)}",)
        if kind == "persistentvolumeclaims":
            users = seen.list_namespace("pods", namespace_of(obj))
            return tuple(f"pod/{key_of(p)}" for p in users if key_of(obj) in claims_of(p))
        if kind == "resourceclaims":
            return _newly_allowed(seen, None if old is obj else old, obj)
        if kind == "nodes":
            return self._of_node(seen, old, obj)
        if old is obj:
            self._forget(obj)
        if not obj["spec"].get("nodeName"):
            return ()
        return (f"pod/{key_of(obj)}",)

    def _of_node(self, seen: ObjectStore, old: Object | None, obj: Object) -> Iterable[str]:
        name = name_of(obj)
        keys = [f"node/{name}"]
        if old is None or is_dead(old) != is_dead(obj):
            keys += [f"pod/{key_of(pod)}" for pod in seen.pods_on(name)]
        return keys

    def _forget(self, pod: Object) -> None:
        uid = uid_of(pod)
        self._asked.pop(uid, None)
        self._seen_since.pop(uid, None)
        self._unprepared.pop(uid, None)
        self._admitted.get(pod["spec"].get("nodeName") or "", {}).pop(uid, None)

    def first_keys(self) -> Iterable[str]:
        """What is to be looked at once, at the start."""
        return (REGISTER,)

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Say what is to be done for the key, as things are."""
        what, _, name = key.partition("/")
        if what == REGISTER:
            self._register(seen, todo)
        elif what == "node":
            node = seen.get("nodes", name)
            if node is not None and is_simulated(node) and not is_dead(node):
                self._node(seen, node, todo)
        else:
            pod = seen.get("pods", name)
            node = seen.get("nodes", pod["spec"].get("nodeName") or "") if pod else None
            if pod and node and is_simulated(node) and not is_dead(node):
                self._pod(seen, node, pod, todo)

    # Nodes

    def _register(self, seen: ObjectStore, todo: ReconcileResult) -> None:
        if self._registered:
            return
        self._registered = True
        for name, pool, node in self._cluster.nodes():
            if seen.get("nodes", name) is None:
                first = BOOTING if pool.boot_seconds else READY
                status = {**node["status"], "conditions": _conditions(first, todo.now_ns)}
                todo.create("nodes", {**node, "status": status})

    def _node(self, seen: ObjectStore, node: Object, todo: ReconcileResult) -> None:
        self._stay_alive(seen, node, todo)
        ready = condition(node, "Ready") or {}
        status: Object = {}
        if ready.get("status") != "True":
            pool = self._pools.get(
                (node["metadata"].get("labels") or {}).get("stower.dev/pool", "")
            )
            boot_s = pool.boot_seconds if pool is not None else 0.0
            created_ns = time_ns(node["metadata"].get("creationTimestamp")) or 0
            up_ns = created_ns + round(boot_s * SECOND_NS)
            if up_ns <= todo.now_ns:
                status["conditions"] = _conditions(READY, todo.now_ns)
            else:
                todo.requeue_at(up_ns)
                if not ready:
                    status["conditions"] = _conditions(BOOTING, todo.now_ns)
        else:
            beat = (condition(node, "Ready") or {}).get("lastHeartbeatTime")
            due_ns = (time_ns(beat) or 0) + REPORT_NS
            if due_ns <= todo.now_ns:
                now = time_text(todo.now_ns)
                status["conditions"] = [
                    {"type": c["type"], "lastHeartbeatTime": now}
                    for c in node["status"].get("conditions") or ()
                ]
                due_ns = todo.now_ns + REPORT_NS
            todo.requeue_at(due_ns)
        images = self._images(node, todo)
        if images is not None:
            status["images"] = images
        if status:
            todo.patch("nodes", node, {"status": status}, "status")

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

    def _images(self, node: Object, todo: ReconcileResult) -> list[Object] | None:
        """The node's images with those that were pulled since; None where that is no news."""
        listed = list((node.get("status") or {}).get("images") or ())
        known = {name for image in listed for name in image.get("names") or ()}
        pulled = self._pulled.get(name_of(node), {})
        new = [image for image, at_ns in pulled.items() if at_ns <= todo.now_ns]
        for image in new:
            if image in known:
                del pulled[image]
        new = [image for image in new if image not in known]
        for at_ns in pulled.values():
            if at_ns > todo.now_ns:
                todo.requeue_at(at_ns)
        if not new:
            return None
        return listed + [{"names": [i], "sizeBytes": self._cluster.image_bytes(i)} for i in new]

    # Pods

    def _pod(self, seen: ObjectStore, node: Object, pod: Object, todo: ReconcileResult) -> None:
        if is_finished(pod):
            if is_ending(pod):
                _delete_pod(pod, todo)
            self._admitted.get(name_of(node), {}).pop(uid_of(pod), None)
        elif is_ending(pod):
            self._stop(pod, todo)
        elif phase(pod) == "Pending":
            self._start(seen, node, pod, todo)
        else:
            self._admitted.setdefault(name_of(node), {})[uid_of(pod)] = None
            self._run(seen, node, pod, todo)

    def _stop(self, pod: Object, todo: ReconcileResult) -> None:
        """After the time that it takes, but not after its deletionTimestamp."""
        due_ns = time_ns(pod["metadata"]["deletionTimestamp"]) or 0
        grace_s = pod["metadata"].get("deletionGracePeriodSeconds") or 0
        takes_s = seconds_of(pod, STOP) or 0.0
        stops_ns = min(due_ns, due_ns - grace_s * SECOND_NS + round(takes_s * SECOND_NS))
        if phase(pod) == "Pending" or stops_ns <= todo.now_ns:
            _delete_pod(pod, todo)
        else:
            todo.requeue_at(stops_ns)

    def _start(self, seen: ObjectStore, node: Object, pod: Object, todo: ReconcileResult) -> None:
        uid = uid_of(pod)
        admitted = self._admitted.setdefault(name_of(node), {})
        if uid not in admitted:
            why = self._no_room(seen, node, pod)
            if why:
                status = {"phase": "Failed", "reason": f"OutOf{why}",
                          "message": f"Node didn't have enough resource: {why}",
                          "startTime": time_text(todo.now_ns)}  # fmt: skip
                todo.patch("pods", pod, {"status": status}, "status")
                return
            admitted[uid] = None
        if not all(_is_bound(seen.get("persistentvolumeclaims", c)) for c in claims_of(pod)):
            return  # its volumes are not there; the claim wakes us
        if not self._prepare(seen, node, pod, todo):
            return  # its devices are not there; the claim wakes us
        since_ns = self._seen_since.setdefault(uid, todo.now_ns)
        pulled_ns = self._pull(node, pod, todo)
        takes_s = seconds_of(pod, START)
        takes_s = self._cluster.start_seconds if takes_s is None else takes_s
        due_ns = max(pulled_ns, since_ns) + round(takes_s * SECOND_NS)
        if due_ns <= todo.now_ns:
            self._seen_since.pop(uid, None)
            todo.patch("pods", pod, {"status": running(pod, node, todo.now_ns)}, "status")
            return
        todo.requeue_at(due_ns)
        if due_ns - todo.now_ns > SHOW_WAITING_NS and "startTime" not in pod["status"]:
            todo.patch("pods", pod, {"status": waiting(pod, node, todo.now_ns)}, "status")

    def _prepare(self, seen: ObjectStore, node: Object, pod: Object, todo: ReconcileResult) -> bool:
        """Whether all that it claims is allocated, and reserved for it."""
        if not pod["spec"].get("resourceClaims") and not extended_of(pod):
            return True
        why = hindrance(seen, pod)
        uid = uid_of(pod)
        if not why:
            self._unprepared.pop(uid, None)
            return True
        since_ns, told = self._unprepared.setdefault(uid, (todo.now_ns, ""))
        if todo.now_ns < since_ns + SHOW_WAITING_NS:
            todo.requeue_at(
                since_ns + SHOW_WAITING_NS
            )  # the claim may have changed and not be seen yet
            return False
        if why != told:
            self._unprepared[uid] = (since_ns, why)
            text = f"Failed to prepare dynamic resources: prepare dynamic resources: {why}"
            todo.warn(pod, UNPREPARED, text, self.name)
        if "startTime" not in pod["status"]:
            todo.patch("pods", pod, {"status": waiting(pod, node, todo.now_ns)}, "status")
        return False

    def _pull(self, node: Object, pod: Object, todo: ReconcileResult) -> int:
        """When its last image is on the node; pulls go one after the other."""
        listed = (node.get("status") or {}).get("images") or ()
        known = {name for image in listed for name in image.get("names") or ()}
        pulled = self._pulled.setdefault(name_of(node), {})
        done_ns = 0
        spec = pod["spec"]
        for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
            image = container.get("image") or ""
            if image in known:
                continue
            if image not in pulled:
                takes_ns = self._cluster.image_bytes(image) * SECOND_NS // self._cluster.pull_rate
                pulled[image] = max(todo.now_ns, *pulled.values(), 0) + takes_ns
            done_ns = max(done_ns, pulled[image])
        if done_ns:
            # The node is told to list them when they are there.
            todo.requeue_key_at(f"node/{name_of(node)}", done_ns)
        return done_ns

    def _no_room(self, seen: ObjectStore, node: Object, pod: Object) -> str:
        """The resource that the node lacks for it, or empty."""
        try:
            room = node_room((node.get("status") or {}).get("allocatable"))
            for other in seen.pods_on(name_of(node)):
                if uid_of(other) in self._admitted[name_of(node)]:
                    for name, amount in self._get_requests(other).items():
                        room[name] = room.get(name, 0) - amount
            for name, amount in self._get_requests(pod).items():
                if amount > room.get(name, 0):
                    return name
        except InvalidObject:
            return "cpu"
        return ""

    def _get_requests(self, pod: Object) -> Amounts:
        uid = uid_of(pod)
        known = self._asked.get(uid)
        if known is None:
            known = self._asked[uid] = requests_of(pod)
        return known

    def _run(self, seen: ObjectStore, node: Object, pod: Object, todo: ReconcileResult) -> None:
        limit_s = pod["spec"].get("activeDeadlineSeconds")
        if limit_s is not None:
            due_ns = (time_ns(pod["status"].get("startTime")) or 0) + limit_s * SECOND_NS
            if due_ns <= todo.now_ns:
                self._end(pod, todo, late=True)
                return
            todo.requeue_at(due_ns)
        again_ns = backoff_until_ns(pod)
        if again_ns is not None:
            if again_ns <= todo.now_ns:
                todo.patch("pods", pod, {"status": end_backoff(pod, todo.now_ns)}, "status")
            else:
                todo.requeue_at(again_ns)
            return
        runs_s = seconds_of(pod, RUN)
        if runs_s is not None:
            due_ns = since_ns(pod) + round(runs_s * SECOND_NS)
            if due_ns <= todo.now_ns:
                self._end(pod, todo)
                return
            todo.requeue_at(due_ns)
        ready = readiness(pod, time_text(todo.now_ns))
        if ready["status"] != (condition(pod, "Ready") or {}).get("status"):
            todo.patch("pods", pod, {"status": {"conditions": [ready]}}, "status")
            return
        self._resize(seen, node, pod, todo)

    def _end(self, pod: Object, todo: ReconcileResult, late: bool = False) -> None:
        """The containers end; the restart policy says whether they begin again."""
        code = 137 if late else int(seconds_of(pod, EXIT) or 0)
        policy = pod["spec"].get("restartPolicy") or "Always"
        statuses = pod["status"].get("containerStatuses") or ()
        now = time_text(todo.now_ns)
        if not late and (policy == "Always" or (policy == "OnFailure" and code)):
            todo.patch(
                "pods", pod, {"status": restart_containers(pod, code, todo.now_ns)}, "status"
            )
            return
        ended = [
            {
                **c,
                "ready": False,
                "started": False,
                "state": {"running": None, "terminated": terminated(c, code, now)},
            }
            for c in statuses
        ]
        good = "PodCompleted" if not code else "PodFailed"
        conditions = [
            pod_condition(pod, type, "False", now, good) for type in ("Ready", "ContainersReady")
        ]
        status = {
            "phase": "Failed" if code else "Succeeded",
            "conditions": conditions,
            "containerStatuses": ended,
        }
        if late:
            status["reason"] = "DeadlineExceeded"
            status["message"] = "Pod was active on the node longer than the specified deadline"
        inits = pod["status"].get("initContainerStatuses") or ()
        if any((c.get("state") or {}).get("running") for c in inits):
            status["initContainerStatuses"] = [_stopped(c, now) for c in inits]  # the sidecars
        todo.patch("pods", pod, {"status": status}, "status")

    # In-place resize (KEP-1287)

    def _resize(self, seen: ObjectStore, node: Object, pod: Object, todo: ReconcileResult) -> None:
        statuses = {c["name"]: c for c in pod["status"].get("containerStatuses") or ()}
        differ = [
            c
            for c in pod["spec"]["containers"]
            if c["name"] in statuses
            and resources(c) != (statuses[c["name"]].get("resources") or {})
        ]
        pending = condition(pod, "PodResizePending")
        generation = pod["metadata"].get("generation", 0)
        if not differ:
            if pending is not None:
                gone = {"$patch": "delete", "type": "PodResizePending"}
                todo.patch("pods", pod, {"status": {"conditions": [gone]}}, "status")
            return
        wanted = {c["name"]: c for c in differ}
        self._asked.pop(uid_of(pod), None)
        why = self._cannot_resize(seen, node, pod)
        if why:
            made = {"type": "PodResizePending", "status": "True", "reason": why[0],
                    "message": why[1], "observedGeneration": generation}  # fmt: skip
            if any((pending or {}).get(k) != v for k, v in made.items()):
                made["lastTransitionTime"] = time_text(todo.now_ns)
                todo.patch("pods", pod, {"status": {"conditions": [made]}}, "status")
            todo.requeue_at(todo.now_ns + RENEW_NS)  # room may have come
            return
        # The list is one value: what is not in it is gone.
        new = [
            resized(status, wanted[status["name"]], todo.now_ns)
            if status["name"] in wanted
            else status
            for status in pod["status"]["containerStatuses"]
        ]
        status: Object = {"containerStatuses": new, "observedGeneration": generation}
        if pending is not None:
            status["conditions"] = [{"$patch": "delete", "type": "PodResizePending"}]
        todo.patch("pods", pod, {"status": status}, "status")

    def _cannot_resize(
        self, seen: ObjectStore, node: Object, pod: Object
    ) -> tuple[str, str] | None:
        wants = requests_of(pod)
        room = node_room((node.get("status") or {}).get("allocatable"))
        if any(amount > room.get(name, 0) for name, amount in wants.items()):
            return "Infeasible", "Node didn't have enough capacity"
        for other in seen.pods_on(name_of(node)):
            if uid_of(other) in self._admitted[name_of(node)] and uid_of(other) != uid_of(pod):
                for name, amount in self._get_requests(other).items():
                    room[name] = room.get(name, 0) - amount
        if any(amount > room.get(name, 0) for name, amount in wants.items()):
            return "Deferred", "Node didn't have enough resource"
        return None


def requests_of(pod: Object) -> Amounts:
    """What a pod asks of its node, itself included. Raises InvalidObject.

    Not that for which devices stand in (KEP-5004).
    """
    view = msgspec.convert({"metadata": {}, "spec": pod["spec"]}, Pod)
    told = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    met = {mapping.get("resourceName") for mapping in told.get("requestMappings") or ()}
    asked = amounts(pod_requests(view))
    return {**{name: amount for name, amount in asked.items() if name not in met}, PODS: 1}


def _delete_pod(pod: Object, todo: ReconcileResult) -> None:
    """Nothing of it runs any more. Said once: finalizers may keep it for long."""
    if pod["metadata"].get("deletionGracePeriodSeconds") != 0:
        todo.delete("pods", pod, grace_s=0)


def _newly_allowed(seen: ObjectStore, old: Object | None, claim: Object) -> tuple[str, ...]:
    """Keys of the pods that may use the claim since it has changed."""
    if not is_allocated(claim):
        return ()
    before = consumers_of(old) if old is not None and is_allocated(old) else []
    found: list[str] = []
    for consumer in consumers_of(claim):
        if consumer in before:
            continue
        if is_group(consumer):
            others = seen.list_namespace("pods", namespace_of(claim))
            found += [f"pod/{key_of(p)}" for p in others if group_of(p) == consumer["name"]]
        else:
            found.append(f"pod/{namespace_of(claim)}/{consumer['name']}")
    return tuple(found)


def _is_bound(claim: Object | None) -> bool:
    return ((claim or {}).get("status") or {}).get("phase") == "Bound"


def _stopped(status: Object, now: str) -> Object:
    if not (status.get("state") or {}).get("running"):
        return status
    ended = {"running": None, "terminated": terminated(status, 0, now)}
    return {**status, "ready": False, "started": False, "state": ended}


def _conditions(ready: Object, now_ns: int) -> list[Object]:
    now = time_text(now_ns)
    made = [
        {"type": type, "status": "False", "reason": reason, "message": message}
        for type, reason, message in PRESSURES
    ]
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return [{**c, **times} for c in (*made, ready)]
