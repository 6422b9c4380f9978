"""StatefulSets: revisions, partitions, scaling beside unwell pods, claims that go, adoption."""

from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster, Object
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


def stateful(replicas: int = 3, gated: bool = False, **spec: Any) -> Object:
    return workload("db", gated=gated, replicas=replicas, serviceName="db", **spec)


def status(cluster: Cluster) -> Object:
    return cluster.one("statefulsets", "db")["status"]


def change(cluster: Cluster, image: str, gated: bool = False, **spec: Any) -> None:
    cluster.patch("statefulsets", "db", {"spec": {"template": template(image, gated), **spec}})


def uids(cluster: Cluster) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in cluster.all("pods").items()}


def test_each_template_has_one_revision_that_is_taken_again() -> None:
    cluster = Cluster()
    cluster.create("statefulsets", stateful(2))
    cluster.advance(5)
    (first,) = revisions(cluster).values()
    assert {"db-0": first, "db-1": first} == labels(cluster, HASH)
    made = cluster.one("controllerrevisions", first)
    assert "replace" == made["data"]["spec"]["template"]["$patch"]
    assert first == f"db-{made['metadata']['labels'][HASH]}"
    assert "StatefulSet" == made["metadata"]["ownerReferences"][0]["kind"]
    change(cluster, "two")
    cluster.advance(10)
    second = revisions(cluster)[2]
    assert {"db-0": second, "db-1": second} == labels(cluster, HASH)
    assert (second, second) == (status(cluster)["currentRevision"],
                                status(cluster)["updateRevision"])  # fmt: skip
    change(cluster, "one")
    cluster.advance(10)
    assert {2: second, 3: first} == revisions(cluster)
    assert first == status(cluster)["currentRevision"]
    cluster.delete("statefulsets", "db")
    cluster.advance(5)
    assert {} == revisions(cluster)


def test_old_revisions_go_but_those_of_pods() -> None:
    cluster = Cluster()
    update = {"type": "OnDelete"}
    cluster.create("statefulsets", stateful(1, revisionHistoryLimit=1, updateStrategy=update))
    cluster.advance(5)
    for image in ("two", "three", "four", "five"):
        change(cluster, image)
        cluster.advance(1)
    assert [1, 4, 5] == sorted(revisions(cluster))
    assert {"db-0": revisions(cluster)[1]} == labels(cluster, HASH)


def test_a_negative_limit_keeps_all_revisions() -> None:
    cluster = Cluster()
    cluster.create("statefulsets", stateful(1, revisionHistoryLimit=-1))
    cluster.advance(5)
    for image in ("two", "three", "four"):
        change(cluster, image)
        cluster.advance(5)
    assert [1, 2, 3, 4] == sorted(revisions(cluster))


def test_a_name_that_other_data_has_is_not_taken() -> None:
    cluster = Cluster()
    cluster.create("statefulsets", stateful(1))
    cluster.advance(5)
    (name,) = revisions(cluster).values()
    cluster.delete("statefulsets", "db")
    cluster.advance(5)
    cluster.create(
        "controllerrevisions", {"metadata": {"name": name}, "data": {"a": 1}, "revision": 7}
    )
    cluster.create("statefulsets", stateful(1))
    cluster.advance(5)
    assert {1, 7} == set(revisions(cluster))
    assert name != revisions(cluster)[1] == status(cluster)["updateRevision"]
    assert 1 == status(cluster)["collisionCount"]


def test_orphaned_pods_and_revisions_are_taken_and_others_let_go() -> None:
    cluster = Cluster()
    cluster.create("statefulsets", stateful(2))
    cluster.advance(5)
    before, known = uids(cluster), revisions(cluster)
    cluster.delete("statefulsets", "db", propagationPolicy="Orphan")
    cluster.advance(2)
    cluster.create("statefulsets", stateful(2))
    cluster.advance(5)
    assert (before, known) == (uids(cluster), revisions(cluster))
    owner = cluster.one("statefulsets", "db")["metadata"]["uid"]
    owned = (*cluster.all("pods").values(), *cluster.all("controllerrevisions").values())
    assert {owner} == {o["metadata"]["ownerReferences"][0]["uid"] for o in owned}
    other = {"metadata": {"name": "db-x", "labels": {"app": "x"}}, "spec": template()["spec"]}
    cluster.create("pods", other)
    cluster.advance(2)
    assert "ownerReferences" not in cluster.one("pods", "db-x")["metadata"], "not its name"
    cluster.patch("pods", "db-1", {"metadata": {"labels": {"app": "debug"}}})
    cluster.advance(5)
    assert not cluster.one("pods", "db-1")["metadata"].get("ownerReferences")
    cluster.patch("pods", "db-1", {"metadata": {"labels": {"app": "x"}}})
    cluster.advance(5)
    assert owner == cluster.one("pods", "db-1")["metadata"]["ownerReferences"][0]["uid"]
    assert 2 == status(cluster)["readyReplicas"]


