"""How Jobs end and what becomes of their pods: policies, limits of indexes, adoption, Events.

Source of the rules: pkg/controller/job, test/e2e/apps/job.go.
"""

import json
from typing import Any

import pytest

from stower.controllers.job import JobController
from stower.controllers.runtime import ControllerManager
from tests.unit.controllers.cluster import Cluster, Object
from tests.unit.controllers.test_workloads import template

STRATEGIC = "application/strategic-merge-patch+json"
BATCH = "batch.kubernetes.io"
TRACKING = f"{BATCH}/job-tracking"


def job(**spec: Any) -> Object:
    """A Job whose pods run until a test ends them."""
    notes = spec.pop("notes", {})
    own = template("one", notes, restartPolicy="Never")
    return {"metadata": {"name": "job"}, "spec": {"template": own, **spec}}


def indexed(completions: int, **spec: Any) -> Object:
    spec = {"parallelism": completions, **spec}
    return job(completions=completions, completionMode="Indexed", **spec)


def created(**spec: Any) -> Cluster:
    """A cluster with this Job, whose first pods run."""
    cluster = Cluster()
    cluster.create("jobs", job(**spec))
    cluster.advance(2)
    return cluster


def status(cluster: Cluster) -> Object:
    return dict(cluster.one("jobs", "job")["status"])


def ends(cluster: Cluster) -> list[tuple[str, str]]:
    """Types and reasons of the conditions that hold, in the order in which they stand there."""
    found = status(cluster).get("conditions") or ()
    return [(c["type"], c["reason"]) for c in found if c["status"] == "True"]


def running(cluster: Cluster) -> list[str]:
    return sorted(
        name
        for name, pod in cluster.all("pods").items()
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    )


def index(pod: Object) -> int:
    return int(pod["metadata"]["annotations"][f"{BATCH}/job-completion-index"])


def of_index(cluster: Cluster, number: int) -> str:
    """The running pod of an index."""
    (name,) = [n for n in running(cluster) if index(cluster.one("pods", n)) == number]
    return name


def patch_status(cluster: Cluster, name: str, change: Object) -> None:
    path = f"/api/v1/namespaces/default/pods/{name}/status"
    code, answer = cluster.ask("PATCH", path, {"status": change}, STRATEGIC)
    assert 200 == code, answer
    cluster.settle()


def end(cluster: Cluster, name: str, code: int = 0) -> None:
    """The container of a pod ends with this code."""
    pod = cluster.one("pods", name)
    at = pod["metadata"]["creationTimestamp"]
    (container,) = pod["status"]["containerStatuses"]
    state = {"terminated": {"exitCode": code, "startedAt": at, "finishedAt": at}}
    container = {**container, "ready": False, "started": False, "state": state}
    conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": at}]
    patch_status(cluster, name, {"phase": "Failed" if code else "Succeeded",
                                 "containerStatuses": [container],
                                 "conditions": conditions})  # fmt: skip
    cluster.settle()


def events(cluster: Cluster, kind: str = "Job") -> list[tuple[str, str]]:
    """Reasons and messages of the Events about objects of a kind."""
    found = cluster.get("/api/v1/namespaces/default/events")["items"]
    return [(e["reason"], e["message"]) for e in found if e["involvedObject"]["kind"] == kind]


def reasons(cluster: Cluster) -> list[str]:
    return [reason for reason, _ in events(cluster)]


def on_codes(action: str, *codes: int, operator: str = "In", **more: Any) -> Object:
    return {"action": action, "onExitCodes": {"operator": operator, "values": [*codes], **more}}


def policy(*rules: Object) -> Object:
    return {"podFailurePolicy": {"rules": list(rules)}}


DISRUPTED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}


# Ends


def test_a_job_meets_its_criteria_before_it_is_complete() -> None:
    """Pods are counted and let go in between."""
    cluster = created(completions=2, parallelism=2)
    first, second = running(cluster)
    end(cluster, first)
    assert [] == ends(cluster)
    assert (1, 1) == (status(cluster)["active"], status(cluster)["succeeded"])
    end(cluster, second)
    why = "CompletionsReached"
    assert [("SuccessCriteriaMet", why), ("Complete", why)] == ends(cluster)
    told = status(cluster)
    assert (2, 0, 0) == (told["succeeded"], told["ready"], told["terminating"])
    assert "completionTime" in told
    assert not any(p["metadata"].get("finalizers") for p in cluster.all("pods").values())


