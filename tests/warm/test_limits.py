"""What a pool may not do to others, whatever it says: bad pools, labels, floods, refused writes."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.framework.events import Hold, Tick
from stower.framework.writes import CreateObject, DeletePod, PatchObject, Write
from stower.model.errors import InvalidObject
from stower.model.kinds import Node, Pod, WarmPool
from stower.model.kinds.pod import Container
from stower.model.kinds.warm_pool import WarmPoolSpec, pool_faults
from stower.model.times import SECOND_NS, time_text
from stower.warm.registry import POOLS_MAX
from tests.warm.rig import PLACEHOLDER, POOL, START_NS, TEMPLATE, USER, Hub, merged

KEPT: dict[str, Any] = {"selector": None, "template": TEMPLATE}
LABEL = "example.com/warm"


def pool(name: str, **more: Any) -> WarmPool:
    spec = merged(POOL, more)
    meta = {"name": name, "namespace": "default", "uid": name}
    return msgspec.convert({"metadata": meta, "spec": spec}, WarmPool)


def deleted(hub: Hub) -> list[str]:
    return [w.name for w in hub.writes if isinstance(w, DeletePod)]


def made(hub: Hub) -> list[str]:
    return [w.name for w in hub.writes if isinstance(w, CreateObject)]


# Pools that make no sense


BAD: list[tuple[dict[str, Any], str]] = [
    ({"placeholders": {"template": {"spec": "abc"}}}, "placeholders.template.spec"),
    ({"placeholders": {"template": {"spec": ["a"]}}}, "placeholders.template.spec"),
    ({"placeholders": {"template": {"spec": {"containers": []}}}}, "template.spec.containers"),
    ({"placeholders": {"template": {"spec": {"containers": "x"}}}}, "placeholders.template.spec"),
    ({"placeholders": {"template": {**TEMPLATE, "metadata": "x"}}}, "template.metadata"),
    (
        {"placeholders": {"template": {**TEMPLATE, "metadata": {"labels": ["a"]}}}},
        "metadata.labels",
    ),
    (
        {"placeholders": {"template": {**TEMPLATE, "metadata": {"annotations": ["a"]}}}},
        "metadata.annotations",
    ),
    ({"users": {}}, "users"),
    ({"users": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}, "operator"),
    ({"users": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "values"),
    ({"images": {"label": "kubernetes.io/hostname"}}, "images.label"),
    ({"images": {"label": "node-role.kubernetes.io/master"}}, "images.label"),
    ({"images": {"label": "not a label!!"}}, "images.label"),
    ({"images": {"label": "warm"}}, "images.label"),
    ({"images": {"label": LABEL}, "nodeSelector": {LABEL: "true"}}, "images.label"),
]


@pytest.mark.parametrize(("more", "path"), BAD)
def test_a_bad_pool_is_refused_and_harms_nobody(more: dict[str, Any], path: str) -> None:
    """Where the API does not know our rules it stores the pool: it is told, and not used."""
    spec = merged(POOL, more)
    if "users" in more:
        spec["users"] = more["users"]
    found = [*pool_faults(msgspec.convert(spec, WarmPoolSpec))]
    assert path in found[0][0]
    hub = Hub()
    hub.drawn("UU+++ ++P++")
    document = {"metadata": {"name": "bad", "namespace": "default", "uid": "bad"}, "spec": spec}
    hub.server.put(msgspec.convert(document, WarmPool))
    hub.engine.notes()
    hub.restart()
    notes = [text for level, text, about in hub.engine.notes() if about == "default/bad"]
    assert [True] == [path in text for text in notes]
    hub.advance(100)
    assert "n1" == hub.user()
    assert "default/bad" not in hub.warm.pools


def test_a_name_that_is_too_long_for_a_label_is_refused() -> None:
    spec = msgspec.convert(POOL, WarmPoolSpec)
    assert [("metadata.name", "a" * 64)] == [f[:2] for f in pool_faults(spec, "a" * 64)]
    assert [] == [*pool_faults(spec, "a" * 63)]


def test_profiles_that_say_different_things_of_pools_are_refused() -> None:
    def profile(name: str, pools: list[Any]) -> dict[str, Any]:
        config = [{"name": "WarmCapacity", "args": {"pools": pools}}]
        return {"schedulerName": name, "pluginConfig": config}

    one = {"name": "a", "namespace": "a", "users": POOL["users"]}
    other = {**one, "name": "b"}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile("x", [one]), profile("y", [other])],
    }
    with pytest.raises(InvalidObject, match=r"profiles\[1\].pluginConfig\[0\].args"):
        build_engine(document)
    document["profiles"] = [profile("x", [one]), profile("y", [one])]
    assert ["a/a"] == [*build_engine(document).state.companions["WarmCapacity"].pools]


# Labels on nodes


def test_a_label_that_somebody_else_has_set_is_left_as_it_is() -> None:
    hub = Hub(images={"label": LABEL})
    hub.drawn("UU+++ +++++")
    node = hub.server.get(Node, "n2")
    meta = msgspec.structs.replace(node.metadata, labels={LABEL: "mine"})
    hub.server.put(msgspec.structs.replace(node, metadata=meta))
    hub.advance(20)
    labels = {n: o.metadata.labels.get(LABEL) for n, o in hub.server.all(Node).items()}
    assert {"n1": "true", "n2": "mine"} == labels


def test_labels_go_with_the_pool_that_set_them() -> None:
    hub = Hub(images={"label": LABEL})
    hub.drawn("UU+++ +++++")
    hub.advance(20)
    assert "true" == hub.server.get(Node, "n1").metadata.labels[LABEL]
    hub.server.put(pool("other"))  # so that somebody looks
    hub.server.remove(hub.server.get(WarmPool, "default/users"))
    hub.advance(20)
    assert [None, None] == [n.metadata.labels.get(LABEL) for n in hub.server.all(Node).values()]


def test_of_two_pools_with_one_label_the_first_decides() -> None:
    hub = Hub(images={"label": LABEL})
    hub.drawn("UU+++ +++++")
    hub.server.put(pool("zoo", images={"label": LABEL, "names": ["not there"]}))
    hub.advance(120)
    patches = [w for w in hub.writes if isinstance(w, PatchObject) and w.view is Node]
    assert 2 == len(patches)


class Refusing(Hub):
    """A hub whose API refuses some writes."""

    def refused(self, write: Write) -> bool:
        return False

    def refuse(self, write: Write) -> tuple[int, str] | None:
        return (403, "") if self.refused(write) else None


def test_a_label_that_may_not_be_set_is_told_and_not_asked_for_again_and_again() -> None:
    class Shut(Refusing):
        def refused(self, write: Write) -> bool:
            return isinstance(write, PatchObject) and write.view is Node

    hub = Shut(images={"label": LABEL})
    hub.drawn("UU+++")
    hub.advance(120)
    assert 1 == sum(isinstance(w, PatchObject) and w.view is Node for w in hub.writes)
    assert any("refused" in text for _, text, about in hub.engine.notes() if about == "n1")


def test_an_object_sets_no_label_that_the_configuration_does_not_name() -> None:
    """Pods of other namespaces may select nodes by any other."""
    gpu = "nvidia.com/gpu.present"
    hub = Hub(images={"label": gpu, "names": ["not there"]})
    hub.node("n1")
    node = hub.server.get(Node, "n1")
    meta = msgspec.structs.replace(node.metadata, labels={gpu: "true"})
    hub.server.put(msgspec.structs.replace(node, metadata=meta))
    hub.advance(20)
    assert "true" == hub.server.get(Node, "n1").metadata.labels[gpu]
    assert gpu in hub.server.get(WarmPool, "default/users").status.problem
    assert any(gpu in text for _, text, about in hub.engine.notes() if about == "default/users")
    hub.server.remove(hub.server.get(WarmPool, "default/users"))
    hub.advance(20)
    assert "true" == hub.server.get(Node, "n1").metadata.labels[gpu]


@pytest.mark.parametrize("label", ["warm", "*", "example.com/", "a b/c"])
def test_a_label_that_is_none_is_refused_in_the_configuration(label: str) -> None:
    config = [{"name": "WarmCapacity", "args": {"nodeLabels": [label]}}]
    with pytest.raises(InvalidObject, match=r"args.nodeLabels\[0\]"):
        build_engine({"profiles": [{"pluginConfig": config}]})


def test_a_label_goes_though_the_first_write_that_takes_it_away_fails() -> None:
    class Busy(Refusing):
        left = 0

        def refuse(self, write: Write) -> tuple[int, str] | None:
            is_of_node = isinstance(write, PatchObject) and write.view is Node
            self.left -= is_of_node
            return (409, "changed") if is_of_node and self.left >= 0 else None

    hub = Busy(images={"label": LABEL})
    hub.drawn("UU+++ +++++")
    hub.advance(20)
    hub.left = 1
    hub.server.remove(hub.server.get(WarmPool, "default/users"))
    hub.advance(60)
    assert [None, None] == [n.metadata.labels.get(LABEL) for n in hub.server.all(Node).values()]


# Many pools


def test_the_first_pools_of_a_namespace_count_and_others_follow_when_one_goes() -> None:
    hub = Hub()
    for i in range(POOLS_MAX + 5):
        hub.server.put(pool(f"a{i:02}"))
    assert POOLS_MAX == len(hub.warm.pools)
    assert "default/users" not in hub.warm.pools
    assert any("more than 20 pools" in text for _, text, _ in hub.engine.notes())
    hub.server.remove(hub.server.get(WarmPool, "default/a00"))
    assert f"default/a{POOLS_MAX:02}" in hub.warm.pools


def test_a_change_of_one_pool_leaves_the_others_as_they_are() -> None:
    """Else a namespace's user makes work for all pools and nodes with each change."""
    hub = Hub()
    hub.node("n1")
    hub.server.put(pool("other"))
    before = {key: hub.warm.nodes_of(one) for key, one in hub.warm.pools.items()}
    hub.server.put(pool("other", images={"names": ["another"]}))
    after = {key: hub.warm.nodes_of(one) for key, one in hub.warm.pools.items()}
    assert ["default/users"] == [key for key in after if after[key] is before[key]]


