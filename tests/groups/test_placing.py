"""Trees of groups through the engine's one entry: what is placed together, and what is not."""

from typing import Any, ClassVar

import pytest

from stower.assembly import build_engine
from stower.engine.groups import tree_cycle
from stower.engine.queue import entities
from stower.engine.queue.entities import Place
from stower.framework.events import Listed, Tick
from stower.framework.plugin import Plugin, Scope
from stower.framework.writes import Bind, PatchObject
from stower.groups.placement import ExhaustedSearch
from stower.groups.searches import Searches
from stower.model.kinds import Pod
from stower.model.times import SECOND_NS
from stower.plugins.inter_pod_affinity import InterPodAffinity
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape
from tests.builders import make_node, make_pod
from tests.device_builders import Agreeing, device, device_class, device_slice, resource_claim
from tests.group_builders import BLOCK, RACK, make_composite, make_group, members, racks


def cluster(*objects: Any) -> Agreeing:
    return Agreeing(build_engine(), *objects)


def domains(api: Agreeing, of: str, length: int) -> set[str]:
    """The first letters of the nodes on which the group's pods are."""
    return {node[:length] for name, node in api.bound.items() if name.startswith(f"{of}-")}


@pytest.mark.behaviour("S3.7")
def test_a_gang_is_placed_as_a_whole_or_not_at_all() -> None:
    api = cluster(make_node("n1", cpu="3"), make_group("g", 4), *members("g", 4, cpu="1"))
    assert {} == api.bound
    assert (
        "impossible (proven): PodGroup default/g needs 4 pods, 3 fit: Insufficient cpu. "
        "preemption: No preemption victims found for incoming preemptor" == api.messages["g-0"]
    )
    api.put(make_node("n2", cpu="1"))
    api.wait(10)
    assert 4 == len(api.bound)


def test_many_nodes_on_which_devices_stand_in_for_a_resource_are_enough() -> None:
    """On each of these nodes the resource counts as unlimited, as far as amounts go."""
    where = [(f"{zone}{i}", zone) for zone in "ab" for i in range(10)]
    api = cluster(
        *(make_node(name, labels={RACK: zone}) for name, zone in where),
        *(device_slice(name, device("a")) for name, _ in where),
        device_class(extendedResourceName="example.com/gpu"),
        make_group("g", 3, key=RACK),
        *members("g", 3, requests={"example.com/gpu": "1"}),
    )
    assert 3 == len(api.bound)
    assert 1 == len(domains(api, "g", 1))


@pytest.mark.behaviour("S3.8")
def test_pods_beyond_the_minimum_are_placed_as_there_is_room() -> None:
    api = cluster(make_node("n1", cpu="3"), make_group("g", 2), *members("g", 4, cpu="1"))
    assert 3 == len(api.bound)
    api.put(make_node("n2", cpu="1"))
    api.wait(10)
    assert 4 == len(api.bound)


@pytest.mark.behaviour("S3.6")
def test_a_basic_group_takes_what_there_is() -> None:
    api = cluster(make_node("n1", cpu="2"), make_group("g", None), *members("g", 3, cpu="1"))
    assert 2 == len(api.bound)


def test_a_profile_that_compares_no_amounts_places_groups_all_the_same() -> None:
    off = [{"name": "NodeResourcesFit"}]
    profile = {"plugins": {"multiPoint": {"disabled": off}}}
    engine = build_engine({"profiles": [profile]})
    nodes = [make_node("n1", labels={RACK: "r1"}), make_node("n2", labels={RACK: "r2"})]
    far = {"nodeSelector": {RACK: "r3"}}
    api = Agreeing(
        engine,
        *nodes,
        make_group("g", 2, key=RACK),
        make_group("h", 1, key=RACK),
        *members("g", 2, cpu="100"),
        *members("h", 1, **far),
    )
    assert {"g-0", "g-1"} == set(api.bound)
    assert 1 == len(set(api.bound.values()))
    assert api.messages["h-0"].startswith(
        "impossible (proven): PodGroup default/h needs 1 pods in one rack"
    )


@pytest.mark.behaviour("S3.38")
def test_a_gang_waits_for_its_pods() -> None:
    api = cluster(make_node("n1"), make_group("g", 3), *members("g", 2))
    assert {} == api.bound
    assert ("waiting for minCount pods from a gang to appear in scheduling queue") == missing(api)
    api.put(members("g", 1, first=2)[0])
    assert 3 == len(api.bound)


