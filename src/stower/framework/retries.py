"""Which refused writes are tried again by whoever sends them, and what the engine is told at last.

What another try may cure, and what does no harm when it is done twice, is tried again. A binding of
which nobody knows whether it was made is not: the engine knows what to do.
"""

from typing import Final

from stower.framework.writes import ApiWrite, Bind

TOO_MANY_REQUESTS: Final = 429
UNAVAILABLE: Final = 503
UNKNOWN: Final = 504
CONFLICT: Final = 409
TRIES: Final = 5
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 5.0


def is_retriable(write: ApiWrite, status: int) -> bool:
    """Whether to try the write again after this HTTP status (0: no answer came)."""
    if isinstance(write, Bind):
        return status in (TOO_MANY_REQUESTS, UNAVAILABLE)
    return status in (0, TOO_MANY_REQUESTS, 500, 502, UNAVAILABLE, UNKNOWN)


def is_outcome_unknown(status: int) -> bool:
    """Whether nobody knows if a write that was answered so (0: not at all) was carried out."""
    return status == 0 or status >= 500


def final_code(write: ApiWrite, status: int, was_outcome_unknown: bool) -> int:
    """What the engine is told. `was_lost`: an earlier try was, and the conflict may be with it."""
    if status == CONFLICT and was_outcome_unknown:
        return UNKNOWN
    return UNKNOWN if isinstance(write, Bind) and status >= 500 else status


def pause_seconds(attempt: int) -> tuple[float, float]:
    """The shortest and the longest pause after the try of this number, from 0: they double."""
    longest = min(PAUSE_SECONDS * 2**attempt, PAUSE_SECONDS_MAX)
    return longest / 2, longest
