"""Queueing hints: for each plugin, an event that wakes a pod it refused, and one that does not.

Source: EventsToRegister and the isSchedulableAfter... functions of kube-scheduler's plugins.
"""

from typing import Any, NamedTuple

import msgspec
import pytest

from stower.assembly import build_engine
from stower.framework.events import Listed, Observed, WatchType
from stower.framework.plugin import Plugin
from stower.model.kinds import ApiObject, Node, VolumeAttachment
from stower.plugins import PLUGINS
from tests.builders import make_node, make_pod
from tests.unit.engine.test_volumes import claim, limits, storage_class, volume
from tests.unit.engine.test_volumes import pod as volume_pod

ADDED, MODIFIED, DELETED = WatchType.ADDED, WatchType.MODIFIED, WatchType.DELETED
ZONE = "topology.kubernetes.io/zone"


class Case(NamedTuple):
    """What there is, the pod that waits, an event that wakes it, one that does not."""

    there: tuple[Any, ...]
    pod: Any
    wakes: tuple[WatchType, Any]
    near_miss: tuple[WatchType, Any]


def web(name: str, node: str = "", **fields: Any) -> Any:
    return make_pod(name, node=node, labels={"app": "web"}, **fields)


def taint(*keys: str) -> list[dict[str, str]]:
    return [{"key": key, "effect": "NoSchedule"} for key in keys]


def spread() -> list[dict[str, Any]]:
    selector = {"matchLabels": {"app": "web"}}
    return [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": selector}]  # fmt: skip


def term(kind: str, **labels: str) -> dict[str, Any]:
    required = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}]
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def declaring(*features: str) -> Node:
    node = make_node("n1")
    status = msgspec.structs.replace(node.status, declared_features=features)
    return msgspec.structs.replace(node, status=status)


RESTARTING = [
    {"name": "c", "image": "i", "restartPolicyRules": [{"action": "RestartAllContainers"}]}
]
ZONE_A, ZONE_B = ({"labels": {ZONE: zone, "kubernetes.io/hostname": f"n{i}"}}
                  for i, zone in enumerate("ab", 1))  # fmt: skip
HOST = {"labels": {"kubernetes.io/hostname": "n1"}}
NOISY = {"app": "db", "role": "noisy"}
CSI = {"csi": {"driver": "d", "volumeHandle": "a"}}
OTHER_CSI = {"csi": {"driver": "d", "volumeHandle": "b"}}
ATTACHED = msgspec.convert(
    {"metadata": {"name": "va", "uid": "va"}, "spec": {"attacher": "d", "nodeName": "n1",
     "source": {"persistentVolumeName": "a"}}}, VolumeAttachment,
)  # fmt: skip
FULL = (make_node("n1"), storage_class(), limits(1), volume("a", **CSI), volume("b", **OTHER_CSI),
        claim("a", bound="a"), claim("b", bound="b"))  # fmt: skip


def zoned(name: str, zone: str) -> Any:
    made = volume(name)
    meta = msgspec.structs.replace(made.metadata, labels={ZONE: zone}, resource_version=zone)
    return msgspec.structs.replace(made, metadata=meta)


