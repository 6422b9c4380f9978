"""Pods that are about each other, through the engine: who goes where, and who is woken."""

from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.queue.entities import Place
from stower.framework.events import Listed, Observed, WatchType
from stower.model.kinds import Namespace, Node, Pod, ReplicaSet, Service
from stower.model.meta import OwnerReference
from stower.model.raw import decode
from tests.builders import make_node, make_pod
from tests.unit.engine.test_engine import add, binds, engine_with, place_of

ZONE = "topology.kubernetes.io/zone"
MODIFIED, DELETED = WatchType.MODIFIED, WatchType.DELETED
WEB = {"matchLabels": {"app": "web"}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def node(name: str, zone: str = "", **fields: Any) -> Node:
    labels = {"kubernetes.io/hostname": name, **({ZONE: zone} if zone else {})}
    return make_node(name, labels=labels, **fields)


def web(name: str, on: str = "", **spec: Any) -> Pod:
    return make_pod(name, node=on, labels={"app": "web"}, **spec)


def near(key: str = ZONE, **term: Any) -> dict[str, Any]:
    return {"podAffinity": {REQUIRED: [{"topologyKey": key, "labelSelector": WEB, **term}]}}


def away(key: str = ZONE, **term: Any) -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: [{"topologyKey": key, "labelSelector": WEB, **term}]}}


def spread(action: str = "DoNotSchedule", **fields: Any) -> list[dict[str, Any]]:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": action,
                  "labelSelector": WEB}  # fmt: skip
    return [{**constraint, **fields}]


def knowing(*objects: Any) -> Engine:
    """An engine that has listed objects of any kind."""
    engine = build_engine()
    engine.step(Listed(objects), 0)
    return engine


def waiting(engine: Engine, pod: Pod) -> bool:
    """Parked until something helps."""
    return place_of(engine, pod) is Place.UNSCHEDULABLE


def send(engine: Engine, type: WatchType, obj: Node | Pod) -> None:
    engine.step(Observed(type, obj), engine.now_ns)


ZONES = (node("a1", "a"), node("a2", "a"), node("b1", "b"))


def test_hard_spreading_fills_the_emptier_zone() -> None:
    engine = engine_with(*ZONES, web("x", "a1"))
    (bound,) = binds(add(engine, web("p", topologySpreadConstraints=spread())))
    assert ("p", "b1") == bound


def test_assumed_pods_count_at_once() -> None:
    """Four pods, one after the other, over two zones of one node each: two and two."""
    engine = engine_with(node("a1", "a"), node("b1", "b"))
    landed = [
        binds(add(engine, web(f"p{i}", topologySpreadConstraints=spread())))[0][1] for i in range(4)
    ]
    assert {"a1", "b1"} == set(landed[:2]) == set(landed[2:])


def test_what_a_service_selects_spreads_by_default() -> None:
    service = decode(
        b'{"metadata":{"name":"s","namespace":"default"},"spec":{"selector":{"app":"web"}}}',
        Service,
    )
    engine = engine_with(*ZONES, web("x", "a1"))
    before = {binds(add(engine, web(f"p{i}", cpu="1m", memory="1Mi")))[0][1] for i in range(2)}
    assert before  # anywhere
    engine = knowing(service, *ZONES, web("x", "a1", cpu="1m"), web("y", "a2", cpu="1m"))
    assert [("p", "b1")] == binds(add(engine, web("p", cpu="1m")))


def test_what_a_controller_selects_spreads_by_default() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u",
             "controller": True}  # fmt: skip
    replica_set = decode(
        b'{"metadata":{"name":"r","namespace":"default"},'
        b'"spec":{"selector":{"matchLabels":{"app":"web"}}}}',
        ReplicaSet,
    )
    engine = knowing(replica_set, *ZONES, web("x", "a1"), web("y", "a2"))
    pod = web("p")
    meta = replace(pod.metadata, owner_references=(convert(owner, OwnerReference),))
    assert [("p", "b1")] == binds(add(engine, replace(pod, metadata=meta)))


def test_required_company_and_its_absence() -> None:
    engine = engine_with(*ZONES, web("x", "b1"))
    assert [("p", "b1")] == binds(add(engine, make_pod("p", affinity=near())))
    lonely = make_pod("l", labels={"app": "db"}, affinity=near("kubernetes.io/hostname"))
    assert [("l", "b1")] == binds(add(engine, lonely))


def test_the_first_of_a_series_may_be_alone() -> None:
    engine = engine_with(*ZONES)
    first = binds(add(engine, web("p0", affinity=near())))[0][1]
    second = binds(add(engine, web("p1", affinity=near())))[0][1]
    zone = {"a1": "a", "a2": "a", "b1": "b"}
    assert zone[first] == zone[second]


def test_those_who_are_there_may_refuse_a_pod() -> None:
    """The anti-affinity of a placed pod holds for who comes, who has no terms at all."""
    engine = engine_with(*ZONES, make_pod("x", node="a1", affinity=away()))
    assert [("p", "b1")] == binds(add(engine, web("p")))


