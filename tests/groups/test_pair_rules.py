"""Groups whose pods exclude, follow or spread each other: the search knows these rules, so that it
places what fits, and proves at once what does not."""

from typing import Any

import pytest

from stower.assembly import build_engine
from stower.model.kinds import Node, Pod
from tests.builders import make_node, make_pod
from tests.device_builders import Agreeing
from tests.group_builders import BLOCK, RACK, make_composite, make_group, members

HOSTNAME = "kubernetes.io/hostname"
APP = {"app": "a"}
SAME_APP = {"labelSelector": {"matchLabels": APP}}
NO_PREEMPTION = "preemption: No preemption victims found for incoming preemptor"


def node(name: str, rack: str = "r", cpu: str = "8") -> Node:
    return make_node(name, cpu=cpu, labels={HOSTNAME: name, RACK: rack})


def cluster(*objects: Any) -> Agreeing:
    return Agreeing(build_engine(), *objects)


def affinity(kind: str, key: str) -> dict[str, Any]:
    term = {"topologyKey": key, **SAME_APP}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(key: str, skew: int) -> list[dict[str, Any]]:
    rule = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **SAME_APP}
    return [rule]


def workers(count: int, **fields: Any) -> list[Pod]:
    return members("g", count, labels=APP, **fields)


def message(api: Agreeing) -> str:
    """Why it is impossible, "" where that is not proved."""
    said = api.messages["g-0"].partition(f". {NO_PREEMPTION}")[0]
    return said.partition("impossible (proven): ")[2]


def test_a_leader_and_workers_on_the_host_network_are_on_nodes_of_their_own() -> None:
    """The leader fits on the larger nodes only, which the workers would take else."""
    leader = members("g", 1, first=2, cpu="3", ports=[29500])
    api = cluster(
        node("n0", cpu="2"), node("n1", cpu="5"), node("n2", cpu="6"),
        make_group("g", 3, key=RACK), *members("g", 2, cpu="2", ports=[29500]), *leader,
    )  # fmt: skip
    assert 3 == len(set(api.bound.values()))
    assert "n0" != api.bound["g-2"]


def test_that_host_ports_run_out_is_proved_at_once() -> None:
    api = cluster(node("n0"), node("n1"), make_group("g", 3), *workers(3, ports=[80]))
    assert {} == api.bound
    assert "PodGroup default/g needs 3 pods, 2 fit: Insufficient host port 80/TCP" == message(api)


def test_a_host_port_that_another_pod_uses_does_not_count() -> None:
    taken = make_pod("other", node="n0", ports=[80])
    api = cluster(node("n0"), node("n1"), taken, make_group("g", 2), *workers(2, ports=[80]))
    assert "PodGroup default/g needs 2 pods, 1 fit: Insufficient host port 80/TCP" == message(api)


def test_pods_that_exclude_each_other_per_node_need_as_many_nodes() -> None:
    apart = affinity("podAntiAffinity", HOSTNAME)
    nodes = [node(f"n{i}", "a" if i < 2 else "b") for i in range(5)]
    api = cluster(*nodes, make_group("g", 3, key=RACK), *workers(3, affinity=apart))
    assert {"n2", "n3", "n4"} == set(api.bound.values())
    more = cluster(*nodes, make_group("g", 4, key=RACK), *workers(4, affinity=apart))
    assert (
        "PodGroup default/g needs 4 pods in one rack, 3 fit: "
        "Insufficient nodes without pods of app=a" == message(more)
    )


def test_pods_follow_those_that_they_want_to_be_with() -> None:
    """One is in rack a, where there is no room for all: they cannot be in rack b."""
    there = make_pod("there", node="a0", labels=APP)
    close = affinity("podAffinity", RACK)
    api = cluster(
        node("a0", "a", "2"), node("b0", "b"), there, make_group("g", 3),
        *workers(3, cpu="1", affinity=close),
    )  # fmt: skip
    assert {} == api.bound
    assert "PodGroup default/g needs 3 pods, 1 fit: Insufficient cpu" == message(api)
    api.put(node("a1", "a", "2"))
    api.wait(10)
    assert {"a0", "a1"} == set(api.bound.values())


def test_pods_that_want_to_be_together_are_placed_where_all_have_room() -> None:
    """None is anywhere yet: the first one decides, and must not decide for too small a rack."""
    close = affinity("podAffinity", RACK)
    nodes = [node(f"a{i}", "a", "100") for i in range(1)]
    nodes += [node(f"b{i}", "b", "2") for i in range(4)]
    api = cluster(
        *nodes, make_pod("fill", node="a0", cpu="97"), make_group("g", 4),
        *workers(4, cpu="1", affinity=close),
    )  # fmt: skip
    assert 4 == len(api.bound)
    assert {"b"} == {name[0] for name in api.bound.values()}


