"""Job controller: creates pods until enough of them have succeeded. Source: pkg/controller/job.

A finalizer keeps each pod until it is counted: the pod's uid is written into the Job's status, then
the finalizer is removed, then the uid becomes part of the sum (KEP-2307). Each step is one
reconciliation.
"""

from typing import Any, Final, NamedTuple

from stower.controllers.adoption import ControllerRefManager
from stower.controllers.creation_pace import CreationPace
from stower.controllers.deletion_order import order_for_deletion
from stower.controllers.event_recorder import EventRecorder
from stower.controllers.job_failures import JobBackoff, match_failure
from stower.controllers.job_indexes import (
    IndexSet,
    index_of,
    indexes_of,
    select_redundant,
)
from stower.controllers.job_pods import build_indexed_pod, build_pod
from stower.controllers.job_sync import (
    COMPLETE,
    FAILED,
    TRACKING,
    JobSync,
    Verdict,
    is_over,
    is_terminating,
    is_tracked,
)
from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    key_of,
    namespace_of,
    owner_of,
    uid_of,
)
from stower.controllers.pods import condition, is_ready, is_true, phase, selects
from stower.controllers.runtime import OwnerController, ReconcileResult
from stower.controllers.write_answers import WriteAnswer
from stower.model.times import SECOND_NS, time_ns, time_text

CONTROLLER: Final = "kubernetes.io/job-controller"  # spec.managedBy of the Jobs of this controller
ORPHAN: Final = "pod/"  # begins the key of a pod that may have lost its Job
PODS_MAX: Final = 500  # created or deleted at once
UNCOUNTED_MAX: Final = 500  # pods that a status names at once
NOT_COUNTED: Final = ("active", "succeeded", "failed", "completedIndexes")  # absent: zero, empty


class PodCounts(NamedTuple):
    """Pods of a Job once what was asked for is done."""

    active: int
    ready: int
    terminating: int

    def without(self, deleted: list[Object]) -> "PodCounts":
        """The counts once these active pods are deleted."""
        ready = self.ready - sum(map(is_ready, deleted))
        return PodCounts(self.active - len(deleted), ready, self.terminating + len(deleted))


class PodTracking(NamedTuple):
    """What is counted next. Pods in `released` are counted already, and need not be kept."""

    succeeded: list[str]  # uids
    failed: list[str]
    indexes: IndexSet  # that have succeeded
    is_whole: bool  # false: there are more than a status may name
    released: list[Object]


