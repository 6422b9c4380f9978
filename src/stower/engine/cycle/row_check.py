"""Whether a waiting pod may be helped by a change on one row: it fits there now, or would without
pods of lower priority; else, who refuses it there.

Must not know the queue.
"""

from stower.engine.attempt_errors import ATTEMPT_ERRORS
from stower.engine.cycle.reference import find_refusal
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.preemption.displacement import displaceable_pods
from stower.framework.profile import Profile
from stower.groups.units import unit_of
from stower.model.kinds.pod import PREEMPT_NEVER
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry


class RowCheck:
    """Checks pods against the filters of their profile on single rows."""

    def __init__(self, state: ClusterState, cycle: SchedulingCycle) -> None:
        self._state = state
        self._cycle = cycle

    def find_refusing(self, profile: Profile, entry: PodEntry, row: int) -> frozenset[str]:
        """Returns the plugins that refuse the row, as it is and once all that the pod may evict is
        gone; none where one of both would do, or an attempt would end in an error."""
        try:
            return self._find_refusing(profile, entry, row)
        except ATTEMPT_ERRORS:
            return frozenset()

    def _find_refusing(self, profile: Profile, entry: PodEntry, row: int) -> frozenset[str]:
        name = self._first_refusing(profile, entry, row)
        if not name:
            return frozenset()
        state, pod = self._state, entry.pod
        displaced = displaceable_pods(state, profile, pod) if profile.displacing_plugins else ()
        gone = {other.uid: other for other in displaced if other.row == row}
        if pod.spec.preemption_policy != PREEMPT_NEVER:
            for other in state.pods_on(row):
                if unit_of(state.groups, other).priority < pod.priority:
                    gone[other.uid] = other
        if not gone:
            return frozenset((name,))
        with state.trial():
            for other in gone.values():
                state.displace(other)
            still = self._first_refusing(profile, entry, row)
        return frozenset((name, still) if still else ())

    def _first_refusing(self, profile: Profile, entry: PodEntry, row: int) -> str:
        """Returns the first plugin that refuses the row, as an attempt would record it; "" for
        none, or where that is not known."""
        for plugin in self._cycle.evaluation(profile, entry.shape).plugins.pod_pre_filters:
            if plugin.pre_filter_pod(entry.pod, entry.shape, self._state) is not None:
                return plugin.name
        if self._cycle.fits(profile, entry, row):
            return ""
        found = find_refusal(profile, self._state, entry.shape, entry.pod, row, [])
        return profile.filters[found[0]].name if found is not None else ""
