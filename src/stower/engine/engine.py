"""The engine: an event and the time go in, writes come out.

Same events, seed, times and configuration give the same writes, byte for byte. A step never blocks,
logs or reads a clock. Every write is answered later by WriteOk, WriteFailed, ExtenderAnswered or
Solved; `next_wake_ns` says when to send a Tick if nothing happens before.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from stower.engine.attempt_costs import COUNTED, AttemptCosts
from stower.engine.binding.binding_cycle import BindingCycle
from stower.engine.binding.pending_writes import PendingWrites
from stower.engine.companions import CompanionOwner, Companions
from stower.engine.context import Context
from stower.engine.cycle.failure_handler import FailureHandler
from stower.engine.cycle.pod_attempts import PodAttempts
from stower.engine.cycle.row_check import RowCheck
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.due_work import DueWork
from stower.engine.extenders.extender_cycle import ExtenderCycle
from stower.engine.groups.tree_attempts import TreeAttempts
from stower.engine.guard_points import GuardPoint
from stower.engine.limits import Limits
from stower.engine.node_events import NodeEvents
from stower.engine.object_events import ObjectEvents
from stower.engine.offenders import Offenders
from stower.engine.pod_events import PodEvents
from stower.engine.preemption.displacement import TrialPlacement
from stower.engine.preemption.pod_eviction import PodEviction
from stower.engine.queue.entities import QueuedEntity, QueuedPod, QueuedTree
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.engine.recovery import Recovery, namespace_of
from stower.engine.status_reporter import SCHEDULER_ERROR
from stower.framework.companion import Metric
from stower.framework.decisions import Decision
from stower.framework.events import (
    AgentAsked,
    Event,
    ExtenderAnswered,
    Hold,
    Listed,
    Observed,
    Solved,
    Tick,
    WatchType,
    WriteFailed,
    WriteOk,
)
from stower.framework.extenders import Extender
from stower.framework.profile import Profile
from stower.framework.retries import UNKNOWN
from stower.framework.stopwatch import DISABLED_STOPWATCH, Stopwatch
from stower.framework.writes import Write
from stower.groups.searches import SPENT_MAX
from stower.model.errors import InvariantError
from stower.model.kinds import ApiObject, Node, Pod
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
        self._seed = seed
        self.state = ClusterState(is_counting_claims)
        context = self._context = Context(self.state, profiles, self.limits, stopwatch)
        self.outbox = context.outbox
        self.reporter = context.reporter
        self.errors = context.errors
        offenders = Offenders(self.limits)
        self._recovery = Recovery(self, offenders)
        self._costs = AttemptCosts()
        self.cycle = SchedulingCycle(self.state, seed)
        check_row = RowCheck(self.state, self.cycle).find_refusing
        queue = self.queue = SchedulingQueue(
            self.limits, self._on_gate_error, self._recovery.on_hint_error, check_row
        )
        failures = FailureHandler(context, queue)
        self.binding = BindingCycle(context, queue, failures)
        self._pending = PendingWrites(context, queue)
        self._eviction = PodEviction(context, queue, self.binding)
        self.attempts = PodAttempts(
            context, queue, self.cycle, failures, self.binding, self._eviction, self._pending
        )
        self._pods = PodEvents(context, queue, self.binding, self._pending)
        self._nodes = NodeEvents(context, queue)
        self._objects = ObjectEvents(context, queue, self.binding, self._pending)
        self.tree_attempts: TreeAttempts | None = None
        if groups:
            self._attach_groups()
        self.extenders: ExtenderCycle | None = None
        if extenders:
            self._attach_extenders(extenders)
        self.trial_placement = TrialPlacement(self.profiles, self.cycle)
        self._companions = Companions(context, queue, self.trial_placement, seed, offenders)
        self._has_companions = self._companions.count > 0
        self._is_held = False
        self._has_tried = False  # whether the step has tried to place something

    def _attach_groups(self) -> None:
        tree_attempts = self.tree_attempts = TreeAttempts(
            self._context, self.queue, self.cycle, self.attempts, self.binding, self._eviction,
            self._pending,
        )  # fmt: skip
        self._pods.groups = self._nodes.groups = tree_attempts.trees
        self._objects.groups = tree_attempts
        tree_attempts.trees.update_failed = self._recovery.on_tree_error
        tree_attempts.trees.rebuild = self._recovery.on_damage
        tree_attempts.solver_failed(self._recovery.on_solver_error)

    def _attach_extenders(self, extenders: tuple[Extender, ...]) -> None:
        cycle = ExtenderCycle(self._context, extenders, self.queue, self.cycle, self.attempts)
        self.extenders = self.attempts.extenders = self.binding.binders = cycle

    # The step

    def step(self, event: Event, now_ns: int) -> list[Write]:
        """Applies one event, runs the cycles that it allows, returns the writes in sending order.

        `now_ns` may not go back. What is raised while one entity is dealt with concerns that
        entity alone (`errors`, engine/guard_points.py): all others go on in the same step. Raises
        only for what no guard contains: the engine is of no use then.
        """
        if now_ns < self.state.now_ns:
            raise InvariantError(f"clock went back: {now_ns=} < {self.state.now_ns=}")
        writes = self.outbox.writes = []
        recovery, binding = self._recovery, self.binding
        recovery.rebuild_count = 0
        try:
            self.state.begin_step(now_ns)
            if self.state.gone_shapes:
                self._forget_shapes()
        except Exception as error:
            recovery.on_error(GuardPoint.STEP, "step", error)
        HANDLERS[type(event)](self, event)
        if recovery.left_out:
            recovery.run_due()
        if recovery.is_suspect or self.errors.is_breached:
            recovery.check_suspect()
        if (
            binding.retries
            or binding.assumed_deadlines
            or binding.pre_bind.waiting
            or binding.overcommitted.open
        ):
            self._do_all(binding.due_work)
        if self._pending.pods:
            self._do_all(self._pending.due_work)
        if self._has_companions:
            self._run_companions()
        self._has_tried = False
        while self._run_cycles():
            if self._is_rebuilt_enough:
                break
        if self._has_companions and (self._has_tried or recovery.rebuild_count):
            self._run_companions()  # for pods that have been placed
        if self.errors.is_breached and not self._is_rebuilt_enough:
            recovery.check_suspect()
        return writes

    def _forget_shapes(self) -> None:
        serials = self.state.gone_shapes
        self.cycle.forget_shapes(serials)
        for profile in self.profiles.values():
            profile.forget_shapes(serials)
        serials.clear()

    def _do_all(self, due_work: Callable[[], Iterator[DueWork]]) -> None:
        """Does what is due, for one pod after another."""
        try:
            for work in due_work():
                try:
                    work.do()
                except Exception as error:
                    self._recovery.on_timer_error(work, error)
                    if self._is_rebuilt_enough:
                        return  # the rest stays due
        except Exception as error:
            self._recovery.on_error(GuardPoint.TIMERS, "timers", error)

    def _run_companions(self) -> None:
        if self._companions.is_reset_due:
            self._recovery.rebuild()
        self._companions.run(self._is_held)
        if self._companions.is_suspect:
            self._companions.is_suspect = False
            self._recovery.check_suspect()
        if self._companions.has_failed and not self._is_rebuilt_enough:
            self._recovery.rebuild()

    @property
    def _is_rebuilt_enough(self) -> bool:
        return self._recovery.rebuild_count >= self.limits.rebuilds_per_step_max

    def _run_cycles(self) -> bool:
        """Tries entities until none is due, or a limit of the step is reached. Returns True where
        an error ended that, and the others are to be tried."""
        recovery, now_ns = self._recovery, self.state.now_ns
        if recovery.paused_until_ns > now_ns:
            return False
        try:
            if self.tree_attempts is not None and self.tree_attempts.trees.has_changes:
                if self.tree_attempts.trees.update(now_ns):
                    return True
        except Exception as error:
            recovery.on_error(GuardPoint.QUEUE, "pod groups", error)
            return False
        context, state, queue, outbox = self._context, self.state, self.queue, self.outbox
        tallies, visits = state.tallies, 0  # pods counted for new selectors
        if self.tree_attempts is not None:
            self.tree_attempts.spent = 0
        terms = state.carried_terms
        entity: QueuedEntity | None = None
        for _ in range(self.limits.cycles_per_step_max):
            try:
                if state.devices.released_claims:
                    self._objects.wake_for_freed_devices()
                # While an extender call is pending, no other pod is tried.
                if self._is_held or (self.extenders is not None and self.extenders.is_busy):
                    return False
                entity = queue.pop(now_ns)
                if entity is not None and recovery.costs.due_ns:
                    due_ns = recovery.costs.held_until_ns(namespace_of(entity), now_ns)
                    if due_ns:
                        recovery.hold_back(entity, due_ns)
                        continue
                if entity is not None and self._costs.due_ns:
                    due_ns = self._costs.held_until_ns(namespace_of(entity), now_ns)
                    if due_ns:
                        queue.hold_back(entity, due_ns)
                        continue
            except Exception as error:
                self._recovery.on_error(GuardPoint.QUEUE, "queue", error)
                return False
            if entity is None:
                return False
            self._has_tried = True
            if self.stopwatch.is_running:
                self.stopwatch.start()
            context.is_applying = False
            first_id = outbox.free_id
            terms.visits = 0
            try:
                if isinstance(entity, QueuedPod):
                    self.attempts.run(entity)
                elif isinstance(entity, QueuedTree) and self.tree_attempts is not None:
                    self.tree_attempts.run(entity)
            except Exception as error:
                if self._end_attempt(entity, error, first_id):
                    return True
            if terms.visits > COUNTED:
                self._costs.charge(namespace_of(entity), terms.visits, now_ns)
            visits, tallies.visits = visits + tallies.visits, 0
            if visits > self.limits.visits_per_step_max:
                break
            if self.tree_attempts is not None and self.tree_attempts.spent > SPENT_MAX:
                break  # the other trees are tried in the next steps
        return False

    def _end_attempt(self, entity: QueuedEntity, error: Exception, first_id: int) -> bool:
        """Ends an attempt that has raised; the pod or tree is tried again after a delay. Returns
        whether the state was built again."""
        is_tree = isinstance(entity, QueuedTree)
        point = GuardPoint.TREE_ATTEMPT if is_tree else GuardPoint.POD_ATTEMPT
        if self._recovery.on_attempt_error(point, entity, error, first_id):
            return True
        try:
            if isinstance(entity, QueuedPod):
                message = self.errors.record(point, entity.pod.key, error)
                self.attempts.fail(entity, message)
            elif isinstance(entity, QueuedTree) and self.tree_attempts is not None:
                message = self.errors.record(point, entity.root.key, error)
                self.tree_attempts.fail(entity, message)
        except Exception as second:
            self._context.is_applying = True
            return self._recovery.on_attempt_error(point, entity, second, first_id)
        return False

    @property
    def now_ns(self) -> int:
        """The time of the last step."""
        return self.state.now_ns

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which to send a Tick if no event arrives before; None if only an event can
        help."""
        is_shut = self._is_held or (self.extenders is not None and self.extenders.is_busy)
        is_paused, trees = self._recovery.is_paused, self.tree_attempts
        wakes = [
            None if is_shut or is_paused else self.queue.next_wake_ns,
            self._pending.next_wake_ns,
            None if is_paused or trees is None else trees.trees.next_wake_ns,
        ]
        due = [wake_ns for wake_ns in wakes if wake_ns is not None]
        due += self.binding.due_times() + self._companions.next_wakes_ns
        due += self._recovery.next_wakes_ns
        return max(min(due), self.now_ns) if due else None

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way: the objects show everything that was decided."""
        if self.binding.is_open or self._eviction.is_open or self._pending.is_open:
            return False
        if self._recovery.next_wakes_ns:
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
        return self.reporter.drain()

    def notes(self) -> list[tuple[str, str, str]]:
        """Returns log lines since the last call, of internal errors and companions: level, text,
        object."""
        return [*self.errors.take_log_lines(), *self._companions.notes()]

    def companion_metrics(self) -> list[Metric]:
        """Returns the metrics of the companions of plugins."""
        return self._companions.metrics()

    @property
    def left_out_count(self) -> int:
        """The number of objects that the engine could not apply, and ignores for now."""
        return len(self._recovery.left_out)

    # Events

    def _on_object(self, event: Observed) -> None:
        obj = event.object
        is_deleted = event.type is WatchType.DELETED
        recovery = self._recovery
        if recovery.left_out and recovery.is_left_out(obj, is_deleted):
            return
        if recovery.costs.due_ns and event.type is WatchType.ADDED and recovery.defers_new(obj):
            return
        try:
            if isinstance(obj, Pod) and not is_deleted:
                if obj.metadata.uid in self._pods.deleted_uids:
                    return  # the event is late
                self._pods.handle_pod(obj)
            elif isinstance(obj, Pod | Node):
                self.store(obj, is_deleted)
            else:
                self._objects.handle_object(obj, is_deleted)
            if self._has_companions:
                self._companions.handle_object(obj, is_deleted)
        except Exception as error:
            recovery.on_object_error(obj, is_deleted, error)

    def apply(self, obj: ApiObject) -> None:
        """Applies an object that has waited, and hands it to the companions."""
        self.store(obj, False)
        self._companions.handle_object(obj, False)

    def store(self, obj: ApiObject, is_deleted: bool) -> None:
        """Applies an object that was added, modified or deleted to the state and the queue."""
        if isinstance(obj, Pod):
            if is_deleted:
                self._pods.handle_deletion(obj.metadata.uid)
            else:
                self._pods.handle_pod(obj)
        elif isinstance(obj, Node):
            if is_deleted:
                self._nodes.handle_deletion(obj.metadata.name)
            else:
                self._nodes.handle_node(obj)
        else:
            self._objects.handle_object(obj, is_deleted)

    def _on_list(self, event: Listed) -> None:
        objects = self._recovery.filter_list(event.objects)
        try:
            self._apply_list(objects)
        except Exception as error:
            self._recovery.on_list_error(objects, error)

    def _apply_list(self, objects: tuple[ApiObject, ...]) -> None:
        pods = [obj for obj in objects if type(obj) is Pod]
        nodes = [obj for obj in objects if type(obj) is Node]
        others = [obj for obj in objects if type(obj) is not Pod and type(obj) is not Node]
        self._pods.keep_only({pod.metadata.uid: None for pod in pods})
        self._nodes.keep_only({node.metadata.name for node in nodes})
        # Whether claims hold shows only beside all others.
        with self.binding.pre_bind.suspended():
            self._objects.handle_list(others)
            for node in nodes:
                self._nodes.handle_node(node)
            for pod in pods:
                self._pods.handle_pod(pod)
        self._companions.handle_list(objects)
        # A list that shows an assumed pod without its node may be older than its Bind.
        unfinished = self.binding.unfinished_uids()
        for entry in self.state.pods.values():
            if entry.is_assumed and entry.uid not in unfinished:
                self.binding.start_expiration(entry)

    def _on_hold(self, event: Hold) -> None:
        self._is_held = event.is_on

    def _on_tick(self, event: Tick) -> None:
        """Does nothing: every step handles what is due."""

    def _on_answer(self, event: WriteOk | WriteFailed | ExtenderAnswered | Solved) -> None:
        try:
            self.outbox.dispatch(event)
        except Exception as error:
            is_refused = isinstance(event, WriteFailed) and event.code not in (0, UNKNOWN)
            self._recovery.on_answer_error(self.outbox.answered, is_refused, error)

    def _on_agent_request(self, event: AgentAsked) -> None:
        self._companions.ask(event)

    def _on_gate_error(self, queued: QueuedPod, message: str) -> None:
        self.reporter.report(queued, SCHEDULER_ERROR, message, nominate=None)

    def on_explanation_error(self, key: str, error: Exception) -> str:
        """Contains an error of an explanation, by the key of its pod. Returns a message."""
        return self._recovery.on_explanation_error(key, error)

    # After an internal error (engine/recovery.py)

    @property
    def is_applying(self) -> bool:
        """Whether the current attempt has begun to apply its result."""
        return self._context.is_applying

    @property
    def deleted_uids(self) -> dict[str, None]:
        """Uids of deleted pods, oldest first."""
        return self._pods.deleted_uids

    @property
    def other_objects(self) -> Iterable[ApiObject]:
        """The objects that the state does not hold."""
        return [*self._objects.others.values()]

    def preemptors(self) -> list[QueuedEntity]:
        """Returns the entities whose victims are being evicted."""
        found = self._eviction.recount()
        for queued in self.queue.pods():
            for entity in (queued, queued.tree):
                if entity is not None:
                    entity.is_preempting = entity in found
        return found

    def reset(self) -> None:
        """Forgets all objects, and keeps what is under way; `store`, `list_companions` and
        `end_reset` follow."""
        self._pods.former = {**self._pods.former, **{q.uid: q for q in self.queue.pods()}}
        self.binding.pre_bind.is_suspended = True
        self.state.reset()
        self.queue.reset()
        keeps_details = self.cycle.keeps_details
        SchedulingCycle.__init__(self.cycle, self.state, self._seed)
        self.cycle.keeps_details = keeps_details
        self._objects.others.clear()
        if self.tree_attempts is not None:
            self.tree_attempts.trees.reset()
        if self.extenders is not None:
            self.extenders.reset()
        self.outbox.disown(CompanionOwner)
        self._companions.reset()

    def list_companions(self, objects: list[ApiObject]) -> bool:
        """Hands all objects to the companions; returns False where one has failed."""
        self._companions.handle_list(objects)
        return not self._companions.has_failed

    def give_up_companions(self) -> None:
        """Leaves companions that still fail as they are, until they have waited."""
        self._companions.give_up()

    def drop_unassumed(self) -> None:
        """Gives up what belongs to pods that are not assumed, or do not exist, any more."""
        self.binding.drop_unassumed()
        for uid in [*self._pending.pods]:
            if uid not in self.state.pods:
                self._pending.drop(uid)

    def end_reset(self) -> None:
        """Checks what waits for objects, now that all are applied."""
        self._pods.former = {}
        self.state.former_entries = {}
        self.binding.pre_bind.is_suspended = False
        self.binding.overcommitted.check_all()
        if self.tree_attempts is not None:
            self.tree_attempts.trees.end_reset()
            self.tree_attempts.trees.update(self.state.now_ns)
        self.binding.pre_bind.check_all()


HANDLERS: Final[Mapping[type, Callable[..., None]]] = {
    Observed: Engine._on_object,
    Listed: Engine._on_list,
    Tick: Engine._on_tick,
    Hold: Engine._on_hold,
    ExtenderAnswered: Engine._on_answer,
    Solved: Engine._on_answer,
    AgentAsked: Engine._on_agent_request,
    WriteOk: Engine._on_answer,
    WriteFailed: Engine._on_answer,
}