def missing(api: Agreeing) -> str:
    """What the one tree that waits is waiting for."""
    (tree,) = {queued.tree for queued in api.engine.queue.pods()}
    assert tree is not None
    return tree.waits_for


def test_pods_are_counted_where_their_tree_is() -> None:
    api = cluster(make_node("n1", cpu="1"), make_group("g", 3), *members("g", 2, cpu="1"))
    counts = api.engine.queue.counts()
    assert (2, 0) == (counts[Place.GATED], counts[Place.UNSCHEDULABLE])
    api.put(members("g", 1, first=2, cpu="1")[0])
    counts = api.engine.queue.counts()
    assert (0, 3) == (counts[Place.GATED], counts[Place.UNSCHEDULABLE])


@pytest.mark.behaviour("S3.19")
def test_objects_of_a_tree_may_come_in_any_order() -> None:
    pods = [*members("g1", 2), *members("g2", 2)]
    groups = [make_group("g1", 2, parent="c"), make_group("g2", 2, parent="c")]
    api = cluster(make_node("n1"), *pods, *groups)
    assert {} == api.bound
    api.put(make_composite("c", 2))
    assert 4 == len(api.bound)


def test_a_group_without_an_object_is_waited_for() -> None:
    api = cluster(make_node("n1"), *members("g", 1))
    want = 'waiting for pods\'s pod group "g" to appear in scheduling queue'
    assert want == missing(api)
    api.put(make_group("g"))
    assert {"g-0": "n1"} == api.bound


@pytest.mark.behaviour("S3.12", "S3.10", "S3.9")
def test_the_keps_example_of_two_blocks() -> None:
    """KEP-6012 "Example": racks of 3 and 5 in block A, of 5 and 5 in block B."""
    api = cluster(
        *racks(a=(3, 5), b=(5, 5)),
        make_composite("root", 2, key=BLOCK),
        make_group("g1", 5, parent="root", key=RACK),
        make_group("g2", 5, parent="root", key=RACK),
        *members("g1", 5, cpu="1"),
        *members("g2", 5, cpu="1"),
    )
    assert [{"b1"}, {"b2"}] == sorted([domains(api, "g1", 2), domains(api, "g2", 2)], key=sorted)


@pytest.mark.behaviour("S3.18")
def test_the_keps_example_of_an_inadmissible_child() -> None:
    """KEP-6012 "Inadmissible child groups": CPG-1 needs two groups and has one."""
    api = cluster(
        make_node("n1", cpu="20", pods="200"),
        make_composite("root", 2),
        make_composite("cpg-1", 2, parent="root"),
        make_group("pg-11", 100, parent="cpg-1"),
        make_group("pg-2", 1, parent="root"),
        make_group("pg-3", 1, parent="root"),
        *members("pg-11", 100),
        *members("pg-2", 1),
        *members("pg-3", 1),
    )
    assert {"pg-2-0": "n1", "pg-3-0": "n1"} == api.bound


@pytest.mark.behaviour("S3.15")
def test_an_early_group_does_not_take_what_a_sibling_needs() -> None:
    """KEP-6012 "Resource stealing": 6 slots; the first group could use all of them."""
    api = cluster(
        make_node("n1", cpu="6"),
        make_composite("root", 2),
        make_group("g1", 2, parent="root"),
        make_group("g2", 4, parent="root", created="2026-01-02T00:00:00Z"),
        *members("g1", 6, cpu="1"),
        *members("g2", 4, cpu="1"),
    )
    assert [2, 4] == [sum(n.startswith(g) for n in api.bound) for g in ("g1-", "g2-")]


@pytest.mark.behaviour("S3.13", "S3.32")
def test_an_order_that_fails_is_not_the_last_word() -> None:
    """The first group would fill the only rack that the second fits in."""
    api = cluster(
        *racks(a=(2, 3)),
        make_composite("root", 2),
        make_group("g1", 2, parent="root", key=RACK),
        make_group("g2", 3, parent="root", key=RACK, created="2026-01-02T00:00:00Z"),
        *members("g1", 2, cpu="1"),
        *members("g2", 3, cpu="1"),
    )
    assert [{"a1"}, {"a2"}] == [domains(api, "g1", 2), domains(api, "g2", 2)]


