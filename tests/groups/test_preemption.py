"""Trees of groups that preempt, and groups that are preempted."""

import random
from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.groups import tree_cycle
from stower.framework.writes import CreateEvent, DeletePod, PatchObject, PatchPodStatus
from stower.groups.placement import Answer, ExhaustedSearch
from stower.groups.problem import Problem
from stower.groups.problem_builder import IndexedProblem
from stower.groups.searches import Searches
from stower.model.kinds import Pod, ResourceClaim
from tests.builders import make_node, make_pod
from tests.device_builders import (
    GPU,
    Agreeing,
    claiming,
    device,
    device_class,
    device_slice,
    request,
    resource_claim,
)
from tests.group_builders import RACK, make_composite, make_group, members, racks

HIGH: Any = {"priority": 10}
ALL = {"all": {}}


def cluster(*objects: Any) -> Agreeing:
    return Agreeing(build_engine(), *objects)


def gone(api: Agreeing) -> set[str]:
    """Whom the scheduler has deleted."""
    return {write.name for write in api.writes if isinstance(write, DeletePod)}


def leave(api: Agreeing) -> None:
    """Those that were deleted are gone."""
    for pod in [p for p in api.objects.values() if p.metadata.name in gone(api)]:
        api.remove(pod)


@pytest.mark.behaviour("S3.23")
def test_a_gang_preempts_as_many_as_it_needs_and_waits_for_the_last() -> None:
    low = [members("low", 1, first=i, cpu="1", node="n1")[0] for i in range(4)]
    api = cluster(make_node("n1", cpu="4"), *low, make_group("g", 2, priority=10))
    for pod in members("g", 2, cpu="1", **HIGH):
        api.put(pod)
    assert {} == api.bound
    victims = sorted(gone(api))
    assert 2 == len(victims)
    api.remove(next(p for p in low if p.metadata.name == victims[0]))
    assert {} == api.bound
    api.remove(next(p for p in low if p.metadata.name == victims[1]))
    api.wait(10)
    assert {"g-0", "g-1"} == set(api.bound)


def test_a_gang_does_not_wait_for_a_victim_on_a_node_that_is_gone() -> None:
    n1 = make_node("n1", cpu="4")
    victims = [make_pod("low", cpu="4", node="n1"), make_pod("mid", cpu="4", node="n2", priority=5)]
    api = cluster(n1, make_node("n2", cpu="4"), *victims, make_group("g", 1, priority=10))
    api.put(members("g", 1, cpu="4", **HIGH)[0])
    assert {"low"} == gone(api)
    api.remove(n1)
    api.wait(400)
    assert {"low", "mid"} == gone(api)


@pytest.mark.parametrize("used", ["", "10.0.0.1"])
@pytest.mark.parametrize("wanted", ["", "10.0.0.1"])
def test_a_gang_evicts_pods_whose_host_ports_conflict(used: str, wanted: str) -> None:
    """A port of all addresses conflicts with that of one."""

    def at(ip: str, pod: Pod) -> Pod:
        (container,) = pod.spec.containers
        ports = tuple(msgspec.structs.replace(p, host_ip=ip) for p in container.ports or ())
        spec = msgspec.structs.replace(
            pod.spec, containers=(msgspec.structs.replace(container, ports=ports),)
        )
        return msgspec.structs.replace(pod, spec=spec)

    low = at(used, make_pod("low", cpu="1", node="n1", ports=[80]))
    api = cluster(make_node("n1", cpu="4"), low, make_group("g", 1, priority=10))
    api.put(at(wanted, members("g", 1, cpu="1", ports=[80], **HIGH)[0]))
    assert {"low"} == gone(api)


