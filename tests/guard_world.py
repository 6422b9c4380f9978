"""A small cluster around an engine, for errors that are planted: writes are carried out at once."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.framework.events import (
    Event,
    ExtenderAnswered,
    Hold,
    Listed,
    Observed,
    Tick,
    WatchType,
    WriteFailed,
    WriteOk,
)
from stower.framework.plugin import Features
from stower.framework.writes import (
    AgentAnswer,
    Bind,
    CallExtender,
    CreateEvent,
    DeletePod,
    PatchPodStatus,
    Write,
)
from stower.model.kinds import Pod
from stower.state.comparison import differences, rebuilt, view
from tests.builders import make_node, make_pod

S = 1_000_000_000
Key = tuple[str, str, str]


def key_of(obj: Any) -> Key:
    return type(obj).__name__, obj.metadata.namespace, obj.metadata.name


class World:
    """An engine, the objects of its server, and all that was written."""

    def __init__(self, *objects: Any, document: dict[str, Any] | None = None) -> None:
        features = msgspec.structs.replace(Features(), groups=True)
        self.engine: Engine = build_engine(document, features=features)
        self.objects: dict[Key, Any] = {}
        self.writes: list[Write] = []
        self.now_ns = 0
        self.answers: Callable[[Write], Event | None] = lambda write: None
        for obj in (make_node("n1"), make_node("n2"), *objects):
            self.objects[key_of(obj)] = obj
        self.step(Listed(tuple(self.objects.values())))

    # Steps

    def step(self, event: Event) -> list[Write]:
        """One step, and the answers to all that is written by it and by what follows."""
        first = self.engine.step(event, self.now_ns)
        todo = list(first)
        while todo:
            write = todo.pop(0)
            self.writes.append(write)
            for answer in self._carry_out(write):
                todo += self.engine.step(answer, self.now_ns)
        return first

    def _carry_out(self, write: Write) -> Iterable[Event]:
        if isinstance(write, AgentAnswer):
            return
        planned = self.answers(write)
        if planned is not None:
            yield planned
            if isinstance(planned, WriteFailed):
                return
        elif isinstance(write, CallExtender):
            yield ExtenderAnswered(write.id, msgspec.json.encode({"NodeNames": write.nodes}), "")
        else:
            yield WriteOk(write.id)
        pod = self.objects.get(("Pod", *_name(write)))
        if isinstance(write, Bind) and pod is not None:
            spec = msgspec.structs.replace(pod.spec, node_name=write.node_name)
            yield self.put(msgspec.structs.replace(pod, spec=spec))
        elif isinstance(write, DeletePod) and pod is not None:
            yield self.delete(pod)

    def put(self, obj: Any) -> Observed:
        """The event of an object that is created or changed."""
        known = key_of(obj) in self.objects
        self.objects[key_of(obj)] = obj
        return Observed(WatchType.MODIFIED if known else WatchType.ADDED, obj)

    def delete(self, obj: Any) -> Observed:
        """The event of an object that is deleted."""
        self.objects.pop(key_of(obj), None)
        return Observed(WatchType.DELETED, obj)

    def add(self, obj: Any) -> list[Write]:
        """It is created, and a step is made of that."""
        return self.step(self.put(obj))

    def hold(self, *pods: Pod) -> None:
        """Pods that are tried first with the next event."""
        self.step(Hold(True))
        for pod in pods:
            self.add(pod)
        self.engine._is_held = False

    def run_until(self, until_ns: int) -> None:
        """Ticks whenever something is due."""
        for _ in range(10_000):
            due_ns = self.engine.next_wake_ns
            if due_ns is None or due_ns > until_ns:
                break
            self.now_ns = max(self.now_ns, due_ns)
            self.step(Tick())
        else:
            raise AssertionError("the engine wakes without end")
        self.now_ns = max(self.now_ns, until_ns)

    # What has become of it

    def node_of(self, name: str) -> str:
        """The node of a pod, by the objects."""
        return str(self.objects["Pod", "default", name].spec.node_name)

    def reported(self, name: str) -> bool:
        """Whether an object was told of an error by a condition or an Event."""
        for write in self.writes:
            if isinstance(write, CreateEvent) and write.reason == "SchedulerError":
                if name in (write.name, ""):
                    return True
            if isinstance(write, PatchPodStatus) and write.condition is not None:
                if write.condition.reason == "SchedulerError" and name in (write.name, ""):
                    return True
        return False

    def check_state(self) -> None:
        """The state is what its objects say, and what the server's objects say."""
        state = self.engine.state
        assert [] == differences(state, rebuilt(state, self.engine.other_objects))
        fresh = build_engine(None, features=msgspec.structs.replace(Features(), groups=True))
        fresh.step(Hold(True), self.now_ns)
        fresh.step(Listed(tuple(self.objects.values())), self.now_ns)
        ours, theirs = view(state), view(fresh.state)
        for part in ("nodes", "node count", "objects", "host ports", "members of groups"):
            assert theirs[part] == ours[part], part


def _name(write: Any) -> tuple[str, str]:
    return write.namespace, write.name


def bystander(name: str = "bystander") -> Pod:
    """A pod that has nothing to do with any error."""
    return make_pod(name)
