"""Decides when a running scheduler replaces its engine, so that the next part of a recording is
complete in itself.

At that moment nothing may be in flight: every decision must be in the objects from which the new
engine starts. So the old engine is held until that is the case, for HOLD_NS_MAX at most.
"""

from typing import Final

from stower.engine.engine import Engine
from stower.framework.events import Hold
from stower.framework.recording import Recording
from stower.model.times import SECOND_NS

HOLD_NS_MAX: Final = 5 * SECOND_NS
RENEWAL_INTERVAL_NS: Final = 60 * SECOND_NS


class EngineRenewal:
    """Holds the engine when the recording's part is full, and says when to replace the engine."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._held_until_ns: int | None = None
        self._not_before_ns = 0

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which the hold ends if the engine is not replaced before; None without a
        hold."""
        return self._held_until_ns

    def next_hold(self, now_ns: int) -> Hold | None:
        """Returns the Hold event that the engine has to get now, or None."""
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
        """Returns whether to replace the engine now.

        `is_idle`: no event waits for the engine and no write is in flight.
        """
        return self._held_until_ns is not None and is_idle and engine.is_settled

    def complete(self) -> None:
        """Ends the hold, as a new engine has started."""
        self._held_until_ns = None
