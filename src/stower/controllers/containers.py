"""The containers of a simulated pod as time goes on: init containers one after the other, then all
others side by side; each that ends runs again as its restart policy says, with back-off.

Everything is read from the pod's status and from how its containers play (played.py), so that a
restart of the kubelet loses nothing.

Source: pkg/kubelet (kuberuntime/kuberuntime_container.go, status/generate.go, kubelet_pods.go
getPhase).
"""

from collections.abc import Mapping
from typing import Final

from stower.controllers.moments import ExactTime
from stower.controllers.objects import Object
from stower.controllers.played import AT_ONCE, Play
from stower.controllers.pod_status import (
    container_status,
    pod_condition,
    readiness,
    restart_pause_ns,
    running,
    terminated,
    unready,
)
from stower.model.times import time_text

KILLED: Final = 137  # 128 + SIGKILL
TERMINATED: Final = 143  # 128 + SIGTERM
BACK_OFF: Final = "CrashLoopBackOff"


def is_sidecar(container: Object) -> bool:
    """An init container that runs as long as the pod does."""
    return bool(container.get("restartPolicy") == "Always")


def is_initialized(pod: Object) -> bool:
    """Its init containers have done their work."""
    return bool((pod.get("status") or {}).get("phase") != "Pending")


def begin(pod: Object, node: Object, plays: Mapping[str, Play], now_ns: int) -> Object:
    """The status of a pod whose containers may start."""
    inits = pod["spec"].get("initContainers") or ()
    if all(is_sidecar(c) or plays[c["name"]] == AT_ONCE for c in inits):
        return running(pod, node, now_ns)
    waits = {"waiting": {"reason": "PodInitializing"}}
    now = time_text(now_ns)
    status = running(pod, node, now_ns)
    text = unready([c["name"] for c in pod["spec"]["containers"]])
    incomplete = [c["name"] for c in inits if not is_sidecar(c)]
    return {
        **status,
        "phase": "Pending",
        "conditions": [
            pod_condition(pod, "PodReadyToStartContainers", "True", now),
            pod_condition(
                pod, "Initialized", "False", now, "ContainersNotInitialized",
                f"containers with incomplete status: [{' '.join(incomplete)}]",
            ),
            pod_condition(pod, "Ready", "False", now, "ContainersNotReady", text),
            pod_condition(pod, "ContainersReady", "False", now, "ContainersNotReady", text),
        ],
        "initContainerStatuses": [container_status(c, waits, False) for c in inits],
        "containerStatuses": [container_status(c, waits, False) for c in pod["spec"]["containers"]],
    }  # fmt: skip


def advance(
    pod: Object, node: Object, plays: Mapping[str, Play], exact: ExactTime, now_ns: int
) -> tuple[Object | None, int | None]:
    """What changes in the status now, None for nothing; and when something changes by itself."""
    if not is_initialized(pod):
        return _initialize(pod, node, plays, exact, now_ns)
    inits, wake_ns = _step_sidecars(pod, plays, exact, now_ns)
    statuses = pod["status"].get("containerStatuses") or []
    new, ended, failed = [], 0, False
    specs = {c["name"]: c for c in pod["spec"]["containers"]}
    for status in statuses:
        spec = specs.get(status["name"])
        if spec is None:
            new.append(status)
            continue
        status, due_ns = _step(pod, status, spec, plays[spec["name"]], exact, now_ns)
        new.append(status)
        wake_ns = _sooner(wake_ns, due_ns)
        done = (status.get("state") or {}).get("terminated")
        if done:
            ended += 1
            failed |= bool(done.get("exitCode"))
    if ended and ended == len(new):
        return _ended(pod, new, inits, failed, now_ns), None
    if new == statuses and inits == (pod["status"].get("initContainerStatuses") or []):
        return None, wake_ns
    made: Object = {"containerStatuses": new, "conditions": _conditions(pod, new, inits, now_ns)}
    if inits:
        made["initContainerStatuses"] = inits
    return made, wake_ns


def kill(pod: Object, now_ns: int, code: int = KILLED) -> Object:
    """All containers have ended with this code, whatever the restart policy."""
    now = time_text(now_ns)
    statuses = [_end(c, code, now) for c in pod["status"].get("containerStatuses") or ()]
    inits = list(pod["status"].get("initContainerStatuses") or ())
    failed = any(c["state"]["terminated"]["exitCode"] for c in statuses) or not statuses
    return _ended(pod, statuses, inits, failed and bool(code), now_ns)


def _initialize(
    pod: Object, node: Object, plays: Mapping[str, Play], exact: ExactTime, now_ns: int
) -> tuple[Object | None, int | None]:
    now = time_text(now_ns)
    inits = list(pod["status"].get("initContainerStatuses") or ())
    before = list(inits)
    for i, spec in enumerate(pod["spec"].get("initContainers") or ()):
        status = inits[i]
        state = status.get("state") or {}
        if (state.get("waiting") or {}).get("reason") == "PodInitializing":
            status = {**status, "state": {"running": {"startedAt": now}, "waiting": None}}
            if is_sidecar(spec):
                status = {**status, "ready": True, "started": True}
        inits[i], due_ns = _step(pod, status, spec, plays[spec["name"]], exact, now_ns)
        done = (inits[i].get("state") or {}).get("terminated")
        if done and done.get("exitCode"):
            return _failed_init(pod, inits, now_ns), None
        if done is None and not is_sidecar(spec):
            changed = {"initContainerStatuses": inits} if inits != before else None
            return changed, due_ns
    status = running(pod, node, now_ns)
    status["initContainerStatuses"] = inits
    return status, now_ns


