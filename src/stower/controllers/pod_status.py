"""The pod status that a kubelet reports while a pod starts, runs, restarts and ends.

Source: pkg/kubelet (status/generate.go, kubelet_pods.go).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from stower.controllers.cluster import address_of
from stower.controllers.objects import Object, name_of, uid_of
from stower.controllers.pods import condition, hash_of
from stower.model.times import SECOND_NS, time_text

BACKOFF_NS: Final = 10 * SECOND_NS
BACKOFF_NS_MAX: Final = 300 * SECOND_NS


def resources(container: Object) -> Object:
    return {k: v for k, v in (container.get("resources") or {}).items() if v and k != "claims"}


def pod_condition(
    pod: Object, type: str, status: str, now: str, reason: str = "", message: str = ""
) -> Object:
    """A condition to merge into the pod's: what it said before and says no more is None."""
    before = condition(pod, type)
    made: Any = {"type": type, "status": status}
    for field, text in (("reason", reason), ("message", message)):
        if text:
            made[field] = text
        elif (before or {}).get(field):
            made[field] = None
    if before is None or before.get("status") != status:
        made["lastTransitionTime"] = now
    return dict(made)


def has_begun(pod: Object) -> bool:
    """Its containers have been started, init containers first."""
    if (pod.get("status") or {}).get("phase") not in (None, "", "Pending"):
        return True
    made = condition(pod, "PodReadyToStartContainers") or {}
    return made.get("status") == "True"


def terminated(status: Object, code: int, now: str) -> Object:
    started = ((status.get("state") or {}).get("running") or {}).get("startedAt") or now
    return {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": started,
            "finishedAt": now}  # fmt: skip


def addresses(node: Object, pod: Object) -> Object:
    host = next(
        (
            a["address"]
            for a in (node.get("status") or {}).get("addresses") or ()
            if a["type"] == "InternalIP"
        ),
        address_of(name_of(node)),
    )
    own = host if pod["spec"].get("hostNetwork") else address_of(uid_of(pod))
    return {"hostIP": host, "hostIPs": [{"ip": host}], "podIP": own, "podIPs": [{"ip": own}]}


def container_status(container: Object, state: Object, ready: bool) -> Object:
    made: Object = {
        "name": container["name"],
        "image": container.get("image") or "",
        "imageID": container.get("image") or "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }
    own = resources(container)
    if ready and own:
        made["resources"] = own
        if own.get("requests"):
            made["allocatedResources"] = own["requests"]
    return made


def ephemeral_status(pod: Object, container: Object, state: Object) -> Object:
    """The status of an ephemeral container, which is never ready."""
    made = container_status(container, state, False)
    del made["started"]
    return made if "waiting" in state else {**made, "containerID": _container_id(pod, container)}


def _container_id(pod: Object, container: Object) -> str:
    return f"stower://{hash_of([uid_of(pod), container['name']])}"


def unready(names: Sequence[str]) -> str:
    """What the conditions say where these containers are not ready."""
    return f"containers with unready status: [{' '.join(names)}]"


def readiness(pod: Object, now: str, contained: bool = True, message: str = "") -> Object:
    """The Ready condition: its containers are, and what else the pod waits for."""
    if not contained:
        return pod_condition(pod, "Ready", "False", now, "ContainersNotReady", message)
    for gate in pod["spec"].get("readinessGates") or ():
        if (condition(pod, gate["conditionType"]) or {}).get("status") != "True":
            return pod_condition(pod, "Ready", "False", now, "ReadinessGatesNotReady")
    return pod_condition(pod, "Ready", "True", now)


def restart_pause_ns(status: Object) -> int:
    """How long a container waits before it runs again; not at all after a long run."""
    count = status.get("restartCount", 0)
    return min(BACKOFF_NS << min(count - 1, 5), BACKOFF_NS_MAX) if count else 0


def running(pod: Object, node: Object, now_ns: int) -> Object:
    now = time_text(now_ns)
    types = ("PodReadyToStartContainers", "Initialized", "ContainersReady")
    state = {"running": {"startedAt": now}, "waiting": None}
    status: Object = {
        "phase": "Running",
        "startTime": pod["status"].get("startTime") or now,
        "conditions": [
            *(pod_condition(pod, type, "True", now) for type in types),
            readiness(pod, now),
        ],
        "containerStatuses": [
            {
                **container_status(c, state, True),
                "containerID": _container_id(pod, c),
            }
            for c in pod["spec"]["containers"]
        ],
        **addresses(node, pod),
    }
    inits = pod["spec"].get("initContainers") or ()
    if inits:
        done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now,
                               "finishedAt": now}, "waiting": None}  # fmt: skip
        status["initContainerStatuses"] = [
            container_status(c, state, True)
            if c.get("restartPolicy") == "Always"
            else container_status(c, done, False)
            for c in inits
        ]
    return status


def waiting(
    pod: Object, node: Object, now_ns: int, missing: Mapping[str, Object] | None = None
) -> Object:
    """The status of a pod none of whose containers has started. `missing`: what containers wait for
    that do not wait for others, by name."""
    now = time_text(now_ns)
    spec, found = pod["spec"], missing or {}
    inits = spec.get("initContainers") or ()
    text = unready([c["name"] for c in spec["containers"]])
    incomplete = [c["name"] for c in inits if c.get("restartPolicy") != "Always"]

    def told(container: Object, reason: str) -> Object:
        state = {"waiting": found.get(container["name"]) or {"reason": reason}}
        return container_status(container, state, False)

    reason = "PodInitializing" if incomplete else "ContainerCreating"
    status: Object = {
        "startTime": pod["status"].get("startTime") or now,
        "conditions": [
            pod_condition(pod, "PodReadyToStartContainers", "False", now),
            pod_condition(
                pod, "Initialized", "False", now, "ContainersNotInitialized",
                f"containers with incomplete status: [{' '.join(incomplete)}]",
            )
            if incomplete
            else pod_condition(pod, "Initialized", "True", now),
            pod_condition(pod, "Ready", "False", now, "ContainersNotReady", text),
            pod_condition(pod, "ContainersReady", "False", now, "ContainersNotReady", text),
        ],
        "containerStatuses": [told(c, reason) for c in spec["containers"]],
        **{k: v for k, v in addresses(node, pod).items() if k.startswith("host")},
    }  # fmt: skip
    if inits:
        status["initContainerStatuses"] = [told(c, "PodInitializing") for c in inits]
    return status


def resized(status: Object, container: Object, now_ns: int) -> Object:
    """What is said of a container that has its new resources; some want to begin anew for it."""
    own, before = resources(container), status.get("resources") or {}
    made = {**status, "resources": own, "allocatedResources": own.get("requests")}
    restarts = {
        policy["resourceName"]
        for policy in container.get("resizePolicy") or ()
        if policy.get("restartPolicy") == "RestartContainer"
    }
    for field in ("requests", "limits"):
        new, old = own.get(field) or {}, before.get(field) or {}
        if any(new.get(name) != old.get(name) for name in restarts):
            now = time_text(now_ns)
            return {
                **made,
                "restartCount": status.get("restartCount", 0) + 1,
                "lastState": {"terminated": terminated(status, 0, now)},
                "state": {"running": {"startedAt": now}},
            }
    return made