def test_namespaces_are_selected_by_their_labels() -> None:
    team = decode(b'{"metadata":{"name":"other","labels":{"team":"a"}}}', Namespace)
    term = away(namespaceSelector={"matchLabels": {"team": "a"}})
    placed = make_pod("x", node="a1", namespace="other", labels={"app": "web"})
    engine = knowing(team, *ZONES, placed)
    assert [("p", "b1")] == binds(add(engine, make_pod("p", affinity=term)))
    engine = knowing(*ZONES[:1], placed)
    assert [("q", "a1")] == binds(add(engine, make_pod("q", affinity=term)))


def test_preferred_company() -> None:
    term = {"topologyKey": ZONE, "labelSelector": WEB}
    wish = {"podAffinity": {PREFERRED: [{"weight": 100, "podAffinityTerm": term}]}}
    engine = engine_with(*ZONES, web("x", "b1"))
    assert [("p", "b1")] == binds(add(engine, make_pod("p", affinity=wish)))


def test_refusals_are_said_in_kube_schedulers_words() -> None:
    engine = engine_with(*ZONES, web("x", "a1"), web("y", "b1"), node("c1"))
    add(engine, make_pod("p", affinity=away()), 0)
    pod = make_pod("q", affinity={**away(), **near(labelSelector={"matchLabels": {"app": "z"}})})
    add(engine, pod)
    told = [d.message for d in engine.drain() if d.name == "q"]
    assert [
        "0/4 nodes are available: 4 node(s) didn't match pod affinity rules. no new claims to "
        "deallocate, preemption: 0/4 nodes are available: 4 Preemption is not helpful for "
        "scheduling."
    ] == told


# What wakes


def test_pods_of_one_shape_are_woken_by_their_own_company() -> None:
    """Shape and refusing plugin are the same; whom they wait for is not."""
    engine = engine_with(node("a1", "a"))
    waits_for_web = make_pod("p", affinity=near())
    waits_for_db = make_pod("q", affinity=near(labelSelector={"matchLabels": {"app": "db"}}))
    add(engine, waits_for_db)
    add(engine, waits_for_web)
    send(engine, WatchType.ADDED, web("x", "a1"))
    assert not waiting(engine, waits_for_web)
    assert waiting(engine, waits_for_db)


def test_a_key_that_all_nodes_lose_and_have_again_with_fewer_values() -> None:
    """What was summed for the values that are gone is in nobody's way."""
    engine = engine_with(node("a1", "a"), node("b1", "b"), node("c1", "c"))
    add(engine, web("p0", topologySpreadConstraints=spread()))
    add(engine, make_pod("p1", affinity=near()))
    for zone in ("", "z"):
        for name in ("a1", "b1", "c1"):
            send(engine, MODIFIED, node(name, zone))
    assert binds(add(engine, web("p2", topologySpreadConstraints=spread())))
    assert binds(add(engine, make_pod("p3", affinity=near())))


TAINTED = [{"key": "k", "effect": "NoSchedule"}]
LONELY = make_pod("p", affinity=near())
SHY = web("p", affinity=away("kubernetes.io/hostname"))
EVEN = web("p", topologySpreadConstraints=spread())


@pytest.mark.parametrize(
    ("pod", "there", "helps", "near_miss"),
    [
        (LONELY, (), (WatchType.ADDED, web("x", "a1")),
         (WatchType.ADDED, make_pod("x", node="a1"))),
        (LONELY, (make_pod("x", node="a1"),), (MODIFIED, web("x", "a1")),
         (MODIFIED, make_pod("x", node="a1", labels={"app": "db"}))),
        (SHY, (web("x", "a1"), make_pod("y", node="a1")), (DELETED, web("x", "a1")),
         (DELETED, make_pod("y", node="a1"))),
        (SHY, (web("x", "a1"),), (MODIFIED, make_pod("x", node="a1")),
         (MODIFIED, web("x", "a1", priority=1))),
        (SHY, (web("x", "a1"),), (WatchType.ADDED, node("n2")), (MODIFIED, node("a1", "z"))),
        (EVEN, (web("x", "a1"), make_pod("y", node="a1")), (DELETED, web("x", "a1")),
         (DELETED, make_pod("y", node="a1"))),
        (EVEN, (web("x", "a1"),), (WatchType.ADDED, node("n2", "b")),
         (WatchType.ADDED, node("n2", taints=TAINTED))),
        (EVEN, (web("x", "a1"),), (DELETED, node("full", "b")),
         (MODIFIED, node("a1", "a", cpu="9"))),
    ],
)  # fmt: skip
def test_only_what_may_help_wakes(
    pod: Pod, there: tuple[Pod, ...], helps: tuple[Any, Any], near_miss: tuple[Any, Any]
) -> None:
    for (type, obj), wakes in ((helps, True), (near_miss, False)):
        full = node("full", "b", taints=TAINTED)
        engine = engine_with(node("a1", "a"), full, *there)
        add(engine, pod)
        assert waiting(engine, pod)
        send(engine, type, obj)
        assert waiting(engine, pod) is not wakes, (type, obj)
