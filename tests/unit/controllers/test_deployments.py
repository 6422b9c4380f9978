"""Deployments and ReplicaSets: shares, progress, pauses, revisions, refusals, which pods go."""

from typing import Any

import pytest

from stower.controllers.deletion_order import order_for_deletion
from tests.unit.controllers.cluster import Cluster, Object
from tests.unit.controllers.workloads import (
    events,
    images,
    lift_limit,
    limit_pods,
    set_ready,
    template,
    workload,
    write_status,
)

PREFIX = "deployment.kubernetes.io/"


def rolling(surge: Any = 1, unavailable: Any = 0) -> Object:
    bounds = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": bounds}}


def deploy(cluster: Cluster, gated: bool = False, **spec: Any) -> None:
    cluster.create("deployments", workload("web", gated=gated, **spec))
    cluster.advance(3)


def change(cluster: Cluster, image: str, gated: bool = False, **spec: Any) -> None:
    cluster.patch("deployments", "web", {"spec": {"template": template(image, gated), **spec}})
    cluster.advance(3)


def open_all(cluster: Cluster) -> None:
    for name in images(cluster):
        set_ready(cluster, name)
    cluster.advance(3)


def conditions(cluster: Cluster, kind: str = "deployments", name: str = "web") -> dict[str, Object]:
    status = cluster.one(kind, name)["status"]
    return {c["type"]: c for c in status.get("conditions") or ()}


def reason(cluster: Cluster) -> str:
    return str(conditions(cluster)["Progressing"]["reason"])


def sizes(cluster: Cluster) -> dict[str, int]:
    """How large the ReplicaSet of each image is."""
    return {
        one["spec"]["template"]["spec"]["containers"][0]["image"]: one["spec"]["replicas"]
        for one in cluster.all("replicasets").values()
    }


def annotation(cluster: Cluster, name: str) -> dict[str, str | None]:
    return {
        one["spec"]["template"]["spec"]["containers"][0]["image"]:
            one["metadata"]["annotations"].get(PREFIX + name)
        for one in cluster.all("replicasets").values()
    }  # fmt: skip


# Scaling


def test_a_deployment_that_scales_in_a_rollout_shares_it_out() -> None:
    cluster = Cluster()
    deploy(cluster, True, replicas=10, **rolling(3, 2))
    open_all(cluster)
    change(cluster, "two", gated=True)
    assert {"one": 8, "two": 5} == sizes(cluster)
    cluster.patch("deployments", "web", {"spec": {"replicas": 30}})
    cluster.advance(2)
    assert {"one": 20, "two": 13} == sizes(cluster), "8 and 5 of 13 of 33"
    assert {"one": "30", "two": "30"} == annotation(cluster, "desired-replicas")
    assert {"one": "33", "two": "33"} == annotation(cluster, "max-replicas")


def test_a_deployment_that_shrinks_to_nothing_has_no_pods() -> None:
    cluster = Cluster()
    deploy(cluster, True, replicas=4, **rolling(2, 0))
    open_all(cluster)
    change(cluster, "two", gated=True)
    assert {"one": 4, "two": 2} == sizes(cluster)
    cluster.patch("deployments", "web", {"spec": {"replicas": 0}})
    cluster.advance(3)
    assert {"one": 0, "two": 0} == sizes(cluster)


def test_a_new_template_in_a_rollout_rolls_over() -> None:
    cluster = Cluster()
    deploy(cluster, True, replicas=3, **rolling())
    open_all(cluster)
    change(cluster, "two", gated=True)
    assert {"one": 3, "two": 1} == sizes(cluster)
    change(cluster, "three", gated=True)
    assert {"one": 3, "two": 0, "three": 1} == sizes(cluster)
    for _ in range(4):
        open_all(cluster)
    assert {"one": 0, "two": 0, "three": 3} == sizes(cluster)
    assert "NewReplicaSetAvailable" == reason(cluster)


def test_old_pods_that_are_unwell_go_first() -> None:
    cluster = Cluster()
    deploy(cluster, True, replicas=4, **rolling(0, 2))
    names = sorted(images(cluster))
    for name in names[:3]:
        set_ready(cluster, name)
    change(cluster, "two", gated=True)
    assert names[3] not in images(cluster)
    assert {"one": 2, "two": 2} == sizes(cluster)


# Revisions


def test_a_set_that_is_wanted_again_remembers_its_revisions() -> None:
    cluster = Cluster()
    deploy(cluster, replicas=1, **rolling())
    for image in ("two", "one", "two"):
        change(cluster, image)
        cluster.advance(3)
    assert {"one": "3", "two": "4"} == annotation(cluster, "revision")
    assert {"one": "1", "two": "2"} == annotation(cluster, "revision-history")
    meta = cluster.one("deployments", "web")["metadata"]
    assert "4" == meta["annotations"][PREFIX + "revision"]
    assert 4 == meta["generation"], "a revision is no change of what is wanted"