def test_a_partition_keeps_the_old_template_below_it() -> None:
    cluster = Cluster()
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 3}}
    cluster.create("statefulsets", stateful(3, updateStrategy=rolling))
    cluster.advance(5)
    old = status(cluster)["currentRevision"]
    change(cluster, "two")
    cluster.advance(5)
    new = status(cluster)["updateRevision"]
    assert {old} == set(labels(cluster, HASH).values())
    assert old != new
    assert old == status(cluster)["currentRevision"]

    def shift(partition: int) -> None:
        update = {"updateStrategy": {"rollingUpdate": {"partition": partition}}}
        cluster.patch("statefulsets", "db", {"spec": update})
        cluster.advance(10)

    shift(2)
    assert {"db-0": "one", "db-1": "one", "db-2": "two"} == images(cluster)
    numbers = [status(cluster)[k] for k in ("replicas", "currentReplicas", "updatedReplicas")]
    assert [3, 2, 1] == numbers
    for name in ("db-0", "db-2"):
        cluster.delete("pods", name)
        cluster.advance(5)
    assert {"db-0": "one", "db-1": "one", "db-2": "two"} == images(cluster)
    assert {"db-0": old, "db-1": old, "db-2": new} == labels(cluster, HASH)
    shift(0)
    assert {"two"} == set(images(cluster).values())
    assert (new, 3) == (status(cluster)["currentRevision"], status(cluster)["currentReplicas"])


def test_pods_are_replaced_by_hand_where_the_strategy_says_so() -> None:
    cluster = Cluster()
    cluster.create("statefulsets", stateful(2, updateStrategy={"type": "OnDelete"}))
    cluster.advance(5)
    change(cluster, "two")
    cluster.advance(10)
    assert {"db-0": "one", "db-1": "one"} == images(cluster)
    cluster.delete("pods", "db-0")
    cluster.advance(5)
    assert {"db-0": "two", "db-1": "one"} == images(cluster)


def test_so_many_are_updated_at_once_as_may_be_missing() -> None:
    cluster = Cluster()
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    cluster.create("statefulsets", stateful(4, True, updateStrategy=rolling,
                                            podManagementPolicy="Parallel"))  # fmt: skip
    cluster.advance(2)
    for name in images(cluster):
        set_ready(cluster, name)
    before = uids(cluster)
    change(cluster, "two", gated=True)
    cluster.advance(5)
    replaced = [name for name, uid in uids(cluster).items() if uid != before[name]]
    assert ["db-2", "db-3"] == sorted(replaced)


def test_an_update_waits_for_the_pod_that_is_not_ready() -> None:
    cluster = Cluster()
    cluster.create("statefulsets", stateful(3, True))
    for name in ("db-0", "db-1", "db-2"):
        cluster.advance(2)
        set_ready(cluster, name)
    set_ready(cluster, "db-1", "False")
    change(cluster, "two", gated=True)
    cluster.advance(5)
    assert {"one"} == set(images(cluster).values())
    assert status(cluster)["currentRevision"] != status(cluster)["updateRevision"]
    set_ready(cluster, "db-1")
    cluster.advance(2)
    assert {"db-0": "one", "db-1": "one", "db-2": "two"} == images(cluster)


def test_scaling_halts_beside_a_pod_that_is_not_ready() -> None:
    cluster = Cluster()
    cluster.create("statefulsets", stateful(1, True))
    cluster.advance(2)
    set_ready(cluster, "db-0")
    set_ready(cluster, "db-0", "False")
    cluster.patch("statefulsets", "db", {"spec": {"replicas": 3}})
    cluster.advance(10)
    assert ["db-0"] == sorted(images(cluster))
    for name in ("db-0", "db-1", "db-2"):
        set_ready(cluster, name)
        cluster.advance(2)
    assert 3 == status(cluster)["readyReplicas"]
    for name in images(cluster):
        set_ready(cluster, name, "False")
    cluster.patch("statefulsets", "db", {"spec": {"replicas": 0}})
    cluster.advance(10)
    assert ["db-0", "db-1", "db-2"] == sorted(images(cluster)), "the first that is unwell is db-0"
    for name in ("db-0", "db-1"):
        set_ready(cluster, name)
    cluster.advance(20)
    assert {} == images(cluster)