def test_a_job_that_has_failed_waits_for_its_pods() -> None:
    """It has the interim condition while a pod still stops, and the final one afterwards."""
    notes = {"stower.dev/stop-seconds": "20"}
    cluster = created(completions=2, parallelism=2, backoffLimit=0, notes=notes)
    end(cluster, running(cluster)[0], 1)
    cluster.advance(5)
    why = "BackoffLimitExceeded"
    assert [("FailureTarget", why)] == ends(cluster)
    assert (0, 1) == (status(cluster).get("active", 0), status(cluster)["terminating"])
    cluster.advance(30)
    assert [("FailureTarget", why), ("Failed", why)] == ends(cluster)
    assert 2 == status(cluster)["failed"]


def test_pods_without_completions_end_the_job_when_none_runs() -> None:
    cluster = created(parallelism=2)
    first, second = running(cluster)
    end(cluster, first)
    cluster.advance(5)
    assert ([], [second]) == (ends(cluster), running(cluster))
    end(cluster, second, 1)
    assert "Complete" == ends(cluster)[-1][0]


# Pod failure policies


def test_an_exit_code_fails_the_job_early() -> None:
    cluster = created(completions=4, parallelism=2, **policy(on_codes("FailJob", 3, 42)))
    first = running(cluster)[0]
    end(cluster, first, 42)
    cluster.advance(60)
    why = "PodFailurePolicy"
    assert [("FailureTarget", why), ("Failed", why)] == ends(cluster)
    text = (f"Container c for pod default/{first} failed with exit code 42 matching FailJob rule "
            "at index 0")  # fmt: skip
    assert {text} == {c["message"] for c in status(cluster)["conditions"]}
    assert 2 == status(cluster)["failed"]
    assert [] == running(cluster)


def test_a_disruption_is_not_counted() -> None:
    cluster = created(backoffLimit=0, **policy(DISRUPTED))
    (name,) = running(cluster)
    at = cluster.one("pods", name)["status"]["startTime"]  # without a time, it would be outdated
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
              "lastTransitionTime": at}  # fmt: skip
    patch_status(cluster, name, {"conditions": [target]})
    cluster.delete("pods", name)
    cluster.advance(90)
    (new,) = running(cluster)
    assert (new != name, 0, []) == (True, status(cluster).get("failed", 0), ends(cluster))
    end(cluster, new)
    assert "Complete" == ends(cluster)[-1][0]


@pytest.mark.parametrize(
    ("rules", "code", "failed", "reason"),
    [
        ((on_codes("Ignore", 42),), 42, 0, None),
        ((on_codes("Ignore", 42),), 41, 1, "BackoffLimitExceeded"),
        ((on_codes("Ignore", 1, 2, operator="NotIn"),), 3, 0, None),
        ((on_codes("Ignore", 1, 2, operator="NotIn"),), 2, 1, "BackoffLimitExceeded"),
        ((on_codes("Count", 1), on_codes("FailJob", 1)), 1, 1, "BackoffLimitExceeded"),
        ((DISRUPTED, on_codes("FailJob", 1)), 1, 1, "PodFailurePolicy"),
        ((on_codes("Ignore", 7, containerName="c"),), 7, 0, None),
    ],
)
def test_the_first_rule_that_matches_decides(
    rules: tuple[Object, ...], code: int, failed: int, reason: str | None
) -> None:
    cluster = created(backoffLimit=0, **policy(*rules))
    end(cluster, running(cluster)[0], code)
    cluster.advance(60)
    assert failed == status(cluster).get("failed", 0)
    assert ([] if reason is None else [reason] * 2) == [why for _, why in ends(cluster)]


# Replacement


@pytest.mark.parametrize(
    ("how", "while_it_stops"), [("Failed", (0, 0, 1)), ("TerminatingOrFailed", (1, 1, 1))]
)
def test_a_deleted_pod_is_replaced_when_the_policy_says(
    how: str, while_it_stops: tuple[int, int, int]
) -> None:
    notes = {"stower.dev/stop-seconds": "20"}
    cluster = created(podReplacementPolicy=how, notes=notes)
    (name,) = running(cluster)
    cluster.delete("pods", name)
    cluster.advance(15)

    def counts() -> tuple[int, int, int]:
        told = status(cluster)
        return told.get("active", 0), told.get("failed", 0), told["terminating"]

    assert while_it_stops == counts()
    cluster.advance(45)
    assert ((1, 1, 0), 1) == (counts(), len(running(cluster)))


