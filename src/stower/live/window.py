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

    def __init__(self, most: int = IN_FLIGHT) -> None:
        self.most = most
        self.least = min(IN_FLIGHT_MIN, most)
        self._size = float(most)
        self._latency_s = 0.0
        self._quickest_s = 0.0
        self._cut_at_s = float("-inf")

    @property
    def size(self) -> int:
        """Requests that may be in flight."""
        return int(self._size)

    def answered(self, latency_s: float, now_s: float, refused: bool = False) -> None:
        """An answer came; `refused`: with 429."""
        if refused:
            self._shrink(0.5, self.least, now_s)
            return
        if not self._latency_s:
            self._latency_s = self._quickest_s = latency_s
        self._latency_s += SMOOTHING * (latency_s - self._latency_s)
        self._quickest_s = min(self._quickest_s * (1 + DRIFT), self._latency_s)
        slow = max(SLOW_SECONDS, SLOW_FACTOR * self._quickest_s)
        if self._latency_s > slow:
            self._shrink(0.8, min(IN_FLIGHT_SLOW_MIN, self.most), now_s)
        else:
            self._size = min(self._size + 1 / self._size, float(self.most))

    def _shrink(self, factor: float, least: int, now_s: float) -> None:
        """Once per round trip: the answers to what was sent before say nothing new."""
        if now_s - self._cut_at_s >= max(self._latency_s, 0.05):
            self._cut_at_s = now_s
            self._size = max(self._size * factor, min(float(least), self._size))
