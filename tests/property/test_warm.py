"""Warm pools under whatever happens to a hub: a slow, obvious model says where each user goes."""

import random
from typing import Any

import msgspec
import pytest

from stower.framework.writes import Bind, DeletePod, Write
from stower.model.kinds import Node, Pod, WarmPool
from tests.warm.rig import IMAGE, PLACEHOLDER, TEMPLATE, USER, Hub

SEEDS = 60
SEEDS_MORE = 120
STEPS = 60
SLOTS = 5


class Chaos(Hub):
    """A hub whose API refuses now and then."""

    def __init__(self, chance: random.Random, **more: Any) -> None:
        self.chance = chance
        self.refuses = False
        super().__init__(**more)

    def refuse(self, write: Write) -> tuple[int, str] | None:
        if self.refuses and self.chance.random() < 0.1:
            return (self.chance.choice((409, 500, 504)), "")
        return None


def component(pod: Pod) -> str:
    return (pod.metadata.labels or {})["component"]


def users_on(hub: Hub, name: str) -> int:
    return sum(component(p) == USER["component"] for p in hub.server.pods_on(name).values())


def is_ready(node: Node) -> bool:
    return any(IMAGE in (image.names or ()) for image in node.status.images or ())


def best(hub: Hub) -> tuple[int, list[str]]:
    """Nodes where the most users are of those that are ready and not full of users."""
    open_ = [
        (users_on(hub, name), name)
        for name, node in hub.server.all(Node).items()
        if is_ready(node) and users_on(hub, name) < SLOTS
    ]
    most = max((count for count, _ in open_), default=-1)
    return most, [name for count, name in open_ if count == most]


def happens(hub: Chaos, i: int) -> None:
    """One thing or another."""
    chance, server = hub.chance, hub.server
    users = [p for p in server.all(Pod).values() if component(p) == USER["component"]]
    nodes = [*server.all(Node)]
    match chance.randrange(10):
        case 0 | 1 | 2:
            _, names = best(hub)
            before = {p.metadata.name for p in users if not p.spec.node_name}
            where = hub.user(f"user-{i}")
            if not before and not hub.refuses:
                assert (where in names) if names else where == "", (where, names, hub.state())
        case 3 if users:
            hub.gone(chance.choice(users).metadata.name)
        case 4 if len(nodes) < 6:
            hub.node(f"n{i}", SLOTS, ready=chance.random() < 0.5)
        case 5 if nodes:
            hub.pulled(chance.choice(nodes))
        case 6 if len(nodes) > 1:
            name = chance.choice(nodes)
            server.remove(server.get(Node, name))
            for pod in [*server.pods_on(name).values()]:
                server.remove(pod)
        case 7 if chance.random() < 0.3:
            hub.restart()
        case 8 if chance.random() < 0.3:
            pool = server.get(WarmPool, "default/users")
            some = msgspec.structs.replace(pool.spec.placeholders, replicas=chance.randrange(8))
            spec = msgspec.structs.replace(pool.spec, placeholders=some)
            server.put(msgspec.structs.replace(pool, spec=spec))
        case _:
            hub.advance(chance.choice((1, 5, 20, 90)))


def look(hub: Chaos) -> None:
    """What holds at any moment."""
    waiting = [
        p
        for p in hub.server.all(Pod).values()
        if component(p) == USER["component"] and not p.spec.node_name
    ]
    for name in hub.server.all(Node):
        assert len(hub.server.pods_on(name)) <= SLOTS, hub.state()
    if waiting and not hub.refuses:
        assert best(hub)[0] == -1, (hub.state(), [p.metadata.name for p in waiting])


def story(seed: int) -> None:
    chance = random.Random(f"{seed}:warm")
    own = {"selector": None, "template": TEMPLATE, "replicas": chance.randrange(7),
           "stuckAfterSeconds": 86_400}  # fmt: skip
    mode = chance.choice(("Drain", "Drain", "Newest", "Lifetime", "Off"))
    moves = {"mode": mode, "lifetimeSeconds": 60}
    hub = Chaos(chance, placeholders=own, images={"then": "Wait"}, repositioning=moves)
    hub.refuses = seed % 2 == 1
    hub.node("n0", SLOTS)
    for i in range(STEPS):
        happens(hub, i)
        look(hub)
    hub.refuses = False
    hub.advance(700)  # what failed is tried again
    look(hub)
    wanted = hub.server.get(WarmPool, "default/users").spec.placeholders.replicas
    assert wanted == len(hub.names(PLACEHOLDER)), hub.state()
    binds = [(w.name, w.uid) for w in hub.writes if isinstance(w, Bind)]
    assert len(binds) == len({*binds}) or seed % 2 == 1
    gone = {w.uid for w in hub.writes if isinstance(w, DeletePod)}
    assert not any(name.startswith("user-") for name in gone)  # nobody who uses it is evicted


@pytest.mark.behaviour("S1.5", "S1.9", "S1.11", "S1.18")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_users_are_where_the_model_says(seed: int) -> None:
    story(seed)


@pytest.mark.more
def test_users_are_where_the_model_says_more() -> None:
    for seed in range(SEEDS, SEEDS_MORE):
        story(seed)
