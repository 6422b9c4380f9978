"""Whatever objects there are, and whatever becomes of writes: each event is taken in, in time, and
a pod that has nothing to do with it is placed as ever."""

from typing import Any, Final

from hypothesis import strategies as st

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.limits import SECOND_NS
from stower.framework.decisions import Outcome
from stower.framework.events import (
    AgentAsked,
    Listed,
    Observed,
    Tick,
    WatchType,
    WriteFailed,
    WriteOk,
)
from stower.framework.plugin import Features, read_features
from stower.model.errors import InvalidObject
from stower.model.kinds import ApiObject, Kind
from stower.model.raw import decode
from tests.builders import make_node, make_pod
from tests.fuzz.limits import fuzzed
from tests.fuzz.mutants import OBJECTS, text_of

CONFIG: Final = {
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {"multiPoint": {"enabled": [{"name": "AutoscaleEnforcer"}]}},
            "pluginConfig": [
                {"name": "AutoscaleEnforcer", "args": {"schedulerName": "default-scheduler"}}
            ],
        }
    ]
}
FEATURES, _ = read_features("AllAlpha=true,WarmPools=true", Features())
BYSTANDER: Final = "bystander"
OWN: Final = {"example.com/own": "yes"}
ROOM = make_node(
    "own", cpu="100000", memory="100000Gi", pods="100000", labels=OWN,
    taints=[{"key": "example.com/own", "effect": "NoSchedule"}],
)  # fmt: skip
POD = make_pod(
    BYSTANDER, namespace="elsewhere", nodeSelector=OWN, priority=10**9,
    tolerations=[{"key": "example.com/own", "operator": "Exists"}],
)  # fmt: skip
WORLD = (make_node("n1"), make_node("n2", cpu="2"), *(make_pod(f"p{i}") for i in range(3)))
# What becomes of a write: None is no answer yet.
ANSWERS = st.sampled_from((200, 200, 200, 409, 404, 403, 422, 500, 0, None))


class World:
    """An engine, and what it is told."""

    def __init__(self, first: tuple[ApiObject, ...]) -> None:
        self.engine: Engine = build_engine(CONFIG, features=FEATURES)
        self.now_ns = 0
        self.ids: list[int] = []
        self.placed: set[str] = set()
        self.step(Listed((*WORLD, *first)))

    def step(self, event: Any) -> None:
        """One event, and a little time."""
        self.now_ns += SECOND_NS // 10
        for write in self.engine.step(event, self.now_ns):
            self.ids.append(write.id)
        for decision in self.engine.drain():
            if decision.outcome is Outcome.PLACED:
                self.placed.add(decision.name)

    def answer(self, code: int | None) -> None:
        """To the oldest write."""
        if self.ids and code is not None:
            id = self.ids.pop(0)
            self.step(WriteOk(id) if code == 200 else WriteFailed(code=code, id=id, message="no"))


def readable(made: list[tuple[Kind, Any]]) -> list[ApiObject]:
    """What a shell would show to the engine: its objects have uids of their own."""
    found = []
    for kind, document in made:
        try:
            found.append(decode(text_of(document), kind.view))
        except InvalidObject:
            continue
    return found


def events(
    first: list[tuple[Kind, Any]],
    then: list[tuple[WatchType, tuple[Kind, Any], int | None]],
    asked: bytes,
) -> None:
    """See the module."""
    world = World(tuple(readable(first)))
    for what, made, code in then:
        for obj in readable([made]):
            world.step(Observed(what, obj))
        world.answer(code)
    world.step(AgentAsked(7, "POST", asked))
    world.step(Observed(WatchType.ADDED, ROOM))
    world.step(Observed(WatchType.ADDED, POD))
    for _ in range(20):
        world.now_ns += 10 * SECOND_NS
        world.step(Tick())
        world.answer(200)
    assert BYSTANDER in world.placed


test_events, test_events_long = fuzzed(
    events, 15_000,
    first=st.lists(OBJECTS, max_size=5),
    then=st.lists(st.tuples(st.sampled_from(WatchType), OBJECTS, ANSWERS), max_size=5),
    asked=st.one_of(st.binary(max_size=40), st.just(b'{"protoVersion":5,"pod":{}}')),
)  # fmt: skip