class JobController(OwnerController):
    """One Job is one key; a pod that may have lost its Job is another."""

    name = "job-controller"
    kinds = ("jobs", "pods")
    own = "jobs"
    reported_kinds = ("pods",)

    def __init__(self) -> None:
        self._adoption = ControllerRefManager(self.own, "pods", finalizer=TRACKING)
        self._events = EventRecorder(self.name)
        self._backoffs: dict[str, tuple[str, JobBackoff]] = {}  # by key, with the Job's uid
        self._pace = CreationPace(PODS_MAX)

    def keys(
        self, seen: ObjectStore, kind: str, old: Object | None, obj: Object
    ) -> tuple[str, ...]:
        """The Job itself, Jobs that own a pod or would take it, and pods that are kept by the
        finalizer though no Job owns them."""
        found = (*super().keys(seen, kind, old, obj), *self._adoption.keys(seen, kind, old, obj))
        if kind == "pods":
            is_lost = is_tracked(obj) and _find_owner(seen, obj) is None
            return (*found, f"{ORPHAN}{key_of(obj)}") if is_lost else found
        if old is not obj:
            return found
        kept = [p for p in seen.list_owned(uid_of(obj), "pods") if is_tracked(p)]
        return (*found, *(f"{ORPHAN}{key_of(p)}" for p in kept))

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Say what is to be done for the key, as things are."""
        if key.count("/") == 2:
            _release_orphan(seen, key.removeprefix(ORPHAN), todo)
            return
        super().reconcile(seen, key, todo)

    def forget(self, key: str) -> None:
        """The Job is gone."""
        self._backoffs.pop(key, None)
        self._pace.forget(key)

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """Make the pods that are still needed, and say how far it is."""
        if is_over(obj):
            self._backoffs.pop(key_of(obj), None)
            _delete_after_ttl(obj, todo)
        if _is_foreign(obj):
            return
        pods = seen.list_owned(uid_of(obj), "pods")
        if is_over(obj):
            _remove_finalizers(pods, todo)
            return
        if obj["spec"].get("selector") and not is_ending(obj):
            if self._adoption.settle(seen, obj, pods, todo):
                return  # counted when that is done
        sync = JobSync(obj, pods, todo.now_ns)
        if sync.deadline_ns is not None and sync.deadline_ns > todo.now_ns:
            todo.requeue_at(sync.deadline_ns)
        self._sync(sync, todo)

    def _sync(self, sync: JobSync, todo: ReconcileResult) -> None:
        job = sync.job
        uid, backoff = self._backoffs.get(key_of(job), ("", JobBackoff()))
        if uid != uid_of(job):
            backoff = JobBackoff()
            self._backoffs[key_of(job)] = uid_of(job), backoff
        backoff.record(sync.new_succeeded, sync.new_failed)

        counts = PodCounts(len(sync.active), sync.ready, sync.terminating)
        conditions: list[Object] = []
        verdict = sync.find_verdict()
        if verdict is not None:
            for pod in sync.active:
                todo.delete("pods", pod)
            counts = counts.without(sync.active)
        else:
            if not is_ending(job):
                counts = self._manage(sync, counts, backoff, todo)
            if sync.has_enough(counts.active):
                text = "Reached expected number of succeeded pods"
                verdict = Verdict(True, "CompletionsReached", text)
            elif not is_ending(job):
                conditions = self._suspend(sync, todo)
        tracking = _track(sync, verdict)
        _remove_finalizers(tracking.released, todo)
        self._write_status(sync, verdict, counts, conditions, tracking, todo)

    # Pods

    def _manage(
        self, sync: JobSync, counts: PodCounts, backoff: JobBackoff, todo: ReconcileResult
    ) -> PodCounts:
        """Deletes pods that are too many, or creates those that are missing."""
        surplus, wanted = _select_surplus(sync)
        if surplus:
            _remove_finalizers(surplus, todo)  # nobody counts them
            for pod in surplus:
                todo.delete("pods", pod)
            return counts.without(surplus)
        missing = wanted - counts.active
        if sync.replaces_failed_only:
            missing -= sync.terminating
        if missing <= 0:
            return counts
        if sync.limit_per_index is None and backoff.until_ns > todo.now_ns:
            todo.requeue_at(backoff.until_ns)
            return counts
        is_slow = self._pace.is_slow(key_of(sync.job))
        missing = self._pace.allowed(key_of(sync.job), missing)
        if sync.is_indexed:
            due = _pending_indexes(sync, missing, todo)
            for index in due:
                todo.create("pods", build_indexed_pod(sync, index))
            missing = len(due)
        else:
            for _ in range(missing):
                todo.create("pods", build_pod(sync.job))
        return counts if is_slow else counts._replace(active=counts.active + missing)

    def _suspend(self, sync: JobSync, todo: ReconcileResult) -> list[Object]:
        """The condition Suspended, where it is news. The time of a Job starts when it resumes."""
        known = condition(sync.job, "Suspended")
        on = sync.is_suspended
        text = "Suspended" if on else "Resumed"
        made = {"status": str(on), "reason": f"Job{text}", "message": f"Job {text.lower()}"}
        if all((known or {}).get(k) == v for k, v in made.items()) or (known is None and not on):
            return []
        self._events.record(todo, "jobs", sync.job, "Normal", text, f"Job {text.lower()}")
        now = time_text(todo.now_ns)
        sync.start_time = None if on else now
        return [{"type": "Suspended", **made, "lastProbeTime": now, "lastTransitionTime": now}]

    # Status

    def _write_status(
        self,
        sync: JobSync,
        verdict: Verdict | None,
        counts: PodCounts,
        conditions: list[Object],
        tracking: PodTracking,
        todo: ReconcileResult,
    ) -> None:
        job, known = sync.job, sync.status
        new: Object = {
            "active": counts.active,
            "ready": counts.ready,
            "terminating": counts.terminating,
            "startTime": sync.start_time,
            "uncountedTerminatedPods": {
                "succeeded": tracking.succeeded or None,
                "failed": tracking.failed or None,
            },
            "succeeded": len(tracking.indexes) if sync.is_indexed else _sum(sync, "succeeded"),
            "failed": _sum(sync, "failed"),
        }
        if sync.is_indexed:
            new["completedIndexes"] = str(tracking.indexes)
        if sync.failed_indexes is not None:
            new["failedIndexes"] = str(sync.failed_indexes)
        if verdict is not None:
            now = time_text(todo.now_ns)
            made = {"status": "True", "reason": verdict.reason, "message": verdict.message,
                    "lastProbeTime": now, "lastTransitionTime": now}  # fmt: skip
            is_clean = not (tracking.succeeded or tracking.failed or counts.terminating)
            if not is_true(job, verdict.interim):
                conditions.append({"type": verdict.interim, **made})
            elif is_clean and tracking.is_whole:
                conditions.append({"type": verdict.final, **made})
                if verdict.is_good:
                    new["completionTime"] = now
                self._report_end(sync, verdict, new["succeeded"], todo)
        if conditions or any(_has_changed(known, name, value) for name, value in new.items()):
            if conditions:  # behind those that there are
                types = [c.get("type") for c in (*(known.get("conditions") or ()), *conditions)]
                order = [{"type": type} for type in dict.fromkeys(types)]
                new |= {"conditions": conditions, "$setElementOrder/conditions": order}
            todo.patch("jobs", job, {"status": new}, "status")

    def _report_end(
        self, sync: JobSync, verdict: Verdict, succeeded: int, todo: ReconcileResult
    ) -> None:
        job = sync.job
        if not verdict.is_good:
            what = (verdict.reason, verdict.message)
            self._events.record(todo, "jobs", job, "Warning", *what)
            return
        if sync.completions is not None and succeeded > sync.completions:
            text = "Too many succeeded pods running after completion count reached"
            self._events.record(todo, "jobs", job, "Warning", "TooManySucceededPods", text)
        self._events.record(todo, "jobs", job, "Normal", "Completed", "Job completed")

    def report_write(
        self, seen: ObjectStore, key: str, answer: WriteAnswer, todo: ReconcileResult
    ) -> None:
        """An Event for each pod that was created or deleted, or could not be."""
        job = seen.get(self.own, key)
        if job is None:
            return
        if answer.method == "POST" and not answer.is_good:
            self._pace.refuse(key)
        self._events.record_pod_write(todo, self.own, job, answer)


def _is_foreign(job: Object) -> bool:
    """Another controller manages the Job."""
    return job["spec"].get("managedBy") not in (None, CONTROLLER)


def _find_owner(seen: ObjectStore, pod: Object) -> Object | None:
    """The Job that controls a pod, if it is there. Any other controller than a Job is returned as
    its reference."""
    owner = owner_of(pod)
    if owner is None:
        return None
    if owner.get("kind") != "Job" or owner.get("apiVersion") != "batch/v1":
        return owner
    job = seen.get("jobs", f"{namespace_of(pod)}/{owner['name']}")
    return job if job is not None and uid_of(job) == owner["uid"] else None


def _release_orphan(seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
    """Nobody counts a pod that no Job owns, unless one adopts it."""
    pod = seen.get("pods", key)
    if pod is None or _find_owner(seen, pod) is not None:
        return
    if owner_of(pod) is None and not is_ending(pod):
        for job in seen.list_namespace("jobs", namespace_of(pod)):
            is_alive = not (is_over(job) or is_ending(job) or _is_foreign(job))
            if is_alive and selects(job["spec"].get("selector"), pod):
                return
    _remove_finalizers([pod], todo)


def _remove_finalizers(pods: list[Object], todo: ReconcileResult) -> None:
    for pod in pods:
        todo.unprotect("pods", pod, TRACKING)


def _delete_after_ttl(job: Object, todo: ReconcileResult) -> None:
    """Deletes a Job that has ended when its time has come.

    Source: pkg/controller/ttlafterfinished.
    """
    lives_s = job["spec"].get("ttlSecondsAfterFinished")
    if lives_s is None or is_ending(job):
        return
    ends = [condition(job, type) or {} for type in (COMPLETE, FAILED) if is_true(job, type)]
    times = [time_ns(c.get("lastTransitionTime")) or 0 for c in ends]
    due_ns = max(times) + lives_s * SECOND_NS
    if due_ns <= todo.now_ns:
        todo.delete("jobs", job, policy="Foreground")
    else:
        todo.requeue_at(due_ns)


def _select_surplus(sync: JobSync) -> tuple[list[Object], int]:
    """The active pods to delete, and how many are to be active."""
    active, wanted = len(sync.active), 0
    if not sync.is_suspended:
        wanted = sync.spec.get("parallelism", 1)
        if sync.completions is not None:
            wanted = max(0, min(wanted, sync.completions - sync.succeeded))
        elif sync.succeeded:
            wanted = active
    surplus: list[Object] = []
    left = sync.active
    if sync.is_indexed:
        surplus, left = select_redundant(sync.active, sync.completions or 0, sync.now_ns)
    more = active - wanted - len(surplus)
    if more > 0:
        surplus = [*surplus, *order_for_deletion(left, (), sync.now_ns)[:more]]
    return (surplus if sync.is_suspended else surplus[:PODS_MAX]), wanted


def _pending_indexes(sync: JobSync, count: int, todo: ReconcileResult) -> list[int]:
    """The first indexes without a pod, at most so many; not those whose pause lasts on."""
    taken = sync.succeeded_indexes | indexes_of(sync.active)
    if sync.replaces_failed_only:
        taken |= indexes_of(filter(is_terminating, sync.pods))
    if sync.failed_indexes is not None:
        taken |= sync.failed_indexes
    found: list[int] = []
    for _, index in zip(range(count), taken.missing(sync.completions or 0)):
        due_ns = sync.index_due_ns(index)
        if due_ns > todo.now_ns:
            todo.requeue_at(due_ns)
        else:
            found.append(index)
    return found


def _track(sync: JobSync, verdict: Verdict | None) -> PodTracking:
    """Counts pods that have ended. Once a Job has failed, all that are left count as failed."""
    tracked = {uid_of(p) for p in sync.pods if is_tracked(p)}
    good = [uid for uid in sync.named_succeeded if uid in tracked]
    bad = [uid for uid in sync.named_failed if uid in tracked]
    released: list[Object] = []
    is_whole = True
    for pod in sync.pods:
        uid = uid_of(pod)
        if uid not in tracked or not _can_go(sync, pod, verdict):
            continue
        names: list[str] | None = None  # that the pod has yet to be added to
        if phase(pod) == "Succeeded" and uid not in sync.named_failed:
            if sync.is_indexed:  # its index is enough, in the very next status
                if sync.is_valid(pod) and index_of(pod) not in sync.known_indexes:
                    continue
            elif uid not in sync.named_succeeded:
                names = good
        elif _counts_as_failed(sync, pod, verdict) and uid not in sync.named_failed:
            names = bad
        if names is None and len(released) < PODS_MAX:
            released.append(pod)
        elif names is not None and len(good) + len(bad) < UNCOUNTED_MAX:
            names.append(uid)
        else:
            is_whole = False
    return PodTracking(good, bad, sync.succeeded_indexes, is_whole, released)


def _can_go(sync: JobSync, pod: Object, verdict: Verdict | None) -> bool:
    """The pod need not be kept for anything but to be counted."""
    if is_ending(sync.job) or verdict is not None or phase(pod) == "Succeeded":
        return True
    kept = sync.kept_of_index.get(index_of(pod))
    return sync.has_failed(pod) and (kept is None or uid_of(kept) != uid_of(pod))


def _counts_as_failed(sync: JobSync, pod: Object, verdict: Verdict | None) -> bool:
    if not (sync.has_failed(pod) or (verdict is not None and not verdict.is_good)):
        return False
    return sync.is_valid(pod) and match_failure(sync.policy, pod).is_counted


def _sum(sync: JobSync, field: str) -> int:
    """Pods that the status has counted, with those that it named and that are kept no longer."""
    names = sync.named_succeeded if field == "succeeded" else sync.named_failed
    tracked = {uid_of(p) for p in sync.pods if is_tracked(p)}
    return (sync.status.get(field) or 0) + sum(uid not in tracked for uid in names)


def _has_changed(known: Object, name: str, value: Any) -> bool:
    old = known.get(name)
    if name in NOT_COUNTED:
        return (old or None) != (value or None)
    if isinstance(value, dict):
        return any((old or {}).get(field) != uids for field, uids in value.items())
    return bool(old != value)
