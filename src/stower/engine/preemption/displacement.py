"""Pods that are in the way of nobody: those that a plugin names give way to a pod.

A node is chosen as if they were nowhere. Those that hold the room which the pod needs are deleted
in the same decision, and the pod is bound when that was answered.

Source: seed 001 ("placeholders do not count").
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from stower.engine.cycle.scheduling_cycle import Cycle
from stower.framework.profile import Profile
from stower.framework.retries import CONFLICT, UNKNOWN
from stower.framework.writes import DeletePod, Write
from stower.model.kinds import Pod
from stower.model.times import SECOND_NS
from stower.state.cluster import ClusterState, PodEntry

TIMEOUT_NS: Final = 30 * SECOND_NS
AGAIN_NS: Final = SECOND_NS
# Who may not be deleted is asked last for so long: there may be other nodes.
STAYS_NS: Final = 60 * SECOND_NS
GONE: Final = (0, 404)
# Nobody knows, or another pod has its name, which the watch will show: look again.
AGAIN: Final = (UNKNOWN, CONFLICT)


class GivingWay:
    """Chooses rows beside pods that give way."""

    def __init__(self, state: ClusterState, cycle: Cycle) -> None:
        self._state = state
        self._cycle = cycle

    def choose(self, profile: Profile, entry: PodEntry) -> tuple[int, tuple[PodEntry, ...]]:
        """The row for the pod, -1 where no node will do; and who leaves it."""
        others = making_way(self._state, profile, entry.pod)
        if not others:
            return self._cycle.choose(profile, entry), ()
        now_ns = self._state.now_ns
        willing = [other for other in others if other.stays_ns <= now_ns]
        row, leaving = self._beside(profile, entry, willing)
        if row < 0 and len(willing) < len(others):
            return self._beside(profile, entry, others)  # it may be allowed by now
        return row, leaving

    def _beside(
        self, profile: Profile, entry: PodEntry, others: Sequence[PodEntry]
    ) -> tuple[int, tuple[PodEntry, ...]]:
        """The same with these out of the way."""
        state = self._state
        with state.trial():
            for other in others:
                state.displace(other)
            row = self._cycle.choose(profile, entry)
        if row < 0:
            return row, ()
        return row, self._leaving(profile, entry, row, [o for o in others if o.row == row])

    def placing(self, profiles: Mapping[str, Profile]) -> "_Placing":
        """What companions are told of pods."""
        return _Placing(profiles, self._cycle)

    def _leaving(
        self, profile: Profile, entry: PodEntry, row: int, here: Sequence[PodEntry]
    ) -> tuple[PodEntry, ...]:
        """Of those on the row, as few as will do; who leaves already comes first."""
        state, gone = self._state, list[PodEntry]()
        order = sorted(here, key=lambda other: not _is_leaving(other))
        with state.trial():
            for other in order:
                if self._cycle.would_do(profile, entry, row):
                    break
                state.displace(other)
                gone.append(other)
        for other in gone[:-1]:  # of unequal size, some may stay for those that follow
            rest = [e for e in gone if e is not other]
            with state.trial():
                for leaving in rest:
                    state.displace(leaving)
                if self._cycle.would_do(profile, entry, row):
                    gone = rest
        return tuple(gone)


def making_way(state: ClusterState, profile: Profile, pod: Pod) -> list[PodEntry]:
    """Whoever gives way to the pod, the first to go first."""
    named = (plugin.give_way(pod, state) for plugin in profile.way_makers)
    found = {e.uid: e for entries in named for e in entries if e.row >= 0 and not e.assumed}
    return list(found.values())


class _Placing:
    """See framework.companion.Placing."""

    def __init__(self, profiles: Mapping[str, Profile], cycle: Cycle) -> None:
        self._profiles = profiles
        self._cycle = cycle

    def row_for(self, entry: PodEntry) -> int:
        """-1 as well where another scheduler places it."""
        profile = self._profiles.get(entry.pod.spec.scheduler_name)
        return self._cycle.choose(profile, entry) if profile is not None else -1

    def fits(self, entry: PodEntry, row: int) -> bool:
        """As the filters say."""
        profile = self._profiles.get(entry.pod.spec.scheduler_name)
        return profile is not None and self._cycle.would_do(profile, entry, row)


class Clearing:
    """See framework.reserve.Reservation: these leave their node before the pod is bound to it."""

    expired = "pods that are to give way are still there"
    timeout_ns = TIMEOUT_NS
    awaits: tuple[tuple[type, str, str], ...] = ()
    again_ns: int | None = None

    def __init__(self, leaving: Sequence[PodEntry]) -> None:
        self._left = {entry.uid: entry for entry in leaving}
        self._asked: dict[int, str] = {}
        self._is_refused = False

    def hold(self, state: ClusterState) -> None:
        """Their room is the pod's from now on, which is placed beside them."""

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Each is deleted at once, whatever time it gives itself."""
        if self.again_ns is not None and state.now_ns < self.again_ns:
            return []
        self.again_ns = None
        found: list[Write] = []
        asked = set(self._asked.values())
        for uid, entry in self._left.items():
            if uid in asked or self._is_refused:
                continue
            meta, id = entry.pod.metadata, next_id()
            self._asked[id] = uid
            found.append(DeletePod(id, meta.namespace, meta.name, uid, 0))
        return found

    def answered(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """No answer, and it is tried again; a refusal is the end."""
        uid = self._asked.pop(id)
        if code not in (*GONE, *AGAIN) and uid in self._left:
            self._left[uid].stays_ns = state.now_ns + STAYS_NS
        if code in GONE:
            gone = self._left.pop(uid, None)  # the watch may have told before
            if gone is not None:
                gone.is_leaving = True
        elif code in AGAIN:
            self.again_ns = state.now_ns + AGAIN_NS
        else:
            self._is_refused = True
        return not self._is_refused

    def fault(self, state: ClusterState) -> str:
        """Nothing but a refusal is in the way."""
        return ""

    def is_done(self, state: ClusterState) -> bool:
        """All are gone."""
        for uid in [uid for uid in self._left if uid not in state.pods]:
            del self._left[uid]
        return not self._left

    def note(self) -> tuple[str, str]:
        """Nobody has to wait for it."""
        return "", ""

    def release(self, state: ClusterState) -> None:
        """Whoever was told to leave leaves."""
        self._left.clear()

    def undo(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """They come again by themselves."""
        return []


def _is_leaving(entry: PodEntry) -> bool:
    return entry.is_leaving or entry.pod.metadata.deletion_timestamp is not None
