"""When CronJobs create Jobs, what they tell of them, and what they do about those that run."""

from typing import Any

import pytest

from stower.controllers.cron_job import CronJobController
from stower.controllers.runtime import ControllerManager
from tests.unit.controllers.cluster import Cluster, Object, pools
from tests.unit.controllers.test_jobs import end, events, running
from tests.unit.controllers.test_workloads import MINUTE, template

# The clock of a cluster starts at 2026-09-21T14:13:20Z.
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
FIRST = f"cron-{1_790_000_040 // 60}"


def cron(**spec: Any) -> Object:
    own = {"template": template(restartPolicy="Never")}
    return {"metadata": {"name": "cron"},
            "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": own}, **spec}}  # fmt: skip


def created(**spec: Any) -> Cluster:
    cluster = Cluster(pools(1))
    cluster.create("cronjobs", cron(**spec))
    return cluster


def active(cluster: Cluster) -> list[str]:
    found = cluster.one("cronjobs", "cron").get("status") or {}
    return [entry["name"] for entry in found.get("active") or ()]


def reasons(cluster: Cluster) -> list[str]:
    return [reason for reason, _ in events(cluster, "CronJob")]


def test_a_job_is_named_after_its_time() -> None:
    cluster = created()
    cluster.advance(41)
    (job,) = cluster.all("jobs").values()
    assert (FIRST, [FIRST]) == (job["metadata"]["name"], active(cluster))
    assert "2026-09-21T14:14:00Z" == job["metadata"]["annotations"][SCHEDULED]
    status = cluster.one("cronjobs", "cron")["status"]
    assert "2026-09-21T14:14:00Z" == status["lastScheduleTime"]
    (entry,) = status["active"]
    assert ("Job", "batch/v1", job["metadata"]["uid"]) == (
        entry["kind"], entry["apiVersion"], entry["uid"])  # fmt: skip
    assert [("SuccessfulCreate", f"Created job {FIRST}")] == events(cluster, "CronJob")


@pytest.mark.parametrize(
    ("zone", "line", "text"),
    [
        ("Europe/Berlin", "20 16 * * *", "2026-09-21T16:20:00+02:00"),
        ("Asia/Kolkata", "50 19 * * *", "2026-09-21T19:50:00+05:30"),
        ("America/New_York", "20 10 * * mon", "2026-09-21T10:20:00-04:00"),
        ("UTC", "20 14 * * *", "2026-09-21T14:20:00Z"),
    ],
)
def test_a_schedule_is_in_its_time_zone(zone: str, line: str, text: str) -> None:
    cluster = created(schedule=line, timeZone=zone)
    cluster.advance(6 * MINUTE)
    assert {} == cluster.all("jobs")
    cluster.advance(1 * MINUTE)
    (job,) = cluster.all("jobs").values()
    assert text == job["metadata"]["annotations"][SCHEDULED]


def test_an_unknown_time_zone_leaves_the_cron_job_alone() -> None:
    """One that the API server has stored, and that this machine does not know."""
    actors = ControllerManager((CronJobController(),))
    meta = {"name": "cron", "namespace": "default", "uid": "u", "resourceVersion": "1",
            "creationTimestamp": "2026-09-21T14:13:20Z"}  # fmt: skip
    spec = {**cron()["spec"], "timeZone": "Mars/Olympus"}
    actors.handle_list("cronjobs", [{"metadata": meta, "spec": spec}])
    actors.handle_list("jobs", [])
    (call,) = actors.step(1_790_000_100 * 10**9)
    assert call.path.endswith("/events")
    assert b'"invalid timeZone: \\"Mars/Olympus\\": unknown time zone Mars/Olympus"' in call.body
    assert b"UnknownTimeZone" in call.body


def test_jobs_run_beside_each_other() -> None:
    cluster = created()
    cluster.advance(2 * MINUTE)
    assert 2 == len(active(cluster)) == len(cluster.all("jobs"))


