"""Resources that no node offers: pods that ask for thousands of them cost little, and are placed
once they are offered."""

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.framework.decisions import Outcome
from stower.framework.events import Listed, Observed, WatchType
from stower.framework.writes import Bind
from stower.model.kinds import Node, Pod
from stower.state.shapes import OTHERS, RESOURCES_MAX
from tests.builders import make_node, make_pod
from tests.device_builders import device_class

SECOND_NS = 10**9
MANY = 1_000


def pod_asking(name: str, *resources: str, node: str = "") -> Pod:
    """A pod that requests one of each resource."""
    amounts = {"cpu": "100m", **dict.fromkeys(resources, "1")}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts}}
    spec = {"schedulerName": "default-scheduler", "containers": [container], "nodeName": node}
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": spec},
        Pod,
    )


def made_up(prefix: str = "a", count: int = MANY) -> list[str]:
    return [f"example.com/{prefix}{i:04}" for i in range(count)]


def node_with(name: str, *resources: str) -> Node:
    """A node that offers one of each resource, for one pod."""
    node = make_node(name, cpu="4", memory="8Gi")
    amounts = {**(node.status.allocatable or {}), **dict.fromkeys(resources, "1")}
    return msgspec.structs.replace(
        node, status=msgspec.structs.replace(node.status, allocatable=amounts)
    )


class World:
    """An engine, and the time."""

    def __init__(self, *objects: Any) -> None:
        self.engine: Engine = build_engine(None)
        self.now_ns = 0
        self.binds: list[tuple[str, str]] = []
        self._take(self.engine.step(Listed(objects), 0))

    def show(self, obj: Any, change: WatchType = WatchType.ADDED) -> None:
        self.now_ns += 20 * SECOND_NS
        self._take(self.engine.step(Observed(change, obj), self.now_ns))

    def _take(self, writes: list[Any]) -> None:
        self.binds += [(w.name, w.node_name) for w in writes if isinstance(w, Bind)]

    def outcome(self) -> tuple[Outcome, str]:
        decision = [*self.engine.drain()][-1]
        return decision.outcome, decision.message


def test_what_is_missing_is_named_as_far_as_a_message_goes() -> None:
    world = World(make_node("n1"), make_node("n2"))
    world.show(pod_asking("p", *made_up()))
    outcome, message = world.outcome()
    assert Outcome.UNSCHEDULABLE is outcome
    assert message.startswith("0/2 nodes are available: 2 Insufficient example.com/a0000, ")
    assert "2 Insufficient other resources" in message
    assert RESOURCES_MAX - 1 + 1 == message.count("Insufficient"), "cpu is there"


def test_no_more_columns_are_made_than_a_message_can_name() -> None:
    world = World(make_node("n1"))
    before = set(world.engine.state.columns)
    world.show(pod_asking("p", *made_up()))
    assert before == set(world.engine.state.columns), "nobody offers or takes them"
    shape = next(iter(world.engine.state.pods.values())).shape
    assert shape.is_partial
    assert RESOURCES_MAX + 1 == len(shape.requests)
    assert OTHERS == shape.requests[-1][0].name


@pytest.mark.parametrize("known_before", [False, True])
@pytest.mark.parametrize("count", [3, RESOURCES_MAX - 1, RESOURCES_MAX, MANY])
def test_a_pod_is_placed_once_a_node_offers_all(count: int, known_before: bool) -> None:
    names = made_up(count=count)
    offering = node_with("n2", *names)
    world = World(make_node("n1"), *([offering] if known_before else []))
    world.show(pod_asking("p", *names))
    if not known_before:
        assert [] == world.binds
        world.show(node_with("n3", *names[:-1]))
        assert [] == world.binds, "one is missing"
        world.show(offering)
    assert [("p", "n2")] == world.binds
    world.show(pod_asking("q", names[-1]))
    assert Outcome.UNSCHEDULABLE is world.outcome()[0], "the first pod has taken it"


def test_a_node_that_changes_may_offer_them() -> None:
    names = made_up()
    world = World(make_node("n1", cpu="4", memory="8Gi"))
    world.show(pod_asking("p", *names))
    world.show(node_with("n1", *names), WatchType.MODIFIED)
    assert [("p", "n1")] == world.binds


def test_what_a_placed_pod_takes_counts_as_soon_as_it_is_offered() -> None:
    names = made_up()
    world = World(make_node("n1", cpu="4", memory="8Gi"))
    world.show(pod_asking("placed", *names, node="n1"))
    world.show(node_with("n1", *names), WatchType.MODIFIED)
    world.show(pod_asking("p", names[-1]))
    assert Outcome.UNSCHEDULABLE is world.outcome()[0]
    world.show(pod_asking("placed", *names, node="n1"), WatchType.DELETED)
    assert [("p", "n1")] == world.binds


def test_a_device_class_may_offer_the_last_of_them() -> None:
    names = made_up(count=RESOURCES_MAX)
    world = World(node_with("n1", *names[:-1]))
    world.show(pod_asking("p", *names))
    (entry,) = world.engine.state.pods.values()
    assert entry.shape.is_partial
    world.show(device_class("gpu", extendedResourceName=names[-1]))
    assert not entry.shape.is_partial
    assert names[-1] in {column.name for column, _ in entry.shape.extended_requests}


def test_a_pod_costs_little_more_than_itself() -> None:
    world = World(*(make_node(f"n{i}") for i in range(100)))
    pods = [pod_asking(f"p{n}", *made_up(f"{n}-", 2_000)) for n in range(20)]
    for pod in pods[:2]:
        world.show(pod)
    gc.collect()
    tracemalloc.start()
    for pod in pods[2:]:
        world.show(pod)
    world.engine.drain()
    gc.collect()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 18 * 60_000, f"{grown / 18:.0f} bytes a pod, beside the pod itself"


def test_columns_of_resources_go_when_neither_nodes_nor_pods_use_them() -> None:
    world = World(make_node("n1"))
    for i in range(600):
        world.show(node_with("other", f"example.com/r{i}"), WatchType.MODIFIED)
    assert len(world.engine.state.columns) < 300
    world.show(make_pod("p", cpu="100m"))
    assert ["p"] == [name for name, _ in world.binds]
