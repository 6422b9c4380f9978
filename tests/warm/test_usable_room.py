"""Room that nobody can use is none: where placeholders go, who makes up for them, since when nodes
pull, and who is woken when room can be had."""

from typing import Any

import msgspec

from stower.framework.writes import CreateObject, DeletePod
from stower.model.kinds import Node, Pod
from stower.model.kinds.warm_pool import Images
from stower.model.taints import Taint, Toleration
from stower.model.times import SECOND_NS
from tests.warm.rig import PLACEHOLDER, TEMPLATE, USER, Hub

# Placeholders where nobody can use them


def own(hub: Hub) -> list[str]:
    return [
        pod.spec.node_name
        for name, pod in sorted(hub.server.all(Pod).items())
        if "users-placeholder" in name
    ]


def made_here(**more: Any) -> Hub:
    template = {"selector": None, "template": TEMPLATE}
    return Hub(placeholders={**template, **more.pop("placeholders", {})}, **more)


def labeled(hub: Hub, name: str, **labels: str) -> None:
    node = hub.server.get(Node, name)
    meta = msgspec.structs.replace(node.metadata, labels={**(node.metadata.labels or {}), **labels})
    hub.server.put(msgspec.structs.replace(node, metadata=meta))


def tainted(hub: Hub, name: str) -> None:
    node = hub.server.get(Node, name)
    taints = (Taint("gpu", "", "NoSchedule"),)
    spec = msgspec.structs.replace(node.spec, taints=taints)
    hub.server.put(msgspec.structs.replace(node, spec=spec))


def tolerant(hub: Hub, name: str, labels: dict[str, str], node: str = "") -> None:
    pod = hub.pod(name, {"component": "none"}, node)
    spec = msgspec.structs.replace(pod.spec, tolerations=(Toleration("gpu", "Exists"),))
    meta = msgspec.structs.replace(pod.metadata, labels=labels)
    hub.server.put(msgspec.structs.replace(pod, spec=spec, metadata=meta))


def test_placeholders_go_where_users_may_go_and_do_not_become_more_and_more() -> None:
    hub = made_here(nodeSelector={"pool": "a"}, placeholders={"replicas": 3})
    hub.node("n1", slots=2)
    labeled(hub, "n1", pool="a")
    hub.node("o1", slots=600)
    hub.advance(300)
    assert ["n1", "n1", ""] == own(hub)
    assert {"pool": "a"} == hub.server.get(Pod, "default/users-placeholder-0").spec.node_selector


def test_nor_do_those_that_tolerate_more_than_users_do() -> None:
    spec = {**TEMPLATE["spec"], "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    hub = made_here(placeholders={"replicas": 4, "template": {**TEMPLATE, "spec": spec}})
    hub.node("n1", slots=2)
    hub.node("n2", slots=50)
    tainted(hub, "n2")
    hub.user("u")
    hub.advance(300)
    assert ["", "", "", "n1"] == sorted(own(hub))


def test_dead_nodes_are_made_up_for_whatever_the_most_that_there_may_be() -> None:
    hub = made_here(placeholders={"replicas": 3, "replicasMax": 3})
    hub.node("n1", ready=False)
    hub.advance(20)
    assert ["n1"] * 3 == own(hub)
    hub.advance(400)  # filled, so that an autoscaler adds a node for those who wait
    assert [""] * 3 + ["n1"] * 5 == sorted(own(hub))
    hub.node("n2")
    hub.advance(30)
    assert ["n2"] * 3 == own(hub)


def test_a_node_is_open_if_one_of_the_users_tolerates_its_taints_whoever_came_last() -> None:
    hub = made_here(placeholders={"replicas": 4})
    hub.node("n1")
    hub.node("n2")
    tainted(hub, "n2")
    tolerant(hub, "gpu-user", USER, "n2")
    hub.advance(10)
    before = hub.warm.nodes_of(hub.pool).usable[:2].tolist()
    hub.user("plain")
    hub.advance(20)
    assert before == [True, True] == hub.warm.nodes_of(hub.pool).usable[:2].tolist()
    hub.gone("plain")
    hub.writes.clear()
    hub.advance(300)
    assert [] == [w for w in hub.writes if isinstance(w, CreateObject | DeletePod)]
    hub.gone("gpu-user")
    hub.user("plain")
    hub.advance(20)
    assert [True, False] == hub.warm.nodes_of(hub.pool).usable[:2].tolist()


def test_a_cordoned_node_with_images_keeps_nobody_from_one_that_pulls() -> None:
    hub = Hub()
    hub.node("n1")
    node = hub.server.get(Node, "n1")
    hub.server.put(
        msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=True))
    )
    hub.user("u")
    hub.advance(200)
    assert "scale-up for 1 users and 0 placeholders" == hub.status["expected"]
    hub.node("n2", ready=False)
    hub.advance(110)
    assert "n2" == hub.where("u")