@pytest.mark.behaviour("S3.14")
def test_a_leader_and_workers_of_another_size_are_one_gang() -> None:
    api = cluster(
        make_node("n1", cpu="4", labels={RACK: "r1"}),
        make_node("n2", cpu="3", labels={RACK: "r2"}),
        make_group("g", 3, key=RACK),
        *members("g", 2, cpu="1"),
        *members("g", 1, first=2, cpu="2"),
    )
    assert {"n1"} == set(api.bound.values())
    assert 3 == len(api.bound)


def test_a_preferred_domain_is_taken_where_there_is_one_and_no_reason_to_wait() -> None:
    near = {"annotations": {"stower.dev/preferred-topology": RACK}}
    pods = members("g", 3, cpu="1")
    api = cluster(*racks(a=(2, 2), b=(3,)), make_group("g", 3, key=BLOCK, **near), *pods)
    assert {"b1"} == domains(api, "g", 2)
    api = cluster(*racks(a=(2, 2), b=(1,)), make_group("g", 3, key=BLOCK, **near), *pods)
    assert {"a1", "a2"} == domains(api, "g", 2)
    api.put(members("g", 1, first=3, cpu="1")[0])
    assert {"a"} == domains(api, "g", 1)
    assert 4 == len(api.bound)


@pytest.mark.behaviour("S3.11")
def test_pods_that_are_placed_bind_the_rest_to_their_domain() -> None:
    first = members("g", 1, cpu="1", node="b1-0")[0]
    api = cluster(
        *racks(a=(3, 3), b=(2,)),
        first,
        make_group("g", 2, key=RACK),
        *members("g", 1, first=1, cpu="1"),
    )
    assert {"g-1": "b1-1"} == api.bound
    api.put(members("g", 1, first=2, cpu="1")[0])
    assert {"g-1": "b1-1"} == api.bound


def test_pods_in_two_domains_leave_no_choice() -> None:
    placed = [members("g", 1, first=i, cpu="1", node=n)[0] for i, n in ((0, "a1-0"), (1, "b1-0"))]
    api = cluster(*racks(a=(2,), b=(2,)), *placed, make_group("g", 3, key=RACK))
    api.put(members("g", 1, first=2, cpu="1")[0])
    assert {} == api.bound
    assert (
        "cannot determine domain for already scheduled pods: "
        "more than 1 domain found for pod group: a1, b1 "
        "(partially bound: 2 of its pods are on nodes)" == api.messages["g-2"]
    )


@pytest.mark.behaviour("S3.27")
def test_a_tree_that_is_placed_may_grow() -> None:
    api = cluster(
        *racks(a=(2, 2), b=(2, 2)),
        make_composite("root", 1, key=BLOCK),
        make_group("g1", 2, parent="root", key=RACK),
        *members("g1", 2, cpu="1"),
    )
    block = domains(api, "g1", 1)
    api.put(make_group("g2", 2, parent="root", key=RACK))
    for pod in members("g2", 2, cpu="1"):
        api.put(pod)
    assert block == domains(api, "g2", 1)


@pytest.mark.behaviour("S3.33")
def test_two_gangs_that_could_each_have_half_do_not_block_each_other() -> None:
    pods = [pod for pair in zip(members("g1", 3, cpu="1"), members("g2", 3, cpu="1"), strict=True)
            for pod in pair]  # fmt: skip
    api = cluster(make_node("n1", cpu="4"), make_group("g1", 3), make_group("g2", 3), *pods)
    assert [3] == [n for g in ("g1-", "g2-") if (n := sum(p.startswith(g) for p in api.bound))]


@pytest.mark.behaviour("S3.35")
def test_several_pods_of_a_gang_share_a_node_and_parts_of_it() -> None:
    share = {"example.com/gpu-share": "25"}
    api = cluster(
        gpu_node(),
        make_group("g", 4, key="kubernetes.io/hostname"),
        *members("g", 4, requests=share),
    )
    assert {"n1"} == set(api.bound.values())


def gpu_node() -> Any:
    node = make_node("n1", labels={"kubernetes.io/hostname": "n1"})
    node.status.allocatable["example.com/gpu-share"] = "100"
    return node


@pytest.mark.behaviour("S3.36")
def test_a_composite_group_may_have_one_child() -> None:
    api = cluster(
        make_node("n1"), make_composite("c", 1), make_group("g", 2, parent="c"), *members("g", 2)
    )
    assert 2 == len(api.bound)


