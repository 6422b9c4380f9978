"""Records Events of a controller about its objects, and no more about one object than is useful.

Source: client-go tools/record/events_cache.go (EventSourceObjectSpamFilter).
"""

from typing import Final

from stower.controllers.objects import Object, uid_of
from stower.controllers.runtime import ReconcileResult
from stower.model.times import SECOND_NS

BURST: Final = 25  # Events about one object at once
REFILL_NS: Final = 300 * SECOND_NS  # for each further one
OBJECTS_MAX: Final = 4096  # of which it is known how many there were


class EventRecorder:
    """The Events of one controller. They are sent beside its other requests: nothing waits for the
    answer, and an Event that the server refuses is lost."""

    def __init__(self, component: str) -> None:
        self._component = component
        self._spent: dict[str, tuple[float, int]] = {}  # by uid: how many, as of when

    def record(
        self, todo: ReconcileResult, kind: str, obj: Object, type: str, reason: str, message: str
    ) -> None:
        """Records an Event about an object, unless there were too many about it."""
        spent, at_ns = self._spent.pop(uid_of(obj), (0.0, todo.now_ns))
        spent = max(0.0, spent - (todo.now_ns - at_ns) / REFILL_NS)
        if spent + 1 <= BURST:
            spent += 1
            todo.event(kind, obj, type, reason, message, self._component, awaited=False)
        self._spent[uid_of(obj)] = (spent, todo.now_ns)
        if len(self._spent) > OBJECTS_MAX:
            del self._spent[next(iter(self._spent))]