def test_the_first_pod_that_is_unwell_may_go() -> None:
    cluster = Cluster()
    cluster.create("statefulsets", stateful(2, True))
    for name in ("db-0", "db-1"):
        cluster.advance(2)
        set_ready(cluster, name)
    set_ready(cluster, "db-1", "False")
    cluster.patch("statefulsets", "db", {"spec": {"replicas": 1}})
    cluster.advance(10)
    assert ["db-0"] == sorted(images(cluster))


def test_parallel_scaling_does_not_wait() -> None:
    cluster = Cluster()
    cluster.create("statefulsets", stateful(2, True, podManagementPolicy="Parallel"))
    cluster.advance(5)
    assert ["db-0", "db-1"] == sorted(images(cluster)), "none is ready"
    cluster.patch("statefulsets", "db", {"spec": {"replicas": 4}})
    cluster.advance(5)
    assert 4 == len(images(cluster))
    cluster.patch("statefulsets", "db", {"spec": {"replicas": 0}})
    cluster.advance(5)
    assert {} == images(cluster)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_is_made_anew(phase: str) -> None:
    cluster = Cluster()
    cluster.create("statefulsets", stateful(2))
    cluster.advance(5)
    before = uids(cluster)
    write_status(cluster, "db-0", {"phase": phase, "reason": "Evicted"})
    cluster.advance(5)
    after = uids(cluster)
    assert before["db-0"] != after["db-0"]
    assert before["db-1"] == after["db-1"]
    assert 2 == status(cluster)["readyReplicas"]


def test_numbers_begin_where_they_should_and_move() -> None:
    cluster = Cluster()
    cluster.create("statefulsets", stateful(2, ordinals={"start": 2}))
    cluster.advance(5)
    assert ["db-2", "db-3"] == sorted(images(cluster))
    assert "3" == cluster.one("pods", "db-3")["metadata"]["labels"]["apps.kubernetes.io/pod-index"]
    cluster.patch("statefulsets", "db", {"spec": {"ordinals": {"start": 4}}})
    cluster.advance(10)
    assert ["db-4", "db-5"] == sorted(images(cluster))
    cluster.patch("statefulsets", "db", {"spec": {"ordinals": None}})
    cluster.advance(10)
    assert ["db-0", "db-1"] == sorted(images(cluster))


def test_a_pod_is_available_after_a_while_and_the_next_waits_for_that() -> None:
    cluster = Cluster()
    cluster.create("statefulsets", stateful(2, minReadySeconds=30))
    cluster.advance(10)
    assert ["db-0"] == sorted(images(cluster))
    assert (1, 0) == (status(cluster)["readyReplicas"], status(cluster)["availableReplicas"])
    cluster.advance(30)
    assert ["db-0", "db-1"] == sorted(images(cluster))
    cluster.advance(40)
    assert 2 == status(cluster)["availableReplicas"]


# Claims


def claims_of(cluster: Cluster) -> dict[str, list[str]]:
    """Which kinds own each claim."""
    return {
        name: [reference["kind"] for reference in claim["metadata"].get("ownerReferences") or ()]
        for name, claim in cluster.all("persistentvolumeclaims").items()
    }


def stored(cluster: Cluster, deleted: str, scaled: str) -> None:
    """A set of three with a claim each."""
    storage_class = {"metadata": {"name": "fast"}, "provisioner": "stower.dev/volumes"}
    cluster.create("storageclasses", storage_class, "")
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "fast",
             "accessModes": ["ReadWriteOnce"],
             "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
    policy = {"whenDeleted": deleted, "whenScaled": scaled}
    cluster.create("statefulsets", stateful(
        3, volumeClaimTemplates=[claim], persistentVolumeClaimRetentionPolicy=policy))  # fmt: skip
    cluster.advance(10)


@pytest.mark.parametrize(
    ("deleted", "scaled", "owners", "after_scaling", "after_deletion"),
    [
        ("Retain", "Retain", [], 3, 3),
        ("Delete", "Retain", ["StatefulSet"], 3, 0),
        ("Retain", "Delete", [], 1, 1),
        ("Delete", "Delete", ["StatefulSet"], 1, 0),
    ],
)
def test_claims_go_with_the_set_or_with_their_pods(
    deleted: str, scaled: str, owners: list[str], after_scaling: int, after_deletion: int
) -> None:
    cluster = Cluster()
    stored(cluster, deleted, scaled)
    assert {f"data-db-{n}": owners for n in range(3)} == claims_of(cluster)
    cluster.patch("statefulsets", "db", {"spec": {"replicas": 1}})
    cluster.advance(20)
    assert ["db-0"] == sorted(images(cluster))
    assert after_scaling == len(claims_of(cluster))
    cluster.patch("statefulsets", "db", {"spec": {"replicas": 2}})
    cluster.advance(20)
    assert 2 == status(cluster)["readyReplicas"]
    cluster.patch("statefulsets", "db", {"spec": {"replicas": 1}})
    cluster.advance(20)
    cluster.delete("statefulsets", "db")
    cluster.advance(20)
    assert after_deletion == len(claims_of(cluster))


