"""CronJob controller: creates a Job at each scheduled time and deletes old Jobs.

A Job is created first; the next reconciliation names it in the status. Its name and an annotation
tell its scheduled time. Source: pkg/controller/cronjob.
"""

from email.utils import formatdate
from typing import Final

from stower.controllers.cron_times import (
    find_due_times,
    find_schedule,
    timestamp_ns,
    timestamp_text,
)
from stower.controllers.event_recorder import EventRecorder
from stower.controllers.job_sync import COMPLETE, FAILED, is_over
from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    name_of,
    namespace_of,
    uid_of,
)
from stower.controllers.pods import is_outdated, is_true, reference_to
from stower.controllers.runtime import CONFLICT, OwnerController, ReconcileResult
from stower.controllers.write_answers import WriteAnswer
from stower.model.cron import zone_fault
from stower.model.times import SECOND_NS, time_ns, time_text

MINUTE_NS: Final = 60 * SECOND_NS
SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
MANY_MISSED_TEXT: Final = (
    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
)
ACTIVE_TEXT: Final = (
    "Not starting job because prior execution is running and concurrency policy is Forbid"
)
ZONE_TEXT: Final = (
    "is not officially supported, see "
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)


class CronJobController(OwnerController):
    """One CronJob is one key."""

    name = "cronjob-controller"
    kinds = ("cronjobs", "jobs")
    own = "cronjobs"
    reported_kinds = ("jobs",)

    def __init__(self) -> None:
        self._events = EventRecorder(self.name)

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """Start the job that is due, clean up old ones, say what runs."""
        jobs = seen.list_owned(uid_of(obj), "jobs")
        status = dict(obj.get("status") or {})
        status["active"] = [dict(entry) for entry in status.get("active") or ()]
        self._take_in(obj, status, jobs, todo)
        self._drop_missing(seen, obj, status, jobs, todo)
        self._delete_old(obj, jobs, todo)
        if not is_ending(obj):
            self._start(seen, {**obj, "status": status}, jobs, todo)
        wanted = {
            "active": status["active"] or None,
            "lastScheduleTime": status.get("lastScheduleTime"),
            "lastSuccessfulTime": status.get("lastSuccessfulTime"),
        }
        if is_outdated(obj.get("status"), wanted):
            todo.patch("cronjobs", obj, {"status": wanted}, "status")

    def _take_in(
        self, obj: Object, status: Object, jobs: list[Object], todo: ReconcileResult
    ) -> None:
        """What the jobs have become since, and jobs that were created last time."""
        active: list[Object] = status["active"]
        for job in jobs:
            is_known = any(entry.get("uid") == uid_of(job) for entry in active)
            at_ns = _scheduled_ns(obj, job)
            if at_ns is not None and at_ns > (time_ns(status.get("lastScheduleTime")) or 0):
                status["lastScheduleTime"] = time_text(at_ns)
                if not is_known and not is_ending(job):
                    active.append(_reference(job))
                    is_known = True
            if not is_over(job):
                if not is_known and not is_ending(job):
                    text = f"Saw a job that the controller did not create or forgot: {name_of(job)}"
                    self._record(todo, obj, "Warning", "UnexpectedJob", text)
                continue
            if is_known:
                active[:] = [entry for entry in active if entry.get("uid") != uid_of(job)]
                end = COMPLETE if is_true(job, COMPLETE) else FAILED
                text = f"Saw completed job: {name_of(job)}, condition: {end}"
                self._record(todo, obj, "Normal", "SawCompletedJob", text)
            ended = (job.get("status") or {}).get("completionTime")
            if is_true(job, COMPLETE) and ended:
                status["lastSuccessfulTime"] = max(status.get("lastSuccessfulTime") or "", ended)

    def _drop_missing(
        self,
        seen: ObjectStore,
        obj: Object,
        status: Object,
        jobs: list[Object],
        todo: ReconcileResult,
    ) -> None:
        uids = {uid_of(job) for job in jobs}
        left: list[Object] = []
        for entry in status["active"]:
            key = f"{entry.get('namespace', '')}/{entry.get('name', '')}"
            if entry.get("uid") in uids or seen.get("jobs", key) is not None:
                left.append(entry)
            else:
                text = f"Active job went missing: {entry.get('name', '')}"
                self._record(todo, obj, "Normal", "MissingJob", text)
        status["active"] = left

    def _start(
        self, seen: ObjectStore, obj: Object, jobs: list[Object], todo: ReconcileResult
    ) -> None:
        """Create the job that is due. `obj` has the status that is written."""
        spec, status = obj["spec"], obj["status"]
        zone = spec.get("timeZone")
        if zone is not None and zone_fault(zone):
            text = f'invalid timeZone: "{zone}": {zone_fault(zone)}'
            self._record(todo, obj, "Warning", "UnknownTimeZone", text)
            return
        if spec.get("suspend"):
            return
        if "TZ" in spec["schedule"]:
            text = f'CRON_TZ or TZ used in schedule "{spec["schedule"]}" {ZONE_TEXT}'
            self._record(todo, obj, "Warning", "UnsupportedSchedule", text)
        try:
            schedule = find_schedule(spec)
        except ValueError as error:  # it was there before the API server looked at schedules
            text = f'unparseable schedule: "{spec["schedule"]}" : {error}'
            self._record(todo, obj, "Warning", "UnparseableSchedule", text)
            return
        try:
            due = find_due_times(obj, schedule, todo.now_ns)
        except ValueError as error:
            text = f"invalid schedule: {spec['schedule']} : {error}"
            self._record(todo, obj, "Warning", "InvalidSchedule", text)
            return
        if due.next_ns is not None:
            todo.requeue_at(due.next_ns)
        if due.last_ns is None:
            return
        if due.is_many_missed:
            self._record(todo, obj, "Warning", "TooManyMissedTimes", MANY_MISSED_TEXT)
        if self._may_start(seen, obj, due.last_ns, todo):
            if spec.get("concurrencyPolicy") == "Replace":
                replaced = {entry.get("uid") for entry in status["active"]}
                for job in jobs:
                    if uid_of(job) in replaced:
                        todo.delete("jobs", job, policy="Background")
                status["active"] = []
            self.create_job(obj, due.last_ns, todo)

    def _may_start(
        self, seen: ObjectStore, obj: Object, due_ns: int, todo: ReconcileResult
    ) -> bool:
        """Whether the job of this time is to be created."""
        spec, status = obj["spec"], obj["status"]
        deadline_s = spec.get("startingDeadlineSeconds")
        if deadline_s is not None and due_ns + deadline_s * SECOND_NS < todo.now_ns:
            at = formatdate(due_ns // SECOND_NS)[:-5] + "+0000"
            text = f"Missed scheduled time to start a job: {at}"
            self._record(todo, obj, "Warning", "MissSchedule", text)
            return False
        name = _job_name(obj, due_ns)
        if status.get("lastScheduleTime") == time_text(due_ns):
            return False
        if seen.get("jobs", f"{namespace_of(obj)}/{name}") is not None:
            return False  # of somebody else, or it goes
        if spec.get("concurrencyPolicy") == "Forbid" and status["active"]:
            self._record(todo, obj, "Normal", "JobAlreadyActive", ACTIVE_TEXT)
            return False
        return True

    def create_job(self, obj: Object, due_ns: int, todo: ReconcileResult) -> None:
        """Create the Job of a scheduled time."""
        template = obj["spec"]["jobTemplate"]
        meta = template.get("metadata") or {}
        todo.create(
            "jobs",
            {
                "metadata": {
                    "name": _job_name(obj, due_ns),
                    "namespace": namespace_of(obj),
                    "labels": meta.get("labels") or {},
                    "annotations": {
                        **(meta.get("annotations") or {}),
                        SCHEDULED: timestamp_text(obj["spec"], due_ns),
                    },
                    "ownerReferences": [reference_to(obj, "cronjobs")],
                },
                "spec": template["spec"],
            },
        )

    def _delete_old(self, obj: Object, jobs: list[Object], todo: ReconcileResult) -> None:
        """Jobs that have ended, beyond those that are kept; the oldest first."""
        for type, field in ((COMPLETE, "successfulJobsHistoryLimit"),
                            (FAILED, "failedJobsHistoryLimit")):  # fmt: skip
            limit = obj["spec"].get(field)
            if limit is None:
                continue
            ended = [job for job in jobs if is_true(job, type)]
            ended.sort(key=_start_order)
            for job in ended[: max(0, len(ended) - limit)]:
                if not is_ending(job):
                    todo.delete("jobs", job, policy="Background")

    # Events

    def report_write(
        self, seen: ObjectStore, key: str, answer: WriteAnswer, todo: ReconcileResult
    ) -> None:
        """An Event for each job that was created or deleted, or could not be."""
        obj = seen.get(self.own, key)
        if obj is None or not (answer.is_notable or answer.is_gone):
            return
        name, why = answer.name, answer.failure
        if answer.method == "POST":
            if answer.is_good:
                self._record(todo, obj, "Normal", "SuccessfulCreate", f"Created job {name}")
            elif answer.status != CONFLICT:
                self._record(todo, obj, "Warning", "FailedCreate", f"Error creating job: {why}")
        elif answer.is_good or answer.is_gone:
            self._record(todo, obj, "Normal", "SuccessfulDelete", f"Deleted job {name}")
        else:
            self._record(todo, obj, "Warning", "FailedDelete", f"Deleted job: {why}")

    def _record(
        self, todo: ReconcileResult, obj: Object, type: str, reason: str, message: str
    ) -> None:
        self._events.record(todo, "cronjobs", obj, type, reason, message)


def _job_name(obj: Object, at_ns: int) -> str:
    return f"{name_of(obj)}-{at_ns // MINUTE_NS}"


def _scheduled_ns(obj: Object, job: Object) -> int | None:
    """The scheduled time for which the controller has created a job; None of any other job."""
    at_ns = timestamp_ns((job["metadata"].get("annotations") or {}).get(SCHEDULED, ""))
    return at_ns if at_ns is not None and name_of(job) == _job_name(obj, at_ns) else None


def _start_order(job: Object) -> tuple[bool, str, str]:
    """By the time of the start; jobs that have not started come last."""
    started = (job.get("status") or {}).get("startTime")
    return not started, started or "", name_of(job)


def _reference(job: Object) -> Object:
    meta = job["metadata"]
    return {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"],
            "namespace": meta["namespace"], "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"]}  # fmt: skip
