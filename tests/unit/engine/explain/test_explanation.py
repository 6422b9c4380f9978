"""What would let a pod run: proposed by the plugins, tried, and nothing is left of the trial."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.explain.explanation import Explanation, explain
from stower.framework.events import Hold, Listed, Observed, Tick, WatchType
from stower.framework.writes import Bind
from stower.model.kinds import ApiObject, Pod, ResourceClaim, ResourceClass
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker
from stower.sim.trial import Trial, script_of
from tests.builders import make_node, make_pod

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def engine_of(*objects: ApiObject) -> Engine:
    engine = build_engine(None)
    engine.step(Hold(True), 1)
    engine.step(Listed(objects), 1)
    return engine


def explained(engine: Engine, pod: Pod) -> Explanation:
    return explain(pod, engine.state, engine.cycle, engine.queue, engine.profiles)


def ask(pod: Pod, *objects: ApiObject) -> Explanation:
    return explained(engine_of(*objects, pod), pod)


def changes(found: Explanation) -> list[tuple[str, ...]]:
    return [change.what for change in found.changes]


def spread(key: str, skew: int = 1) -> list[dict[str, Any]]:
    selector = {"matchLabels": {"app": "web"}}
    return [{"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": selector}]  # fmt: skip


def anti(key: str = HOST) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def only_on(node: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def near(key: str = HOST) -> dict[str, Any]:
    return {"podAffinity": anti(key)["podAntiAffinity"]}


WEB = {"app": "web"}
N1 = make_node("n1", cpu="2", labels={HOST: "n1", ZONE: "a"})
N2 = make_node("n2", cpu="2", labels={HOST: "n2", ZONE: "b"})


@pytest.mark.parametrize(
    ("pod", "objects", "first"),
    [
        (make_pod(cpu="1200m"), [N1, make_pod("p2", cpu="1", node="n1")], "n1 lacks 200m cpu"),
        (make_pod(memory="7Gi"), [N1, make_pod("p2", memory="2Gi", node="n1")],
         "n1 lacks 1Gi memory"),
        (make_pod(cpu="2200m"), [N1], "the pod requests 2200m cpu (n1 has 2)"),
        (make_pod(cpu="2200m"), [N1, make_pod("p2", cpu="1", node="n1")],
         "the pod requests 2200m cpu (n1 has 2, 1 free)"),
        (make_pod(memory="9Gi"), [N1], "the pod requests 9Gi memory (n1 has 8Gi)"),
        (make_pod(requests={"nvidia.com/gpu": "2"}), [N1],
         "the pod requests 2 nvidia.com/gpu (n1 has 0)"),
        (make_pod(affinity=only_on("n9")), [N1],
         "the pod is for a node with metadata.name=n9, n1 is another"),
        (make_pod(), [make_node(pods="0")], "n1 lacks 1 pods"),
        (make_pod(), [make_node(unschedulable=True)], "n1 is cordoned"),
        (make_pod(), [make_node(taints=[{"key": "kept", "effect": "NoExecute"}])],
         "the pod does not tolerate kept:NoExecute of n1"),
        (make_pod(), [make_node(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])],
         "the pod does not tolerate k=v:NoSchedule of n1"),
        (make_pod(nodeSelector={"disk": "ssd"}), [N1],
         "n1 does not match the pod's node affinity/selector: disk=ssd"),
        (make_pod(ports=[80]), [N1, make_pod("p2", node="n1", ports=[80])],
         "port 80 of n1 is taken by default/p2"),
        (make_pod(labels=WEB, affinity=anti()), [N1, make_pod("p2", node="n1", labels=WEB)],
         "default/p2 with app=web in the kubernetes.io/hostname domain of n1 (podAntiAffinity)"),
        (make_pod(labels=WEB),
         [N1, make_pod("p2", node="n1", affinity=anti())],
         "the podAntiAffinity of default/p2 excludes the pod from n1"),
        (make_pod(affinity=near()), [N1],
         "n1 has no pod with app=web in its kubernetes.io/hostname domain (podAffinity)"),
        (make_pod(labels=WEB, topologySpreadConstraints=spread("rack")), [N1],
         "the pod has to spread over rack"),
        (make_pod(labels=WEB, cpu="2", topologySpreadConstraints=spread(ZONE)),
         [N1, make_pod("p2", cpu="0", node="n1", labels=WEB), N2,
          make_pod("p3", node="n2", cpu="1900m")],
         "topology.kubernetes.io/zone=a has 1 matching pods, the smallest domain 0: "
         "the skew would be 2, maxSkew is 1"),
        (make_pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]), [N1],
         "claim default/c does not exist"),
    ],
)  # fmt: skip
def test_each_refusal_has_its_words(pod: Pod, objects: list[ApiObject], first: str) -> None:
    found = ask(pod, *objects)
    assert "refused" == found.verdict
    assert (first,) in changes(found)


def test_refusals_that_come_one_after_the_other_are_told_together() -> None:
    pod = make_pod(cpu="3", nodeSelector={"disk": "ssd"})
    node = make_node("n1", cpu="2", taints=[{"key": "kept", "effect": "NoSchedule"}])
    (change,) = ask(pod, node).changes
    assert 3 == len(change.what)
    assert "n1" == change.node


def test_the_smallest_change_comes_first() -> None:
    nodes = [make_node("n1", cpu="1"), make_node("n2", cpu="3"), make_node("n3", cpu="2")]
    found = ask(make_pod(cpu="3500m"), *nodes)
    assert ("the pod requests 3500m cpu (n2 has 3)",) == found.changes[0].what
    assert 500 / 3500 + 2 == pytest.approx(found.changes[0].cost, abs=0.001)
    nodes += [make_pod(f"a{i}", cpu="500m", node=f"n{i + 1}") for i in range(3)]
    found = ask(make_pod(cpu="2800m"), *nodes)
    assert ("n2 lacks 300m cpu",) == found.changes[0].what
    assert 300 / 2800 + 1 == pytest.approx(found.changes[0].cost, abs=0.001)


def test_what_differs_in_the_node_alone_is_told_once() -> None:
    nodes = [make_node(f"n{i}", cpu="2") for i in range(9)]
    there = [make_pod(f"a{i}", cpu="1", node=f"n{i}") for i in range(9)]
    found = ask(make_pod(cpu="2"), *nodes, *there)
    (change,) = found.changes
    assert (7, 8) == (change.alike, found.tried)


CLAIM = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]


def test_nothing_is_told_that_is_not_needed() -> None:
    """Another node than the one that was tried would do."""
    cordoned = [make_node(f"n{i}", unschedulable=True) for i in range(40)]
    found = ask(make_pod(volumes=CLAIM), *cordoned, make_node("zz"))
    assert [("claim default/c does not exist",)] == changes(found)
    taint = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    both = make_node("n1", unschedulable=True, taints=taint)
    found = ask(make_pod(), both, make_node("n10", taints=taint))
    assert [("the pod does not tolerate k=v:NoSchedule of n10",)] == changes(found)
    key = "node.kubernetes.io/unschedulable"
    node = make_node("n1", unschedulable=True, taints=[{"key": key, "effect": "NoSchedule"}])
    assert [("n1 is cordoned",)] == changes(ask(make_pod(), node))


def test_the_text_is_of_the_node_to_which_the_pod_would_go() -> None:
    for change in ask(make_pod(cpu="3", nodeSelector={"a": "b"}), N1, N2).changes:
        assert all(change.node in text for text in change.what)
    nodes = [make_node("1", cpu="2"), make_node("2", cpu="2")]
    there = [make_pod("a1", cpu="1", node="1"), make_pod("a2", cpu="500m", node="2")]
    found = ask(make_pod(cpu="2"), *nodes, *there)
    assert [("2 lacks 500m cpu",), ("1 lacks 1 cpu",)] == changes(found)


def test_the_smaller_of_two_ways_is_told() -> None:
    there = [make_pod(f"a{i}", cpu="10m", node="n1", labels=WEB) for i in range(9)]
    found = ask(make_pod(labels=WEB, affinity=anti()), N1, *there)
    said = (
        f"the podAntiAffinity excludes the {HOST} domain of n1: default/a0 and 8 more with app=web"
    )
    assert [((said,), 3.0)] == [(c.what, c.cost) for c in found.changes]


def test_a_set_of_plugins_that_few_nodes_share_is_not_missed() -> None:
    crowded = []
    for i in range(70):
        crowded.append(make_node(f"n{i}", labels={HOST: f"n{i}"}))
        crowded += [make_pod(f"a{i}-{j}", cpu="1", node=f"n{i}", labels=WEB) for j in range(2)]
    closed = make_node("zz", unschedulable=True, taints=[{"key": "k", "effect": "NoSchedule"}])
    found = ask(make_pod(labels=WEB, affinity=anti()), *crowded, closed)
    assert ("zz is cordoned", "the pod does not tolerate k:NoSchedule of zz") == found.changes[
        0
    ].what


@pytest.mark.parametrize(
    ("memory", "said"),
    [("2049Mi", "1025Mi memory"), ("2Gi", "1Gi memory"), ("1073741825", "1 bytes of memory"),
     ("1073742848", "1Ki memory")],
)  # fmt: skip
def test_amounts_are_told_as_they_are(memory: str, said: str) -> None:
    other = make_pod("p2", memory="3Gi", node="n1")
    found = ask(make_pod(memory=memory), make_node(memory="4Gi"), other)
    assert [(f"n1 lacks {said}",)] == changes(found)


def test_spread_over_few_domains_and_over_labels_that_are_missing() -> None:
    there = [make_pod(f"a{i}", cpu="0", node="n1", labels=WEB) for i in range(3)]
    constraint = [{**spread(ZONE)[0], "minDomains": 2}]
    found = ask(make_pod(labels=WEB, topologySpreadConstraints=constraint), N1, *there)
    said = f"there are 1 domains of {ZONE}, minDomains is 2"
    assert [(said,)] == changes(found)
    full = make_node("n2", cpu="0", labels={ZONE: "b"})
    bare = make_node("n3")
    found = ask(
        make_pod(labels=WEB, topologySpreadConstraints=spread(ZONE)), N1, *there, full, bare
    )
    assert (f"n3 lacks the label {ZONE} (for example {ZONE}=b)",) == found.changes[0].what


def test_company_in_several_pods_and_without_a_label() -> None:
    def terms(*apps: str) -> dict[str, Any]:
        return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}} for app in apps
        ]}}  # fmt: skip

    pods = [make_pod(app, cpu="0", node="n1", labels={"app": app}) for app in ("v", "w")]
    found = ask(make_pod(affinity=terms("v", "w")), N1, *pods)
    assert 2.0 == found.changes[0].cost
    found = ask(make_pod(labels=WEB, affinity=near("rack")), N1)
    assert [("n1 lacks the label rack",)] == changes(found)


def test_ports_and_promises_are_told_as_far_as_they_are_in_the_way() -> None:
    other = make_pod("p2", node="n1", ports=[80])
    found = ask(make_pod(ports=[80, 443]), N1, other)
    assert [("port 80 of n1 is taken by default/p2",)] == changes(found)
    node = make_node("n1", cpu="4")
    first = make_pod("first", cpu="3", priority=9, nominated="n1")
    second = make_pod("second", cpu="1", priority=8, nominated="n1")
    found = ask(make_pod(cpu="3"), node, first, second)
    assert [("room on n1 is reserved for pods nominated to it: default/first",)] == changes(found)


def test_a_pod_that_fits_and_one_that_is_placed() -> None:
    there = make_pod("p2", node="n1")
    engine = engine_of(N1, N2, there, make_pod("p1"))
    found = explained(engine, make_pod("p1"))
    assert ("fits", "n2", 2) == (found.verdict, found.node, found.feasible)
    found = explained(engine, there)
    assert ("placed", "n1", 2) == (found.verdict, found.node, found.feasible)
    assert {"n1", "n2"} == {score.node for score in found.scores}
    assert all(sum(s.parts.values()) == s.total for s in found.scores)


def test_gated_leaving_and_foreign_pods() -> None:
    gated = make_pod("p1", cpu="9", schedulingGates=[{"name": "hold"}])
    found = ask(gated, N1)
    assert ("gated", ("hold",)) == (found.verdict, found.gates)
    gate = "the pod has the scheduling gate hold"
    assert (gate, "the pod requests 9 cpu (n1 has 2)") == found.changes[0].what
    _, gates = found.changes[0].steps
    assert ("spec.schedulingGates", None) == (gates.field, gates.after)
    assert (("GatesRemoved",), ()) == (found.waits_for, found.candidates)
    small = make_pod("p1", schedulingGates=[{"name": "hold"}])
    found = ask(small, N1)
    assert ("gated", "n1", [(gate,)]) == (found.verdict, found.node, changes(found))
    assert "leaving" == ask(make_pod(deletion="2026-01-01T00:00:00Z"), N1).verdict
    assert "unknown" == ask(make_pod(schedulerName="other"), N1).verdict
    assert ("refused", ()) == (ask(make_pod()).verdict, ask(make_pod()).changes)


def test_whom_preemption_would_evict_and_promised_room() -> None:
    low = make_pod("low", cpu="2", node="n1", priority=1)
    found = ask(make_pod(cpu="2", priority=5), N1, low)
    assert [("n1", ("default/low",), 0)] == [
        (c.node, c.victims, c.violations) for c in found.candidates
    ]
    promised = make_pod("first", cpu="2", priority=9, nominated="n1")
    found = ask(make_pod(cpu="2"), N1, promised)
    assert ("room on n1 is reserved for pods nominated to it: default/first",) == found.changes[
        0
    ].what


def test_it_waits_for_what_its_plugins_wake_on() -> None:
    found = ask(make_pod(nodeSelector={"disk": "ssd"}), N1)
    assert ("NodeAdded", "NodeLabels") == found.waits_for


def test_a_pod_that_is_refused_as_a_whole_is_not_placed_because_another_was_promised_room() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]
    engine = build_engine(None)
    promised = make_pod("first", cpu="2", priority=9, nominated="n1")
    engine.step(Hold(True), 1)
    engine.step(Listed((N1, N2, promised, make_pod("p1", volumes=volumes))), 1)
    writes = engine.step(Hold(False), 2)
    while (due_ns := engine.next_wake_ns) is not None and due_ns < 9 * SECOND_NS:
        writes += engine.step(Tick(), due_ns)
    assert ["first"] == [write.name for write in writes if isinstance(write, Bind)]


class Curious(Checker):
    """Asks about every pod that waits, all the time."""

    law = "curiosity"
    allows_rivals = True
    asked = 0

    def check(self) -> None:
        for process in self.court.schedulers:
            if process.engine is not None:
                for queued in process.engine.queue.pods():
                    explained(process.engine, queued.entry.pod)
                    Curious.asked += 1


@pytest.mark.parametrize(
    "seed", [0, 1, 4, 5, *(pytest.param(seed, marks=pytest.mark.more) for seed in (2, 3))]
)
def test_to_explain_changes_nothing(seed: int) -> None:
    calm = Trial(script_of(seed), checkers=()).run()
    assert calm == Trial(script_of(seed), checkers=(Curious,)).run()
    assert Curious.asked > 0


def test_an_explanation_in_mid_flight_leaves_the_engine_as_it_was() -> None:
    engines = [build_engine(None) for _ in range(2)]
    for engine in engines:
        engine.step(Listed((N1, N2)), 1)
    told = []
    for i in range(12):
        pod = make_pod(f"p{i}", cpu="700m", uid=f"u{i}")
        told.append([e.step(Observed(WatchType.ADDED, pod), 2 + i) for e in engines])
        explained(engines[0], pod)
    assert all(one == other for one, other in told)


def test_a_pod_that_drivers_have_to_agree_with_is_settling_and_nothing_is_remembered() -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "fabric"}}
    meta = {"name": "c", "namespace": "default", "uid": "c"}
    claim = {"metadata": meta, "spec": {"devices": {"requests": [request]}}}
    fabric = {"metadata": {"name": "fabric"}, "driverName": "fabric.example.com"}
    pod = make_pod(resourceClaims=[{"name": "c", "resourceClaimName": "c"}])
    engine = engine_of(
        N1, msgspec.convert(claim, ResourceClaim), msgspec.convert(fabric, ResourceClass), pod
    )
    found = explained(engine, pod)
    message = "waiting for resource driver to allocate resource: default/c of fabric.example.com"
    assert ("settling", "n1", f"{message} on n1", 1) == (
        found.verdict, found.node, found.message, found.feasible,
    )  # fmt: skip
    assert {} == engine.state.negotiations.pending_selections
    assert found == explained(engine, pod)
