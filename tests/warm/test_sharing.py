"""Pools on the same nodes: users of one are users for the others, and nodes are drained for all."""

from typing import Any

import pytest
from msgspec.structs import replace

from stower.framework.writes import PatchObject
from stower.model.kinds import Node, Pod, WarmPool
from tests.warm.rig import PLACEHOLDER, TEMPLATE, USER, Hub

GUEST = {"component": "guest-server"}
GUEST_ROOM = {"component": "guest-placeholder"}
GUESTS: dict[str, Any] = {
    "users": {"matchLabels": GUEST},
    "placeholders": {"selector": {"matchLabels": GUEST_ROOM}},
}

# Whoever has a component is a user.
ZOO: dict[str, Any] = {
    **GUESTS,
    "users": {
        "matchLabels": None,
        "matchExpressions": [{"key": "component", "operator": "Exists"}],
    },
}


def hub_with_guests(**more: Any) -> Hub:
    hub = Hub()
    hub.add_pool("guests", **{**GUESTS, **more})
    return hub


def hold(hub: Hub, name: str, labels: dict[str, str], node: str) -> None:
    hub.pod(name, labels, node)


def draining(hub: Hub, name: str) -> list[str]:
    return [*(hub.server.get(WarmPool, f"default/{name}").status.draining or ())]


def test_the_first_user_of_one_pool_goes_beside_the_users_of_another() -> None:
    hub = hub_with_guests()
    for name in ("n1", "n2", "n3"):
        hub.node(name)
        hub.advance(2)  # the oldest is n1
    hold(hub, "u1", USER, "n2")
    hub.pod("guest", GUEST)
    assert "n2" == hub.where("guest")


def test_placeholders_of_one_pool_go_beside_the_users_of_another() -> None:
    hub = hub_with_guests()
    for name in ("n1", "n2", "n3"):
        hub.node(name)
    hold(hub, "g1", GUEST, "n3")
    for i in range(2):  # where more is asked for, but by nobody
        hold(hub, f"other{i}", {"component": "proxy"}, "n1")
    assert "n3" == hub.placeholder()


def test_a_node_with_users_of_another_pool_is_not_drained() -> None:
    hub = hub_with_guests()
    hub.node("n1")
    hub.node("n2")
    hold(hub, "g1", GUEST, "n1")
    hold(hub, "u1", USER, "n2")
    hold(hub, "p1", PLACEHOLDER, "n1")
    hub.advance(60)
    assert [] == draining(hub, "users") == draining(hub, "guests")
    assert "n1" == hub.where("p1")


def test_two_pools_drain_the_same_node_and_not_each_others() -> None:
    """Before, each began with the node on which the other had its placeholders, and none was
    emptied: there has to be one that is kept."""
    hub = hub_with_guests()
    hub.node("n1")
    hub.node("n2")
    for i in range(2):
        hold(hub, f"p{i}", PLACEHOLDER, "n1")
    hold(hub, "g1", GUEST_ROOM, "n2")
    hub.advance(120)
    assert ["n2"] == draining(hub, "users") == draining(hub, "guests")
    here = [pod.metadata.name for pod in hub.server.pods_on("n2").values()]
    assert [] == here  # whoever keeps g1 makes it again


def test_a_node_is_emptied_of_the_placeholders_of_all_pools_or_of_none() -> None:
    """The guests' placeholder fits only there."""
    hub = hub_with_guests(nodeSelector={"guests": "true"})
    for name, slots in (("n1", 5), ("n2", 5)):
        hub.node(name, slots)
    node = hub.server.get(Node, "n2")
    hub.server.put(replace(node, metadata=replace(node.metadata, labels={"guests": "true"})))
    hold(hub, "u1", USER, "n1")
    hold(hub, "p1", PLACEHOLDER, "n2")
    hold(hub, "g1", GUEST_ROOM, "n2")
    hub.advance(120)
    assert [] == draining(hub, "users") == draining(hub, "guests")
    assert "n2" == hub.where("p1")


