"""The cycle where there are extenders: which nodes they leave, and whom they spare."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from stower.engine.attempt_errors import FAULTS
from stower.engine.cycle.scheduling_cycle import Cycle
from stower.engine.extenders.extender_calls import Extending, Opinion, Victims, points_of
from stower.engine.preemption.evaluator import candidates_of
from stower.engine.queue.entities import QueuedPod
from stower.engine.queue.scheduling_queue import Queue
from stower.framework.events import ExtenderAnswered
from stower.framework.post_filter import Remedy, best, ranked
from stower.framework.reasons import Diagnosis, Rejection
from stower.model.kinds import Pod
from stower.state.cluster import ClusterState

# As many candidates as upstream looks for at least (minCandidateNodesAbsolute).
CANDIDATES_MAX = 100


class Outcomes(Protocol):
    """What may become of an attempt."""

    state: ClusterState

    def assume(self, queued: QueuedPod, row: int) -> None:
        """The pod has its node."""

    def refuse(self, queued: QueuedPod, extended: Mapping[str, Rejection] | None = None) -> None:
        """No node will do."""

    def refused(self, queued: QueuedPod, diagnosis: Diagnosis, remedy: Remedy) -> None:
        """No node will do, and this is done about it."""

    def fail(self, queued: QueuedPod, message: str) -> None:
        """Something went wrong."""


class ExtendedCycle:
    """Asks extenders where the pod is their business."""

    def __init__(
        self, extending: Extending, cycle: Cycle, queue: Queue, outcomes: Outcomes
    ) -> None:
        self._extending = extending
        self._cycle = cycle
        self._queue = queue
        self._outcomes = outcomes

    @property
    def count(self) -> int:
        """How many extenders there are."""
        return len(self._extending.extenders)

    @property
    def is_busy(self) -> bool:
        """Whether an answer is awaited."""
        return self._extending.is_busy

    def answered(self, event: ExtenderAnswered) -> bool:
        """An answer came. Whether it was for a question about nodes or victims."""
        return self._extending.answered(event)

    def binder(self, pod: Pod) -> int:
        """The extender that binds the pod, -1 for none."""
        return self._extending.binder(pod) if self._extending.extenders else -1

    def binder_is_ignorable(self, pod: Pod) -> bool:
        """Whether the pod is bound as usual where that extender fails."""
        binder = self.binder(pod)
        return binder >= 0 and self._extending.extenders[binder].ignorable

    def asks(self, queued: QueuedPod) -> bool:
        """Ask about a pod that fits somewhere, if it is the business of any."""
        if not self._extending.extenders:
            return False
        asked, pod = self._extending.interested, queued.entry.pod
        if not asked(pod, "filter") and not asked(pod, "prioritize"):
            return False
        rows = np.flatnonzero(self._cycle.standing(queued.profile, queued.entry) >= 0).tolist()
        if rows:
            self._queue.decide_later(queued)
            names = self._outcomes.state.names
            self._extending.judge(queued, [names[row] for row in rows], self._judged)
        return bool(rows)

    def _judged(self, queued: QueuedPod, opinion: Opinion | str) -> None:
        if self._queue.get(queued.entry.uid) is not queued:
            return  # gone meanwhile
        if isinstance(opinion, str):
            self._outcomes.fail(queued, opinion)
            return
        state = self._outcomes.state
        try:
            names = state.names[: state.row_limit]
            allowed = np.array([name in opinion.names for name in names], np.bool_)
            points = points_of(opinion, state)
            row = self._cycle.choose_among(queued.profile, queued.entry, allowed, points)
            if row >= 0:
                self._outcomes.assume(queued, row)
                self._queue.decided(queued)
            else:
                self._outcomes.refuse(queued, opinion.refused)
        except FAULTS as error:
            self._outcomes.fail(queued, str(error))

    def asks_whom_to_spare(self, queued: QueuedPod, diagnosis: Diagnosis) -> bool:
        """Ask who may be evicted, before anybody is."""
        if not self._extending.interested(queued.entry.pod, "preempt"):
            return False
        state = self._outcomes.state
        search = self._cycle.candidates(queued.profile, queued.entry)
        found = search.candidates()
        victims: Victims = {}
        for i in ranked(found)[:CANDIDATES_MAX].tolist():
            row = int(found.rows[i])
            victims[state.names[row]] = ([*search.victims(row)], int(found.violations[i]))

        def spared(queued: QueuedPod, left: Victims | str) -> None:
            if self._queue.get(queued.entry.uid) is not queued:
                return
            if not isinstance(left, str):
                left = _still_there(left, state)
            if isinstance(left, str) or not left:
                why = left if isinstance(left, str) else "no candidate node for preemption"
                self._outcomes.refused(queued, diagnosis, Remedy(f"preemption: {why}"))
                return
            name = state.names[search.pick(best(candidates_of(state, left)))]
            self._outcomes.refused(queued, diagnosis, Remedy("", name, tuple(left[name][0])))

        self._queue.decide_later(queued)
        self._extending.spare(queued, victims, spared)
        return True


def _still_there(victims: Victims, state: ClusterState) -> Victims:
    """Nodes that are there with all their victims: asking took its time."""
    return {
        name: found
        for name, found in victims.items()
        if (row := state.row_of(name)) >= 0
        and all(state.pods.get(v.uid) is v and v.row == row for v in found[0])
    }
