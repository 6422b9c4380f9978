"""The world of a simulation: a virtual clock, the pods and nodes there are, and an API that agrees.

Every write is carried out and answered at once. What the engine then sees are the same events as
from a real API server: the answer, and the changed object.
"""

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from stower.engine.decisions import Decision
from stower.engine.step import Engine
from stower.framework.events import (
    Event,
    ExtenderAnswered,
    Listed,
    Observed,
    Tick,
    WatchType,
    WriteOk,
)
from stower.framework.recording import Recording
from stower.framework.writes import (
    Bind,
    CallExtender,
    CreateEvent,
    DeletePod,
    PatchObject,
    Write,
)
from stower.model.kinds import Background, Node, Pod
from stower.sim.binder import Binder
from stower.sim.changes import bound, patched

# Ticks in a row that may find nothing to do before the world is taken to stand still.
IDLE_TICKS_MAX = 64
ENGINE = "simulate"  # as recordings name it


class World:
    """One engine and everything around it."""

    def __init__(
        self,
        engine: Engine,
        on_decision: Callable[[Decision], None] | None = None,
        recording: Recording | None = None,
    ) -> None:
        """`on_decision` is told of every attempt, in order."""
        self.engine = engine
        self.now_ns = 0
        self.pods: dict[str, Pod] = {}
        self.event_count = 0
        self._inbox: deque[Event] = deque()
        self._on_decision = on_decision
        self._recording = recording
        if recording is not None:
            recording.built(ENGINE)
        self._binder = Binder()

    def start(
        self, nodes: Iterable[Node], pods: Iterable[Pod], related: Iterable[Background] = ()
    ) -> None:
        """All there is at the start."""
        known, related = tuple(pods), tuple(related)
        self._binder.start(related)
        self.pods.update((pod.metadata.uid, pod) for pod in known)
        self._send(Listed((*related, *nodes, *known)))

    def add_pod(self, pod: Pod) -> None:
        """A pod is created."""
        self.pods[pod.metadata.uid] = pod
        self._send(Observed(WatchType.ADDED, pod))

    def delete_pod(self, uid: str) -> None:
        """A pod ends and is gone."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._send(Observed(WatchType.DELETED, pod))

    def advance(self, to_ns: int) -> None:
        """Let time pass, waking the engine whenever it asked to be."""
        while (due := self.engine.next_wake_ns) is not None and due <= to_ns:
            self.now_ns = max(self.now_ns, due)
            self._send(Tick())
        self.now_ns = max(self.now_ns, to_ns)

    def settle(self) -> None:
        """Run what can be tried now, and nothing that only time would bring."""
        for _ in range(IDLE_TICKS_MAX):
            due = self.engine.next_wake_ns
            if due is None or due > self.now_ns:
                return
            self._send(Tick())

    def waiting(self) -> list[Pod]:
        """Pods without a node, in the order in which they came."""
        return [pod for pod in self.pods.values() if not pod.spec.node_name]

    def _send(self, event: Event) -> None:
        self._inbox.append(event)
        while self._inbox:
            event = self._inbox.popleft()
            writes = self.engine.step(event, self.now_ns)
            if self._recording is not None:
                self._recording.stepped(ENGINE, self.now_ns, event, writes)
            for write in writes:
                self._carry_out(write)
            if self._on_decision is not None:
                for decision in self.engine.drain():
                    self._on_decision(decision)

    def _carry_out(self, write: Write) -> None:
        self._inbox.append(WriteOk(write.id))
        if isinstance(write, CreateEvent):
            self.event_count += 1
            return
        if isinstance(write, CallExtender):
            self._inbox[-1] = ExtenderAnswered(write.id, agreed(write))
            if write.verb != "bind":
                return
            write = Bind(write.id, write.namespace, write.name, write.uid, write.nodes[0])
        if isinstance(write, PatchObject):
            for obj in self._binder.patched(write):
                self._inbox.append(Observed(WatchType.MODIFIED, obj))
            return
        pod = self.pods.get(write.uid)
        if isinstance(write, DeletePod):
            if pod is not None:
                del self.pods[write.uid]
                self._inbox.append(Observed(WatchType.DELETED, pod))
        elif pod is not None:
            changed = bound(pod, write) if isinstance(write, Bind) else patched(pod, write)
            self.pods[write.uid] = changed
            self._inbox.append(Observed(WatchType.MODIFIED, changed))


def agreed(write: CallExtender) -> bytes:
    """What an extender says that has nothing against anything: it is not asked in a simulation."""
    items = [{"metadata": {"name": name}} for name in write.nodes]
    answer: object = {"nodeNames": write.nodes, "nodes": {"items": items}}
    if write.verb == "prioritize":
        answer = []
    elif write.verb == "preempt":
        answer = {
            "nodeNameToMetaVictims": {
                name: {"pods": [{"uid": uid} for uid in uids], "numPDBViolations": violations}
                for name, (uids, violations) in write.victims.items()
            }
        }
    return msgspec.json.encode(answer)
