"""Law `forgotten`: each pod without a node is in one place of the queue, or waits for a write."""

from typing import Final

from stower.engine.queue.entities import Place
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker

# Whoever leads and has not stood still for so long has been told.
TOLD_NS: Final = 60 * SECOND_NS


class QueueMembership(Checker):
    """Looks at the queue of the engine that leads."""

    law = "forgotten"
    allows_rivals = True

    def check(self) -> None:
        """Each pod that was there a minute ago."""
        now_ns = self.court.agenda.now_ns
        for process in self.court.schedulers:
            engine = process.engine
            if engine is None or now_ns - process.awake_since_ns < TOLD_NS:
                continue
            for pod in self.court.server.pods_on("").values():
                if pod.is_terminal or now_ns - self.court.server.creation_ns(pod) < TOLD_NS:
                    continue
                if self.court.has_rivals and pod.spec.scheduler_name not in engine.profiles:
                    continue
                queued = engine.queue.get(pod.metadata.uid)
                if queued is None or queued.place is Place.NOWHERE:
                    raise self.violation(f"pod {pod.key} is not in the queue of {process.name}")
                if queued.place is Place.IN_FLIGHT and not queued.entry.is_assumed:
                    raise self.violation(f"pod {pod.key} is in flight, but waits for no response")
                if queued.place is Place.ACTIVE and engine.next_wake_ns is None:
                    raise self.violation(
                        f"pod {pod.key} is active, but the engine has no wake time"
                    )
