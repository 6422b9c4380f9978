"""Job controller: creates pods until enough of them have succeeded. Source: pkg/controller/job.

A finalizer keeps each pod until it is counted: the pod's uid and the new sum are written into the
Job's status first, then the finalizer is removed (KEP-2307).
"""

from typing import Any, Final

from stower.controllers.objects import Object, ObjectStore, is_ending, name_of, owner_of, uid_of
from stower.controllers.pods import condition, is_active, is_ready, phase, pod_of
from stower.controllers.runtime import OwnerController, ReconcileResult
from stower.model.times import SECOND_NS, time_ns, time_text

INDEX: Final = "batch.kubernetes.io/job-completion-index"
LABELS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
NAMES: Final = ("batch.kubernetes.io/job-name", "job-name")
TRACKING: Final = "batch.kubernetes.io/job-tracking"
COMPLETIONS_MAX: Final = 1_000_000
BACKOFF_NS: Final = 10 * SECOND_NS
BACKOFF_NS_MAX: Final = 600 * SECOND_NS


def index_of(pod: Object) -> int:
    """Which part of an Indexed job it is."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdecimal() else -1


def is_over(job: Object) -> bool:
    """It is complete or has failed."""
    return any(
        c.get("type") in ("Complete", "Failed") and c.get("status") == "True"
        for c in (job.get("status") or {}).get("conditions") or ()
    )


class JobController(OwnerController):
    """One Job is one key."""

    name = "job-controller"
    kinds = ("jobs", "pods")
    own = "jobs"

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """Make the pods that are still needed, and say how far it is."""
        spec, known = obj["spec"], obj.get("status") or {}
        pods = seen.list_owned(uid_of(obj), "pods")
        if is_over(obj) or is_ending(obj):
            _remove_finalizers([p for p in pods if not is_active(p)], todo)
            if is_over(obj):
                self._write_status(
                    obj, {"uncountedTerminatedPods": _make_uncounted(pods)}, [], todo
                )
                self._delete_after_ttl(obj, todo)
            return
        counted = _counted_uids(known)
        # Of one that is deleted while it runs, nobody will ever say how it ended.
        _remove_finalizers([p for p in pods if uid_of(p) in counted or _is_leaving(p)], todo)
        active = [p for p in pods if is_active(p)]
        if spec.get("suspend"):
            for pod in active:
                todo.delete("pods", pod)
            resting: Object = {"active": 0, "ready": 0, "startTime": None}
            self._write_status(obj, resting, _suspended_condition(obj, True, todo.now_ns), todo)
            return
        new = [p for p in pods if TRACKING in _finalizers(p) and uid_of(p) not in counted]
        bad = [p for p in new if phase(p) == "Failed"]
        failed = (known.get("failed") or 0) + len(bad)
        done, indexed = self._count_succeeded(obj, pods, sum(phase(p) == "Succeeded" for p in new))
        status: Object = {
            "startTime": known.get("startTime") or time_text(todo.now_ns),
            "succeeded": done,
            "failed": failed,
            "uncountedTerminatedPods": _make_uncounted(pods),
        }
        if indexed is not None:
            status["completedIndexes"] = _ranges(indexed)
        why = self._verdict(obj, pods, done, failed, status, todo)
        if why is not None:
            for pod in active:
                todo.delete("pods", pod)
            more = {"active": 0, "ready": 0, "terminating": 0}
            if why[0] == "Failed":
                more["failed"] = failed + len(active)
            if why[0] == "Complete":
                more["completionTime"] = time_text(todo.now_ns)  # type: ignore[assignment]
            self._write_status(obj, {**status, **more}, _verdict_conditions(why, todo.now_ns), todo)
            return
        made = self._make(obj, pods, active, done, indexed, failed, todo)
        status["active"] = len(active) + made
        status["ready"] = sum(map(is_ready, active))
        resumed = (
            []
            if condition(obj, "Suspended") is None
            else _suspended_condition(obj, False, todo.now_ns)
        )
        self._write_status(obj, status, resumed, todo)

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Also of a job that is gone: nothing keeps its pods."""
        super().reconcile(seen, key, todo)
        if seen.get("jobs", key) is None:
            namespace, _, name = key.partition("/")
            own = []
            for pod in seen.list_namespace("pods", namespace):
                owner = owner_of(pod) or {}
                if owner.get("kind") == "Job" and owner["name"] == name:
                    own.append(pod)
            _remove_finalizers(own, todo)

    def _count_succeeded(
        self, obj: Object, pods: list[Object], new: int
    ) -> tuple[int, set[int] | None]:
        known = obj.get("status") or {}
        good = [p for p in pods if phase(p) == "Succeeded"]
        if obj["spec"].get("completionMode") != "Indexed":
            return (known.get("succeeded") or 0) + new, None
        total = obj["spec"].get("completions") or 0
        indexed = _read_ranges(known.get("completedIndexes") or "")
        indexed |= {i for i in map(index_of, good) if 0 <= i < total}
        return len(indexed), indexed

    def _verdict(
        self,
        obj: Object,
        pods: list[Object],
        done: int,
        failed: int,
        status: Object,
        todo: ReconcileResult,
    ) -> tuple[str, str, str] | None:
        spec = obj["spec"]
        limit = spec.get("activeDeadlineSeconds")
        if limit is not None:
            due_ns = (time_ns(status["startTime"]) or todo.now_ns) + limit * SECOND_NS
            if due_ns <= todo.now_ns:
                return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
            todo.requeue_at(due_ns)
        restarts = sum(
            c.get("restartCount", 0)
            for p in pods
            for c in (p.get("status") or {}).get("containerStatuses") or ()
            if is_active(p) and spec["template"]["spec"].get("restartPolicy") == "OnFailure"
        )
        most = spec.get("backoffLimit", 6)
        if failed > most or restarts >= max(1, most):
            text = "Job has reached the specified backoff limit"
            return "Failed", "BackoffLimitExceeded", text
        completions = spec.get("completions")
        enough = done >= completions if completions is not None else (
            done > 0 and not any(is_active(p) for p in pods)
        )  # fmt: skip
        if enough:
            return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
        return None

    def _make(
        self,
        obj: Object,
        pods: list[Object],
        active: list[Object],
        done: int,
        indexed: set[int] | None,
        failed: int,
        todo: ReconcileResult,
    ) -> int:
        spec = obj["spec"]
        at_once = spec.get("parallelism", 1)
        completions = spec.get("completions")
        if completions is None:
            wanted = len(active) if done else at_once
        else:
            wanted = min(at_once, completions - done)
        for pod in active[wanted:]:
            todo.delete("pods", pod)
        missing = wanted - len(active)
        if missing <= 0:
            return 0
        due_ns = _backoff_end_ns(pods, failed)
        if due_ns > todo.now_ns:
            todo.requeue_at(due_ns)
            return 0
        free: list[int] = []
        if indexed is not None:
            taken = indexed | {index_of(p) for p in pods if is_active(p) or _is_leaving(p)}
            free = [i for i in range(completions or 0) if i not in taken]
            missing = min(missing, len(free))
        for turn in range(missing):
            todo.create("pods", _pod(obj, free[turn] if indexed is not None else None))
        return missing

    def _write_status(
        self, obj: Object, status: Object, conditions: list[Object], todo: ReconcileResult
    ) -> None:
        known = obj.get("status") or {}
        news = any(_bare(known.get(k)) != _bare(v) for k, v in status.items())
        wanted: Any = dict(status)
        if conditions:
            wanted["conditions"] = conditions
        if news or conditions:
            todo.patch("jobs", obj, {"status": wanted}, "status")

    def _delete_after_ttl(self, obj: Object, todo: ReconcileResult) -> None:
        """A job that is over goes when its time has come."""
        lives_s = obj["spec"].get("ttlSecondsAfterFinished")
        if lives_s is None or is_ending(obj):
            return
        ended = [time_ns(c.get("lastTransitionTime")) for c in obj["status"]["conditions"]]
        due_ns = max([0, *(t for t in ended if t)]) + lives_s * SECOND_NS
        if due_ns <= todo.now_ns:
            todo.delete("jobs", obj, policy="Foreground")
        else:
            todo.requeue_at(due_ns)


