"""Placeholders: where they go, how many there are, which of them move, and how often."""

from typing import Any

import msgspec
import pytest

from stower.framework.writes import CreateObject, DeletePod, PatchObject
from stower.model.kinds import Node, WarmPool
from stower.model.taints import Taint
from stower.model.times import SECOND_NS, time_text
from stower.warm.status import ATTRACTOR
from tests.warm.rig import PLACEHOLDER, START_NS, TEMPLATE, Hub

KEPT: dict[str, Any] = {"selector": None, "template": TEMPLATE}


def keeps(**more: Any) -> Hub:
    """A pool that makes its placeholders itself."""
    return Hub(placeholders={**KEPT, **more})


def moves(hub: Hub) -> list[str]:
    """Pods that were deleted to be made elsewhere."""
    return [w.name for w in hub.writes if isinstance(w, DeletePod)]


def again(hub: Hub) -> None:
    """A StatefulSet makes what it has lost, under the names that it had."""
    there = hub.names(PLACEHOLDER)
    for name in sorted({w.name for w in hub.writes if isinstance(w, DeletePod)}):
        if name not in there:
            hub.placeholder(name)


# Where they go


@pytest.mark.behaviour("S1.9", "S1.13")
@pytest.mark.parametrize(
    ("state", "node"),
    [("UU+++ U++++", "n1"), ("UUUUU PU+++", "n2"), ("+++++ UPP++", "n2"), ("U+++ UP++", "n2")],
)
def test_fill_goes_where_users_are_next(state: str, node: str) -> None:
    hub = Hub()
    hub.drawn(state)
    assert node == hub.placeholder()


@pytest.mark.behaviour("S1.12", "S1.13", "S1.25")
@pytest.mark.parametrize(
    ("state", "node"),
    [("UU+++ U++++", "n2"), ("UUU++ PPP++", "n2"), ("PP+++ P++++", "n2"), ("U++++ PPP++", "n2")],
)
def test_spread_keeps_away_from_users_and_then_from_others(state: str, node: str) -> None:
    hub = Hub(placeholders={"placement": "Spread"}, repositioning={"mode": "Off"})
    hub.drawn(state)
    assert node == hub.placeholder()


@pytest.mark.behaviour("S1.12")
def test_weights_can_be_set() -> None:
    for weight, node in ((1, "n2"), (200, "n1")):
        spread = {"placement": "Spread", "weights": {"placeholderToPlaceholder": weight}}
        hub = Hub(placeholders=spread, repositioning={"mode": "Off"})
        hub.drawn("UU+++ PPP++")
        assert node == hub.placeholder()


@pytest.mark.behaviour("S1.12")
def test_users_keep_together_and_from_placeholders_when_they_are_spread() -> None:
    hub = Hub(placeholders={"placement": "Spread"}, repositioning={"mode": "Off"})
    hub.drawn("UPP++ UP+++ PPP++")
    assert "n2" == hub.user()


@pytest.mark.behaviour("S1.19", "S1.13")
def test_the_newest_node_draws_them_and_has_the_seeds_label() -> None:
    hub = Hub(placeholders={"placement": "Spread"}, repositioning={"mode": "Off"})
    hub.node("n1")
    hub.advance(30)
    hub.node("n2")
    assert "n2" == hub.placeholder()
    hub.advance(10)
    nodes = hub.server.all(Node)
    labels = {name: (node.metadata.labels or {}).get(ATTRACTOR) for name, node in nodes.items()}
    assert {"n1": None, "n2": "true"} == labels


# How many there are


def test_as_many_are_made_as_are_wanted_and_made_again() -> None:
    hub = keeps(replicas=3)
    hub.node("n1")
    hub.advance(10)
    names = [f"users-placeholder-{i}" for i in range(3)]
    assert (names, "PPP++") == (hub.names(PLACEHOLDER), hub.state())
    hub.user()
    hub.user("next")
    hub.user("third")
    hub.advance(1)
    assert ("PPUUU", 3) == (hub.state(), len(hub.names(PLACEHOLDER)))


@pytest.mark.behaviour("S1.3", "S1.4")
def test_those_that_made_way_wait_for_a_node_to_be_added() -> None:
    hub = keeps(replicas=2)
    hub.drawn("UUU++")
    hub.advance(10)
    assert "n1" == hub.user()
    hub.advance(10)
    assert (1, 1, "scale-up for 0 users and 1 placeholders") == (
        hub.status["placed"], hub.status["pending"], hub.status["expected"],
    )  # fmt: skip
    for name in ("b", "c"):
        hub.user(name)
    hub.advance(10)
    assert (2, 1) == (hub.status["pending"], hub.status["waitingUsers"])


