"""The engine under random histories: nothing forgotten, nothing overcommitted, always the same."""

import os
import subprocess
import sys
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.limits import SECOND_NS
from stower.engine.queue.entities import Place
from stower.framework.events import (
    Event,
    Listed,
    Observed,
    Tick,
    WatchType,
    WriteFailed,
    WriteOk,
)
from stower.framework.writes import Bind, Write
from stower.model.kinds import Node, Pod
from stower.model.resources import PODS
from tests.builders import make_pod
from tests.property.strategies import NODE_NAMES, nodes, pods

pod_names = tuple(f"p{i}" for i in range(10))


class Cluster:
    """An API that answers as it is told to, and the objects that it holds."""

    def __init__(self) -> None:
        self.engine: Engine = build_engine()
        self.now_ns = 0
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.gone: dict[str, Pod] = {}  # the last one of each name that is no more
        self.created = 0
        self.unanswered: list[Write] = []
        self.log: list[Write] = []

    def send(self, event: Event) -> None:
        """One step; its writes wait for an answer."""
        writes = self.engine.step(event, self.now_ns)
        self.unanswered += writes
        self.log += writes

    def act(self, action: tuple[Any, ...]) -> None:
        """One thing that happens."""
        kind, *args = action
        if kind == "node":
            (node,) = args
            known = node.metadata.name in self.nodes
            self.nodes[node.metadata.name] = node
            self.send(Observed(WatchType.MODIFIED if known else WatchType.ADDED, node))
        elif kind == "node gone":
            node = self.nodes.pop(args[0], None)
            if node is not None:
                self.send(Observed(WatchType.DELETED, node))
        elif kind == "pod":
            # Where one of the name exists, it was deleted meanwhile, and the watch missed it.
            (pod,) = args
            self._take(pod.metadata.name)
            self.created += 1
            uid = f"uid-{self.created}"
            self.pods[uid] = replace(pod, metadata=replace(pod.metadata, uid=uid))
            self.send(Observed(WatchType.ADDED, self.pods[uid]))
        elif kind == "pod gone":
            gone = self._take(args[0])
            if gone is not None:
                self.send(Observed(WatchType.DELETED, gone))
        elif kind == "late" and args[1] in self.gone:
            self.send(Observed(args[0], self.gone[args[1]]))
        elif kind == "listed":
            self.send(Listed((*self.nodes.values(), *self.pods.values())))
        elif kind == "time":
            self.now_ns += args[0] * SECOND_NS
            self.send(Tick())
        elif kind == "answer" and self.unanswered:
            self._answer(self.unanswered.pop(0), ok=args[0])

    def _take(self, name: str) -> Pod | None:
        for uid, pod in self.pods.items():
            if pod.metadata.name == name:
                self.gone[name] = self.pods.pop(uid)
                return pod
        return None

    def _answer(self, write: Write, ok: bool) -> None:
        pod = self.pods.get(write.uid)
        if not ok or (isinstance(write, Bind) and pod is None):
            self.send(WriteFailed(write.id, 500, "refused"))
            return
        if isinstance(write, Bind) and pod is not None:
            pod = replace(pod, spec=replace(pod.spec, node_name=write.node_name))
            self.pods[write.uid] = pod
            self.send(Observed(WatchType.MODIFIED, pod))
        self.send(WriteOk(write.id))

    def check(self) -> None:
        """Every unbound pod is in one place; no node holds more than it has of its own doing."""
        engine = self.engine
        for uid, pod in self.pods.items():
            queued = engine.queue.get(uid)
            entry = engine.state.pods[uid]
            if pod.spec.node_name:
                assert queued is None
                assert pod.spec.node_name == engine.state.node_names[entry.row]
            else:
                assert queued is not None
                assert queued.place is not Place.NOWHERE
                assert (queued.place is Place.IN_FLIGHT) == entry.is_assumed == (entry.row >= 0)
        assert len(engine.queue) == sum(not p.spec.node_name for p in self.pods.values())
        assert sorted(self.pods) == sorted(engine.state.pods)