def test_a_placeholder_that_no_node_has_room_for_keeps_no_node() -> None:
    """Not even if all others were gone: any number of these may be asked for by anybody."""
    hub = hub_with_guests()
    hub.node("n1")
    hub.node("n2")
    hold(hub, "u1", USER, "n1")
    hold(hub, "p1", PLACEHOLDER, "n2")
    hub.pod("huge", GUEST_ROOM, cpu="50")
    hub.advance(60)
    assert ["n2"] == draining(hub, "users")


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"no": "where"}},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]},
    ],
)
def test_a_placeholder_that_no_node_suits_keeps_no_node(spec: dict[str, Any]) -> None:
    """There is room for it, and it goes nowhere: anybody may ask for that, in any namespace."""
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], **spec}}
    hub = Hub()
    hub.add_pool(
        "guests", users=GUESTS["users"], placeholders={"template": template, "replicas": 1}
    )
    hub.node("n1")
    hub.node("n2")
    hold(hub, "u1", USER, "n1")
    hold(hub, "p1", PLACEHOLDER, "n2")
    hub.advance(60)
    assert "" == hub.where("guests-placeholder-0")
    assert ["n2"] == draining(hub, "users")


def test_one_that_waits_for_room_keeps_every_node() -> None:
    hub = hub_with_guests()
    hub.node("n1", 2)
    hub.node("n2", 3)
    hold(hub, "u1", USER, "n1")
    hold(hub, "p1", PLACEHOLDER, "n2")
    hub.pod("large", GUEST_ROOM, cpu="3")
    hub.advance(60)
    assert [] == draining(hub, "users")


def test_an_error_with_the_placeholders_of_one_pool_is_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = hub_with_guests()
    for name in ("n1", "n2", "n3"):
        hub.node(name)
    hold(hub, "u1", USER, "n1")
    hold(hub, "p1", PLACEHOLDER, "n2")
    hold(hub, "g1", GUEST_ROOM, "n3")
    repositioner = hub.warm.repositioner
    assert repositioner is not None
    placing, failed = repositioner._planner._placing, []
    whole = placing.select_row

    def select_row(entry: Any) -> int:
        if entry.pod.metadata.name == "g1":
            raise ValueError("cannot be placed")
        return whole(entry)

    monkeypatch.setattr(placing, "select_row", select_row)
    monkeypatch.setattr(hub.warm, "entity_failed", lambda about, error: failed.append(about))
    hub.advance(60)
    assert {"guests"} == {pool.metadata.name for pool in failed}
    assert "n2" in draining(hub, "users")
    assert [] == draining(hub, "guests")


def node_states(hub: Hub, pool: str = "users") -> dict[str, tuple[str, str]]:
    status = hub.server.get(WarmPool, f"default/{pool}").status
    return {one.name: (one.state, one.reason) for one in status.node_states or ()}


def test_why_a_node_is_not_emptied_is_told() -> None:
    hub = hub_with_guests(nodeSelector={"guests": "true"})
    hub.node("n1")
    hub.node("n2")
    node = hub.server.get(Node, "n2")
    hub.server.put(replace(node, metadata=replace(node.metadata, labels={"guests": "true"})))
    hold(hub, "u1", USER, "n1")
    hold(hub, "p1", PLACEHOLDER, "n2")
    hold(hub, "g1", GUEST_ROOM, "n2")
    hub.advance(20)
    why = "pool default/guests has no other node that its users can use"
    assert {"n2": ("ready", why)} == node_states(hub) == node_states(hub, "guests")


def test_a_placeholder_that_fits_nowhere_else_is_named() -> None:
    hub = Hub()
    hub.drawn("UUUU+ PP+++")
    hub.advance(20)
    assert {"n2": ("ready", "no other node has room for placeholder default/p21")} == node_states(
        hub
    )
    hub.gone("u10")
    hub.advance(20)
    assert {"n2": ("draining", "")} == node_states(hub)


def test_a_placeholder_that_waits_for_room_is_named() -> None:
    hub = Hub()
    hub.drawn("U++++ P++++")
    hub.placeholder("large", cpu="5")
    hub.advance(20)
    waits = ("ready", "placeholder default/large waits for room")
    assert {"n2": waits} == node_states(hub)