@pytest.mark.parametrize(
    ("known", "next_number"),
    [("3546343826724305832", "3546343826724305833"), ("99999999999999999999", "1"), ("x", "1")],
)
def test_revisions_go_on_from_those_of_adopted_sets(known: str, next_number: str) -> None:
    cluster = Cluster()
    before = workload("before", "old", replicas=1)
    before["metadata"]["annotations"] = {PREFIX + "revision": known}
    before["metadata"]["labels"] = {"app": "x"}
    cluster.create("replicasets", before)
    deploy(cluster, replicas=1, **rolling())
    cluster.advance(5)
    assert {"old": 0, "one": 1} == sizes(cluster)
    meta = cluster.one("deployments", "web")["metadata"]
    assert next_number == meta["annotations"][PREFIX + "revision"]


def test_old_sets_go_when_the_rollout_is_complete() -> None:
    cluster = Cluster()
    deploy(cluster, replicas=1, revisionHistoryLimit=1, **rolling())
    for image in ("two", "three", "four"):
        change(cluster, image)
    cluster.advance(3)
    assert {"three": 0, "four": 1} == sizes(cluster)


def test_a_name_that_another_set_has_is_not_taken() -> None:
    cluster = Cluster()
    deploy(cluster, replicas=1)
    (name,) = cluster.all("replicasets")
    cluster.delete("deployments", "web")
    cluster.advance(3)
    other = workload(name, replicas=0)
    other["spec"]["selector"] = {"matchLabels": {"app": "y"}}
    other["spec"]["template"]["metadata"]["labels"] = {"app": "y"}
    cluster.create("replicasets", other)
    deploy(cluster, replicas=1)
    assert 1 == cluster.one("deployments", "web")["status"]["collisionCount"]
    assert 1 == len(images(cluster))
    assert 2 == len(cluster.all("replicasets"))


# Conditions


def test_conditions_say_how_a_rollout_goes() -> None:
    cluster = Cluster()
    deploy(cluster, True, replicas=2, progressDeadlineSeconds=60, **rolling())
    assert ("False", "MinimumReplicasUnavailable") == tuple(
        conditions(cluster)["Available"][k] for k in ("status", "reason")
    )
    assert "ReplicaSetUpdated" == reason(cluster)
    open_all(cluster)
    assert "NewReplicaSetAvailable" == reason(cluster)
    assert "MinimumReplicasAvailable" == conditions(cluster)["Available"]["reason"]
    cluster.advance(300)
    change(cluster, "two", gated=True)
    assert "ReplicaSetUpdated" == reason(cluster), "the time before does not count"
    cluster.advance(50)
    assert "ReplicaSetUpdated" == reason(cluster)
    cluster.advance(20)
    assert ("ProgressDeadlineExceeded", "False") == (
        reason(cluster), conditions(cluster)["Progressing"]["status"])  # fmt: skip
    open_all(cluster)
    assert "ReplicaSetUpdated" == reason(cluster)


def test_a_rollout_that_rests_does_not_time_out() -> None:
    cluster = Cluster()
    deploy(cluster, True, replicas=2, progressDeadlineSeconds=60, **rolling())
    open_all(cluster)
    change(cluster, "two", gated=True, paused=True)
    assert "DeploymentPaused" == reason(cluster)
    assert {"one": 2} == sizes(cluster)
    cluster.advance(600)
    assert "DeploymentPaused" == reason(cluster)
    cluster.patch("deployments", "web", {"spec": {"paused": False}})
    assert reason(cluster) in ("DeploymentResumed", "NewReplicaSetCreated", "ReplicaSetUpdated")
    cluster.advance(30)
    assert {"one": 2, "two": 1} == sizes(cluster)
    assert "ReplicaSetUpdated" == reason(cluster)


def test_a_changed_status_is_put_right_and_what_others_say_stays() -> None:
    cluster = Cluster()
    deploy(cluster, replicas=2)
    path = cluster.path_to("deployments", "default", "web") + "/status"
    own = {"type": "StatusUpdate", "status": "True", "reason": "Test", "message": "by hand"}
    wrong = {"status": {"readyReplicas": 0, "availableReplicas": 0, "conditions": [own]}}
    kind = "application/strategic-merge-patch+json"
    assert 200 == cluster.ask("PATCH", path, wrong, kind)[0]
    cluster.settle()
    assert 2 == cluster.one("deployments", "web")["status"]["readyReplicas"]
    assert {"Available", "Progressing", "StatusUpdate"} == set(conditions(cluster))


def test_pods_that_leave_are_counted() -> None:
    cluster = Cluster()
    slow = template()
    slow["metadata"]["annotations"] = {"stower.dev/stop-seconds": "20"}
    deploy(cluster, replicas=3, template=slow)
    assert 0 == cluster.one("deployments", "web")["status"]["terminatingReplicas"]
    cluster.patch("deployments", "web", {"spec": {"replicas": 1}})
    cluster.advance(3)
    assert 2 == cluster.one("deployments", "web")["status"]["terminatingReplicas"]
    cluster.advance(30)
    assert 0 == cluster.one("deployments", "web")["status"]["terminatingReplicas"]


