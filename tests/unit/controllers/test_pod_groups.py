"""PodGroups that are deleted stay while pods of theirs run."""

from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster, pools

WAITS = {"schedulingGates": [{"name": "example.com/wait"}]}


@pytest.fixture(params=["1.36", "1.37"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(pools(1), version=request.param)


def with_pod(cluster: Cluster) -> None:
    policy = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    cluster.create("podgroups", {"metadata": {"name": "g"}, "spec": policy})
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}], **WAITS}
    for name, group in (("p", {"podGroupName": "g"}), ("other", {"podGroupName": "h"})):
        pod = {"metadata": {"name": name}, "spec": {**spec, "schedulingGroup": group}}
        cluster.create("pods", pod)


@pytest.mark.behaviour("S3.28")
def test_a_group_that_is_deleted_waits_for_its_pods(cluster: Cluster) -> None:
    with_pod(cluster)
    cluster.delete("podgroups", "g")
    cluster.advance(5)
    assert ["g"] == [*cluster.all("podgroups")]
    cluster.delete("pods", "p")
    cluster.until(lambda: not cluster.all("podgroups"))
    assert ["other"] == [*cluster.all("pods")]


def test_a_group_without_pods_goes_at_once(cluster: Cluster) -> None:
    with_pod(cluster)
    cluster.delete("pods", "p")
    cluster.advance(5)
    cluster.delete("podgroups", "g")
    cluster.until(lambda: not cluster.all("podgroups"))


@pytest.mark.behaviour("S3.28")
def test_a_tree_that_is_deleted_goes_from_its_leaves_to_its_root() -> None:
    """Whatever the order in which its groups were deleted."""
    cluster = Cluster(pools(1), version="1.37")
    reference = {"workloadRef": {"workloadName": "w", "templateName": "t"}}

    def group(kind: str, name: str, around: str, policy: dict[str, Any]) -> None:
        parent = {"parentCompositePodGroupName": around} if around else {}
        spec = {**reference, **parent, "schedulingPolicy": policy}
        cluster.create(kind, {"metadata": {"name": name}, "spec": spec})

    gang = {"gang": {"minGroupCount": 1}}
    group("compositepodgroups", "root", "", gang)
    group("compositepodgroups", "inner", "root", gang)
    group("podgroups", "g", "inner", {"gang": {"minCount": 1}})
    spec = {"containers": [{"name": "c", "image": "i"}], **WAITS}
    member = {**spec, "schedulingGroup": {"podGroupName": "g"}}
    cluster.create("pods", {"metadata": {"name": "p"}, "spec": member})
    cluster.delete("compositepodgroups", "root")
    cluster.delete("podgroups", "g")
    cluster.advance(5)
    assert ["g"] == [*cluster.all("podgroups")]
    cluster.delete("pods", "p")
    cluster.until(lambda: not cluster.all("podgroups"))
    assert ["inner", "root"] == sorted(cluster.all("compositepodgroups"))
    cluster.delete("compositepodgroups", "inner")
    cluster.until(lambda: not cluster.all("compositepodgroups"))


def test_groups_in_a_cycle_do_not_hold_each_other() -> None:
    cluster = Cluster(pools(1), version="1.37")
    reference = {"workloadRef": {"workloadName": "w", "templateName": "t"}}
    for name, around in (("a", "b"), ("b", "a"), ("own", "own")):
        policy = {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}
        spec = {**reference, **policy, "parentCompositePodGroupName": around}
        cluster.create("compositepodgroups", {"metadata": {"name": name}, "spec": spec})
    for name in ("a", "b", "own"):
        cluster.delete("compositepodgroups", name)
    cluster.until(lambda: not cluster.all("compositepodgroups"))