def test_pods_of_a_group_that_follow_different_ones_need_not_be_together() -> None:
    """Those of one kind fill a rack of the block."""
    close = affinity("podAffinity", RACK)
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "b"}}}
    other: dict[str, Any] = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    api = cluster(
        *(make_node(f"{rack}0", cpu="2", labels={RACK: rack, BLOCK: "b"}) for rack in "ab"),
        make_group("g", 4, key=BLOCK), *workers(2, cpu="1", affinity=close),
        *members("g", 2, first=2, labels={"app": "b"}, cpu="1", affinity=other),
    )  # fmt: skip
    assert 4 == len(api.bound)


def test_pods_may_follow_those_that_follow_each_other() -> None:
    """They have the same affinity; only the first one matches it, and nobody does yet."""
    close = affinity("podAffinity", RACK)
    api = cluster(
        node("a0", "a", "1"), node("a1", "a", "1"), make_group("g", 2, key=RACK),
        *workers(1, cpu="1", affinity=close),
        *members("g", 1, first=1, labels={"app": "b"}, cpu="1", affinity=close),
    )  # fmt: skip
    assert 2 == len(api.bound)


def test_pods_may_follow_a_leader_of_their_own_group_anywhere() -> None:
    """The leader matches, and follows nobody: with it, the others may go where nobody is."""
    there = make_pod("there", node="a0", labels=APP)
    close = affinity("podAffinity", RACK)
    leader = members("g", 1, first=9, labels=APP, cpu="1")
    api = cluster(
        node("a0", "a", "1"), node("b0", "b"), there, make_group("g", 4),
        *workers(3, cpu="1", affinity=close), *leader,
    )  # fmt: skip
    assert {"b0"} == set(api.bound.values())
    assert 4 == len(api.bound)


def test_that_pods_follow_nobody_who_is_there_is_proved_at_once() -> None:
    after = affinity("podAffinity", RACK)
    api = cluster(node("n0"), node("n1"), make_group("g", 2), *members("g", 2, affinity=after))
    assert {} == api.bound
    assert message(api)
    api.put(make_pod("first", node="n1", labels=APP))
    api.wait(10)
    assert 2 == len(api.bound)


def test_a_pod_outside_all_domains_is_not_one_that_others_follow() -> None:
    """The leader matches the terms of all, and may come first."""
    after = affinity("podAffinity", RACK)
    outside = make_node("n0", labels={HOSTNAME: "n0"})
    leader = members("g", 1, labels=APP, first=2, affinity=after)
    api = cluster(
        outside, node("n1"), node("n2"), make_pod("other", node="n0", labels=APP),
        make_group("g", 3), *members("g", 2, affinity=after), *leader,
    )  # fmt: skip
    assert 3 == len(api.bound)


def test_pods_that_are_spread_over_nodes_need_enough_of_them() -> None:
    nodes = [node(f"n{i}") for i in range(6)]
    rule = {"topologySpreadConstraints": spread(HOSTNAME, 1)}
    api = cluster(*nodes[:5], make_group("g", 4), *workers(4, **rule))
    assert 4 == len(set(api.bound.values()))
    full = [make_pod(f"full-{i}", node=f"n{i}", cpu="7900m") for i in range(4)]
    other = cluster(*nodes, *full, make_group("g", 3), *workers(3, cpu="1", **rule))
    assert {} == other.bound
    assert (
        "PodGroup default/g needs 3 pods, 2 fit: "
        f"Insufficient nodes within maxSkew 1 of {HOSTNAME}" == message(other)
    )


def test_more_pods_than_nodes_may_be_spread() -> None:
    """The smallest count rises while they are placed."""
    rule = {"topologySpreadConstraints": spread(HOSTNAME, 1)}
    nodes = [node(f"n{i}") for i in range(3)]
    api = cluster(*nodes, make_group("g", 7), *workers(7, **rule))
    assert 7 == len(api.bound)


def test_a_leader_that_wants_no_worker_on_its_node_leaves_them_the_others() -> None:
    """Only the leader has the rule; it would take a node for itself that both workers need."""
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "worker"}}}
    alone: dict[str, Any] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    leader = members("g", 1, cpu="1", affinity=alone)
    workers_ = members("g", 4, first=1, cpu="1", labels={"app": "worker"})
    api = cluster(
        node("a0", "a", "2"), node("a1", "a", "1"), node("b0", "b", "3"), node("b1", "b", "4"),
        make_group("g", 5, key=RACK), *leader, *workers_,
    )  # fmt: skip
    assert 5 == len(api.bound)
    assert api.bound["g-0"] not in [api.bound[f"g-{i}"] for i in range(1, 5)]


def test_pods_of_several_groups_exclude_each_other_in_a_rack() -> None:
    """Two racks take one pod each, the third is full: with three pods, that is proved."""
    apart = affinity("podAntiAffinity", RACK)
    nodes = [node("a0", "a"), node("a1", "a"), node("b0", "b"), node("c0", "c", "0")]
    tree = [make_composite("c", 2), make_group("g", 1, parent="c"), make_group("h", 1, parent="c")]
    one, two = (members(name, 1, labels=APP, affinity=apart) for name in "gh")
    api = cluster(*nodes, *tree, *one, *two)
    assert {"a", "b"} == {name[0] for name in api.bound.values()}
    more = members("h", 2, labels=APP, affinity=apart)
    full = cluster(*nodes, *tree[:2], make_group("h", 2, parent="c"), *one, *more)
    assert {} == full.bound
    assert (
        "these do not fit together: 1 pods of PodGroup default/g, 2 pods of PodGroup default/h, "
        "with anti-affinity over rack" == message(full)
    )


