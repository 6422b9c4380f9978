"""What stands in the way of each device, and whose departure would help."""

from typing import Any

import msgspec
import pytest

from stower.engine.explain.explanation import Explanation, explain
from stower.framework.explanation import ChangeCode, ChangeStep, ExplanationClass
from stower.model.kinds import Pod
from tests.device_builders import GPU, claiming, device, device_slice, request, resource_claim
from tests.unit.engine.test_devices import cluster

SICK = {"key": "example.com/sick", "effect": "NoSchedule"}
LARGE = [{"cel": {"expression": f'device.capacity["{GPU}"].memory.compareTo(quantity("8Gi")) > 0'}}]


NEVER, BLOCKED, *_ = ExplanationClass


def explained(pod: Pod, *objects: Any) -> Explanation:
    """Of a pod that comes when all else is settled."""
    engine = cluster(*objects, nodes=("n1",)).engine
    return explain(pod, engine.state, engine.cycle, engine.queue, engine.profiles)


def details(pod: Pod, *objects: Any) -> list[str]:
    """What there is to say beyond the reason, which is upstream's."""
    (refusal,) = explained(pod, *objects).refused
    assert ("DynamicResources", ("cannot allocate all claims",)) == (
        refusal.plugin, refusal.reasons,
    )  # fmt: skip
    return [*refusal.details]


@pytest.mark.behaviour("S2.39")
def test_each_device_is_told_with_what_is_in_its_way() -> None:
    policy = {"value": "16Gi", "requestPolicy": {"default": "1Gi", "validRange": {
        "min": "1Gi", "max": "8Gi"}}}  # fmt: skip
    devices = (
        device("held", "16Gi"),
        device("limited", shared=True, capacity={"memory": policy}),
        device("other", capacity={"cores": {"value": "4"}}),
        device("part", "16Gi", shared=True),
        device("sick", "16Gi", taints=[SICK]),
        device("small", "4Gi"),
    )
    name = [{"cel": {"expression": 'device.attributes["gpu.example.com"].id == "held"'}}]
    first = resource_claim("first", request(selectors=name))
    devices[0]["attributes"] = {"id": {"string": "held"}}
    for each in devices[1:]:
        each["attributes"] = {"id": {"string": each["name"]}}
    part = [{"cel": {"expression": 'device.attributes["gpu.example.com"].id == "part"'}}]
    second = resource_claim("second", request(selectors=part, memory="10Gi"))
    users = (claiming("u1", "first"), claiming("u2", "second"))
    pool = device_slice("n1", *devices)
    found = details(
        claiming("p1", "wanted"), pool, first, second, *users,
        resource_claim("wanted", request(memory="10Gi")),
    )  # fmt: skip
    at = f"{GPU}/n1"
    assert [
        "claim default/wanted, request r: 1 of class gpu requested, 0 of 6 are suitable",
        f"  {at}/held: allocated to default/first",
        f"  {at}/limited: its request policy does not allow a request for 10Gi of memory",
        f"  {at}/other: it has no capacity memory",
        f"  {at}/part: 6Gi of 16Gi memory is free, 10Gi is requested, "
        "the rest is allocated to default/second",
        f"  {at}/sick: taint example.com/sick:NoSchedule is not tolerated",
        f"  {at}/small: it has 4Gi of memory, 10Gi is requested",
    ] == found


@pytest.mark.behaviour("S2.39")
def test_devices_that_would_do_but_not_together_are_counted() -> None:
    pool = device_slice("n1", device("gpu-0", "16Gi"), device("gpu-1", "8Gi"))
    wanted = resource_claim("wanted", request(count=2, selectors=LARGE))
    assert [
        "claim default/wanted, request r: 2 of class gpu requested, 1 of 2 are suitable",
        f"  {GPU}/n1/gpu-1: a selector does not match",
    ] == details(claiming("p1", "wanted"), pool, wanted)


def test_alike_devices_are_told_together() -> None:
    pool = device_slice("n1", *(device(f"gpu-{i}", taints=[SICK]) for i in range(5)))
    found = details(claiming("p1", "c1"), pool, resource_claim())
    names = ", ".join(f"{GPU}/n1/gpu-{i}" for i in range(3))
    said = "taint example.com/sick:NoSchedule is not tolerated"
    assert f"  {names} and 2 more: {said}" == found[1]


def test_a_pool_that_is_not_all_there_is_told() -> None:
    pool = device_slice("n1", device("gpu-0"))
    two = msgspec.structs.replace(pool.spec.pool, resource_slice_count=2)
    pool = msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, pool=two))
    found = details(claiming("p1", "c1"), pool, resource_claim())
    assert f"  {GPU}/n1/gpu-0: not all slices of its pool are published" == found[1]


@pytest.mark.behaviour("S2.39")
def test_the_pod_that_has_the_device_is_the_smallest_change() -> None:
    pool = device_slice("n1", device("gpu-0"))
    first = resource_claim("first")
    user = claiming("u1", "first")
    found = explained(claiming("p1", "c1"), pool, first, user, resource_claim())
    (change,) = found.changes
    assert (f"{GPU}/n1/gpu-0 of n1 is allocated to default/u1",) == change.what
    assert (ChangeStep(ChangeCode.REMOVE_POD, "Pod", "default/u1"),) == change.steps
    assert ("n1", BLOCKED) == (change.node, found.class_)


def test_devices_that_are_nowhere_are_lacking_for_ever() -> None:
    """Two are asked for, and the one that there is may leave; tainted ones may become usable."""
    first, user = resource_claim("first"), claiming("u1", "first")
    two = resource_claim("c1", request(count=2))
    found = explained(claiming("p1", "c1"), device_slice("n1", device("gpu-0")), first, user, two)
    assert (NEVER, ()) == (found.class_, found.changes)
    taint = [{"key": "k", "effect": "NoSchedule"}]
    tainted = device_slice("n1", device("gpu-0", taints=taint))
    assert BLOCKED is explained(claiming("p1", "c1"), tainted, resource_claim()).class_


def test_a_device_that_is_not_published_any_more_is_no_obstacle_to_telling() -> None:
    """Its claim stays, and what it draws is not known any more."""
    counters = [{"name": "gpu", "counters": {"cores": {"value": "4"}}}]
    draws = [{"counterSet": "gpu", "counters": {"cores": {"value": "8"}}}]
    large = device("large", consumesCounters=draws)
    result = {"request": "r", "driver": GPU, "pool": "n1", "device": "gone"}
    held = resource_claim("held", status={"allocation": {"devices": {"results": [result]}}})
    pool = device_slice("n1", large)
    two = msgspec.structs.replace(pool.spec.pool, resource_slice_count=2)
    pool = msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, pool=two))
    sets = device_slice("n1", sharedCounters=counters)
    meta = msgspec.structs.replace(sets.metadata, name="counters", uid="counters")
    spec = msgspec.structs.replace(sets.spec, pool=two, devices=None)
    sets = msgspec.structs.replace(sets, metadata=meta, spec=spec)
    found = details(claiming("p1", "c1"), pool, sets, held, resource_claim())
    assert f"  {GPU}/n1/large: too little of cores is free in counter set gpu" == found[1]
