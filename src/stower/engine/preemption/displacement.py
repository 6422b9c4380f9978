"""Chooses a node as if displaceable pods (placeholders) were absent, then deletes the ones that
occupy the room.

A plugin names the displaceable pods. Those on the chosen node that the pod needs room of are
deleted in the same decision, and the pod is bound when that was answered. Must not know which pods
are placeholders.

Source: seed 001 ("placeholders do not count").
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Final

from stower.engine.attempt_errors import ATTEMPT_ERRORS
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.framework.explanation import ExplanationClass
from stower.framework.profile import Profile
from stower.framework.retries import CONFLICT, UNKNOWN
from stower.framework.writes import DeletePod, Write
from stower.model.kinds import Pod
from stower.model.times import SECOND_NS
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape

TIMEOUT_NS: Final = 30 * SECOND_NS
RETRY_NS: Final = SECOND_NS
# How long a pod whose deletion was refused is displaced only where nothing else helps.
UNDELETABLE_NS: Final = 60 * SECOND_NS
# Sets of pods that are looked at for one that displaces fewer.
TRIES_MAX: Final = 64
DELETED: Final = (0, 404)
# The outcome is unknown, or another pod has the name, which the watch will show: try again.
RETRIED: Final = (UNKNOWN, CONFLICT)

Classifier = Callable[[Pod], tuple[ExplanationClass, str]]


class Displacement:
    """Chooses rows for pods that displaceable pods make room for."""

    def __init__(self, state: ClusterState, cycle: SchedulingCycle) -> None:
        self._state = state
        self._cycle = cycle

    def choose(self, profile: Profile, entry: PodEntry) -> tuple[int, tuple[PodEntry, ...]]:
        """Returns the row for the pod, -1 for none, and the pods to delete there."""
        others = displaceable_pods(self._state, profile, entry.pod)
        if not others:
            return self._cycle.choose(profile, entry), ()
        now_ns = self._state.now_ns
        deletable = [other for other in others if other.eviction_backoff_until_ns <= now_ns]
        row, displaced = self._choose_without(profile, entry, deletable)
        if row < 0 and len(deletable) < len(others):
            return self._choose_without(profile, entry, others)  # it may be allowed by now
        return row, displaced

    def _choose_without(
        self, profile: Profile, entry: PodEntry, others: Sequence[PodEntry]
    ) -> tuple[int, tuple[PodEntry, ...]]:
        state = self._state
        with state.trial():
            for other in others:
                state.displace(other)
            row = self._cycle.choose(profile, entry)
        if row < 0:
            return row, ()
        return row, self._select_displaced(profile, entry, row, [o for o in others if o.row == row])

    def _select_displaced(
        self, profile: Profile, entry: PodEntry, row: int, here: Sequence[PodEntry]
    ) -> tuple[PodEntry, ...]:
        """Returns as few of the pods on the row as make room; pods in deletion come first."""
        leaving = [other for other in here if _is_deleted(other)]
        staying = [other for other in here if not _is_deleted(other)]
        chosen = self._first_that_fit(profile, entry, row, [*leaving, *staying])
        count = sum(not _is_deleted(other) for other in chosen)
        if count > 1:  # of unequal size: fewer may do
            fewer = self._fewer(profile, entry, row, leaving, staying, count)
            chosen = fewer if fewer is not None else chosen
        for other in chosen[:-1]:
            rest = [e for e in chosen if e is not other]
            if self._fits_without(profile, entry, row, rest):
                chosen = rest
        return tuple(chosen)

    def _first_that_fit(
        self, profile: Profile, entry: PodEntry, row: int, order: Sequence[PodEntry]
    ) -> list[PodEntry]:
        chosen: list[PodEntry] = []
        with self._state.trial():
            for other in order:
                if self._cycle.fits(profile, entry, row):
                    break
                self._state.displace(other)
                chosen.append(other)
        return chosen

    def _fewer(
        self,
        profile: Profile,
        entry: PodEntry,
        row: int,
        leaving: Sequence[PodEntry],
        staying: Sequence[PodEntry],
        count: int,
    ) -> list[PodEntry] | None:
        """Returns the pods in deletion and fewer others than `count` that make room; None where a
        search of TRIES_MAX sets finds none. Of pods of one shape, the first are in it."""
        by_shape: dict[Shape, list[PodEntry]] = {}
        for other in staying:
            by_shape.setdefault(other.shape, []).append(other)
        groups, tries = [*by_shape.values()], 0
        for size in range(1, count):
            for picks in combinations_with_replacement(range(len(groups)), size):
                if any(picks.count(i) > len(groups[i]) for i in {*picks}):
                    continue
                tries += 1
                if tries > TRIES_MAX:
                    return None
                found = [e for i in {*picks} for e in groups[i][: picks.count(i)]]
                if self._fits_without(profile, entry, row, [*leaving, *found]):
                    return [*leaving, *found]
        return None

    def _fits_without(
        self, profile: Profile, entry: PodEntry, row: int, displaced: Sequence[PodEntry]
    ) -> bool:
        with self._state.trial():
            for other in displaced:
                self._state.displace(other)
            return self._cycle.fits(profile, entry, row)


def displaceable_pods(state: ClusterState, profile: Profile, pod: Pod) -> list[PodEntry]:
    """Returns the placed pods that plugins name as displaceable by the pod, in deletion order."""
    named = (plugin.displaceable_pods(pod, state) for plugin in profile.displacing_plugins)
    found = {e.uid: e for entries in named for e in entries if e.row >= 0 and not e.is_assumed}
    return list(found.values())


class TrialPlacement:
    """Finds for companions where a pod would go; see framework.companion.TrialScheduler."""

    def __init__(self, profiles: Mapping[str, Profile], cycle: SchedulingCycle) -> None:
        self._profiles = profiles
        self._cycle = cycle
        self.classifier: Classifier | None = None  # which the assembly sets

    def select_row(self, entry: PodEntry) -> int:
        """Returns the row, -1 for none, where another scheduler places the pod, and where its
        attempt would end with an error."""
        profile = self._profiles.get(entry.pod.spec.scheduler_name)
        try:
            return self._cycle.choose(profile, entry) if profile is not None else -1
        except ATTEMPT_ERRORS:
            return -1

    def fits(self, entry: PodEntry, row: int) -> bool:
        """Returns whether the row passes all filters for the pod, none of which fails."""
        profile = self._profiles.get(entry.pod.spec.scheduler_name)
        try:
            return profile is not None and self._cycle.fits(profile, entry, row)
        except ATTEMPT_ERRORS:
            return False

    def classify(self, pod: Pod) -> tuple[ExplanationClass, str] | None:
        """Returns the class of the pod's explanation, and why it is so; None where no profile
        schedules the pod, or nothing explains."""
        if self.classifier is None or pod.spec.scheduler_name not in self._profiles:
            return None
        return self.classifier(pod)


class DisplacedPods:
    """A reservation (framework.reservation.Reservation): these pods are deleted before the pod is
    bound to their node."""

    timeout_message = f"displaced pods were not deleted within {TIMEOUT_NS // SECOND_NS} s"
    timeout_ns = TIMEOUT_NS
    awaited_objects: tuple[tuple[type, str, str], ...] = ()
    retry_at_ns: int | None = None

    def __init__(self, displaced: Sequence[PodEntry]) -> None:
        self._remaining = {entry.uid: entry for entry in displaced}
        self._deleting: dict[int, str] = {}
        self._is_refused = False

    def assume(self, state: ClusterState) -> None:
        """Does nothing: the state already has the pod on the node, in addition to the displaced
        pods."""

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Returns deletions without grace period."""
        if self.retry_at_ns is not None and state.now_ns < self.retry_at_ns:
            return []
        self.retry_at_ns = None
        found: list[Write] = []
        deleting = set(self._deleting.values())
        for uid, entry in self._remaining.items():
            if uid in deleting or self._is_refused:
                continue
            meta, id = entry.pod.metadata, next_id()
            self._deleting[id] = uid
            found.append(DeletePod(id, meta.namespace, meta.name, uid, 0))
        return found

    def on_answer(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """Retries a deletion of unknown outcome; a refused one ends the reservation."""
        uid = self._deleting.pop(id)
        if code not in (*DELETED, *RETRIED) and uid in self._remaining:
            self._remaining[uid].eviction_backoff_until_ns = state.now_ns + UNDELETABLE_NS
        if code in DELETED:
            deleted = self._remaining.pop(uid, None)  # the watch may have shown it before
            if deleted is not None:
                deleted.is_deletion_pending = True
        elif code in RETRIED:
            self.retry_at_ns = state.now_ns + RETRY_NS
        else:
            self._is_refused = True
        return not self._is_refused

    def failure_reason(self, state: ClusterState) -> str:
        """Returns "": only a refused deletion ends it."""
        return ""

    def is_done(self, state: ClusterState) -> bool:
        """Returns whether all pods are deleted."""
        for uid in [uid for uid in self._remaining if uid not in state.pods]:
            del self._remaining[uid]
        return not self._remaining

    def waiting_event(self) -> tuple[str, str]:
        """Returns no Event."""
        return "", ""

    def forget(self, state: ClusterState) -> None:
        """Forgets the pods: a deletion that was sent stays."""
        self._remaining.clear()

    def unreserve(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Returns nothing: their controllers create them again."""
        return []


def _is_deleted(entry: PodEntry) -> bool:
    return entry.is_deletion_pending or entry.pod.metadata.deletion_timestamp is not None