def test_the_next_pod_waits_longer_after_each_failure() -> None:
    """10 s, 20 s and so on after the last failure; a success ends that."""
    cluster = created(completions=9, parallelism=1)
    for pause in (10, 20, 40):
        end(cluster, running(cluster)[0], 1)
        before = cluster.now_ns
        cluster.until(lambda: bool(running(cluster)), 600)
        assert pause - 5 <= (cluster.now_ns - before) / 1e9 <= pause + 5
    end(cluster, running(cluster)[0])
    cluster.advance(3)
    assert 1 == len(running(cluster))


# Indexes


def test_pods_of_an_indexed_job_know_their_index() -> None:
    cluster = created(completions=2, parallelism=2, completionMode="Indexed")
    for name in running(cluster):
        pod = cluster.one("pods", name)
        number = str(index(pod))
        assert number == pod["metadata"]["labels"][f"{BATCH}/job-completion-index"]
        assert (f"job-{number}", True) == (
            pod["spec"]["hostname"],
            name.startswith(f"job-{number}-"),
        )
        (variable,) = pod["spec"]["containers"][0]["env"]
        path = variable["valueFrom"]["fieldRef"]["fieldPath"]
        assert ("JOB_COMPLETION_INDEX", f"metadata.labels['{BATCH}/job-completion-index']") == (
            variable["name"], path)  # fmt: skip


def test_each_index_may_fail_so_often() -> None:
    """The pods of an index tell how often it has failed; the Job fails when all have ended."""
    cluster = Cluster()
    cluster.create("jobs", indexed(4, backoffLimitPerIndex=1))
    cluster.advance(2)
    for number in (0, 2):
        end(cluster, of_index(cluster, number))
    first = of_index(cluster, 1)
    for number in (1, 3):
        end(cluster, of_index(cluster, number), 1)
    cluster.advance(1)
    assert [TRACKING] == cluster.one("pods", first)["metadata"]["finalizers"]
    assert [] == running(cluster)
    cluster.advance(20)
    assert "finalizers" not in cluster.one("pods", first)["metadata"]
    notes = cluster.one("pods", of_index(cluster, 1))["metadata"]["annotations"]
    assert "1" == notes[f"{BATCH}/job-index-failure-count"]
    assert f"{BATCH}/job-index-ignored-failure-count" not in notes
    for number in (1, 3):
        assert [] == ends(cluster)
        end(cluster, of_index(cluster, number), 1)
    assert [("FailureTarget", "FailedIndexes"), ("Failed", "FailedIndexes")] == ends(cluster)
    told = status(cluster)
    assert ("0,2", "1,3") == (told["completedIndexes"], told["failedIndexes"])
    assert (2, 4) == (told["succeeded"], told["failed"])


def test_ignored_failures_of_an_index_are_told_apart() -> None:
    cluster = Cluster()
    cluster.create("jobs", indexed(1, backoffLimitPerIndex=1, **policy(on_codes("Ignore", 9))))
    cluster.advance(2)
    end(cluster, of_index(cluster, 0), 9)
    cluster.advance(30)
    notes = cluster.one("pods", of_index(cluster, 0))["metadata"]["annotations"]
    assert ("0", "1") == (notes[f"{BATCH}/job-index-failure-count"],
                          notes[f"{BATCH}/job-index-ignored-failure-count"])  # fmt: skip
    assert ("", 0) == (status(cluster)["failedIndexes"], status(cluster).get("failed", 0))


def test_too_many_failed_indexes_end_the_job() -> None:
    cluster = Cluster()
    spec = {"parallelism": 1, "backoffLimitPerIndex": 0, "maxFailedIndexes": 0}
    cluster.create("jobs", indexed(4, **spec))
    cluster.advance(2)
    end(cluster, of_index(cluster, 0), 1)
    cluster.advance(60)
    why = "MaxFailedIndexesExceeded"
    assert [("FailureTarget", why), ("Failed", why)] == ends(cluster)
    assert ("0", 1) == (status(cluster)["failedIndexes"], status(cluster)["failed"])


def test_a_rule_fails_an_index_at_once() -> None:
    cluster = Cluster()
    cluster.create("jobs", indexed(2, backoffLimitPerIndex=5, **policy(on_codes("FailIndex", 1))))
    cluster.advance(2)
    end(cluster, of_index(cluster, 1), 1)
    end(cluster, of_index(cluster, 0))
    told = status(cluster)
    assert ("0", "1") == (told["completedIndexes"], told["failedIndexes"])
    assert "Failed" == ends(cluster)[-1][0]


