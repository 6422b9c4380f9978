"""Containers that end as annotations and commands say, one by one; init containers and sidecars."""

from typing import Any

import pytest

from stower.controllers.played import Play, faults_of, play_of_words
from tests.unit.controllers.cluster import Cluster, Object

S = 1_000_000_000


def container(name: str = "c", *command: str, **more: Any) -> Object:
    return {"name": name, "image": "busy", "command": list(command), **more}


def pod(name: str, *containers: Object, play: Object | None = None, **spec: Any) -> Object:
    told = {f"play.stower.dev/{key}": text for key, text in (play or {}).items()}
    return {"metadata": {"name": name, "annotations": told},
            "spec": {"containers": list(containers), **spec}}  # fmt: skip


def status_of(cluster: Cluster, name: str = "p") -> Object:
    return dict(cluster.one("pods", name)["status"])


def states(cluster: Cluster, field: str = "containerStatuses") -> dict[str, str]:
    """What each container does: running, its exit code, or what it waits for."""
    found = {}
    for one in status_of(cluster).get(field) or ():
        state = one["state"]
        ended = state.get("terminated")
        waits = state.get("waiting") or {}
        found[one["name"]] = str(ended["exitCode"]) if ended else waits.get("reason", "running")
    return found


def conditions(cluster: Cluster) -> dict[str, tuple[str, str]]:
    told = status_of(cluster)["conditions"]
    return {c["type"]: (c["status"], c.get("reason", "")) for c in told}


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["true"], Play(0)),
        (["/bin/false"], Play(0, 1)),
        (["sleep", "5"], Play(5 * S)),
        (["sleep", "0.5"], Play(S // 2)),
        (["/bin/sleep", "2m"], Play(120 * S)),
        (["sleep", "infinity"], Play(None)),
        (["sh", "-c", "exit 3"], Play(0, 3)),
        (["/bin/bash", "-ec", "  sleep 7 "], Play(7 * S)),
        (["sh", "-c", "exit"], Play(0)),
        (["sh", "-c", "exit 256"], Play(0)),
        (["exit", "3"], None),
        (["sh", "-c", "sleep 5; exit 3"], None),
        (["sh", "-c", "echo 'open"], None),
        (["sh", "-c", "true " + "x" * 1000], None),
        (["sleep"], None),
        (["sleep", "-5"], None),
        (["sleep", "five"], None),
        (["true", "or", "not"], None),
        (["server", "--port", "80"], None),
        ([], None),
    ],
)
def test_commands_that_are_played(words: list[str], want: Play | None) -> None:
    assert want == play_of_words(words)


def test_each_container_ends_by_itself() -> None:
    cluster = Cluster()
    play = {"first": "after=5s exit=3", "second": "after=20s"}
    made = pod("p", container("first"), container("second"), play=play, restartPolicy="Never")
    cluster.create("pods", made)
    cluster.advance(2)
    assert ("True", "") == conditions(cluster)["Ready"]
    cluster.advance(5)
    assert {"first": "3", "second": "running"} == states(cluster)
    assert "Running" == status_of(cluster)["phase"]
    assert ("False", "ContainersNotReady") == conditions(cluster)["Ready"]
    cluster.advance(20)
    assert {"first": "3", "second": "0"} == states(cluster)
    assert "Failed" == status_of(cluster)["phase"]
    assert ("False", "PodFailed") == conditions(cluster)["ContainersReady"]


def test_a_container_that_fails_runs_again_beside_others() -> None:
    cluster = Cluster()
    cluster.create("pods", pod("p", container("bad", "sh", "-c", "exit 1"), container("good")))
    cluster.advance(3)
    assert {"bad": "CrashLoopBackOff", "good": "running"} == states(cluster)
    restarts = {c["name"]: c["restartCount"] for c in status_of(cluster)["containerStatuses"]}
    assert {"bad": 1, "good": 0} == restarts, "the first time at once"
    cluster.advance(11)
    restarts = {c["name"]: c["restartCount"] for c in status_of(cluster)["containerStatuses"]}
    assert {"bad": 2, "good": 0} == restarts, "then after 10 s"


def test_a_pod_is_ready_again_without_what_it_said_before() -> None:
    cluster = Cluster()
    cluster.create("pods", pod("p", container(), play={"c": "after=60s exit=1"}))
    cluster.advance(125)
    assert {"c": "CrashLoopBackOff"} == states(cluster)
    assert ("False", "ContainersNotReady") == conditions(cluster)["Ready"]
    cluster.advance(15)
    ready = next(c for c in status_of(cluster)["conditions"] if c["type"] == "Ready")
    assert "True" == ready["status"]
    assert not {"reason", "message"} & ready.keys()


