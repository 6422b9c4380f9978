"""Users: where they go, who makes way for them, and what they wait for."""

import itertools
from typing import Any

import pytest

from stower.engine.explain.explanation import explain
from stower.framework.writes import Bind, DeletePod, Write
from stower.model.kinds import Node, Pod
from tests.warm.rig import IMAGE, PULLER, Hub


@pytest.mark.behaviour("S1.10", "S1.9", "S1.25")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("PPP++ UU+++", "PPP++ UUU++"),
        ("PPPU+ UU+++", "PPPU+ UUU++"),
        ("PPP++ PU+++", "PPP++ PUU++"),
        ("PPPU+ PUU++", "PPPU+ PUUU+"),
        ("PPPPP PU+++", "PPPPP PUU++"),
        ("UPPPP UU+++", "PPPPU UUU++"),
    ],
)
def test_the_seeds_states_a_user_goes_right(before: str, after: str) -> None:
    hub = Hub(repositioning={"mode": "Off"})
    hub.drawn(before)
    assert ("n2", after) == (hub.user(), hub.state())


@pytest.mark.behaviour("S1.11")
def test_a_placeholder_makes_way_on_the_busiest_node_though_another_has_room() -> None:
    hub = Hub(repositioning={"mode": "Off"})
    hub.drawn("U++++ UUPPP")
    assert ("n2", "U++++ PPUUU") == (hub.user(), hub.state())


@pytest.mark.behaviour("S1.2")
def test_nobody_makes_way_where_there_is_room() -> None:
    hub = Hub(repositioning={"mode": "Off"})
    hub.drawn("PPUU+ P++++")
    assert "n1" == hub.user()
    assert not any(isinstance(write, DeletePod) for write in hub.writes)


@pytest.mark.behaviour("S1.2", "S1.11", "U36")
def test_who_makes_way_goes_at_once_and_the_user_is_bound_in_the_same_breath() -> None:
    hub = Hub(repositioning={"mode": "Off"})
    hub.drawn("UUUPP")
    hub.now_ns += 60 * 10**9
    hub.gone("p14")
    hub.placeholder("young")
    hub.writes.clear()
    began_ns = hub.now_ns
    assert ("n1", began_ns) == (hub.user(), hub.now_ns)
    leaving = [(w.name, w.grace_seconds) for w in hub.writes if isinstance(w, DeletePod)]
    order = [type(w) for w in hub.writes if isinstance(w, DeletePod | Bind)]
    assert ([("young", 0)], [DeletePod, Bind]) == (leaving, order)


def test_as_many_make_way_as_have_to() -> None:
    hub = Hub(repositioning={"mode": "Off"})
    hub.drawn("UPPP+")
    assert ("n1", "PUU++") == (hub.user(cpu="3"), hub.state())


@pytest.mark.behaviour("S1.5", "S1.6", "U35")
def test_users_do_not_go_where_images_are_missing_and_placeholders_do() -> None:
    hub = Hub(repositioning={"mode": "Off"})
    hub.drawn("UUUUP")
    hub.node("n2", ready=False)
    assert "n2" == hub.placeholder()
    assert "n1" == hub.user()  # not where there is room
    assert "" == hub.user("late")
    hub.pulled("n2")
    assert "n2" == hub.where("late")


@pytest.mark.behaviour("S1.23")
def test_room_that_a_user_leaves_is_for_users_that_wait_the_first_first() -> None:
    hub = Hub(repositioning={"mode": "Off"})
    hub.drawn("UUUUU")
    hub.placeholder()
    waiting = [hub.user(f"w{i}") for i in range(3)]
    hub.gone("u12")
    assert (["", "", ""], "n1", "", "") == (
        waiting, hub.where("w0"), hub.where("w1"), hub.where("p-new"),
    )  # fmt: skip
    for name in ("w1", "w2"):
        hub.gone(name)
    hub.gone("u13")
    assert "n1" == hub.where("p-new")


