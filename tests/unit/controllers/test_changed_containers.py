"""Containers of pods that run: another image restarts them, and ephemeral ones start."""

from typing import Any

import pytest

from stower.controllers.runtime import STRATEGIC
from tests.unit.controllers.cluster import Cluster, Object, pools

POD = "/api/v1/namespaces/default/pods/p"
BROKEN = {**pools(1), "images": [{"name": "broken:1", "pullable": False},
                                 {"name": "big:1", "size": "1Gi"}]}  # fmt: skip


def started(policy: str = "Always", **spec: Any) -> Cluster:
    """A cluster with a pod of two containers that runs."""
    cluster = Cluster(BROKEN)
    containers = [{"name": "c", "image": "one:1"}, {"name": "other", "image": "other:1"}]
    spec = {"containers": containers, "restartPolicy": policy, **spec}
    cluster.create("pods", {"metadata": {"name": "p"}, "spec": spec})
    cluster.advance(5)
    return cluster


def set_image(cluster: Cluster, image: str, name: str = "c", field: str = "containers") -> None:
    patch = {"spec": {field: [{"name": name, "image": image}]}}
    assert 200 == cluster.ask("PATCH", POD, patch, STRATEGIC)[0]
    cluster.settle()


def debug(cluster: Cluster, **fields: Any) -> None:
    own = {"name": "debugger", "image": "busy", **fields}
    patch = {"spec": {"ephemeralContainers": [own]}}
    code, answer = cluster.ask("PATCH", f"{POD}/ephemeralcontainers", patch, STRATEGIC)
    assert 200 == code, answer
    cluster.settle()


def status(cluster: Cluster, name: str = "c", field: str = "containerStatuses") -> Object:
    found: list[Object] = cluster.get(POD)["status"].get(field) or []
    return next(c for c in found if c["name"] == name)


def ready(cluster: Cluster) -> str:
    told = cluster.get(POD)["status"]["conditions"]
    return next(str(c["status"]) for c in told if c["type"] == "Ready")


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_another_image_restarts_the_container_whatever_the_policy(policy: str) -> None:
    cluster = started(policy)
    set_image(cluster, "two:1")
    cluster.advance(2)
    found = status(cluster)
    assert ("two:1", 1, True) == (found["image"], found["restartCount"], found["ready"])
    assert 143 == found["lastState"]["terminated"]["exitCode"]
    assert (0, "True") == (status(cluster, "other")["restartCount"], ready(cluster))
    events = cluster.get("/api/v1/namespaces/default/events")["items"]
    assert ["Container c definition changed, will be restarted"] == [e["message"] for e in events]
    cluster.restart()
    cluster.advance(30)
    assert found == status(cluster)


def test_a_container_waits_for_its_new_image() -> None:
    cluster = started()
    set_image(cluster, "big:1")
    assert "False" == ready(cluster)
    assert "ContainerCreating" == status(cluster)["state"]["waiting"]["reason"]
    cluster.advance(9)
    assert "waiting" in status(cluster)["state"]
    cluster.advance(2)
    assert (1, "True") == (status(cluster)["restartCount"], ready(cluster))


def test_a_new_image_that_cannot_be_pulled() -> None:
    cluster = started()
    set_image(cluster, "broken:1")
    found = status(cluster)
    assert "ErrImagePull" == found["state"]["waiting"]["reason"]
    assert ("one:1", 0) == (found["image"], found["restartCount"])
    assert 143 == found["lastState"]["terminated"]["exitCode"]
    assert ("Running", "False") == (cluster.phases()["p"], ready(cluster))
    cluster.advance(5)
    assert "ImagePullBackOff" == status(cluster)["state"]["waiting"]["reason"]
    set_image(cluster, "two:1")
    cluster.advance(2)
    found = status(cluster)
    assert ("two:1", 1, "True") == (found["image"], found["restartCount"], ready(cluster))


