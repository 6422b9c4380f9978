"""Computes the printed columns of pods: READY, STATUS and RESTARTS from the pod's status."""

from typing import Any

from stower.api.printers.parts import NONE, Object, conditions_of, format_age, is_true
from stower.model.times import short_duration, time_ns


def _end_reason(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


class _PodState:
    """What the status of a pod amounts to."""

    def __init__(self, item: Object) -> None:
        self.spec, self.status = item["spec"], item.get("status") or {}
        self.conditions = conditions_of(item)
        self.ready = self.restarts = self.side_restarts = 0
        self.last = self.side_last = 0
        self.sidecars = {
            c["name"] for c in self.spec.get("initContainers") or ()
            if c.get("restartPolicy") == "Always"
        }  # fmt: skip
        self.total = len(self.spec.get("containers") or ()) + len(self.sidecars)
        phase = self.status.get("phase", "")
        self.reason = self.status.get("reason") or phase
        if self.conditions.get("PodScheduled", {}).get("reason") == "SchedulingGated":
            self.reason = "SchedulingGated"
        initializing = self._init_containers()
        if not initializing or is_true(self.conditions, "Initialized"):
            self.restarts, self.last = self.side_restarts, self.side_last
            self._app_containers()
        if item["metadata"].get("deletionTimestamp"):
            if self.status.get("reason") == "NodeLost":
                self.reason = "Unknown"
            elif phase not in ("Succeeded", "Failed"):
                self.reason = "Terminating"

    def _init_containers(self) -> bool:
        count = len(self.spec.get("initContainers") or ())
        for i, found in enumerate(self.status.get("initContainerStatuses") or ()):
            self.restarts += found.get("restartCount", 0)
            ended = _last_end_ns(found)
            self.last = max(self.last, ended)
            side = found.get("name") in self.sidecars
            if side:
                self.side_restarts += found.get("restartCount", 0)
                self.side_last = max(self.side_last, ended)
            state = found.get("state") or {}
            terminated, waiting = state.get("terminated"), state.get("waiting") or {}
            if terminated is not None and terminated.get("exitCode", 0) == 0:
                continue
            if side and found.get("started"):
                self.ready += bool(found.get("ready"))
                continue
            if terminated is not None:
                self.reason = f"Init:{_end_reason(terminated)}"
            elif waiting.get("reason") and waiting["reason"] != "PodInitializing":
                self.reason = f"Init:{waiting['reason']}"
            else:
                self.reason = f"Init:{i}/{count}"
            return True
        return False

    def _app_containers(self) -> None:
        running = False
        failure = ""
        for found in reversed(self.status.get("containerStatuses") or ()):
            self.restarts += found.get("restartCount", 0)
            self.last = max(self.last, _last_end_ns(found))
            state = found.get("state") or {}
            if (state.get("waiting") or {}).get("reason"):
                self.reason = state["waiting"]["reason"]
            elif state.get("terminated") is not None:
                self.reason = _end_reason(state["terminated"])
                if state["terminated"].get("exitCode", 0) != 0:
                    failure = self.reason
            elif found.get("ready") and state.get("running") is not None:
                running = True
                self.ready += 1
        if self.reason == "Completed":
            if running and is_true(self.conditions, "Ready"):
                self.reason = "Running"
            elif failure:
                self.reason = failure
            elif running:
                self.reason = "NotReady"


def _last_end_ns(status: Object) -> int:
    last = (status.get("lastState") or {}).get("terminated") or {}
    return time_ns(last.get("finishedAt")) or 0


def pod(item: Object, now_ns: int) -> list[Any]:
    """The cells of a pod."""
    state = _PodState(item)
    restarts = str(state.restarts)
    if state.restarts and state.last:
        restarts += f" ({short_duration((now_ns - state.last) // 10**9)} ago)"
    addresses = state.status.get("podIPs") or [{}]
    gates = NONE
    if wanted := state.spec.get("readinessGates"):
        passed = sum(is_true(state.conditions, g["conditionType"]) for g in wanted)
        gates = f"{passed}/{len(wanted)}"
    return [
        item["metadata"]["name"],
        f"{state.ready}/{state.total}",
        state.reason,
        restarts,
        format_age(item, now_ns),
        addresses[0].get("ip") or NONE,
        state.spec.get("nodeName") or NONE,
        state.status.get("nominatedNodeName") or NONE,
        gates,
    ]
