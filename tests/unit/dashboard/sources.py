"""Still: a source of the dashboard with an engine that a test steps."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from stower.cli.recordings import rebuild_engine
from stower.engine.engine import Engine
from stower.framework.decisions import Decision
from stower.framework.events import Event, Listed, Observed, WatchType
from stower.framework.plugin import Features
from stower.framework.writes import Write
from stower.model.kinds import ApiObject, Pod
from stower.record.lines import FORMAT
from stower.record.lines import Engine as Built


class Still:
    """See dashboard.source.Source. Owns an engine and the objects that the engine was given. The
    clock stands still, and writes are answered by the test or not at all."""

    is_leader = is_ready = True
    in_flight = now_ns = 0

    def __init__(
        self,
        *objects: ApiObject,
        configuration: dict[str, Any] | None = None,
        engine: Engine | None = None,
    ) -> None:
        """`engine`: an engine that has the objects already; None builds one from them."""
        self.line = Built("e", FORMAT, 0, 64, Features(), configuration)
        self.decisions: deque[Decision] = deque()
        self._objects = {obj.metadata.uid: obj for obj in objects}
        self.engine: Engine | None = engine
        if engine is None:
            self.engine = rebuild_engine(self.line)
            self.engine.cycle.keeps_details = True
            self.step(Listed(objects))

    def step(self, event: Event) -> list[Write]:
        """Steps the engine. Returns its writes."""
        assert self.engine is not None
        writes = self.engine.step(event, self.now_ns)
        self.decisions.extend(self.engine.drain())
        return writes

    def add(self, obj: ApiObject) -> list[Write]:
        """Adds or replaces an object. Returns the writes of the engine."""
        known = obj.metadata.uid in self._objects
        self._objects[obj.metadata.uid] = obj
        return self.step(Observed(WatchType.MODIFIED if known else WatchType.ADDED, obj))

    def remove(self, obj: ApiObject) -> list[Write]:
        """Removes an object. Returns the writes of the engine."""
        del self._objects[obj.metadata.uid]
        return self.step(Observed(WatchType.DELETED, obj))

    def objects(self) -> Iterable[ApiObject]:
        """See Source."""
        return self._objects.values()

    def get_built(self) -> Built:
        """See Source."""
        return self.line

    def get_position(self) -> dict[str, Any]:
        """See Source."""
        return {}

    async def wait_for_arrival(self) -> None:
        """See Source."""

    async def pod_object(self, key: str) -> dict[str, Any]:
        """See Source."""
        pods = (obj for obj in self._objects.values() if isinstance(obj, Pod))
        return next((msgspec.to_builtins(pod) for pod in pods if pod.key == key), {})