@pytest.mark.behaviour("S3.29")
def test_an_attempt_that_fails_leaves_no_trace() -> None:
    api = cluster(
        make_node("n1", cpu="3"),
        make_composite("root", 2),
        make_group("g1", 2, parent="root"),
        make_group("g2", 2, parent="root"),
        *members("g1", 2, cpu="1"),
        *members("g2", 2, cpu="1"),
    )
    assert {} == api.bound
    column = api.engine.state.columns["cpu"]
    assert 0 == int(column.requested.sum())
    api.put(make_pod("other", cpu="3"))
    assert {"other": "n1"} == api.bound


@pytest.mark.behaviour("S3.41")
@pytest.mark.parametrize(
    ("odd", "told"),
    [
        (
            {"priority": 2},
            "all pods in a single pod group should match the priority of the pod group, "
            "got: 2 and 0 (pod default/g-1)",
        ),
        (
            {"preemptionPolicy": "Never"},
            "all pods in a single pod group should have the same preemption policy, "
            'got: "" and "Never" (pod default/g-1)',
        ),
    ],
)
def test_pods_of_a_group_that_disagree_are_told_so(odd: dict[str, Any], told: str) -> None:
    pods = [*members("g", 1), *members("g", 1, first=1, **odd)]
    api = cluster(make_node("n1"), make_group("g", 2), *pods)
    assert {} == api.bound
    assert told == api.messages["g-0"] == api.messages["g-1"]


@pytest.mark.behaviour("S3.20", "S3.26")
@pytest.mark.parametrize(
    ("groups", "told"),
    [
        (
            [make_composite("c", 1, parent="d"), make_composite("d", 1, parent="c"),
             make_group("g", 1, parent="c")],
            "cycle detected in composite pod group hierarchy: default/c",
        ),
        (
            [make_composite("c1", 1), make_composite("c2", 1, parent="c1"),
             make_composite("c3", 1, parent="c2"), make_composite("c4", 1, parent="c3"),
             make_group("g", 1, parent="c4")],
            "hierarchy depth of 5 exceeds maximum allowed depth of 4",
        ),
        (
            [make_composite("c", 1, workload="w1"), make_group("g", 1, parent="c", workload="w2")],
            "The groups refer to more than one Workload: w1 and w2",
        ),
        (
            [make_composite("c", 1, priority=5), make_group("g", 1, parent="c")],
            "all groups of a hierarchy should have the same priority, "
            "got: 0 (default/g) and 5 (default/c)",
        ),
    ],
)  # fmt: skip
def test_a_tree_that_is_none_is_not_tried(groups: list[Any], told: str) -> None:
    api = cluster(make_node("n1"), *groups, *members("g", 1))
    assert {} == api.bound
    assert told == api.messages["g-0"]


def test_a_pod_whose_bind_is_refused_does_not_lose_its_group() -> None:
    api = cluster(make_node("n1"), make_group("g", 2))
    tries = iter([400])
    api.refuses = lambda write: next(tries, 0) if isinstance(write, Bind) else 0
    for pod in members("g", 2):
        api.put(pod)
    api.wait(30)
    assert 2 == len(api.bound)


def test_a_tree_goes_on_after_one_of_its_pods_is_deleted() -> None:
    pods = members("g", 3, cpu="1")
    api = cluster(make_node("n1", cpu="2"), make_group("g", 2), *pods[:1])
    api.remove(pods[0])
    for pod in pods[1:]:
        api.put(pod)
    assert {"g-1", "g-2"} == set(api.bound)


@pytest.mark.behaviour("S3.30")
def test_a_list_does_not_part_a_gang_whose_binding_waits_for_a_claim() -> None:
    """Found by the simulator: who only waits for others was taken for lost, and its room given to
    others a minute later."""
    claim = resource_claim()
    entry = {"name": "shared", "resourceClaimName": "c1"}
    objects = (
        make_node("n1"),
        device_class(),
        device_slice("n1", device("a")),
        claim,
        make_group("g", 2),
        *members("g", 1, resourceClaims=[entry]),
        *members("g", 1, first=1),
    )
    engine = build_engine()
    writes = engine.step(Listed(objects), 0)
    assert [] == [write for write in writes if isinstance(write, Bind)]
    engine.step(Listed(objects), 5 * SECOND_NS)
    engine.step(Tick(), 90 * SECOND_NS)
    assert {"g-0", "g-1"} == {entry.pod.metadata.name for entry in engine.state.placed_pods()}
    # What does not come in time gives all of them up.
    engine.step(Tick(), 3_600 * SECOND_NS)
    assert [] == [write for write in writes if isinstance(write, Bind)]
    assert 2 == len([queued for queued in engine.queue.pods() if queued.tree is not None])


