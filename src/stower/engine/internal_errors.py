"""Internal errors: what is raised while one entity is dealt with concerns that entity alone.

The error is reported on it, it is tried again after a delay, and all others are dealt with in the
same step. After an error of the state itself, or while something was changed, the state is built
again from the API objects (engine/recovery.py).
"""

import traceback
from collections import Counter
from typing import Final

from stower.engine.guard_points import GuardPoint
from stower.model.errors import InvariantError

# Log lines that wait to be taken; more errors are counted only.
LINES_MAX: Final = 100
# Modules that keep state: the objects, and what is known of devices.
STATE: Final = ("stower.state.", "stower.devices.")


class InternalErrors:
    """The errors that were contained, by part of the engine."""

    __slots__ = ("_lines", "counts", "is_breached", "is_containing")

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        # Simulations and benchmarks have no use for an engine that goes on: errors are raised.
        self.is_containing = True
        # Whether an invariant was breached, and the state was not compared since.
        self.is_breached = False
        self._lines: list[tuple[str, str, str]] = []

    def record(self, part: GuardPoint, about: str, error: Exception) -> str:
        """Counts and logs an error. `about`: the key of the object that was handled. Returns a
        message for the object's owner, which has no text of the error: that may have other
        objects in it, and differ from run to run. Raises the error itself where none is
        contained."""
        if not self.is_containing:
            raise error
        self.counts[part.value] += 1
        self.is_breached |= isinstance(error, InvariantError)
        if len(self._lines) < LINES_MAX:
            trace = format_error(error)
            self._lines.append(("error", f"internal error in {part}\n{trace}", about))
        return f"internal error: {type(error).__name__}; the scheduler's log has more"

    def note(self, level: str, text: str, about: str) -> None:
        """Adds a log line about the handling of an error."""
        if len(self._lines) < LINES_MAX:
            self._lines.append((level, text, about))

    def take_log_lines(self) -> list[tuple[str, str, str]]:
        """Returns log lines since the last call: level, text, object."""
        lines, self._lines = self._lines, []
        return lines


def format_error(error: Exception) -> str:
    """Returns the traceback and the text of an error; even where the error's own text raises."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception:
        return "".join(traceback.format_tb(error.__traceback__)) + type(error).__name__


def is_raised_in_state(error: BaseException) -> bool:
    """Returns whether an error was raised in a function of the state, or called by one."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(str(f.f_globals.get("__name__")).startswith(STATE) for f, _ in frames)
