"""A recording as a source of the dashboard: replays it to a chosen time.

Forwards the replay continues from the current time; backwards it starts again.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from stower.dashboard.board import Board
from stower.dashboard.source import Rebuild
from stower.engine.engine import Engine
from stower.framework.decisions import Decision
from stower.framework.events import Listed, Observed, WatchType
from stower.live.scheduler import DECISIONS_MAX
from stower.model.errors import InvalidObject
from stower.model.kinds import ApiObject, Pod
from stower.model.times import SECOND_NS
from stower.record.lines import Engine as Built
from stower.record.reader import RecordedEvent, read_recording

SLICE_SECONDS: Final = 0.02
ObjectKey = tuple[type, str]


def bounds(path: Path) -> tuple[int, int]:
    """When a recording begins and ends. Raises InvalidObject, OSError."""
    found: tuple[int, int] | None = None
    for line in read_recording(path):
        if isinstance(line, RecordedEvent):
            first_ns, last_ns = found or (line.at_ns, line.at_ns)
            found = first_ns, max(last_ns, line.at_ns)
    if found is None:
        raise InvalidObject("recording", str(path), "a recording with at least one step")
    return found


class Player:
    """See Source."""

    is_leader = True
    in_flight = 0

    def __init__(self, path: Path, rebuild: Rebuild, board: Board, ends: tuple[int, int]) -> None:
        """`ends`: see bounds; `board` is told what is decided."""
        self.first_ns, self.last_ns = ends
        self.is_ready = False
        self._path = path
        self._rebuild = rebuild
        self._board = board
        self._wanted_ns = self.first_ns
        self._changed = asyncio.Event()
        self._arrived = asyncio.Event()
        self._begin()

    def _begin(self) -> None:
        self.engine: Engine | None = None
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS_MAX)
        self.now_ns = self.first_ns
        self._lines: Iterator[Built | RecordedEvent] = read_recording(self._path)
        self._next: Built | RecordedEvent | None = next(self._lines, None)
        self._engines: dict[str, tuple[Engine, Built]] = {}
        self._built: Built | None = None
        self._objects: dict[ObjectKey, ApiObject] = {}
        self._board.begin()

    def go_to(self, seconds: float) -> None:
        """Be at that time since the beginning, soon."""
        at_ns = self.first_ns + round(seconds * SECOND_NS)
        self._wanted_ns = max(self.first_ns, min(self.last_ns, at_ns))
        self._changed.set()
        self._arrived.clear()

    async def wait_for_arrival(self) -> None:
        """See Source."""
        await self._arrived.wait()

    def get_position(self) -> dict[str, Any]:
        """Where it is, in seconds since the beginning."""
        return {
            "recording": {
                "name": self._path.name, "seconds": (self.last_ns - self.first_ns) / SECOND_NS,
                "at": (self.now_ns - self.first_ns) / SECOND_NS, "beganNs": self.first_ns,
                "wanted": (self._wanted_ns - self.first_ns) / SECOND_NS,
            }
        }  # fmt: skip

    async def run(self) -> None:
        """Go where it is told to, until cancelled. Raises InvalidObject, OSError."""
        while True:
            self._changed.clear()
            if self._wanted_ns < self.now_ns:
                self._begin()
            until = time.perf_counter() + SLICE_SECONDS
            while self._is_before(self._wanted_ns):
                self._step()
                if time.perf_counter() > until:
                    await asyncio.sleep(0)
                    until = time.perf_counter() + SLICE_SECONDS
                    if self._changed.is_set():
                        break
            else:
                self.now_ns = self._wanted_ns
                self.is_ready = True
                self._arrived.set()
                await self._changed.wait()

    def _is_before(self, at_ns: int) -> bool:
        line = self._next
        return line is not None and (isinstance(line, Built) or line.at_ns <= at_ns)

    def _step(self) -> None:
        line, self._next = self._next, next(self._lines, None)
        if isinstance(line, Built):
            engine = self._rebuild(line)
            engine.cycle.keeps_details = True
            self._engines[line.engine] = engine, line
            return
        assert line is not None
        self.engine, self._built = self._engines[line.engine]
        self.now_ns = max(self.now_ns, line.at_ns)
        self._take(line)
        self.engine.step(line.event, line.at_ns)
        self._board.on_step(line.event, 0.0)
        for decision in self.engine.drain():
            self.decisions.append(decision)
            self._board.on_decision(decision)
            if decision.node_name:
                self._board.on_bind(decision, 0.0)
        self._board.sample(self.now_ns / SECOND_NS, self.engine)

    def _take(self, line: RecordedEvent) -> None:
        event = line.event
        if isinstance(event, Listed):
            self._objects = {_key(obj): obj for obj in event.objects}
        elif isinstance(event, Observed):
            if event.type is WatchType.DELETED:
                self._objects.pop(_key(event.object), None)
            else:
                self._objects[_key(event.object)] = event.object

    def objects(self) -> Iterable[ApiObject]:
        """See Source."""
        return self._objects.values()

    def get_built(self) -> Built:
        """See Source."""
        if self._built is None:
            raise InvalidObject("recording", str(self._path), "a time after its first step")
        return self._built

    async def pod_object(self, key: str) -> dict[str, Any]:
        """See Source."""
        pod = self._objects.get((Pod, key))
        return msgspec.to_builtins(pod) if pod is not None else {}


def _key(obj: ApiObject) -> ObjectKey:
    return type(obj), obj.metadata.key
