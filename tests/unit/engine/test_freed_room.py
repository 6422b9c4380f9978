"""Room that a pod leaves: who is tried again for it, and who is not."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stower.assembly import build_engine
from stower.framework.writes import DeletePod
from tests.builders import make_node, make_pod
from tests.device_builders import (
    Agreeing,
    claiming,
    device,
    device_class,
    device_slice,
    resource_claim,
)
from tests.group_builders import RACK, make_group, members


def cluster(*objects: Any) -> Agreeing:
    return Agreeing(build_engine(), *objects)


def attempts(api: Agreeing, name: str) -> int:
    queued = api.engine.queue.get(f"uid-of-default-{name}")
    assert queued is not None
    return queued.attempts


def test_a_pod_is_tried_for_room_that_lets_it_in_and_for_no_other() -> None:
    small = [make_pod(f"small{i}", cpu="1", node=n) for i, n in enumerate(("n1", "n1", "n2"))]
    nodes = [make_node("n1", cpu="4"), make_node("n2", cpu="2")]
    api = cluster(*nodes, *small, make_pod("p", cpu="4", preemptionPolicy="Never"))
    assert 1 == attempts(api, "p")
    api.remove(small[2])  # the node is too small
    api.remove(small[0])  # it is one of two that are in the way
    api.wait(60)
    assert 1 == attempts(api, "p")
    api.remove(small[1])
    api.wait(60)
    assert {"p": "n1"} == api.bound


@pytest.mark.parametrize("priority", [0, 10])
def test_a_preemptor_is_tried_where_those_below_it_could_leave(priority: int) -> None:
    """One of two pods that it may not evict is gone: now the other node would do."""
    pods = [
        make_pod("low", cpu="2", node="n1", priority=-5),
        make_pod("top", cpu="2", node="n1", priority=20),
    ]
    api = cluster(make_node("n1", cpu="4"), *pods, make_pod("p", cpu="3", priority=priority))
    assert {} == api.bound
    api.remove(pods[1])
    api.wait(60)
    assert ["low"] == [write.name for write in api.writes if type(write).__name__ == "DeletePod"]


def test_who_lacks_devices_is_not_tried_for_other_room() -> None:
    claims = [resource_claim(f"c{i}") for i in range(2)]
    other = make_pod("other", cpu="2", node="n2")
    api = cluster(
        make_node("n1", cpu="4"), make_node("n2", cpu="2"), device_class(),
        device_slice("n1", device("gpu-0")), *claims, claiming("p0", "c0", cpu="1"), other,
        claiming("p1", "c1", cpu="1"),
    )  # fmt: skip
    assert {"p0": "n1"} == api.bound
    tried = attempts(api, "p1")
    api.remove(other)
    api.wait(60)
    assert tried == attempts(api, "p1")


def test_who_lacks_devices_is_not_tried_for_claims_that_had_none_of_them() -> None:
    """One was allocated by a driver without slices, one for extended resources was not allocated
    yet."""
    classic = {"driver": "classic.example.com", "pool": "n1", "device": "d", "request": "r"}
    of_driver = resource_claim(
        "classic", status={"allocation": {"devices": {"results": [classic]}}}
    )
    made = resource_claim(
        "made", owner=make_pod("other"),
        meta={"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}},
    )  # fmt: skip
    claims = [resource_claim(f"c{i}") for i in range(2)]
    api = cluster(
        make_node("n1", cpu="4"), device_class(), device_slice("n1", device("gpu-0")),
        *claims, of_driver, made, claiming("p0", "c0", cpu="1"), claiming("p1", "c1", cpu="1"),
    )  # fmt: skip
    tried = attempts(api, "p1")
    for one in (of_driver, made):
        api.put(msgspec.structs.replace(one, status=type(one.status)()))
        api.remove(one)
        api.wait(60)
    assert tried == attempts(api, "p1")


def test_what_refuses_a_pod_where_room_came_is_waited_for() -> None:
    """The node lacks room at the only attempt; when the room is there, the device is not yet."""
    claims = [resource_claim(f"c{i}") for i in range(2)]
    first = claiming("p0", "c0", cpu="4")
    api = cluster(
        make_node("n1", cpu="4"), device_class(), device_slice("n1", device("gpu-0")), *claims,
        first, claiming("p1", "c1", cpu="4"),
    )  # fmt: skip
    assert {"p0": "n1"} == api.bound
    assert "Insufficient cpu" in api.messages["p1"]
    tried = attempts(api, "p1")
    api.remove(first)
    api.wait(60)
    assert tried == attempts(api, "p1")
    held = api.get(claims[0])
    api.put(msgspec.structs.replace(held, status=type(held.status)()))
    api.wait(60)
    assert "n1" == api.bound["p1"]


def test_a_promised_device_is_nobody_else_s() -> None:
    claims = [resource_claim(f"c{i}") for i in range(3)]
    promised = claiming(
        "promised", "c0", nominated="n1", priority=10, schedulingGates=[{"name": "later"}]
    )
    pods = [claiming(f"p{i}", f"c{i}") for i in (1, 2)]
    two = device_slice("n1", device("gpu-0"), device("gpu-1"))
    api = cluster(make_node("n1"), device_class(), two, *claims, promised, *pods)
    assert {"p1": "n1"} == api.bound


@pytest.mark.behaviour("S3.7")
def test_a_group_is_searched_only_when_enough_room_may_have_come() -> None:
    holders = [make_pod(f"h{i}", cpu="1", node=f"n{i % 4}") for i in range(8)]
    nodes = [make_node(f"n{i}", cpu="2", labels={RACK: f"r{i // 2}"}) for i in range(4)]
    api = cluster(*nodes, *holders, make_group("g", 3, key=RACK), *members("g", 3, cpu="1"))
    tried = attempts(api, "g-0")
    for i in (0, 2, 1, 3):  # two in each rack
        api.remove(holders[i])
        api.wait(60)
    assert tried == attempts(api, "g-0")
    api.remove(holders[4])
    api.wait(60)
    assert {"n0", "n1"} == set(api.bound.values())


@pytest.mark.behaviour("S3.7")
def test_a_group_that_no_eviction_helps_is_not_searched_for_those_who_could_be_evicted() -> None:
    """Its devices are held by pods as important as it is."""
    claims = [resource_claim(f"c{i}") for i in range(4)]
    holders = [claiming(f"h{i}", f"c{i}", priority=9, cpu="1") for i in range(2)]
    low = [make_pod(f"low{i}", cpu="1", node="n1") for i in range(2)]
    slices = device_slice("n1", device("gpu-0"), device("gpu-1"))
    pods = members("g", 2, cpu="1", priority=9)
    pods = [
        msgspec.structs.replace(
            pod,
            spec=msgspec.structs.replace(
                pod.spec, resource_claims=claiming("x", f"c{i}").spec.resource_claims
            ),
        )
        for i, pod in enumerate(pods, 2)
    ]
    api = cluster(make_node("n1", cpu="16"), device_class(), slices, *claims, *holders)
    for obj in (*low, make_group("g", 2), *pods):
        api.put(obj)
    assert {"h0", "h1"} == set(api.bound)
    tried = attempts(api, "g-0")
    for pod in low:
        api.remove(pod)
        api.wait(60)
    assert tried == attempts(api, "g-0")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_group_is_placed_as_soon_as_a_rack_has_room_for_it(seed: int) -> None:
    """Pods end one after another; some are less important than the group, which evicts nobody."""
    chance = np.random.default_rng(seed)
    size, count, wants = chance.integers(2, 6), chance.integers(2, 6), int(chance.integers(1, 4))
    nodes = [make_node(f"n{i}", cpu=f"{size}", labels={RACK: f"r{i % 2}"}) for i in range(4)]
    held = [
        make_pod(f"h{i}-{k}", cpu="1", node=f"n{i}", priority=int(chance.choice((0, 9))))
        for i in range(4)
        for k in range(size)
    ]
    pods = members("g", int(count), cpu=f"{wants}", priority=9, preemptionPolicy="Never")
    group = make_group("g", int(count), key=RACK, preemptionPolicy="Never")
    api = cluster(*nodes, *held, group, *pods)
    free = [0] * 4
    for i in chance.permutation(len(held)):
        racks = [sum(free[n] // wants for n in range(4) if n % 2 == r) for r in range(2)]
        assert (max(racks) >= count) == bool(api.bound)
        if api.bound:
            return
        api.remove(held[i])
        free[i // size] += 1
        api.wait(60)


def evicted(api: Agreeing) -> list[str]:
    return [write.name for write in api.writes if isinstance(write, DeletePod)]


HOST = "kubernetes.io/hostname"


def avoiding(key: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize(("key", "where"), [(HOST, "n1"), ("zone", "n2")])
def test_what_would_refuse_a_preemptor_after_evictions_is_waited_for(key: str, where: str) -> None:
    """The node lacks room; without the pod that leaves room, a more important one is in the way."""
    nodes = [make_node(n, cpu="4", labels={HOST: n, "zone": "z"}) for n in ("n1", "n2")]
    low = make_pod("low", cpu="4", node="n1")
    full = make_pod("full", cpu="4", node="n2", priority=99)
    top = make_pod("top", cpu=None, memory=None, node=where, priority=99, labels={"app": "x"})
    pod = make_pod("p", cpu="4", priority=50, affinity=avoiding(key))
    api = cluster(*nodes, low, full, top, pod)
    assert [] == evicted(api)
    api.remove(top)
    api.wait(60)
    assert ["low"] == evicted(api)


@pytest.mark.parametrize("is_group_important", [False, True])
def test_pods_that_leave_as_a_whole_are_as_important_as_their_group(
    is_group_important: bool,
) -> None:
    group = make_group("v", 1, priority=100, disruptionMode={"all": {}})
    one = {"node": "n1", "schedulingGroup": {"podGroupName": "v"}}
    if is_group_important:  # what is left of it may not be evicted
        there = [make_pod("a", cpu="6", **one), make_pod("b", cpu="2", node="n1", priority=10)]
        leaves, size, wants = make_pod("d", cpu="4", node="n1", priority=60), "12", "6"
    else:  # its last pod leaves
        there = [make_pod("b", cpu="2", node="n1", priority=10)]
        leaves, size, wants = make_pod("d", cpu="2", **one), "4", "4"
    api = cluster(make_node("n1", cpu=size), group, *there, leaves)
    api.put(make_pod("p", cpu=wants, priority=50))
    assert [] == evicted(api)
    api.remove(leaves)
    api.wait(60)
    assert ["b"] == evicted(api)


def test_pods_that_differ_only_in_their_preemption_policy_are_told_apart() -> None:
    there = [make_pod("low", cpu="2", node="n1"), make_pod("top", cpu="2", node="n1", priority=99)]
    never = make_pod("never", cpu="3", priority=50, preemptionPolicy="Never")
    api = cluster(make_node("n1", cpu="4"), *there, never, make_pod("may", cpu="3", priority=50))
    api.remove(there[1])
    api.wait(60)
    assert ["low"] == evicted(api)


def test_a_group_of_two_sizes_is_placed_as_soon_as_both_fit_together() -> None:
    """Each size alone would fit before: amounts are missing, not places."""
    held = [make_pod(f"h{i}", cpu="1", node="n1") for i in range(2)]
    pods = [*members("g", 1, cpu="3"), *members("g", 1, first=1, cpu="2")]
    api = cluster(make_node("n1", cpu="6"), *held, make_group("g", 2), *pods)
    assert {} == api.bound
    api.remove(held[0])
    api.wait(60)
    assert 2 == len(api.bound)


def test_a_group_of_which_some_pods_fit_is_placed_as_soon_as_these_do() -> None:
    low = make_pod("low", cpu="4", node="n1", priority=9)
    sizes = [*members("g", 2, cpu="3", priority=9), *members("g", 2, first=2, cpu="2", priority=9)]
    nodes = [make_node(n, cpu="4") for n in ("n1", "n2")]
    api = cluster(*nodes, low, make_group("g", 3, priority=9), *sizes)
    assert ({}, []) == (api.bound, evicted(api))
    api.remove(low)
    api.wait(60)
    assert 3 == len(api.bound)


def test_a_nomination_that_is_taken_back_wakes_those_that_lacked_the_device() -> None:
    claims = [resource_claim(f"c{i}") for i in range(2)]
    promised = claiming(
        "promised", "c0", nominated="n1", priority=10, schedulingGates=[{"name": "later"}]
    )
    one = device_slice("n1", device("gpu-0"))
    api = cluster(make_node("n1"), device_class(), one, *claims, promised, claiming("p1", "c1"))
    assert {} == api.bound
    api.remove(promised)
    api.wait(60)
    assert {"p1": "n1"} == api.bound
