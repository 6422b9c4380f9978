"""What an attempt for a tree learns from the refusals of plugins: how many pods of each kind a node
can have, where neither amounts nor rules have said so.

Must not know how a placement is searched.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.groups.tree_plan import Plan, assume_reserved
from stower.framework.profile import Profile
from stower.groups.problem import Kind, Problem
from stower.groups.problem_builder import IndexedProblem
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry


class LearnedCaps:
    """The caps of one attempt. `is_cut`: they may rule out a placement that there is."""

    def __init__(self, state: ClusterState, cycle: SchedulingCycle, profile: Profile) -> None:
        self._state = state
        self._cycle = cycle
        self._profile = profile
        self.is_cut = False
        self._caps: dict[int, Ints] = {}  # by kind of pod: the most pods per node
        # By kind and node, where plugins refused pods: how many of the kind the node had.
        self._refused: dict[tuple[int, int], int] = {}

    def remember(self, built: IndexedProblem, refused: Plan, plan: Plan) -> None:
        """Remembers which pods plugins refused on their rows, next to those of the plan."""
        kinds = kinds_of(built)
        had = Counter((kinds[q.uid], row) for q, row in plan)
        self._refused = {}
        for queued, row in refused:
            kind = kinds[queued.uid]
            self._refused[kind, int(np.searchsorted(built.rows, row))] = had[kind, row]

    def tighten(self, built: IndexedProblem, problem: Problem) -> bool:
        """Caps the pods of the refused kinds: by what each node takes alone; where that was known,
        at what the nodes had, which may rule out too much. Returns False where nothing was refused.
        """
        is_tighter = False
        for kind in sorted({kind for kind, _ in self._refused}):
            if kind not in self._caps:
                self._caps[kind] = self._pod_limits_by_node(built, problem, kind)
                is_tighter |= any(
                    self._caps[kind][node] <= had
                    for (of, node), had in self._refused.items()
                    if of == kind
                )
        if is_tighter or not self._refused:
            return is_tighter
        for (kind, node), had in self._refused.items():
            self._caps[kind][node] = min(int(self._caps[kind][node]), had)
        self.is_cut = True
        return True

    def _pod_limits_by_node(self, built: IndexedProblem, problem: Problem, kind: int) -> Ints:
        """Returns int64[node]: pods of the kind that plugins accept on each node by themselves."""
        entries = [
            entry
            for group, parts in zip(problem.groups, built.pods, strict=True)
            for p, part in enumerate(parts)
            if group.parts[p].kind == kind
            for entry in part
        ]
        caps = problem.kinds[kind].cap.copy()
        slots = problem.slots(kind, problem.free, slice(0, problem.node_count))
        first = self._cycle.lasting_rows(self._profile, entries[0])
        for node in np.flatnonzero(slots > 0).tolist():
            row, most = int(built.rows[node]), min(int(slots[node]), len(entries))
            fitting = self._count_fitting(entries[:most], row) if first[row] else 0
            if fitting < most:
                caps[node] = fitting
                shape = entries[fitting].shape
                # Another choice of devices and volumes may serve more pods.
                self.is_cut |= shape.has_claims or shape.has_storage
        return caps

    def _count_fitting(self, entries: Sequence[PodEntry], row: int) -> int:
        """Returns how many of these plugins accept on the row, one after another; the first fits
        there."""
        if len(entries) == 1:
            return 1
        with self._state.trial():
            for count, entry in enumerate(entries):
                if count and not self._cycle.fits(self._profile, entry, row, lasting=True):
                    return count
                assume_reserved(self._state, self._profile, entry, row)
        return len(entries)

    def apply(self, problem: Problem) -> Problem:
        """Returns the problem with the caps."""
        if not self._caps:
            return problem
        kinds = tuple(
            Kind(kind.demand, np.minimum(kind.cap, self._caps[k])) if k in self._caps else kind
            for k, kind in enumerate(problem.kinds)
        )
        return msgspec.structs.replace(problem, kinds=kinds)


def kinds_of(built: IndexedProblem) -> dict[str, int]:
    """Returns the kind of each pod of a problem, by uid."""
    return {
        entry.uid: group.parts[p].kind
        for group, parts in zip(built.problem.groups, built.pods, strict=True)
        for p, entries in enumerate(parts)
        for entry in entries
    }
