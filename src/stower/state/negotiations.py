"""Negotiations as the API has them: which classes are negotiated, and what is said about each pod.

Must not know what follows from it.
"""

from typing import Final

from stower.model.kinds import Negotiating, PodScheduling, ResourceClass
from stower.state.journal import Journal

TIMES_MAX: Final = 100_000


class Negotiations:
    """Classes by name, PodSchedulings by namespace/name."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.classes: dict[str, ResourceClass] = {}
        self._schedulings: dict[str, PodScheduling] = {}
        self.retries: dict[str, None] = {}  # those that have failed before, in the order of that
        # Pods for which a node is being selected, in a write that was not seen yet.
        self.pending_selections: dict[str, None] = {}
        self._first_requested: dict[tuple[str, str], tuple[object, int]] = {}

    def put(self, obj: Negotiating) -> None:
        """An object as it is now."""
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
        """It is gone."""
        old = self.api_object(obj)
        if self._journal.is_recording and old is not None:
            self._journal.log(self.put, old)
        if isinstance(obj, ResourceClass):
            self.classes.pop(obj.metadata.name, None)
            return
        key = obj.metadata.key
        self._schedulings.pop(key, None)
        self.pending_selections.pop(key, None)
        self.retries.pop(key, None)
        for what in ("asked", "selected", "turn"):
            self._first_requested.pop((key, what), None)

    def api_object(self, obj: Negotiating) -> Negotiating | None:
        """What is known of the object."""
        if isinstance(obj, ResourceClass):
            return self.classes.get(obj.metadata.name)
        return self._schedulings.get(obj.metadata.key)

    def api_objects(self) -> list[Negotiating]:
        """All of them."""
        return [*self.classes.values(), *self._schedulings.values()]

    def pod_scheduling(self, key: str) -> PodScheduling | None:
        """What is said about the pod of that namespace/name."""
        return self._schedulings.get(key)

    def set_pending_selection(self, key: str, is_pending: bool) -> None:
        """Whether a node is being selected for the pod. A trial sends nothing, and so says nothing
        here."""
        if self._journal.is_in_trial:
            return
        if is_pending:
            self.pending_selections[key] = None
        else:
            self.pending_selections.pop(key, None)

    def first_requested_ns(self, key: str, aspect: str, state: object, now_ns: int) -> int:
        """When `what` about a pod was first asked for in this state: now, unless it is known. A
        restart begins anew."""
        known = self._first_requested.get((key, aspect))
        if known is not None and known[0] == state:
            return known[1]
        if not self._journal.is_in_trial and len(self._first_requested) < TIMES_MAX:
            self._first_requested[key, aspect] = (state, now_ns)
        return now_ns
