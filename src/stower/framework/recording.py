"""Recording: the interface by which shells record the events and writes of engines.

Must not know where a recording is kept, or in what format.
"""

from collections.abc import Sequence
from typing import Protocol

from stower.framework.events import Event
from stower.framework.writes import Write


class Recording(Protocol):
    """A recording of one or more engines, each under its own name."""

    @property
    def is_full(self) -> bool:
        """Whether the current part is full: a new engine should take over, so that the recording
        begins a new part and older parts can be deleted."""

    def record_engine(self, engine: str) -> None:
        """Records that an engine was built. The engine's first event is a list of all objects."""

    def record_step(self, engine: str, now_ns: int, event: Event, writes: Sequence[Write]) -> None:
        """Records one step of an engine: the time, the event and the writes."""

    def flush(self) -> None:
        """Writes out everything recorded so far, so that it survives the end of the process."""