def test_a_tree_for_which_nobody_has_to_leave_is_placed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first search was given up; the one with everybody gone has found a placement on which
    all of them may stay."""
    answers = iter([ExhaustedSearch("plugins")])

    place = Searches.place

    def first_give_up(
        self: Searches, built: IndexedProblem, problem: Problem, effort: int, *rest: Any
    ) -> Answer:
        return next(answers, None) or place(self, built, problem, effort, *rest)

    monkeypatch.setattr(Searches, "place", first_give_up)
    low = members("low", 1, cpu="1", node="n1")
    nodes = [make_node(f"n{cpu}", cpu=f"{cpu}", labels={RACK: f"r{cpu}"}) for cpu in (1, 2)]
    api = cluster(*nodes, *low, make_group("g", 2, key=RACK, priority=10))
    for pod in members("g", 2, cpu="1", **HIGH):
        api.put(pod)
    assert {"g-0", "g-1"} == set(api.bound)
    assert not gone(api)


def test_other_pods_of_a_tree_that_is_placed_at_once_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([ExhaustedSearch("plugins")])

    place = Searches.place

    def first_give_up(
        self: Searches, built: IndexedProblem, problem: Problem, effort: int, *rest: Any
    ) -> Answer:
        return next(answers, None) or place(self, built, problem, effort, *rest)

    monkeypatch.setattr(Searches, "place", first_give_up)
    low = members("low", 1, cpu="1", node="n1")
    nodes = [make_node(f"n{cpu}", cpu=f"{cpu}", labels={RACK: f"r{cpu}"}) for cpu in (1, 8)]
    group = make_group("g", 2, key=RACK, priority=10)
    api = cluster(*nodes, *low, group, *members("g", 4, cpu="1", **HIGH))
    api.wait(10)
    assert 4 == len(api.bound)


def test_a_gang_preempts_for_the_devices_of_all_its_pods() -> None:
    """Each of them alone would find a device."""
    victim = claiming("low", "held", node="n1", priority=1)
    allocated = {
        "allocation": {"devices": {"results": [
            {"request": "r", "driver": GPU, "pool": "n1", "device": "a"}
        ]}},
        "reservedFor": [{"resource": "pods", "name": "low", "uid": victim.metadata.uid}],
    }  # fmt: skip
    api = cluster(
        make_node("n1", cpu="9"), device_class(), device_slice("n1", device("a"), device("b")),
        resource_claim("held", request(), status=allocated), victim,
        *(resource_claim(f"c{i}", request()) for i in range(2)),
        make_group("g", 2, priority=10),
    )  # fmt: skip
    for i in range(2):
        api.put(claiming(f"g-{i}", f"c{i}", schedulingGroup={"podGroupName": "g"}, **HIGH))
    assert {"low"} == gone(api)
    assert {} == api.bound


def test_victims_are_told_who_comes() -> None:
    low = members("low", 1, cpu="1", node="n1")
    api = cluster(make_node("n1", cpu="1"), *low, make_group("g", 1, priority=10))
    api.put(members("g", 1, cpu="1", **HIGH)[0])
    told = [w.condition for w in api.writes if isinstance(w, PatchPodStatus) and w.name == "low-0"]
    assert told[0] is not None
    want = "default-scheduler: preempting to accommodate a higher priority podgroup"
    assert ("DisruptionTarget", "PreemptionByScheduler", want) == (
        told[0].type, told[0].reason, told[0].message
    )  # fmt: skip


@pytest.mark.behaviour("S3.23")
def test_nobody_leaves_for_a_gang_that_would_not_fit_all_the_same() -> None:
    low = members("low", 2, cpu="1", node="n1")
    api = cluster(make_node("n1", cpu="2"), *low, make_group("g", 3, priority=10))
    for pod in members("g", 3, cpu="1", **HIGH):
        api.put(pod)
    assert set() == gone(api)
    assert "Preemption is not helpful for scheduling" in api.messages["g-0"]


@pytest.mark.behaviour("S3.25")
def test_a_domain_is_emptied_for_a_gang_that_must_be_in_one() -> None:
    """Each rack has one free node of two: one victim is enough, and it is in the gang's rack."""
    low = [
        members("low", 1, first=i, cpu="1", node=f"{r}-0")[0] for i, r in enumerate(("a1", "b1"))
    ]
    api = cluster(*racks(a=(2,), b=(2,)), *low, make_group("g", 2, key=RACK, priority=10))
    for pod in members("g", 2, cpu="1", **HIGH):
        api.put(pod)
    assert 1 == len(gone(api))
    leave(api)
    api.wait(10)
    assert 1 == len({node[:2] for node in api.bound.values()})
    assert 2 == len(api.bound)


