"""The engine: an event and the time go in, writes come out.

Same events, seed, times and configuration give the same writes, byte for byte. A step never blocks,
logs or reads a clock. Every write is answered later by WriteOk, WriteFailed or ExtenderAnswered;
`next_wake_ns` says when to send a Tick if nothing happens before.
"""

from collections.abc import Callable, Mapping
from typing import Final

from stower.engine.binding.binding_cycle import BindingCycle
from stower.engine.binding.pending_writes import PendingWrites
from stower.engine.companions import Companions
from stower.engine.context import Context
from stower.engine.cycle.failure_handler import FailureHandler
from stower.engine.cycle.pod_attempts import PodAttempts
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.extenders.extender_cycle import ExtenderCycle
from stower.engine.groups.tree_attempts import TreeAttempts
from stower.engine.internal_errors import is_raised_in_state
from stower.engine.limits import Limits
from stower.engine.node_events import NodeEvents
from stower.engine.object_events import ObjectEvents
from stower.engine.pod_events import PodEvents
from stower.engine.preemption.displacement import TrialPlacement
from stower.engine.preemption.pod_eviction import PodEviction
from stower.engine.queue.entities import QueuedEntity, QueuedPod, QueuedTree
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.engine.status_reporter import SCHEDULER_ERROR
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
from stower.framework.stopwatch import DISABLED_STOPWATCH, Stopwatch
from stower.framework.writes import Write
from stower.model.errors import InvariantError
from stower.model.kinds import Node, Pod
from stower.state.cluster import ClusterState