def said(api: Agreeing, obj: Any) -> list[tuple[str, str, str, str]]:
    """The conditions of a group."""
    conditions = api.get(obj).status.conditions or ()
    return [(c.type, c.status, c.reason, c.message) for c in conditions]


@pytest.mark.behaviour("S3.21")
def test_groups_are_told_why_they_wait_and_once_that_they_were_placed() -> None:
    top, group = make_composite("c", 1), make_group("g", 2, parent="c")
    api = cluster(make_node("n1", cpu="1"), top, group, *members("g", 2, cpu="1"))
    why = "impossible (proven): PodGroup default/g needs 2 pods, 1 fit: Insufficient cpu"
    assert [("PodGroupInitiallyScheduled", "False", "Unschedulable", why)] == said(api, group)
    assert [("CompositePodGroupInitiallyScheduled", "False", "Unschedulable", why)] == (
        said(api, top)
    )
    api.put(make_node("n2", cpu="1"))
    api.wait(10)
    done = ("True", "Scheduled", "")
    assert [("PodGroupInitiallyScheduled", *done)] == said(api, group)
    assert [("CompositePodGroupInitiallyScheduled", *done)] == said(api, top)
    api.put(members("g", 1, first=2, cpu="1")[0])
    api.wait(400)
    assert [("PodGroupInitiallyScheduled", *done)] == said(api, group)


@pytest.mark.behaviour("S3.20", "S3.21")
def test_all_groups_of_a_tree_that_is_none_are_told_so() -> None:
    groups = [make_composite("c", 1, workload="w1"), make_group("g", 1, parent="c", workload="w2")]
    api = cluster(make_node("n1"), *groups, *members("g", 1))
    why = "The groups refer to more than one Workload: w1 and w2"
    for group in groups:
        assert [("False", "Invalid", why)] == [word[1:] for word in said(api, group)]


def test_a_condition_that_was_refused_is_written_again() -> None:
    group = make_group("g", 1)
    api = cluster(make_node("n1"), group)
    tries = iter([409])
    api.refuses = lambda write: next(tries, 0) if isinstance(write, PatchObject) else 0
    api.put(members("g", 1)[0])
    api.put(api.get(group))
    assert [("True", "Scheduled")] == [word[1:3] for word in said(api, group)]


class Flaky(Plugin):
    """Agrees when it is tried, and fails at the second pod when that counts."""

    name = "Flaky"
    scope = Scope.PODS
    asked: ClassVar[list[str]] = []

    def is_relevant(self, shape: Shape) -> bool:
        return True

    def reserve(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> None:
        self.asked.append(pod.metadata.name)
        if len(self.asked) == 4:
            raise RuntimeError("out of luck")


def test_a_plugin_that_fails_halfway_leaves_nothing_half_done() -> None:
    Flaky.asked.clear()
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "Flaky"}]}}}
    engine = build_engine({"profiles": [profile]}, plugins=(Flaky,))
    api = Agreeing(engine, make_node("n1"), make_group("g", 2), *members("g", 2))
    assert {} == api.bound
    assert [] == list(engine.state.placed_pods())
    assert "out of luck" in api.messages["g-1"]
    api.wait(30)
    assert 2 == len(api.bound)