def test_on_failure_runs_again_until_it_is_well() -> None:
    cluster = Cluster()
    made = pod("p", container("a", "true"), container("b", "false"), restartPolicy="OnFailure")
    cluster.create("pods", made)
    cluster.advance(5)
    assert {"a": "0", "b": "CrashLoopBackOff"} == states(cluster)
    assert "Running" == status_of(cluster)["phase"]


def test_a_container_has_a_restart_policy_and_rules_of_its_own() -> None:
    cluster = Cluster()
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
    ruled = container("ruled", "sh", "-c", "exit 42", restartPolicy="Never",
                      restartPolicyRules=[rule])  # fmt: skip
    other = container("other", "sh", "-c", "exit 41", restartPolicy="Never",
                      restartPolicyRules=[rule])  # fmt: skip
    cluster.create("pods", pod("p", ruled, other))
    cluster.advance(5)
    assert {"ruled": "CrashLoopBackOff", "other": "41"} == states(cluster)


def test_init_containers_play_one_after_the_other() -> None:
    cluster = Cluster()
    inits = [container("one", "sleep", "10"), container("two", "sleep", "5"), container("three")]
    cluster.create("pods", pod("p", container(), initContainers=inits))
    cluster.advance(5)
    assert {"one": "running", "two": "PodInitializing", "three": "PodInitializing"} == states(
        cluster, "initContainerStatuses"
    )
    assert {"c": "PodInitializing"} == states(cluster)
    assert "Pending" == status_of(cluster)["phase"]
    assert ("False", "ContainersNotInitialized") == conditions(cluster)["Initialized"]
    cluster.advance(7)
    assert {"one": "0", "two": "running", "three": "PodInitializing"} == states(
        cluster, "initContainerStatuses"
    )
    cluster.advance(5)
    assert {"one": "0", "two": "0", "three": "0"} == states(cluster, "initContainerStatuses")
    assert "Running" == status_of(cluster)["phase"]
    assert ("True", "") == conditions(cluster)["Initialized"]
    assert ("True", "") == conditions(cluster)["Ready"]


def test_an_init_container_that_fails_holds_the_others_up_or_ends_the_pod() -> None:
    cluster = Cluster()
    inits = [container("bad", "false")]
    cluster.create("pods", pod("p", container(), initContainers=inits))
    cluster.advance(5)
    assert {"bad": "CrashLoopBackOff"} == states(cluster, "initContainerStatuses")
    assert "Pending" == status_of(cluster)["phase"]
    cluster.create("pods", pod("q", container(), initContainers=inits, restartPolicy="Never"))
    cluster.advance(5)
    assert "Failed" == status_of(cluster, "q")["phase"]


def test_sidecars_end_with_the_last_container() -> None:
    cluster = Cluster()
    side = container("side", restartPolicy="Always")
    made = pod("p", container("c", "sleep", "10"), initContainers=[side], restartPolicy="Never")
    cluster.create("pods", made)
    cluster.advance(5)
    assert {"side": "running"} == states(cluster, "initContainerStatuses")
    cluster.advance(10)
    assert {"side": "0"} == states(cluster, "initContainerStatuses")
    assert "Succeeded" == status_of(cluster)["phase"]


def test_a_restart_of_the_kubelets_loses_nothing() -> None:
    cluster = Cluster()
    play = {"c": "after=30s exit=1"}
    cluster.create("pods", pod("p", container(), play=play, restartPolicy="Never",
                               initContainers=[container("i", "sleep", "10")]))  # fmt: skip
    cluster.advance(5)
    cluster.restart()
    cluster.advance(15)
    assert "Running" == status_of(cluster)["phase"]
    cluster.restart()
    cluster.advance(30)
    assert {"c": "1"} == states(cluster)


def test_annotations_that_say_nothing_are_told() -> None:
    play = {"c": "after=soon", "other": "after=1s", "d": "exit=256"}
    found = list(faults_of(pod("p", container(), container("d"), play=play)))
    assert [
        "annotation play.stower.dev/c: 'after=soon': want \"after=DURATION exit=CODE\", "
        'such as "after=5s exit=3"',
        "annotation play.stower.dev/other: the pod has no container 'other'",
        "annotation play.stower.dev/d: 'exit=256': want \"after=DURATION exit=CODE\", "
        'such as "after=5s exit=3"',
    ] == found
    cluster = Cluster()
    cluster.create("pods", pod("p", container(), play={"c": "after=soon"}))
    cluster.advance(5)
    assert {"c": "running"} == states(cluster)
    events = cluster.get("/api/v1/namespaces/default/events")["items"]
    assert ["UnknownPlay"] == [e["reason"] for e in events]