def test_states_of_nodes_are_told_and_only_usable_room_counts() -> None:
    hub = Hub()
    hub.drawn("UUUUU UP+++ UPP++")
    hub.node("n4", ready=False)
    node = hub.server.get(Node, "n3")
    hub.server.put(replace(node, spec=replace(node.spec, unschedulable=True)))
    hold(hub, "p4", PLACEHOLDER, "n4")
    hub.pod("waits", PLACEHOLDER, cpu="50")
    hub.advance(10)
    assert {"n1": "full", "n3": "cordoned", "n4": "pulling"} == {
        name: state for name, (state, _) in node_states(hub).items()
    }
    numbers = ("nodes", "readyNodes", "placed", "pending", "unusable")
    assert [4, 2, 2, 1, 2] == [hub.status[name] for name in numbers]
    hub.advance(340)
    assert "stuck" == node_states(hub)["n4"][0]
    # Those that others keep have left, and are theirs to make again.
    assert (1, 0) == (hub.status["placed"], hub.status["unusable"])


def test_a_pod_that_several_pools_select_is_a_user_once() -> None:
    hub = Hub()
    hub.add_pool("zoo", **ZOO)
    hub.drawn("U++++ P++++ +++++")
    hold(hub, "g1", GUEST, "n3")  # of the zoo alone
    hub.advance(1)
    pools = hub.warm.pools
    for key in ("default/users", "default/zoo"):
        assert [1, 0, 1] == hub.warm.users_on(pools[key])[:3].tolist()
    before = hub.server.get(Pod, "default/g1")
    hub.server.put(replace(before, metadata=replace(before.metadata, labels=USER)))
    hub.advance(1)
    assert [1, 0, 1] == hub.warm.users_on(pools["default/users"])[:3].tolist()
    hub.gone("g1")
    assert [1, 0, 0] == hub.warm.users_on(pools["default/users"])[:3].tolist()


def test_a_broad_selector_makes_no_users_of_other_pools_placeholders() -> None:
    """A node with nothing but a placeholder was in use for ever."""
    hub = Hub()
    hub.add_pool("zoo", **ZOO)
    hub.drawn("U++++ P++++")
    hub.advance(60)
    assert ["n2"] == draining(hub, "users") == draining(hub, "zoo")


def newest_beside_drain() -> Hub:
    """The guests' placeholders are drawn to the newest node, the users' leave nodes that are not
    used."""
    hub = hub_with_guests(repositioning={"mode": "Newest"})
    for name, slots in (("n1", 5), ("n2", 5), ("n3", 1)):
        hub.node(name, slots)
        hub.advance(2)
    return hub


def test_who_finds_no_room_on_the_newest_node_leaves_a_drained_one_all_the_same() -> None:
    hub = newest_beside_drain()
    hold(hub, "u1", USER, "n1")
    hold(hub, "u3", USER, "n3")
    hold(hub, "g2", GUEST_ROOM, "n2")
    hub.advance(60)
    assert ["n2"] == draining(hub, "users") == draining(hub, "guests")
    assert {} == hub.server.pods_on("n2")


def test_the_newest_node_is_one_that_users_can_use() -> None:
    spread = {**GUESTS["placeholders"], "placement": "Spread"}
    hub = hub_with_guests(placeholders=spread, repositioning={"mode": "Newest"})
    hub.node("n1")
    hub.advance(2)
    hub.node("n2")
    hub.advance(2)
    hub.node("n3", ready=False)
    hub.advance(400)  # stuck
    hold(hub, "g1", GUEST_ROOM, "n1")
    hub.pod("g2", GUEST_ROOM)
    assert "n2" == hub.where("g2")
    hub.advance(60)
    moved = hub.server.get(WarmPool, "default/guests").status.moves
    assert ["n2"] == [move.to for move in moved]
    label = "hub.jupyter.org/attract-placeholders"
    drawing = [n.metadata.name for n in hub.server.all(Node).values() if label in n.metadata.labels]
    assert ["n2"] == drawing


def test_only_the_pool_whose_user_waits_is_told_at_once() -> None:
    hub = hub_with_guests(nodeSelector={"guests": "true"})
    hub.node("n1")
    hub.advance(20)
    hub.writes.clear()
    hub.user("large", cpu="50")
    hub.advance(1)
    told = [write.name for write in hub.writes if isinstance(write, PatchObject)]
    assert ["users"] == told
