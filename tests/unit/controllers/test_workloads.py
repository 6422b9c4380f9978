"""Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and CronJobs, on a virtual clock."""

from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster, Object, pools

MINUTE = 60


def template(image: str = "one", annotations: Object | None = None, **spec: Any) -> Object:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": "100m"}}}
    return {"metadata": {"labels": {"app": "x"}, "annotations": annotations or {}},
            "spec": {"containers": [container], **spec}}  # fmt: skip


def workload(name: str, image: str = "one", **spec: Any) -> Object:
    selector = {"matchLabels": {"app": "x"}}
    return {"metadata": {"name": name}, "spec": {"selector": selector,
            "template": template(image), **spec}}  # fmt: skip


def images(cluster: Cluster) -> list[str]:
    return sorted(p["spec"]["containers"][0]["image"] for p in cluster.all("pods").values())


def available(cluster: Cluster) -> int:
    return sum(
        any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"]["conditions"])
        for p in cluster.all("pods").values()
    )


def test_a_deployment_rolls_out_within_its_bounds() -> None:
    cluster = Cluster()
    rolling = {"maxSurge": 1, "maxUnavailable": 1}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    cluster.create("deployments", workload("web", replicas=6, strategy=strategy))
    cluster.advance(5)
    status = cluster.one("deployments", "web")["status"]
    assert [6, 6, 6, 6] == [
        status[k] for k in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    ]
    patch = {"spec": {"template": template("two", {"v": "2"})}}
    cluster.patch("deployments", "web", patch)
    for _ in range(100):
        assert len(cluster.all("pods")) <= 7
        assert available(cluster) >= 5
        if images(cluster) == ["two"] * 6 and available(cluster) == 6:
            break
        cluster.advance(0.1)
    cluster.advance(1)
    assert ["two"] * 6 == images(cluster)
    deployment = cluster.one("deployments", "web")
    conditions = {c["type"]: c for c in deployment["status"]["conditions"]}
    assert "NewReplicaSetAvailable" == conditions["Progressing"]["reason"]
    assert "2" == deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"]
    sets = cluster.all("replicasets").values()
    assert [0, 6] == sorted(s["spec"]["replicas"] for s in sets)
    cluster.patch("deployments", "web", {"spec": {"template": template("one", {"v": None})}})
    cluster.advance(5)
    assert ["one"] * 6 == images(cluster)
    assert 2 == len(cluster.all("replicasets")), "a rollback takes the old ReplicaSet again"
    deployment = cluster.one("deployments", "web")
    assert "3" == deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"]


def test_a_deployment_recreates_scales_pauses_and_goes() -> None:
    cluster = Cluster()
    cluster.create("deployments", workload("web", replicas=3, strategy={"type": "Recreate"}))
    cluster.advance(2)
    cluster.patch("deployments", "web", {"spec": {"template": template("two")}})
    cluster.advance(5)
    assert ["two"] * 3 == images(cluster)
    cluster.patch("deployments", "web", {"spec": {"replicas": 5}})
    cluster.advance(2)
    assert 5 == len(cluster.all("pods"))
    cluster.patch("deployments", "web", {"spec": {"replicas": 1}})
    cluster.advance(2)
    assert 1 == len(cluster.all("pods"))
    cluster.patch("deployments", "web", {"spec": {"paused": True, "template": template("three")}})
    cluster.advance(2)
    assert ["two"] == images(cluster)
    cluster.patch("deployments", "web", {"spec": {"paused": False}})
    cluster.advance(2)
    assert ["three"] == images(cluster)
    cluster.delete("deployments", "web")
    cluster.advance(5)
    assert {} == cluster.all("pods") == cluster.all("replicasets")


def test_a_deployment_that_does_not_progress_says_so() -> None:
    cluster = Cluster()
    spec = {**workload("web"), "spec": {**workload("web")["spec"], "progressDeadlineSeconds": 60}}
    spec["spec"]["template"] = template(nodeSelector={"no": "where"})
    cluster.create("deployments", spec)
    cluster.advance(70)
    conditions = {c["type"]: c for c in cluster.one("deployments", "web")["status"]["conditions"]}
    assert "ProgressDeadlineExceeded" == conditions["Progressing"]["reason"]
    assert "False" == conditions["Available"]["status"]


