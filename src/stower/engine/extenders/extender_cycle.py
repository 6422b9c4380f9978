"""The scheduling cycle of pods that extenders are interested in: their nodes, and their victims.

Must not know HTTP, or what a response looks like.
"""

import numpy as np

from stower.engine.attempt_errors import ATTEMPT_ERRORS
from stower.engine.context import Context
from stower.engine.cycle.pod_attempts import PodAttempts
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.extenders.extender_calls import (
    ExtenderCalls,
    NodeResult,
    Victims,
    points_of,
)
from stower.engine.preemption.candidates import candidates_of
from stower.engine.queue.entities import QueuedPod
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.framework.extenders import Extender
from stower.framework.post_filter import PostFilterResult, best_candidates, rank_candidates
from stower.framework.reasons import Diagnosis
from stower.model.kinds import Pod
from stower.state.cluster import ClusterState

# As many candidates as upstream looks for at least (minCandidateNodesAbsolute).
CANDIDATES_MAX = 100


class ExtenderCycle:
    """Calls extenders for the pods that they are interested in, and applies the results."""

    def __init__(
        self,
        context: Context,
        extenders: tuple[Extender, ...],
        queue: SchedulingQueue,
        cycle: SchedulingCycle,
        attempts: PodAttempts,
    ) -> None:
        self._state = context.state
        self._calls = ExtenderCalls(context, extenders)
        self._cycle = cycle
        self._queue = queue
        self._attempts = attempts
        self.count = len(extenders)

    @property
    def is_busy(self) -> bool:
        """Whether a response is awaited: no other pod is tried meanwhile."""
        return self._calls.is_busy

    def reset(self) -> None:
        """Gives up the query that is under way."""
        self._calls.reset()

    def binder(self, pod: Pod) -> int:
        """Returns the extender that binds the pod, -1 for none."""
        return self._calls.binder(pod)

    def binder_is_ignorable(self, pod: Pod) -> bool:
        """Returns whether the pod is bound as usual where that extender fails."""
        binder = self.binder(pod)
        return binder >= 0 and self._calls.extenders[binder].ignorable

    def ask_nodes(self, queued: QueuedPod) -> bool:
        """Calls extenders for the feasible nodes of a pod. Returns False if no extender is
        interested, or no node is feasible."""
        interested, pod = self._calls.select_interested, queued.entry.pod
        if not interested(pod, "filter") and not interested(pod, "prioritize"):
            return False
        rows = np.flatnonzero(self._cycle.scores_of(queued.profile, queued.entry) >= 0).tolist()
        if rows:
            self._queue.defer_decision(queued)
            names = self._state.node_names
            self._calls.ask_nodes(queued, [names[row] for row in rows], self._apply_nodes)
        return bool(rows)

    def _apply_nodes(self, queued: QueuedPod, result: NodeResult | str) -> None:
        """Chooses among the nodes that extenders accepted. A result that is a text is an error: the
        attempt fails."""
        if self._queue.get(queued.entry.uid) is not queued:
            return  # the pod has left the queue since
        if isinstance(result, str):
            self._attempts.fail(queued, result)
            return
        state = self._state
        try:
            names = state.node_names[: state.row_limit]
            allowed = np.array([name in result.names for name in names], np.bool_)
            points = points_of(result, state)
            row = self._cycle.choose_among(queued.profile, queued.entry, allowed, points)
            if row >= 0:
                self._attempts.assume(queued, row)
                self._queue.end_decision(queued)
            else:
                self._attempts.refuse(queued, result.refused)
        except ATTEMPT_ERRORS as error:
            self._attempts.fail(queued, str(error))

    def ask_victims(self, queued: QueuedPod, diagnosis: Diagnosis) -> bool:
        """Calls extenders for the victims that may be evicted. Returns False if no extender is
        interested."""
        if not self._calls.select_interested(queued.entry.pod, "preempt"):
            return False
        state = self._state
        search = self._cycle.candidates(queued.profile, queued.entry)
        found = search.candidates()
        victims: Victims = {}
        for i in rank_candidates(found)[:CANDIDATES_MAX].tolist():
            row = int(found.rows[i])
            victims[state.node_names[row]] = ([*search.victims(row)], int(found.pdb_violations[i]))

        def apply_victims(queued: QueuedPod, left: Victims | str) -> None:
            if self._queue.get(queued.entry.uid) is not queued:
                return
            if not isinstance(left, str):
                left = _filter_placed(left, state)
            if isinstance(left, str) or not left:
                why = left if isinstance(left, str) else "no candidate node for preemption"
                self._attempts.apply_refusal(
                    queued, diagnosis, PostFilterResult(f"preemption: {why}")
                )
                return
            name = state.node_names[search.pick(best_candidates(candidates_of(state, left)))]
            post_filter_result = PostFilterResult("", name, tuple(left[name][0]))
            self._attempts.apply_refusal(queued, diagnosis, post_filter_result)

        self._queue.defer_decision(queued)
        self._calls.ask_victims(queued, victims, apply_victims)
        return True


def _filter_placed(victims: Victims, state: ClusterState) -> Victims:
    """Returns the nodes that still have all their victims: the responses took time."""
    return {
        name: found
        for name, found in victims.items()
        if (row := state.row_of(name)) >= 0
        and all(state.pods.get(v.uid) is v and v.row == row for v in found[0])
    }