@pytest.mark.behaviour("S3.24", "S3.22")
def test_a_group_that_is_disrupted_as_a_whole_leaves_as_a_whole() -> None:
    low = [members("low", 1, first=i, cpu="1", node=f"n{i}")[0] for i in range(3)]
    api = cluster(
        *(make_node(f"n{i}", cpu="1") for i in range(3)),
        make_group("low", 1, disruptionMode=ALL),
        *low,
        make_group("g", 1, priority=10),
    )
    api.put(members("g", 1, cpu="1", **HIGH)[0])
    assert {"low-0", "low-1", "low-2"} == gone(api)


@pytest.mark.behaviour("S3.24")
def test_the_highest_group_that_says_all_is_the_unit() -> None:
    api = cluster(
        *(make_node(f"n{i}", cpu="1") for i in range(3)),
        make_composite("top", 1),
        make_composite("c", 1, parent="top", disruptionMode=ALL),
        make_group("x", 1, parent="c", disruptionMode=ALL),
        make_group("y", 1, parent="c", disruptionMode=ALL),
        make_group("z", 1, parent="top"),
        *members("x", 1, cpu="1", node="n0"),
        *members("y", 1, cpu="1", node="n1"),
        *members("z", 1, cpu="1", node="n2", priority=5),
        make_group("g", 1, priority=10),
    )
    api.put(members("g", 1, cpu="1", **HIGH)[0])
    assert {"x-0", "y-0"} == gone(api)


@pytest.mark.behaviour("S3.24")
def test_the_less_important_leave_first() -> None:
    low = [
        members("low", 1, cpu="1", node="n0", priority=5)[0],
        members("low", 1, first=1, cpu="1", node="n1", priority=1)[0],
    ]
    api = cluster(make_node("n0", cpu="1"), make_node("n1", cpu="1"), *low)
    api.put(make_group("g", 1, priority=10))
    api.put(members("g", 1, cpu="1", **HIGH)[0])
    assert {"low-1"} == gone(api)


def test_equal_priorities_leave_nobody() -> None:
    low = members("low", 1, cpu="1", node="n1", priority=10)
    api = cluster(make_node("n1", cpu="1"), *low, make_group("g", 1, priority=10))
    api.put(members("g", 1, cpu="1", **HIGH)[0])
    assert set() == gone(api)
    assert "No preemption victims found for incoming preemptor" in api.messages["g-0"]


def test_a_gang_that_must_not_preempt_waits() -> None:
    low = members("low", 1, cpu="1", node="n1")
    api = cluster(make_node("n1", cpu="1"), *low, make_group("g", 1, priority=10))
    api.put(members("g", 1, cpu="1", preemptionPolicy="Never", **HIGH)[0])
    assert set() == gone(api)
    assert "not eligible due to preemptionPolicy=Never." in api.messages["g-0"]


def test_a_gang_that_waits_for_victims_asks_for_no_more() -> None:
    low = members("low", 2, cpu="1", node="n1")
    api = cluster(make_node("n1", cpu="2"), *low, make_group("g", 1, priority=10))
    api.put(members("g", 1, cpu="1", **HIGH)[0])
    before = gone(api)
    for _ in range(5):
        api.wait(60)
    assert before == gone(api)
    assert 1 == len(before)


def test_a_tree_preempts_for_its_whole_minimum() -> None:
    low = [members("low", 1, first=i, cpu="1", node=f"n{i}")[0] for i in range(3)]
    api = cluster(
        *(make_node(f"n{i}", cpu="1") for i in range(3)),
        *low,
        make_composite("root", 2, priority=10),
        make_group("g1", 1, parent="root", priority=10),
        make_group("g2", 1, parent="root", priority=10),
    )
    for pod in [*members("g1", 1, cpu="1", **HIGH), *members("g2", 1, cpu="1", **HIGH)]:
        api.put(pod)
    assert 2 == len(gone(api))
    leave(api)
    api.wait(10)
    assert {"g1-0", "g2-0"} == set(api.bound)