@pytest.mark.parametrize(("policy", "left"), [("Orphan", 3), ("Foreground", 0), ("Background", 0)])
def test_dependents_go_or_stay_as_asked(policy: str, left: int) -> None:
    cluster = Cluster()
    cluster.create("replicasets", workload("rs", replicas=3))
    cluster.advance(2)
    cluster.delete("replicasets", "rs", propagationPolicy=policy)
    cluster.advance(2)
    assert {} == cluster.all("replicasets")
    pods = cluster.all("pods")
    assert left == len(pods)
    assert all(not p["metadata"].get("ownerReferences") for p in pods.values())


def test_a_stateful_set_goes_one_after_the_other() -> None:
    cluster = Cluster()
    spec = workload("db", replicas=3, serviceName="db")
    spec["spec"]["template"]["metadata"]["annotations"] = {"stower.dev/start-seconds": "10"}
    cluster.create("statefulsets", spec)
    cluster.advance(5)
    assert ["db-0"] == sorted(cluster.phases())
    cluster.advance(10)
    assert ["db-0", "db-1"] == sorted(cluster.phases())
    cluster.advance(20)
    assert {"db-0": "Running", "db-1": "Running", "db-2": "Running"} == cluster.phases()
    first = cluster.one("pods", "db-0")
    assert "db-0" == first["spec"]["hostname"]
    cluster.delete("pods", "db-1")
    cluster.advance(15)
    assert "Running" == cluster.phases()["db-1"], "with the same name again"
    new = template("two", {"stower.dev/start-seconds": "10"})
    cluster.patch("statefulsets", "db", {"spec": {"template": new}})
    cluster.advance(5)
    assert ["one", "one", "two"] == images(cluster)
    assert "two" == cluster.one("pods", "db-2")["spec"]["containers"][0]["image"], "the last first"
    cluster.advance(40)
    assert ["two"] * 3 == images(cluster)
    status = cluster.one("statefulsets", "db")["status"]
    assert status["currentRevision"] == status["updateRevision"]
    assert 3 == status["updatedReplicas"] == status["availableReplicas"]
    cluster.patch("statefulsets", "db", {"spec": {"replicas": 1}})
    cluster.advance(5)
    assert ["db-0"] == sorted(cluster.phases())


def test_a_stateful_sets_claims_are_made_and_bound() -> None:
    cluster = Cluster()
    storage_class = {"metadata": {"name": "fast"}, "provisioner": "stower.dev/volumes"}
    cluster.create("storageclasses", storage_class, "")
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "fast",
             "accessModes": ["ReadWriteOnce"],
             "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
    cluster.create(
        "statefulsets", workload("db", replicas=2, serviceName="db", volumeClaimTemplates=[claim])
    )
    cluster.advance(5)
    claims = cluster.all("persistentvolumeclaims")
    assert ["data-db-0", "data-db-1"] == sorted(claims)
    assert {"Bound"} == {c["status"]["phase"] for c in claims.values()}
    assert 2 == len(cluster.all("persistentvolumes", ""))
    volume = cluster.one("pods", "db-1")["spec"]["volumes"][0]
    assert "data-db-1" == volume["persistentVolumeClaim"]["claimName"]
    cluster.delete("persistentvolumeclaims", "data-db-0")
    cluster.delete("statefulsets", "db")
    cluster.advance(5)
    assert ["data-db-1"] == sorted(cluster.all("persistentvolumeclaims"))
    assert 1 == len(cluster.all("persistentvolumes", ""))


