"""DaemonSets: revisions, updates that delete or surge, failed pods, adoption, Events."""

from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster, Object, pools
from tests.unit.controllers.workloads import (
    events,
    images,
    labels,
    lift_limit,
    limit_pods,
    revisions,
    set_ready,
    template,
    workload,
    write_status,
)

HASH = "controller-revision-hash"


def daemon(cluster: Cluster, gated: bool = False, **spec: Any) -> None:
    cluster.create("daemonsets", workload("d", gated=gated, **spec))
    cluster.advance(3)


def rolling(**fields: Any) -> Object:
    return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": fields}}


def change(cluster: Cluster, image: str, gated: bool = False) -> None:
    cluster.patch("daemonsets", "d", {"spec": {"template": template(image, gated)}})


def status(cluster: Cluster) -> Object:
    return cluster.one("daemonsets", "d")["status"]


def test_each_template_has_one_revision_whose_hash_is_on_the_pods() -> None:
    cluster = Cluster(pools(2))
    daemon(cluster)
    (first,) = cluster.all("controllerrevisions").values()
    hashed = first["metadata"]["labels"][HASH]
    assert {hashed} == set(labels(cluster, HASH).values())
    assert {"1"} == set(labels(cluster, "pod-template-generation").values())
    assert f"d-{hashed}" == first["metadata"]["name"]
    assert "x" == first["metadata"]["labels"]["app"]
    own = first["data"]["spec"]["template"]
    assert [sorted(own), sorted(own["spec"])] == [list(own), list(own["spec"])]
    change(cluster, "two")
    cluster.advance(10)
    assert ["two", "two"] == list(images(cluster).values())
    assert {"d-" + value for value in labels(cluster, HASH).values()} == {revisions(cluster)[2]}
    change(cluster, "one")
    cluster.advance(10)
    assert {2, 3} == set(revisions(cluster))
    assert f"d-{hashed}" == revisions(cluster)[3]
    assert 2 == status(cluster)["updatedNumberScheduled"]


def test_a_rollback_leaves_pods_alone_that_fit_it() -> None:
    cluster = Cluster(pools(3))
    daemon(cluster, gated=True, **rolling(maxUnavailable=1))
    for name in images(cluster):
        set_ready(cluster, name)
    before = set(images(cluster))
    change(cluster, "two", gated=True)
    cluster.advance(10)
    kept = before & set(images(cluster))
    assert 2 == len(kept), "the new pod is not ready"
    change(cluster, "one", gated=True)
    cluster.advance(10)
    assert kept < set(images(cluster))
    assert ["one"] * 3 == list(images(cluster).values())


def test_old_revisions_go() -> None:
    cluster = Cluster(pools(1))
    daemon(cluster, revisionHistoryLimit=1)
    for image in ("two", "three", "four"):
        change(cluster, image)
        cluster.advance(10)
    assert [3, 4] == sorted(revisions(cluster))


def test_a_name_that_other_data_has_is_not_taken() -> None:
    cluster = Cluster(pools(1))
    daemon(cluster)
    (name,) = revisions(cluster).values()
    cluster.delete("daemonsets", "d")
    cluster.advance(5)
    other = {"metadata": {"name": name}, "data": {"a": 1}, "revision": 7}
    cluster.create("controllerrevisions", other)
    daemon(cluster)
    assert name != revisions(cluster)[1]
    assert 1 == status(cluster)["collisionCount"]
    assert {revisions(cluster)[1]} == {f"d-{hashed}" for hashed in labels(cluster, HASH).values()}


def test_of_revisions_that_are_alike_one_stays() -> None:
    cluster = Cluster(pools(2))
    daemon(cluster)
    (first,) = cluster.all("controllerrevisions").values()
    meta = {"name": "again", "labels": {**first["metadata"]["labels"], HASH: "again"},
            "ownerReferences": first["metadata"]["ownerReferences"]}  # fmt: skip
    before = set(images(cluster))
    cluster.create("controllerrevisions", {"metadata": meta, "data": first["data"], "revision": 2})
    cluster.patch("daemonsets", "d", {"metadata": {"annotations": {"a": "b"}}})
    cluster.advance(3)
    assert {2: "again"} == revisions(cluster)
    assert {"again"} == set(labels(cluster, HASH).values())
    assert before == set(images(cluster))


def test_orphaned_pods_and_revisions_are_taken_and_others_let_go() -> None:
    cluster = Cluster(pools(2))
    daemon(cluster)
    before = set(images(cluster))
    cluster.delete("daemonsets", "d", propagationPolicy="Orphan")
    cluster.advance(2)
    daemon(cluster)
    assert before == set(images(cluster))
    owner = cluster.one("daemonsets", "d")["metadata"]["uid"]
    owned = (*cluster.all("pods").values(), *cluster.all("controllerrevisions").values())
    assert {owner} == {o["metadata"]["ownerReferences"][0]["uid"] for o in owned}
    away = min(before)
    cluster.patch("pods", away, {"metadata": {"labels": {"app": "debug"}}})
    cluster.advance(3)
    assert not cluster.one("pods", away)["metadata"].get("ownerReferences")
    assert 3 == len(images(cluster)), "another is on its node"


def test_failed_pods_are_made_anew_after_a_pause_that_grows() -> None:
    cluster = Cluster(pools(1))
    daemon(cluster)
    lives = []
    for _ in range(4):
        (name,) = images(cluster)
        write_status(cluster, name, {"phase": "Failed"})
        begin = cluster.now_ns
        cluster.until(lambda old=name: old not in images(cluster), 60)  # type: ignore[misc]
        lives.append((cluster.now_ns - begin) / 1e9)
        cluster.until(lambda: "Running" in cluster.phases().values(), 60)
    assert lives[0] < 1
    assert lives == sorted(lives)
    assert lives[-1] > 1
    texts = [text for reason, text in events(cluster, "DaemonSet", "d")
             if reason == "FailedDaemonPod"]  # fmt: skip
    assert 4 == len(texts)
    assert texts[0].startswith("Found failed daemon pod default/d-")
    assert texts[0].endswith(" on node node-1, will try to kill it")


