"""The engine's one entry: an event and the time go in, writes come out.

Same events, seed, times and configuration: same writes, byte for byte. Never blocks, logs, or
reads a clock; every write is answered later by WriteOk or WriteFailed; `next_wake_ns` says when
to send a Tick.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from stower.engine.attempt_errors import FAULTS
from stower.engine.binding.binding_cycle import Binds
from stower.engine.binding.pending_writes import Settling
from stower.engine.binding.permit import Together
from stower.engine.binding.pre_bind import DONE, PreBinding
from stower.engine.companions import companions
from stower.engine.cycle.pod_attempts import Outcomes
from stower.engine.cycle.scheduling_cycle import Cycle
from stower.engine.extenders.extender_calls import Extending
from stower.engine.extenders.extender_cycle import ExtendedCycle
from stower.engine.groups.group_status import GroupTelling
from stower.engine.groups.tree_attempts import TreeOutcomes
from stower.engine.groups.tree_queue import Trees
from stower.engine.limits import Limits
from stower.engine.object_events import StoreEvents, each
from stower.engine.preemption.displacement import GivingWay
from stower.engine.preemption.pod_eviction import Evictions
from stower.engine.queue.entities import Queued, QueuedPod, QueuedTree
from stower.engine.queue.scheduling_queue import Queue
from stower.engine.status_reporter import POD_SCHEDULED, Telling
from stower.framework.cluster_events import (
    Change,
    Happened,
    is_scaled_down,
    node_change,
    node_happened,
    own_change,
)
from stower.framework.decisions import Decision
from stower.framework.events import (
    AgentAsked,
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
from stower.framework.extenders import Extender
from stower.framework.profile import Profile
from stower.framework.retries import UNKNOWN
from stower.framework.stopwatch import STOPPED, Stopwatch
from stower.framework.writes import AgentAnswer, Write
from stower.model.errors import InvalidObject, InvariantError
from stower.model.kinds import SELECTING, Node, Pod, PodDisruptionBudget, ResourceClaim
from stower.state.cluster import ClusterState, PodEntry


class Engine:
    """A scheduler over one state, for all its profiles."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        seed: int = 0,
        limits: Limits | None = None,
        extenders: tuple[Extender, ...] = (),
        counts_claims: bool = False,
        groups: bool = True,
        stopwatch: Stopwatch = STOPPED,
    ) -> None:
        """`profiles` by scheduler name; a pod of any other scheduler is only counted.
        `counts_claims` as the state's; `groups`: whether pods of a group are placed together."""
        self.stopwatch = stopwatch
        self.profiles = dict(profiles)
        self.limits = limits or Limits()
        self.state = ClusterState(counts_claims)
        self.queue = Queue(self.limits, self._gate_failed)
        self.cycle = Cycle(self.state, seed)
        self.now_ns = 0
        self._next_id = 1
        # Pods that are gone, oldest first: a late event must not bring one back.
        self._gone: dict[str, None] = {}
        self._is_held = False
        self._writes: list[Write] = []
        state, queue, send = self.state, self.queue, self._send
        self._tell = Telling(state, self.limits, send, self._id, stopwatch)
        self._tell_groups = GroupTelling(state, send, self._id, self._tell.about_group)
        self._evictions = Evictions(send, self._id, self._preempted, self._preempted_all)
        self._pre_binding = PreBinding(state, self._id, send, self._ready, self._give_up)
        self.together = Together(self._bind_now)
        self._binds = Binds(
            state, queue, self.limits, self._tell, self._pre_binding, self.together,
            self._evictions, self._id, send, self._give_up, self._take_back,
        )  # fmt: skip
        self._settling = Settling(self._id, send, self._version, self._settled)
        self._trees = Trees(state, queue, groups)
        self._outcomes = Outcomes(
            state, queue, self._trees, self.cycle, self._tell, self._settling, self._pre_binding,
            self.together, self._evictions, self._tell_groups, self, send, self._id,
        )  # fmt: skip
        self.tree_outcomes = TreeOutcomes(
            state, queue, self._trees, self.cycle, self._outcomes, self._tell, self._tell_groups,
            self._settling, self.together, self._skip_deleted, self._let_go, send, self._id,
        )  # fmt: skip
        extending = Extending(extenders, state, send, self._id)
        self.extended = ExtendedCycle(extending, self.cycle, queue, self._outcomes)
        self._outcomes.extended = self.extended
        self.giving_way = GivingWay(state, self.cycle)
        self._companions = tuple(companions(self.profiles.values(), state, seed))
        for companion in self._companions:
            companion.join(self.giving_way.placing(self.profiles))
        self._stores = StoreEvents(
            state, queue, self._pre_binding, self._settling, self._trees, self._tell_groups
        )

    def step(self, event: Event, now_ns: int) -> list[Write]:
        """Apply one event, run the cycles that it allows, return the writes in sending order.

        `now_ns` may not go back. Raises only for a bug of ours: the engine is of no use then.
        """
        if now_ns < self.now_ns:
            raise InvariantError(f"clock went back: {now_ns=} < {self.now_ns=}")
        self.now_ns = self._tell.now_ns = now_ns
        self.state.step_begins(now_ns)
        self._writes = []
        HANDLERS[type(event)](self, event)
        self._binds.send_again(self.extended)
        self._binds.take_back_doubtful()
        if self._pre_binding:
            self._pre_binding.expire(now_ns)
        self._settling.expire(now_ns)
        self._run_companions()
        self._run_cycles()
        if self._companions:
            self._run_companions()  # for pods that have been given a node
        return self._writes

    def _run_companions(self) -> None:
        for companion in self._companions:
            self._writes += companion.run(self.now_ns, self._id, self._is_held)
            for happened in companion.happened():
                self.queue.wake(happened, self.now_ns)
            for uid in companion.in_turn():
                queued = self.queue.get(uid)
                if queued is not None:
                    self.queue.hurry(queued, self.now_ns)

    @property
    def next_wake_ns(self) -> int | None:
        """When to send a Tick if nothing happens before; None where only an event can help."""
        # While an extender is asked, no other pod is tried.
        is_shut = self._is_held or self.extended.is_busy
        next_pod = None if is_shut else self.queue.next_wake_ns
        wakes = (
            next_pod, self._pre_binding.next_wake_ns, self._settling.next_wake_ns,
            self._trees.next_wake_ns,
        )  # fmt: skip
        beside = [companion.next_wake_ns for companion in self._companions]
        due = [d for d in (*wakes, *beside) if d is not None] + self._binds.dues()
        return max(min(due), self.now_ns) if due else None

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way: all that was decided is in the objects that were shown."""
        if self._binds.is_open or self._evictions or self._pre_binding.is_writing:
            return False
        if self._settling.is_open or self.extended.is_busy or self._tell_groups.is_open:
            return False
        if self.state.devices.has_assumptions:
            return False
        if not all(companion.is_settled for companion in self._companions):
            return False
        pods = self.state.pods.values()
        return not any(e.assumed and e.uid not in self._pre_binding for e in pods)

    def drain(self) -> list[Decision]:
        """The decisions since the last call, oldest first."""
        return self._tell.drain()

    def notes(self) -> list[tuple[str, str, str]]:
        """What companions have to say since the last call: level, text, and about what."""
        return [note for companion in self._companions for note in companion.notes()]

    # Events

    def _on_observed(self, event: Observed) -> None:
        obj = event.object
        gone = event.type is WatchType.DELETED
        if isinstance(obj, Pod):
            if gone:
                self._pod_deleted(obj.metadata.uid)
            elif obj.metadata.uid in self._gone:
                return  # it is late
            else:
                self._pod(obj)
        elif isinstance(obj, Node):
            if gone:
                self._node_gone(obj.metadata.name)
            else:
                self._node(obj)
        elif isinstance(obj, SELECTING):
            if gone:
                self.state.related.drop(obj)
            else:
                self.state.related.put(obj)  # upstream wakes nobody for it either
        elif isinstance(obj, PodDisruptionBudget):
            if gone:
                self.state.budgets.drop(obj)
            else:
                self.state.budgets.put(obj)  # nor for this
        else:
            self._stores.observed(obj, gone, self.now_ns)
        for companion in self._companions:
            companion.observed(obj, gone, self.now_ns)

    def _on_listed(self, event: Listed) -> None:
        uids = {o.metadata.uid: None for o in event.objects if isinstance(o, Pod)}
        names = {o.metadata.name for o in event.objects if isinstance(o, Node)}
        for uid in [uid for uid in self.state.pods if uid not in uids]:
            self._pod_deleted(uid)
        for uid in uids:
            self._gone.pop(uid, None)  # the list says what is there
        for row in self.state.present_rows():
            if self.state.names[row] not in names:
                self._node_gone(self.state.names[row])
        self.state.related.clear()
        self.state.budgets.clear()
        self.state.strangers.clear()
        each(event.objects, SELECTING, self.state.related.put)
        each(event.objects, PodDisruptionBudget, self.state.budgets.put)
        self._stores.listed(event.objects, self.now_ns)
        each(event.objects, Node, self._node)
        each(event.objects, Pod, self._pod)
        for companion in self._companions:
            companion.listed(event.objects, self.now_ns)
        # A list that shows a pod without the node that it was given may be older than its bind.
        awaited = self._binds.awaited()
        for entry in self.state.pods.values():
            if entry.assumed and entry.uid not in awaited:
                self._binds.doubt(entry)

    def _on_hold(self, event: Hold) -> None:
        self._is_held = event.is_on

    def _on_tick(self, event: Tick) -> None:
        """Time alone: what is due is found by the queue."""

    def _take_back(self, entry: PodEntry) -> None:
        """No watch has shown the pod on its node: it waits again."""
        self.state.forget(entry)
        self.queue.remove(entry.uid)
        self.freed(entry.pod)
        profile = self.profiles[entry.pod.spec.scheduler_name]
        self._enqueue(QueuedPod(entry, profile, self.now_ns))

    def _on_write_ok(self, event: WriteOk) -> None:
        id, version = event.id, event.resource_version
        if uid := self._tell.answered(id, False, version):
            self._pre_binding.pod_changed(uid)
            return
        if self._binds.done(id) or self._evictions.answered(id, 0):
            return
        if self._tell_groups.answered(id, False) or self._is_beside(id, 0, ""):
            return
        if not self._pre_binding.answered(id, DONE, "", version):
            self._settling.answered(id, DONE, version, self.now_ns)

    def _on_write_failed(self, event: WriteFailed) -> None:
        if uid := self._tell.answered(event.id, True):
            self._pre_binding.pod_changed(uid)
            return
        code, why = event.code or UNKNOWN, event.message or f"status {event.code}"
        if self._evictions.answered(event.id, code) or self._tell_groups.answered(event.id, True):
            return
        if self._pre_binding.answered(event.id, code, why):
            return
        if self._is_beside(event.id, code, why):
            return
        if not self._settling.answered(event.id, code, "", self.now_ns):
            self._binds.failed(event)

    def _on_extender_answered(self, event: ExtenderAnswered) -> None:
        if not self.extended.answered(event):
            if self._binds.extender_answered(event, self.extended):
                self._on_write_ok(WriteOk(event.id))

    def _is_beside(self, id: int, code: int, why: str) -> bool:
        """Whether the answer was a companion's."""
        return any(c.answered(id, code, why, self.now_ns) for c in self._companions)

    def _on_agent_asked(self, event: AgentAsked) -> None:
        for companion in self._companions:
            if companion.asked(event.id, event.method, event.body, self.now_ns):
                return
        text = "nothing here answers agents"
        self._writes.append(AgentAnswer(event.id, 404, text, "text/plain"))

    def _give_up(self, queued: QueuedPod, message: str) -> None:
        """A node was found, and then something failed."""
        entry = queued.entry
        self._binds.believe(entry.uid)
        self._pre_binding.undo(entry.uid)
        self.state.forget(entry)
        self.freed(entry.pod)
        self._outcomes.fail(queued, message)
        for other in self.together.dissolve(entry.uid):
            self._let_go(other, f"pod {entry.pod.key} of its group cannot be bound: {message}")

    def _let_go(self, queued: QueuedPod, why: str) -> None:
        """A pod that waits for others to be bound with it is not bound, whatever it waits for."""
        if queued.uid in self._pre_binding:
            self._pre_binding.cancel(queued.uid, why)
        elif queued.entry.assumed:
            self._give_up(queued, why)

    # Objects

    def _node(self, node: Node) -> None:
        row = self.state.row_of(node.metadata.name)
        old = self.state.nodes[row] if row >= 0 else None
        try:
            if not self.state.set_node(node):
                return
        except InvalidObject:
            # Nothing can be placed on a node that does not say what it has.
            self._node_gone(node.metadata.name)
            return
        if old is not None and old.metadata.labels != node.metadata.labels:
            self._trees.domains_changed()
        change = node_change(old, node)
        if change and self.queue.is_waiting:
            resources = self.state.devices.resources
            self.queue.wake(node_happened(change, old, node, resources), self.now_ns)

    def _node_gone(self, name: str) -> None:
        row = self.state.row_of(name)
        old = self.state.nodes[row] if row >= 0 else None
        if self.state.remove_node(name) and self.queue.is_waiting:
            self.queue.wake(Happened(Change.NODE_DELETED, old_node=old), self.now_ns)

    def _pod(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self.state.strangers.pop(uid, None)
        known = self.state.uid_by_key.get(pod.key, uid)
        if known != uid:
            self._pod_deleted(known)  # another pod has its name now
        if pod.is_terminal:
            self._pod_gone(uid)
            return
        entry = self.state.pods.get(uid)
        try:
            if pod.spec.node_name:
                self._pod_on_node(entry, pod)
            elif entry is None:
                self._new_pod(pod)
            else:
                self._pod_waiting(entry, pod)
        except InvalidObject:
            # The API server would not have stored it: it takes no room and gets none.
            self._pod_gone(pod.metadata.uid)
        self._settling.seen(pod, False)

    def _new_pod(self, pod: Pod) -> None:
        profile = self.profiles.get(pod.spec.scheduler_name)
        if profile is None:
            self.state.strangers[pod.metadata.uid] = None
            return
        entry = self.state.add_pending(pod)
        if pod.status.nominated_node_name:
            self.state.nominate(entry, pod.status.nominated_node_name)
        self._enqueue(QueuedPod(entry, profile, self.now_ns))

    def _enqueue(self, queued: QueuedPod) -> None:
        if self._trees.takes(queued.pod):
            self._trees.add(queued, queued.profile, self.now_ns)
        else:
            self.queue.add(queued)

    def _pod_on_node(self, entry: PodEntry | None, pod: Pod) -> None:
        if entry is None:
            self._tidy(pod)
            self.state.add_placed(pod)
            self._trees.counted_anew(pod)
            if self.queue.is_waiting:
                self.came(pod)
            return
        old, was_on = entry.pod, entry.row
        self._tidy(pod)
        self.state.confirm(entry, pod)
        self._pre_binding.drop(entry.uid)
        self.queue.remove(entry.uid)
        self.state.nominate(entry, "")
        self._settling.drop(entry.uid)
        if old.group_name != pod.group_name:
            self._trees.counted_anew(old)
            self._trees.counted_anew(pod)
        if was_on >= 0 and was_on != entry.row:
            self.freed(old)  # it was assumed elsewhere
            if self.queue.is_waiting:
                self.came(pod)
        elif was_on >= 0 and self.queue.is_waiting:
            change = Change.NONE
            if is_scaled_down(old, pod):
                change |= Change.PLACED_POD_SCALED_DOWN
            if (old.metadata.labels or {}) != (pod.metadata.labels or {}):
                change |= Change.PLACED_POD_LABELS
            if change:
                self.queue.wake(Happened(change, old_pod=old, pod=pod), self.now_ns)
        if was_on < 0 and self.queue.is_waiting:
            self.came(pod)

    def _tidy(self, pod: Pod) -> None:
        """It has its node: what is not needed any more."""
        profile = self.profiles.get(pod.spec.scheduler_name)
        for plugin in profile.post_binders if profile is not None else ():
            for write in plugin.post_bind(pod, self.state):
                self._send(msgspec.structs.replace(write, id=self._id()))

    def came(self, pod: Pod) -> None:
        """A pod holds room that did not before: others may wait for its company."""
        self.queue.wake(Happened(Change.PLACED_POD_ADDED, pod=pod), self.now_ns)

    def _pod_waiting(self, entry: PodEntry, pod: Pod) -> None:
        old = entry.pod
        moves = old.group_name != pod.group_name and not entry.assumed
        if moves or old.spec.scheduler_name != pod.spec.scheduler_name:
            self._pod_gone(entry.uid)
            self._new_pod(pod)
            return
        queued = self.queue.get(entry.uid)
        self.state.update_pending(entry, pod)
        self._pre_binding.pod_changed(entry.uid)
        if entry.assumed and pod.metadata.deletion_timestamp is not None:
            # Its room is free; should the bind win all the same, the watch will say so.
            self.state.forget(entry)
            self._pre_binding.drop(entry.uid)
            self.queue.remove(entry.uid)
            self.freed(old)
            self._left_group(entry)
            return
        promised, was = pod.status.nominated_node_name, old.status.nominated_node_name
        if promised != was and entry.row < 0:
            self.state.nominate(entry, promised)
        if queued is not None:
            if pod.condition(POD_SCHEDULED) != old.condition(POD_SCHEDULED):
                queued.condition = None  # from here on, the object says what was told
            happened = Happened(own_change(old, pod), old_pod=old, pod=pod)
            self.queue.update(queued.tree or queued, happened, self.now_ns)
            self._trees.pod_changed(queued)
        if was and promised != was:
            self.freed(old, priority_max=old.priority)

    def _pod_deleted(self, uid: str) -> None:
        """The pod is no more, and is remembered as gone."""
        self._pod_gone(uid)
        self._gone[uid] = None
        if len(self._gone) > self.limits.gone_pods_max:
            del self._gone[next(iter(self._gone))]

    def _pod_gone(self, uid: str) -> None:
        self.state.strangers.pop(uid, None)
        entry = self.state.pods.get(uid)
        if entry is None:
            return
        held_room, promised = entry.row >= 0, entry.nominated_to
        self._pre_binding.drop(uid)
        self._settling.drop(uid)
        self.state.remove_pod(entry)
        self.queue.remove(uid)
        self._left_group(entry)
        if held_room:
            self.freed(entry.pod)
        elif promised:
            self.freed(entry.pod, priority_max=entry.pod.priority)

    def _left_group(self, entry: PodEntry) -> None:
        """A pod is gone: those of its group that were to be bound with it are not."""
        if not self._trees.takes(entry.pod):
            return
        self._trees.counted_anew(entry.pod)
        for other in self.together.dissolve(entry.uid):
            self._let_go(other, f"pod {entry.pod.key} of its group is gone")

    def freed(self, pod: Pod, priority_max: int | None = None) -> None:
        """Room was given back, or (with a bound) a promise that held off pods of that priority."""
        if self.queue.is_waiting:
            happened = Happened(Change.PLACED_POD_DELETED, old_pod=pod, priority_max=priority_max)
            self.queue.wake(happened, self.now_ns)

    # Cycles

    def _run_cycles(self) -> None:
        self._trees.settle(self.now_ns)
        tallies, visits = self.state.tallies, 0  # what terms of pods have counted
        for _ in range(self.limits.cycles_per_step_max):
            if self.state.devices.given_back:
                self._stores.given_back(self.now_ns)
            is_shut = self._is_held or self.extended.is_busy
            queued = None if is_shut else self.queue.pop(self.now_ns)
            if queued is None:
                return
            self.stopwatch.start()
            if isinstance(queued, QueuedPod):
                self._attempt(queued)
            elif isinstance(queued, QueuedTree):
                self.tree_outcomes.attempt(queued)
            visits, tallies.visits = visits + tallies.visits, 0
            if visits > self.limits.visits_per_step_max:
                break

    def _attempt(self, queued: QueuedPod) -> None:
        """Try to place a pod."""
        if queued.entry.pod.metadata.deletion_timestamp is not None:
            self._skip_deleted(queued)
            return
        if queued.uid in self._settling:
            self._settling.missed(queued.uid)
            self.queue.wait(queued, queued.refused_by, self.now_ns, None)
            return
        try:
            if self.extended.asks(queued):
                return
            row, leaving = self.giving_way.choose(queued.profile, queued.entry)
            if row >= 0:
                self._outcomes.assume(queued, row, leaving)
            else:
                self._outcomes.refuse(queued)
        except FAULTS as error:  # this pod fails, the loop goes on
            self._outcomes.fail(queued, str(error))

    def _gate_failed(self, queued: QueuedPod, message: str) -> None:
        self._tell.report(queued, "SchedulerError", message, nominate=None)

    def _settled(self, uid: str) -> None:
        queued = self.queue.get(uid)
        if queued is not None:
            self.queue.nudge(queued.tree or queued, self.now_ns)

    def _version(self, view: type, namespace: str, name: str) -> str:
        """In which an object is known that pods settle by."""
        key = f"{namespace}/{name}"
        if view is Pod:
            entry = self.state.pods.get(self.state.uid_by_key.get(key, ""))
            return entry.pod.metadata.resource_version if entry is not None else ""
        claim = view is ResourceClaim
        found = self.state.devices.seen_claim(key) if claim else self.state.negotiations.of(key)
        return found.metadata.resource_version if found is not None else ""

    def _ready(self, queued: QueuedPod, node_name: str) -> None:
        self.together.ready(queued, node_name)

    def _bind_now(self, queued: QueuedPod, node_name: str) -> None:
        self._binds.bind(queued, node_name, self.extended)

    def _preempted(self, victim: PodEntry, note: str) -> None:
        self._tell.event(victim.pod, "Normal", "Preempted", "Preempting", note)

    def _preempted_all(self, queued: Queued, failed: bool) -> None:
        queued.is_preempting = False
        if failed:  # who does not leave is not waited for
            leaving = [uid for uid in queued.victims if self._leaves(uid)]
            self.queue.await_victims(queued, leaving)
        self.queue.ungate(queued, failed, self.now_ns)

    def _leaves(self, uid: str) -> bool:
        entry = self.state.pods.get(uid)
        is_deleted = entry is not None and entry.pod.metadata.deletion_timestamp is not None
        return entry is not None and (entry.is_leaving or is_deleted)

    def _skip_deleted(self, queued: QueuedPod) -> None:
        pod = queued.entry.pod
        self.queue.remove(queued.entry.uid)
        note = f"skip schedule deleting pod: {pod.key}"
        self._tell.event(pod, "Warning", "FailedScheduling", "Scheduling", note)

    def _send(self, write: Write) -> None:
        self._writes.append(write)

    def _id(self) -> int:
        id = self._next_id
        self._next_id = id + 1
        return id


HANDLERS: Final[Mapping[type, Callable[..., None]]] = {
    Observed: Engine._on_observed,
    Listed: Engine._on_listed,
    Tick: Engine._on_tick,
    Hold: Engine._on_hold,
    ExtenderAnswered: Engine._on_extender_answered,
    AgentAsked: Engine._on_agent_asked,
    WriteOk: Engine._on_write_ok,
    WriteFailed: Engine._on_write_failed,
}
