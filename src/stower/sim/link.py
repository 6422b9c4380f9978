"""The simulated connection of one client to the server: requests and watches that take time.

A watch delivers the changes of one kind, in order for each object. A broken watch resumes after the
last delivered change, or lists again if the server has forgotten that revision. `Weather` decides
what goes wrong on the way; without it, nothing does.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from stower.framework.events import WatchType
from stower.model.kinds import ApiObject, ResourceClaim
from stower.model.times import SECOND_NS
from stower.sim.agenda import Agenda
from stower.sim.server import Change, Server

MILLI_NS: Final = SECOND_NS // 1000
LATENCY_NS: Final = (MILLI_NS // 2, 5 * MILLI_NS)
RECONNECT_NS: Final = (SECOND_NS // 10, 2 * SECOND_NS)

Received = Callable[[WatchType, ApiObject], None]


class Weather:
    """What the network does to one message. Faults override some of it."""

    def delay_ns(self, chance: random.Random) -> int:
        """How much longer a message takes than usual."""
        return 0

    def request(self, chance: random.Random) -> tuple[bool, int | None]:
        """Whether a request reaches the server, and the status in place of its answer, or None."""
        return True, None

    def cuts(self, chance: random.Random) -> bool:
        """Whether the watch breaks instead of delivering a change."""
        return False

    def doubles(self, chance: random.Random) -> bool:
        """Whether a change is delivered twice."""
        return False

    def holds_ns(self, chance: random.Random) -> int:
        """For how long a change is held back while those of other objects overtake it."""
        return 0

    def expires(self, chance: random.Random) -> bool:
        """Whether the server has forgotten where a watch that is taken up again had been."""
        return False


class Stream:
    """The watch of one kind."""

    def __init__(self, view: type[Any]) -> None:
        self.view = view
        self.objects: dict[str, ApiObject] = {}  # by uid, as far as was delivered
        self.is_listed = False
        self.listed_at = 0  # the revision of the last list
        self.is_watched = False
        self.connection = 0  # changes of an older one are not delivered
        self.cursor = 0  # up to this revision all was sent
        self.delivered: dict[int, None] = {}  # revisions beyond the first that is still on its way
        self.waiting: deque[int] = deque()  # revisions that are on their way, oldest first
        self.last_ns: dict[str, int] = {}  # when the last change of an object arrives
        self.all_ns = 0  # when the last change that was not held back arrives


class Link:
    """The watches and requests of one process."""

    def __init__(
        self,
        agenda: Agenda,
        server: Server,
        chance: random.Random,
        weather: list[Weather],
        views: Iterable[type[Any]],
        on_list: Callable[[], None],
        on_change: Received,
    ) -> None:
        self._agenda = agenda
        self._server = server
        self._chance = chance
        self._weather = weather
        self._on_list = on_list
        self._on_change = on_change
        self._is_open = True
        self.streams = {view: Stream(view) for view in views}
        server.tell.append(self._on_server_change)
        for stream in self.streams.values():
            self._list_later(stream)

    def close(self) -> None:
        """The process is gone: nothing reaches it any more."""
        self._is_open = False
        self._server.tell.remove(self._on_server_change)

    @property
    def is_ready(self) -> bool:
        """Everything has been listed once."""
        return all(stream.is_listed for stream in self.streams.values())

    def list_objects(self) -> tuple[ApiObject, ...]:
        """All that is known by now."""
        return tuple(obj for s in self.streams.values() for obj in s.objects.values())

    # Requests

    def ask(self, do: Callable[[], Any], answered: Callable[[int, Any], None]) -> None:
        """Have the server do something; `answered` with the HTTP status (0: none came) and what
        `do` gave, which is None where it was not done."""
        reaches, status = True, None
        for weather in self._weather:
            arrives, instead = weather.request(self._chance)
            reaches = reaches and arrives
            status = status if instead is None else instead

        def arrive() -> None:
            found = do() if reaches else None

            def deliver() -> None:
                if self._is_open:
                    answered(200 if status is None else status, found)

            self._agenda.schedule_after(self._delay_ns(), deliver)

        self._agenda.schedule_after(self._delay_ns(), arrive)

    def _delay_ns(self) -> int:
        weathers = self._weather
        more = sum(weather.delay_ns(self._chance) for weather in weathers) if weathers else 0
        return self._chance.randint(*LATENCY_NS) + more

    # Watches

    def cut(self, stream: Stream) -> None:
        """The watch breaks; it is taken up again after a pause."""
        stream.is_watched = False
        stream.connection += 1
        self._agenda.schedule_after(
            self._chance.randint(*RECONNECT_NS), lambda: self._resume(stream)
        )

    def _list_later(self, stream: Stream) -> None:
        stream.is_watched = False
        stream.connection += 1
        connection = stream.connection

        def on_list() -> None:
            if not self._is_open or stream.connection != connection:
                return
            found, revision = [*self._server.all(stream.view).values()], self._server.revision

            def arrive() -> None:
                if not self._is_open or stream.connection != connection:
                    return
                stream.objects = {obj.metadata.uid: obj for obj in found}
                stream.is_listed = True
                stream.cursor = stream.listed_at = revision
                stream.delivered.clear()
                stream.waiting.clear()
                stream.last_ns.clear()
                self._on_list()
                self._follow(stream)

            self._agenda.schedule_after(self._delay_ns(), arrive)

        self._agenda.schedule_after(self._delay_ns(), on_list)

    def _resume(self, stream: Stream) -> None:
        if not self._is_open:
            return
        if not stream.is_listed:
            self._list_later(stream)
            return
        # What had not arrived is sent once more.
        start = stream.waiting[0] - 1 if stream.waiting else stream.cursor
        forgotten = start < self._server.forgotten
        if forgotten or any(weather.expires(self._chance) for weather in self._weather):
            self._list_later(stream)
            return
        stream.connection += 1
        stream.cursor = start
        stream.waiting.clear()
        self._follow(stream)

    def _follow(self, stream: Stream) -> None:
        """Send all changes since the cursor."""
        stream.is_watched = True
        cursor = stream.cursor
        for change in [c for c in self._server.history if c[0] > cursor]:
            if type(change[2]) is stream.view and change[0] not in stream.delivered:
                self._send(stream, change)
        stream.cursor = self._server.revision

    def _on_server_change(self, change: Change) -> None:
        stream = self.streams.get(type(change[2]))
        if stream is not None and stream.is_watched:
            stream.cursor = change[0]
            self._send(stream, change)

    def _send(self, stream: Stream, change: Change) -> None:
        revision, _, obj = change
        stream.waiting.append(revision)
        held_ns = sum(weather.holds_ns(self._chance) for weather in self._weather)
        if stream.view is ResourceClaim:
            held_ns = 0  # an API server tells of all changes of a kind in their order
        key = obj.metadata.key
        at_ns = max(self._agenda.now_ns + self._delay_ns(), stream.all_ns) + held_ns
        at_ns = max(at_ns, stream.last_ns.get(key, 0))
        stream.last_ns[key] = at_ns
        if not held_ns:
            stream.all_ns = max(stream.all_ns, at_ns)
        connection = stream.connection
        self._agenda.schedule_at(at_ns, lambda: self._arrive(stream, change, connection))

    def _arrive(self, stream: Stream, change: Change, connection: int) -> None:
        if not self._is_open or stream.connection != connection:
            return
        if self._weather and any(weather.cuts(self._chance) for weather in self._weather):
            self.cut(stream)
            return
        revision, kind, obj = change
        stream.delivered[revision] = None
        while stream.waiting and stream.waiting[0] in stream.delivered:
            del stream.delivered[stream.waiting.popleft()]
        if kind is WatchType.DELETED:
            stream.objects.pop(obj.metadata.uid, None)
        else:
            stream.objects[obj.metadata.uid] = obj
        for _ in range(1 + any(weather.doubles(self._chance) for weather in self._weather)):
            if self._is_open:
                self._on_change(kind, obj)