def test_a_pod_that_has_succeeded_is_made_anew() -> None:
    cluster = Cluster(pools(1))
    daemon(cluster)
    (name,) = images(cluster)
    write_status(cluster, name, {"phase": "Succeeded"})
    cluster.advance(3)
    assert name not in images(cluster)
    assert 1 == status(cluster)["numberReady"]
    assert "SucceededDaemonPod" in dict(events(cluster, "DaemonSet", "d"))


@pytest.mark.parametrize(("unavailable", "replaced"), [(1, 1), (2, 2), ("50%", 2)])
def test_no_more_are_replaced_at_once_than_may_be_missing(unavailable: Any, replaced: int) -> None:
    cluster = Cluster(pools(4))
    daemon(cluster, gated=True, **rolling(maxUnavailable=unavailable))
    for name in images(cluster):
        set_ready(cluster, name)
    change(cluster, "two", gated=True)
    cluster.advance(10)
    assert replaced == list(images(cluster).values()).count("two")


def test_pods_that_are_not_available_are_replaced_first() -> None:
    cluster = Cluster(pools(3))
    daemon(cluster, gated=True, **rolling(maxUnavailable=1))
    names = sorted(images(cluster))
    for name in names[:2]:
        set_ready(cluster, name)
    change(cluster, "two", gated=True)
    cluster.advance(10)
    assert names[2] not in images(cluster)
    assert set(names[:2]) < set(images(cluster))


def test_with_surge_new_pods_are_there_before_old_ones_go() -> None:
    cluster = Cluster(pools(3))
    daemon(cluster, gated=True, **rolling(maxSurge=1, maxUnavailable=0))
    for name in images(cluster):
        set_ready(cluster, name)
    change(cluster, "two", gated=True)
    cluster.advance(5)
    assert ["one", "one", "one", "two"] == sorted(images(cluster).values())
    for _ in range(3):
        for name, image in images(cluster).items():
            if image == "two":
                set_ready(cluster, name)
        cluster.advance(5)
        assert 3 <= status(cluster)["numberAvailable"]
    assert ["two"] * 3 == list(images(cluster).values())
    assert 3 == status(cluster)["updatedNumberScheduled"]


def test_with_surge_a_pod_that_is_unwell_is_replaced_at_once() -> None:
    cluster = Cluster(pools(2))
    daemon(cluster, gated=True, **rolling(maxSurge=1, maxUnavailable=0))
    change(cluster, "two", gated=True)
    cluster.advance(5)
    assert ["two", "two"] == list(images(cluster).values())


def test_the_update_is_by_hand_where_the_strategy_says_so() -> None:
    cluster = Cluster(pools(2))
    daemon(cluster, updateStrategy={"type": "OnDelete"})
    change(cluster, "two")
    cluster.advance(5)
    assert ["one", "one"] == list(images(cluster).values())
    assert 2 == len(revisions(cluster))
    cluster.delete("pods", min(images(cluster)))
    cluster.advance(5)
    assert ["one", "two"] == sorted(images(cluster).values())


def test_a_changed_status_is_put_right() -> None:
    cluster = Cluster(pools(2))
    daemon(cluster)
    path = cluster.path_to("daemonsets", "default", "d") + "/status"
    conditions = [{"type": "StatusUpdate", "status": "True", "lastTransitionTime": None}]
    wrong = {"status": {"numberReady": 0, "conditions": conditions}}
    assert 200 == cluster.ask("PATCH", path, wrong, "application/merge-patch+json")[0]
    cluster.settle()
    assert (2, conditions) == (status(cluster)["numberReady"], status(cluster)["conditions"])


def test_a_pod_for_a_node_that_is_gone_goes_and_tolerations_are_there_once() -> None:
    cluster = Cluster(pools(2), scheduler=False)
    key = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    own = template(hostNetwork=True, tolerations=[key])
    cluster.create("daemonsets", workload("d", template=own))
    cluster.advance(1)
    pods = cluster.all("pods").values()
    assert 2 == len(pods)
    keys = [t["key"] for t in next(iter(pods))["spec"]["tolerations"]]
    assert 1 == keys.count("node.kubernetes.io/unschedulable")
    assert "node.kubernetes.io/network-unavailable" in keys
    cluster.delete("nodes", "node-2", "")
    cluster.advance(1)
    assert 1 == len(images(cluster))


def test_what_is_done_and_refused_is_said() -> None:
    cluster = Cluster(pools(3))
    limit_pods(cluster, 2)
    daemon(cluster)
    cluster.advance(30)
    assert 2 == len(images(cluster))
    said = events(cluster, "DaemonSet", "d")
    made = [text for reason, text in said if reason == "SuccessfulCreate"]
    assert [f"Created pod: {name}" for name in sorted(images(cluster))] == made
    refused = [text for reason, text in said if reason == "FailedCreate"]
    assert refused
    assert all("Error creating: pods " in text for text in refused)
    assert len(refused) <= 10
    lift_limit(cluster)
    cluster.advance(60)
    assert 3 == status(cluster)["numberReady"]
    cluster.patch("nodes", "node-1", {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}})
    cluster.patch("daemonsets", "d", {"spec": {"template": template(nodeSelector={"a": "b"})}})
    cluster.advance(5)
    assert "SuccessfulDelete" in dict(events(cluster, "DaemonSet", "d"))
