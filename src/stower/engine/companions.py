"""The companions of an engine's plugins, one of each name: feeds them objects, sends their writes.

What a companion raises ends its turn alone: it is created again from the objects, and has its next
turn after a delay. Must not know what a companion does.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from stower.engine.context import Context
from stower.engine.guard_points import GuardPoint
from stower.engine.internal_errors import is_raised_in_state
from stower.engine.offenders import Offenders
from stower.engine.outbox import Answer
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.framework.companion import Companion, EntityGuard, Metric, TrialScheduler
from stower.framework.events import AgentAsked
from stower.framework.writes import AgentAnswer
from stower.model.kinds import ApiObject
from stower.state.cluster import ClusterState

NO_COMPANION = "no enabled plugin answers requests of autoscaler agents"
FAILED = "internal error; try again"

ObjectKey = tuple[type, str, str]  # kind, namespace, name
Item = TypeVar("Item")


class CompanionOwner:
    """Hands the answers to a companion's writes to it."""

    __slots__ = ("_companion", "_state")

    def __init__(self, companion: Companion, state: ClusterState) -> None:
        self._companion = companion
        self._state = state

    def handle_answer(self, answer: Answer) -> None:
        """Takes the answer to one of the companion's writes."""
        now_ns = self._state.now_ns
        self._companion.on_answer(answer.id, answer.code, answer.reason, now_ns)