def test_of_too_many_those_without_a_node_go_first_then_those_beside_the_fewest_users() -> None:
    start = time_text(START_NS + 200 * SECOND_NS)
    lecture = {"start": start, "enrolment": 4, "percent": 100, "leadSeconds": 0, "tailSeconds": 60}
    hub = keeps(replicas=4, lectures=[lecture])
    hub.drawn("UUU+ U++")
    hub.advance(210)
    assert ("PUUU PPU", 5) == (hub.state(), hub.status["pending"])
    hub.advance(90)
    assert ("PUUU PPU", 1) == (hub.state(), hub.status["pending"])


def test_percent_of_users() -> None:
    hub = keeps(percentOfUsers=50)
    hub.drawn("UUUU+ +++++")
    hub.advance(10)
    assert 2 == hub.status["wanted"]


def test_arrivals_of_the_last_hour_times_how_long_a_node_takes() -> None:
    hub = keeps(readinessSeconds=600)
    hub.node("n1", slots=40)
    for i in range(12):
        hub.user(f"w{i}")
        hub.advance(60)
    assert 2 == hub.status["wanted"]


def test_a_lecture_is_made_ready_for_ahead_and_who_has_come_counts() -> None:
    start = START_NS + 1200 * SECOND_NS
    hub = keeps(lectures=[{"start": time_text(start), "enrolment": 20, "percent": 50}])
    hub.node("n1", slots=40)
    hub.advance(500)
    assert 0 == hub.status.get("wanted", 0)
    hub.advance(150)
    assert 10 == hub.status["wanted"]
    hub.advance(550)
    for i in range(4):
        hub.user(f"w{i}")
    hub.advance(10)
    assert 6 == hub.status["wanted"]
    hub.advance(400)
    assert 0 == hub.status.get("wanted", 0)


def test_a_lecture_each_week() -> None:
    hub = keeps(lectures=[{"start": "09:00", "days": ["Fri"], "enrolment": 10, "percent": 100,
                           "leadSeconds": 0}])  # fmt: skip
    hub.node("n1", slots=40)
    wanted = {}
    for hour in range(9):  # from a Friday, 08:00
        hub.now_ns = (START_NS // (3600 * SECOND_NS) + hour) * 3600 * SECOND_NS
        hub.advance(20)
        wanted[time_text(hub.now_ns)[11:13]] = hub.status.get("wanted", 0)
    assert {"09": 10} == {hour: count for hour, count in wanted.items() if count}


def test_a_surge_is_met_with_more() -> None:
    hub = keeps(replicas=1, surge={"holdSeconds": 30})
    hub.node("n1", slots=40)
    hub.advance(10)
    for i in range(12):
        hub.user(f"w{i}")
    hub.advance(10)
    assert 1 + 12 == hub.status["wanted"]
    hub.advance(60)  # they may go on coming
    assert 1 + 12 == hub.status["wanted"]
    hub.advance(30)
    assert 1 == hub.status["wanted"]


def test_a_node_that_does_not_get_its_images_is_made_up_for() -> None:
    """What waits there holds room for nobody. An autoscaler that does not see images adds no node
    while the next one fits there: so it is filled, and is emptied again when there is room."""
    hub = keeps(replicas=2, stuckAfterSeconds=100)
    hub.drawn("UUUUU")
    hub.node("n2", ready=False)
    hub.advance(90)
    assert "UUUUU PP+++" == hub.state()
    hub.advance(30)
    assert ("UUUUU PPPPP", 2) == (hub.state(), hub.status["pending"])
    assert 2 == hub.status["wanted"]
    hub.advance(7200)
    assert "UUUUU PPPPP" == hub.state(), "for as long as it is so"
    hub.node("n3")
    hub.advance(20)
    assert "UUUUU +++++ PP+++" == hub.state()
    hub.pulled("n2")
    hub.advance(10)
    assert 2 == len(hub.names(PLACEHOLDER))


@pytest.mark.parametrize("taint", ["", "node.kubernetes.io/unreachable", "drained"])
def test_placeholders_on_nodes_that_users_cannot_use_are_made_anew_elsewhere(taint: str) -> None:
    """An upgrade of a cluster begins with a cordon."""
    hub = keeps(replicas=3)
    hub.node("n1")
    hub.advance(10)
    assert "PPP++" == hub.state()
    node = hub.server.get(Node, "n1")
    taints = msgspec.convert([{"key": taint, "effect": "NoSchedule"}], tuple[Taint, ...])
    closed = {"taints": taints} if taint else {"unschedulable": True}
    spec = msgspec.structs.replace(node.spec, **closed)
    hub.server.put(msgspec.structs.replace(node, spec=spec))
    hub.advance(20)
    assert ("+++++", 3) == (hub.state(), hub.status["pending"])
    hub.node("n2")
    hub.advance(10)
    assert "+++++ PPP++" == hub.state()


def test_placeholders_of_others_leave_a_cordoned_node_too_within_the_limits() -> None:
    hub = Hub(repositioning={"perMinute": 2})
    hub.drawn("PPP++")
    hub.advance(5)
    node = hub.server.get(Node, "n1")
    hub.server.put(
        msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=True))
    )
    hub.advance(10)
    assert 2 == len(moves(hub))
    again(hub)
    hub.advance(70)
    again(hub)
    assert ("+++++", 3) == (hub.state(), len(hub.names(PLACEHOLDER)))