# Users


def test_who_has_waited_long_enough_goes_to_any_node_that_pulls_and_has_room() -> None:
    hub = Hub(placeholders={"stuckAfterSeconds": 400})
    hub.node("n1", slots=1, ready=False)
    hub.pod("u", USER, "n1")
    hub.advance(10)
    hub.node("n2", slots=1, ready=False)
    hub.advance(10)
    hub.node("n3", slots=1, ready=False)
    for name in ("a", "b"):
        hub.user(name)
    hub.advance(290)
    assert ["", ""] == [hub.where("a"), hub.where("b")]
    hub.advance(20)
    assert ["n2", "n3"] == [hub.where("a"), hub.where("b")], "the one that is ready first, first"


def test_what_comes_beside_a_users_notebook_makes_no_difference() -> None:
    """As the chart's container that blocks cloud metadata."""
    hub = Hub()
    hub.drawn("+++++")
    hub.node("n2", ready=False)
    hub.pod("u", USER)
    pod = hub.server.get(Pod, "default/u")
    more = (msgspec.convert({"name": "block", "image": "network-tools:1"}, Container),)
    spec = msgspec.structs.replace(
        pod.spec, node_name="", init_containers=more, containers=(*pod.spec.containers, *more)
    )
    meta = msgspec.structs.replace(pod.metadata, name="v", uid="v")
    hub.server.put(msgspec.structs.replace(pod, metadata=meta, spec=spec))
    assert "n1" == hub.where("v")


