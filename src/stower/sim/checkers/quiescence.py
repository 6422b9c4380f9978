"""Law `quiescence`: writes stop once nothing else changes, and never come in a storm."""

from typing import Final

from stower.framework.events import Event
from stower.framework.writes import PatchObject, Solve, Write
from stower.model.kinds import Pod, PodScheduling
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker, Court
from stower.sim.scheduler import SchedulerProcess
from stower.sim.server import Change

# Longer than what waits without an event is tried again, with the longest backoff after it.
STILL_NS: Final = 320 * SECOND_NS
# Between two looks, which are 15 s apart: fifty times what the busiest runs write.
WRITES_MAX: Final = 10_000
PER_POD_MAX: Final = 20


class Quiescence(Checker):
    """No write comes long after the last change that was not a scheduler's."""

    law = "quiescence"
    allows_rivals = True

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._changed_ns = 0
        self._last: tuple[int, Write] | None = None
        self._writes = 0

    def on_change(self, change: Change) -> None:
        """Remember when anybody else changed something."""
        if not self.court.server.is_scheduler_writing:
            self._changed_ns = self.court.agenda.now_ns

    def on_step(self, process: SchedulerProcess, event: Event, writes: list[Write]) -> None:
        """Count them, and remember the last one; the first writes of an attempt that a pod group
        repeats do not count, the next ones follow changes of drivers."""
        self._writes += len(writes)
        if self._writes > WRITES_MAX + PER_POD_MAX * len(self.court.server.all(Pod)):
            raise self.violation(
                f"{self._writes} writes since the last check, the last of them {writes[-1]}"
            )
        told = [write for write in writes if not isinstance(write, Solve)]  # no request
        if told and not any(map(self._repeats_attempt, told)):
            self._last = self.court.agenda.now_ns, told[-1]

    def _repeats_attempt(self, write: Write) -> bool:
        """Returns whether a pod of a group begins to negotiate again after a failed attempt."""
        if not isinstance(write, PatchObject) or write.view is not PodScheduling:
            return False
        key = f"{write.namespace}/{write.name}"
        pod, said = self.court.server.get(Pod, key), self.court.server.get(PodScheduling, key)
        return (
            pod is not None and bool(pod.group_name) and said is not None and said.spec.attempt > 0
        )

    def check(self) -> None:
        """Count anew."""
        self._writes = 0

    def check_end(self) -> None:
        """Compare."""
        led_ns = (p.led_ns for p in self.court.schedulers if p.engine is not None)
        since_ns = max(self._changed_ns, self.court.active_ns, *led_ns)
        if self._last is not None and self._last[0] > since_ns + STILL_NS:
            after_s = (self._last[0] - since_ns) / SECOND_NS
            raise self.violation(
                f"the last write came {after_s:.0f} s after the last change, want at most "
                f"{STILL_NS // SECOND_NS} s: {self._last[1]}"
            )
