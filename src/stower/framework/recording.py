"""Who keeps what engines are told and write, as the shells see it."""

from collections.abc import Sequence
from typing import Protocol

from stower.framework.events import Event
from stower.framework.writes import Write


class Recording(Protocol):
    """A record of engines, each under a name of its own."""

    @property
    def is_full(self) -> bool:
        """Whether the next engine had better begin, so that older parts can be dropped."""

    def record_engine(self, engine: str) -> None:
        """An engine was built; its first event is a list of everything."""

    def record_step(self, engine: str, now_ns: int, event: Event, writes: Sequence[Write]) -> None:
        """It was told this at that time, and wrote that."""

    def flush(self) -> None:
        """See to it that all of it would survive us."""
