"""The containers of a simulated pod as time goes on: init containers one after the other, then all
others side by side; each that ends runs again as its restart policy says, with back-off.

Everything is read from the pod's status and from how its containers play (played.py), so that a
restart of the kubelet loses nothing.

Source: pkg/kubelet (kuberuntime/kuberuntime_container.go, status/generate.go, kubelet_pods.go
getPhase).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from stower.controllers.moments import ExactTime
from stower.controllers.objects import Object
from stower.controllers.played import AT_ONCE, Play
from stower.controllers.pod_status import (
    container_status,
    ephemeral_status,
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


class _Pace(NamedTuple):
    """What a step of a pod's containers depends on."""

    pod: Object
    plays: Mapping[str, Play]
    exact: ExactTime
    now_ns: int
    awaited: Mapping[str, Object]  # see advance


def is_sidecar(container: Object) -> bool:
    """An init container that runs as long as the pod does."""
    return bool(container.get("restartPolicy") == "Always")


def is_running(status: Object) -> bool:
    """A container of this status runs."""
    return bool((status.get("state") or {}).get("running"))


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


def unstarted(pod: Object) -> list[Object]:
    """The containers of a pod whose containers were started that are to be started besides: with
    another image than they have, and ephemeral ones. Their images may not be there yet."""
    spec = pod["spec"]
    sidecars = [c for c in spec.get("initContainers") or () if is_sidecar(c)]
    lasting, ephemeral = (*sidecars, *spec["containers"]), spec.get("ephemeralContainers") or ()
    return [
        *(c for c in lasting if _is_replaced(status_of(pod, c["name"]), c)),
        *(c for c in ephemeral if _is_unstarted(status_of(pod, c["name"]))),
    ]


def advance(
    pod: Object,
    node: Object,
    plays: Mapping[str, Play],
    exact: ExactTime,
    now_ns: int,
    awaited: Mapping[str, Object] = {},
) -> tuple[Object | None, int | None]:
    """What changes in the status now, None for nothing; and when something changes by itself.
    `awaited`: what those of the unstarted containers wait for whose image is not there."""
    pace = _Pace(pod, plays, exact, now_ns, awaited)
    if is_initialized(pod):
        changed, wake_ns = _go_on(pace)
    else:
        changed, wake_ns = _initialize(pace, node)
    ephemeral, due_ns = _step_ephemeral(pace)
    if (changed or {}).get("phase") in ("Succeeded", "Failed"):
        ephemeral, due_ns = _end_all(ephemeral, KILLED, time_text(now_ns)), None
    if ephemeral != _statuses(pod, "ephemeralContainerStatuses"):
        changed = {**(changed or {}), "ephemeralContainerStatuses": ephemeral}
    return changed, _sooner(wake_ns, due_ns)


def _go_on(pace: _Pace) -> tuple[Object | None, int | None]:
    pod, now_ns = pace.pod, pace.now_ns
    inits, wake_ns = _step_sidecars(pace)
    statuses = _statuses(pod, "containerStatuses")
    new, ended, failed = [], 0, False
    specs = {c["name"]: c for c in pod["spec"]["containers"]}
    for status in statuses:
        spec = specs.get(status["name"])
        if spec is None:
            new.append(status)
            continue
        status, due_ns = _step(pace, _replaced(pace, status, spec), spec)
        new.append(status)
        wake_ns = _sooner(wake_ns, due_ns)
        done = (status.get("state") or {}).get("terminated")
        if done:
            ended += 1
            failed |= bool(done.get("exitCode"))
    if ended and ended == len(new):
        return _ended(pod, new, inits, failed, now_ns), None
    if new == statuses and inits == _statuses(pod, "initContainerStatuses"):
        return None, wake_ns
    made: Object = {"containerStatuses": new, "conditions": _conditions(pod, new, inits, now_ns)}
    if inits:
        made["initContainerStatuses"] = inits
    return made, wake_ns


def kill(pod: Object, now_ns: int, code: int = KILLED) -> Object:
    """All containers have ended with this code, whatever the restart policy."""
    now = time_text(now_ns)
    statuses = _end_all(_statuses(pod, "containerStatuses"), code, now)
    inits = _statuses(pod, "initContainerStatuses")
    failed = any(c["state"]["terminated"]["exitCode"] for c in statuses) or not statuses
    made = _ended(pod, statuses, inits, failed and bool(code), now_ns)
    if ephemeral := _statuses(pod, "ephemeralContainerStatuses"):
        made["ephemeralContainerStatuses"] = _end_all(ephemeral, KILLED, now)
    return made


def _initialize(pace: _Pace, node: Object) -> tuple[Object | None, int | None]:
    pod, now_ns = pace.pod, pace.now_ns
    now = time_text(now_ns)
    inits = _statuses(pod, "initContainerStatuses")
    before = list(inits)
    for i, spec in enumerate(pod["spec"].get("initContainers") or ()):
        status = inits[i]
        state = status.get("state") or {}
        if (state.get("waiting") or {}).get("reason") == "PodInitializing":
            status = {**status, "state": {"running": {"startedAt": now}, "waiting": None}}
            if is_sidecar(spec):
                status = {**status, "ready": True, "started": True}
        inits[i], due_ns = _step(pace, status, spec)
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


