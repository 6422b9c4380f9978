"""Negotiations as the API has them: ResourceClasses, whose devices are negotiated, and the
PodScheduling of each pod.

Must not know how a negotiation proceeds.
"""

from typing import Final, TypeVar

from stower.model.kinds import Negotiating, PodScheduling, ResourceClass
from stower.state.journal import Journal

ASPECTS: Final = ("asked", "leaving", "selected", "turn")  # of `first_requested_ns`
TIMES_MAX: Final = 100_000  # of `first_requested_ns` that are kept

Extension = TypeVar("Extension")


class Negotiations:
    """All ResourceClasses by name, and all PodSchedulings by namespace/name. `generation` grows
    with every change of one."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.generation = 0
        self.classes: dict[str, ResourceClass] = {}
        self._schedulings: dict[str, PodScheduling] = {}
        # Keys of PodSchedulings that have failed before, in the order in which they failed first.
        self.retries: dict[str, None] = {}
        # Keys of pods for which a node is being selected, by a write that the watch has not shown.
        self.pending_selections: dict[str, None] = {}
        self._extensions: dict[type, object] = {}
        # By key and aspect: the state of the request, and since when it has been requested.
        self._first_requested: dict[tuple[str, str], tuple[object, int]] = {}

    def put(self, obj: Negotiating) -> None:
        """Adds or replaces an object."""
        self.generation += 1
        if self._journal.is_recording:
            old = self.api_object(obj)
            self._journal.log(*((self.drop, obj) if old is None else (self.put, old)))
        if isinstance(obj, ResourceClass):
            self.classes[obj.metadata.name] = obj
            return
        key = obj.metadata.key
        self._schedulings[key] = obj
        if obj.spec.selected_node:
            self.pending_selections.pop(key, None)
        if obj.spec.attempt:
            self.retries[key] = None
        else:
            self.retries.pop(key, None)

    def drop(self, obj: Negotiating) -> None:
        """Removes an object."""
        self.generation += 1
        old = self.api_object(obj)
        if self._journal.is_recording and old is not None:
            self._journal.log(self.put, old)
        if isinstance(obj, ResourceClass):
            self.classes.pop(obj.metadata.name, None)
            return
        key = obj.metadata.key
        self._schedulings.pop(key, None)
        self.retries.pop(key, None)
        self.forget_pod(key)

    def forget_pod(self, key: str) -> None:
        """Forgets requests for the pod, unless a PodScheduling is known, which is deleted later."""
        if key not in self._schedulings:
            self.pending_selections.pop(key, None)
            for aspect in ASPECTS:
                self._first_requested.pop((key, aspect), None)

    def api_object(self, obj: Negotiating) -> Negotiating | None:
        """Returns the known version of an object, None where there is none."""
        if isinstance(obj, ResourceClass):
            return self.classes.get(obj.metadata.name)
        return self._schedulings.get(obj.metadata.key)

    def api_objects(self) -> list[Negotiating]:
        """Returns all objects."""
        return [*self.classes.values(), *self._schedulings.values()]

    def adopt_assumptions(self, other: "Negotiations") -> None:
        """Takes over what another state knows of requests that no watch has shown."""
        for key in other.pending_selections:
            seen = self._schedulings.get(key)
            if seen is not None and not seen.spec.selected_node:
                self.pending_selections[key] = None
        self._extensions = other._extensions
        for (key, aspect), known in other._first_requested.items():
            if key in self._schedulings:
                self._first_requested[key, aspect] = known

    def pod_scheduling(self, key: str) -> PodScheduling | None:
        """Returns the PodScheduling of the pod of that namespace/name, None where there is none."""
        return self._schedulings.get(key)

    def set_pending_selection(self, key: str, is_pending: bool) -> None:
        """Records whether a node is being selected for the pod. Does nothing in a trial, whose
        writes are not sent."""
        if self._journal.is_in_trial:
            return
        if is_pending:
            self.pending_selections[key] = None
        else:
            self.pending_selections.pop(key, None)

    def extension(self, kind: type[Extension]) -> Extension:
        """Returns what a higher layer keeps about negotiations: the one instance of `kind`, which
        the first call creates. A rebuilt state takes it over."""
        instance = self._extensions.get(kind)
        if instance is None:
            instance = self._extensions[kind] = kind()
        return instance  # type: ignore[return-value]

    def first_requested_ns(
        self, key: str, aspect: str, state: object, now_ns: int, is_new: bool = False
    ) -> int:
        """Returns when an aspect of a pod's negotiation was first requested in this state: `now_ns`
        where it `is_new`, or no earlier time is known. Times are lost in a restart."""
        known = None if is_new else self._first_requested.get((key, aspect))
        if known is not None and known[0] == state:
            return known[1]
        if not self._journal.is_in_trial and len(self._first_requested) < TIMES_MAX:
            self._first_requested[key, aspect] = (state, now_ns)
        return now_ns