def test_a_daemon_set_is_on_every_node_that_it_fits() -> None:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    document = {"pools": [{"name": "node", "count": 3}, {"name": "gpu", "taints": [taint]}]}
    cluster = Cluster(document)
    cluster.create("daemonsets", workload("agent"))
    cluster.advance(5)

    def nodes() -> list[str]:
        return sorted(p["spec"]["nodeName"] for p in cluster.all("pods").values())

    assert ["node-1", "node-2", "node-3"] == nodes()
    status = cluster.one("daemonsets", "agent")["status"]
    assert [3, 3, 3] == [
        status[k] for k in ("desiredNumberScheduled", "numberReady", "updatedNumberScheduled")
    ]
    tolerating = template(tolerations=[{"key": "gpu", "operator": "Exists"}])
    cluster.patch("daemonsets", "agent", {"spec": {"template": tolerating}})
    cluster.advance(10)
    assert ["gpu-1", "node-1", "node-2", "node-3"] == nodes()
    cluster.patch("nodes", "node-2", {"metadata": {"labels": {"no": "agent"}}})
    choosy = template(tolerations=[{"key": "gpu", "operator": "Exists"}])
    expression = {"key": "no", "operator": "DoesNotExist"}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    choosy["spec"]["affinity"] = {"nodeAffinity": required}
    cluster.patch("daemonsets", "agent", {"spec": {"template": choosy}})
    cluster.advance(10)
    assert ["gpu-1", "node-1", "node-3"] == nodes()


def job(name: str = "job", seconds: int = 10, code: int = 0, **spec: Any) -> Object:
    how = {"stower.dev/run-seconds": str(seconds), "stower.dev/exit-code": str(code)}
    return {"metadata": {"name": name}, "spec": {
        "template": template("one", how, restartPolicy="Never"), **spec}}  # fmt: skip


def verdict(cluster: Cluster, name: str = "job") -> str:
    conditions = cluster.one("jobs", name)["status"].get("conditions") or ()
    return next((c["type"] for c in conditions if c["type"] in ("Complete", "Failed")), "")


def test_a_job_runs_so_many_at_once_until_all_have_succeeded() -> None:
    cluster = Cluster()
    cluster.create("jobs", job(completions=5, parallelism=2))
    cluster.advance(5)
    assert 2 == cluster.one("jobs", "job")["status"]["active"]
    cluster.until(lambda: verdict(cluster) != "", 120)
    status = cluster.one("jobs", "job")["status"]
    assert ("Complete", 5) == (verdict(cluster), status["succeeded"])
    assert "completionTime" in status