def _step_sidecars(pace: _Pace) -> tuple[list[Object], int | None]:
    inits = _statuses(pace.pod, "initContainerStatuses")
    wake_ns: int | None = None
    specs = {c["name"]: c for c in pace.pod["spec"].get("initContainers") or () if is_sidecar(c)}
    for i, status in enumerate(inits):
        spec = specs.get(status["name"])
        if spec is not None:
            inits[i], due_ns = _step(pace, _replaced(pace, status, spec), spec)
            wake_ns = _sooner(wake_ns, due_ns)
    return inits, wake_ns


def _step_ephemeral(pace: _Pace) -> tuple[list[Object], int | None]:
    """The statuses of the ephemeral containers. They are never ready, and never run again."""
    now = time_text(pace.now_ns)
    found, wake_ns = [], None
    for spec in pace.pod["spec"].get("ephemeralContainers") or ():
        status = status_of(pace.pod, spec["name"])
        wait = pace.awaited.get(spec["name"])
        if _is_unstarted(status) and not _waits(status, wait):
            state = {"waiting": wait} if wait else {"running": {"startedAt": now}}
            status = ephemeral_status(pace.pod, spec, state)
        due_ns = _end_ns(pace, status, spec)
        if due_ns is not None and due_ns <= pace.now_ns:
            status, due_ns = _end(status, pace.plays[spec["name"]].code, now), None
        found.append(status)
        wake_ns = _sooner(wake_ns, due_ns)
    return found, wake_ns


def _step(pace: _Pace, status: Object, spec: Object) -> tuple[Object, int | None]:
    """A container's status as of now, and when it changes by itself."""
    now_ns, play = pace.now_ns, pace.plays[spec["name"]]
    now = time_text(now_ns)
    while True:
        state = status.get("state") or {}
        if (state.get("waiting") or {}).get("reason") == BACK_OFF:
            ended = status["lastState"]["terminated"]
            due_ns = pace.exact(ended.get("finishedAt")) + restart_pause_ns(status)
            if due_ns > now_ns:
                return status, due_ns
            status = _run_again(status, ended, spec, now)
            continue
        end_ns = _end_ns(pace, status, spec)
        if end_ns is None or end_ns > now_ns:
            return status, end_ns
        if not _runs_again(pace.pod, spec, play.code):
            return _end(status, play.code, now), None
        ended = terminated(status, play.code, now)
        if restart_pause_ns(status):
            status = _back_off(status, ended)
        else:
            status = _run_again(status, ended, spec, now)


def _end_ns(pace: _Pace, status: Object, spec: Object) -> int | None:
    """When a container ends by itself; None where it does not run, or has no end."""
    runs = (status.get("state") or {}).get("running")
    after_ns = pace.plays[spec["name"]].after_ns
    return pace.exact(runs.get("startedAt")) + after_ns if runs and after_ns is not None else None


def _is_unstarted(status: Object) -> bool:
    state = status.get("state") or {}
    return not state.get("running") and not state.get("terminated")


def _waits(status: Object, wait: Object | None) -> bool:
    """Whether the status says already what a container waits for."""
    return wait is not None and (status.get("state") or {}).get("waiting") == wait


def _is_replaced(status: Object, spec: Object) -> bool:
    """Whether a container is to run with another image than it was started with. A status that
    names an image by its digest was not written for a simulated container."""
    state, image = status.get("state") or {}, status.get("image")
    has_run = is_running(status) or (state.get("waiting") and status.get("lastState"))
    is_own = status.get("imageID") == image
    return bool(has_run and is_own and image != (spec.get("image") or ""))


def _replaced(pace: _Pace, status: Object, spec: Object) -> Object:
    """The status of a container that ends, whatever the restart policy, where it is to have another
    image; it runs with that, or waits for it."""
    now, wait = time_text(pace.now_ns), pace.awaited.get(spec["name"])
    if not _is_replaced(status, spec) or _waits(status, wait):
        return status
    if is_running(status):
        ended = terminated(status, TERMINATED, now)
    else:
        ended = status["lastState"]["terminated"]
    if wait is None:
        image = spec.get("image") or ""
        return _run_again({**status, "image": image, "imageID": image}, ended, spec, now)
    return {
        **status,
        "ready": False,
        "started": False,
        "lastState": {"terminated": ended},
        "state": {"running": None, "waiting": wait},
    }


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


def _end_all(statuses: list[Object], code: int, now: str) -> list[Object]:
    return [_end(status, code, now) for status in statuses]


def status_of(pod: Object, name: str) -> Object:
    """The status of a container, empty where there is none."""
    fields = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    return next((c for f in fields for c in _statuses(pod, f) if c["name"] == name), {})


def _statuses(pod: Object, field: str) -> list[Object]:
    return list((pod.get("status") or {}).get(field) or ())


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
