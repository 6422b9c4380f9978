"""Pools as nodes reach them while they change, and rules that taint devices."""

from typing import Any

import pytest

from tests.builders import make_node
from tests.device_builders import (
    GPU,
    claiming,
    device,
    device_slice,
    request,
    resource_claim,
    taint_rule,
)
from tests.device_search import counted, found, part
from tests.unit.engine.test_devices import cluster

NEEDS: Any = {"bindingConditions": ["a.b/attached"], "bindingFailureConditions": ["a.b/failed"]}


def on(node: str, name: str, *devices: str, **more: Any) -> Any:
    """A slice on a node, of a pool that has slices on other nodes too."""
    return part(device_slice(node, *map(device, devices), pool="p"), name, **more)


@pytest.mark.behaviour("S2.38")
@pytest.mark.parametrize(("count", "expected"), [(1, ["a"]), (2, ["a"]), (3, None)])
def test_a_pool_is_all_there_where_a_node_or_everybody_has_all_its_slices(
    count: int, expected: list[str] | None
) -> None:
    slices = on("n1", "s1", "a", count=count), on("n2", "s2", "b", count=count)
    assert expected == found(*slices, resource_claim())


@pytest.mark.behaviour("S2.38")
@pytest.mark.parametrize(("count", "expected"), [(1, ["a"]), (2, None)])
def test_an_older_generation_is_used_where_a_node_has_all_of_it(
    count: int, expected: list[str] | None
) -> None:
    """Half of it may have been replaced by the newer one, which has arrived elsewhere."""
    old = on("n1", "s1", "a", count=count), on("n2", "s2", "b", count=count)
    new = on("n2", "s3", "c", count=1, generation=2)
    assert expected == found(*old, new, resource_claim())
    assert ["c"] == found(*old, new, resource_claim(), node=make_node("n2"))


@pytest.mark.parametrize(
    ("counter", "reason"),
    [
        ("memory", "1 cannot allocate all claims"),
        ("cores", "1 invalid resource pools were encountered"),
    ],
)
def test_counters_that_do_not_fit_together_are_told_on_nodes_without_devices(
    counter: str, reason: str
) -> None:
    """The device on n2 takes of a counter that there is, or is not."""
    has = [{"name": "set", "counters": {"memory": {"value": "8Gi"}}}]
    pool = (
        part(device_slice("n2", counted("a", "1", counter), pool="p"), "devices"),
        part(device_slice("n2", pool="p", sharedCounters=has), "counters"),
    )
    api = cluster(*pool, resource_claim(), claiming(), nodes=("n1",))
    assert api.messages["p1"].startswith(f"0/1 nodes are available: {reason}.")


@pytest.mark.behaviour("S2.35")
def test_a_rule_taints_the_devices_of_the_pool_that_it_names() -> None:
    slices = device_slice("n1", device("a"), pool="p"), device_slice("n1", device("b"), pool="q")
    rule = taint_rule("sick", "NoSchedule", driver=GPU, pool="p")
    assert ["b"] == found(*slices, rule, resource_claim())
    assert ["a"] == found(*slices, resource_claim())


@pytest.mark.behaviour("S2.36")
def test_pools_with_devices_that_must_be_bound_come_last() -> None:
    needy = device_slice("n1", device("a", **NEEDS), pool="p")
    free = device_slice("n1", device("b"), pool="q")
    assert ["b"] == found(needy, free, resource_claim())
    assert ["b", "a"] == found(needy, free, resource_claim("c1", request(count=2)))