def test_a_pod_that_is_spread_comes_before_those_that_fill_its_rack() -> None:
    """The others have no such rule: where they are first, the rack has too many for it."""
    rule = spread(RACK, 1)
    api = cluster(
        node("a0", "a"), node("b0", "b", "0"), make_group("g", 4, key=RACK),
        *members("g", 3, labels=APP), *members("g", 1, first=3, topologySpreadConstraints=rule),
    )  # fmt: skip
    assert 4 == len(api.bound)


def test_followers_and_those_who_fill_up_a_rack_come_in_an_order_that_all_accept() -> None:
    """One rack has too many pods for one that is spread, until its other rack has some too."""
    there = [make_pod(f"there-{i}", node="a0", labels=APP) for i in range(2)]
    late = members("g", 1, labels=APP, cpu="4", topologySpreadConstraints=spread(RACK, 1))
    api = cluster(
        node("a0", "a", "5"), node("b0", "b", "3"), *there, make_group("g", 3), *late,
        *members("g", 2, first=1, labels=APP, cpu="1"),
    )  # fmt: skip
    assert {"g-0": "a0", "g-1": "b0", "g-2": "b0"} == api.bound


def test_a_spreading_rule_that_matches_nobody_forbids_nothing() -> None:
    """As for a pod alone: an empty selector counts the pod itself, and no other."""
    rule = [{**spread(RACK, 1)[0], "labelSelector": {}}]
    api = cluster(
        node("a0", "a"), node("b0", "b", "0"), make_group("g", 3, key=RACK),
        *members("g", 3, labels=APP, topologySpreadConstraints=rule),
    )  # fmt: skip
    assert {"a0"} == set(api.bound.values())
    assert 3 == len(api.bound)


def test_pods_come_in_the_only_order_that_all_their_rules_accept() -> None:
    """The follower is spread, too: it comes after the one that it follows, and before the other."""
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "b"}}}
    after: dict[str, Any] = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    rule = [{**spread(RACK, 1)[0], "minDomains": 2}]
    api = cluster(
        node("a0", "a"), make_group("g", 3, key=RACK),
        *members("g", 1, labels=APP, affinity=after, topologySpreadConstraints=rule),
        *members("g", 1, first=1, labels=APP),
        *members("g", 1, first=2, labels={"app": "b"}),
    )  # fmt: skip
    assert ["g-2", "g-0", "g-1"] == [*api.bound]


def test_one_of_several_groups_is_said_to_be_needed_where_one_is() -> None:
    """Neither fits: they are no requirements that conflict with each other."""
    nodes = [make_node(f"n{i}", cpu="4", labels={RACK: "r"}) for i in range(2)]
    apart = affinity("podAntiAffinity", RACK)
    pods = [p for name in "gh" for p in members(name, 2, cpu="1", labels=APP, affinity=apart)]
    groups = [make_composite("top", 1), *(make_group(n, 2, parent="top") for n in "gh")]
    api = cluster(*nodes, *groups, *pods)
    text = (
        "this does not fit: 1 of the 2 groups of CompositePodGroup default/top, with anti-affinity"
    )
    assert text in api.messages["g-0"]


def test_what_one_pod_of_several_lacks_is_named() -> None:
    """Each size has room, but not where the one with a selector may go."""
    nodes = [
        make_node("n0", cpu="8", labels={HOSTNAME: "n0"}),
        make_node("n1", cpu="3", labels={HOSTNAME: "n1", "disk": "ssd"}),
    ]
    pods = [
        *members("g", 3, cpu="1"),
        *members("g", 1, first=3, cpu="1", nodeSelector={"disk": "ssd"}),
    ]
    api = cluster(*nodes, make_group("g", 4, key=HOSTNAME), *pods)
    assert (
        "needs 4 pods in one kubernetes.io/hostname, 3 fit: Insufficient cpu" in api.messages["g-0"]
    )


@pytest.mark.parametrize("is_there", [False, True])
def test_pods_that_follow_each_other_in_a_circle_have_no_place(is_there: bool) -> None:
    """Unless one that one of them follows is there already."""

    def following(name: str, other: str, first: int) -> list[Pod]:
        term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": other}}}
        near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        return members("g", 1, first=first, cpu="1", labels={"app": name}, affinity=near)

    there = [make_pod("old", node="n0", cpu="1", labels={"app": "client"})] if is_there else []
    pods = [*following("server", "client", 0), *following("client", "server", 1)]
    api = cluster(node("n0"), *there, make_group("g", 2), *pods)
    assert (2 if is_there else 0) == len(api.bound)
    if not is_there:
        assert "needs 2 pods, 0 fit" in message(api)