def _finalizers(pod: Object) -> list[str]:
    return pod["metadata"].get("finalizers") or []


def _remove_finalizers(pods: list[Object], todo: ReconcileResult) -> None:
    for pod in pods:
        if TRACKING in _finalizers(pod):
            gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING]}}
            todo.patch("pods", pod, gone)


def _counted_uids(status: Object) -> set[str]:
    """Uids of pods that the status has counted."""
    lists = status.get("uncountedTerminatedPods") or {}
    return {uid for field in ("succeeded", "failed") for uid in lists.get(field) or ()}


def _make_uncounted(pods: list[Object]) -> Object:
    """Those that have ended and are kept; counted with this very write."""
    made: Object = {}
    for field, end in (("succeeded", "Succeeded"), ("failed", "Failed")):
        kept = [uid_of(p) for p in pods if TRACKING in _finalizers(p) and phase(p) == end]
        made[field] = sorted(kept) or None
    return made


def _suspended_condition(obj: Object, on: bool, now_ns: int) -> list[Object]:
    """The condition that says so, where it is news."""
    known = condition(obj, "Suspended")
    if known is not None and (known.get("status") == "True") == on:
        return []
    now = time_text(now_ns)
    return [{"type": "Suspended", "status": str(on),
             "reason": "JobSuspended" if on else "JobResumed",
             "message": "Job suspended" if on else "Job resumed",
             "lastProbeTime": now, "lastTransitionTime": now}]  # fmt: skip


