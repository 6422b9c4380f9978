"""The autoscaler of a simulation, by the real one's rules."""

from typing import Any

import msgspec
import pytest

from stower.model.kinds import Node, Pod
from stower.model.kinds.node import NodeSpec
from stower.model.taints import Taint
from stower.model.times import SECOND_NS
from stower.sim.autoscaler import UNNEEDED_NS, Autoscaler, Machine, NodeGroup
from stower.sim.server import Server

ROOM: dict[str, str | int | float] = {"cpu": "10", "memory": "10Gi", "pods": "110"}
SMALL = NodeGroup("small", {**ROOM, "cpu": "4"}, price_per_hour=1.0)
LARGE = NodeGroup("large", ROOM, price_per_hour=2.0)
STATEFUL = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s",
            "controller": True}  # fmt: skip


class Cloud:
    """A server, and whoever orders nodes for it, which are there at once."""

    def __init__(self, *groups: NodeGroup) -> None:
        self.now_ns = 10_000 * SECOND_NS
        self.server = Server(lambda: self.now_ns)
        self.removed: list[str] = []
        self.autoscaler = Autoscaler(self.server, groups, self.order, self._remove)
        self.boots_ns = 0

    def order(self, group: NodeGroup, name: str = "", **meta: Any) -> str:
        name = name or f"{group.name}-{len(self.autoscaler.machines)}"
        ready_ns = self.now_ns + self.boots_ns
        self.autoscaler.machines[name] = Machine(name, group, self.now_ns, ready_ns, ready_ns)
        document = {"metadata": {"name": name, "uid": name, **meta}}
        self.server.put(msgspec.convert(document, Node))
        return name

    def _remove(self, machine: Machine) -> None:
        self.removed.append(machine.name)

    def pod(self, name: str, node: str = "", cpu: str = "1", **more: Any) -> None:
        meta = {"name": name, "namespace": "default", "uid": name, **more.pop("metadata", {})}
        requests = {"cpu": cpu, "memory": "1Gi"}
        spec = {"containers": [{"name": "c", "resources": {"requests": requests}}],
                "nodeName": node, **more}  # fmt: skip
        self.server.put(msgspec.convert({"metadata": meta, "spec": spec}, Pod))

    def scan(self, seconds: int = 10) -> list[str]:
        self.now_ns += seconds * SECOND_NS
        self.autoscaler.scan(self.now_ns)
        return list(self.autoscaler.machines)


def movable(**more: Any) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [STATEFUL], **more}}


def test_nothing_is_added_for_pods_that_fit_or_for_which_a_node_is_coming() -> None:
    cloud = Cloud(SMALL)
    cloud.order(SMALL, "there")
    for i in range(4):
        cloud.pod(f"p{i}")
    assert ["there"] == cloud.scan()
    cloud.boots_ns = 300 * SECOND_NS
    cloud.pod("p4")
    assert ["there", "small-1"] == cloud.scan() == cloud.scan()


def cordoned(cloud: Cloud, name: str, **spec: Any) -> None:
    node = cloud.server.get(Node, name)
    cloud.server.put(msgspec.structs.replace(node, spec=msgspec.convert(spec, NodeSpec)))


@pytest.mark.parametrize(
    "spec",
    [{"unschedulable": True}, {"taints": [{"key": "upgrade", "effect": "NoSchedule"}]}],
)
def test_a_cordoned_node_is_no_room(spec: dict[str, Any]) -> None:
    """Neither for pods that wait nor for those of a node that could go."""
    cloud = Cloud(SMALL)
    cordoned(cloud, cloud.order(SMALL, "there"), **spec)
    cloud.pod("waits")
    assert ["there", "small-1"] == cloud.scan()
    cloud.pod("waits", "small-1", **movable())
    assert ["there", "small-1"] == cloud.scan(int(UNNEEDED_NS / SECOND_NS) - 10)
    assert ["small-1"] == cloud.scan()  # nothing is there
    cordoned(cloud, cloud.order(SMALL, "other"), **spec)
    cloud.pod("rests", "other", "3", **movable())  # more than half of it
    for _ in range(2):
        assert ["small-1", "other"] == cloud.scan(int(UNNEEDED_NS / SECOND_NS))


