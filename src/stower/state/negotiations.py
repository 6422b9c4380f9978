"""Negotiations as the API has them: which classes are negotiated, and what is said about each pod.

Must not know what follows from it.
"""

from typing import Final

from stower.model.kinds import Negotiating, PodScheduling, ResourceClass
from stower.state.journal import Journal

REMEMBERED_MAX: Final = 100_000


class Negotiations:
    """Classes by name, PodSchedulings by namespace/name."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.classes: dict[str, ResourceClass] = {}
        self._schedulings: dict[str, PodScheduling] = {}
        self.again: dict[str, None] = {}  # those that have failed before, in the order of that
        # Pods for which a node is being selected, in a write that was not seen yet.
        self.selecting: dict[str, None] = {}
        self._since: dict[tuple[str, str], tuple[object, int]] = {}

    def put(self, obj: Negotiating) -> None:
        """An object as it is now."""
        if self._journal.recording:
            old = self.seen(obj)
            self._journal.log(*((self.drop, obj) if old is None else (self.put, old)))
        if isinstance(obj, ResourceClass):
            self.classes[obj.metadata.name] = obj
            return
        key = obj.metadata.key
        self._schedulings[key] = obj
        if obj.spec.selected_node:
            self.selecting.pop(key, None)
        if obj.spec.attempt:
            self.again[key] = None
        else:
            self.again.pop(key, None)

    def drop(self, obj: Negotiating) -> None:
        """It is gone."""
        old = self.seen(obj)
        if self._journal.recording and old is not None:
            self._journal.log(self.put, old)
        if isinstance(obj, ResourceClass):
            self.classes.pop(obj.metadata.name, None)
            return
        key = obj.metadata.key
        self._schedulings.pop(key, None)
        self.selecting.pop(key, None)
        self.again.pop(key, None)
        for what in ("asked", "selected", "turn"):
            self._since.pop((key, what), None)

    def seen(self, obj: Negotiating) -> Negotiating | None:
        """What is known of the object."""
        if isinstance(obj, ResourceClass):
            return self.classes.get(obj.metadata.name)
        return self._schedulings.get(obj.metadata.key)

    def known(self) -> list[Negotiating]:
        """All of them."""
        return [*self.classes.values(), *self._schedulings.values()]

    def of(self, key: str) -> PodScheduling | None:
        """What is said about the pod of that namespace/name."""
        return self._schedulings.get(key)

    def selects(self, key: str, whether: bool) -> None:
        """Whether a node is being selected for the pod. A trial sends nothing, and so says nothing
        here."""
        if self._journal.in_trial:
            return
        if whether:
            self.selecting[key] = None
        else:
            self.selecting.pop(key, None)

    def since_ns(self, key: str, what: str, state: object, now_ns: int) -> int:
        """When `what` about a pod was first asked for in this state: now, unless it is known. A
        restart begins anew."""
        known = self._since.get((key, what))
        if known is not None and known[0] == state:
            return known[1]
        if not self._journal.in_trial and len(self._since) < REMEMBERED_MAX:
            self._since[key, what] = (state, now_ns)
        return now_ns
