"""How many requests may be in flight: fewer when the server says so, or grows slow."""

from typing import Final

IN_FLIGHT: Final = 64
IN_FLIGHT_MIN: Final = 4
# Slow disks make a busy server slow without being overloaded: below this, latency alone takes
# nothing away, as fewer requests in flight would only make smaller commits.
IN_FLIGHT_SLOW_MIN: Final = 32
SLOW_SECONDS: Final = 0.5
SLOW_FACTOR: Final = 4.0
SMOOTHING: Final = 0.05
# The quickest that was seen is forgotten by this share with each answer.
DRIFT: Final = 1e-4


class Window:
    """Additive increase, multiplicative decrease. Times in seconds, of any clock."""

    def __init__(self, max_size: int = IN_FLIGHT) -> None:
        self.max_size = max_size
        self.min_size = min(IN_FLIGHT_MIN, max_size)
        self._size = float(max_size)
        self._latency_s = 0.0
        self._min_latency_s = 0.0
        self._shrunk_at_s = float("-inf")

    @property
    def size(self) -> int:
        """Requests that may be in flight."""
        return int(self._size)

    def observe_response(self, latency_s: float, now_s: float, is_throttled: bool = False) -> None:
        """An answer came; `refused`: with 429."""
        if is_throttled:
            self._shrink(0.5, self.min_size, now_s)
            return
        if not self._latency_s:
            self._latency_s = self._min_latency_s = latency_s
        self._latency_s += SMOOTHING * (latency_s - self._latency_s)
        self._min_latency_s = min(self._min_latency_s * (1 + DRIFT), self._latency_s)
        slow = max(SLOW_SECONDS, SLOW_FACTOR * self._min_latency_s)
        if self._latency_s > slow:
            self._shrink(0.8, min(IN_FLIGHT_SLOW_MIN, self.max_size), now_s)
        else:
            self._size = min(self._size + 1 / self._size, float(self.max_size))

    def _shrink(self, factor: float, min_size: int, now_s: float) -> None:
        """Once per round trip: the answers to what was sent before say nothing new."""
        if now_s - self._shrunk_at_s >= max(self._latency_s, 0.05):
            self._shrunk_at_s = now_s
            self._size = max(self._size * factor, min(float(min_size), self._size))