@pytest.mark.behaviour("S1.3", "S1.4")
def test_as_many_nodes_as_are_needed_of_the_group_that_takes_them_for_least() -> None:
    cloud = Cloud(SMALL, LARGE)
    for i in range(11):
        cloud.pod(f"p{i}")
    assert ["large-0", "small-1"] == cloud.scan()


def test_selectors_and_taints_say_which_group_will_do() -> None:
    tainted = msgspec.structs.replace(SMALL, taints=(Taint("own", "", "NoSchedule"),))
    labelled = NodeGroup("gpu", ROOM, labels={"kind": "gpu"}, price_per_hour=9)
    cloud = Cloud(tainted, labelled)
    cloud.pod("p", nodeSelector={"kind": "gpu"})
    assert ["gpu-0"] == cloud.scan()
    cloud.pod("tolerates", tolerations=[{"key": "own", "operator": "Exists"}], cpu="3")
    cloud.pod("fills", node="gpu-0", cpu="9")
    assert ["gpu-0", "small-1"] == cloud.scan()


@pytest.mark.behaviour("S1.31")
def test_never_more_than_the_group_may_have() -> None:
    cloud = Cloud(msgspec.structs.replace(SMALL, max=2))
    for i in range(20):
        cloud.pod(f"p{i}")
    assert 2 == len(cloud.scan()) == len(cloud.scan())


@pytest.mark.behaviour("S1.28")
def test_a_node_below_half_use_goes_after_ten_minutes() -> None:
    cloud = Cloud(SMALL)
    for name in ("a", "b"):
        cloud.order(SMALL, name)
    cloud.pod("on-a", "a", "3", **movable())
    cloud.pod("on-b", "b", "1", **movable())
    cloud.scan()
    assert ["a", "b"] == cloud.scan(UNNEEDED_NS // SECOND_NS - 20)
    assert ["a"] == cloud.scan(20)
    assert ["b"] == cloud.removed


@pytest.mark.parametrize(
    "why",
    [
        {},  # nobody makes it again
        movable(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
        {**movable(), "cpu": "2"},  # half of it is in use
        {**movable(), "nodeSelector": {"kind": "b"}},  # it fits nowhere else
    ],
)
def test_not_one_whose_pods_have_to_stay(why: dict[str, Any]) -> None:
    cloud = Cloud(SMALL)
    for name in ("a", "b"):
        cloud.order(SMALL, name)
    cloud.pod("on-a", "a", "2")
    cloud.pod("on-b", "b", **why)
    cloud.scan()
    assert ["a", "b"] == cloud.scan(2_000)


def test_those_of_daemon_sets_do_not_count_and_annotations_do() -> None:
    cloud = Cloud(SMALL)
    kept = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    for name, notes in (("a", {}), ("b", {}), ("c", kept)):
        cloud.order(SMALL, name, annotations=notes)
    cloud.pod("on-a", "a", "2")
    owner = [{**STATEFUL, "kind": "DaemonSet"}]
    for name in ("b", "c"):
        cloud.pod(f"puller-{name}", name, "3", metadata={"ownerReferences": owner})
    cloud.pod("safe", "b", "0", metadata={
        "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}})  # fmt: skip
    cloud.scan()
    assert ["a", "c"] == cloud.scan(2_000)


def test_nothing_goes_soon_after_something_was_added_nor_below_the_least() -> None:
    group = msgspec.structs.replace(SMALL, min=1)
    cloud = Cloud(group)
    for name in ("a", "b"):
        cloud.order(group, name)
    cloud.scan()
    for i in range(9):
        cloud.pod(f"p{i}")
    assert 3 == len(cloud.scan(595))
    for i in range(9):
        cloud.server.remove(cloud.server.get(Pod, f"default/p{i}"))
    assert 3 == len(cloud.scan(590))
    cloud.scan(700)
    assert 1 == len(cloud.scan(700))
