"""Pods that are made to stall the scheduler: each ends in a reason, and others go on meanwhile."""

import re
from typing import Any

import pytest

import stower.engine.engine
from stower.assembly import build_engine
from stower.bench.hostile import SCENARIOS, long_selector, longest_step_s, make_object
from stower.engine import attempt_costs
from stower.engine.engine import Engine
from stower.framework.decisions import Outcome
from stower.framework.events import Listed, Observed, Tick, WatchType, WriteOk
from stower.model.kinds import PodDisruptionBudget, ResourceClaim
from stower.state import carried_terms, tallies
from tests.builders import make_node, make_pod
from tests.device_builders import claiming, device, device_class, device_slice, resource_claim

SECOND_NS = 1_000_000_000
SLOW_SECONDS = 5.0  # ten times what it takes


def come(engine: Engine, pod: Any, now_ns: int = 1) -> tuple[Outcome, str]:
    """What becomes of a pod at once."""
    engine.step(Observed(WatchType.ADDED, pod), now_ns)
    found = {decision.uid: decision for decision in engine.drain()}[pod.metadata.uid]
    return found.outcome, found.message


def away(count: int, name: str = "a") -> dict[str, Any]:
    terms = [
        {"labelSelector": {"matchLabels": {f"{name}{i}": "b"}}, "topologyKey": "zone"}
        for i in range(count)
    ]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"affinity": away(101)}, "101 pod affinity and anti-affinity terms, the limit is 100"),
        (
            {"topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": f"k{i}", "whenUnsatisfiable": "DoNotSchedule",
                 "labelSelector": {"matchLabels": {"a": "b"}}} for i in range(101)
            ]},
            "101 topology spread constraints, the limit is 100",
        ),
        ({"tolerations": [{"key": f"k{i}"} for i in range(1001)]}, "1,001 tolerations"),
        (
            {"volumes": [
                {"name": f"v{i}", "persistentVolumeClaim": {"claimName": "c"}} for i in range(1001)
            ]},
            "1,001 volumes",
        ),
    ],
)  # fmt: skip
def test_a_pod_that_asks_too_much_is_told_so_and_others_are_placed(
    asked: dict[str, Any], message: str
) -> None:
    engine = build_engine(None)
    taint = {"key": "t", "value": "x", "effect": "NoSchedule"}
    claim = _claim("c")
    engine.step(Listed((make_node("n", taints=[taint]), make_node("m"), *claim)), 0)
    outcome, said = come(engine, make_pod("h", **asked))
    assert Outcome.ERROR is outcome
    assert message in said
    assert Outcome.PLACED is come(engine, make_pod("next"))[0]


