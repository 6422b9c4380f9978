"""Shadow mode: another scheduler decides, and this one says what it would have done each time.

Nothing is written, not even a Lease. Each watch tells in order, but one may be ahead of the others:
changes are taken in by their resourceVersions, after a moment in which the others can tell. A
decision is judged by the state just before it. The wish is kubernetes/kubernetes#58242.
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
# What a watch may be behind the others.
REORDER_DELAY_NS: Final = 500_000_000


class ReorderBuffer:
    """Events in the order in which they happened, as far as that can be known."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Event]] = []  # version, turn, when it came, event
        self._turn = 0

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, event: Event, now_ns: int) -> None:
        """It has come."""
        version = 0
        if isinstance(event, Observed):
            text = event.object.metadata.resource_version
            version = int(text) if text.isdecimal() else 0
        self._turn += 1
        heapq.heappush(self._heap, (version, self._turn, now_ns, event))

    def pop_due(self, now_ns: int) -> Event | None:
        """The first that nothing can come before any more."""
        if not self._heap or self._heap[0][2] + REORDER_DELAY_NS > now_ns:
            return None
        return heapq.heappop(self._heap)[3]

    def clear(self) -> None:
        """A list says more."""
        self._heap.clear()

    @property
    def wake_ns(self) -> int | None:
        """When there is one."""
        return self._heap[0][2] + REORDER_DELAY_NS if self._heap else None


class ShadowComparer:
    """Judges what an engine is about to be told. `told`: hears of each decision."""

    def __init__(self, on_judgement: Callable[[Judgement], None]) -> None:
        self.verdicts: Counter[str] = Counter()
        self.differences: list[Judgement] = []
        self._on_judgement = on_judgement
        self._last_messages: dict[
            str, str
        ] = {}  # by uid: the last message, so that none is judged twice

    def compare_event(self, engine: Engine, event: Event) -> None:
        """The engine has not taken this in yet."""
        if isinstance(event, Listed):
            self._count_missed(engine, event)
        if not isinstance(event, Observed) or not isinstance(event.object, Pod):
            return
        pod = event.object
        if event.type is WatchType.DELETED or pod.is_terminal:
            self._last_messages.pop(pod.metadata.uid, None)
            return
        for found in self._judge_pod(engine, pod):
            self.verdicts[found.verdict] += 1
            if found.verdict != "agrees":
                self.differences.append(found)
            self._on_judgement(found)

    def _count_missed(self, engine: Engine, event: Listed) -> None:
        """While a watch was lost, others may have decided; nobody knows by what state."""
        for pod in event.objects:
            entry = engine.state.pods.get(pod.metadata.uid) if isinstance(pod, Pod) else None
            if isinstance(pod, Pod) and pod.spec.node_name and entry is not None and entry.row < 0:
                self.verdicts["missed"] += 1

    def judge_pending_pods(self, engine: Engine) -> list[Judgement]:
        """What it would do now with those that wait."""
        found = []
        for queued in engine.queue.pods():
            if queued.entry.row < 0 and queued.place is not Place.GATED:
                found.append(judge(engine.state, queued.profile, queued.entry, ""))
        return found

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