def test_placeholders_of_another_pool_are_in_the_way_of_nobody_either() -> None:
    hub = Hub(repositioning={"mode": "Off"})
    other = {"component": "other-placeholder"}
    hub.server.put(
        pool("other", users={"matchLabels": {"component": "other-user"}},
             placeholders={"selector": {"matchLabels": other}})
    )  # fmt: skip
    hub.drawn("UUU++ +++++")
    for i in range(2):
        hub.pod(f"o{i}", other, "n1")
        pod = hub.server.get(Pod, f"default/o{i}")
        spec = msgspec.structs.replace(pod.spec, priority=-10)
        hub.server.put(msgspec.structs.replace(pod, spec=spec))
    assert "n1" == hub.user()
    assert ["o1"] == deleted(hub)


def test_who_may_not_be_deleted_holds_no_user_up() -> None:
    class Shut(Refusing):
        def refused(self, write: Write) -> bool:
            return isinstance(write, DeletePod)

    hub = Shut(repositioning={"mode": "Off"})
    hub.drawn("UUUUP U++++")
    hub.user()
    hub.advance(5)
    assert ("n2", ["p14"]) == (hub.where("new"), deleted(hub))


def test_placeholders_that_look_like_users_are_none() -> None:
    app = {"app": "jupyterhub"}
    hub = Hub(users={"matchLabels": app})
    hub.node("n1")
    hub.node("n2")
    for i in range(2):
        hub.pod(f"u{i}", {**USER, **app}, "n2")
    hub.pod("p0", {**PLACEHOLDER, **app}, "n1")
    hub.advance(10)
    assert (("n1",), ["p0"]) == (hub.pool.draining, deleted(hub))


