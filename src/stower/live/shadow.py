"""Shadow mode: another scheduler decides, and this one compares each decision with its own.

Nothing is written, not even a Lease. Each watch is in order, but one watch may be ahead of the
others: events are ordered by resourceVersion, after a delay in which the other watches can catch
up. A decision is judged by the state just before it, which is not that before the binding where a
pod waits for volumes in between (pre_binds.py). Requested in kubernetes/kubernetes#58242.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from stower.engine.engine import Engine
from stower.engine.explain.agreement import Judgement, judge
from stower.engine.queue.entities import Place
from stower.framework.events import Event, Listed, Observed, WatchType
from stower.live.pre_binds import POD_SCHEDULED, PreBinds
from stower.model.kinds import Pod
from stower.state.devices import claim_refs
from stower.state.volumes import claims_of

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
        self._pre_binds = PreBinds()

    def take(self, engine: Engine, event: Event) -> Iterator[Event]:
        """Judges the decision in an event, if any, before the engine processes the event. Yields
        what the engine has to process."""
        decided = None
        yield from self._pre_binds.undo(engine, event)
        if isinstance(event, Listed):
            self._count_missed(engine, event)
        elif isinstance(event, Observed):
            decided = self._pre_binds.find_decision(engine, event)
            if decided is not None:
                self._tell(engine, decided.pod, decided.node_name)
            elif isinstance(event.object, Pod):
                self._judge_pod(engine, event, event.object)
        yield from self._pre_binds.events(event, decided)

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

    def _judge_pod(self, engine: Engine, event: Observed, pod: Pod) -> None:
        if event.type is WatchType.DELETED or pod.is_terminal:
            self._last_messages.pop(pod.metadata.uid, None)
        elif pod.spec.node_name:
            self._last_messages.pop(pod.metadata.uid, None)
            self._tell(engine, pod, pod.spec.node_name)
        elif pod.metadata.uid not in self._pre_binds:
            condition = pod.condition(POD_SCHEDULED)
            is_refused = condition is not None and condition.status == "False"
            if condition is None or not is_refused or condition.reason != UNSCHEDULABLE:
                return
            if self._last_messages.get(pod.metadata.uid) != condition.message:
                self._last_messages[pod.metadata.uid] = condition.message
                self._tell(engine, pod, "", condition.message)

    def _tell(self, engine: Engine, pod: Pod, node_name: str, message: str = "") -> None:
        """Judges one decision; see judge."""
        entry = engine.state.pods.get(pod.metadata.uid)
        profile = engine.profiles.get(pod.spec.scheduler_name)
        if entry is None or entry.row >= 0 or profile is None:
            return
        found = judge(engine.state, profile, entry, node_name, message)
        if node_name or found.verdict != "agrees":
            if _is_claim_late(engine, pod, is_bound=bool(pod.spec.node_name)):
                self.verdicts["race"] += 1
                return
        self.verdicts[found.verdict] += 1
        if found.verdict != "agrees":
            self.differences.append(found)
        self._on_judgement(found)


def _is_claim_late(engine: Engine, pod: Pod, is_bound: bool) -> bool:
    """Returns whether the watches have not shown a claim of the pod as the other scheduler must
    have seen it: that it exists, and where the pod is bound, that its binding or allocation is
    complete."""
    state, namespace = engine.state, pod.metadata.namespace
    for name, _ in claims_of(pod):
        claim = state.volumes.claim(f"{namespace}/{name}")
        if claim is None or (is_bound and not claim.spec.volume_name):
            return True
    for ref in claim_refs(pod):
        if ref.name == "":
            continue  # no claim is needed
        device_claim = state.devices.api_claim(f"{namespace}/{ref.name}") if ref.name else None
        if device_claim is None or (is_bound and device_claim.status.allocation is None):
            return True
    return False
