"""Trees that wait for something to appear, and trees of which only a part was bound."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.framework.writes import CreateEvent, DeletePod
from stower.model.kinds.pod_group import GroupCondition, PodGroupStatus
from tests.builders import make_node
from tests.device_builders import Agreeing
from tests.group_builders import RACK, make_composite, make_group, members

RELEASE = {"stower.dev/when-half-bound": "Release"}


def cluster(*objects: Any) -> Agreeing:
    return Agreeing(build_engine(), *objects)


def conditions(api: Agreeing, obj: Any) -> list[tuple[str, str, str]]:
    found = api.get(obj).status.conditions or ()
    return [(c.type, c.reason, c.message) for c in found]


@pytest.mark.behaviour("S3.38")
def test_what_a_gang_waits_for_is_told_after_a_while() -> None:
    """At once it would be told of nearly all gangs, whose pods come one after another."""
    text = "waiting for minCount pods from a gang to appear in scheduling queue"
    api = cluster(make_node("n1"), make_group("g", 3), *members("g", 2))
    api.wait(14)
    assert {} == api.messages
    api.wait(1)
    assert {"g-0": text, "g-1": text} == api.messages
    assert [("PodGroupInitiallyScheduled", "Unschedulable", text)] == conditions(
        api, make_group("g")
    )
    (said,) = [c for c in api.get(members("g", 1)[0]).status.conditions if c.status == "False"]
    assert ("PodScheduled", "SchedulingGated") == (said.type, said.reason)
    api.put(members("g", 1, first=2)[0])
    assert 3 == len(api.bound)


@pytest.mark.behaviour("S3.19")
def test_what_pods_wait_for_is_told_where_their_root_is_missing() -> None:
    api = cluster(make_node("n1"), make_group("g", 1, parent="root"), *members("g", 1))
    api.wait(15)
    assert {"g-0": 'waiting for composite pod group "root" to appear'} == api.messages
    api.put(make_composite("root", 1))
    assert ["g-0"] == [*api.bound]


def test_who_came_in_time_is_told_nothing() -> None:
    api = cluster(make_node("n1"), make_group("g", 2), *members("g", 1))
    api.wait(10)
    api.put(members("g", 1, first=1)[0])
    api.wait(60)
    assert (2, {}) == (len(api.bound), api.messages)


def half_bound(**group: Any) -> Agreeing:
    """Whoever bound the first two of three pods has crashed; the room of the third is gone."""
    nodes = [make_node(f"n{i}", cpu="1") for i in range(2)]
    bound = [members("g", 1, first=i, cpu="1", node=f"n{i}")[0] for i in range(2)]
    return cluster(*nodes, make_group("g", 3, **group), *bound, *members("g", 1, first=2, cpu="1"))


@pytest.mark.behaviour("S3.30")
def test_a_gang_that_is_half_bound_says_so_and_is_completed_when_there_is_room() -> None:
    api = half_bound()
    assert "(partially bound: 2 of its pods are on nodes)" in api.messages["g-2"]
    for _ in range(20):
        api.wait(60)
    assert [] == [w for w in api.writes if isinstance(w, DeletePod)]
    api.put(make_node("n2", cpu="1"))
    api.wait(10)
    assert {"g-2": "n2"} == api.bound


@pytest.mark.behaviour("S3.30")
def test_a_gang_that_is_half_bound_is_released_where_it_says_so() -> None:
    """After five minutes, so that others can have the room."""
    api = half_bound(annotations={**RELEASE})
    for _ in range(4):
        api.wait(60)
    assert [] == [w for w in api.writes if isinstance(w, DeletePod)]
    api.wait(60)
    assert {"g-0", "g-1"} == {w.name for w in api.writes if isinstance(w, DeletePod)}
    told = [w for w in api.writes if isinstance(w, CreateEvent) and w.reason == "Released"]
    assert {"g-0", "g-1"} == {w.name for w in told}
    assert {"Deleting the pod: group g was partially bound for 300 s"} == {w.note for w in told}


def test_a_gang_that_was_whole_once_is_not_released() -> None:
    """It has lost a pod since: that is no half of what was to be bound."""
    placed = GroupCondition("PodGroupInitiallyScheduled", "True", "Scheduled")
    api = half_bound(annotations={**RELEASE})
    status = PodGroupStatus(conditions=(placed,))
    api.put(msgspec.structs.replace(make_group("g", 3, annotations={**RELEASE}), status=status))
    for _ in range(12):
        api.wait(60)
    assert [] == [w for w in api.writes if isinstance(w, DeletePod)]


def test_a_cycle_that_is_broken_waits_for_what_is_missing_then() -> None:
    api = cluster(
        make_node("n1"),
        make_composite("c0", 1, parent="c1"),
        make_composite("c1", 1, parent="c0"),
        make_group("g", 1, parent="c0"),
        *members("g", 1),
    )
    assert "cycle detected" in api.messages["g-0"]
    api.remove(make_composite("c1"))
    assert {} == api.bound
    api.put(make_composite("c1", 1))
    assert ["g-0"] == [*api.bound]


def test_a_node_that_comes_into_another_domain_is_looked_at() -> None:
    nodes = [make_node(f"n{i}", cpu="1") for i in range(2)]
    api = cluster(*nodes, make_group("g", 2, key=RACK), *members("g", 2, cpu="1"))
    assert {} == api.bound
    for i in range(2):
        api.put(make_node(f"n{i}", cpu="1", labels={RACK: "r1"}))
    api.wait(10)
    assert 2 == len(api.bound)


def test_pods_that_others_have_bound_are_counted() -> None:
    api = cluster(make_node("n1"), make_group("g", 2), *members("g", 1))
    api.put(members("g", 1, first=1, node="n1")[0])
    assert ["g-0"] == [*api.bound]


@pytest.mark.behaviour("S3.20")
def test_what_is_faulty_is_told_so_however_little_of_it_is_there() -> None:
    api = cluster(
        make_node("n1"),
        make_composite("a", 2, parent="b"),
        make_composite("b", 2, parent="a"),
        make_group("g", 3, parent="a"),
        *members("g", 1),
    )
    for obj in (make_composite("a"), make_composite("b"), make_group("g")):
        (found,) = conditions(api, obj)
        assert "Invalid" == found[1]


def test_a_group_that_has_not_its_minimum_is_not_told_that_it_has() -> None:
    api = cluster(
        make_node("n1", cpu="2"),
        make_composite("root", 1),
        make_group("a", 2, parent="root"),
        make_group("b", 2, parent="root"),
        *members("a", 2, cpu="1"),
        *members("b", 2, cpu="1"),
    )
    assert {"a-0", "a-1"} == set(api.bound)
    text = "The composite group has its minimum; there is no room for the minimum of this group"
    assert api.messages["b-0"].startswith(text)
    assert [("PodGroupInitiallyScheduled", "Unschedulable", text)] == conditions(
        api, make_group("b")
    )


@pytest.mark.behaviour("S3.30")
def test_a_half_bound_gang_whose_other_pods_are_missing_is_released_too() -> None:
    bound = [members("g", 1, first=i, node="n1")[0] for i in range(2)]
    group = make_group("g", 4, annotations={**RELEASE})
    api = cluster(make_node("n1"), group, *bound, *members("g", 1, first=2))
    api.wait(15)
    assert api.messages["g-2"].endswith("(partially bound: 2 of its pods are on nodes)")
    for _ in range(4):
        api.wait(60)
    assert [] == [w for w in api.writes if isinstance(w, DeletePod)]
    api.wait(61)
    assert {"g-0", "g-1"} == {w.name for w in api.writes if isinstance(w, DeletePod)}


@pytest.mark.behaviour("S3.41")
def test_pods_of_a_group_have_one_scheduler() -> None:
    profiles = [{"schedulerName": name} for name in ("one", "two")]
    pods = [members("g", 1, first=i, schedulerName=p["schedulerName"])[0]
            for i, p in enumerate(profiles)]  # fmt: skip
    api = Agreeing(build_engine({"profiles": profiles}), make_node("n1"), make_group("g", 2), *pods)
    assert {} == api.bound
    want = (
        "all pods in a single pod group should have the same .spec.schedulerName set, "
        'got: "one" and "two" (pod default/g-1)'
    )
    assert want == api.messages["g-0"]


def test_a_group_is_told_what_is_in_the_way_of_all_its_pods() -> None:
    api = cluster(make_node("n1", cpu="1"), make_group("g", 2), *members("g", 2, cpu="4"))
    ((_, reason, message),) = conditions(api, make_group("g"))
    assert "Unschedulable" == reason
    assert (
        "needs 2 pods, 0 fit: no node is feasible for one of its pods; one pod alone: 0/1 nodes"
        in message
    )
    assert "Insufficient cpu" in message


def job_of_two_groups() -> Agreeing:
    """Both groups were placed; the pods of one have all ended."""
    api = cluster(
        make_node("n1"),
        make_composite("root", 2),
        make_group("leader", 1, parent="root"),
        make_group("workers", 2, parent="root"),
        *members("leader", 1),
        *members("workers", 2),
    )
    assert 3 == len(api.bound)
    api.remove(members("leader", 1)[0])
    return api


@pytest.mark.behaviour("S3.27")
def test_a_group_whose_pods_have_ended_is_not_waited_for() -> None:
    """One pod of the others is lost and comes again."""
    api = job_of_two_groups()
    api.remove(members("workers", 1)[0])
    api.put(members("workers", 1, first=2)[0])
    assert "n1" == api.bound["workers-2"]


def test_a_tree_of_which_nobody_is_left_begins_anew() -> None:
    api = job_of_two_groups()
    for pod in members("workers", 2):
        api.remove(pod)
    for pod in members("workers", 2, first=2):
        api.put(pod)
    assert "workers-2" not in api.bound
    api.put(members("leader", 1, first=1)[0])
    assert {"leader-1", "workers-2", "workers-3"} < set(api.bound)


def test_that_a_root_is_missing_is_told_at_once_and_names_it() -> None:
    group = make_group("g", 1, parent="root")
    api = cluster(make_node("n1"), group, *members("g", 1))
    api.wait(0)
    text = 'waiting for composite pod group "root" to appear'
    assert [("PodGroupInitiallyScheduled", "Invalid", text)] == conditions(api, group)
    api.put(make_composite("root", 1))
    assert ["g-0"] == [*api.bound]
    assert ["True"] == [c.status for c in api.get(group).status.conditions]


def test_that_a_pod_has_a_scheduler_that_is_not_served_is_told_at_once_and_names_it() -> None:
    group = make_group("g", 2)
    other = members("g", 1, first=1, schedulerName="other")
    api = cluster(make_node("n1"), group, *other, *members("g", 1))
    api.wait(0)
    ((_, reason, text),) = conditions(api, group)
    assert "Invalid" == reason
    assert (
        'pod default/g-1 of the group has the schedulerName "other", which this scheduler does '
        "not serve" == text
    )


def test_that_pods_disagree_is_told_at_once_of_an_incomplete_group_too() -> None:
    group = make_group("g", 3)
    pods = [members("g", 1, first=i, priority=i)[0] for i in range(2)]
    api = cluster(make_node("n1"), group, *pods)
    api.wait(0)
    ((_, reason, text),) = conditions(api, group)
    assert "Invalid" == reason
    assert "should match the priority of the pod group, got: 1 and 0" in text