def test_a_job_with_indices_has_each_once() -> None:
    cluster = Cluster()
    cluster.create("jobs", job(completions=4, parallelism=4, completionMode="Indexed"))
    cluster.advance(1)
    indices = sorted(
        p["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        for p in cluster.all("pods").values()
    )
    assert ["0", "1", "2", "3"] == indices
    cluster.advance(15)
    assert "0-3" == cluster.one("jobs", "job")["status"]["completedIndexes"]
    assert "Complete" == verdict(cluster)


def test_a_job_that_fails_too_often_has_failed() -> None:
    cluster = Cluster()
    cluster.create("jobs", job(seconds=1, code=1, backoffLimit=2))
    cluster.until(lambda: verdict(cluster) != "", 300)
    assert "Failed" == verdict(cluster)
    assert 3 == cluster.one("jobs", "job")["status"]["failed"]


def test_a_job_ends_by_its_deadline_and_goes_after_its_time() -> None:
    cluster = Cluster()
    cluster.create("jobs", job(seconds=999, activeDeadlineSeconds=30, ttlSecondsAfterFinished=60))
    cluster.advance(35)
    conditions = cluster.one("jobs", "job")["status"]["conditions"]
    assert {"DeadlineExceeded"} == {c["reason"] for c in conditions}
    cluster.advance(70)
    assert {} == cluster.all("jobs") == cluster.all("pods")


def test_a_cron_job_starts_jobs_on_time_and_keeps_some() -> None:
    cluster = Cluster()
    spec = {"schedule": "*/10 * * * *", "jobTemplate": {"spec": job()["spec"]},
            "successfulJobsHistoryLimit": 2}  # fmt: skip
    cluster.create("cronjobs", {"metadata": {"name": "cron"}, "spec": spec})
    cluster.advance(11 * MINUTE)
    assert 1 == len(cluster.all("jobs"))
    cluster.advance(50 * MINUTE)
    assert 2 == len(cluster.all("jobs"))
    cluster.patch("cronjobs", "cron", {"spec": {"suspend": True}})
    before = cluster.all("jobs")
    cluster.advance(30 * MINUTE)
    assert sorted(before) == sorted(cluster.all("jobs"))
    cluster.delete("cronjobs", "cron")
    cluster.advance(1)
    assert {} == cluster.all("jobs")


def test_a_budget_says_how_many_may_go() -> None:
    cluster = Cluster()
    cluster.create("deployments", workload("web", replicas=4))
    budget = {"metadata": {"name": "web"}, "spec": {"maxUnavailable": 1,
              "selector": {"matchLabels": {"app": "x"}}}}  # fmt: skip
    cluster.create("poddisruptionbudgets", budget)
    cluster.advance(5)
    status = cluster.one("poddisruptionbudgets", "web")["status"]
    assert (4, 3, 4, 1) == tuple(
        status[k]
        for k in ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")
    )
    names = sorted(cluster.all("pods"))
    answers = []
    for name in names[:2]:
        eviction = {"metadata": {"name": name, "namespace": "default"}}
        path = f"/api/v1/namespaces/default/pods/{name}/eviction"
        answers.append(cluster.ask("POST", path, eviction)[0])
    assert [201, 429] == answers
    cluster.settle()
    cluster.advance(5)
    status = cluster.one("poddisruptionbudgets", "web")["status"]
    assert (4, 1) == (status["currentHealthy"], status["disruptionsAllowed"])
    assert not status.get("disruptedPods")


def test_a_namespace_goes_with_all_that_is_in_it() -> None:
    cluster = Cluster()
    cluster.create("namespaces", {"metadata": {"name": "team"}}, "")
    cluster.create("deployments", workload("web", replicas=3), "team")
    cluster.create("configmaps", {"metadata": {"name": "c"}}, "team")
    slow = {"metadata": {"name": "slow", "annotations": {"stower.dev/stop-seconds": "20"}},
            "spec": template()["spec"]}  # fmt: skip
    cluster.create("pods", slow, "team")
    cluster.advance(5)
    cluster.delete("namespaces", "team", "")
    cluster.advance(10)
    assert "Terminating" == cluster.one("namespaces", "team", "")["status"]["phase"]
    cluster.advance(20)
    assert "team" not in cluster.all("namespaces", "")


def test_a_cluster_is_the_same_each_time() -> None:
    def run() -> list[tuple[str, str, int]]:
        cluster = Cluster(pools(5))
        cluster.create("deployments", workload("web", replicas=8))
        cluster.create("jobs", job(completions=3, parallelism=2))
        cluster.advance(60)
        cluster.delete("deployments", "web")
        cluster.advance(5)
        return cluster.requests

    assert run() == run()


def replication_controller(name: str, replicas: int) -> Object:
    return {"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {"app": "x"},
            "template": template()}}  # fmt: skip


def test_a_replication_controller_keeps_its_pods() -> None:
    """It makes, adopts, releases and deletes pods, scales and counts as a ReplicaSet does."""
    cluster = Cluster()
    loose = {"metadata": {"name": "loose", "labels": {"app": "x"}}, "spec": template()["spec"]}
    cluster.create("pods", loose)
    cluster.create("replicationcontrollers", replication_controller("rc", 2))
    cluster.advance(2)
    pods = cluster.all("pods")
    assert 2 == len(pods)
    assert {"ReplicationController"} == {p["metadata"]["ownerReferences"][0]["kind"]
                                         for p in pods.values()}  # fmt: skip
    status = cluster.one("replicationcontrollers", "rc")["status"]
    assert [2, 2, 2, 2] == [
        status[k]
        for k in ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas")
    ]
    cluster.patch("pods", "loose", {"metadata": {"labels": {"app": "y"}}})
    cluster.advance(2)
    assert not cluster.one("pods", "loose")["metadata"].get("ownerReferences")
    assert 3 == len(cluster.all("pods"))
    path = f"{cluster.path_to('replicationcontrollers', 'default', 'rc')}/scale"
    scale = cluster.get(path)
    assert 200 == cluster.ask("PUT", path, {**scale, "spec": {"replicas": 4}})[0]
    cluster.advance(2)
    assert 5 == len(cluster.all("pods"))
    cluster.delete("replicationcontrollers", "rc", propagationPolicy="Background")
    cluster.advance(2)
    assert ["loose"] == list(cluster.all("pods"))
