"""Whether a waiting pod may be helped by a change on one row: it fits there now, or would without
pods of lower priority; else, who refuses it there.

Must not know the queue.
"""

from typing import Final

from stower.engine.cycle.reference import find_refusal
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.framework.profile import Profile
from stower.groups.units import unit_of
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry

NEVER: Final = "Never"  # a pod's preemptionPolicy


class RowCheck:
    """Checks pods against the filters of their profile on single rows."""

    def __init__(self, state: ClusterState, cycle: SchedulingCycle) -> None:
        self._state = state
        self._cycle = cycle

    def find_refusing(self, profile: Profile, entry: PodEntry, row: int) -> frozenset[str]:
        """Returns the plugins that refuse the row, as it is and once all that the pod may evict is
        gone; none where one of both would do."""
        name = self._first_refusing(profile, entry, row)
        state, priority = self._state, entry.pod.priority
        here = [other for other in state.pods_on(row) if other.pod.priority < priority]
        if not name or not here or entry.pod.spec.preemption_policy == NEVER:
            return frozenset((name,) if name else ())
        gone = {e.uid: e for other in here for e in unit_of(state.groups, other).pods}
        with state.trial():
            for other in gone.values():
                state.displace(other)
            still = self._first_refusing(profile, entry, row)
        return frozenset((name, still) if still else ())

    def _first_refusing(self, profile: Profile, entry: PodEntry, row: int) -> str:
        """Returns the first filter that refuses the row, as an attempt would record it. "" also
        where the pod is refused without any filter."""
        if self._cycle.fits(profile, entry, row):
            return ""
        found = find_refusal(profile, self._state, entry.shape, entry.pod, row, [])
        return profile.filters[found[0]].name if found is not None else ""