@pytest.mark.parametrize(
    ("rules", "good", "message"),
    [
        ([{"succeededCount": 1}], (2,), "Matched rules at index 0"),
        ([{"succeededIndexes": "0,2-3"}], (3, 0, 2), "Matched rules at index 0"),
        ([{"succeededIndexes": "1-4", "succeededCount": 2}], (0, 4, 1), "Matched rules at index 0"),
        ([{"succeededIndexes": "0"}, {"succeededCount": 2}], (3, 4), "Matched rules at index 1"),
    ],
)
def test_a_success_policy_ends_a_job(
    rules: list[Object], good: tuple[int, ...], message: str
) -> None:
    """At the last of these indexes and not before; pods that still run are stopped, not failed."""
    cluster = Cluster()
    cluster.create("jobs", indexed(5, successPolicy={"rules": rules}))
    cluster.advance(2)
    for number in good:
        assert [] == ends(cluster)
        end(cluster, of_index(cluster, number))
    cluster.advance(60)
    why = "SuccessPolicy"
    assert [("SuccessCriteriaMet", why), ("Complete", why)] == ends(cluster)
    assert message == status(cluster)["conditions"][0]["message"]
    told = status(cluster)
    assert (len(good), 0, []) == (told["succeeded"], told.get("failed", 0), running(cluster))


def test_an_indexed_job_grows_and_shrinks() -> None:
    cluster = Cluster()
    cluster.create("jobs", indexed(2))
    cluster.advance(2)
    cluster.patch("jobs", "job", {"spec": {"completions": 4, "parallelism": 4}})
    cluster.advance(2)
    assert [0, 1, 2, 3] == sorted(index(cluster.one("pods", n)) for n in running(cluster))
    end(cluster, of_index(cluster, 3))
    assert "3" == status(cluster)["completedIndexes"]
    cluster.patch("jobs", "job", {"spec": {"completions": 1, "parallelism": 1}})
    cluster.advance(60)
    assert [0] == [index(cluster.one("pods", n)) for n in running(cluster)]
    told = status(cluster)
    assert ("", 0, 0) == (told.get("completedIndexes", ""), told.get("succeeded", 0),
                          told.get("failed", 0))  # fmt: skip
    end(cluster, of_index(cluster, 0))
    assert "Complete" == ends(cluster)[-1][0]