def test_never_more_than_the_pool_allows() -> None:
    hub = keeps(replicas=9, replicasMax=3)
    hub.node("n1", slots=20)
    hub.advance(10)
    assert 3 == len(hub.names(PLACEHOLDER))


# Which of them move


@pytest.mark.behaviour("S1.21", "S1.28")
def test_placeholders_leave_a_node_without_users() -> None:
    hub = Hub()
    hub.drawn("UU+++ PP+++")
    hub.advance(10)
    again(hub)
    assert "PPUU+ +++++" == hub.state()


@pytest.mark.behaviour("S1.15")
def test_nobody_moves_where_there_is_no_certain_place() -> None:
    hub = Hub()
    hub.drawn("UUUU+ PP+++")
    hub.advance(600)
    assert ("PPUU", []) == ("PPUU", moves(hub))


@pytest.mark.behaviour("S1.22")
def test_nothing_is_drained_that_the_cluster_cannot_do_without() -> None:
    hub = Hub()
    hub.drawn("UUUUU")
    hub.node("n2", ready=False)
    for i in range(3):
        hub.placeholder(f"p{i}")
    hub.advance(600)
    assert ("UUUUU PPP++", [], ()) == (hub.state(), moves(hub), hub.pool.draining)


@pytest.mark.behaviour("S1.17")
def test_a_flood_of_moves_stays_within_the_rate() -> None:
    """The seed's script deleted 60 pods a second, for an hour."""
    hub = Hub(repositioning={"restSeconds": 0})
    hub.drawn(f"{'U' * 10}{'+' * 90} {'P' * 60}{'+' * 40}")
    by_minute = []
    for _ in range(4):
        before = len(moves(hub))
        for _ in range(6):
            hub.advance(10)
            again(hub)
        by_minute.append(len(moves(hub)) - before)
    assert [6, 6, 6, 6] == by_minute


@pytest.mark.behaviour("S1.17")
def test_no_more_are_on_their_way_than_is_allowed() -> None:
    hub = Hub(repositioning={"perMinute": 60, "burst": 60, "inFlight": 4})
    hub.drawn(f"{'U' * 10}{'+' * 90} {'P' * 60}{'+' * 40}")
    for _ in range(6):
        hub.advance(10)  # what is made again is late
    assert 4 == len(moves(hub))
    again(hub)
    hub.advance(10)
    assert 8 == len(moves(hub))


@pytest.mark.behaviour("S1.17")
def test_from_one_node_so_many_at_a_time() -> None:
    hub = Hub(repositioning={"perNode": 1})
    hub.drawn("UUUUU+++++ PP+++ PP+++")
    hub.advance(10)
    assert ["p20", "p30"] == moves(hub)


@pytest.mark.behaviour("S1.17", "S1.28")
def test_who_was_moved_is_left_alone_for_a_while() -> None:
    hub = Hub(repositioning={"restSeconds": 300})
    hub.drawn("U+++ P+++")
    hub.advance(10)
    again(hub)
    assert "PU++ ++++" == hub.state()
    hub.gone("u10")
    hub.pod("u", {"component": "singleuser-server"}, "n2")  # others have put it there
    hub.advance(60)
    assert 1 == len(moves(hub))
    hub.advance(300)
    assert 2 == len(moves(hub))


@pytest.mark.behaviour("S1.17")
def test_a_restart_forgets_no_move() -> None:
    hub = Hub(repositioning={"perMinute": 2, "burst": 2, "restSeconds": 0})
    hub.drawn(f"{'U' * 5}{'+' * 25} {'P' * 8}{'+' * 8}")
    hub.advance(10)
    again(hub)
    hub.advance(10)
    hub.restart()
    hub.advance(20)
    assert 2 == len(moves(hub))


def test_those_that_we_keep_are_made_where_there_is_room_and_go() -> None:
    hub = keeps(replicas=2)
    hub.node("n1")
    hub.node("n2")
    hub.advance(10)
    assert "PP+++" in hub.state()
    other = "n2" if hub.state().startswith("PP") else "n1"
    hub.pod("u", {"component": "singleuser-server"}, other)
    hub.writes.clear()
    hub.advance(20)
    assert sorted(["PPU++", "+++++"]) == sorted(hub.state().split())
    made = [w.body["metadata"]["annotations"] for w in hub.writes if isinstance(w, CreateObject)]
    assert [("true", other)] * 2 == [
        (notes["cluster-autoscaler.kubernetes.io/safe-to-evict"], notes["stower.dev/warm-node"])
        for notes in made
    ]