def test_a_claim_of_another_controller_stays() -> None:
    cluster = Cluster()
    stored(cluster, "Delete", "Delete")
    keeper = cluster.create("configmaps", {"metadata": {"name": "keeper"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "keeper", "controller": True,
                 "uid": keeper["metadata"]["uid"]}  # fmt: skip
    cluster.patch("persistentvolumeclaims", "data-db-2",
                  {"metadata": {"ownerReferences": [reference]}})  # fmt: skip
    cluster.patch("statefulsets", "db", {"spec": {"replicas": 1}})
    cluster.advance(20)
    assert {"data-db-0": ["StatefulSet"], "data-db-2": ["ConfigMap"]} == claims_of(cluster)


def test_a_claim_is_made_again_for_a_pod_that_waits_for_it() -> None:
    cluster = Cluster(scheduler=False)
    stored(cluster, "Retain", "Retain")
    assert {"db-0": "Pending"} == cluster.phases()
    claim = cluster.one("persistentvolumeclaims", "data-db-0")["metadata"]["uid"]
    path = cluster.path_to("persistentvolumeclaims", "default", "data-db-0")
    cluster.delete("persistentvolumeclaims", "data-db-0")
    cluster.ask("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    cluster.settle()
    cluster.advance(2)
    assert claim != cluster.one("persistentvolumeclaims", "data-db-0")["metadata"]["uid"]


# Events


def test_what_is_done_is_said() -> None:
    cluster = Cluster()
    stored(cluster, "Retain", "Retain")
    cluster.patch("statefulsets", "db", {"spec": {"replicas": 2}})
    cluster.advance(5)
    said = events(cluster, "StatefulSet", "db")
    claim = "Create Claim data-db-{0} Pod db-{0} in StatefulSet db success"
    made = "Create Pod db-{0} in StatefulSet db successful"
    assert [
        *(("SuccessfulCreate", claim.format(n)) for n in range(3)),
        *(("SuccessfulCreate", made.format(n)) for n in range(3)),
        ("SuccessfulDelete", "Delete Pod db-2 in StatefulSet db successful"),
    ] == said


def test_labels_of_an_adopted_pod_are_said_but_not_its_adoption() -> None:
    cluster = Cluster()
    pod = {"metadata": {"name": "db-0", "labels": {"app": "x"}}, "spec": template()["spec"]}
    cluster.create("pods", pod)
    cluster.create("statefulsets", stateful(1, updateStrategy={"type": "OnDelete"}))
    cluster.advance(5)
    assert "db" == cluster.one("pods", "db-0")["metadata"]["ownerReferences"][0]["name"]
    said = events(cluster, "StatefulSet", "db")
    assert [("SuccessfulUpdate", "Update Pod db-0 in StatefulSet db successful")] == said
    path = cluster.path_to("pods", "default", "db-0")
    loose = {"metadata": {"labels": {"app": "y", "statefulset.kubernetes.io/pod-name": None}}}
    cluster.ask("PATCH", path, loose, "application/merge-patch+json")
    cluster.settle()
    assert not cluster.one("pods", "db-0")["metadata"].get("ownerReferences")
    assert 1 == [reason for reason, _ in events(cluster, "StatefulSet", "db")].count(said[0][0])


def test_a_pod_that_is_refused_is_said_and_tried_again() -> None:
    cluster = Cluster()
    limit_pods(cluster, 1)
    cluster.create("statefulsets", stateful(2))
    cluster.advance(5)
    assert ["db-0"] == sorted(images(cluster))
    said = dict(events(cluster, "StatefulSet", "db"))["FailedCreate"]
    text = 'Create Pod db-1 in StatefulSet db failed error: pods "db-1" is forbidden: exceeded'
    assert said.removeprefix("(combined from similar events): ").startswith(text)
    lift_limit(cluster)
    cluster.advance(60)
    assert 2 == status(cluster)["readyReplicas"]