def test_a_user_who_waits_takes_the_room_of_a_placeholder_that_comes_later() -> None:
    hub = Hub(repositioning={"mode": "Off"})
    hub.drawn("U")
    for name, labels in (("p", PLACEHOLDER), ("u", USER)):
        pod = hub.pod(name, labels)
        if name == "p":  # as important as users, as with podPriority: false
            spec = msgspec.structs.replace(pod.spec, priority=0)
            hub.server.put(msgspec.structs.replace(pod, spec=spec))
    hub.gone("u10")
    hub.advance(20)
    assert "n1" == hub.where("u")


def test_a_pod_that_becomes_a_user_or_a_placeholder_is_seen_at_once() -> None:
    hub = Hub(repositioning={"mode": "Off"})
    hub.drawn("P")
    pod = hub.pod("u", {"component": "none"})
    hub.advance(60)
    meta = msgspec.structs.replace(pod.metadata, labels=USER)
    hub.server.put(msgspec.structs.replace(pod, metadata=meta))
    hub.advance(1)
    assert "n1" == hub.where("u")
    hub.user("second")
    old = hub.server.get(Pod, "default/u")
    meta = msgspec.structs.replace(old.metadata, labels=PLACEHOLDER)
    hub.server.put(msgspec.structs.replace(old, metadata=meta))
    hub.advance(1)
    assert "n1" == hub.where("second")


# Pulls


def without_images(hub: Hub, name: str) -> None:
    node = hub.server.get(Node, name)
    status = msgspec.structs.replace(node.status, images=None)
    hub.server.put(msgspec.structs.replace(node, status=status))


def test_a_node_that_loses_its_images_or_joins_the_pool_pulls_from_then_on() -> None:
    hub = Hub(nodeSelector={"pool": "a"})
    for name in ("n1", "n2"):
        hub.node(name, ready=name == "n1")
    labeled(hub, "n1", pool="a")
    hub.advance(7200)
    without_images(hub, "n1")
    labeled(hub, "n2", pool="a")
    hub.advance(60)
    assert ["pulling", "pulling"] == [one["state"] for one in hub.status["nodeStates"]]
    hub.pulled("n1")
    hub.pulled("n2")
    assert 60 == hub.warm.figures.expected_pull_ns // SECOND_NS
    hub.node("n3")
    hub.advance(7200)
    labeled(hub, "n3", pool="a")  # it had them all the time
    assert 60 == hub.warm.figures.expected_pull_ns // SECOND_NS


def test_nodes_pull_other_images_since_the_pool_wants_them() -> None:
    hub = Hub()
    hub.drawn("P++++ P++++")
    hub.advance(7200)
    spec = msgspec.structs.replace(hub.pool.spec, images=Images(names=("another:1",)))
    hub.server.put(msgspec.structs.replace(hub.pool.obj, spec=spec))
    hub.advance(60)
    assert ["pulling", "pulling"] == [one["state"] for one in hub.status["nodeStates"]]
    hub.advance(300)
    assert ["stuck", "stuck"] == [one["state"] for one in hub.status["nodeStates"]]


