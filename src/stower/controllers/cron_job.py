"""CronJob controller: creates a Job at each scheduled time and deletes old Jobs.

Schedules are in UTC; `spec.timeZone` may only be a name of UTC.
Source: pkg/controller/cronjob.
"""

from collections.abc import Iterable
from typing import Final

from stower.controllers.job_sync import is_over
from stower.controllers.objects import Object, ObjectStore, is_ending, name_of, namespace_of, uid_of
from stower.controllers.pods import condition, is_outdated, reference_to
from stower.controllers.runtime import OwnerController, ReconcileResult
from stower.model.cron import Schedule
from stower.model.times import SECOND_NS, time_ns, time_text

MINUTE_NS: Final = 60 * SECOND_NS


class CronJobController(OwnerController):
    """One CronJob is one key."""

    name = "cronjob-controller"
    kinds = ("cronjobs", "jobs")
    own = "cronjobs"

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """Start the job that is due, clean up old ones, say what runs."""
        if is_ending(obj):
            return
        jobs = seen.list_owned(uid_of(obj), "jobs")
        running = [j for j in jobs if not is_over(j)]
        self._history(obj, jobs, todo)
        status: Object = {"active": [_reference(j) for j in running] or None}
        started = self._start(obj, running, todo)
        if started is not None:
            status["lastScheduleTime"] = started
        ended = [str((j.get("status") or {}).get("completionTime") or "") for j in jobs]
        if any(ended):
            status["lastSuccessfulTime"] = max(ended)
        if is_outdated(obj.get("status"), status):
            todo.patch("cronjobs", obj, {"status": status}, "status")

    def _start(self, obj: Object, running: list[Object], todo: ReconcileResult) -> str | None:
        spec, status = obj["spec"], obj.get("status") or {}
        try:
            schedule = Schedule(spec["schedule"])
        except ValueError:
            return None  # it was there before the API server looked at schedules
        since_ns = max(
            time_ns(status.get("lastScheduleTime")) or 0,
            time_ns(obj["metadata"]["creationTimestamp"]) or 0,
        )
        limit_s = spec.get("startingDeadlineSeconds")
        if limit_s is not None:
            since_ns = max(since_ns, todo.now_ns - limit_s * SECOND_NS)
        # Of those that were missed, only the last is made up for; a year of them is skipped.
        since_ns = max(since_ns, todo.now_ns - 100 * MINUTE_NS)
        due_ns, next_ns = None, schedule.next_ns(since_ns)
        while next_ns is not None and next_ns <= todo.now_ns:
            due_ns, next_ns = next_ns, schedule.next_ns(next_ns)
        if next_ns is not None:
            todo.requeue_at(next_ns)
        if due_ns is None or spec.get("suspend"):
            return None
        policy = spec.get("concurrencyPolicy") or "Allow"
        if running and policy == "Forbid":
            return None
        for job in running if policy == "Replace" else ():
            todo.delete("jobs", job, policy="Background")
        self.create_job(obj, due_ns, todo)
        return time_text(due_ns)

    def create_job(self, obj: Object, due_ns: int, todo: ReconcileResult) -> None:
        """Create the Job of a scheduled time."""
        template = obj["spec"]["jobTemplate"]
        meta = template.get("metadata") or {}
        todo.create(
            "jobs",
            {
                "metadata": {
                    "name": f"{name_of(obj)}-{due_ns // MINUTE_NS}",
                    "namespace": namespace_of(obj),
                    "labels": meta.get("labels") or {},
                    "annotations": {
                        **(meta.get("annotations") or {}),
                        "batch.kubernetes.io/cronjob-scheduled-timestamp": time_text(due_ns),
                    },
                    "ownerReferences": [reference_to(obj, "cronjobs")],
                },
                "spec": template["spec"],
            },
        )

    def _history(self, obj: Object, jobs: Iterable[Object], todo: ReconcileResult) -> None:
        for type, field, default in (
            ("Complete", "successfulJobsHistoryLimit", 3), ("Failed", "failedJobsHistoryLimit", 1),
        ):  # fmt: skip
            ended = [j for j in jobs if (condition(j, type) or {}).get("status") == "True"]
            ended.sort(key=lambda j: str((j.get("status") or {}).get("startTime") or ""))
            limit = obj["spec"].get(field)
            keep = default if limit is None else limit
            for job in ended[: max(0, len(ended) - keep)]:
                if not is_ending(job):
                    todo.delete("jobs", job, policy="Background")


def _reference(job: Object) -> Object:
    meta = job["metadata"]
    return {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"],
            "namespace": meta["namespace"], "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"]}  # fmt: skip