def test_what_was_given_up_is_tried_harder(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two pods at one switch, by a plugin that does not say so before: that is found out by
    trying. The first attempts end before it is."""
    monkeypatch.setattr(tree_cycle, "ROUNDS_MAX", 2)
    monkeypatch.setattr(InterPodAffinity, "tree_rules", lambda *_: ())
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "switch", "labelSelector": {"matchLabels": {"app": "g"}}}
            ]
        }
    }
    nodes = [
        make_node(f"{rack}{i}", cpu=cpu, labels={RACK: rack, "switch": f"{rack}-{switch}"})
        for rack, cpu, switches in (("a", "1", "11112222"), ("b", "8", "123"))
        for i, switch in enumerate(switches)
    ]
    pods = members("g", 3, cpu="1", labels={"app": "g"}, affinity=apart)
    api = cluster(*nodes, make_group("g", 3, key=RACK), *pods)
    assert {} == api.bound
    assert "not found yet (searched 2, goes on)" in api.messages["g-0"]
    for _ in range(4):
        api.wait(30)
    assert {"b0", "b1", "b2"} == set(api.bound.values())


def test_what_was_given_up_at_full_effort_waits_for_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same search on the same state would end in the same way."""
    found = ExhaustedSearch("plugins")
    tried: list[int] = []

    def give_up(self: Any, built: Any, problem: Any, effort: int, *rest: Any) -> Any:
        tried.append(effort)
        return found

    monkeypatch.setattr(Searches, "place", give_up)
    api = cluster(
        make_node("n1", cpu="2", labels={RACK: "a"}),
        make_group("g", 2, key=RACK),
        *members("g", 2, cpu="1"),
    )
    for _ in range(20):
        api.wait(10)
    first = len(tried)
    assert max(tried) == tree_cycle.EFFORT_MAX
    assert tried.count(tree_cycle.EFFORT_MAX) * 3 == first
    api.put(make_node("n2", cpu="2", labels={RACK: "a"}))
    api.wait(10)
    assert len(tried) > first


def test_what_was_given_up_waits_for_the_end_of_its_backoff(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes that come in between have it searched once, afterwards; one more pod at once."""
    tried: list[int] = []

    def give_up(self: Any, built: Any, problem: Any, effort: int, *rest: Any) -> Any:
        tried.append(effort)
        return ExhaustedSearch("plugins")

    monkeypatch.setattr(Searches, "place", give_up)
    pods = members("g", 3, cpu="1")
    api = cluster(
        make_node("n0", cpu="2", labels={RACK: "a"}), make_group("g", 2, key=RACK), *pods[:2]
    )
    first = len(tried)
    assert 0 < first
    for i in range(1, 4):
        api.put(make_node(f"n{i}", cpu="2", labels={RACK: "a"}))
    assert first == len(tried)
    api.wait(10)
    assert first < len(tried)
    again = len(tried)
    api.put(pods[2])
    assert again < len(tried)


def test_a_large_search_waits_for_the_end_of_its_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one is made again as soon as a node comes, while nothing else is to be done."""
    found, place = [], Searches.place

    def count(self: Any, built: Any, problem: Any, effort: int, *rest: Any) -> Any:
        found.append(problem.node_count)
        return place(self, built, problem, effort, *rest)

    monkeypatch.setattr(Searches, "place", count)
    tried = []
    for large in (1, 1_000):
        monkeypatch.setattr(entities, "LARGE_SEARCH", large)
        api = cluster(
            make_node("n0", cpu="1", labels={RACK: "a"}),
            make_group("g", 9, key=RACK),
            *members("g", 9, cpu="1"),
        )
        before = len(found)
        for i in range(1, 4):
            api.put(make_node(f"n{i}", cpu="1", labels={RACK: "a"}))
        tried.append(len(found) - before)
        api.wait(10)
        assert len(found) > before
    assert [0, 3] == tried


def test_a_tree_is_not_tried_again_for_what_it_was_told() -> None:
    """Its pods' conditions and its groups' come back as changes, which change nothing."""
    api = cluster(
        make_node("n1", cpu="3"),
        make_composite("root", 1),
        make_group("g", 4, parent="root"),
        *members("g", 4, cpu="1"),
    )
    (attempts,) = {queued.tree.attempts for queued in api.engine.queue.pods() if queued.tree}
    assert 1 == attempts
    api.put(make_node("n2", cpu="1"))
    api.wait(10)
    assert 4 == len(api.bound)


def test_a_group_of_several_sizes_is_told_which_amount_they_lack_together() -> None:
    """Five of each size would fit, and four are needed: that is no reason."""
    pods = [*members("g", 3, cpu="1"), *members("g", 3, first=3, cpu="2")]
    api = cluster(make_node("n1", cpu="4"), make_group("g", 4), *pods)
    assert (
        "impossible (proven): PodGroup default/g needs 4 pods, 3 of different sizes fit together: "
        "Insufficient cpu" in api.messages["g-0"]
    )