def test_who_begins_knows_which_nodes_drain() -> None:
    hub = Hub()
    hub.drawn("UUUU+ +++++ +++++")
    hub.advance(30)
    drained = hub.pool.draining
    assert drained
    hub.restart()
    assert drained == hub.pool.draining


def changed(hub: Hub, **fields: Any) -> None:
    hub.server.put(
        msgspec.structs.replace(hub.pool.obj, spec=msgspec.structs.replace(hub.pool.spec, **fields))
    )


def test_a_user_whose_images_are_nowhere_waits_no_longer_than_the_pool_says() -> None:
    hub = Hub(images={"names": None, "ofUsers": True})
    hub.node("n1")
    hub.user("u", image="own:1")
    hub.advance(290)
    assert "" == hub.where("u")
    hub.advance(20)
    assert "n1" == hub.where("u")


def test_placeholders_follow_another_node_selector() -> None:
    hub = made_here(nodeSelector={"pool": "a"}, placeholders={"replicas": 3})
    hub.advance(30)
    changed(hub, node_selector={"pool": "b"})
    hub.node("n1")
    labeled(hub, "n1", pool="b")
    hub.advance(60)
    assert ["n1", "n1", "n1"] == own(hub)


def test_a_restart_knows_since_when_nodes_pull() -> None:
    """By the pool's status; a pull of which the beginning was not seen is nobody's measure."""
    hub = made_here(placeholders={"replicas": 2})
    hub.node("n1")
    hub.user("u")
    hub.advance(7200)
    changed(hub, images=Images(names=("another:1",)))
    hub.advance(60)
    hub.restart()
    hub.advance(30)
    assert ["pulling"] == [one["state"] for one in hub.status["nodeStates"]]
    assert ["n1", "n1"] == own(hub)
    hub.pulled("n1", "another:1")
    assert hub.warm.figures.expected_pull_ns <= 180 * SECOND_NS


def test_one_odd_pull_is_no_measure() -> None:
    figures = Hub().warm.figures
    for took_s in (7_000, 60, 60):
        figures.record_pull(took_s * SECOND_NS)
        assert figures.expected_pull_ns <= 180 * SECOND_NS


def test_no_placeholder_goes_to_a_lost_node_whatever_it_tolerates() -> None:
    spec = {**TEMPLATE["spec"], "tolerations": [{"operator": "Exists"}]}
    template = {**TEMPLATE, "spec": spec}
    hub = made_here(placeholders={"replicas": 4, "template": template})
    hub.node("n1", slots=5)
    node = hub.server.get(Node, "n1")
    taints = (Taint("node.kubernetes.io/unreachable", "", "NoSchedule"),)
    lost = msgspec.structs.replace(node.spec, taints=taints)
    hub.server.put(msgspec.structs.replace(node, spec=lost))
    hub.advance(60)
    assert [""] * 4 == own(hub)
    hub.writes.clear()
    hub.advance(300)
    assert [] == [w for w in hub.writes if isinstance(w, CreateObject | DeletePod)]
    hub.server.put(node)
    hub.advance(30)
    assert ["n1"] * 4 == own(hub)


def test_the_only_ready_node_is_not_drained_onto_one_that_pulls() -> None:
    hub = Hub()
    hub.drawn("PP+++")
    hub.node("n2", slots=5, ready=False)
    for i in range(3):
        hub.pod(f"q{i}", PLACEHOLDER, "n2")
    hub.advance(60)
    assert "n1" not in (hub.status.get("draining") or ())


def test_unusable_placeholders_have_a_metric() -> None:
    hub = made_here(placeholders={"replicas": 3})
    hub.node("n1")
    hub.advance(30)
    node = hub.server.get(Node, "n1")
    cordoned = msgspec.structs.replace(node.spec, unschedulable=True)
    hub.server.put(msgspec.structs.replace(node, spec=cordoned))
    samples = {metric.name: metric.samples for metric in hub.warm.metrics()}
    assert [3] == [one.value for one in samples["stower_warm_unusable_placeholders"]]
