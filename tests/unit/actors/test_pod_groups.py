"""PodGroups that are deleted stay while pods of theirs run."""

from typing import Any

import pytest

from tests.unit.actors.cluster import Cluster, pools

WAITS = {"schedulingGates": [{"name": "example.com/wait"}]}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(pools(1))


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
