"""When a running scheduler goes on with a new engine, so that a recording's next part stands alone.

Nothing may be under way then: what was decided must be in the objects that the new engine starts
from. So the old one is held until that is so, for some seconds at most.
"""

from typing import Final

from stower.engine.engine import Engine
from stower.framework.events import Hold
from stower.framework.recording import Recording
from stower.model.times import SECOND_NS

HOLD_NS_MAX: Final = 5 * SECOND_NS
RENEWAL_INTERVAL_NS: Final = 60 * SECOND_NS


class EngineRenewal:
    """Whether the time has come, and what to tell the engine until then."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._held_until_ns: int | None = None
        self._not_before_ns = 0

    @property
    def next_wake_ns(self) -> int | None:
        """When to look again if nothing happens before."""
        return self._held_until_ns

    def next_hold(self, now_ns: int) -> Hold | None:
        """What to tell the engine now."""
        if self._held_until_ns is not None:
            if now_ns < self._held_until_ns:
                return None
            self._held_until_ns, self._not_before_ns = None, now_ns + RENEWAL_INTERVAL_NS
            return Hold(False)
        if not self._recording.is_full or now_ns < self._not_before_ns:
            return None
        self._held_until_ns = now_ns + HOLD_NS_MAX
        return Hold(True)

    def is_due(self, engine: Engine, is_idle: bool) -> bool:
        """Whether to go on with a new engine. `is_quiet`: nothing is on its way in or out."""
        return self._held_until_ns is not None and is_idle and engine.is_settled

    def complete(self) -> None:
        """A new engine goes on."""
        self._held_until_ns = None