# Floods


def test_what_others_keep_is_never_taken_for_too_many() -> None:
    hub = Hub(placeholders={"template": TEMPLATE, "replicas": 2})
    hub.drawn("U+++++++ P")
    for i in range(4):
        hub.placeholder(f"stateful-{i}")
    hub.advance(300)
    assert ([], 2) == ([n for n in deleted(hub) if n.startswith("stateful")], hub.pool.wanted)


def test_lowering_is_no_flood() -> None:
    start = time_text(START_NS)
    lecture = {"start": start, "enrolment": 60, "percent": 100, "leadSeconds": 0, "tailSeconds": 30}
    hub = Hub(placeholders={**KEPT, "lectures": [lecture]}, repositioning={"mode": "Off"})
    hub.node("n1", slots=100)
    hub.advance(20)
    assert 60 == len(hub.names(PLACEHOLDER))
    by_round = []
    for _ in range(8):
        before = len(deleted(hub))
        hub.advance(10)
        by_round.append(len(deleted(hub)) - before)
    assert 60 == sum(by_round)
    assert 10 == max(by_round)


@pytest.mark.behaviour("S1.17")
def test_neither_restarts_nor_new_pools_make_more_moves() -> None:
    """Of pools that are objects and of those that the configuration has, with a status or none."""
    hub = Hub(repositioning={"restSeconds": 0})
    hub.drawn(f"{'U' * 10}{'+' * 90} {'P' * 60}{'+' * 40}")
    minutes = []
    for turn in range(4):
        before = len(deleted(hub))
        for i in range(6):
            hub.advance(10)
            if i % 2 and turn % 2:
                hub.restart()
            elif i == 3:
                spec = hub.server.get(WarmPool, "default/users")
                hub.server.remove(spec)
                hub.server.put(msgspec.structs.replace(spec, status=type(spec.status)()))
        minutes.append(len(deleted(hub)) - before)
    assert max(minutes) <= 6, minutes


@pytest.mark.behaviour("S1.17")
def test_two_pools_share_the_limit_as_nodes_are_the_same() -> None:
    hub = Hub(repositioning={"restSeconds": 0})
    other = {"component": "other-placeholder"}
    hub.server.put(
        pool("other", placeholders={"selector": {"matchLabels": other}},
             repositioning={"restSeconds": 0})
    )  # fmt: skip
    hub.drawn(f"{'U' * 10}{'+' * 90} {'P' * 30}{'+' * 70}")
    for i in range(30):
        hub.pod(f"o{i}", other, "n2")
    hub.advance(60)
    assert 6 == len(deleted(hub))


def test_a_move_whose_answer_is_late_is_not_made_again() -> None:
    class Slow(Hub):
        def refuse(self, write: Write) -> tuple[int, str] | None:
            return (504, "") if isinstance(write, DeletePod) else None

    hub = Slow(repositioning={"perMinute": 60, "burst": 60, "inFlight": 60})
    hub.drawn("UU+++ PP+++")
    hub.warm.keeping.handle_answer = lambda *_: True  # type: ignore[method-assign]
    hub.advance(40)
    assert ["p20", "p21"] == sorted(deleted(hub))


def test_who_was_moved_and_has_gone_since_takes_no_place_on_the_way() -> None:
    hub = Hub(repositioning={"restSeconds": 3600, "inFlight": 2, "perMinute": 2, "burst": 2})
    hub.drawn("UU++++++ PPPP++++")
    hub.advance(10)
    assert 2 == len(deleted(hub))  # and nobody makes them again
    hub.advance(70)
    assert 4 == len(deleted(hub))


@pytest.mark.behaviour("S1.17")
def test_from_one_node_so_many_until_they_are_elsewhere() -> None:
    hub = Hub(repositioning={"perNode": 1})
    hub.drawn("UU++++++ PPPP++++")
    hub.advance(50)
    assert 1 == len(deleted(hub))
    hub.placeholder(deleted(hub)[0])
    hub.advance(10)
    assert 2 == len(deleted(hub))