@pytest.mark.behaviour("S1.26")
def test_those_who_wait_longest_come_first_however_often_they_were_tried() -> None:
    hub = Hub()
    hub.drawn("UUUUU")
    for i in range(4):
        hub.user(f"w{i}")
        hub.advance(3)
        hub.node(f"other{i}", ready=False)  # tries all of them again
    hub.node("n9", slots=2)
    assert ["n9", "n9", "", ""] == [hub.where(f"w{i}") for i in range(4)]


@pytest.mark.behaviour("S1.29")
def test_who_has_waited_for_too_long_goes_where_it_is_ready_first() -> None:
    hub = Hub(images={"waitSeconds": 120})
    hub.node("n1", ready=False)
    hub.advance(5)
    hub.node("n2", ready=False)
    assert "" == hub.user()
    hub.advance(119)
    assert "" == hub.where("new")
    hub.advance(2)
    assert "n1" == hub.where("new")


@pytest.mark.behaviour("S1.29")
def test_or_waits_for_ever_where_the_pool_says_so() -> None:
    hub = Hub(images={"then": "Wait"})
    hub.node("n1", ready=False)
    hub.user()
    hub.advance(3_000)
    assert "" == hub.where("new")
    said = [event.note for event in hub.events if event.name == "new"]
    assert "1 node(s) without the warm pool's images" in said[0]


def test_who_brings_an_image_that_nobody_pulls_does_not_wait_for_others() -> None:
    hub = Hub()
    hub.node("n1", ready=False)
    assert "n1" == hub.user(image="own.example.com/x:3")


@pytest.mark.behaviour("S1.8")
def test_another_image_and_the_node_is_ready_no_more() -> None:
    hub = Hub()
    hub.node("n1")
    assert "n1" == hub.user("a")
    hub.pulled("n1", "other.example.com/x:1")
    assert "" == hub.user("b")
    hub.pulled("n1", IMAGE)
    assert "n1" == hub.where("b")


@pytest.mark.behaviour("S1.6", "S1.7", "S1.8")
def test_the_pods_that_pull_say_whether_a_node_is_ready() -> None:
    hub = Hub(images={"names": None, "pullers": {"matchLabels": PULLER}, "label": "hub/warm"})
    hub.node("n1", ready=False)
    hub.pod("puller", PULLER, "n1", "0")
    hub.advance(10)
    nodes = hub.server.all(Node)
    assert "true" == nodes["n1"].metadata.labels["hub/warm"]
    assert "n1" == hub.user("a")
    hub.gone("puller")  # its images were replaced
    hub.advance(10)
    assert "hub/warm" not in nodes["n1"].metadata.labels
    assert "" == hub.user("b")


@pytest.mark.behaviour("S1.5")
def test_users_own_images_can_be_what_counts() -> None:
    hub = Hub(images={"names": None, "ofUsers": True})
    hub.node("n1", ready=False)
    hub.node("n2")
    assert "n2" == hub.user()


def test_a_refused_eviction_fails_the_user_who_is_tried_again() -> None:
    class Forbids(Hub):
        forbids = True

        def refuse(self, write: Write) -> tuple[int, str] | None:
            return (403, "") if self.forbids and isinstance(write, DeletePod) else None

    hub = Forbids(repositioning={"mode": "Off"})
    hub.drawn("UUUUP")
    assert ("", "PUUUU") == (hub.user(), hub.state())
    hub.forbids = False
    hub.advance(30)
    assert ("n1", "UUUUU") == (hub.where("new"), hub.state())


def test_an_eviction_of_which_no_answer_comes_is_tried_again() -> None:
    class Loses(Hub):
        lost = 2

        def refuse(self, write: Write) -> tuple[int, str] | None:
            if isinstance(write, DeletePod) and self.lost:
                self.lost -= 1
                return (504, "")
            return None

    hub = Loses(repositioning={"mode": "Off"})
    hub.drawn("UUUUP")
    assert "" == hub.user()
    hub.advance(5)
    assert ("n1", "UUUUU") == (hub.where("new"), hub.state())