def test_a_group_may_say_itself_that_nobody_leaves_for_it() -> None:
    low = members("low", 1, cpu="1", node="n1")
    group = make_group("g", 1, priority=10, preemptionPolicy="Never")
    api = cluster(make_node("n1", cpu="1"), *low, group)
    api.put(members("g", 1, cpu="1", **HIGH)[0])
    assert set() == gone(api)
    assert "not eligible due to preemptionPolicy=Never." in api.messages["g-0"]


# Pods that preempt alone


@pytest.mark.behaviour("S3.24", "S3.22")
def test_for_a_pod_too_a_group_leaves_as_a_whole() -> None:
    low = [members("low", 1, first=i, cpu="1", node=f"n{i}")[0] for i in range(3)]
    group = make_group("low", 1, disruptionMode=ALL)
    api = cluster(*(make_node(f"n{i}", cpu="1") for i in range(3)), group, *low)
    api.put(make_pod("p", cpu="1", **HIGH))
    assert {"low-0", "low-1", "low-2"} == gone(api)
    leave(api)
    api.wait(10)
    assert ["p"] == [*api.bound]


@pytest.mark.behaviour("S3.21")
def test_groups_that_leave_say_so() -> None:
    low = [members("low", 1, first=i, cpu="1", node=f"n{i}")[0] for i in range(2)]
    api = cluster(
        *(make_node(f"n{i}", cpu="1") for i in range(2)),
        make_composite("top", 1, disruptionMode=ALL),
        make_group("low", 1, parent="top", disruptionMode=ALL),
        *low,
    )
    api.put(make_pod("p", cpu="1", **HIGH))
    want = (
        "DisruptionTarget", "True", "PreemptionByScheduler",
        "default-scheduler: preempting to accommodate a higher priority pod",
    )  # fmt: skip
    for obj in (make_composite("top"), make_group("low")):
        (told,) = [c for c in api.get(obj).status.conditions if c.type == want[0]]
        assert want == (told.type, told.status, told.reason, told.message)
    events = {w.name: w for w in api.writes if isinstance(w, CreateEvent) and w.about[1] != "Pod"}
    assert {"top", "low"} == set(events)
    assert ("Normal", "Preempted", "Preempting") == (
        events["top"].type, events["top"].reason, events["top"].action
    )  # fmt: skip


def test_a_pod_spares_the_group_that_would_lose_more() -> None:
    """One pod of the same priority leaves rather than a group of three."""
    api = cluster(
        *(make_node(f"n{i}", cpu="1") for i in range(4)),
        make_group("low", 1, disruptionMode=ALL),
        *(members("low", 1, first=i, cpu="1", node=f"n{i}")[0] for i in range(3)),
        make_pod("single", cpu="1", node="n3"),
    )
    api.put(make_pod("p", cpu="1", **HIGH))
    assert {"single"} == gone(api)


def test_a_pod_does_not_break_a_group_of_its_own_priority() -> None:
    """What counts is the priority of the group."""
    api = cluster(
        make_node("n0", cpu="1"),
        make_group("low", 1, disruptionMode=ALL, priority=10),
        *members("low", 1, cpu="1", node="n0"),
    )
    api.put(make_pod("p", cpu="1", **HIGH))
    assert set() == gone(api)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_kept_from_pod_to_pod_is_what_is_found_anew(seed: int) -> None:
    """Whole groups come, go and end while pods of one shape preempt one after another: the victims
    are those that a scheduler which knows nothing yet would choose."""
    chance = random.Random(seed)
    nodes = [make_node(f"n{i}", cpu="4") for i in range(5)]
    groups = [
        make_group(f"g{i}", 1, disruptionMode=ALL if chance.random() < 0.7 else {"single": {}})
        for i in range(3)
    ]
    pods = [
        make_pod(
            f"low-{i}",
            cpu=str(chance.choice((1, 2))),
            node=f"n{i % 5}",
            priority=chance.choice((0, 1)),
            **({"schedulingGroup": {"podGroupName": f"g{i % 3}"}} if chance.random() < 0.6 else {}),
        )
        for i in range(12)
    ]
    api = cluster(*nodes, *groups, *pods)
    for turn in range(5):
        before = gone(api)
        objects = [*api.objects.values()]
        preemptor = make_pod(f"p{turn}", cpu="3", **HIGH)
        api.put(preemptor)
        anew = cluster(*objects)
        anew.put(preemptor)
        assert gone(anew) == gone(api) - before
        leave(api)
        api.wait(10)
        if chance.random() < 0.3 and turn < 3:
            api.remove(api.get(groups[turn]))


