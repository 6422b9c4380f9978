"""Measures the worst objects that a user can create: `python -m stower.bench.hostile hostile`.

Each scenario is a cluster of 1,000 nodes and pods made to stall the scheduler. The result is the
duration of the longest step, during which no other pod is scheduled. Prints JSON.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from stower.assembly import build_engine
from stower.bench.family import Family, run_once, tell
from stower.framework.events import Event, Listed, Observed, Tick, WatchType
from stower.model.kinds import (
    DeviceClass,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    ResourceClaim,
    ResourceSlice,
    StorageClass,
)
from stower.model.raw import decode

NODES: Final = 1_000
SECOND_NS: Final = 1_000_000_000
TICKS: Final = 6  # of 5 s each, for what is tried again
Object = dict[str, Any]
Scenario = tuple[list[Any], list[Pod]]  # what is there, and what comes


class HostileResult(msgspec.Struct, frozen=True):
    """The longest step of each scenario, in seconds."""

    name: str
    nodes: int
    longest_s: float
    steps_s: dict[str, float]


FAMILY: Final = Family(
    result=HostileResult,
    best="longest_s",
    unit="s for the longest step",
    ratios={"ratio_longest": "longest_s"},
    about="duration of the longest step with pods made to stall the scheduler, 1,000 nodes",
    is_least_best=True,
)


def make_object(view: type[Any], name: str, namespace: str = "", **fields: Any) -> Any:
    """An object as its view."""
    metadata: Object = {"name": name, "namespace": namespace, "uid": f"{view.__name__}-{name}"}
    labels = fields.pop("labels", None)
    metadata |= {"labels": labels} if labels else {}
    return decode(json.dumps({"metadata": metadata, **fields}).encode(), view)


def make_node(number: int, cpu: str = "8", **spec: Any) -> Node:
    """Node n0, n1, ... in one of ten zones."""
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    labels = {"host": f"n{number}", "zone": f"z{number % 10}"}
    status = {"allocatable": amounts, "capacity": amounts}
    node: Node = make_object(Node, f"n{number}", labels=labels, status=status, spec=spec)
    return node


def make_pod(
    name: str, cpu: str = "100m", labels: Object | None = None, priority: int = 0, **spec: Any
) -> Pod:
    """A pod that waits, or with nodeName one that is placed."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": "default-scheduler", "containers": [container], **spec}
    pod: Pod = make_object(Pod, name, "default", labels=labels, spec={**spec, "priority": priority})
    return pod


def _nodes() -> list[Node]:
    return [make_node(number) for number in range(NODES)]


def _not_in(value: int) -> Object:
    return {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": [str(value)]}]}


def _placed(count: int, labels: int) -> list[Pod]:
    return [
        make_pod(f"e{i}", "10m", {"a": str(i % labels)}, i % 100, nodeName=f"n{i % NODES}")
        for i in range(count)
    ]


def _tolerations(count: int) -> Scenario:
    taints = [{"key": f"t{i}", "value": "x", "effect": "NoSchedule"} for i in range(20)]
    nodes = [make_node(number, taints=taints) for number in range(NODES)]
    return nodes, [make_pod("h", tolerations=[{"key": f"a{i}"} for i in range(count)])]


def _away(count: int) -> Scenario:
    terms = [{"labelSelector": _not_in(i), "topologyKey": "zone"} for i in range(count)]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return [*_nodes(), *_placed(5000, 50)], [make_pod("h", affinity=affinity)]


def _selectors(pods: int, each: int) -> Scenario:
    def affinity(number: int) -> Object:
        terms = [
            {"labelSelector": {"matchLabels": {f"a{number}-{i}": "b"}}, "topologyKey": "zone"}
            for i in range(each)
        ]
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}

    return _nodes(), [make_pod(f"h{i}", "1m", affinity=affinity(i)) for i in range(pods)]


def _budgets(count: int) -> Scenario:
    budgets = [
        make_object(
            PodDisruptionBudget, f"b{i}", "default",
            spec={"minAvailable": 1, "selector": _not_in(i)}, status={"disruptionsAllowed": 0},
        )
        for i in range(count)
    ]  # fmt: skip
    return [*_nodes(), *_placed(20_000, 500), *budgets], [make_pod("h", "7900m", {}, 1000)]


def _victims(count: int) -> Scenario:
    terms = [{"labelSelector": _not_in(i), "topologyKey": "zone"} for i in range(count)]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return [*_nodes(), *_placed(20_000, 20_000)], [
        make_pod("h", "7900m", {}, 1000, affinity=affinity)
    ]


def _volumes(claims: int) -> Scenario:
    mode = {"provisioner": "kubernetes.io/no-provisioner"}
    mode |= {"volumeBindingMode": "WaitForFirstConsumer"}
    there: list[Any] = [*_nodes(), make_object(StorageClass, "local", **mode)]
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
    for i in range(5 * NODES):
        host = {"key": "host", "operator": "In", "values": [f"n{i % NODES}"]}
        terms = {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}}
        spec = {**common, "capacity": {"storage": "1Gi"}, "nodeAffinity": terms}
        there.append(
            make_object(PersistentVolume, f"v{i}", spec=spec, status={"phase": "Available"})
        )
    for i in range(claims):
        spec = {**common, "resources": {"requests": {"storage": "1Gi"}}}
        there.append(make_object(PersistentVolumeClaim, f"c{i}", "default", spec=spec))
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}}
               for i in range(claims)]  # fmt: skip
    return there, [make_pod("h", volumes=volumes)]


