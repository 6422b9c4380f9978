"""The source of the dashboard's data: a running scheduler, or a recording at a chosen time."""

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from stower.engine.engine import Engine
from stower.live.debug import DebugTarget
from stower.live.scheduler import Scheduler
from stower.model.kinds import ApiObject
from stower.record.lines import Engine as Built


class Source(DebugTarget, Protocol):
    """Either of them."""

    @property
    def is_ready(self) -> bool:
        """Whether everything has been listed."""

    @property
    def in_flight(self) -> int:
        """Writes that are not answered."""

    @property
    def now_ns(self) -> int:
        """The time there, since the epoch."""

    def objects(self) -> Iterable[ApiObject]:
        """All that is known, as the API has it."""

    def get_built(self) -> Built:
        """How its engine was built, so that others can be built like it."""

    def get_position(self) -> dict[str, Any]:
        """What else there is to say of where it stands."""

    async def wait_for_arrival(self) -> None:
        """Until it stands where it is to stand."""

    async def pod_object(self, key: str) -> dict[str, Any]:
        """A pod as the API has it now, empty where it does not."""


# An engine, as that says. Raises InvalidObject.
Rebuild = Callable[[Built], Engine]


class RunningSource:
    """A scheduler as a source; see Source."""

    def __init__(self, scheduler: Scheduler, built: Built) -> None:
        self._scheduler = scheduler
        self._built = built
        self.decisions = scheduler.decisions

    @property
    def engine(self) -> Engine | None:
        """See Source."""
        return self._scheduler.engine

    @property
    def is_leader(self) -> bool:
        """See Source."""
        return self._scheduler.is_leader

    @property
    def is_ready(self) -> bool:
        """See Source."""
        return self._scheduler.is_ready

    @property
    def in_flight(self) -> int:
        """See Source."""
        return self._scheduler.in_flight

    @property
    def now_ns(self) -> int:
        """See Source."""
        return time.time_ns()

    def objects(self) -> Iterable[ApiObject]:
        """See Source."""
        return self._scheduler.objects()

    def get_built(self) -> Built:
        """See Source."""
        return self._built

    def get_position(self) -> dict[str, Any]:
        """See Source."""
        return {}

    async def wait_for_arrival(self) -> None:
        """See Source."""

    async def pod_object(self, key: str) -> dict[str, Any]:
        """See Source."""
        namespace, _, name = key.partition("/")
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
        answer = await self._scheduler.client.request("GET", path)
        if answer.status != 200:
            return {}
        try:
            return msgspec.json.decode(answer.body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}