class Engine:
    """A scheduler over one ClusterState, for all its profiles."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        seed: int = 0,
        limits: Limits | None = None,
        extenders: tuple[Extender, ...] = (),
        is_counting_claims: bool = False,
        groups: bool = True,
        stopwatch: Stopwatch = DISABLED_STOPWATCH,
    ) -> None:
        """`profiles` by scheduler name; pods of other schedulers are only counted.
        `is_counting_claims`: see ClusterState; `groups`: whether pods of a group are placed
        together."""
        self.stopwatch = stopwatch
        self.profiles = dict(profiles)
        self.limits = limits or Limits()
        self.state = ClusterState(is_counting_claims)
        context = self._context = Context(self.state, profiles, self.limits, stopwatch)
        self._outbox = context.outbox
        self._reporter = context.reporter
        self.errors = context.errors
        queue = self.queue = SchedulingQueue(self.limits, self._on_gate_error)
        self.cycle = SchedulingCycle(self.state, seed)
        failures = FailureHandler(context, queue)
        self.binding = BindingCycle(context, queue, failures)
        self._pending = PendingWrites(context, queue)
        self._eviction = PodEviction(context, queue, self.binding)
        self.attempts = PodAttempts(
            context, queue, self.cycle, failures, self.binding, self._eviction, self._pending
        )
        self._pods = PodEvents(context, queue, self.binding, self._pending)
        self._nodes = NodeEvents(context, queue)
        self._objects = ObjectEvents(context, queue, self.binding.pre_bind, self._pending)
        self.tree_attempts: TreeAttempts | None = None
        if groups:
            self._attach_groups()
        self.extenders: ExtenderCycle | None = None
        if extenders:
            self._attach_extenders(extenders)
        placement = TrialPlacement(self.profiles, self.cycle)
        self._companions = Companions(context, queue, placement, seed)
        self._has_companions = self._companions.count > 0
        self._is_held = False

    def _attach_groups(self) -> None:
        tree_attempts = self.tree_attempts = TreeAttempts(
            self._context, self.queue, self.cycle, self.attempts, self.binding, self._eviction,
            self._pending,
        )  # fmt: skip
        self._pods.groups = self._nodes.groups = tree_attempts.trees
        self._objects.groups = tree_attempts

    def _attach_extenders(self, extenders: tuple[Extender, ...]) -> None:
        cycle = ExtenderCycle(self._context, extenders, self.queue, self.cycle, self.attempts)
        self.extenders = self.attempts.extenders = self.binding.binders = cycle

    # The step

    def step(self, event: Event, now_ns: int) -> list[Write]:
        """Applies one event, runs the cycles that it allows, returns the writes in sending order.

        `now_ns` may not go back. An error of ours while a pod or a tree is tried, before anything
        was changed, ends that attempt (`errors`). Raises for any other: the engine is of no use
        then.
        """
        state, binding = self.state, self.binding
        if now_ns < state.now_ns:
            raise InvariantError(f"clock went back: {now_ns=} < {state.now_ns=}")
        state.begin_step(now_ns)
        writes = self._outbox.writes = []
        HANDLERS[type(event)](self, event)
        if binding.retries or binding.assumed_deadlines or binding.pre_bind.waiting:
            binding.run_due()
        if self._pending.pods:
            self._pending.expire(now_ns)
        if self._has_companions:
            self._companions.run(self._is_held)
        self._run_cycles()
        if self._has_companions:
            self._companions.run(self._is_held)  # for pods that have been placed
        return writes

    def _run_cycles(self) -> None:
        context, state, queue, now_ns = self._context, self.state, self.queue, self.state.now_ns
        if self.tree_attempts is not None and self.tree_attempts.trees.has_changes:
            self.tree_attempts.trees.update(now_ns)
        tallies, visits = state.tallies, 0  # pods counted for new selectors
        for _ in range(self.limits.cycles_per_step_max):
            if state.devices.released_claims:
                self._objects.wake_for_freed_devices()
            # While an extender call is pending, no other pod is tried.
            if self._is_held or (self.extenders is not None and self.extenders.is_busy):
                return
            entity = queue.pop(now_ns)
            if entity is None:
                return
            if self.stopwatch.is_running:
                self.stopwatch.start()
            context.is_applying = False
            try:
                if isinstance(entity, QueuedPod):
                    self.attempts.run(entity)
                elif isinstance(entity, QueuedTree) and self.tree_attempts is not None:
                    self.tree_attempts.run(entity)
            except Exception as error:
                if context.is_applying or is_raised_in_state(error):
                    raise
                self._end_attempt(entity, error)
            visits, tallies.visits = visits + tallies.visits, 0
            if visits > self.limits.visits_per_step_max:
                break

    def _end_attempt(self, entity: QueuedEntity, error: Exception) -> None:
        """Ends an attempt that has raised; the pod or tree is tried again after a delay."""
        if isinstance(entity, QueuedPod):
            message = self.errors.record("scheduling attempt", entity.pod.key, error)
            self.attempts.fail(entity, message)
        elif isinstance(entity, QueuedTree) and self.tree_attempts is not None:
            message = self.errors.record("pod group attempt", entity.root.key, error)
            self.tree_attempts.fail(entity, message)

    @property
    def now_ns(self) -> int:
        """The time of the last step."""
        return self.state.now_ns

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which to send a Tick if no event arrives before; None if only an event can
        help."""
        is_shut = self._is_held or (self.extenders is not None and self.extenders.is_busy)
        wakes = [
            None if is_shut else self.queue.next_wake_ns,
            self._pending.next_wake_ns,
            None if self.tree_attempts is None else self.tree_attempts.trees.next_wake_ns,
        ]
        due = [wake_ns for wake_ns in wakes if wake_ns is not None]
        due += self.binding.due_times() + self._companions.next_wakes_ns
        return max(min(due), self.now_ns) if due else None

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way: the objects show everything that was decided."""
        if self.binding.is_open or self._eviction.is_open or self._pending.is_open:
            return False
        if self.extenders is not None and self.extenders.is_busy:
            return False
        if self.tree_attempts is not None and self.tree_attempts.status.is_open:
            return False
        if self.state.devices.has_assumptions or not self._companions.is_settled:
            return False
        pods, pre_bind = self.state.pods.values(), self.binding.pre_bind
        return not any(e.is_assumed and e.uid not in pre_bind for e in pods)

    def drain(self) -> list[Decision]:
        """Returns the decisions since the last call, oldest first."""
        return self._reporter.drain()

    def notes(self) -> list[tuple[str, str, str]]:
        """Returns log lines since the last call, of internal errors and companions: level, text,
        object."""
        return [*self.errors.take_log_lines(), *self._companions.notes()]

    # Events

    def _on_object(self, event: Observed) -> None:
        obj = event.object
        is_deleted = event.type is WatchType.DELETED
        if isinstance(obj, Pod):
            if is_deleted:
                self._pods.handle_deletion(obj.metadata.uid)
            elif obj.metadata.uid in self._pods.deleted_uids:
                return  # the event is late
            else:
                self._pods.handle_pod(obj)
        elif isinstance(obj, Node):
            if is_deleted:
                self._nodes.handle_deletion(obj.metadata.name)
            else:
                self._nodes.handle_node(obj)
        else:
            self._objects.handle_object(obj, is_deleted)
        if self._has_companions:
            self._companions.handle_object(obj, is_deleted)

    def _on_list(self, event: Listed) -> None:
        uids = {o.metadata.uid: None for o in event.objects if isinstance(o, Pod)}
        names = {o.metadata.name for o in event.objects if isinstance(o, Node)}
        self._pods.keep_only(uids)
        self._nodes.keep_only(names)
        self._objects.handle_list(event.objects)
        for obj in event.objects:
            if isinstance(obj, Node):
                self._nodes.handle_node(obj)
        for obj in event.objects:
            if isinstance(obj, Pod):
                self._pods.handle_pod(obj)
        self._companions.handle_list(event.objects)
        # A list that shows an assumed pod without its node may be older than its Bind.
        unfinished = self.binding.unfinished_uids()
        for entry in self.state.pods.values():
            if entry.is_assumed and entry.uid not in unfinished:
                self.binding.start_expiration(entry)

    def _on_hold(self, event: Hold) -> None:
        self._is_held = event.is_on

    def _on_tick(self, event: Tick) -> None:
        """Does nothing: every step handles what is due."""

    def _on_answer(self, event: WriteOk | WriteFailed | ExtenderAnswered) -> None:
        self._outbox.dispatch(event)

    def _on_agent_request(self, event: AgentAsked) -> None:
        self._companions.ask(event)

    def _on_gate_error(self, queued: QueuedPod, message: str) -> None:
        self._reporter.report(queued, SCHEDULER_ERROR, message, nominate=None)


HANDLERS: Final[Mapping[type, Callable[..., None]]] = {
    Observed: Engine._on_object,
    Listed: Engine._on_list,
    Tick: Engine._on_tick,
    Hold: Engine._on_hold,
    ExtenderAnswered: Engine._on_answer,
    AgentAsked: Engine._on_agent_request,
    WriteOk: Engine._on_answer,
    WriteFailed: Engine._on_answer,
}
