"""Records Events of a controller about its objects, and no more about one object than is useful.

Source: client-go tools/record/events_cache.go (EventSourceObjectSpamFilter, EventAggregator).
"""

from typing import Final

import msgspec

from stower.controllers.objects import Object, uid_of
from stower.controllers.runtime import ReconcileResult
from stower.controllers.write_answers import WriteAnswer
from stower.model.times import SECOND_NS

BURST: Final = 25  # Events about one object at once
REFILL_NS: Final = 300 * SECOND_NS  # for each further one
ALIKE_MAX: Final = 10  # Events about one object of one type and reason
WINDOW_NS: Final = 600 * SECOND_NS  # ... from the first of them
COMBINED: Final = "(combined from similar events): "  # begins the last of them
OBJECTS_MAX: Final = 4096  # of which it is known how many there were
STATES_MAX: Final = 20_000  # arbitrary; what is forgotten is recorded again
POD_WRITES: Final = {"POST": ("Create", "Created", "creating"),
                     "DELETE": ("Delete", "Deleted", "deleting")}  # fmt: skip


class _Sent(msgspec.Struct, gc=False):
    """Events about one object."""

    at_ns: int
    count: float = 0.0  # of the burst, as of then
    alike: dict[tuple[str, str], tuple[int, int]] = {}  # by type and reason: since when, how many


class EventRecorder:
    """The Events of one controller. They are sent beside its other requests: nothing waits for the
    answer, and an Event that the server refuses is lost."""

    def __init__(self, component: str) -> None:
        self._component = component
        self._sent: dict[str, _Sent] = {}  # by uid
        self._states: dict[str, tuple[str, str]] = {}  # by uid: reason and message

    def record(
        self, todo: ReconcileResult, kind: str, obj: Object, type: str, reason: str, message: str
    ) -> None:
        """Records an Event about an object, unless there were too many about it. `kind`: the
        plural."""
        now_ns = todo.now_ns
        sent = self._sent.pop(uid_of(obj), None) or _Sent(now_ns)
        self._sent[uid_of(obj)] = sent
        if len(self._sent) > OBJECTS_MAX:
            del self._sent[next(iter(self._sent))]
        sent.count = max(0.0, sent.count - (now_ns - sent.at_ns) / REFILL_NS)
        sent.at_ns = now_ns
        since_ns, alike = sent.alike.get((type, reason), (now_ns, 0))
        if now_ns - since_ns > WINDOW_NS:
            since_ns, alike = now_ns, 0
        if alike >= ALIKE_MAX or sent.count + 1 > BURST:
            return
        sent.count += 1
        sent.alike[type, reason] = since_ns, alike + 1
        if alike + 1 == ALIKE_MAX:
            message = f"{COMBINED}{message}"
        todo.event(kind, obj, type, reason, message, self._component, awaited=False)

    def record_state(
        self, todo: ReconcileResult, kind: str, obj: Object, type: str, reason: str, message: str
    ) -> None:
        """Records an Event about the state of an object, unless it is in that state already."""
        if self._states.get(uid_of(obj)) == (reason, message):
            return
        self._states[uid_of(obj)] = reason, message
        if len(self._states) > STATES_MAX:
            del self._states[next(iter(self._states))]
        self.record(todo, kind, obj, type, reason, message)

    def clear_state(self, obj: Object) -> None:
        """The object is in none of the states that are recorded."""
        self._states.pop(uid_of(obj), None)

    def record_pod_write(
        self, todo: ReconcileResult, kind: str, owner: Object, answer: WriteAnswer
    ) -> None:
        """Records that a pod of an owner was created or deleted, or why it was not. `kind`: the
        owner's plural. Source: pkg/controller/controller_utils.go (RealPodControl)."""
        if answer.method not in POD_WRITES or not answer.is_notable:
            return
        verb, done, doing = POD_WRITES[answer.method]
        if answer.is_good:
            text = f"{done} pod: {answer.name}"
            self.record(todo, kind, owner, "Normal", f"Successful{verb}", text)
        else:
            text = f"Error {doing}: {answer.failure}"
            self.record(todo, kind, owner, "Warning", f"Failed{verb}", text)
