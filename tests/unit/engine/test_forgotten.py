"""Pods that are deleted or replaced are not kept, whatever they asked for."""

import gc
import sys
from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.framework.events import Listed, Observed, Tick, WatchType, WriteOk
from stower.model.kinds import Pod, ResourceClass
from stower.sim.tables import table_sizes, text_bytes
from stower.state import carried_terms
from tests.builders import make_node
from tests.device_builders import (
    claiming,
    device,
    device_class,
    device_slice,
    resource_claim,
)

SECOND_NS = 10**9
KEPT_MAX = 10
CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
TERM = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "claims": {"resourceClaims": [{"name": "c", "resourceClaimName": "gone"}]},
    "volumes": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}]},
    "affinity": {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
    },
    "spread": {
        "topologySpreadConstraints": [
            {**TERM, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        ]
    },
    "ports": {
        "containers": [{**CONTAINER, "ports": [{"containerPort": 80, "hostPort": 80}]}]
    },
    "group": {"schedulingGroup": {"podGroupName": "gone"}},
    "nominated": {"priority": 10},
    "gated": {"schedulingGates": [{"name": "example.com/wait"}]},
    "of another scheduler": {"schedulerName": "another"},
    "nowhere": {"nodeSelector": {"no": "where"}},
    "placed": {"nodeName": "n1"},
    "placed nowhere": {"nodeName": "n9"},
}  # fmt: skip


def make(name: str, spec: dict[str, Any], version: int) -> Pod:
    fields = {"schedulerName": "default-scheduler", "containers": [CONTAINER], **spec}
    labels = {"version": str(version)}
    meta = {"name": name, "namespace": "a", "uid": name, "labels": labels,
            "resourceVersion": str(version)}  # fmt: skip
    status = {"nominatedNodeName": "n1"} if name.startswith("nominated") else {}
    return msgspec.convert({"metadata": meta, "spec": fields, "status": status}, Pod)


@pytest.mark.parametrize("last", [WatchType.DELETED, WatchType.MODIFIED])
@pytest.mark.parametrize("what", SPECS)
def test_of_many_pods_that_are_gone_few_are_kept(what: str, last: WatchType) -> None:
    engine = build_engine(None)
    engine.step(Listed((make_node("n1", cpu="2"),)), 0)
    pods = []
    changes = (WatchType.ADDED, *[WatchType.MODIFIED] * 3, last)
    for number in range(60):
        for version, change in enumerate(changes):
            pod = make(f"{what}-{number % 2 * number}", SPECS[what], number * 10 + version)
            pods.append(pod)
            now_ns = (number * 10 + version) * 10 * SECOND_NS
            writes = engine.step(Observed(change, pod), now_ns)
            writes += engine.step(Tick(), now_ns + SECOND_NS)
            for write in writes:
                engine.step(WriteOk(write.id), now_ns + SECOND_NS)
            engine.drain()
        if change is WatchType.MODIFIED:
            pods.pop()
    del pod
    gc.collect()
    # The list and the argument refer to a pod, and the pod to its containers.
    counts = [(sys.getrefcount(pods[i]), sys.getrefcount(pods[i].spec.containers))
              for i in range(len(pods))]  # fmt: skip
    assert KEPT_MAX >= sum(one != (2, 2) for one in counts)


KEYS = 9_000
LARGE_PODS = 60
TEXT_BYTES_MAX = 7_500_000  # of 11.6 MB and more that came


def requirements(names: list[str]) -> list[Any]:
    return [{"key": name, "operator": "Exists"} for name in names]


