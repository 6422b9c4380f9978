"""Deletes Events whose time to live is over: Events report what happened, no decision needs them.

The time counts from the last write of an Event, as upstream (--event-ttl), and after a restart
from the restart. Source: registry/core/rest/storage_core.go, Kubernetes 1.36.
"""

from collections import deque
from typing import Final

from stower.api.requests import Request
from stower.api.server import Api
from stower.api.users import SERVER

KEY: Final = ("", "events")
AT_ONCE: Final = 100  # Events that go before somebody else has a turn: some 10 ms


class EventExpiry:
    """What has become too old, removed a few at a time."""

    def __init__(self, api: Api, ttl_ns: int, now_ns: int) -> None:
        self._api = api
        self._ttl_ns = ttl_ns
        # At each time, up to which revision everything had been written.
        self._marks: deque[tuple[int, int]] = deque([(now_ns, api.store.revision)])
        self._due: list[str] = []
        self._old = 0  # what was written up to this revision is too old

    def find_expired(self, now_ns: int) -> None:
        """Find what is too old now."""
        old = 0
        while self._marks and self._marks[0][0] <= now_ns - self._ttl_ns:
            _, old = self._marks.popleft()
        self._marks.append((now_ns, self._api.store.revision))
        if old:
            self._old = old
            records = self._api.store.collection(KEY).records
            self._due = [key for key, record in records.items() if record.revision <= old]

    def remove_some(self, now_ns: int) -> bool:
        """Remove some of what was found; whether there is more."""
        due = self._due[-AT_ONCE:]
        del self._due[-AT_ONCE:]
        records = self._api.store.collection(KEY).records
        for key in due:
            record = records.get(key)
            if record is None or record.revision > self._old:
                continue  # it was written again meanwhile
            namespace, _, name = key.partition("/")
            path = f"/api/v1/namespaces/{namespace}/events/{name}"
            self._api.handle(Request("DELETE", path, now_ns, user=SERVER, user_agent="stower"))
        return bool(self._due)
