"""Builds the timeline of a pod from the times in its object and the scheduler's attempts."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from stower.model.times import SECOND_NS, time_ns

# In the order in which they come true.
CONDITIONS: Final = (
    "PodScheduled", "Initialized", "PodReadyToStartContainers", "ContainersReady", "Ready",
)  # fmt: skip


def timeline(
    pod: Mapping[str, Any], decisions: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """In order of time, most of which is told in whole seconds: `atNs`, `what`, and `text` where
    there is more to say. `pod`: as the API has it, or empty; what it does not tell is left out."""
    meta, status = _dict(pod.get("metadata")), _dict(pod.get("status"))
    found: list[dict[str, Any]] = []

    def add(at: Any, what: str, text: str = "") -> None:
        at_ns = at if isinstance(at, int) else time_ns(at) if isinstance(at, str) else None
        if at_ns:
            found.append({"atNs": at_ns, "what": what, "text": text})

    add(meta.get("creationTimestamp"), "created")
    for one in decisions:
        text = f"on {one['node']}" if one["node"] else one["message"]
        add(one["atNs"], f"attempt {one['attempts']}: {one['outcome']}", text)
    conditions = {one.get("type"): one for one in _dicts(status.get("conditions"))}
    for name in (*CONDITIONS, *(name for name in conditions if name not in CONDITIONS)):
        if conditions.get(name, {}).get("status") == "True":
            add(conditions[name].get("lastTransitionTime"), str(name))
        if name == CONDITIONS[0]:
            add(status.get("startTime"), "accepted by the kubelet")
    for container in _dicts(status.get("containerStatuses")):
        for state in ("running", "terminated"):
            times = _dict(_dict(container.get("state")).get(state))
            at = times.get("startedAt" if state == "running" else "finishedAt")
            add(at, f"container {container.get('name')} {state}")
    add(meta.get("deletionTimestamp"), "deletion requested")
    return sorted(found, key=lambda one: one["atNs"] // SECOND_NS)


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
