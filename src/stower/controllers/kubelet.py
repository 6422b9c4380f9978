"""The kubelets of simulated nodes: keep their nodes alive, start and stop their pods.

A node is simulated when its providerID begins with stower://. Annotations of a pod control its run
(played.py says how containers end), and:

    stower.dev/start-seconds   the pod takes this time to start, after its images are pulled
    stower.dev/stop-seconds    the pod takes this time to stop, within its grace period

The annotation stower.dev/fail: "true" on a node stops its kubelet. State that no object holds (an
image pull under way) starts again after a restart, as on a rebooted machine.

Source: pkg/kubelet (kubelet.go, status/generate.go, lifecycle/predicate.go).
"""

from collections.abc import Iterable
from typing import Any, Final

from stower.controllers.allocations import Allocations
from stower.controllers.claims import (
    consumers_of,
    extended_of,
    group_of,
    hindrance,
    is_allocated,
    is_group,
)
from stower.controllers.cluster import Cluster
from stower.controllers.containers import (
    KILLED,
    TERMINATED,
    advance,
    begin,
    is_running,
    kill,
    status_of,
    unstarted,
)
from stower.controllers.images import Images, containers_of
from stower.controllers.moments import Moments
from stower.controllers.node_status import LEASES, NodeStatuses
from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from stower.controllers.played import faults_of, play_of_words, plays_of, seconds_of
from stower.controllers.pod_status import (
    has_begun,
    pod_condition,
    readiness,
    resized,
    resources,
    waiting,
)
from stower.controllers.pods import claims_of, condition, is_finished, phase
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.model.times import SECOND_NS, time_ns, time_text

PROVIDER: Final = "stower://"
RETRY_NS: Final = 10 * SECOND_NS
START: Final = "stower.dev/start-seconds"
STOP: Final = "stower.dev/stop-seconds"
FAIL: Final = "stower.dev/fail"
REGISTER: Final = "register"
# Below this, nobody would see that a pod is waiting for its image.
SHOW_WAITING_NS: Final = SECOND_NS
UNPREPARED: Final = "FailedPrepareDynamicResources"
UNPLAYABLE: Final = "UnknownPlay"


def is_simulated(node: Object | None) -> bool:
    """A kubelet of ours runs on it."""
    provider = str((node or {}).get("spec", {}).get("providerID") or "")
    return provider.startswith(PROVIDER)


def is_dead(node: Object) -> bool:
    """Its kubelet is told to be dead."""
    return (node["metadata"].get("annotations") or {}).get(FAIL) == "true"


