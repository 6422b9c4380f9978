"""Computes the status of a Deployment: counts, and the conditions that say how its rollout goes.

Source: pkg/controller/deployment/progress.go and sync.go.
"""

from typing import Any, Final

from stower.controllers.deployment_sets import bounds, get_count
from stower.controllers.objects import Object, name_of
from stower.controllers.pods import replicas
from stower.model.times import SECOND_NS, time_ns, time_text

FAILURE: Final = "ReplicaFailure"
PROGRESSING: Final = "Progressing"
AVAILABLE: Final = "NewReplicaSetAvailable"  # reasons
TIMED_OUT: Final = "ProgressDeadlineExceeded"
PAUSED: Final = "DeploymentPaused"
NO_DEADLINE: Final = 2**31 - 1
COUNTS: Final = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas",
                 "unavailableReplicas")  # fmt: skip


class Conditions:
    """The conditions of a Deployment as they are to be."""

    def __init__(self, obj: Object, now_ns: int) -> None:
        self._now = time_text(now_ns)
        self.items: list[Object] = list((obj.get("status") or {}).get("conditions") or ())

    def find(self, type: str) -> Object | None:
        """The condition of that type."""
        return next((c for c in self.items if c.get("type") == type), None)

    def set(self, type: str, status: str, reason: str, message: str, again: bool = False) -> None:
        """Say it, unless it is said already; `again`: with a new time even then."""
        made = {"type": type, "status": status, "reason": reason, "message": message,
                "lastUpdateTime": self._now, "lastTransitionTime": self._now}  # fmt: skip
        self.put(made, again)

    def put(self, made: Any, again: bool = False) -> None:
        """Take in a condition, unless it is there with that status and reason."""
        known = self.find(made["type"])
        if known is not None and known.get("status") == made["status"]:
            if known.get("reason") == made["reason"] and not again:
                return
            made = {**made, "lastTransitionTime": known.get("lastTransitionTime")}
        self.remove(made["type"])
        self.items.append(made)

    def remove(self, type: str) -> None:
        """Say nothing of that type."""
        self.items = [c for c in self.items if c.get("type") != type]


def deadline_s(obj: Object) -> int | None:
    """How long a rollout may do nothing, in seconds; None: for ever."""
    given = obj["spec"].get("progressDeadlineSeconds")
    return None if given is None or given >= NO_DEADLINE else int(given)


def count(obj: Object, new: Object | None, sets: list[Object]) -> Object:
    """The counts of the status."""
    available = sum(get_count(one, "availableReplicas") for one in sets)
    status: Object = {
        "observedGeneration": obj["metadata"].get("generation", 0),
        "replicas": sum(get_count(one, "replicas") for one in sets),
        "updatedReplicas": get_count(new, "replicas") if new is not None else 0,
        "readyReplicas": sum(get_count(one, "readyReplicas") for one in sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(map(replicas, sets)) - available),
    }
    seen = [one for one in sets if get_count(one, "observedGeneration")]
    if all("terminatingReplicas" in one["status"] for one in seen):
        status["terminatingReplicas"] = sum(get_count(one, "terminatingReplicas") for one in seen)
    return status


def is_complete(obj: Object, status: Object) -> bool:
    """All pods are updated and available, and no old ones are there."""
    wanted = replicas(obj)
    fields = ("updatedReplicas", "replicas", "availableReplicas")
    observed = status.get("observedGeneration") or 0
    return all((status.get(f) or 0) == wanted for f in fields) and observed >= obj["metadata"].get(
        "generation", 0
    )


def set_available(obj: Object, status: Object, conditions: Conditions) -> None:
    """Say whether enough pods are available."""
    if status["availableReplicas"] >= replicas(obj) - bounds(obj)[1]:
        text = "Deployment has minimum availability."
        conditions.set("Available", "True", "MinimumReplicasAvailable", text)
    else:
        text = "Deployment does not have minimum availability."
        conditions.set("Available", "False", "MinimumReplicasUnavailable", text)


def set_paused(obj: Object, conditions: Conditions) -> None:
    """Say that a rollout rests or goes on, so that the time it rests does not count."""
    if deadline_s(obj) is None:
        return
    reason = (conditions.find(PROGRESSING) or {}).get("reason")
    if reason == TIMED_OUT:
        return
    if obj["spec"].get("paused") and reason != PAUSED:
        conditions.set(PROGRESSING, "Unknown", PAUSED, "Deployment is paused")
    elif not obj["spec"].get("paused") and reason == PAUSED:
        conditions.set(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed")


def set_progress(
    obj: Object, new: Object | None, status: Object, conditions: Conditions, now_ns: int
) -> None:
    """Say whether the rollout has ended, goes on or is stuck."""
    if deadline_s(obj) is None:
        conditions.remove(PROGRESSING)
        return
    known = conditions.find(PROGRESSING) or {}
    if status["replicas"] == status["updatedReplicas"] and known.get("reason") == AVAILABLE:
        return
    what = f'Deployment "{name_of(obj)}"' if new is None else f'ReplicaSet "{name_of(new)}"'
    if is_complete(obj, status):
        text = f"{what} has successfully progressed."
        conditions.set(PROGRESSING, "True", AVAILABLE, text)
    elif _has_progressed(obj, status):
        text = f"{what} is progressing."
        conditions.set(PROGRESSING, "True", "ReplicaSetUpdated", text, again=True)
    elif known.get("reason") == TIMED_OUT or _is_overdue(obj, known, now_ns):
        text = f"{what} has timed out progressing."
        conditions.set(PROGRESSING, "False", TIMED_OUT, text)


def set_failure(new: Object | None, sets: list[Object], conditions: Conditions) -> None:
    """Say why a ReplicaSet cannot make pods, of the newest first."""
    for one in (*((new,) if new is not None else ()), *sets):
        for found in (one.get("status") or {}).get("conditions") or ():
            if found.get("type") == FAILURE:
                conditions.put({**found, "lastUpdateTime": found.get("lastTransitionTime")})
                return
    conditions.remove(FAILURE)


def due_ns(obj: Object, status: Object, conditions: Conditions) -> int | None:
    """When to look whether the rollout is stuck; None: it is over, or nobody asks."""
    known, limit_s = conditions.find(PROGRESSING), deadline_s(obj)
    if known is None or limit_s is None:
        return None
    if is_complete(obj, status) or known.get("reason") in (TIMED_OUT, AVAILABLE):
        return None
    since_ns = time_ns(known.get("lastUpdateTime"))
    return None if since_ns is None else since_ns + (limit_s + 1) * SECOND_NS


def _has_progressed(obj: Object, status: Object) -> bool:
    known = {name: get_count(obj, name) for name in COUNTS}
    old = status["replicas"] - status["updatedReplicas"]
    return bool(
        status["updatedReplicas"] > known["updatedReplicas"]
        or old < known["replicas"] - known["updatedReplicas"]
        or status["readyReplicas"] > known["readyReplicas"]
        or status["availableReplicas"] > known["availableReplicas"]
    )


def _is_overdue(obj: Object, known: Object, now_ns: int) -> bool:
    since_ns = time_ns(known.get("lastUpdateTime"))
    if since_ns is None or known.get("reason") == AVAILABLE:
        return False
    return since_ns + (deadline_s(obj) or 0) * SECOND_NS < now_ns