def large_spec(what: str, names: list[str]) -> dict[str, Any]:
    """Half a megabyte, as the API server takes it."""
    affinity: dict[str, Any] = {}
    term = {"topologyKey": "zone", "labelSelector": {"matchExpressions": requirements(names)}}
    terms = [{"matchExpressions": [one]} for one in requirements(names)]
    match what:
        case "node selector":
            return {"nodeSelector": dict.fromkeys(names, "1")}
        case "node affinity":
            affinity = {"requiredDuringSchedulingIgnoredDuringExecution":
                        {"nodeSelectorTerms": terms}}  # fmt: skip
            return {"affinity": {"nodeAffinity": affinity}}
        case "preferred nodes":
            preferred = [{"weight": 1, "preference": one} for one in terms]
            affinity = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
            return {"affinity": {"nodeAffinity": affinity}}
        case "anti-affinity":
            affinity = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            return {"affinity": {"podAntiAffinity": affinity}}
        case "spread":
            return {"topologySpreadConstraints": [
                {**term, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
            ]}  # fmt: skip
        case _:  # images
            return {"containers": [{**CONTAINER, "name": f"c{i}", "image": name}
                                   for i, name in enumerate(names)]}  # fmt: skip


LARGE = ("node selector", "node affinity", "preferred nodes", "anti-affinity", "spread", "images")


@pytest.mark.parametrize(
    ("what", "resources"),
    [
        ("node selector", 0),
        ("anti-affinity", 0),
        ("node selector", 70),
        *(pytest.param(w, 0, marks=pytest.mark.more) for w in LARGE[1:] if w != "anti-affinity"),
        *(pytest.param(what, 70, marks=pytest.mark.more) for what in LARGE[1:]),
    ],
)
def test_of_large_pods_that_are_gone_no_megabytes_are_kept(what: str, resources: int) -> None:
    """Each is gone before the next one comes. resources: so many that no node offers."""
    engine, now_ns = build_engine(None), 0
    engine.step(Listed((make_node("n1", cpu="9"),)), 0)
    for number in range(LARGE_PODS):
        names = [f"x{number}-{i}.example.com/y" for i in range(KEYS)]
        asked = {"resources": {"requests": dict.fromkeys(names[:resources], "1")}}
        spec = large_spec(what, names)
        first, *others = spec.get("containers", [CONTAINER])
        pod = make(f"p{number}", {**spec, "containers": [{**first, **asked}, *others]}, 1)
        now_ns += SECOND_NS
        writes = engine.step(Observed(WatchType.ADDED, pod), now_ns)
        now_ns += SECOND_NS
        writes += engine.step(Tick(), now_ns)
        writes += engine.step(Observed(WatchType.DELETED, pod), now_ns)
        for write in writes:
            engine.step(WriteOk(write.id), now_ns)
        engine.drain()
    del pod
    assert text_bytes(engine) < TEXT_BYTES_MAX


def come_and_go(engine: Engine, pod: Pod, second: int) -> None:
    """It is tried, and deleted."""
    now_ns = second * 10 * SECOND_NS
    writes = engine.step(Observed(WatchType.ADDED, pod), now_ns)
    writes += engine.step(Tick(), now_ns + SECOND_NS)
    writes += engine.step(Observed(WatchType.DELETED, pod), now_ns + 2 * SECOND_NS)
    for write in writes:
        engine.step(WriteOk(write.id), now_ns + 3 * SECOND_NS)
    engine.drain()


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_topology_keys_of_pods_that_are_gone_are_not_kept(kind: str) -> None:
    """All have one selector: the tally of it is in use as long as there are such pods."""
    engine = build_engine(None)
    stays = make("stays", {"nodeName": "n1"}, 1)
    engine.step(Listed((make_node("n1", cpu="9"), stays)), 0)
    selector = {"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}
    for number in range(30):
        terms = [{"topologyKey": f"key-{number}-{i}", "labelSelector": selector} for i in range(9)]
        rule = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        come_and_go(engine, make(f"p{number}", {"affinity": rule}, number), number)
    sums = {path: size for path, size in table_sizes(engine).items() if path.endswith(".sums")}
    assert sum(sums.values()) < 20, sums


def test_what_classes_of_pods_match_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plain pod with labels of its own matches all terms of those that are there."""
    monkeypatch.setattr(carried_terms, "KEYS_BYTES_MAX", 500_000)
    engine = build_engine(None)
    engine.step(Listed((make_node("n1", cpu="9"),)), 0)
    for number in range(5):
        terms = [
            {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {
                "matchExpressions": [{"key": f"n{number}-{i}", "operator": "DoesNotExist"}]}}}
            for i in range(100)
        ]  # fmt: skip
        rule = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
        carrier = make(f"c{number}", {"affinity": rule, "nodeName": "n1"}, 1)
        engine.step(Observed(WatchType.ADDED, carrier), 0)
    for number in range(200):
        come_and_go(engine, make(f"p{number}", {}, number), number)
    sizes = table_sizes(engine, with_arrays=False)
    assert sum(n for path, n in sizes.items() if "_by_pod_kind" in path) < 70_000


@pytest.mark.parametrize("last", [WatchType.DELETED, WatchType.MODIFIED])
@pytest.mark.parametrize("is_negotiated", [False, True])
def test_of_many_claims_that_are_gone_few_are_kept(is_negotiated: bool, last: WatchType) -> None:
    """Each may have annotations of 256 KiB."""
    engine = build_engine(None)
    kind = {"metadata": {"name": "gpu", "uid": "gpu"}, "driverName": "driver.example.com"}
    negotiated = (msgspec.convert(kind, ResourceClass),)
    first = negotiated if is_negotiated else (device_class(), device_slice("n1", device("gpu-0")))
    writes = engine.step(Listed((make_node("n1", cpu="2"), *first)), 0)
    claims = []
    for number in range(60):
        name, now_ns = f"c{number % 2 * number}", number * 10 * SECOND_NS
        user = claiming(f"p{number}", name)
        writes += engine.step(Observed(WatchType.ADDED, user), now_ns)
        for version, change in enumerate((WatchType.ADDED, WatchType.MODIFIED, last)):
            claim = resource_claim(name, meta={"resourceVersion": f"{number * 10 + version}"})
            claims.append(claim)
            writes += engine.step(Observed(change, claim), now_ns)
            for write in writes:
                engine.step(WriteOk(write.id), now_ns)
            now_ns += SECOND_NS
            writes = engine.step(Tick(), now_ns)
            engine.drain()
        engine.step(Observed(WatchType.DELETED, user), now_ns)
        if change is WatchType.MODIFIED:
            claims.pop()
    del claim
    gc.collect()
    assert KEPT_MAX >= sum(sys.getrefcount(claims[i]) != 2 for i in range(len(claims)))


def test_pods_that_a_new_list_leaves_out_are_not_kept() -> None:
    engine = build_engine(None)
    pods = [make(f"affinity-{i}", SPECS["affinity"], i) for i in range(50)]
    node = make_node("n1", cpu="2")
    for write in engine.step(Listed((node, *pods)), 0):
        engine.step(WriteOk(write.id), 0)
    engine.step(
        Listed((node, *(make(f"affinity-{i}", SPECS["affinity"], 99) for i in range(25)))), 1
    )
    engine.step(Tick(), SECOND_NS)
    engine.drain()
    gc.collect()
    counts = [sys.getrefcount(pods[i]) for i in range(len(pods))]
    assert KEPT_MAX >= sum(count != 2 for count in counts)