def test_another_image_ends_a_back_off() -> None:
    containers = [{"name": "c", "image": "one:1", "command": ["false"]},
                  {"name": "other", "image": "other:1"}]  # fmt: skip
    cluster = started(containers=containers)
    cluster.advance(20)
    before = status(cluster)
    assert "CrashLoopBackOff" == before["state"]["waiting"]["reason"]
    set_image(cluster, "one:2")
    cluster.advance(1)
    assert before["restartCount"] + 1 == status(cluster)["restartCount"]


def test_another_image_of_a_container_that_has_ended_changes_nothing() -> None:
    containers = [{"name": "c", "image": "one:1", "command": ["true"]},
                  {"name": "other", "image": "other:1"}]  # fmt: skip
    cluster = started("Never", containers=containers)
    before = status(cluster)
    set_image(cluster, "one:2")
    cluster.advance(5)
    assert before == status(cluster)


def test_sidecars_restart_and_other_init_containers_do_not() -> None:
    inits = [{"name": "setup", "image": "one:1"},
             {"name": "proxy", "image": "one:1", "restartPolicy": "Always"}]  # fmt: skip
    cluster = started(initContainers=inits)
    for name in ("setup", "proxy"):
        set_image(cluster, "two:1", name, "initContainers")
    cluster.advance(2)
    field = "initContainerStatuses"
    assert 0 == status(cluster, "setup", field)["restartCount"]
    assert 1 == status(cluster, "proxy", field)["restartCount"]


def test_a_status_that_names_a_digest_was_not_written_here() -> None:
    cluster = started()
    statuses = cluster.get(POD)["status"]["containerStatuses"]
    foreign = [{**s, "image": f"docker.io/{s['image']}", "imageID": "sha256:1"} for s in statuses]
    patch = {"status": {"containerStatuses": foreign}}
    assert 200 == cluster.ask("PATCH", f"{POD}/status", patch, STRATEGIC)[0]
    cluster.settle()
    assert 0 == status(cluster)["restartCount"]


def test_an_ephemeral_container_starts() -> None:
    cluster = started()
    debug(cluster)
    field = "ephemeralContainerStatuses"
    cluster.advance(1)
    found = status(cluster, "debugger", field)
    assert ["running"] == list(found["state"])
    assert ("busy", False, 0) == (found["image"], found["ready"], found["restartCount"])
    assert "started" not in found
    assert "True" == ready(cluster)
    cluster.advance(60)
    assert found == status(cluster, "debugger", field)


def test_an_ephemeral_container_ends_and_does_not_run_again() -> None:
    cluster = started()
    debug(cluster, command=["sh", "-c", "exit 3"])
    cluster.advance(60)
    found = status(cluster, "debugger", "ephemeralContainerStatuses")
    assert (3, 0) == (found["state"]["terminated"]["exitCode"], found["restartCount"])
    assert ("Running", "True") == (cluster.phases()["p"], ready(cluster))


def test_an_ephemeral_container_whose_image_cannot_be_pulled() -> None:
    cluster = started()
    debug(cluster, image="broken:1")
    waits = status(cluster, "debugger", "ephemeralContainerStatuses")["state"]["waiting"]
    assert "ErrImagePull" == waits["reason"]
    cluster.advance(5)
    waits = status(cluster, "debugger", "ephemeralContainerStatuses")["state"]["waiting"]
    assert ("ImagePullBackOff", "True") == (waits["reason"], ready(cluster))


def test_ephemeral_containers_start_beside_init_containers_and_end_with_the_pod() -> None:
    inits = [{"name": "setup", "image": "one:1", "command": ["sleep", "20"]}]
    containers = [{"name": "c", "image": "one:1", "command": ["sleep", "10"]}]
    cluster = started("Never", initContainers=inits, containers=containers)
    debug(cluster)
    cluster.advance(2)
    field = "ephemeralContainerStatuses"
    assert "Pending" == cluster.phases()["p"]
    assert ["running"] == list(status(cluster, "debugger", field)["state"])
    cluster.advance(40)
    assert "Succeeded" == cluster.phases()["p"]
    assert 137 == status(cluster, "debugger", field)["state"]["terminated"]["exitCode"]
