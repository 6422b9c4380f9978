"""Limits the requests in flight: fewer when the server answers 429, or becomes slow.

Must not know requests or a clock.
"""

from typing import Final

IN_FLIGHT: Final = 64
IN_FLIGHT_MIN: Final = 4
# Each request in flight has a connection, and its handshake costs both sides as much CPU as three
# or four writes. So the window begins small, and grows while more requests in flight are answered
# nearly as fast as few were: a server that is busy gains nothing by more.
IN_FLIGHT_FIRST: Final = 16
GROWTH_FACTOR: Final = 1.5
# What is answered slowly may have other reasons than load: the window grows all the same, slowly.
SLOW_GROWTH: Final = 1 / 8
# Responses before the smallest latency is taken: the first may be refusals, or wait for handshakes.
WARM_RESPONSES: Final = 20
# A busy server with slow disks is slow without being overloaded: below this size, latency alone
# does not shrink the window, as fewer requests in flight would only make smaller commits.
IN_FLIGHT_SLOW_MIN: Final = 32
SLOW_SECONDS: Final = 0.5
SLOW_FACTOR: Final = 4.0
SMOOTHING: Final = 0.05
# The minimum latency grows by this share with each response, so that old minima are forgotten.
DRIFT: Final = 1e-4


class Window:
    """The limit of requests in flight, by additive increase and multiplicative decrease.

    Times are in seconds, of any clock.
    """

    def __init__(self, max_size: int = IN_FLIGHT) -> None:
        self.max_size = max_size
        self.min_size = min(IN_FLIGHT_MIN, max_size)
        self._size = self._free_size = float(min(IN_FLIGHT_FIRST, max_size))
        self._latency_s = 0.0
        self._min_latency_s = 0.0
        self._shrunk_at_s = float("-inf")
        self._responses = 0  # up to WARM_RESPONSES

    @property
    def size(self) -> int:
        """The number of requests that may be in flight."""
        return int(self._size)

    def observe_response(self, latency_s: float, now_s: float, is_throttled: bool = False) -> None:
        """Adjusts the size to a response; `is_throttled`: its status was 429."""
        if is_throttled:
            self._shrink(0.5, self.min_size, now_s)
            return
        if not self._latency_s:
            self._latency_s = self._min_latency_s = latency_s
        self._latency_s += SMOOTHING * (latency_s - self._latency_s)
        self._min_latency_s = min(self._min_latency_s * (1 + DRIFT), self._latency_s)
        if self._responses < WARM_RESPONSES:
            self._responses += 1
            self._min_latency_s = self._latency_s
        slow_s = max(SLOW_SECONDS, SLOW_FACTOR * self._min_latency_s)
        if self._latency_s > slow_s:
            self._shrink(0.8, min(IN_FLIGHT_SLOW_MIN, self.max_size), now_s)
        else:
            is_quick = self._latency_s <= GROWTH_FACTOR * self._min_latency_s
            step = 1.0 if is_quick or self._size < self._free_size else SLOW_GROWTH
            self._size = min(self._size + step / self._size, float(self.max_size))

    def _shrink(self, factor: float, min_size: int, now_s: float) -> None:
        """Shrinks the window once per round trip, as responses to earlier requests are no news."""
        if now_s - self._shrunk_at_s >= max(self._latency_s, 0.05):
            self._shrunk_at_s = now_s
            self._size = max(self._size * factor, min(float(min_size), self._size))