def test_what_is_scaled_is_said() -> None:
    cluster = Cluster()
    deploy(cluster, replicas=2, **rolling(1, 1))
    (old,) = cluster.all("replicasets")
    change(cluster, "two")
    cluster.advance(5)
    (new,) = set(cluster.all("replicasets")) - {old}
    texts = [text for _, text in events(cluster, "Deployment", "web")]
    assert f"Scaled up replica set {old} from 0 to 2" in texts
    assert f"Scaled up replica set {new} from 0 to 1" in texts
    assert f"Scaled down replica set {old} from 1 to 0" in texts
    said = events(cluster, "ReplicaSet", new)
    assert {f"Created pod: {name}" for name in images(cluster)} == {text for _, text in said}


# Refusals


def test_a_pod_that_a_quota_refuses_is_said_on_both() -> None:
    cluster = Cluster()
    limit_pods(cluster, 2)
    deploy(cluster, replicas=3)
    cluster.advance(5)
    (name,) = cluster.all("replicasets")
    of_set = conditions(cluster, "replicasets", name)["ReplicaFailure"]
    assert ("True", "FailedCreate") == (of_set["status"], of_set["reason"])
    assert "exceeded quota: few" in of_set["message"]
    assert of_set["message"] == conditions(cluster)["ReplicaFailure"]["message"]
    refused = [text for why, text in events(cluster, "ReplicaSet", name) if why == "FailedCreate"]
    assert any(text.endswith(of_set["message"]) for text in refused)
    lift_limit(cluster)
    cluster.advance(60)
    assert 3 == cluster.one("replicasets", name)["status"]["readyReplicas"]
    assert "ReplicaFailure" not in conditions(cluster, "replicasets", name)
    assert "ReplicaFailure" not in conditions(cluster)


def test_what_is_refused_is_not_asked_for_again_in_heaps() -> None:
    cluster = Cluster()
    limit_pods(cluster, 1)
    cluster.create("replicasets", workload("rs", replicas=50))
    cluster.advance(5)
    before = len(cluster.requests)
    cluster.advance(60)
    tried = [r for r in cluster.requests[before:] if r[0] == "POST" and r[1].endswith("/pods")]
    assert 1 <= len(tried) <= 10
    lift_limit(cluster)
    cluster.advance(60)
    assert 50 == len(images(cluster))


def test_failed_pods_are_replaced() -> None:
    cluster = Cluster()
    cluster.create("replicasets", workload("rs", replicas=2))
    cluster.advance(3)
    write_status(cluster, min(images(cluster)), {"phase": "Failed"})
    cluster.advance(3)
    assert 3 == len(images(cluster))
    status = cluster.one("replicasets", "rs")["status"]
    assert (2, 2) == (status["replicas"], status["readyReplicas"])


# Which pods go

NOW = 1_790_000_000


def pod(name: str, node: str = "n", phase: str = "Running", ready: str | None = "T-10",
        created: int = 1000, restarts: int = 0, cost: str = "") -> Object:  # fmt: skip
    """`ready` and `created`: how many seconds before now."""
    from stower.model.times import time_text

    def ago(seconds: int) -> str:
        return time_text((NOW - seconds) * 1_000_000_000)

    made: Object = {
        "metadata": {"name": name, "uid": name, "creationTimestamp": ago(created)},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "containerStatuses": [{"name": "c", "restartCount": restarts}]},
    }
    if ready is not None:
        since = ago(int(ready.removeprefix("T-")))
        made["status"]["conditions"] = [
            {"type": "Ready", "status": "True", "lastTransitionTime": since}
        ]
    if cost:
        made["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    return made


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pod("z", node=""), pod("a")),
        (pod("z", phase="Pending"), pod("a")),
        (pod("z", ready=None), pod("a")),
        (pod("z", cost="-5"), pod("a")),
        (pod("z"), pod("a", cost="7")),
        (pod("z", ready="T-10"), pod("a", ready="T-500")),
        (pod("a", ready="T-10"), pod("z", ready="T-11")),
        (pod("z", ready=None, restarts=3), pod("a", ready=None, restarts=1)),
        (pod("z", created=10), pod("a", created=5000)),
    ],
)
def test_the_pod_that_does_less_goes_first(first: Object, second: Object) -> None:
    ordered = order_for_deletion([second, first], [], NOW * 1_000_000_000)
    assert [first["metadata"]["name"], second["metadata"]["name"]] == [
        p["metadata"]["name"] for p in ordered
    ]


def test_of_pods_that_are_together_one_goes_first() -> None:
    pods = [pod("a", node="one"), pod("b", node="two"), pod("c", node="two")]
    ordered = order_for_deletion(pods, pods, NOW * 1_000_000_000)
    assert "a" == ordered[-1]["metadata"]["name"]