@pytest.mark.behaviour("S1.30")
def test_pods_of_no_pool_are_placed_as_ever() -> None:
    hub = Hub()
    hub.drawn("UUUPP +++++")
    hub.pod("other", {"component": "other"})
    assert "n2" == hub.where("other")  # it may evict, and has no need to
    assert [] == [w for w in hub.writes if isinstance(w, DeletePod)]


def _two(**more: Any) -> Hub:
    hub = Hub(**more)
    hub.drawn("UU+++ U++++")
    return hub


@pytest.mark.behaviour("S1.18")
def test_users_are_never_moved() -> None:
    hub = _two()
    hub.advance(3_600)
    assert ("UU+++ U++++", []) == (
        hub.state(), [w for w in hub.writes if isinstance(w, DeletePod)],
    )  # fmt: skip


def test_who_waits_is_told_of_in_the_status() -> None:
    hub = _two()
    hub.placeholder("p1")
    hub.user("big", cpu="9")
    hub.advance(10)
    assert (2, 2, 3, 1, 1) == tuple(
        hub.status[name] for name in ("nodes", "readyNodes", "users", "waitingUsers", "placed")
    )


def test_an_explanation_sees_the_nodes_without_placeholders() -> None:
    hub = Hub(repositioning={"mode": "Off"})
    hub.drawn("UUPPP UPPPP UUUUU")
    hub.node("n4", ready=False)
    hub.user()
    engine = hub.engine
    found = explain(
        hub.server.get(Pod, "default/new"), engine.state, engine.cycle, engine.queue,
        engine.profiles,
    )  # fmt: skip
    assert ("placed", "n1", 2) == (found.verdict, found.node, found.feasible)
    (pulling,) = (one for one in found.refused if one.plugin == "ImageReadiness")
    told = "warm pool default/users; the node is pulling by its kubelet for 0s, expected: 3m"
    assert (("n4",), (told,)) == (pulling.examples, pulling.details)


@pytest.mark.behaviour("S1.11")
@pytest.mark.parametrize("sizes", [*itertools.permutations((1, 1, 3))])
@pytest.mark.parametrize(("needs", "want"), [("1", 1), ("2", 1), ("3", 1), ("4", 2), ("5", 3)])
def test_as_few_make_way_as_will_do_whatever_their_sizes(
    sizes: tuple[int, ...], needs: str, want: int
) -> None:
    hub = Hub(repositioning={"mode": "Off"})
    hub.node("n1")
    for i, size in enumerate(sizes):
        hub.now_ns += 10**9
        hub.placeholder(f"p{i}", cpu=str(size))
    hub.writes.clear()
    assert "n1" == hub.user(cpu=needs)
    assert want == sum(isinstance(write, DeletePod) for write in hub.writes)


def test_who_has_waited_for_long_goes_to_no_node_that_is_stuck() -> None:
    """Unless all are, as nobody knows what to wait for then, or none was added in time."""
    pool: dict[str, Any] = {
        "placeholders": {"stuckAfterSeconds": 100}, "images": {"waitSeconds": 200},
    }  # fmt: skip
    hub = Hub(**pool)
    hub.node("stuck", ready=False)
    hub.advance(150)
    assert "" == hub.user()
    hub.advance(180)
    hub.node("late", ready=False)
    hub.advance(30)
    assert "late" == hub.where("new")
    alone = Hub(**pool)
    alone.node("stuck", ready=False)
    assert "" == alone.user()
    alone.advance(190)
    assert "" == alone.where("new")
    alone.advance(20)
    assert "stuck" == alone.where("new")


def test_who_has_waited_for_long_waits_for_a_node_that_is_ready_for_a_while() -> None:
    """A node that pulls may never be ready; nor may any, so nobody waits for ever."""
    hub = Hub(placeholders={"stuckAfterSeconds": 100}, images={"waitSeconds": 200})
    hub.drawn("UUUUU")
    assert "" == hub.user()
    hub.advance(150)
    hub.node("pulls", ready=False)
    hub.advance(140)
    assert "" == hub.where("new")
    hub.advance(20)
    assert "pulls" == hub.where("new")