@pytest.mark.behaviour("S1.14", "S1.16")
def test_the_seeds_script_moves_to_the_newest_node_who_is_not_there() -> None:
    hub = Hub(placeholders={"placement": "Spread"}, repositioning={"mode": "Newest"})
    hub.drawn("UPP++ UP+++")
    hub.advance(5)
    hub.node("n3")
    hub.placeholder("p-there")
    hub.advance(10)
    again(hub)
    assert ("U++++ U++++ PPPP+", ["p11", "p12", "p21"]) == (hub.state(), moves(hub))
    hub.advance(600)
    assert 3 == len(moves(hub))


@pytest.mark.behaviour("S1.20")
def test_they_can_be_placed_anew_after_a_while() -> None:
    hub = Hub(repositioning={"mode": "Lifetime", "lifetimeSeconds": 100})
    hub.drawn("UP+++")
    hub.advance(90)
    assert [] == moves(hub)
    hub.advance(20)
    assert ["p11"] == moves(hub)


def test_off_is_off() -> None:
    hub = Hub(repositioning={"mode": "Off"})
    hub.drawn("UU+++ PP+++")
    hub.advance(600)
    assert [] == moves(hub)


@pytest.mark.behaviour("S1.27")
def test_one_that_is_as_large_as_a_node_makes_way_for_the_first_user() -> None:
    hub = Hub(repositioning={"mode": "Off"})
    hub.drawn("UUUUU +++++")
    assert "n2" == hub.placeholder("whole", cpu="5")
    assert ("n2", "UUUUU U++++") == (hub.user(), hub.state())


def test_the_status_is_written_where_it_changes_and_not_else() -> None:
    hub = Hub()
    hub.drawn("UU+++ ++P++")
    hub.advance(10)
    again(hub)
    hub.advance(100)
    count = len([w for w in hub.writes if isinstance(w, PatchObject)])
    hub.advance(600)
    assert count == len([w for w in hub.writes if isinstance(w, PatchObject)])
    assert ("n2",) == hub.status["draining"]


def test_of_nodes_made_in_the_same_second_none_is_newer_than_the_others() -> None:
    """Placeholders that went to the one stay when the other is seen; they went on to it."""
    hub = Hub(placeholders={"placement": "Spread"}, repositioning={"mode": "Newest"})
    hub.drawn("UPP++")
    hub.advance(5)
    hub.node("n2")
    made = hub.server.get(Node, "n2").metadata.creation_timestamp
    hub.advance(10)
    again(hub)
    hub.advance(100)
    assert 2 == len(moves(hub))
    hub.node("n3")
    other = hub.server.get(Node, "n3")
    meta = msgspec.structs.replace(other.metadata, creation_timestamp=made)
    hub.server.put(msgspec.structs.replace(other, metadata=meta))
    again(hub)
    hub.advance(300)
    assert 2 == len(moves(hub))


def test_the_status_has_zeros_and_follows_users_who_wait_within_a_second() -> None:
    """Columns of kubectl were blank for what is 0, and ten seconds late."""
    hub = Hub()
    hub.advance(10)
    numbers = ("nodes", "readyNodes", "users", "waitingUsers", "wanted", "placed", "pending")
    assert dict.fromkeys(numbers, 0) == {name: hub.status[name] for name in numbers}
    hub.advance(2)
    assert "" == hub.user()
    hub.advance(1)
    assert 1 == hub.status["waitingUsers"]
    hub.node("n1")
    hub.advance(1)
    assert (0, 1) == (hub.status["waitingUsers"], hub.status["users"])
    writes = len(hub.writes)
    assert "n1" == hub.user("quick")
    hub.advance(1)
    binds_and_status = [type(write).__name__ for write in hub.writes[writes:]]
    assert ["Bind", "PatchObject"] == binds_and_status, "one status, though the user waited first"


def test_a_new_pool_has_its_status_and_its_placeholders_within_a_second() -> None:
    """It was blank in kubectl, and had no placeholders, until the next round of all pools."""
    hub = Hub()
    hub.node("n1")
    hub.advance(10 - (hub.now_ns // SECOND_NS) % 10 + 3)
    writes = len(hub.writes)
    own = {"replicas": 2, "template": TEMPLATE}
    hub.add_pool("late", users={"matchLabels": {"a": "late"}}, placeholders=own)
    hub.advance(1)
    assert 2 == hub.server.get(WarmPool, "default/late").status.wanted
    made = [write for write in hub.writes[writes:] if isinstance(write, CreateObject)]
    assert 2 == len(made)