@pytest.mark.parametrize("preemptors", ["pod", "gang"])
def test_an_eviction_that_was_refused_is_asked_for_again(preemptors: str) -> None:
    low = [members("low", 1, first=i, cpu="1", node="n1")[0] for i in range(2)]
    api = cluster(make_node("n1", cpu="2"), *low, make_group("g", 2, priority=10))
    tried: list[str] = []

    def refuses(write: Any) -> int:
        if isinstance(write, DeletePod):
            tried.append(write.name)
        return 500 if isinstance(write, DeletePod) and len(tried) == 1 else 0

    api.refuses = refuses
    if preemptors == "pod":
        api.put(make_pod("p", cpu="2", **HIGH))
    else:
        for pod in members("g", 2, cpu="1", **HIGH):
            api.put(pod)
    for _ in range(6):
        for pod in low:
            if pod.metadata.uid in api.objects and pod.metadata.name in tried[1:]:
                api.remove(pod)
        api.wait(10)
    assert api.bound


@pytest.mark.parametrize(("least", "count"), [(3, 4), (5, 6), (5, 8)])
def test_nobody_leaves_for_more_than_the_minimum(least: int, count: int) -> None:
    low = [members("low", 1, first=i, cpu="1", node=f"n{i}")[0] for i in range(8)]
    nodes = [make_node(f"n{i}", cpu="1") for i in range(8)]
    pods = members("g", count, cpu="1", **HIGH)
    api = cluster(*nodes, *low, *pods, make_group("g", least, priority=10))
    assert least == len(gone(api))
    leave(api)
    api.wait(10)
    assert least == len(api.bound)


def test_only_those_leave_whose_devices_a_gang_needs_however_unimportant_others_are() -> None:
    claims = [resource_claim(name, request()) for name in ("c0", "c1", "h0", "h1")]
    slices = device_slice("n0", device("gpu-0"), device("gpu-1"))
    nodes = [make_node(f"n{i}") for i in range(9)]
    api = cluster(*nodes, device_class(), slices, *claims)
    for i in range(2):
        api.put(claiming(f"h{i}", f"h{i}", priority=1))
    for i in range(1, 9):
        api.put(make_pod(f"small{i}", node=f"n{i}"))
    api.put(make_group("g", 2, priority=10))
    for i in range(2):
        api.put(claiming(f"g-{i}", f"c{i}", schedulingGroup={"podGroupName": "g"}, **HIGH))
    assert {"h0", "h1"} == gone(api)


