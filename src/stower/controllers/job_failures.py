"""Failed pods of Jobs: what a pod failure policy says about them, and when the next pod may come.

Source: pkg/controller/job/pod_failure_policy.go, backoff_utils.go.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from stower.controllers.objects import Object, created_ns, is_ending, name_of, namespace_of, uid_of
from stower.controllers.pods import condition, sidecar_statuses
from stower.model.times import SECOND_NS, time_ns

BACKOFF_NS: Final = 10 * SECOND_NS
BACKOFF_NS_MAX: Final = 600 * SECOND_NS


class FailureMatch(NamedTuple):
    """What a pod failure policy says about one failed pod."""

    action: str = ""  # of the rule that matched, empty where none did
    message: str = ""  # why the Job fails, for the action FailJob

    @property
    def is_counted(self) -> bool:
        """The failure counts towards the backoff limits."""
        return self.action != "Ignore"


def match_failure(policy: Any, pod: Object) -> FailureMatch:
    """The first rule of a pod failure policy that matches a failed pod."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        action = rule.get("action") or ""
        if rule.get("onExitCodes"):
            status = _find_exit(pod.get("status") or {}, rule["onExitCodes"])
            if status is None:
                continue
            code = status["state"]["terminated"].get("exitCode", 0)
            what = (
                f"Container {status.get('name', '')} for pod {namespace_of(pod)}/{name_of(pod)} "
                f"failed with exit code {code}"
            )
        else:
            type = _find_condition(pod.get("status") or {}, rule.get("onPodConditions") or ())
            if type is None:
                continue
            what = f"Pod {namespace_of(pod)}/{name_of(pod)} has condition {type}"
        message = f"{what} matching {action} rule at index {number}" if action == "FailJob" else ""
        return FailureMatch(action, message)
    return FailureMatch()


def _find_exit(status: Object, rule: Object) -> Object | None:
    """The first ended container, of the main ones and then the init ones, whose exit code the rule
    takes."""
    values, is_in = rule.get("values") or (), rule.get("operator") == "In"
    for field in ("containerStatuses", "initContainerStatuses"):
        for found in status.get(field) or ():
            code = ((found.get("state") or {}).get("terminated") or {}).get("exitCode", 0)
            if rule.get("containerName") in (None, found.get("name")) and code:
                if (code in values) == is_in:
                    return dict(found)
    return None


def _find_condition(status: Object, patterns: Iterable[Object]) -> str | None:
    wanted = {(p.get("type"), p.get("status") or "True") for p in patterns}
    for found in status.get("conditions") or ():
        if (found.get("type"), found.get("status")) in wanted:
            return str(found["type"])
    return None


def finished_ns(pod: Object) -> int:
    """When a pod ended, by its containers, else its Ready condition, deletion or creation."""
    status, meta = pod.get("status") or {}, pod["metadata"]
    ends = [
        time_ns(((c.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for c in (*(status.get("containerStatuses") or ()), *sidecar_statuses(pod))
    ]
    known = [end for end in ends if end]
    if known and len(known) == len(ends):
        return max(known)
    ready = condition(pod, "Ready") or {}
    if ready.get("status") == "False":
        changed_ns = time_ns(ready.get("lastTransitionTime"))
        if changed_ns:
            return changed_ns
    if is_ending(pod):
        grace_s = meta.get("deletionGracePeriodSeconds") or 0
        return (time_ns(meta["deletionTimestamp"]) or 0) - grace_s * SECOND_NS
    return created_ns(pod)


def backoff_ns(failures: int) -> int:
    """The pause after so many failures in a row: 10 s, then twice as long each time, 10 min at
    most."""
    return min(BACKOFF_NS << min(failures - 1, 10), BACKOFF_NS_MAX) if failures > 0 else 0


class JobBackoff:
    """Failures of a Job's pods since the last success. Each pod is counted once."""

    def __init__(self) -> None:
        self._failures = 0
        self._last_ns = 0
        self._counted: set[str] = set()

    def record(self, succeeded: Sequence[Object], failed: Sequence[Object]) -> None:
        """Takes in the pods that ended and that the Job's status has not counted."""
        uids = {uid_of(pod) for pod in (*succeeded, *failed)}
        good = [finished_ns(p) for p in succeeded if uid_of(p) not in self._counted]
        bad = [finished_ns(p) for p in failed if uid_of(p) not in self._counted]
        self._counted = uids
        if good:
            self._failures, self._last_ns = 0, 0
            bad = [end for end in bad if end > max(good)]
        if bad:
            self._failures += len(bad)
            self._last_ns = max(bad)

    @property
    def until_ns(self) -> int:
        """No pod is to be created before this time."""
        return self._last_ns + backoff_ns(self._failures) if self._failures else 0
