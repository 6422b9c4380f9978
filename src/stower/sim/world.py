"""The world of a simulation without faults: a virtual clock, pods and nodes, an API without delay.

Every write is carried out and answered at once. The engine then gets the same events as from a real
API server: the response, and the changed object.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush

import msgspec

from stower.engine.engine import Engine
from stower.framework.decisions import Decision
from stower.framework.events import (
    Event,
    ExtenderAnswered,
    Listed,
    Observed,
    Tick,
    WatchType,
    WriteFailed,
    WriteOk,
)
from stower.framework.recording import Recording
from stower.framework.writes import (
    AgentAnswer,
    Bind,
    CallExtender,
    CreateEvent,
    CreateObject,
    DeletePod,
    JsonPatchObject,
    ObjectWrite,
    PatchObject,
    Solve,
    Write,
)
from stower.model.kinds import (
    GROUPS,
    ApiObject,
    Background,
    Node,
    PersistentVolumeClaim,
    Pod,
    PodScheduling,
    ResourceClaim,
    VirtualMachine,
    WarmPool,
)
from stower.model.kinds.pod import PodStatus
from stower.sim.allocations import Allocations
from stower.sim.changes import bound, json_patched, make_object, merged, patched
from stower.sim.recorded_drivers import Drivers, RecordedDriver
from stower.sim.volume_binder import Binder

# Ticks in a row that may find nothing to do before the world is taken to stand still.
IDLE_TICKS_MAX = 64
AGAIN = "-again"  # ends the names of pods that controllers make for those that were evicted
ENGINE = "simulate"  # as recordings name it
# Kinds to which the scheduler writes how things stand.
WRITTEN = (*GROUPS, PodScheduling, VirtualMachine, WarmPool)


AnyClaim = ResourceClaim | PersistentVolumeClaim


class World:
    """One engine and everything around it."""

    def __init__(
        self,
        engine: Engine,
        on_decision: Callable[[Decision], None] | None = None,
        recording: Recording | None = None,
        returns: bool = False,
        drivers: Sequence[RecordedDriver] = (),
    ) -> None:
        """`on_decision` is told of every attempt, in order. `returns`: pods of controllers that are
        evicted, or lose their node, come again. `drivers`: allocate what is negotiated."""
        self.engine = engine
        self.now_ns = 0
        self.pods: dict[str, Pod] = {}
        self.event_count = 0
        self.evicted: list[Pod] = []
        self.lost: set[str] = set()  # gone against their will
        self._returns = returns
        self._lasts_ns: dict[str, int] = {}  # by uid, once placed
        self._again: dict[str, str] = {}  # by uid: the pod that was made in its place
        self._ends: list[tuple[int, str]] = []  # when, whose
        self._inbox: deque[Event] = deque()
        self._on_decision = on_decision
        self._recording = recording
        if recording is not None:
            recording.record_engine(ENGINE)
        self._written: dict[tuple[type, str], ApiObject] = {}  # by view and name
        self._binder = Binder()
        self._drivers = Drivers(drivers, self._write_for_driver)
        self._allocations = Allocations(bool(drivers))

    def start(
        self,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        related: Iterable[Background] = (),
        lasts_ns: Mapping[str, int] | None = None,
    ) -> None:
        """All there is at the start. `lasts_ns`: by uid, of pods that have to be placed anew."""
        known, related = tuple(pods), tuple(related)
        self._lasts_ns |= lasts_ns or {}
        self._binder.start(related)
        self._allocations.start(related)
        self._written |= {(type(o), o.metadata.key): o for o in related if isinstance(o, WRITTEN)}
        self.pods.update((pod.metadata.uid, pod) for pod in known)
        self._send(Listed((*related, *nodes, *known)))

    def add_pod(self, pod: Pod, lasts_ns: int | None = None) -> None:
        """A pod is created; it ends so long after it was placed."""
        if lasts_ns is not None:
            self._lasts_ns[pod.metadata.uid] = lasts_ns
        self.pods[pod.metadata.uid] = pod
        self._send(Observed(WatchType.ADDED, pod))

    def delete_pod(self, uid: str) -> None:
        """A pod is deleted, or what was made in its place."""
        self._end(self.find_stand_in(uid))

    def find_stand_in(self, uid: str) -> str:
        """The uid of the pod that was made last in the place of this one, or its own."""
        while uid in self._again:
            uid = self._again[uid]
        return uid

    def _end(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._delete_pod(pod)

    def _delete_pod(self, pod: Pod) -> None:
        self._send(Observed(WatchType.DELETED, pod))
        said = self._written.pop((PodScheduling, pod.key), None)
        if said is not None:
            self._send(Observed(WatchType.DELETED, said))
        for observed in self._allocations.release(pod):
            self._send(observed)

    def apply_change(self, type: WatchType, obj: ApiObject) -> None:
        """Something else comes, changes or goes."""
        if isinstance(obj, Pod):
            self._apply_pod_change(type, obj)
            return
        if isinstance(obj, WRITTEN):
            self._written[obj.__class__, obj.metadata.key] = obj
        if isinstance(obj, ResourceClaim) and type is WatchType.DELETED:
            self._allocations.drop(obj.metadata.key)
        elif isinstance(obj, ResourceClaim) and type is WatchType.MODIFIED:
            changed = self._allocations.change(obj)
            if changed is None:
                return
            obj = changed
        if type is WatchType.ADDED:
            self._binder.start((obj,))
            self._allocations.start((obj,))
        self._send(Observed(type, obj))
        if isinstance(obj, Node) and type is WatchType.DELETED:
            name = obj.metadata.name
            for pod in [pod for pod in self.pods.values() if pod.spec.node_name == name]:
                self._inbox += self._lose_pod(pod)
                self._delete_pod(pod)

    def _apply_pod_change(self, type: WatchType, pod: Pod) -> None:
        """Others placed it, changed it or deleted it; where it is by now, it stays."""
        known = self.pods.get(pod.metadata.uid)
        if type is WatchType.DELETED:
            self.delete_pod(pod.metadata.uid)
            return
        if known is None and type is not WatchType.ADDED:
            return  # it has gone already
        there = known.spec.node_name if known is not None else ""
        if not there and self.engine.state.row_of(pod.spec.node_name) >= 0:
            there = pod.spec.node_name
        if known is None and there != pod.spec.node_name:
            return  # its node is not there
        lasts_ns = self._lasts_ns.get(pod.metadata.uid)
        if known is not None and there != known.spec.node_name and lasts_ns is not None:
            heappush(self._ends, (self.now_ns + lasts_ns, pod.metadata.uid))
        spec = msgspec.structs.replace(pod.spec, node_name=there)
        status = pod.status if known is None else known.status
        if known is not None:  # whose claims may have been made meanwhile
            claims = pod.status.resource_claim_statuses or status.resource_claim_statuses
            status = msgspec.structs.replace(status, resource_claim_statuses=claims)
        changed = msgspec.structs.replace(pod, spec=spec, status=status)
        self.pods[pod.metadata.uid] = changed
        self._send(Observed(type, changed))

    def _lose_pod(self, pod: Pod) -> list[Observed]:
        """It is gone against its will. What comes in its place."""
        uid = pod.metadata.uid
        self.lost.add(uid)
        del self.pods[uid]
        if self._returns and pod.metadata.controller is not None:
            again, claims = self.recreate(pod, make_replacement(pod))
            self._allocations.start(claims)
            self._binder.start(claims)
            if uid in self._lasts_ns:
                self._lasts_ns[again.metadata.uid] = self._lasts_ns[uid]
            self.pods[again.metadata.uid] = again
            self._again[uid] = again.metadata.uid
            coming = [Observed(WatchType.ADDED, claim) for claim in claims]
            return [*coming, Observed(WatchType.ADDED, again)]
        return []

    @property
    def claims(self) -> tuple[ResourceClaim, ...]:
        """The claims as they are now."""
        return self._allocations.claims

    def recreate(self, pod: Pod, like: Pod) -> tuple[Pod, tuple[AnyClaim, ...]]:
        """A pod that is like another one, and the claims that have to come with it."""
        again, claims = self._allocations.recreate(pod, like)
        return again, (*claims, *self._binder.recreate(pod, again))

    def advance(self, to_ns: int) -> None:
        """Let time pass: pods end, and the engine is woken whenever it asked to be."""
        while True:
            due_ns = self._next_wake_ns
            ends_ns = self._ends[0][0] if self._ends else None
            if ends_ns is not None and ends_ns <= to_ns and (due_ns is None or ends_ns <= due_ns):
                self.now_ns = max(self.now_ns, ends_ns)
                self._end(heappop(self._ends)[1])
            elif due_ns is not None and due_ns <= to_ns:
                self.now_ns = max(self.now_ns, due_ns)
                self._send(Tick())
            else:
                break
        self.now_ns = max(self.now_ns, to_ns)

    @property
    def _next_wake_ns(self) -> int | None:
        times = (self.engine.next_wake_ns, self._drivers.next_wake_ns)
        return min((at_ns for at_ns in times if at_ns is not None), default=None)

    def settle(self) -> None:
        """Run what can be tried now, and nothing that only time would bring."""
        for _ in range(IDLE_TICKS_MAX):
            due = self.engine.next_wake_ns
            if due is None or due > self.now_ns:
                return
            self._send(Tick())

    def list_pending(self) -> list[Pod]:
        """Pods without a node, in the order in which they came."""
        return [pod for pod in self.pods.values() if not pod.spec.node_name]

    def _send(self, event: Event) -> None:
        self._inbox.append(event)
        while self._inbox:
            event = self._inbox.popleft()
            writes = self.engine.step(event, self.now_ns)
            if self._recording is not None:
                self._recording.record_step(ENGINE, self.now_ns, event, writes)
            for write in writes:
                self._carry_out(write)
            self._drivers.step(event, self.now_ns)
            if self._on_decision is not None:
                for decision in self.engine.drain():
                    self._on_decision(decision)

    def _carry_out(self, write: Write) -> None:
        self._inbox.append(WriteOk(write.id))
        if isinstance(write, CreateEvent):
            self.event_count += 1
            return
        if isinstance(write, CallExtender):
            self._inbox[-1] = ExtenderAnswered(write.id, make_extender_response(write))
            if write.verb != "bind":
                return
            write = Bind(write.id, write.namespace, write.name, write.uid, write.nodes[0])
        if isinstance(write, Solve):
            return
        if isinstance(write, AgentAnswer):
            self._inbox.pop()  # nobody answers an answer
            return
        if isinstance(write, ObjectWrite):
            if write.view in (ResourceClaim, PodScheduling):
                happened = self._apply_write(write)
                if happened is not None:
                    version = happened.object.metadata.resource_version
                    self._inbox[-1] = WriteOk(write.id, version)
                    self._inbox.append(happened)
            elif write.view in WRITTEN and isinstance(write, PatchObject):
                key = (write.view, f"{write.namespace}/{write.name}")
                if key in self._written:
                    now = self._written[key] = merged(self._written[key], write)
                    self._inbox.append(Observed(WatchType.MODIFIED, now))
            elif isinstance(write, JsonPatchObject):
                self._patch_vm(write)
            elif isinstance(write, PatchObject):
                for obj in self._binder.apply_patch(write):
                    self._inbox.append(Observed(WatchType.MODIFIED, obj))
            return
        pod = self.pods.get(write.uid)
        if isinstance(write, DeletePod):
            if pod is not None:
                self.evicted.append(pod)
                coming = self._lose_pod(pod)
                self._inbox.append(Observed(WatchType.DELETED, pod))
                said = self._written.pop((PodScheduling, pod.key), None)
                if said is not None:
                    self._inbox.append(Observed(WatchType.DELETED, said))
                self._inbox += self._allocations.release(pod)
                self._inbox += coming
        elif pod is not None:
            changed = bound(pod, write) if isinstance(write, Bind) else patched(pod, write)
            if isinstance(write, Bind) and write.uid in self._lasts_ns:
                heappush(self._ends, (self.now_ns + self._lasts_ns[write.uid], write.uid))
            self.pods[write.uid] = changed
            self._inbox.append(Observed(WatchType.MODIFIED, changed))

    def _apply_write(self, write: ObjectWrite) -> Observed | None:
        """What happens to a claim or PodScheduling by the write; None where it is not there."""
        if write.view is ResourceClaim:
            return self._allocations.apply_write(write)
        key = (write.view, f"{write.namespace}/{write.name}")
        found = self._written.get(key)
        if isinstance(write, CreateObject):
            type, obj = WatchType.ADDED, make_object(write, f"made-for-{write.uid}")
        elif found is None or not isinstance(write, PatchObject):
            self._written.pop(key, None)
            return Observed(WatchType.DELETED, found) if found is not None else None
        else:
            type, obj = WatchType.MODIFIED, merged(found, write)
        version = str(int(obj.metadata.resource_version or 0) + 1)
        meta = msgspec.structs.replace(obj.metadata, resource_version=version)
        self._written[key] = obj = msgspec.structs.replace(obj, metadata=meta)
        return Observed(type, obj)

    def _write_for_driver(self, write: PatchObject) -> WriteOk | WriteFailed:
        """Carries out a driver's write, on the version that it relies on, and returns the answer.
        What it changes is shown to all after what was before."""
        key = f"{write.namespace}/{write.name}"
        if write.view is ResourceClaim:
            found: ApiObject | None = self._allocations.get(key)
        else:
            found = self._written.get((write.view, key))
        if found is None or found.metadata.uid != write.uid:
            return WriteFailed(write.id, 404, "not found")
        if write.resource_version not in ("", found.metadata.resource_version):
            return WriteFailed(write.id, 409, "the object has been modified")
        happened = self._apply_write(write) if merged(found, write) != found else None
        if happened is None:
            return WriteOk(write.id, found.metadata.resource_version)
        self._inbox.append(happened)
        return WriteOk(write.id, happened.object.metadata.resource_version)

    def _patch_vm(self, write: JsonPatchObject) -> None:
        """What is written to a VM shows on the pod that it runs in, and on the VM where it is
        known."""
        pod = self.pods.get(write.uid)
        changed = json_patched(pod, write) if pod is not None else None
        if not isinstance(changed, Pod):
            self._inbox[-1] = WriteFailed(write.id, 422, "a test operation of the patch failed")
            return
        if changed != pod:
            self.pods[write.uid] = changed
            self._inbox.append(Observed(WatchType.MODIFIED, changed))
        key = (VirtualMachine, f"{write.namespace}/{write.name}")
        vm = self._written.get(key)
        # The tests of the patch are about what the pod shows, which may be ahead of the VM.
        values = [op for op in write.operations if op["op"] != "test"]
        plain = msgspec.structs.replace(write, operations=values)
        after = json_patched(vm, plain) if vm is not None else None
        if after is not None and after != vm:
            self._written[key] = after
            self._inbox.append(Observed(WatchType.MODIFIED, after))


def make_replacement(pod: Pod) -> Pod:
    """The pod that a controller makes in the place of one that was evicted."""
    meta = pod.metadata
    name = f"{meta.name.removesuffix(AGAIN)}{AGAIN}"
    meta = msgspec.structs.replace(
        meta, name=name, uid=f"{meta.uid}{AGAIN}", deletion_timestamp=None
    )
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return msgspec.structs.replace(pod, metadata=meta, spec=spec, status=PodStatus("Pending"))


def make_extender_response(write: CallExtender) -> bytes:
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
