"""Pods that are settling with others: what was written for each, until it is answered and seen.

A pod is not tried again before that: what comes next is decided on what came of it.
"""

from collections.abc import Callable
from heapq import heappop, heappush

import msgspec

from stower.framework.negotiation import Wait
from stower.framework.retries import CONFLICT
from stower.framework.writes import CreateObject, ObjectWrite, PatchObject, PatchPodStatus, Write
from stower.model.kinds import ApiObject, Pod
from stower.model.times import SECOND_NS
from stower.state.devices import is_as_new

# For how long a change is waited for: after it was made, and where a conflict said that there is
# one. A watch that was cut is taken up again within this.
ECHO_NS = 30 * SECOND_NS
NEWS_NS = 3 * SECOND_NS

Asked = CreateObject | PatchObject | PatchPodStatus
_Key = tuple[type, str, str]


class _Settling:
    __slots__ = ("awaited", "due_ns", "goes_on", "unanswered")

    def __init__(self) -> None:
        self.goes_on = False  # there is something to do as soon as all was seen
        self.unanswered: dict[int, tuple[_Key, str]] = {}  # and the version relied on
        self.awaited: dict[_Key, str] = {}  # by object: the version that has to be seen
        self.due_ns = 0

    def __lt__(self, other: "_Settling") -> bool:
        """Where two are due at once for one uid: it makes no difference."""
        return False


class Settling:
    """Of all pods, by uid."""

    def __init__(
        self,
        next_id: Callable[[], int],
        send: Callable[[Write], None],
        known: Callable[[type, str, str], str],
        done: Callable[[str], None],
    ) -> None:
        """`known`: the version in which an object is known, by view, namespace and name; "" where
        it is not. `done`: the pod may be tried again."""
        self._next_id = next_id
        self._send = send
        self._known = known
        self._done = done
        self._pods: dict[str, _Settling] = {}
        self._by_write: dict[int, str] = {}
        self._by_object: dict[_Key, dict[str, None]] = {}
        self._behind: dict[str, tuple[type, str]] = {}  # by pod: what has to change before
        self._next: dict[tuple[type, str], dict[str, None]] = {}  # the same, by object
        self._dues: list[tuple[int, str, _Settling]] = []

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    @property
    def is_open(self) -> bool:
        """Whether something that was written is not answered or not seen yet."""
        return bool(self._by_write or self._pods)

    def begin(self, uid: str, wait: Wait) -> None:
        """Write for the pod what there is to write."""
        self._step_out(uid)
        if wait.behind is not None:
            self._behind[uid] = wait.behind
            self._next.setdefault(wait.behind, {})[uid] = None
        for write in wait.writes:
            numbered = msgspec.structs.replace(write, id=self._next_id())
            view = write.view if isinstance(write, ObjectWrite) else Pod
            version = "" if isinstance(write, CreateObject) else write.resource_version
            key = (view, write.namespace, write.name)
            one = self._pods.setdefault(uid, _Settling())
            one.unanswered[numbered.id] = (key, version)
            one.goes_on |= wait.goes_on
            self._by_write[numbered.id] = uid
            self._send(numbered)

    def missed(self, uid: str) -> None:
        """Something has happened that might help the pod."""
        self._pods[uid].goes_on = True

    def answered(self, id: int, code: int, version: str, now_ns: int) -> bool:
        """A write was carried out (`code` 0), or not. Whether it was one of these."""
        uid = self._by_write.pop(id, None)
        if uid is None:
            return False
        one = self._pods.get(uid)
        if one is None:
            return True
        key, relied_on = one.unanswered.pop(id)
        one.goes_on |= code != 0
        if code == 0 and version:
            self._await(uid, one, key, version, now_ns + ECHO_NS)
        elif code == CONFLICT:
            newer = str(int(relied_on) + 1) if relied_on.isdigit() else ""
            self._await(uid, one, key, newer, now_ns + NEWS_NS)
        elif code:
            self._await(uid, one, key, "", now_ns + NEWS_NS)
        self._look(uid, one)
        return True

    def seen(self, obj: ApiObject, gone: bool) -> None:
        """An object is known in this version."""
        key = (type(obj), obj.metadata.namespace, obj.metadata.name)
        for uid in [*self._next.get((type(obj), obj.metadata.key), ())]:
            self._step_out(uid)
            self._done(uid)
        for uid in [*self._by_object.get(key, ())]:
            one = self._pods[uid]
            version = one.awaited[key]
            # Where nobody knows what to wait for, any change will do.
            if gone or not version or is_as_new(obj.metadata.resource_version, version):
                self._forget(uid, one, key)
                self._look(uid, one)

    @property
    def next_wake_ns(self) -> int | None:
        """When what was waited for should have come."""
        dues = self._dues
        while dues and not self._is_due(*dues[0]):
            heappop(dues)
        return dues[0][0] if dues else None

    def _is_due(self, due_ns: int, uid: str, one: _Settling) -> bool:
        return self._pods.get(uid) is one and one.due_ns == due_ns and bool(one.awaited)

    def expire(self, now_ns: int) -> None:
        """What has not come by now is not waited for."""
        while (due_ns := self.next_wake_ns) is not None and due_ns <= now_ns:
            _, uid, one = heappop(self._dues)
            for key in [*one.awaited]:
                self._forget(uid, one, key)
            one.goes_on = True
            self._look(uid, one)

    def drop(self, uid: str) -> None:
        """The pod is bound, or gone."""
        self._step_out(uid)
        one = self._pods.pop(uid, None)
        for key in [*one.awaited] if one is not None else ():
            self._forget(uid, one, key)

    def _step_out(self, uid: str) -> None:
        """It is behind nothing any more."""
        key = self._behind.pop(uid, None)
        if key is not None:
            waiting = self._next[key]
            del waiting[uid]
            if not waiting:
                del self._next[key]

    def _await(self, uid: str, one: _Settling, key: _Key, version: str, due_ns: int) -> None:
        known = self._known(*key)
        if known and version and is_as_new(known, version):
            return
        one.awaited[key] = version
        one.due_ns = max(one.due_ns, due_ns)
        heappush(self._dues, (one.due_ns, uid, one))
        self._by_object.setdefault(key, {})[uid] = None

    def _forget(self, uid: str, one: _Settling | None, key: _Key) -> None:
        if one is not None:
            del one.awaited[key]
        users = self._by_object[key]
        del users[uid]
        if not users:
            del self._by_object[key]

    def _look(self, uid: str, one: _Settling) -> None:
        if not one.unanswered and not one.awaited:
            del self._pods[uid]
            if one.goes_on:
                self._done(uid)