class Kubelets(BaseController):
    """Keys: `register`, node/NAME and pod/NAMESPACE/NAME."""

    name = "kubelet"
    kinds = ("nodes", "pods", "leases", "persistentvolumeclaims", "resourceclaims")

    def __init__(self, cluster: Cluster, version: str = "") -> None:
        self._cluster = cluster
        self._images = Images(cluster)
        self._nodes = NodeStatuses(cluster, self._images, version)
        self._allocations = Allocations()
        self._moments = Moments()
        self._ending_since: dict[str, int] = {}  # uid of the pod: when its deletion was seen
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
        if old is obj:
            self._nodes.forget(name)
        if old is None or is_dead(old) != is_dead(obj):
            keys += [f"pod/{key_of(pod)}" for pod in seen.pods_on(name)]
        return keys

    def _forget(self, pod: Object) -> None:
        uid = uid_of(pod)
        self._seen_since.pop(uid, None)
        self._ending_since.pop(uid, None)
        self._unprepared.pop(uid, None)
        self._moments.forget(pod)
        self._images.forget(pod)
        self._allocations.release(pod)

    def first_keys(self) -> Iterable[str]:
        """What is to be looked at once, at the start."""
        return (REGISTER,)

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Say what is to be done for the key, as things are."""
        what, _, name = key.partition("/")
        if what == REGISTER:
            self._nodes.register(seen, todo)
        elif what == "node":
            node = seen.get("nodes", name)
            if node is not None and is_simulated(node) and not is_dead(node):
                self._nodes.reconcile(seen, node, todo)
        else:
            pod = seen.get("pods", name)
            node = seen.get("nodes", pod["spec"].get("nodeName") or "") if pod else None
            if pod and node and is_simulated(node) and not is_dead(node):
                self._pod(seen, node, pod, todo)

    def _pod(self, seen: ObjectStore, node: Object, pod: Object, todo: ReconcileResult) -> None:
        if is_finished(pod):
            if is_ending(pod):
                _delete_pod(pod, todo)
            self._allocations.release(pod)
            return
        if is_ending(pod):
            self._stop(pod, todo)
        elif not has_begun(pod):
            self._start(seen, node, pod, todo)
        else:
            self._allocations.hold(node, pod)
            self._run(node, pod, todo)
        if not todo.calls and _is_outdated(pod):
            self._report(pod, {}, todo)

    def _report(self, pod: Object, status: Object, todo: ReconcileResult) -> None:
        """Writes what changes in the pod's status, and which generation of the pod it is about."""
        self._moments.note(pod, todo.now_ns)
        status = {"observedGeneration": pod["metadata"].get("generation", 0), **status}
        scheduled = condition(pod, "PodScheduled") or {}
        if "conditions" in status and scheduled.get("status") != "True":
            # The pod was created with its node.
            scheduled = pod_condition(pod, "PodScheduled", "True", time_text(todo.now_ns))
            status["conditions"] = [scheduled, *status["conditions"]]
        todo.patch("pods", pod, {"status": status}, "status")

    def _stop(self, pod: Object, todo: ReconcileResult) -> None:
        """After the time that it takes, but not after its grace period, which begins when the
        deletion is seen: within the second of the deletion, wherever that was not seen."""
        due_ns = time_ns(pod["metadata"]["deletionTimestamp"]) or 0
        grace_s = pod["metadata"].get("deletionGracePeriodSeconds") or 0
        since_ns = min(todo.now_ns, due_ns - grace_s * SECOND_NS + SECOND_NS)
        since_ns = self._ending_since.setdefault(uid_of(pod), since_ns)
        takes_s = max((seconds_of(pod, STOP) or 0.0) + _pre_stop_seconds(pod), 0.0)
        stops_ns = since_ns + min(grace_s * SECOND_NS, round(takes_s * SECOND_NS))
        if has_begun(pod) and stops_ns > todo.now_ns:
            todo.requeue_at(stops_ns)
        elif has_begun(pod) and pod["metadata"].get("finalizers"):
            # Somebody waits to see how it ended, as the controller of Jobs does.
            code = KILLED if takes_s > grace_s else TERMINATED
            self._report(pod, kill(pod, todo.now_ns, code), todo)
        else:
            _delete_pod(pod, todo)

    # Starting

    def _start(self, seen: ObjectStore, node: Object, pod: Object, todo: ReconcileResult) -> None:
        uid = uid_of(pod)
        rejected = self._allocations.admit(node, pod)
        if rejected is not None:
            status = {"phase": "Failed", "reason": rejected.reason,
                      "message": f"Pod was rejected: {rejected.message}",
                      "startTime": time_text(todo.now_ns)}  # fmt: skip
            self._report(pod, status, todo)
            return
        if not all(_is_bound(seen.get("persistentvolumeclaims", c)) for c in claims_of(pod)):
            return  # its volumes are not there; the claim wakes us
        if not self._prepare(seen, node, pod, todo):
            return  # its devices are not there; the claim wakes us
        missing = self._images.missing(node, pod, containers_of(pod), todo, self.name)
        if missing:
            status = waiting(pod, node, todo.now_ns, missing)
            if _waits(pod["status"]) != _waits(status):
                self._report(pod, status, todo)
            return
        if uid not in self._seen_since:
            self._seen_since[uid] = todo.now_ns
            for fault in faults_of(pod):
                todo.warn(pod, UNPLAYABLE, fault, self.name)
        since_ns = self._seen_since[uid]
        pulled_ns = self._images.pull(node, containers_of(pod), todo)
        takes_s = seconds_of(pod, START)
        takes_s = self._cluster.start_seconds if takes_s is None else takes_s
        due_ns = max(pulled_ns, since_ns) + round(takes_s * SECOND_NS)
        if due_ns <= todo.now_ns:
            self._seen_since.pop(uid, None)
            own = self._allocations.as_admitted(pod)
            self._report(pod, begin(own, node, plays_of(pod), todo.now_ns), todo)
            return
        todo.requeue_at(due_ns)
        if due_ns - todo.now_ns > SHOW_WAITING_NS and "startTime" not in pod["status"]:
            self._report(pod, waiting(pod, node, todo.now_ns), todo)

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
            self._report(pod, waiting(pod, node, todo.now_ns), todo)
        return False

    # Running

    def _run(self, node: Object, pod: Object, todo: ReconcileResult) -> None:
        limit_s = pod["spec"].get("activeDeadlineSeconds")
        if limit_s is not None:
            due_ns = (time_ns(pod["status"].get("startTime")) or 0) + limit_s * SECOND_NS
            if due_ns <= todo.now_ns:
                text = "Pod was active on the node longer than the specified deadline"
                late = {"reason": "DeadlineExceeded", "message": text}
                status = {**kill(pod, todo.now_ns), **late}
                self._report(pod, status, todo)
                return
            todo.requeue_at(due_ns)
        new = unstarted(pod)
        for name in (c["name"] for c in new if is_running(status_of(pod, c["name"]))):
            text = f"Container {name} definition changed, will be restarted"
            todo.event("pods", pod, "Normal", "Killing", text, self.name, awaited=False)
        awaited = self._images.awaited(node, pod, new, todo, self.name) if new else {}
        exact = self._moments.of(pod, todo.now_ns)
        changed, wake_ns = advance(pod, node, plays_of(pod), exact, todo.now_ns, awaited)
        if wake_ns is not None:
            todo.requeue_at(wake_ns)
        if changed is not None:
            self._report(pod, changed, todo)
            return
        if phase(pod) == "Pending":
            return
        is_contained = (condition(pod, "ContainersReady") or {}).get("status") == "True"
        ready = readiness(pod, time_text(todo.now_ns), is_contained)
        if ready["status"] != (condition(pod, "Ready") or {}).get("status"):
            self._report(pod, {"conditions": [ready]}, todo)
            return
        self._resize(node, pod, todo)

    def _resize(self, node: Object, pod: Object, todo: ReconcileResult) -> None:
        """In place (KEP-1287)."""
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
                self._report(pod, {"conditions": [gone]}, todo)
            return
        wanted = {c["name"]: c for c in differ}
        why = self._allocations.resize(node, pod)
        if why:
            made = {"type": "PodResizePending", "status": "True", "reason": why[0],
                    "message": why[1], "observedGeneration": generation}  # fmt: skip
            if any((pending or {}).get(k) != v for k, v in made.items()):
                made["lastTransitionTime"] = time_text(todo.now_ns)
                self._report(pod, {"conditions": [made]}, todo)
            todo.requeue_at(todo.now_ns + RETRY_NS)  # room may have come
            return
        # The list is one value: what is not in it is gone.
        new = [
            resized(status, wanted[status["name"]], todo.now_ns)
            if status["name"] in wanted
            else status
            for status in pod["status"]["containerStatuses"]
        ]
        status: Object = {"containerStatuses": new}
        if pending is not None:
            status["conditions"] = [{"$patch": "delete", "type": "PodResizePending"}]
        self._report(pod, status, todo)


def _is_outdated(pod: Object) -> bool:
    """Whether the status that a kubelet has written is about an earlier generation of the pod."""
    seen = pod["status"].get("observedGeneration")
    return seen is not None and seen != pod["metadata"].get("generation", 0)


def _pre_stop_seconds(pod: Object) -> float:
    """How long its preStop hooks take: those that sleep, by themselves or by a command."""
    longest = 0.0
    for container in pod["spec"]["containers"]:
        hook = (container.get("lifecycle") or {}).get("preStop") or {}
        longest = max(longest, float((hook.get("sleep") or {}).get("seconds") or 0))
        play = play_of_words((hook.get("exec") or {}).get("command") or [])
        if play is not None and play.after_ns is not None:
            longest = max(longest, play.after_ns / SECOND_NS)
    return longest


def _waits(status: Object) -> list[Any]:
    """What the containers wait for, as the status says it."""
    both = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return [(c.get("state") or {}).get("waiting") for c in both]


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