def test_a_job_that_runs_forbids_the_next_one() -> None:
    cluster = created(concurrencyPolicy="Forbid")
    cluster.advance(2 * MINUTE)
    assert [FIRST] == active(cluster) == list(cluster.all("jobs"))
    assert "JobAlreadyActive" in reasons(cluster)
    end(cluster, running(cluster)[0])
    cluster.advance(1)
    assert 1 == len(active(cluster))
    assert [FIRST] != active(cluster)
    assert ("SawCompletedJob", f"Saw completed job: {FIRST}, condition: Complete") in events(
        cluster, "CronJob"
    )
    status = cluster.one("cronjobs", "cron")["status"]
    ended = cluster.one("jobs", FIRST)["status"]["completionTime"]
    assert ended == status["lastSuccessfulTime"]


def test_a_job_that_runs_is_replaced_by_the_next_one() -> None:
    cluster = created(concurrencyPolicy="Replace")
    cluster.advance(41)
    assert [FIRST] == active(cluster)
    cluster.advance(1 * MINUTE)
    (name,) = active(cluster)
    cluster.advance(40)
    assert FIRST != name
    assert [name] == list(cluster.all("jobs"))
    assert ("SuccessfulDelete", f"Deleted job {FIRST}") in events(cluster, "CronJob")
    assert not {"MissingJob", "UnexpectedJob"} & set(reasons(cluster))


def test_a_job_that_somebody_deletes_is_missing() -> None:
    cluster = created(concurrencyPolicy="Forbid")
    cluster.advance(41)
    cluster.delete("jobs", FIRST, propagationPolicy="Background")
    cluster.advance(1)
    assert [] == active(cluster)
    assert ("MissingJob", f"Active job went missing: {FIRST}") in events(cluster, "CronJob")
    assert "UnexpectedJob" not in reasons(cluster)


def test_a_job_that_somebody_made_for_it_is_unexpected() -> None:
    cluster = created(suspend=True)
    owner = cluster.one("cronjobs", "cron")
    reference = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "cron", "controller": True,
                 "uid": owner["metadata"]["uid"]}  # fmt: skip
    meta = {"name": "mine", "ownerReferences": [reference]}
    cluster.create("jobs", {"metadata": meta, "spec": owner["spec"]["jobTemplate"]["spec"]})
    cluster.advance(1)
    text = "Saw a job that the controller did not create or forgot: mine"
    assert ("UnexpectedJob", text) in events(cluster, "CronJob")
    assert [] == active(cluster)


@pytest.mark.parametrize(
    ("deadline_s", "jobs", "told"), [(None, 1, True), (3600, 1, False), (0, 0, False)]
)
def test_of_what_was_missed_one_job_is_made_up_for(
    deadline_s: int | None, jobs: int, told: bool
) -> None:
    cluster = created(suspend=True, startingDeadlineSeconds=deadline_s)
    cluster.advance(130 * MINUTE + 5)
    cluster.patch("cronjobs", "cron", {"spec": {"suspend": False}})
    cluster.advance(1)
    assert jobs == len(cluster.all("jobs"))
    assert told == ("TooManyMissedTimes" in reasons(cluster))


def test_a_job_that_is_refused_is_told_and_tried_again() -> None:
    cluster = created()
    path = "/apis/batch/v1/namespaces/default/jobs"
    cluster.failing.append(("POST", path))
    cluster.advance(45)
    assert ("FailedCreate", "Error creating job: it fails once") in events(cluster, "CronJob")
    assert [FIRST] == active(cluster)


def test_jobs_of_every_few_minutes_follow_each_other() -> None:
    cluster = created(schedule="@every 7m")
    cluster.advance(15 * MINUTE)
    at = [job["metadata"]["annotations"][SCHEDULED] for job in cluster.all("jobs").values()]
    assert ["2026-09-21T14:20:20Z", "2026-09-21T14:27:20Z"] == sorted(at)