CASES: dict[str, list[Case]] = {
    "NodeUnschedulable": [
        Case(
            (make_node("n1", unschedulable=True),),
            make_pod(),
            (MODIFIED, make_node("n1")),
            (ADDED, make_node("n2", unschedulable=True)),
        )
    ],
    "TaintToleration": [
        Case(
            (make_node("n1", taints=taint("a", "b")),),
            make_pod(),
            (MODIFIED, make_node("n1")),
            (MODIFIED, make_node("n1", taints=taint("a"))),
        )
    ],
    "NodeAffinity": [
        Case(
            (make_node("n1", labels={"disk": "hdd"}),),
            make_pod(nodeSelector={"disk": "ssd"}),
            (MODIFIED, make_node("n1", labels={"disk": "ssd"})),
            (MODIFIED, make_node("n1", labels={"disk": "nvme"})),
        )
    ],
    "NodePorts": [
        Case(
            (make_node("n1"), make_pod("a", node="n1", ports=[80]),
             make_pod("b", node="n1", ports=[443])),
            make_pod(ports=[80]),
            (DELETED, make_pod("a", node="n1", ports=[80])),
            (DELETED, make_pod("b", node="n1", ports=[443])),
        )
    ],
    "NodeResourcesFit": [
        Case(
            (make_node("n1", cpu="1"),),
            make_pod(cpu="2"),
            (MODIFIED, make_node("n1", cpu="2")),
            (MODIFIED, make_node("n1", cpu="1500m")),
        ),
        Case(
            (make_node("n1", cpu="2"), make_pod("a", node="n1", cpu="1500m")),
            make_pod(cpu="1", memory=None),
            (MODIFIED, make_pod("a", node="n1", cpu="500m")),
            (MODIFIED, make_pod("a", node="n1", cpu="1500m", memory="1Mi")),
        ),
    ],
    "VolumeRestrictions": [
        Case(
            (make_node("n1"), storage_class(), volume("v"),
             claim(bound="v", accessModes=["ReadWriteOncePod"]),
             volume_pod("first", node="n1"), make_pod("other", node="n1")),
            volume_pod("second"),
            (DELETED, volume_pod("first", node="n1")),
            (DELETED, make_pod("other", node="n1")),
        )
    ],
    "NodeVolumeLimits": [
        Case(
            (*FULL, volume_pod("there", "a", node="n1")),
            volume_pod("p1", "b"),
            (MODIFIED, limits(2)),
            (MODIFIED, limits(1)),
        ),
        Case(
            (*FULL, volume_pod("there", "a", node="n1"), make_pod("other", node="n1")),
            volume_pod("p1", "b"),
            (DELETED, volume_pod("there", "a", node="n1")),
            (DELETED, make_pod("other", node="n1")),
        ),
        Case(
            (*FULL, ATTACHED),
            volume_pod("p1", "b"),
            (DELETED, ATTACHED),
            (ADDED, claim("c")),
        ),
    ],
    "VolumeBinding": [
        Case(
            (make_node("n1"), storage_class(allowedTopologies=[{"matchLabelExpressions": [
                {"key": ZONE, "values": ["a"]}]}]), claim()),
            volume_pod(),
            (MODIFIED, storage_class()),
            (MODIFIED, storage_class(allowedTopologies=[{"matchLabelExpressions": [
                {"key": ZONE, "values": ["a"]}]}], reclaimPolicy="Retain")),
        ),
        Case(
            (make_node("n1"), storage_class()),
            volume_pod(),
            (ADDED, claim(bound="v")),
            (ADDED, claim("other", bound="v")),
        ),
    ],
    "VolumeZone": [
        Case(
            (make_node("n1", **ZONE_A), storage_class(), claim(bound="v"), zoned("v", "b")),
            volume_pod(),
            (MODIFIED, zoned("v", "a")),
            (ADDED, storage_class("other", "Immediate")),
        )
    ],
    "PodTopologySpread": [
        Case(
            (make_node("n1", **ZONE_A), make_node("n2", taints=taint("a"), **ZONE_B),
             web("a", "n1"), web("x", "n1", namespace="other")),
            web("p1", topologySpreadConstraints=spread()),
            (DELETED, web("a", "n1")),
            (DELETED, web("x", "n1", namespace="other")),
        ),
    ],
    "InterPodAffinity": [
        Case(
            (make_node("n1", **HOST), make_pod("a", node="n1", labels=NOISY)),
            make_pod(affinity=term("podAntiAffinity", role="noisy")),
            (MODIFIED, make_pod("a", node="n1", labels={"app": "db"})),
            (MODIFIED, make_pod("a", node="n1", labels={**NOISY, "x": "y"})),
        ),
        Case(
            (make_node("n1", **HOST),),
            make_pod(affinity=term("podAffinity", app="db")),
            (ADDED, make_pod("a", node="n1", labels={"app": "db"})),
            (ADDED, make_pod("a", node="n1", labels={"app": "web"})),
        ),
        Case(
            (make_node("n1", **HOST), make_pod("a", node="n1",
                                               affinity=term("podAntiAffinity", app="web"))),
            web("p1"),
            (ADDED, make_node("n2", labels={"kubernetes.io/hostname": "n2"})),
            (ADDED, make_pod("b", node="n1", labels={"app": "web"})),
        ),
    ],
    "NodeDeclaredFeatures": [
        Case(
            (make_node("n1"),),
            make_pod(containers=RESTARTING),
            (MODIFIED, declaring("RestartAllContainersOnContainerExits")),
            (MODIFIED, declaring("ExtendWebSocketsToKubelet")),
        )
    ],
    "SchedulingGates": [
        Case(
            (make_node("n1"),),
            make_pod(schedulingGates=[{"name": "a"}, {"name": "b"}]),
            (MODIFIED, make_pod()),
            (MODIFIED, make_pod(schedulingGates=[{"name": "a"}])),
        )
    ],
}  # fmt: skip
# NodeName's pods go to no queue (they have a node), AutoscaleEnforcer, NominatedVms and GroupMaking
# are in no default profile (their cases: tests/vms/test_placement.py,
# tests/unit/controllers/test_group_makers.py), and the others refuse nobody.
WITHOUT = {
    "GroupMaking", "PrioritySort", "NodeName", "NodeResourcesBalancedAllocation", "ImageLocality",
    "DynamicResources", "NegotiatedResources", "DefaultPreemption", "DefaultBinder",
    "Fragmentation", "AutoscaleEnforcer", "NominatedVms", "ImageReadiness", "WarmCapacity",
    "PendingClass",
}  # fmt: skip


def attempts(there: tuple[ApiObject, ...], pod: Any, event: tuple[WatchType, Any]) -> int:
    """How often the pod was tried when all is over."""
    engine = build_engine()
    engine.step(Listed(there), 0)
    engine.step(Observed(ADDED, pod), 0)
    waiting = engine.queue.get(pod.metadata.uid)
    assert waiting is not None
    before = waiting.attempts
    type, obj = event
    engine.step(Observed(type, obj), 1)
    queued = engine.queue.get(pod.metadata.uid)
    assert queued is not None
    return queued.attempts - before


@pytest.mark.parametrize(
    ("plugin", "case"), [(name, case) for name, cases in CASES.items() for case in cases]
)
def test_the_right_event_wakes_and_a_near_miss_does_not(plugin: str, case: Case) -> None:
    assert 1 == attempts(case.there, case.pod, case.wakes)
    assert 0 == attempts(case.there, case.pod, case.near_miss)


def test_every_plugin_that_can_refuse_has_its_case() -> None:
    built: set[type[Plugin]] = set(PLUGINS)
    assert {plugin.name for plugin in built} == {*CASES, *WITHOUT}


@pytest.mark.parametrize(("plugin", "case"), [(name, cases[0]) for name, cases in CASES.items()])
def test_the_pod_of_a_case_is_refused_by_the_plugin_that_it_is_about(
    plugin: str, case: Case
) -> None:
    engine = build_engine()
    engine.step(Listed(case.there), 0)
    engine.step(Observed(ADDED, case.pod), 0)
    queued = engine.queue.get(case.pod.metadata.uid)
    assert queued is not None
    assert plugin in queued.refused_by