def test_pools_whose_names_begin_alike_count_for_themselves() -> None:
    class Late(Hub):
        def refuse(self, write: Write) -> tuple[int, str] | None:
            is_late = isinstance(write, CreateObject) and write.name.startswith("users-b-")
            return (504, "") if is_late else None

    hub = Late(placeholders={**KEPT, "replicas": 3})
    hub.drawn("U+++++++")
    hub.advance(10)
    hub.warm.keeping.handle_answer = lambda *_: True  # type: ignore[method-assign]
    hub.server.put(pool("users-b", placeholders={**KEPT, "replicas": 3},
                        users={"matchLabels": {"component": "b"}}))  # fmt: skip
    hub.advance(60)
    assert (3, []) == (len(hub.names(PLACEHOLDER)), deleted(hub))


def test_whom_we_keep_for_a_pool_is_of_that_pool() -> None:
    hub = Hub()
    hub.drawn("U++++")
    hub.server.put(pool("vip", placeholders={**KEPT, "replicas": 3},
                        users={"matchLabels": {"component": "vip"}}))  # fmt: skip
    hub.advance(60)
    assert (3, 3) == (len(hub.warm.pools["default/vip"].placeholders), len(made(hub)))


def test_a_template_that_the_api_refuses_is_told_and_tried_now_and_then() -> None:
    class Shut(Refusing):
        def refused(self, write: Write) -> bool:
            return isinstance(write, CreateObject)

    hub = Shut(placeholders={**KEPT, "replicas": 20})
    hub.drawn("U++++")
    hub.writes.clear()
    hub.advance(300)
    assert len(made(hub)) <= 20 * 6
    problem = hub.status["problem"]
    assert problem.startswith("cannot create placeholder ")
    assert problem.endswith(": refused")


def test_a_template_that_has_changed_has_others_made() -> None:
    hub = Hub(placeholders={**KEPT, "replicas": 3})
    hub.drawn("U+++++++")
    hub.advance(10)
    assert 3 == len(hub.names(PLACEHOLDER))
    known = hub.server.get(WarmPool, "default/users")
    template = merged(TEMPLATE, {"metadata": {"annotations": {"a": "b"}}})
    held = msgspec.structs.replace(known.spec.placeholders, template=template)
    spec = msgspec.structs.replace(known.spec, placeholders=held)
    hub.server.put(msgspec.structs.replace(known, spec=spec))
    hub.advance(30)
    pods = hub.server.all(Pod).values()
    notes = [p.metadata.annotations for p in pods if p.metadata.annotations]
    assert ["b"] * 3 == [n.get("a") for n in notes]


# Targets


def test_who_comes_at_the_time_of_two_lectures_counts_for_one() -> None:
    start = time_text(START_NS + 60 * SECOND_NS)
    lecture = {"start": start, "enrolment": 20, "percent": 100, "leadSeconds": 30}
    hub = Hub(placeholders={**KEPT, "lectures": [lecture, lecture]})
    hub.node("n1", slots=60)
    hub.advance(50)
    assert 40 == hub.pool.wanted
    for i in range(20):
        hub.user(f"w{i}")
    hub.advance(20)
    assert 20 == hub.pool.wanted


def test_what_is_expected_tells_pulls_from_scaling() -> None:
    hub = Hub(repositioning={"mode": "Off"})
    hub.drawn("UUUUU")
    hub.node("n2", ready=False)
    for name in ("a", "b"):
        hub.user(name)
    hub.advance(10)
    assert "images on n2 for 2 users" == hub.status["expected"]


def test_a_scheduler_on_standby_has_no_rounds_to_wake_for() -> None:
    """Else each Tick would be followed by another at once."""
    hub = Hub()
    hub.node("n1")
    hub.advance(30)
    hub.engine.step(Hold(True), hub.now_ns)
    later_ns = hub.now_ns + 600 * SECOND_NS
    hub.engine.step(Tick(), later_ns)
    wake_ns = hub.engine.next_wake_ns
    assert wake_ns is None or wake_ns > later_ns
    hub.engine.step(Hold(False), later_ns)
    assert hub.engine.next_wake_ns > later_ns