def _bare(value: Any) -> Any:
    """Nothing, where it says nothing."""
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if v}
    return value or None


def _is_leaving(pod: Object) -> bool:
    return is_ending(pod) and phase(pod) not in ("Succeeded", "Failed")


def _backoff_end_ns(pods: list[Object], failed: int) -> int:
    """After a failure, wait 10 s, then twice as long each time."""
    ends = [
        time_ns(((c.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for p in pods
        if phase(p) == "Failed"
        for c in (p["status"].get("containerStatuses") or ())
    ]
    last_ns = max((t for t in ends if t), default=0)
    return last_ns + min(BACKOFF_NS << min(failed - 1, 10), BACKOFF_NS_MAX) if last_ns else 0


def _pod(job: Object, index: int | None) -> Object:
    labels = {**dict.fromkeys(LABELS, uid_of(job)), **dict.fromkeys(NAMES, name_of(job))}
    if index is not None:
        labels[INDEX] = str(index)
    pod = pod_of(job["spec"]["template"], job, "jobs", "", labels)
    meta = dict(pod["metadata"])
    meta["finalizers"] = [*_finalizers(pod), TRACKING]
    if index is None:
        return {**pod, "metadata": meta}
    meta["annotations"] = {**(meta.get("annotations") or {}), INDEX: str(index)}
    meta["generateName"] = f"{name_of(job)[:50]}-{index}-"
    env = {"name": "JOB_COMPLETION_INDEX", "value": str(index)}
    spec = dict(pod["spec"])
    for field in ("containers", "initContainers"):
        if spec.get(field):
            spec[field] = [{**c, "env": [*(c.get("env") or ()), env]} for c in spec[field]]
    return {"metadata": meta, "spec": spec}


def _verdict_conditions(why: tuple[str, str, str], now_ns: int) -> list[Object]:
    type, reason, message = why
    before = "SuccessCriteriaMet" if type == "Complete" else "FailureTarget"
    now = time_text(now_ns)
    return [
        {"type": t, "status": "True", "reason": reason, "message": message,
         "lastProbeTime": now, "lastTransitionTime": now}
        for t in (before, type)
    ]  # fmt: skip


def _ranges(numbers: set[int]) -> str:
    """Numbers as 0-2,5."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _read_ranges(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(",") if text else ():
        low, _, high = part.partition("-")
        if low.isdecimal() and (high or low).isdecimal():
            found |= set(range(int(low), min(int(high or low), COMPLETIONS_MAX) + 1))
    return found
