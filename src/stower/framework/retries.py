"""Retry policy of the shells: which writes are sent again, and the final code for the engine.

A shell retries a write where another try may succeed and a second execution does no harm. It does
not retry a binding of unknown outcome: the engine handles that case.
"""

from typing import Final

from stower.framework.writes import ApiWrite, Bind

# HTTP status codes.
TOO_MANY_REQUESTS: Final = 429
UNAVAILABLE: Final = 503
UNKNOWN: Final = 504  # Gateway Timeout; stands for every unknown outcome
CONFLICT: Final = 409
TRIES: Final = 5  # including the first
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 5.0


def is_retriable(write: ApiWrite, status: int) -> bool:
    """Returns whether to send the write again after this HTTP status (0: no response came)."""
    if isinstance(write, Bind):
        return status in (TOO_MANY_REQUESTS, UNAVAILABLE)
    return status in (0, TOO_MANY_REQUESTS, 500, 502, UNAVAILABLE, UNKNOWN)


def is_outcome_unknown(status: int) -> bool:
    """Returns whether it is unknown if a write with this HTTP status (0: no response came) was
    carried out."""
    return status == 0 or status >= 500


def final_code(write: ApiWrite, status: int, was_outcome_unknown: bool) -> int:
    """Returns the code for the engine after the last try. `was_outcome_unknown`: the outcome of an
    earlier try is unknown, so that a conflict may be with that try itself."""
    if status == CONFLICT and was_outcome_unknown:
        return UNKNOWN
    return UNKNOWN if isinstance(write, Bind) and status >= 500 else status


def pause_seconds(attempt: int) -> tuple[float, float]:
    """Returns the shortest and the longest pause after a try, counted from 0. Both double with each
    try, up to PAUSE_SECONDS_MAX."""
    longest = min(PAUSE_SECONDS * 2**attempt, PAUSE_SECONDS_MAX)
    return longest / 2, longest