class Companions:
    """Owns the companions of an engine's plugins; empty if no plugin has a companion.

    `has_failed`: whether a companion has raised an error, and has to be created again.
    `is_suspect`: whether an entity's error, which a companion has contained, was raised in the
    state: the state has to be compared with the API objects.
    """

    def __init__(
        self,
        context: Context,
        queue: SchedulingQueue,
        trial_scheduler: TrialScheduler,
        seed: int,
        offenders: Offenders,
    ) -> None:
        """Creates the companions and registers them in the state, where their plugins find them.
        Profiles that configure one plugin with a companion configure it alike."""
        self._context = context
        self._state = context.state
        self._outbox = context.outbox
        self._queue = queue
        self._trial_scheduler = trial_scheduler
        self._seed = seed
        self._offenders = offenders
        self.has_failed = False
        self.is_suspect = False
        self._given_up = False  # until a companion that fails on all objects has waited
        self._open_requests: dict[int, None] = {}  # ids of agents' requests without an answer
        # Objects that companions are not given, by companion; and companions that get the objects
        # of a list one by one, to find out on which they fail.
        self._left_out: dict[str, dict[ObjectKey, None]] = {}
        self._fed_singly: dict[str, None] = {}
        self._owners: list[tuple[str, Companion, CompanionOwner]] = []
        self.reset()

    def reset(self) -> None:
        """Creates all companions; a list of all objects has to follow. Requests without an answer
        are answered with an error."""
        self.has_failed = self._given_up = False
        for id in self._open_requests:
            self._outbox.reply(AgentAnswer(id, 500, FAILED, "text/plain"))
        self._open_requests.clear()
        state = self._state
        for profile in self._context.profiles.values():
            for name, plugin in sorted(profile.plugins.items()):
                if name not in state.companions:
                    made = plugin.companion(state, self._seed)
                    if made is not None:
                        state.companions[name] = made
        self._owners = [
            (name, companion, CompanionOwner(companion, state))
            for name, companion in state.companions.items()
        ]
        for _, companion, _ in self._owners:
            companion.attach(self._trial_scheduler)
            if isinstance(companion, EntityGuard):
                companion.entity_failed = self._on_entity_error

    @property
    def count(self) -> int:
        """The number of companions."""
        return len(self._owners)

    def _fail(self, point: GuardPoint, name: str, about: ApiObject | str, error: Exception) -> None:
        self._report(point, about, error)
        self._offenders.blame((GuardPoint.COMPANION, name), self._state.now_ns)
        self.has_failed = True

    def _report(self, point: GuardPoint, about: ApiObject | str, error: Exception) -> None:
        """Records an error, also as an Event about the object; no second Event before the object
        has waited, as a companion may be quick to try again."""
        if isinstance(about, str):
            self._context.errors.record(point, about, error)
            return
        message = self._context.errors.record(point, about.metadata.key, error)
        key, now_ns = (point, _key(about)), self._state.now_ns
        if not self._offenders.waits(key, now_ns):
            self._offenders.blame(key, now_ns)
            self._context.reporter.internal_error(about, message)

    def _on_entity_error(self, about: ApiObject | str, error: Exception) -> None:
        """Reports an entity of a companion, which has contained the error; where the error was
        raised in the state, the state is suspect."""
        self._report(GuardPoint.COMPANION_ENTITY, about, error)
        if is_raised_in_state(error):
            self.is_suspect = True

    def _is_resting(self, name: str) -> bool:
        return self._offenders.waits((GuardPoint.COMPANION, name), self._state.now_ns)

    def give_up(self) -> None:
        """Leaves companions that have failed on the list of all objects until they have waited."""
        self._given_up, self.has_failed = self.has_failed, False

    @property
    def is_reset_due(self) -> bool:
        """Whether companions have to be created again now."""
        if self._given_up:
            return not any(self._is_resting(name) for name, _, _ in self._owners)
        return self.has_failed

    # Objects

    def handle_object(self, obj: ApiObject, is_deleted: bool) -> None:
        """Passes an object that was added, modified or deleted to all companions."""
        for name, companion, _ in self._owners:
            self._pass_on(name, companion, obj, is_deleted)

    def _pass_on(self, name: str, companion: Companion, obj: ApiObject, is_deleted: bool) -> None:
        try:
            companion.on_object(obj, is_deleted, self._state.now_ns)
        except Exception as error:
            self._fail(GuardPoint.COMPANION_OBJECT, name, obj, error)
            self._left_out.setdefault(name, {})[_key(obj)] = None
        else:
            if name in self._left_out:
                self._left_out[name].pop(_key(obj), None)
                if not self._left_out[name]:
                    del self._left_out[name]

    def handle_list(self, objects: Sequence[ApiObject]) -> None:
        """Hands the list of all objects to all companions."""
        if self._left_out:
            listed = {_key(obj) for obj in objects}
            for name, keys in [*self._left_out.items()]:
                kept = self._left_out[name] = {key: None for key in keys if key in listed}
                if not kept:
                    del self._left_out[name]
        for name, companion, _ in self._owners:
            left_out = self._left_out.get(name, {})
            given = [o for o in objects if _key(o) not in left_out] if left_out else objects
            if name in self._fed_singly:
                del self._fed_singly[name]
                self._list(name, companion, ())
                for obj in given:
                    self._pass_on(name, companion, obj, False)
            else:
                self._list(name, companion, given)

    def _list(self, name: str, companion: Companion, objects: Iterable[ApiObject]) -> None:
        try:
            companion.on_list(objects, self._state.now_ns)
        except Exception as error:
            self._fail(GuardPoint.COMPANION_OBJECT, name, name, error)
            self._fed_singly[name] = None

    # Turns

    def run(self, is_held: bool) -> None:
        """Sends what is due, and wakes the pods that companions name. `is_held`: nothing new
        begins."""
        for name, companion, owner in self._owners:
            if self._offenders.due_ns and self._is_resting(name):
                continue
            try:
                self._run(companion, owner, is_held)
            except Exception as error:
                self._fail(GuardPoint.COMPANION, name, name, error)

    def _run(self, companion: Companion, owner: CompanionOwner, is_held: bool) -> None:
        now_ns = self._state.now_ns
        for write in companion.run(now_ns, self._outbox.next_id, is_held):
            if isinstance(write, AgentAnswer):
                self._open_requests.pop(write.id, None)
                self._outbox.reply(write)
            else:
                self._outbox.send(write, owner)
        for cluster_event in companion.take_cluster_events():
            self._queue.wake(cluster_event, now_ns)
        for uid, refused_by in companion.take_pods_to_activate():
            queued = self._queue.get(uid)
            if queued is not None:
                self._queue.activate_from_backoff(queued, now_ns, refused_by)

    def ask(self, event: AgentAsked) -> None:
        """Passes an agent's request to a companion; rejects a request that no companion accepts."""
        for name, companion, _ in self._owners:
            try:
                if companion.on_request(event.id, event.method, event.body, self._state.now_ns):
                    self._open_requests[event.id] = None
                    return
            except Exception as error:
                self._fail(GuardPoint.AGENT_REQUEST, name, f"request {event.id}", error)
                self._outbox.reply(AgentAnswer(event.id, 500, FAILED, "text/plain"))
                return
        self._outbox.reply(AgentAnswer(event.id, 404, NO_COMPANION, "text/plain"))

    # Status

    @property
    def next_wakes_ns(self) -> list[int]:
        """The times when something is due without any event."""
        found = []
        for name, companion, _ in self._owners:
            try:
                wake_ns = companion.next_wake_ns
            except Exception as error:
                self._fail(GuardPoint.COMPANION_STATUS, name, name, error)
                wake_ns = self._state.now_ns
            if self._offenders.due_ns and self._is_resting(name):
                wake_ns = self._offenders.due_ns[(GuardPoint.COMPANION, name)]
            if wake_ns is not None:
                found.append(wake_ns)
        return found

    @property
    def is_settled(self) -> bool:
        """Whether no companion has anything under way."""
        for name, companion, _ in self._owners:
            try:
                if not companion.is_idle:
                    return False
            except Exception as error:
                self._fail(GuardPoint.COMPANION_STATUS, name, name, error)
                return False
        return not self.has_failed and not self._given_up

    def metrics(self) -> list[Metric]:
        """Returns the metrics of all companions; none of one that has failed."""
        return self._collect(lambda companion: companion.metrics())

    def notes(self) -> list[tuple[str, str, str]]:
        """Returns log lines since the last call: level, text, object."""
        return self._collect(lambda companion: companion.take_log_lines())

    def _collect(self, ask: Callable[[Companion], Iterable[Item]]) -> list[Item]:
        found: list[Item] = []
        for name, companion, _ in self._owners:
            try:
                found += ask(companion)
            except Exception as error:
                self._fail(GuardPoint.COMPANION_STATUS, name, name, error)
        return found


def _key(obj: ApiObject) -> ObjectKey:
    return type(obj), obj.metadata.namespace, obj.metadata.name