def _failed_init(pod: Object, inits: list[Object], now_ns: int) -> Object:
    """An init container that may not run again has failed, and so has the pod."""
    now = time_text(now_ns)
    return {
        "phase": "Failed",
        "conditions": [
            pod_condition(pod, type, "False", now, "PodFailed")
            for type in ("Ready", "ContainersReady")
        ],
        "initContainerStatuses": inits,
    }


def _step_sidecars(
    pod: Object, plays: Mapping[str, Play], exact: ExactTime, now_ns: int
) -> tuple[list[Object], int | None]:
    inits = list(pod["status"].get("initContainerStatuses") or ())
    wake_ns: int | None = None
    specs = {c["name"]: c for c in pod["spec"].get("initContainers") or () if is_sidecar(c)}
    for i, status in enumerate(inits):
        spec = specs.get(status["name"])
        if spec is not None:
            inits[i], due_ns = _step(pod, status, spec, plays[spec["name"]], exact, now_ns)
            wake_ns = _sooner(wake_ns, due_ns)
    return inits, wake_ns


def _step(
    pod: Object, status: Object, spec: Object, play: Play, exact: ExactTime, now_ns: int
) -> tuple[Object, int | None]:
    """A container's status as of now, and when it changes by itself."""
    now = time_text(now_ns)
    while True:
        state = status.get("state") or {}
        if (state.get("waiting") or {}).get("reason") == BACK_OFF:
            ended = status["lastState"]["terminated"]
            due_ns = exact(ended.get("finishedAt")) + restart_pause_ns(status)
            if due_ns > now_ns:
                return status, due_ns
            status = _run_again(status, ended, spec, now)
        elif state.get("running"):
            if play.after_ns is None:
                return status, None
            due_ns = exact(state["running"].get("startedAt")) + play.after_ns
            if due_ns > now_ns:
                return status, due_ns
            if not _runs_again(pod, spec, play.code):
                return _end(status, play.code, now), None
            ended = terminated(status, play.code, now)
            if restart_pause_ns(status):
                status = _back_off(status, ended)
            else:
                status = _run_again(status, ended, spec, now)
        else:
            return status, None


def _runs_again(pod: Object, spec: Object, code: int) -> bool:
    """Whether a container that has ended with this code starts anew (KEP-753, KEP-5307)."""
    for rule in spec.get("restartPolicyRules") or ():
        exits = rule.get("exitCodes") or {}
        is_in = code in (exits.get("values") or ())
        if is_in == (exits.get("operator") == "In"):
            return bool(rule.get("action") == "Restart")
    policy = spec.get("restartPolicy") or pod["spec"].get("restartPolicy") or "Always"
    is_init = spec in (pod["spec"].get("initContainers") or ())
    if is_init and not is_sidecar(spec):
        return bool(code) and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and bool(code))


def _end(status: Object, code: int, now: str) -> Object:
    state = status.get("state") or {}
    if state.get("terminated"):
        return status
    ended = terminated(status, code, now)
    return {**status, "ready": False, "started": False,
            "state": {"running": None, "waiting": None, "terminated": ended}}  # fmt: skip


def _back_off(status: Object, ended: Object) -> Object:
    text = "back-off restarting failed container"
    return {
        **status,
        "ready": False,
        "started": False,
        "lastState": {"terminated": ended},
        "state": {"running": None, "waiting": {"reason": BACK_OFF, "message": text}},
    }


def _run_again(status: Object, ended: Object, spec: Object, now: str) -> Object:
    return {
        **status,
        "ready": True,
        "started": True,
        "restartCount": status.get("restartCount", 0) + 1,
        "lastState": {"terminated": ended},
        "state": {"running": {"startedAt": now}, "waiting": None},
    }


def _ended(
    pod: Object, statuses: list[Object], inits: list[Object], failed: bool, now_ns: int
) -> Object:
    now = time_text(now_ns)
    reason = "PodFailed" if failed else "PodCompleted"
    made: Object = {
        "phase": "Failed" if failed else "Succeeded",
        "conditions": [
            pod_condition(pod, type, "False", now, reason) for type in ("Ready", "ContainersReady")
        ],
        "containerStatuses": statuses,
    }
    if any((c.get("state") or {}).get("running") for c in inits):  # the sidecars
        made["initContainerStatuses"] = [
            _end(c, 0, now) if (c.get("state") or {}).get("running") else c for c in inits
        ]
    return made


def _conditions(
    pod: Object, statuses: list[Object], inits: list[Object], now_ns: int
) -> list[Object]:
    now = time_text(now_ns)
    sidecars = {c["name"] for c in pod["spec"].get("initContainers") or () if is_sidecar(c)}
    waiting = [c["name"] for c in inits if c["name"] in sidecars and not c.get("ready")]
    waiting += [c["name"] for c in statuses if not c.get("ready")]
    if not waiting:
        return [pod_condition(pod, "ContainersReady", "True", now), readiness(pod, now)]
    text = unready(waiting)
    return [
        pod_condition(pod, "ContainersReady", "False", now, "ContainersNotReady", text),
        readiness(pod, now, contained=False, message=text),
    ]


def _sooner(one: int | None, other: int | None) -> int | None:
    return min((t for t in (one, other) if t is not None), default=None)