def test_pods_are_counted_by_hundreds() -> None:
    """A status names 500 at most; all that it names are let go at once, then the next ones are
    named."""
    actors = ControllerManager((JobController(),))
    meta = {"name": "job", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    body: Object = {"metadata": meta, "spec": job(completions=1200, parallelism=1200)["spec"]}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u", "controller": True}
    pods = [
        {"metadata": {"name": f"p{i}", "namespace": "default", "uid": f"p{i}",
                      "resourceVersion": "1", "finalizers": [TRACKING],
                      "ownerReferences": [owner]},
         "spec": {}, "status": {"phase": "Succeeded"}}
        for i in range(1200)
    ]  # fmt: skip
    actors.handle_list("jobs", [{**body, "kind": "Job"}])
    actors.handle_list("pods", pods)
    rounds: list[tuple[int, int, int]] = []
    for turn in range(8):
        calls = actors.step(turn)
        for call in calls:
            if call.path.endswith("/status"):
                told = json.loads(call.body)["status"]
                told["conditions"] = [*(body.get("status") or {}).get("conditions", ()),
                                      *told.get("conditions", ())]  # fmt: skip
                body["status"] = told
                body["metadata"] = {**meta, "resourceVersion": str(turn + 2)}
                answer: Object = {**body, "kind": "Job"}
            elif "/pods/" in call.path:
                pod = pods[int(call.path.rpartition("/p")[2])]
                changed = {**pod["metadata"], "resourceVersion": "2", "finalizers": []}
                answer = {**pod, "kind": "Pod", "metadata": changed}
            else:
                answer = {}
            actors.handle_answer(call.id, 200, json.dumps(answer).encode())
        status = body["status"]
        named = len(status["uncountedTerminatedPods"]["succeeded"] or ())
        let_go = sum("/pods/" in call.path for call in calls)
        rounds.append((let_go, named, status.get("succeeded", 0)))
    assert [(0, 500, 0), (500, 500, 0), (0, 500, 500), (500, 500, 500), (0, 200, 1000),
            (200, 200, 1000), (0, 0, 1200)] == rounds[:7]  # fmt: skip
    assert ["SuccessCriteriaMet", "Complete"] == [c["type"] for c in body["status"]["conditions"]]


# Whose pods they are


def test_a_job_adopts_pods_that_match_and_releases_others() -> None:
    cluster = created(completions=4, parallelism=2)
    name = running(cluster)[0]
    cluster.patch("pods", name, {"metadata": {"ownerReferences": None}})
    pod = cluster.one("pods", name)
    (owner,) = pod["metadata"]["ownerReferences"]
    assert ("Job", "job", [TRACKING]) == (owner["kind"], owner["name"],
                                          pod["metadata"]["finalizers"])  # fmt: skip
    cluster.patch("pods", name, {"metadata": {"labels": None}})
    meta = cluster.one("pods", name)["metadata"]
    assert not meta.get("ownerReferences")
    assert not meta.get("finalizers")
    cluster.advance(2)
    assert (3, 2) == (len(running(cluster)), status(cluster)["active"])


def test_pods_that_were_left_behind_are_not_kept() -> None:
    cluster = created(completions=2, parallelism=2)
    cluster.delete("jobs", "job", propagationPolicy="Orphan")
    cluster.advance(5)
    assert {} == cluster.all("jobs")
    assert 2 == len(running(cluster))
    assert not any(p["metadata"].get("finalizers") for p in cluster.all("pods").values())


def test_a_job_of_another_controller_is_left_alone() -> None:
    cluster = created(managedBy="example.com/other")
    cluster.advance(60)
    assert {} == cluster.all("pods")
    assert not status(cluster)


def test_a_job_of_another_controller_goes_after_its_time() -> None:
    cluster = created(managedBy="example.com/other", ttlSecondsAfterFinished=5)
    at = cluster.one("jobs", "job")["metadata"]["creationTimestamp"]
    why = {"status": "True", "reason": "Done", "lastTransitionTime": at}
    told = {
        "startTime": at,
        "conditions": [{"type": t, **why} for t in ("FailureTarget", "Failed")],
    }
    path = "/apis/batch/v1/namespaces/default/jobs/job/status"
    code, answer = cluster.ask("PATCH", path, {"status": told}, STRATEGIC)
    assert 200 == code, answer
    cluster.settle()
    cluster.advance(10)
    assert {} == cluster.all("jobs")


def test_pods_of_a_suspended_job_are_not_failures() -> None:
    cluster = created(completions=2, parallelism=2, backoffLimit=0)
    cluster.patch("jobs", "job", {"spec": {"suspend": True}})
    cluster.advance(60)
    told = status(cluster)
    assert (0, 0, 0) == (told.get("active", 0), told.get("failed", 0), told["terminating"])
    assert ("Suspended", "JobSuspended") == ends(cluster)[0]
    assert "startTime" not in told
    cluster.patch("jobs", "job", {"spec": {"suspend": False}})
    cluster.advance(2)
    assert (2, []) == (len(running(cluster)), ends(cluster))
    assert {"Suspended", "Resumed"} <= set(reasons(cluster))


# Events


def test_events_tell_what_became_of_pods_and_job() -> None:
    cluster = created(completions=2, parallelism=2)
    names = running(cluster)
    assert [("SuccessfulCreate", f"Created pod: {n}") for n in names] == sorted(events(cluster))
    cluster.patch("jobs", "job", {"spec": {"parallelism": 1}})
    cluster.advance(60)
    (left,) = running(cluster)
    gone = next(name for name in names if name != left)
    assert ("SuccessfulDelete", f"Deleted pod: {gone}") in events(cluster)
    end(cluster, left)
    cluster.advance(2)
    end(cluster, running(cluster)[0])
    assert ("Completed", "Job completed") in events(cluster)


def test_a_job_that_may_make_no_pods_says_why() -> None:
    """Its status counts none, it does not ask for all of them over and over, and it goes on when it
    may."""
    cluster = Cluster()
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}
    code, answer = cluster.ask("POST", "/api/v1/namespaces/default/resourcequotas", quota)
    assert 201 == code, answer
    path = "/api/v1/namespaces/default/resourcequotas/q/status"
    told = {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}
    assert 200 == cluster.ask("PATCH", path, told, "application/merge-patch+json")[0]
    cluster.create("jobs", job(completions=50, parallelism=50))
    cluster.advance(300)
    refused = [r for r in cluster.requests if r == ("POST", "/api/v1/namespaces/default/pods", 403)]
    assert 50 < len(refused) < 120
    assert 0 == status(cluster).get("active", 0)
    whys = [text for reason, text in events(cluster) if reason == "FailedCreate"]
    assert all("exceeded quota: q" in text and "Error creating: " in text for text in whys)
    assert 1 <= len(whys) <= 26
    cluster.ask("DELETE", "/api/v1/namespaces/default/resourcequotas/q")
    cluster.advance(60)
    assert 50 == status(cluster)["active"]
