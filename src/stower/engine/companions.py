"""The companions of an engine's plugins, one of each name: feeds them objects, sends their writes.

Must not know what a companion does.
"""

from collections.abc import Iterable

from stower.engine.context import Context
from stower.engine.outbox import Answer
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.framework.companion import Companion, TrialScheduler
from stower.framework.events import AgentAsked
from stower.framework.writes import AgentAnswer
from stower.model.kinds import ApiObject
from stower.state.cluster import ClusterState

NO_COMPANION = "no enabled plugin answers requests of autoscaler agents"


class _Owner:
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
    """Owns the companions of an engine's plugins; empty if no plugin has a companion."""

    def __init__(
        self, context: Context, queue: SchedulingQueue, trial_scheduler: TrialScheduler, seed: int
    ) -> None:
        """Creates the companions and registers them in the state, where their plugins find them.
        Profiles that configure one plugin with a companion configure it alike."""
        state = self._state = context.state
        self._outbox = context.outbox
        self._queue = queue
        for profile in context.profiles.values():
            for name, plugin in sorted(profile.plugins.items()):
                if name not in state.companions:
                    made = plugin.companion(state, seed)
                    if made is not None:
                        state.companions[name] = made
        self._owners: list[tuple[Companion, _Owner]] = [
            (companion, _Owner(companion, state)) for companion in state.companions.values()
        ]
        for companion, _ in self._owners:
            companion.attach(trial_scheduler)

    @property
    def count(self) -> int:
        """The number of companions."""
        return len(self._owners)

    def handle_object(self, obj: ApiObject, is_deleted: bool) -> None:
        """Passes an object that was added, modified or deleted to all companions."""
        for companion, _ in self._owners:
            companion.on_object(obj, is_deleted, self._state.now_ns)

    def handle_list(self, objects: Iterable[ApiObject]) -> None:
        """Hands the list of all objects to all companions."""
        for companion, _ in self._owners:
            companion.on_list(objects, self._state.now_ns)

    def run(self, is_held: bool) -> None:
        """Sends what is due, and wakes the pods that companions name. `is_held`: nothing new
        begins."""
        now_ns = self._state.now_ns
        for companion, owner in self._owners:
            for write in companion.run(now_ns, self._outbox.next_id, is_held):
                if isinstance(write, AgentAnswer):
                    self._outbox.reply(write)
                else:
                    self._outbox.send(write, owner)
            for cluster_event in companion.take_cluster_events():
                self._queue.wake(cluster_event, now_ns)
            for uid in companion.take_pods_to_activate():
                queued = self._queue.get(uid)
                if queued is not None:
                    self._queue.activate_from_backoff(queued, now_ns)

    def ask(self, event: AgentAsked) -> None:
        """Passes an agent's request to a companion; rejects a request that no companion accepts."""
        for companion, _ in self._owners:
            if companion.on_request(event.id, event.method, event.body, self._state.now_ns):
                return
        self._outbox.reply(AgentAnswer(event.id, 404, NO_COMPANION, "text/plain"))

    @property
    def next_wakes_ns(self) -> list[int]:
        """The times when something is due without any event."""
        wakes = (companion.next_wake_ns for companion, _ in self._owners)
        return [wake_ns for wake_ns in wakes if wake_ns is not None]

    @property
    def is_settled(self) -> bool:
        """Whether no companion has anything under way."""
        return all(companion.is_idle for companion, _ in self._owners)

    def notes(self) -> list[tuple[str, str, str]]:
        """Returns log lines since the last call: level, text, object."""
        return [note for companion, _ in self._owners for note in companion.take_log_lines()]