def _claim(name: str) -> tuple[Any, ...]:
    from stower.model.kinds import PersistentVolumeClaim, StorageClass

    mode = {"provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "s"}
    return (
        make_object(StorageClass, "s", **mode),
        make_object(PersistentVolumeClaim, name, "default", spec=spec),
    )


def test_counting_that_takes_too_long_goes_on_with_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three selectors over 40 kinds of pods, of which one attempt may look at one selector's."""
    monkeypatch.setattr(tallies, "VISITS_MAX", 20 * tallies.VISITS_PER_MATCH)
    engine = build_engine(None)
    placed = [make_pod(f"e{i}", cpu="10m", node="n", labels={"a": str(i)}) for i in range(40)]
    engine.step(Listed((make_node("n", labels={"zone": "z"}), *placed)), 0)
    none = {"key": "b", "operator": "Exists"}
    several = [[{"key": "a", "operator": "NotIn", "values": [str(i)]}, none] for i in range(3)]
    terms = [{"labelSelector": {"matchExpressions": e}, "topologyKey": "zone"} for e in several]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pod = make_pod("h", cpu="10m", affinity=affinity)
    outcome, said = come(engine, pod)
    assert Outcome.ERROR is outcome
    assert "exceeds the budget of one attempt" in said
    outcomes = []
    for second in range(1, 60):
        engine.step(Tick(), second * SECOND_NS)
        outcomes += [decision.outcome for decision in engine.drain()]
    assert Outcome.PLACED is outcomes[-1]
    assert len(outcomes) <= 3


def _different_devices(nodes: int) -> tuple[list[str], list[Any]]:
    """Nodes with four devices each, no two of which are alike, and their slices."""
    names = [f"n{i}" for i in range(nodes)]
    return names, [
        device_slice(
            name, *(device(f"g{j}", attributes={"u": {"string": f"{name}-{j}"}}) for j in range(4))
        )
        for name in names
    ]


def test_a_selector_that_takes_long_is_asked_of_some_devices_at_a_time() -> None:
    names, slices = _different_devices(60)
    engine = build_engine(None)
    claim = resource_claim()
    gpus = device_class(expression=long_selector(3))
    engine.step(Listed((*map(make_node, names), gpus, *slices, claim)), 0)
    outcome, said = come(engine, claiming())
    assert Outcome.ERROR is outcome
    assert "nodes are left for the next" in said
    assert Outcome.PLACED is come(engine, make_pod("next"), 2)[0]
    left, found = [], []
    for second in range(1, 200):
        engine.step(Tick(), second * SECOND_NS)
        for decision in engine.drain():
            found.append(decision.outcome)
            if decision.outcome is Outcome.ERROR:
                (number,) = re.findall(r"(\d+) nodes are left", decision.message)
                left.append(int(number))
    assert Outcome.UNSCHEDULABLE is found[-1], "in the end it is known of all of them"
    assert sorted(left, reverse=True) == left


def test_preemption_over_many_kinds_of_pods_ends_though_it_may_not_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each attempt compares a few of 60 pods that are all different; budgets change meanwhile."""
    monkeypatch.setattr(tallies, "VISITS_MAX", 30 * tallies.VISITS_PER_MATCH)
    engine = build_engine(None)
    nodes = [make_node(f"n{i}", cpu="4", labels={"zone": "z"}) for i in range(3)]
    placed = [
        make_pod(f"e{i}", cpu="200m", node=f"n{i % 3}", labels={"a": str(i)}) for i in range(60)
    ]

    def budget(number: int, allowed: int) -> Any:
        selector = {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["x"]}]}
        spec = {"minAvailable": number, "selector": selector}
        status = {"disruptionsAllowed": allowed}
        return make_object(PodDisruptionBudget, f"b{number}", "default", spec=spec, status=status)

    engine.step(Listed((*nodes, *placed, budget(1, 60), budget(2, 60))), 0)
    spread = [
        {"maxSkew": 100, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": {"matchExpressions": [
             {"key": "a", "operator": "NotIn", "values": [str(i)]}
         ]}}
        for i in range(2)
    ]  # fmt: skip
    pod = make_pod("h", cpu="3", priority=1000, topologySpreadConstraints=spread)
    outcomes = [come(engine, pod)]
    for second in range(1, 300):
        engine.step(Observed(WatchType.MODIFIED, budget(1, 60 + second % 2)), second * SECOND_NS)
        engine.step(Tick(), second * SECOND_NS)
        outcomes += [(d.outcome, d.nominated) for d in engine.drain()]
    assert Outcome.ERROR is outcomes[0][0]
    assert Outcome.UNSCHEDULABLE in [outcome for outcome, _ in outcomes]
    assert any(nominated for _, nominated in outcomes[1:]), "it has found whom to evict"


def test_claims_of_others_go_on_beside_one_that_takes_for_ever() -> None:
    names, slices = _different_devices(40)
    engine = build_engine(None)
    bad = [
        make_object(ResourceClaim, f"bad-{i}", "default", spec=_asking(long_selector(4)))
        for i in (1, 2)
    ]
    good = make_object(ResourceClaim, "good", "default", spec=_asking('device.driver != ""'))
    engine.step(Listed((*map(make_node, names), device_class(), *slices, *bad, good)), 0)
    for claim in bad:
        uses = [{"name": "c", "resourceClaimName": claim.metadata.name}]
        assert Outcome.ERROR is come(engine, make_pod(claim.metadata.name, resourceClaims=uses))[0]
    uses = [{"name": "c", "resourceClaimName": "good"}]
    pod = make_pod("good", resourceClaims=uses)
    writes = engine.step(Observed(WatchType.ADDED, pod), 2)
    for second in range(1, 120):
        writes += engine.step(Tick(), second * SECOND_NS)
    assert [write for write in writes if getattr(write, "name", "") == "good"]


def _asking(expression: str) -> dict[str, Any]:
    exactly = {
        "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
        "selectors": [{"cel": {"expression": expression}}],
    }  # fmt: skip
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


def test_what_pods_asked_is_forgotten_when_they_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "TALLIES_MAX", 64)
    monkeypatch.setattr(tallies, "TALLIES_KEPT", 32)
    monkeypatch.setattr(carried_terms, "UNUSED_TERMS_MAX", 64)
    engine = build_engine(None)
    engine.step(Listed((make_node("n", labels={"zone": "z"}),)), 0)
    for number in range(200):
        pod = make_pod(f"p{number}", cpu="1m", affinity=away(5, f"x{number}-"))
        for write in engine.step(Observed(WatchType.ADDED, pod), number + 1):
            engine.step(WriteOk(write.id), number + 1)
        engine.step(Observed(WatchType.DELETED, pod), number + 1)
    assert len(engine.state.tallies.by_conditions) <= 64 + 5
    assert len(engine.state.carried_terms.terms) <= 64 + 5
    assert Outcome.PLACED is come(engine, make_pod("after", affinity=away(5)), 1000)[0]


@pytest.mark.more
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_step_takes_long(name: str) -> None:
    """`stower bench hostile` measures; this is far above what it says."""
    assert longest_step_s(SCENARIOS[name]()) < SLOW_SECONDS


@pytest.mark.parametrize("scope", [{}, {"namespaceSelector": {}}])
@pytest.mark.parametrize("count", [12, 9, 2])
def test_a_namespace_whose_pods_look_at_very_many_terms_has_few_attempts(
    scope: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All terms of all its pods select each of them; a pod elsewhere is tried at once. One attempt
    looks at more than is free in a row, or a few do."""
    monkeypatch.setattr(stower.engine.engine, "COUNTED", 100)
    monkeypatch.setattr(attempt_costs, "FREE", 2_000)
    monkeypatch.setattr(attempt_costs, "NS_PER_VISIT", 100_000)
    engine = build_engine(None)
    engine.step(Listed((make_node("n1", cpu="900", memory="900Gi", pods="900"),)), 0)
    for number in range(count):
        terms = [
            {"weight": 1, "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname", **scope,
                "labelSelector": {"matchExpressions": [
                    {"key": f"x{number}-{i}", "operator": "DoesNotExist"}
                ]}}}
            for i in range(100)
        ]  # fmt: skip
        rule = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
        pod = make_pod(f"carrier-{number}", node="n1", affinity=rule, cpu="1m")
        engine.step(Observed(WatchType.ADDED, pod), 0)
    tried = 0
    for second in range(1, 11):
        for number in range(10):
            name = f"new-{second}-{number}"
            engine.step(
                Observed(WatchType.ADDED, make_pod(name, cpu="1m", labels={"a": name})),
                second * SECOND_NS,
            )
        tried += len(engine.drain())
        other = make_pod(f"other-{second}", cpu="1m", namespace="other")
        assert Outcome.PLACED is come(engine, other, second * SECOND_NS)[0]
    visits = count * 100 * (2 + carried_terms.VISITS_PER_MATCH)
    assert 10 <= tried <= 20 + 10 * 10_000 // visits
    for second in range(20, 200):
        tried += len(engine.step(Tick(), second * SECOND_NS) and engine.drain())
    assert 100 == tried, "they are tried, one after the other"