def _devices(claims: Iterable[Object]) -> Scenario:
    there: list[Any] = [*_nodes(), make_object(DeviceClass, "any", spec={})]
    for i in range(NODES):
        devices = [
            {"name": f"g{j}", "attributes": {
                "a": {"string": str(j % 3)}, "b": {"int": j * 7 % 5}, "u": {"string": f"{i}-{j}"},
            }}
            for j in range(16)
        ]  # fmt: skip
        pool = {"name": f"n{i}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "d", "nodeName": f"n{i}", "pool": pool, "devices": devices}
        there.append(make_object(ResourceSlice, f"s{i}", spec=spec))
    names = []
    for i, devices_wanted in enumerate(claims):
        spec = {"devices": devices_wanted}
        there.append(make_object(ResourceClaim, f"c{i}", "default", spec=spec))
        names.append({"name": f"c{i}", "resourceClaimName": f"c{i}"})
    return there, [make_pod("h", resourceClaims=names)]


def long_selector(depth: int) -> str:
    """A selector of ten to the power of `depth` turns, which chooses nothing."""
    names = "abcdefgh"[:depth]
    inner = f"{' + '.join(names)} < 100"
    for name in reversed(names):
        inner = f"[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all({name}, {inner})"
    return f"!({inner})"


def _request(name: str, selector: str = "") -> Object:
    exactly: Object = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
    exactly |= {"selectors": [{"cel": {"expression": selector}}]} if selector else {}
    return {"name": name, "exactly": exactly}


def _expression() -> Scenario:
    """Ten thousand turns for each of 16,000 devices, no two of which are alike."""
    return _devices([{"requests": [_request("r", long_selector(4))]}])


def _constraints(count: int) -> Scenario:
    alike = [{"matchAttribute": "d/a"}, {"matchAttribute": "d/b"}]
    requests = [_request(f"r{i}") for i in range(count)]
    return _devices([{"requests": requests, "constraints": alike}])


def _claims(count: int) -> Scenario:
    return _devices([{"requests": [_request("r")]} for _ in range(count)])


def _resources(pods: int, each: int) -> Scenario:
    def asking(number: int) -> Pod:
        amounts = {f"example.com/r{number}-{i}": "1" for i in range(each)}
        container = {"name": "c", "image": "i", "resources": {"requests": amounts}}
        return make_pod(f"h{number}", containers=[container])

    return _nodes(), [asking(number) for number in range(pods)]


def _node_selectors(pods: int, each: int) -> Scenario:
    return _nodes(), [
        make_pod(f"h{n}", nodeSelector={f"k{n}-{i}": "v" for i in range(each)}) for n in range(pods)
    ]


def _images(pods: int, each: int) -> Scenario:
    return _nodes(), [
        make_pod(f"h{n}", containers=[{"name": f"c{i}", "image": f"i{n}-{i}"} for i in range(each)])
        for n in range(pods)
    ]


def _spread(pods: int, each: int) -> Scenario:
    def constraints(number: int) -> list[Object]:
        return [
            {"maxSkew": 1, "topologyKey": f"k{number}-{i}", "whenUnsatisfiable": "ScheduleAnyway",
             "labelSelector": {"matchLabels": {f"a{number}-{i}": "b"}}}
            for i in range(each)
        ]  # fmt: skip

    return _nodes(), [
        make_pod(f"h{n}", topologySpreadConstraints=constraints(n)) for n in range(pods)
    ]


SCENARIOS: Final[dict[str, Callable[[], Scenario]]] = {
    "10,000 tolerations": lambda: _tolerations(10_000),
    "3,000 anti-affinity terms": lambda: _away(3_000),
    "100 anti-affinity terms": lambda: _away(100),
    "300 pods with 10 selectors of their own": lambda: _selectors(300, 10),
    "300 budgets of 20,000 pods": lambda: _budgets(300),
    "100 terms, 20,000 victims, no two alike": lambda: _victims(100),
    "500 claims, 5,000 local volumes": lambda: _volumes(500),
    "80 pods with 9,000 made-up resources": lambda: _resources(80, 9_000),
    "300 pods with 300 labels of no node": lambda: _node_selectors(300, 300),
    "300 pods with 300 images of no node": lambda: _images(300, 300),
    "300 pods with 100 topology keys of no node": lambda: _spread(300, 100),
    "a selector of 10,000 turns": _expression,
    "a claim of 4 devices that cannot be alike": lambda: _constraints(4),
    "300 claims, 16 devices a node": lambda: _claims(300),
}


def longest_step_s(scenario: Scenario) -> float:
    """In seconds, from the first pod that comes to what is tried again half a minute later."""
    there, pods = scenario
    engine = build_engine(contains_errors=False)
    engine.step(Listed(tuple(there)), 0)
    now_ns, longest = 0, 0.0
    events: list[Event] = [Observed(WatchType.ADDED, pod) for pod in pods]
    for event in [*events, *(Tick() for _ in range(TICKS))]:
        now_ns += 5 * SECOND_NS if isinstance(event, Tick) else SECOND_NS // 100
        began = time.perf_counter()
        engine.step(event, now_ns)
        longest = max(longest, time.perf_counter() - began)
    engine.drain()
    return longest


def measure() -> HostileResult:
    """The whole benchmark."""
    found = {}
    for name, make in SCENARIOS.items():
        found[name] = round(longest_step_s(make()), 3)
        tell("hostile", f"{name}: {found[name]:.2f} s")
    return HostileResult("hostile", NODES, max(found.values()), found)


if __name__ == "__main__":
    run_once("hostile", measure, sys.argv[1:])