actions = st.one_of(
    st.tuples(st.just("node"), nodes()),
    st.tuples(st.just("node gone"), st.sampled_from(NODE_NAMES)),
    st.sampled_from(pod_names).flatmap(lambda name: st.tuples(st.just("pod"), pods(name))),
    st.tuples(st.just("pod gone"), st.sampled_from(pod_names)),
    st.tuples(st.just("late"), st.sampled_from(WatchType), st.sampled_from(pod_names)),
    st.tuples(st.just("listed")),
    st.tuples(st.just("time"), st.sampled_from((1, 5, 400))),
    st.tuples(st.just("answer"), st.sampled_from((True, True, True, False))),
)


@settings(max_examples=200)
@given(st.lists(actions, max_size=60))
def test_no_pod_is_ever_forgotten(history: list[tuple[Any, ...]]) -> None:
    """After every step each unbound pod is in exactly one place, each bound one on its node."""
    cluster = Cluster()
    for action in history:
        cluster.act(action)
        cluster.check()


@settings(max_examples=100)
@given(st.lists(nodes(), min_size=1, max_size=5), st.lists(actions, max_size=60))
def test_no_node_is_overcommitted_by_placing(
    fixed: list[Node], history: list[tuple[Any, ...]]
) -> None:
    """While nodes do not change, no resource of any is ever promised twice."""
    cluster = Cluster()
    for node in fixed:
        cluster.act(("node", node))
    for action in history:
        if not action[0].startswith("node"):
            cluster.act(action)
    state = cluster.engine.state
    for row in state.present_rows():
        for column in state.columns.values():
            # A pod that asks for none of a resource may come even where there is none of it.
            if column.requested_cells[row] and column.name != PODS:
                assert column.requested_cells[row] <= column.allocatable_cells[row]
        assert (
            state.columns[PODS].requested_cells[row] <= state.columns[PODS].allocatable_cells[row]
        )


@settings(max_examples=100)
@given(st.lists(actions, max_size=60))
def test_restarted_engine_decides_as_the_one_that_lived_on(
    history: list[tuple[Any, ...]],
) -> None:
    """Once all writes are answered, an engine built from the objects places the next pod alike."""
    cluster = Cluster()
    for action in history:
        cluster.act(action)
    for _ in range(3):
        # All backoffs over, and what was unschedulable for too long tried again.
        cluster.act(("time", 400))
        while cluster.unanswered:
            cluster.act(("answer", True))
    fresh = build_engine()
    fresh.step(Listed((*cluster.nodes.values(), *cluster.pods.values())), cluster.now_ns)
    assert len(fresh.queue) == len(cluster.engine.queue)
    probe = make_pod("probe", cpu="50m", memory="10Mi")
    lived = cluster.engine.step(Observed(WatchType.ADDED, probe), cluster.now_ns)
    reborn = fresh.step(Observed(WatchType.ADDED, probe), cluster.now_ns)
    assert _bound(lived) == _bound(reborn)


def _bound(writes: list[Write]) -> list[tuple[str, str]]:
    return [(w.name, w.node_name) for w in writes if isinstance(w, Bind) and w.name == "probe"]


SCRIPT = """
import msgspec
from stower.assembly import build_engine
from stower.framework.events import Listed, Observed, Tick, WatchType
from stower.model.kinds import Node, Pod
from stower.model.raw import decode
from stower.sim.cluster_generator import cluster
objects = []
for data in cluster(20, 800, seed=3):
    kind = Node if b'"kind":"Node"' in data else Pod
    obj = decode(data, kind)
    if kind is Pod:
        obj = msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, priority=0))
    objects.append(obj)
engine = build_engine(seed=5)
writes = engine.step(Listed(tuple(objects)), 0)
for i in range(20):
    writes += engine.step(Tick(), i)
print(msgspec.json.encode([(type(w).__name__, w) for w in writes]).decode())
"""


def test_writes_are_equal_byte_for_byte_under_any_hash_seed() -> None:
    """Catches a set or a hash that decides an order."""
    outputs = []
    for hash_seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, env=environment, check=True
        )
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1] == outputs[2]
    assert b"Bind" in outputs[0]
    assert b"Insufficient" in outputs[0]
