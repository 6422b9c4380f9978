"""What people do to workloads by hand, and what actors must bear, on a virtual clock."""

import json
from typing import Any

import pytest

from stower.controllers.cluster import read_cluster
from stower.controllers.replica_set import ReplicaSetController
from stower.controllers.runtime import ControllerManager
from stower.model.errors import InvalidObject
from tests.unit.controllers.cluster import Cluster, Object, pools
from tests.unit.controllers.test_kubelet import RUN, pod, ready
from tests.unit.controllers.test_workloads import template, workload

STRATEGIC = "application/strategic-merge-patch+json"
POD = "/api/v1/namespaces/default/pods"


def running(cluster: Cluster) -> list[str]:
    return sorted(n for n, p in cluster.phases().items() if p == "Running")


def job(name: str, restart: str = "Never", run: str = "10", **spec: Any) -> Object:
    own = template(annotations={RUN: run, **spec.pop("notes", {})}, restartPolicy=restart)
    return {"metadata": {"name": name}, "spec": {"template": own, **spec}}


def test_one_odd_object_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of a controller is told, and its key looked at again later; others go on."""
    cluster = Cluster()
    volumes = next(c for c in cluster.actors.controllers if c.name == "persistentvolume-binder")
    sets = next(c for c in cluster.actors.controllers if c.name == "replicaset-controller")

    def fail(*_: Any) -> Any:
        raise KeyError("odd")

    monkeypatch.setattr(volumes, "keys", fail)
    with monkeypatch.context() as failing:
        failing.setattr(sets, "reconcile", fail)
        cluster.create("deployments", workload("web", replicas=2))
        cluster.create("pods", pod("p"))
        cluster.advance(5)
        assert ["p"] == running(cluster)
    assert any("KeyError: 'odd'" in fault for fault in cluster.actors.faults)
    cluster.advance(60)
    assert 3 == len(running(cluster))


@pytest.mark.parametrize(
    ("kind", "obj"),
    [
        ("persistentvolumes", {"metadata": {"name": "v"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"}, "claimRef": {"name": "c", "namespace": "default"}}}),
        ("nodes", {"metadata": {"name": "bare"}}),
    ],
)  # fmt: skip
def test_objects_with_little_in_them(kind: str, obj: Object) -> None:
    cluster = Cluster()
    cluster.create(kind, obj)
    cluster.advance(5)
    assert not cluster.actors.faults


def test_a_resize_leaves_the_other_containers_alone() -> None:
    cluster = Cluster(pools(1))
    made = pod("p", "100m")
    policy = {"resourceName": "cpu", "restartPolicy": "RestartContainer"}
    other = {"name": "other", "image": "busy", "resources": {"requests": {"cpu": "200m"}}}
    other["resizePolicy"] = [policy]
    made["spec"]["containers"].append(other)
    cluster.create("pods", made)
    cluster.advance(5)
    before = cluster.one("pods", "p")["status"]["containerStatuses"]
    for name, cpu, restarts in (("c", "300m", 0), ("other", "400m", 1)):
        patch = {"spec": {"containers": [{"name": name, "resources": {"requests": {"cpu": cpu}}}]}}
        assert 200 == cluster.ask("PATCH", f"{POD}/p/resize", patch, STRATEGIC)[0]
        cluster.settle()
        statuses = {c["name"]: c for c in cluster.one("pods", "p")["status"]["containerStatuses"]}
        assert [c["containerID"] for c in before] == [c["containerID"] for c in statuses.values()]
        assert all(c["ready"] and "running" in c["state"] for c in statuses.values())
        assert cpu == statuses[name]["resources"]["requests"]["cpu"]
        assert restarts == statuses[name]["restartCount"]


def test_recreate_waits_for_pods_that_take_time_to_stop() -> None:
    cluster = Cluster()
    own = workload("web", replicas=2, strategy={"type": "Recreate"})
    own["spec"]["template"]["metadata"]["annotations"] = {"stower.dev/stop-seconds": "4"}
    cluster.create("deployments", own)
    cluster.advance(5)
    cluster.patch("deployments", "web", {"spec": {"template": template("two")}})
    cluster.advance(2)
    assert all("deletionTimestamp" in p["metadata"] for p in cluster.all("pods").values())
    cluster.advance(6)
    assert 2 == len(running(cluster))
    assert 2 == cluster.one("deployments", "web")["status"]["updatedReplicas"]


def test_a_paused_deployment_scales_and_its_notes_follow() -> None:
    cluster = Cluster()
    cluster.create("deployments", workload("web", replicas=3))
    cluster.advance(2)
    cluster.patch("deployments", "web", {"spec": {"paused": True}})
    cluster.patch("deployments", "web", {"spec": {"replicas": 5}})
    cluster.advance(2)
    assert 5 == len(running(cluster))
    notes = {"kubernetes.io/change-cause": "why"}
    change = {"metadata": {"annotations": notes}, "spec": {"paused": False, "minReadySeconds": 7}}
    cluster.patch("deployments", "web", change)
    cluster.advance(1)
    (one,) = cluster.all("replicasets").values()
    assert notes.items() <= one["metadata"]["annotations"].items()
    assert 7 == one["spec"]["minReadySeconds"]


def test_a_pod_that_is_labelled_away_is_let_go_and_replaced() -> None:
    cluster = Cluster()
    cluster.create("deployments", workload("web", replicas=2))
    cluster.advance(2)
    name = running(cluster)[0]
    cluster.patch("pods", name, {"metadata": {"labels": {"app": "debug"}}})
    cluster.advance(2)
    assert 3 == len(running(cluster))
    assert not cluster.one("pods", name)["metadata"].get("ownerReferences")
    cluster.patch("pods", name, {"metadata": {"labels": {"app": "x"}}})
    cluster.advance(2)
    assert 2 == len(running(cluster)), "taken back, and one too many is gone"


def test_what_was_orphaned_is_taken_by_its_successor() -> None:
    cluster = Cluster()
    cluster.create("deployments", workload("web", replicas=3))
    cluster.advance(2)
    before = running(cluster)
    cluster.delete("deployments", "web", propagationPolicy="Orphan")
    cluster.advance(2)
    cluster.create("deployments", workload("web", replicas=3))
    cluster.advance(2)
    assert before == running(cluster)
    assert 1 == len(cluster.all("replicasets"))


def test_a_namespace_that_cannot_end_costs_little() -> None:
    cluster = Cluster()
    cluster.create("namespaces", {"metadata": {"name": "q"}})
    cluster.create("configmaps", {"metadata": {"name": "c", "finalizers": ["a.b/c"]}}, "q")
    cluster.delete("namespaces", "q")
    cluster.advance(3)
    cluster.requests.clear()
    cluster.advance(60)
    of_it = [r for r in cluster.requests if "/namespaces/q" in r[1]]
    assert 0 < len(of_it) <= 61
    cluster.patch("configmaps", "c", {"metadata": {"finalizers": None}}, "q")
    cluster.advance(3)
    assert "q" not in cluster.all("namespaces")


def test_the_namespace_of_leases_comes_back() -> None:
    cluster = Cluster()
    cluster.delete("namespaces", "kube-node-lease")
    cluster.advance(30)
    assert 3 == len(cluster.all("leases", "kube-node-lease"))


def test_a_taint_without_a_time_counts_from_now() -> None:
    cluster = Cluster(pools(1))
    bears = [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
    cluster.create("pods", pod("p", tolerations=bears))
    cluster.advance(100)
    cluster.patch("nodes", "node-1", {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}})
    cluster.advance(55)
    assert ["p"] == running(cluster)
    cluster.advance(10)
    assert not cluster.phases()


def test_a_daemons_pod_stays_where_it_could_not_start() -> None:
    cluster = Cluster(pools(2))
    cluster.create("daemonsets", workload("d"))
    cluster.advance(2)
    before = running(cluster)
    cluster.patch("nodes", "node-1", {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})
    cluster.advance(2)
    assert before == running(cluster)
    status = cluster.one("daemonsets", "d")["status"]
    assert (1, 1) == (status["desiredNumberScheduled"], status["numberMisscheduled"])
    cluster.patch("nodes", "node-1", {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}})
    cluster.advance(40)
    assert 1 == len(running(cluster))


def test_a_job_counts_pods_that_were_deleted_since() -> None:
    cluster = Cluster()
    cluster.create("jobs", job("j", completions=4, parallelism=1))
    seen: set[str] = set()
    for _ in range(60):
        cluster.advance(1)
        for name, phase in cluster.phases().items():
            seen.add(name)
            if phase == "Succeeded":
                cluster.delete("pods", name)
    status = cluster.one("jobs", "j")["status"]
    assert (4, 4) == (status["succeeded"], len(seen))
    assert "Complete" in [c["type"] for c in status["conditions"]]
    assert not status.get("uncountedTerminatedPods")


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_a_job_that_is_deleted_keeps_no_pods(policy: str) -> None:
    cluster = Cluster()
    cluster.create("jobs", job("j", run="3", completions=3, parallelism=2))
    cluster.advance(4)
    cluster.delete("jobs", "j", propagationPolicy=policy)
    cluster.advance(40)
    assert not cluster.phases()
    assert not cluster.all("jobs")


def test_a_job_rests_and_says_so() -> None:
    cluster = Cluster()
    cluster.create("jobs", job("j", suspend=True))
    cluster.advance(2)

    def suspended() -> list[str]:
        conditions = cluster.one("jobs", "j")["status"].get("conditions") or []
        return [c["status"] for c in conditions if c["type"] == "Suspended"]

    assert ["True"] == suspended()
    cluster.patch("jobs", "j", {"spec": {"suspend": False}})
    cluster.advance(2)
    assert ["False"] == suspended()
    assert 1 == len(running(cluster))


def test_a_job_whose_pods_restart_too_often_has_failed() -> None:
    cluster = Cluster()
    code = {"stower.dev/exit-code": "1"}
    cluster.create("jobs", job("j", "OnFailure", "1", backoffLimit=2, notes=code))
    cluster.advance(30)
    status = cluster.one("jobs", "j")["status"]
    assert ("Failed", 1) == (status["conditions"][-1]["type"], status["failed"])
    assert not running(cluster)


def test_what_ends_at_once_is_not_begun_again_at_once() -> None:
    cluster = Cluster()
    cluster.create("pods", pod("p", annotations={RUN: "0"}))
    cluster.advance(5)
    container = cluster.one("pods", "p")["status"]["containerStatuses"][0]
    assert "CrashLoopBackOff" == container["state"]["waiting"]["reason"]
    assert "False" == ready(cluster.one("pods", "p"))
    cluster.requests.clear()
    cluster.advance(600)
    container = cluster.one("pods", "p")["status"]["containerStatuses"][0]
    assert 5 <= container["restartCount"] <= 8
    assert 40 > sum("/pods/p" in r[1] for r in cluster.requests)


def test_a_pod_is_ready_when_what_it_waits_for_is_so() -> None:
    cluster = Cluster()
    cluster.create("pods", pod("p", readinessGates=[{"conditionType": "a.b/c"}]))
    cluster.advance(2)
    assert (["p"], "False") == (running(cluster), ready(cluster.one("pods", "p")))
    status = {"status": {"conditions": [{"type": "a.b/c", "status": "True"}]}}
    assert 200 == cluster.ask("PATCH", f"{POD}/p/status", status, STRATEGIC)[0]
    cluster.settle()
    assert "True" == ready(cluster.one("pods", "p"))


def test_a_pod_has_a_deadline_of_its_own() -> None:
    cluster = Cluster()
    cluster.create("pods", pod("p", activeDeadlineSeconds=5))
    cluster.advance(4)
    assert ["p"] == running(cluster)
    cluster.advance(2)
    status = cluster.one("pods", "p")["status"]
    assert ("Failed", "DeadlineExceeded") == (status["phase"], status["reason"])


def test_pods_of_a_lost_node_are_not_ready_until_it_is_back() -> None:
    cluster = Cluster(pools(1))
    cluster.create("pods", pod("p"))
    cluster.advance(5)
    for value, wanted in (("true", "False"), (None, "True")):
        cluster.patch("nodes", "node-1", {"metadata": {"annotations": {"stower.dev/fail": value}}})
        cluster.advance(70)
        assert wanted == ready(cluster.one("pods", "p"))


def test_nodes_report_now_and_then() -> None:
    cluster = Cluster(pools(1))
    first = cluster.one("nodes", "node-1")["status"]["conditions"]
    cluster.advance(310)
    second = cluster.one("nodes", "node-1")["status"]["conditions"]
    assert all(a["lastHeartbeatTime"] < b["lastHeartbeatTime"] for a, b in zip(first, second))
    assert [c["lastTransitionTime"] for c in first] == [c["lastTransitionTime"] for c in second]


def test_a_claim_takes_a_volume_that_is_there_and_pods_wait_for_it() -> None:
    cluster = Cluster(pools(1))
    claim = {"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
        "resources": {"requests": {"storage": "3Gi"}}}}  # fmt: skip
    cluster.create("persistentvolumeclaims", claim)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    cluster.create("pods", pod("p", nodeName="node-1", volumes=volumes))
    cluster.advance(5)
    assert {"p": "Pending"} == cluster.phases()
    for name, size in (("small", "1Gi"), ("large", "9Gi"), ("right", "5Gi")):
        spec = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": "manual", "hostPath": {"path": "/x"}}  # fmt: skip
        cluster.ask("POST", "/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})
    cluster.settle()
    cluster.advance(1)
    assert "right" == cluster.one("persistentvolumeclaims", "c")["spec"]["volumeName"]
    assert ["p"] == running(cluster)


def test_an_eviction_that_nobody_carried_out_is_forgotten() -> None:
    cluster = Cluster()
    cluster.create("deployments", workload("web", replicas=2))
    cluster.create("poddisruptionbudgets", {"metadata": {"name": "b"}, "spec": {
        "maxUnavailable": 1, "selector": {"matchLabels": {"app": "x"}}}})  # fmt: skip
    cluster.advance(2)
    name = running(cluster)[0]
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b/status"
    at = cluster.one("pods", name)["metadata"]["creationTimestamp"]
    said = {"status": {"disruptedPods": {name: at}}}
    assert 200 == cluster.ask("PATCH", path, said, "application/merge-patch+json")[0]
    cluster.advance(5)

    def allowed() -> int:
        return int(cluster.one("poddisruptionbudgets", "b")["status"]["disruptionsAllowed"])

    assert 0 == allowed()
    cluster.advance(120)
    assert 1 == allowed()


def test_other_kinds_go_in_the_foreground_too() -> None:
    cluster = Cluster()
    path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    cluster.ask("POST", path, {"metadata": {"name": "i"}, "spec": {"defaultBackend": backend}})
    cluster.settle()
    cluster.ask("DELETE", f"{path}/i", {"propagationPolicy": "Foreground"})
    cluster.settle()
    assert 404 == cluster.ask("GET", f"{path}/i")[0]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "General_1"}, "pools[0].name"),
        ({"labels": {"bad key!": "x"}}, "pools[0].labels"),
        ({"labels": {"a": "b c"}}, "pools[0].labels[a]"),
        ({"capacity": {"pods": "1500m"}}, "pools[0].capacity[pods]"),
        ({"capacity": {"foo bar": "1"}}, "pools[0].capacity"),
        ({"capacity": {"cpu": "much"}}, "pools[0].capacity[cpu]"),
        ({"bootSeconds": -5}, "pools[0].bootSeconds"),
        ({"zones": ["a b!"]}, "pools[0].zones[0]"),
        ({"taints": [{"key": ""}]}, "pools[0].taints[0].key"),
    ],
)
def test_a_cluster_file_that_cannot_be_is_refused(fields: Object, field: str) -> None:
    with pytest.raises(InvalidObject) as refused:
        read_cluster({"pools": [{"name": "p", **fields}]})
    assert field == refused.value.path
    assert read_cluster({"pools": [{"name": "p", "capacity": {"cpu": 4}}]}).pools


def test_an_owner_that_is_gone_is_struck_off_while_another_is_there() -> None:
    cluster = Cluster(scheduler=False)

    def config(name: str, *owners: Object) -> Object:
        refs = [{"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
                 "uid": owner["metadata"]["uid"]} for owner in owners]  # fmt: skip
        return cluster.create("configmaps", {"metadata": {"name": name, "ownerReferences": refs}})

    first, second = config("first"), config("second")
    config("both", first, second)
    cluster.delete("configmaps", "first")
    cluster.advance(5)
    owners = cluster.one("configmaps", "both")["metadata"]["ownerReferences"]
    assert ["second"] == [owner["name"] for owner in owners]
    cluster.delete("configmaps", "second")
    cluster.advance(5)
    assert "both" not in cluster.all("configmaps")


def test_a_list_that_is_older_than_an_answer_makes_nothing_gone() -> None:
    """What was made while the list was on its way is not in it."""
    actors = ControllerManager((ReplicaSetController(),))
    own = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}
    meta = {"name": "r", "namespace": "default", "uid": "u", "resourceVersion": "3"}
    selector = {"matchLabels": {"a": "b"}}
    spec = {"replicas": 1, "selector": selector, "template": own}
    actors.handle_list("replicasets", [{"metadata": meta, "spec": spec, "status": {}}], "5")
    actors.handle_list("pods", [], "5")
    (call,) = [call for call in actors.step(0) if call.path.endswith("/pods")]
    made: Object = {**json.loads(call.body), "status": {}}
    made["metadata"] |= {"name": "r-1", "uid": "p", "resourceVersion": "7"}
    actors.handle_answer(call.id, 201, json.dumps(made).encode())
    actors.handle_list("pods", [], "6")
    assert actors.seen.get("pods", "default/r-1") is not None
    actors.handle_list("pods", [], "8")
    assert actors.seen.get("pods", "default/r-1") is None
