"""How long kubelets take, on clocks that do not stand at a whole second: objects hold the beginning
of the second alone, and nothing may take less than was asked for."""

from functools import partial
from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster, Object, S, pools


def pod(name: str = "p", play: str = "", **spec: Any) -> Object:
    container = {"name": "c", "image": "busy", **spec.pop("container", {})}
    told = {"play.stower.dev/c": play} if play else {}
    return {"metadata": {"name": name, "annotations": told},
            "spec": {"containers": [container], **spec}}  # fmt: skip


def seconds_until(cluster: Cluster, is_so: Any) -> float:
    """How long it takes, to a hundredth of a second."""
    since_ns = cluster.now_ns
    while not is_so():
        assert cluster.now_ns - since_ns < 100 * S
        cluster.advance(0.01)
    return (cluster.now_ns - since_ns) / S


def runs(cluster: Cluster) -> bool:
    """Whether the container of the pod runs."""
    (status,) = cluster.one("pods", "p")["status"].get("containerStatuses") or [{"state": {}}]
    return "running" in status["state"]


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"container": {"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}}, 5),
        ({"container": {"lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}}}}, 5),
        ({"container": {"lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}}},
          "terminationGracePeriodSeconds": 3}, 3),
    ],
)  # fmt: skip
def test_a_stop_takes_its_time(fields: Object, seconds: float) -> None:
    for fraction in (0.0, 0.37, 0.93):
        cluster = Cluster(pools(1))
        cluster.create("pods", pod(**fields))
        cluster.advance(5 + fraction)
        cluster.delete("pods", "p")
        took = seconds_until(cluster, lambda c=cluster: "p" not in c.phases())
        assert seconds <= took < seconds + 0.1


def test_a_stop_after_a_restart_takes_no_less() -> None:
    cluster = Cluster(pools(1))
    cluster.create("pods", pod(terminationGracePeriodSeconds=8, container={
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}))  # fmt: skip
    cluster.advance(5.8)
    cluster.delete("pods", "p")
    cluster.advance(2)
    cluster.restart()
    took = seconds_until(cluster, lambda: "p" not in cluster.phases())
    assert 3 <= took < 4.1


@pytest.mark.parametrize(
    "fields",
    [{"play": "after=5s exit=1"}, {"container": {"command": ["sleep", "5"]}}],
)
def test_a_container_runs_for_its_time(fields: Object) -> None:
    for fraction in (0.0, 0.37, 0.93):
        cluster = Cluster({**pools(1), "startSeconds": fraction})
        cluster.create("pods", pod(restartPolicy="Never", **fields))
        seconds_until(cluster, partial(runs, cluster))
        took = seconds_until(cluster, lambda c=cluster: not runs(c))
        assert 5 <= took < 5.1


def test_back_offs_take_their_time() -> None:
    cluster = Cluster({**pools(1), "startSeconds": 0.6})
    cluster.create("pods", pod(play="after=2.3s exit=1"))
    seconds_until(cluster, lambda: runs(cluster))
    assert 4.6 <= seconds_until(cluster, lambda: not runs(cluster)) < 4.7, "the first has none"
    for pause in (10, 20):
        assert pause <= seconds_until(cluster, lambda: runs(cluster)) < pause + 0.1
        assert 2.3 <= seconds_until(cluster, lambda: not runs(cluster)) < 2.4