def test_devices_of_more_important_pods_are_known_to_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gang needs two devices in one rack. Those of n0 are held by pods that stay, and n1 has
    one: no search is needed to see that, when pods leave without devices either."""
    searches = []
    attempt = tree_cycle.TreeCycle.attempt

    def counted(*args: Any, **more: Any) -> Any:
        searches.append(args)
        return attempt(*args, **more)

    monkeypatch.setattr(tree_cycle.TreeCycle, "attempt", counted)
    claims = [resource_claim(name, request()) for name in ("c0", "c1", "h0", "h1", "low")]
    api = cluster(
        *(make_node(f"n{i}", labels={RACK: f"r{i}"}) for i in range(6)), device_class(),
        device_slice("n0", device("a"), device("b")), device_slice("n1", device("c")), *claims,
    )  # fmt: skip
    for name in ("h0", "h1"):
        api.put(claiming(name, name, priority=20))
    api.put(claiming("low", "low"))
    small = [make_pod(f"small{i}", node=f"n{i}") for i in range(6)]
    for pod in small:
        api.put(pod)
    api.put(make_group("g", 2, key=RACK, priority=10))
    for i in range(2):
        api.put(claiming(f"g-{i}", f"c{i}", schedulingGroup={"podGroupName": "g"}, **HIGH))
    for pod in small:
        api.remove(pod)
        api.wait(10)
    assert set() == gone(api)
    assert 1 == len(searches)


class HoldingClaims(Agreeing):
    """An API that does not answer patches of claims."""

    def _carry_out(self, write: Any) -> None:
        if not (isinstance(write, PatchObject) and write.view is ResourceClaim):
            super()._carry_out(write)


def test_a_device_that_is_being_allocated_for_an_extended_resource_is_preempted_for() -> None:
    """The claim is there, and its allocation is not in the API yet: it counts all the same."""
    by_name = {"example.com/gpu": "1"}
    api = HoldingClaims(
        build_engine(), make_node("n1"), device_slice("n1", device("d")),
        device_class(extendedResourceName="example.com/gpu"), make_pod("low", requests=by_name),
    )  # fmt: skip
    assert {} == api.bound
    api.put(make_group("g", 1, priority=10))
    for pod in members("g", 1, requests=by_name, **HIGH):
        api.put(pod)
    api.wait(2)
    notes = [write.note for write in api.writes if isinstance(write, CreateEvent)]
    assert any("Preempted by podgroup" in note for note in notes)


def test_who_leaves_for_a_device_may_spare_who_was_to_leave_for_room() -> None:
    claims = [resource_claim(name, request()) for name in ("c0", "c1", "held")]
    slices = device_slice("n1", device("gpu-0"), device("gpu-1"))
    api = cluster(make_node("n1", cpu="4"), device_class(), slices, *claims)
    api.put(claiming("both", "held", priority=5, cpu="2"))
    api.put(make_pod("room", cpu="2", node="n1", priority=1))
    api.put(make_group("g", 2, priority=10))
    for i in range(2):
        one = {"schedulingGroup": {"podGroupName": "g"}, "cpu": "1"}
        api.put(claiming(f"g-{i}", f"c{i}", **one, **HIGH))
    assert {"both"} == gone(api)


def whole(name: str, count: int) -> list[Any]:
    """A group that leaves as a whole, on node n1."""
    group = make_group(name, count, priority=1, disruptionMode=ALL)
    return [group, *members(name, count, cpu="1", node="n1", priority=1)]


def test_of_two_units_that_are_each_enough_the_smaller_one_leaves() -> None:
    """Two places are needed; the groups of 4 and of 3 have the same priority."""
    api = cluster(
        make_node("n1", cpu="7"), *whole("four", 4), *whole("three", 3),
        make_group("g", 2, priority=10), *members("g", 2, cpu="1", **HIGH),
    )  # fmt: skip
    assert {"three-0", "three-1", "three-2"} == gone(api)
    leave(api)
    api.wait(10)
    assert 2 == len(api.bound)


def test_one_unit_leaves_rather_than_two() -> None:
    """Each of the small ones is less important than the large one."""
    small = [members("low", 1, first=i, cpu="1", node="n1", priority=1)[0] for i in range(2)]
    api = cluster(
        make_node("n1", cpu="5"), *whole("three", 3), *small,
        make_group("g", 2, priority=10), *members("g", 2, cpu="1", **HIGH),
    )  # fmt: skip
    assert {"three-0", "three-1", "three-2"} == gone(api)


def test_evictions_are_for_those_pods_of_a_group_that_fit() -> None:
    """The first pods are too large for any node; two others are the minimum."""
    large = members("g", 2, cpu="9", **HIGH)
    fitting = members("g", 2, first=2, cpu="2", **HIGH)
    api = cluster(
        make_node("n1", cpu="4"), *members("low", 1, cpu="3", node="n1"),
        make_group("g", 2, priority=10), *large, *fitting,
    )  # fmt: skip
    assert {"low-0"} == gone(api)
    leave(api)
    api.wait(10)
    assert {"g-2", "g-3"} == set(api.bound)


def test_what_pods_of_a_tree_are_promised_is_not_in_their_own_way() -> None:
    """Each was nominated to the only node on which the other may be."""
    tree = [
        make_composite("c", 2, priority=10),
        *(make_group(name, 2, parent="c", key=RACK, priority=10) for name in "ab"),
    ]
    there = [
        members(name, 1, cpu="1", node=node, **HIGH)[0] for name, node in (("a", "n2"), ("b", "n1"))
    ]
    waiting = [
        members(name, 1, first=1, cpu="1", nominated=node, **HIGH)[0]
        for name, node in (("a", "n1"), ("b", "n2"))
    ]
    nodes = [make_node(f"n{i}", cpu="2", labels={RACK: f"r{i}"}) for i in (1, 2)]
    api = cluster(*nodes, *tree, *there, *waiting)
    assert {"a-1": "n2", "b-1": "n1"} == api.bound


def test_a_tree_takes_the_places_for_which_others_were_evicted() -> None:
    """Room that comes elsewhere in between does not change where it goes."""
    low = [members("low", 1, first=i, cpu="1", node="n1")[0] for i in range(2)]
    api = cluster(
        make_node("n1", cpu="2"), make_node("n2", cpu="1"), *low, make_group("g", 2, priority=10),
        *members("g", 2, cpu="1", **HIGH),
    )  # fmt: skip
    assert 1 == len(gone(api))
    leave(api)
    api.put(make_node("n3", cpu="64"))
    api.wait(10)
    assert {"n1", "n2"} == set(api.bound.values())


def test_whom_a_pod_has_to_be_near_is_not_evicted_for_it() -> None:
    """Both have its priority beneath them; without both it would have nobody to follow."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    near: dict[str, Any] = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    there = [make_pod(name, cpu="1", node="n1", labels={"app": name}) for name in "xy"]
    api = cluster(
        make_node("n1", cpu="2", labels={"kubernetes.io/hostname": "n1"}), *there,
        make_group("g", 1, priority=10), *members("g", 1, cpu="1", affinity=near, **HIGH),
    )  # fmt: skip
    assert {"y"} == gone(api)
    leave(api)
    api.wait(10)
    assert {"g-0": "n1"} == api.bound


