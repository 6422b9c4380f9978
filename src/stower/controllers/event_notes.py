"""Notes what became of a controller's writes, and makes Events of it at the owner's next turn.

Source: client-go tools/record (EventCorrelator): per object a burst of Events and then few; of many
that differ only in their message, the last is a combined one.
"""

from typing import Final

import msgspec

from stower.controllers.objects import Object, ObjectStore, uid_of
from stower.controllers.runtime import OwnerController, ReconcileResult
from stower.model.times import SECOND_NS

BURST: Final = 25  # Events of an object at once (defaultSpamBurst)
REFILL_NS: Final = 300 * SECOND_NS  # ... and one more each (defaultSpamQPS)
ALIKE_MAX: Final = 10  # of a type and reason (defaultAggregateMaxEvents)
WINDOW_NS: Final = 600 * SECOND_NS  # ... within (defaultAggregateIntervalInSeconds)
OBJECTS_MAX: Final = 4_096  # that are remembered (maxLruCacheEntries)
NOTED_MAX: Final = 100  # of a key until its next turn


class _Written(msgspec.Struct, gc=False):
    """What was written about an object."""

    since_ns: int
    count: int = 0
    alike: dict[tuple[str, str], tuple[int, int]] = {}  # since when, how many


class EventNotes:
    """Events about the objects of one kind (its plural), by their keys."""

    def __init__(self, owners: str, component: str) -> None:
        self._owners = owners
        self._component = component
        self._noted: dict[str, list[tuple[str, str, str]]] = {}
        self._written: dict[str, _Written] = {}  # by uid

    def add(self, key: str, type: str, reason: str, message: str) -> None:
        """Note an Event; it is made at the key's next turn."""
        noted = self._noted.setdefault(key, [])
        if len(noted) < NOTED_MAX:
            noted.append((type, reason, message))

    def write(self, key: str, obj: Object, todo: ReconcileResult) -> None:
        """Make the Events that were noted, as far as the limits allow."""
        for type, reason, message in self._noted.pop(key, ()):
            number = self._count(uid_of(obj), type, reason, todo.now_ns)
            if number is None or number > ALIKE_MAX:
                continue
            if number == ALIKE_MAX:
                message = f"(combined from similar events): {message}"
            todo.event(self._owners, obj, type, reason, message, self._component)

    def forget(self, key: str) -> None:
        """The object is gone."""
        self._noted.pop(key, None)

    def _count(self, uid: str, type: str, reason: str, now_ns: int) -> int | None:
        """Which of its type and reason it is in its window, from 1; None beyond the burst."""
        known = self._written.pop(uid, None) or _Written(now_ns)
        self._written[uid] = known
        while len(self._written) > OBJECTS_MAX:
            del self._written[next(iter(self._written))]
        back = (now_ns - known.since_ns) // REFILL_NS
        known.since_ns += back * REFILL_NS
        known.count = max(0, known.count - back)
        since_ns, number = known.alike.get((type, reason), (now_ns, 0))
        if now_ns - since_ns > WINDOW_NS:
            since_ns, number = now_ns, 0
        known.alike[type, reason] = since_ns, number + 1
        if known.count >= BURST:
            return None
        known.count += number < ALIKE_MAX
        return number + 1


class NotingController(OwnerController):
    """A controller of owners that notes the answers to its writes as Events about them."""

    def __init__(self) -> None:
        self.notes = EventNotes(self.own, self.name)

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Say what is to be done for the key, and what was noted for it."""
        obj = seen.get(self.own, key)
        if obj is None:
            self.forget(key)
            return
        self.reconcile_owner(seen, obj, todo)
        self.notes.write(key, obj, todo)

    def forget(self, key: str) -> None:
        """The owner is gone."""
        self.notes.forget(key)

    def handle_answer(self, key: str, method: str, path: str, status: int, body: bytes) -> None:
        """Decode the answer to a write. A namespace that ends refuses what nobody needs to know."""
        # /api/v1/namespaces/NAMESPACE/KIND/NAME, or with a group: one segment more
        _, root, *segments = path.split("/")
        kind, *rest = segments[3 if root == "api" else 4 :] or ("",)
        if kind not in self.kinds or status == 0 or (status == 404 and method != "POST"):
            return
        try:
            answer = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if not isinstance(answer, dict):
            return
        failure = ""
        if not 200 <= status < 300:
            causes = (answer.get("details") or {}).get("causes") or ()
            if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
                return
            failure = str(answer.get("message") or f"status {status}")
        name = rest[0] if rest else ""
        if method == "POST" and not failure:
            name = str((answer.get("metadata") or {}).get("name") or "")
        self.handle_write(key, method, kind, name, answer, failure)

    def handle_write(
        self, key: str, method: str, kind: str, name: str, answer: Object, failure: str
    ) -> None:
        """The answer to a write of an object of this kind (its plural); without a failure it was
        done. The name is empty where an object could not be made."""
        raise NotImplementedError

    def note_pod(self, key: str, method: str, name: str, failure: str) -> None:
        """Note that a pod was made or deleted, or why not. Source: controller_utils.go."""
        what = ("Create", "Created", "creating") if method == "POST" else (
            "Delete", "Deleted", "deleting")  # fmt: skip
        if failure:
            self.notes.add(key, "Warning", f"Failed{what[0]}", f"Error {what[2]}: {failure}")
        else:
            self.notes.add(key, "Normal", f"Successful{what[0]}", f"{what[1]} pod: {name}")
