"""Recovers from internal errors: builds the state again from the API objects, as a restart would.

What is under way goes on: unanswered writes, assumed pods, reservations and evictions are taken
over. Writes of the attempt that has failed are discarded, and their owners told that they failed.
Objects on which the engine fails are left out, and applied again after a delay. Must not know how
pods are scheduled.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from stower.engine.binding.binding_cycle import BindingCycle
from stower.engine.due_work import DueWork
from stower.engine.groups.tree_attempts import TreeAttempts
from stower.engine.guard_points import GuardPoint
from stower.engine.internal_errors import InternalErrors, is_raised_in_state
from stower.engine.limits import Limits
from stower.engine.offenders import Offenders
from stower.engine.outbox import Answer, Outbox
from stower.engine.queue.entities import Place, QueuedEntity, QueuedPod, QueuedTree
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.engine.rebuild_costs import RebuildCosts
from stower.engine.status_reporter import SCHEDULER_ERROR, StatusReporter
from stower.framework.decisions import Outcome
from stower.framework.writes import AgentAnswer, CallExtender, Write
from stower.groups.tree import Tree
from stower.model.errors import InvariantError
from stower.model.kinds import SELECTING, ApiObject, Node, Pod
from stower.model.resources import Claimed
from stower.state.cluster import ClusterState
from stower.state.comparison import differences, rebuilt, stored_objects, stores
from stower.state.groups import GroupKey
from stower.state.pod_entry import PodEntry

# Times that a state is built, each without the objects that failed before.
PASSES_MAX: Final = 5
HELD = "waits: other objects of the namespace have provoked internal errors of the scheduler"
DISCARDED = "internal error: the write was not sent"
# The HTTP status that owners of discarded writes are given: nothing was carried out.
NOT_SENT: Final = 500

# Places of entities that would be tried before their time.
TRIED: Final = (
    Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF, Place.IN_FLIGHT, Place.NOWHERE,
)  # fmt: skip

ObjectKey = tuple[type, str, str]  # kind, namespace, name


class Restartable(Protocol):
    """The engine, as far as its state is built again."""

    state: ClusterState
    queue: SchedulingQueue
    binding: BindingCycle
    limits: Limits
    errors: InternalErrors
    reporter: StatusReporter
    outbox: Outbox
    tree_attempts: TreeAttempts | None

    @property
    def is_applying(self) -> bool:
        """Whether the current attempt has begun to apply its result."""

    @property
    def deleted_uids(self) -> dict[str, None]:
        """Uids of deleted pods, oldest first."""

    @property
    def other_objects(self) -> Iterable[ApiObject]:
        """The objects that the state does not hold."""

    def store(self, obj: ApiObject, is_deleted: bool) -> None:
        """Applies an object to the state and the queue."""

    def apply(self, obj: ApiObject) -> None:
        """Applies an object, and hands it to the companions."""

    def preemptors(self) -> list[QueuedEntity]:
        """Returns the entities whose victims are being evicted."""

    def reset(self) -> None:
        """Forgets all objects, and keeps what is under way."""

    def list_companions(self, objects: list[ApiObject]) -> bool:
        """Hands all objects to the companions; returns False where one has failed."""

    def give_up_companions(self) -> None:
        """Leaves companions that still fail as they are, until they have waited."""

    def drop_unassumed(self) -> None:
        """Gives up what belongs to pods that are not assumed any more."""

    def end_reset(self) -> None:
        """Checks what waits for objects, now that all are applied."""


class _Assumed(NamedTuple):
    """An assumed pod as it was before the state was built again."""

    entry: PodEntry
    node_name: str
    claimed: Claimed
    is_open: bool  # its binding is not answered
    is_queued: bool


class Recovery:
    """Contains the errors of one engine. `offenders`: the entities that have to wait."""

    def __init__(self, engine: Restartable, offenders: Offenders) -> None:
        self._engine = engine
        self._errors = engine.errors
        self.offenders = offenders
        self.costs = RebuildCosts(engine.limits)
        # Objects that are not applied, by kind and name, in their newest version.
        self.left_out: dict[ObjectKey, ApiObject] = {}
        self.rebuild_count = 0  # in the current step
        self.is_suspect = False  # an error outside of a step may have damaged the state
        self._is_incomplete = False  # the last reset did not end
        self._is_rebuilding = False  # a reset is about to end
        self.paused_until_ns = 0  # until then no pod is tried

    # What the engine asks

    @property
    def next_wakes_ns(self) -> list[int]:
        """The times when something is due without any event."""
        costs, now_ns = self.costs, self._engine.state.now_ns
        found = [
            max(self.offenders.due_ns.get(key, 0), costs.held_until_ns(key[1], now_ns))
            for key in self.left_out
        ]
        return [*found, self.paused_until_ns] if self.is_paused else found

    @property
    def is_paused(self) -> bool:
        """Whether no pod is tried: an error could not be attributed to one entity."""
        return self.paused_until_ns > self._engine.state.now_ns

    def is_left_out(self, obj: ApiObject, is_deleted: bool) -> bool:
        """Returns whether an object of an event has to wait; remembers its newest version."""
        key = _object_key(obj)
        if key not in self.left_out:
            return False
        if is_deleted:
            del self.left_out[key]
            self.offenders.forget(key)
            return False
        self.left_out[key] = obj
        return not self._is_placed_meanwhile(key, obj)

    def _is_placed_meanwhile(self, key: ObjectKey, obj: ApiObject) -> bool:
        """Returns whether a pod that only its namespace's costs keep out has a node by now, whose
        room it takes: it is left out no longer."""
        is_placed = isinstance(obj, Pod) and bool(obj.spec.node_name)
        if not is_placed or key in self.offenders.due_ns:
            return False
        del self.left_out[key]
        return True

    def defers_new(self, obj: ApiObject) -> bool:
        """Returns whether a new object has to wait because of its namespace's costs. What has room
        or devices already does not wait. Costs a look at all objects."""
        namespace = obj.metadata.namespace
        engine = self._engine
        if not self.costs.held_until_ns(namespace, engine.state.now_ns):
            return False
        if isinstance(obj, Pod):
            is_new = not obj.spec.node_name and obj.metadata.uid not in engine.state.pods
        else:
            key = _object_key(obj)
            has_devices = getattr(getattr(obj, "status", None), "allocation", None) is not None
            is_new = not has_devices and all(_object_key(o) != key for o in self._known_objects())
        if is_new:
            self.left_out[_object_key(obj)] = obj
        return is_new

    def hold_back(self, entity: QueuedEntity, due_ns: int) -> None:
        """Keeps a pod or tree waiting until the costs of its namespace have passed."""
        self._engine.queue.hold_back(entity, due_ns)
        members = [entity] if isinstance(entity, QueuedPod) else []
        if isinstance(entity, QueuedTree):
            members = [*entity.members.values()]
        for member in members:
            if member.condition is None or member.condition.reason != SCHEDULER_ERROR:
                self._engine.reporter.report(member, SCHEDULER_ERROR, HELD, nominate=None)

    def _charge(self, namespace: str) -> None:
        state = self._engine.state
        self.costs.charge(namespace, len(state.pods) + state.node_count, state.now_ns)

    def run_due(self) -> None:
        """Applies the objects again that have waited long enough."""
        now_ns = self._engine.state.now_ns
        for key, obj in [*self.left_out.items()]:
            if self.offenders.waits(key, now_ns) or self.left_out.get(key) is not obj:
                continue
            if self.costs.due_ns and self.costs.held_until_ns(key[1], now_ns):
                continue
            if self.rebuild_count >= self._engine.limits.rebuilds_per_step_max:
                return
            del self.left_out[key]
            try:
                self._engine.apply(obj)
            except Exception as error:
                message = self._errors.record(GuardPoint.OBJECT, obj.metadata.key, error)
                self._leave_out(obj)
                self._charge(key[1])
                self.rebuild()
                self._report_object(obj, f"{message}; {_left_out_text(obj)}")

    # Errors

    def on_object_error(self, obj: ApiObject, is_deleted: bool, error: Exception) -> None:
        """Contains an error that was raised while an object was applied: it is applied once more
        as the state is built again, and waits if that fails too."""
        message = self._errors.record(GuardPoint.OBJECT, obj.metadata.key, error)
        self._charge(obj.metadata.namespace)
        objects = {_object_key(o): o for o in self._known_objects()}
        if is_deleted:
            objects.pop(_object_key(obj), None)
            if isinstance(obj, Pod):
                self._engine.deleted_uids[obj.metadata.uid] = None
        else:
            objects[_object_key(obj)] = obj
        self.rebuild(objects.values())
        self._report_object(obj, message)

    def on_list_error(self, objects: Iterable[ApiObject], error: Exception) -> None:
        """Contains an error that was raised while a list of all objects was applied: each of them
        is applied by itself as the state is built again."""
        self._errors.record(GuardPoint.LIST, "list", error)
        deleted_uids = self._engine.deleted_uids
        shown = {obj.metadata.uid for obj in objects if isinstance(obj, Pod)}
        for uid in self._engine.state.pods:
            if uid not in shown:
                deleted_uids[uid] = None
        for uid in shown:
            deleted_uids.pop(uid, None)
        self.rebuild(objects)

    def filter_list(self, objects: tuple[ApiObject, ...]) -> tuple[ApiObject, ...]:
        """Returns the objects of a list that need not wait; forgets those that are deleted."""
        if not self.left_out:
            return objects
        listed = {_object_key(obj): obj for obj in objects}
        for key in [*self.left_out]:
            if key in listed:
                self.left_out[key] = listed[key]
                self._is_placed_meanwhile(key, listed[key])
            else:
                del self.left_out[key]
                self.offenders.forget(key)
        return tuple(obj for obj in objects if _object_key(obj) not in self.left_out)

    def on_attempt_error(
        self, point: GuardPoint, entity: QueuedEntity, error: Exception, first_id: int
    ) -> bool:
        """Contains an error of an attempt. `first_id`: that of the first write of the attempt,
        whose writes are discarded if the state was changed. Returns whether the state was built
        again."""
        is_applying = self._engine.is_applying
        is_suspect = is_applying or is_raised_in_state(error)
        if not is_suspect and not isinstance(error, InvariantError):
            return False
        message = self._errors.record(point, entity.uid, error)
        key = _entity_key(entity)
        self.offenders.blame(key, self._engine.state.now_ns)
        self._charge(namespace_of(entity))
        if is_suspect or self._differs():
            self.rebuild(first_id=first_id)
        self._end_attempt(entity, message)
        return True

    def on_error(self, point: GuardPoint, about: str, error: Exception) -> None:
        """Contains an error that cannot be attributed to an entity: the state is built again, and
        no pod is tried for a while, longer each time."""
        self._errors.record(point, about, error)
        self.paused_until_ns = self.offenders.blame(point, self._engine.state.now_ns)
        self.rebuild()

    def on_answer_error(self, write: Write | None, is_refused: bool, error: Exception) -> None:
        """Contains an error that was raised while the answer to a write was handled.
        `is_refused`: the write was not carried out, for sure."""
        engine, now_ns = self._engine, self._engine.state.now_ns
        is_call = isinstance(write, CallExtender)
        point = GuardPoint.EXTENDER_ANSWER if is_call else GuardPoint.ANSWER
        about = ""
        if write is not None and not isinstance(write, AgentAnswer):
            about = f"{write.namespace}/{write.name}"
        message = self._errors.record(point, about, error)
        uid = engine.state.uid_by_key.get(about, "")
        entry = engine.state.pods.get(uid)
        if entry is not None and entry.is_assumed and not is_refused:
            engine.binding.start_expiration(entry)  # it may have its node: the room is kept
        key = uid or (point, about)
        is_told = self.offenders.waits(key, now_ns)
        self.offenders.blame(key, now_ns)
        self._charge(about.rpartition("/")[0])
        self.rebuild()
        if is_told:
            return  # the answer to the report may be what fails
        queued, entry = engine.queue.get(uid), engine.state.pods.get(uid)
        if queued is not None and entry is not None and entry.row < 0:
            self._end_attempt(queued.tree or queued, message)
        elif entry is not None:
            self._report_object(entry.pod, message)

    def on_hint_error(self, entity: QueuedEntity, error: Exception) -> None:
        """Reports a queueing hint that has raised an error; the event counts as one that helps."""
        message = self._errors.record(GuardPoint.HINT, entity.uid, error)
        key, now_ns = (GuardPoint.HINT, entity.uid), self._engine.state.now_ns
        if not self.offenders.waits(key, now_ns):  # else events would bring an Event each
            self.offenders.blame(key, now_ns)
            self._report_object(entity.pod, message)

    def on_timer_error(self, work: DueWork, error: Exception) -> None:
        """Contains an error that was raised for a pod for which something was due: it is repeated
        after a delay. A Bind of unknown outcome keeps the pod's room until then."""
        engine, now_ns, uid = self._engine, self._engine.state.now_ns, work.uid
        entry = engine.state.pods.get(uid)
        about = entry.key if entry is not None else uid
        message = self._errors.record(GuardPoint.TIMERS, about, error)
        is_told = self.offenders.waits(uid, now_ns)
        work.postpone(self.offenders.blame(uid, now_ns))
        self._charge(about.rpartition("/")[0])
        self.rebuild()
        entry = engine.state.pods.get(uid)
        if entry is not None and not is_told:
            self._report_object(entry.pod, message)

    def on_tree_error(self, root: GroupKey, error: Exception) -> int:
        """Reports a tree whose update has raised an error, on its pods. Returns when to repeat
        the update."""
        message = self._errors.record(GuardPoint.GROUPS, root.key, error)
        due_ns = self.offenders.blame(root, self._engine.state.now_ns)
        trees = self._engine.tree_attempts
        tree = trees.trees.get(root) if trees is not None else None
        for member in tree.members.values() if tree is not None else ():
            self._each(member, lambda m: self._engine.reporter.report(m, SCHEDULER_ERROR, message))
        return due_ns

    def on_damage(self, root: GroupKey) -> None:
        """Builds the state again after an update of a tree that was half done; with the next step,
        where that was a part of building it."""
        self._charge(root.key.partition("/")[0])
        if self._is_rebuilding:
            self._is_incomplete = self.is_suspect = True
        else:
            self.rebuild()

    def on_solver_error(self, tree: Tree, error: Exception) -> None:
        """Reports an error of the solver on the root of the tree that it was asked about."""
        obj = tree.groups[0].obj
        self._report_object(obj, self._errors.record(GuardPoint.SOLVER, obj.metadata.key, error))

    def on_explanation_error(self, key: str, error: Exception) -> str:
        """Contains an error of an explanation, whose trial is undone; the next step compares the
        state with its objects where that may have failed. Returns a message."""
        self.is_suspect = self.is_suspect or is_raised_in_state(error)
        return self._errors.record(GuardPoint.EXPLANATION, key, error)

    def check_suspect(self) -> None:
        """Builds the state again where an explanation has left it damaged, or where it was built
        incompletely and the pause is over."""
        if self._is_incomplete and self.is_paused:
            return
        is_incomplete, self._is_incomplete, self.is_suspect = self._is_incomplete, False, False
        if is_incomplete or self._differs():
            self.rebuild()

    # Reports

    def _end_attempt(self, entity: QueuedEntity, message: str) -> None:
        """Reports an error on a pod or on the pods of a tree, which wait."""
        engine, due_ns = self._engine, self.offenders.due_ns.get(_entity_key(entity), 0)
        members: list[QueuedPod] = []
        if isinstance(entity, QueuedTree):
            trees = engine.tree_attempts.trees if engine.tree_attempts is not None else None
            tree = trees.get(entity.root) if trees is not None else None
            if tree is not None and tree.members:
                members = [*tree.members.values()]
                self._wait(tree, due_ns)
        elif isinstance(entity, QueuedPod):
            queued = engine.queue.get(entity.uid)
            if queued is not None and queued.entry.row < 0:
                members = [queued]
                self._wait(queued, due_ns)
        for member in members:
            self._each(member, lambda m: self._report(m, message))

    def _report(self, queued: QueuedPod, message: str) -> None:
        queued.condition = None
        self._engine.reporter.decide(queued, Outcome.ERROR, message=message)
        self._engine.reporter.report(queued, SCHEDULER_ERROR, message)

    def _wait(self, entity: QueuedEntity, due_ns: int) -> None:
        if entity.place in TRIED:
            self._engine.queue.hold_back(entity, due_ns)

    def _report_object(self, obj: ApiObject, message: str) -> None:
        """Records an Event about an object on which the engine has failed."""
        self._each(obj, lambda o: self._engine.reporter.internal_error(o, message))

    # Building the state again

    def _differs(self) -> bool:
        """Returns whether the state is not what its objects and assumptions say; logs in what."""
        state = self._engine.state
        self._errors.is_breached = False
        try:
            found = differences(state, rebuilt(state, self._engine.other_objects))
        except Exception as error:
            self._errors.record(GuardPoint.RECOVERY, "comparison of states", error)
            return True
        if found:
            text = f"the state differed from the API objects in: {', '.join(found)}"
            self._errors.note("error", text, "state")
        return bool(found)

    def _known_objects(self) -> Iterator[ApiObject]:
        state = self._engine.state
        yield from self._engine.other_objects
        yield from stored_objects(state)
        yield from state.other_scheduler_pods.values()

    def _leave_out(self, obj: ApiObject) -> None:
        key = _object_key(obj)
        self.left_out[key] = obj
        self.offenders.blame(key, self._engine.state.now_ns)
        self._errors.note("error", _left_out_text(obj), obj.metadata.key)

    def rebuild(self, objects: Iterable[ApiObject] | None = None, first_id: int = 0) -> None:
        """Builds the state and the queue again from these objects, by default from those that are
        known. `first_id`: writes of this step from this id on are discarded, 0 for none. Costs as
        much as a list of all objects; bounded by PASSES_MAX."""
        self.rebuild_count += 1
        self._errors.is_breached = False
        engine, outbox = self._engine, self._engine.outbox
        failed: dict[ObjectKey, tuple[ApiObject, str]] = {}
        known = _in_order(self._known_objects() if objects is None else objects)
        discarded = outbox.discard_since(first_id) if first_id else []
        assumed = [*self._assumed_pods()]
        preempting = engine.preemptors()
        state = engine.state
        old = (state.volumes, state.devices, state.groups, state.negotiations)
        for _ in range(PASSES_MAX):
            first_of_pass = outbox.free_id
            engine.reset()
            known = [obj for obj in known if _object_key(obj) not in self.left_out]
            if self._load(known, failed):
                break
            outbox.discard_since(first_of_pass)
        for former, (_, new) in zip(old, stores(state, state), strict=True):
            if former is not old[2]:
                self._each(former, new.adopt_assumptions)
        for pod in assumed:
            self._each(pod, self._assume)
        self._each("binding", lambda _: engine.drop_unassumed())
        for id, owner in discarded:
            self._each(Answer(id, NOT_SENT, DISCARDED, DISCARDED), owner.handle_answer)
        self._end_reset()
        for entity in preempting:
            self._each(entity, self._park)
        self._each("offenders", lambda _: self._hold_back())
        engine.give_up_companions()
        for obj, message in failed.values():
            self._report_object(obj, f"{message}; {_left_out_text(obj)}")

    def _end_reset(self) -> None:
        """Completes the reset. Where that fails, queue and groups may be half built: no pod is
        tried for a while, and the state is built once more."""
        self._is_rebuilding = True
        try:
            self._engine.end_reset()
        except Exception as error:
            self._errors.record(GuardPoint.RECOVERY, "end of a reset", error)
            now_ns = self._engine.state.now_ns
            self.paused_until_ns = self.offenders.blame(GuardPoint.RECOVERY, now_ns)
            self._is_incomplete = self.is_suspect = True
        finally:
            self._is_rebuilding = False

    def _load(
        self, objects: list[ApiObject], failed: dict[ObjectKey, tuple[ApiObject, str]]
    ) -> bool:
        """Applies all objects; returns False where some failed, which are to be left out."""
        engine, is_whole = self._engine, True
        for obj in objects:
            try:
                engine.store(obj, False)
            except Exception as error:
                message = self._errors.record(GuardPoint.OBJECT, obj.metadata.key, error)
                self._leave_out(obj)
                failed[_object_key(obj)] = (obj, message)
                is_whole = False
        return engine.list_companions(objects) and is_whole

    def _each(self, item: Any, call: Callable[[Any], object]) -> None:
        """Calls for one item; an error concerns that item alone."""
        try:
            call(item)
        except Exception as error:
            entry = getattr(item, "entry", None)
            about = entry.key if isinstance(entry, PodEntry) else type(item).__name__
            self._errors.record(GuardPoint.RECOVERY, about, error)

    def _assumed_pods(self) -> Iterator[_Assumed]:
        """Yields the assumed pods that are being bound, or whose binding no watch has shown."""
        engine, state = self._engine, self._engine.state
        unfinished = engine.binding.unfinished_uids()
        for entry in state.pods.values():
            if entry.is_assumed and entry.row >= 0:
                # A pod without either was assumed by the attempt that has failed.
                is_open = entry.uid in unfinished
                is_queued = engine.queue.get(entry.uid) is not None
                if is_open or not is_queued or entry.uid in engine.binding.assumed_deadlines:
                    name, claimed = state.node_names[entry.row], entry.claimed_resources
                    yield _Assumed(entry, name, claimed, is_open, is_queued)

    def _assume(self, pod: _Assumed) -> None:
        engine, entry = self._engine, pod.entry
        state = engine.state
        if state.pods.get(entry.uid) is not entry or entry.row >= 0:
            return  # it is deleted, or the API shows its node
        state.assume(entry, state._row_for(pod.node_name))
        if pod.claimed:
            state.assume_claimed_resources(entry, pod.claimed)
        queued = engine.queue.get(entry.uid)
        if queued is not None:
            engine.queue.take(queued)
            if not pod.is_queued:
                engine.queue.remove(entry.uid)
        if not pod.is_open:
            engine.binding.start_expiration(entry)

    def _park(self, entity: QueuedEntity) -> None:
        """Keeps an entity waiting whose victims are being evicted, unless it was left out."""
        queue, now_ns = self._engine.queue, self._engine.state.now_ns
        is_queued = entity.place is not Place.NOWHERE
        if is_queued and entity.place in TRIED and entity.is_preempting:
            victims = set(entity.victims)
            queue.withdraw(entity)
            queue.wait(entity, entity.refused_by, now_ns, None)
            queue.await_victims(entity, victims)

    def _hold_back(self) -> None:
        """Keeps offenders waiting."""
        engine, now_ns = self._engine, self._engine.state.now_ns
        for key, due_ns in self.offenders.due_ns.items():
            if due_ns <= now_ns:
                continue
            entity: QueuedEntity | None = None
            if isinstance(key, str):
                entity = engine.queue.get(key)
                if isinstance(entity, QueuedPod) and entity.entry.row >= 0:
                    continue  # it is being bound
            elif engine.tree_attempts is not None and isinstance(key, tuple):
                entity = engine.tree_attempts.trees.get(key)  # type: ignore[arg-type]
            if entity is not None and entity.place in TRIED:
                engine.queue.hold_back(entity, due_ns)


def _object_key(obj: ApiObject) -> ObjectKey:
    return type(obj), obj.metadata.namespace, obj.metadata.name


def namespace_of(entity: QueuedEntity) -> str:
    """Returns the namespace of a pod or of a tree, which may have no pods."""
    if isinstance(entity, QueuedTree):
        return entity.root.key.partition("/")[0]
    return entity.pod.metadata.namespace


def _left_out_text(obj: ApiObject) -> str:
    """Returns what follows from an object that is not applied."""
    what = "the object is ignored"
    if isinstance(obj, Pod) and obj.spec.node_name:
        what = f"the pod's requests are not counted on node {obj.spec.node_name}"
    return f"{what} until the scheduler can apply it; the next attempt follows after a delay"


def _entity_key(entity: QueuedEntity) -> Hashable:
    """Returns the key of a pod or of a tree among offenders."""
    return entity.root if isinstance(entity, QueuedTree) else entity.uid


def _in_order(objects: Iterable[ApiObject]) -> list[ApiObject]:
    """Returns the objects in the order in which a list of all objects is applied."""
    ranks = dict.fromkeys(SELECTING, 0) | {Node: 2, Pod: 3}
    return sorted(objects, key=lambda obj: ranks.get(type(obj), 1))
