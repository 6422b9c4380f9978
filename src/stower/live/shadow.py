"""Shadow mode: another scheduler decides, and this one compares each decision with its own.

Nothing is written, not even a Lease. Each watch is in order, but one watch may be ahead of the
others: events are ordered by resourceVersion, after a delay in which the other watches can catch
up. A decision is judged by the state just before it. Requested in kubernetes/kubernetes#58242.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from stower.engine.engine import Engine
from stower.engine.explain.agreement import Judgement, judge
from stower.engine.queue.entities import Place
from stower.framework.events import Event, Listed, Observed, WatchType
from stower.model.kinds import Pod

POD_SCHEDULED: Final = "PodScheduled"
UNSCHEDULABLE: Final = "Unschedulable"
# How far one watch may be behind the others.
REORDER_DELAY_NS: Final = 500_000_000


class ReorderBuffer:
    """Orders events by resourceVersion: the order in which they happened, as far as is known."""

    def __init__(self) -> None:
        # By version, then by order of arrival: version, sequence, time of arrival in ns, event.
        self._heap: list[tuple[int, int, int, Event]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, event: Event, now_ns: int) -> None:
        """Adds an event that has arrived."""
        version = 0
        if isinstance(event, Observed):
            text = event.object.metadata.resource_version
            version = int(text) if text.isdecimal() else 0
        self._sequence += 1
        heapq.heappush(self._heap, (version, self._sequence, now_ns, event))

    def pop_due(self, now_ns: int) -> Event | None:
        """Returns the first event if its delay is over: no earlier event can arrive. Else None."""
        if not self._heap or self._heap[0][2] + REORDER_DELAY_NS > now_ns:
            return None
        return heapq.heappop(self._heap)[3]

    def clear(self) -> None:
        """Drops all events, as a new list replaces them."""
        self._heap.clear()

    @property
    def wake_ns(self) -> int | None:
        """The time at which the first event is due; None if there is no event."""
        return self._heap[0][2] + REORDER_DELAY_NS if self._heap else None


class ShadowComparer:
    """Judges the decisions of another scheduler. Owns the counts by verdict and the differences.

    `on_judgement` is called with each judgement.
    """

    def __init__(self, on_judgement: Callable[[Judgement], None]) -> None:
        self.verdicts: Counter[str] = Counter()
        self.differences: list[Judgement] = []
        self._on_judgement = on_judgement
        # The last message of each pod, by uid, so that no message is judged twice.
        self._last_messages: dict[str, str] = {}

    def compare_event(self, engine: Engine, event: Event) -> None:
        """Judges the decision in an event, if any, before the engine processes the event."""
        if isinstance(event, Listed):
            self._count_missed(engine, event)
        if not isinstance(event, Observed) or not isinstance(event.object, Pod):
            return
        pod = event.object
        if event.type is WatchType.DELETED or pod.is_terminal:
            self._last_messages.pop(pod.metadata.uid, None)
            return
        for judgement in self._judge_pod(engine, pod):
            self.verdicts[judgement.verdict] += 1
            if judgement.verdict != "agrees":
                self.differences.append(judgement)
            self._on_judgement(judgement)

    def _count_missed(self, engine: Engine, event: Listed) -> None:
        """Counts decisions made while a watch was lost: the state behind them is unknown."""
        for pod in event.objects:
            entry = engine.state.pods.get(pod.metadata.uid) if isinstance(pod, Pod) else None
            if isinstance(pod, Pod) and pod.spec.node_name and entry is not None and entry.row < 0:
                self.verdicts["missed"] += 1

    def judge_pending_pods(self, engine: Engine) -> list[Judgement]:
        """Returns what this scheduler would do now with each waiting pod."""
        judgements = []
        for queued in engine.queue.pods():
            if queued.entry.row < 0 and queued.place is not Place.GATED:
                judgements.append(judge(engine.state, queued.profile, queued.entry, ""))
        return judgements

    def _judge_pod(self, engine: Engine, pod: Pod) -> Iterator[Judgement]:
        entry = engine.state.pods.get(pod.metadata.uid)
        profile = engine.profiles.get(pod.spec.scheduler_name)
        if entry is None or entry.row >= 0 or profile is None:
            return
        if pod.spec.node_name:
            self._last_messages.pop(entry.uid, None)
            yield judge(engine.state, profile, entry, pod.spec.node_name)
            return
        condition = pod.condition(POD_SCHEDULED)
        if condition is None or condition.status != "False" or condition.reason != UNSCHEDULABLE:
            return
        if self._last_messages.get(entry.uid) != condition.message:
            self._last_messages[entry.uid] = condition.message
            yield judge(engine.state, profile, entry, "", condition.message)
