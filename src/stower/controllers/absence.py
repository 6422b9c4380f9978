"""Decides whether an object is deleted, or only not seen yet by the watch.

Each kind has a watch of its own, so an object may be seen before an object that it refers to. An
object that is not in the store is therefore requested from the server. A uid counts as deleted only
after its deletion was seen, or after the server answered 404 or returned another uid.

Source: syncClaim of pkg/controller/resourceclaim, isDangling of pkg/controller/garbagecollector.
"""

from typing import Any, Final

import msgspec

from stower.controllers.objects import ObjectStore, uid_of
from stower.controllers.runtime import ReconcileResult
from stower.controllers.write_answers import NOT_FOUND
from stower.model.times import SECOND_NS

# To learn of an object that exists takes a watch less than this, unless it is down.
AGAIN_NS: Final = 10 * SECOND_NS
KNOWN_MAX: Final = 20_000  # arbitrary; what is forgotten is asked for again


class _Meta(msgspec.Struct):
    uid: str


class _Answer(msgspec.Struct):
    metadata: _Meta


class AbsenceCache:
    """What a controller has asked for."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], dict[str, None]] = {}  # by key and path: uids
        self._there: dict[tuple[str, str], None] = {}  # by key and uid: just found
        self._gone: dict[str, None] = {}

    def is_gone(
        self,
        seen: ObjectStore,
        kind: str,
        namespace: str,
        name: str,
        uid: str,
        key: str,
        todo: ReconcileResult,
    ) -> bool:
        """Whether the object of that uid is gone for sure. Where nobody knows, the server is asked
        for `key` of the controller, which is then looked at again."""
        known = seen.get(kind, f"{namespace}/{name}" if namespace else name)
        if known is not None and uid_of(known) == uid:
            return False
        if seen.is_gone(uid) or uid in self._gone:
            return True
        if (key, uid) in self._there:
            # Not asked again at once: the watch tells soon.
            del self._there[key, uid]
            todo.requeue_at(todo.now_ns + AGAIN_NS)
            return False
        path = todo.path_to(kind, namespace, name)
        if not any(call.path == path and call.method == "GET" for call in todo.calls):
            self._asked[key, path] = {}
            todo.ask("GET", path)
        self._asked[key, path][uid] = None
        return False

    def handle_answer(self, key: str, path: str, status: int, body: bytes) -> None:
        """What the server says. The answer is about those uids alone that were asked for."""
        uids = self._asked.pop((key, path), {})
        found = ""
        if status == 200:
            try:
                found = msgspec.json.decode(body, type=_Answer).metadata.uid
            except (msgspec.DecodeError, UnicodeDecodeError):
                return
        elif status != NOT_FOUND:
            return
        for uid in uids:
            if uid == found:
                self._there[key, uid] = None
            else:
                self._gone[uid] = None
        _shorten(self._gone)
        _shorten(self._there)


def _shorten(known: dict[Any, None]) -> None:
    while len(known) > KNOWN_MAX:
        del known[next(iter(known))]