@pytest.mark.parametrize("others", [6, 7, 20])
@pytest.mark.parametrize("priority", [0, 5])
def test_those_that_a_tree_has_to_be_near_stay(others: int, priority: int) -> None:
    """However many others there are of lower priority."""
    near = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "cache"}}}
            ]
        }
    }
    nodes = [make_node(f"n{i}", cpu=("4", "64")[i], labels={"host": f"n{i}"}) for i in range(2)]
    low = [
        make_pod("cache", node="n0", cpu="1", labels={"app": "cache"}, priority=priority),
        make_pod("batch", node="n0", cpu="3", priority=0),
        *(make_pod(f"other-{i}", node="n1", cpu="100m", priority=0) for i in range(others)),
    ]
    api = cluster(*nodes, *low, make_group("g", 2, priority=10))
    for pod in members("g", 2, cpu="1", affinity=near, **HIGH):
        api.put(pod)
    assert {"batch"} == gone(api)


def test_who_waits_for_its_victims_is_not_told_that_it_is_impossible() -> None:
    low = members("low", 1, cpu="2", node="n1")
    api = cluster(make_node("n1", cpu="2"), *low, make_group("g", 2, priority=10))
    for pod in members("g", 2, cpu="1", **HIGH):
        api.put(pod)
    assert {"low-0"} == gone(api)
    assert (
        "waits for pods of lower priority to leave: default/low-0; then it is placed"
        in (api.messages["g-0"])
    )
