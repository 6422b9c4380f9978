"""Times attempts and plugins, for shells that report durations.

The core reads no clock: a shell passes one in, and no decision depends on it. A sample of attempts
is timed plugin by plugin, as in kube-scheduler (pluginMetricsSamplePercent).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from stower.framework.plugin import Plugin

# One of this many attempts is timed plugin by plugin.
SAMPLE_INTERVAL: Final = 10
TIMINGS_MAX: Final = 10_000  # no shell takes them: sampling stops

# Methods that run an extension point for many rows, or for a pod. A method for one changed row
# takes a microsecond, and timing it would take another.
POINTS: Final[Mapping[str, str]] = {
    "pre_enqueue": "PreEnqueue",
    "pre_filter": "PreFilter",
    "pre_filter_pod": "PreFilter",
    "filter": "Filter",
    "passes": "Filter",
    "filter_pod": "Filter",
    "post_filter": "PostFilter",
    "score": "Score",
    "score_pod": "Score",
    "domain_scores": "Score",
    "reserve": "Reserve",
    "post_bind": "PostBind",
}


class Stopwatch:
    """The timings of one engine; `clock_ns` None: times nothing."""

    def __init__(self, clock_ns: Callable[[], int] | None = None) -> None:
        self.is_running = clock_ns is not None
        self.is_sampling = False
        self.timings: list[tuple[str, str, int]] = []  # plugin, extension point, ns
        self._clock_ns = clock_ns
        self._started_ns = 0
        self._count = 0

    def start(self) -> None:
        """Starts the timing of an attempt."""
        if self._clock_ns is not None:
            self._started_ns = self._clock_ns()
            self._count += 1
            self.is_sampling = (
                self._count % SAMPLE_INTERVAL == 0 and len(self.timings) < TIMINGS_MAX
            )

    def elapsed_ns(self) -> int:
        """Returns the ns since the attempt began, 0 without a clock."""
        return self._clock_ns() - self._started_ns if self._clock_ns is not None else 0

    def take_timings(self) -> list[tuple[str, str, int]]:
        """Returns the timings since the last call: plugin, extension point, ns."""
        found, self.timings = self.timings, []
        return found

    def instrument(self, plugin: Plugin) -> None:
        """Wraps the plugin's methods, which are timed while an attempt is sampled."""
        if self._clock_ns is not None:
            for method, point in POINTS.items():
                is_own = getattr(type(plugin), method) is not getattr(Plugin, method)
                if is_own or method in vars(plugin):
                    setattr(plugin, method, self._timed_call(plugin, method, point))

    def _timed_call(self, plugin: Plugin, method: str, point: str) -> Callable[..., Any]:
        call, clock_ns, name = getattr(plugin, method), self._clock_ns, plugin.name
        assert clock_ns is not None

        def lap(*args: Any) -> Any:
            if not self.is_sampling:
                return call(*args)
            began_ns = clock_ns()
            try:
                return call(*args)
            finally:
                self.timings.append((name, point, clock_ns() - began_ns))

        return lap


DISABLED_STOPWATCH: Final = Stopwatch()
