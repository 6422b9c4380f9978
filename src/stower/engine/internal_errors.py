"""Internal errors: what is raised while a pod or tree of groups is tried concerns that one alone.

The error is reported on it, it is tried again after a delay, and all others are scheduled in the
same step. Only attempts that have changed nothing are contained: an error of the state itself, or
after an attempt has begun to apply its result, may leave a wrong state.
"""

import traceback
from collections import Counter
from typing import Final

# Log lines that wait to be taken; more errors are counted only.
LINES_MAX: Final = 100
# Modules that keep state: the objects, and what is known of devices.
STATE: Final = ("stower.state.", "stower.devices.")


class InternalErrors:
    """The errors that were contained, by part of the engine."""

    __slots__ = ("_lines", "counts")

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lines: list[tuple[str, str, str]] = []

    def record(self, part: str, about: str, error: Exception) -> str:
        """Counts and logs an error. `about`: the key of the object that was handled. Returns a
        message for the object's owner, which has no text of the error: that may have other
        objects in it, and differ from run to run."""
        self.counts[part] += 1
        if len(self._lines) < LINES_MAX:
            trace = "".join(traceback.format_exception(error))
            self._lines.append(("error", f"internal error in {part}\n{trace}", about))
        return f"internal error: {type(error).__name__}; the scheduler's log has more"

    def take_log_lines(self) -> list[tuple[str, str, str]]:
        """Returns log lines since the last call: level, text, object."""
        lines, self._lines = self._lines, []
        return lines


def is_raised_in_state(error: BaseException) -> bool:
    """Returns whether an error was raised in a function of the state, or called by one."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(str(f.f_globals.get("__name__")).startswith(STATE) for f, _ in frames)
