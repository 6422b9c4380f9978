"""Reads the steps of the leading scheduler: which objects changed, as it was shown them, and its
decisions.

Shared by the laws that compare what a scheduler does with what it knew. Must not know the engine.
"""

from collections.abc import Iterator
from typing import NamedTuple

from stower.framework.decisions import Decision
from stower.framework.events import Event, Listed, Observed, WatchType
from stower.model.kinds import ApiObject, Pod
from stower.sim.scheduler import SchedulerProcess


class ObjectChange(NamedTuple):
    """An object before and after a change; None where it did not or does not exist."""

    old: ApiObject | None
    new: ApiObject | None

    @property
    def object(self) -> ApiObject:
        """The object after the change, or before its deletion."""
        found = self.new if self.new is not None else self.old
        assert found is not None
        return found


class Step(NamedTuple):
    """One step: the changes of objects that its event shows, then the decisions."""

    is_first: bool  # of a life of the process
    changes: tuple[ObjectChange, ...]
    decisions: tuple[Decision, ...]


class StepReader:
    """Keeps the objects as the process was shown them since it began to lead."""

    def __init__(self) -> None:
        self._life: tuple[str, int] = ("", 0)
        self._objects: dict[tuple[type, str], ApiObject] = {}
        self._last: Decision | None = None
        self._read: tuple[SchedulerProcess, Event, Step] | None = None

    def pod(self, key: str) -> Pod | None:
        """Returns the pod of that namespace and name, as last shown."""
        found = self._objects.get((Pod, key))
        return found if isinstance(found, Pod) else None

    def read(self, process: SchedulerProcess, event: Event) -> Step:
        """Returns what the last step of the process shows; every law that asks gets the same."""
        if self._read is not None and self._read[0] is process and self._read[1] is event:
            return self._read[2]
        life = (process.name, process.lives)
        is_first = life != self._life
        if is_first:
            self._life, self._last = life, None
            self._objects.clear()
        changes: tuple[ObjectChange, ...] = ()
        if isinstance(event, Observed):
            changes = tuple(self._observe(event.object, event.type is WatchType.DELETED))
        elif isinstance(event, Listed):
            changes = tuple(self._list(event.objects))
        step = Step(is_first, changes, self._new_decisions(process))
        self._read = process, event, step
        return step

    def _observe(self, obj: ApiObject, is_deleted: bool) -> Iterator[ObjectChange]:
        key = (type(obj), obj.metadata.key)
        old = self._objects.get(key)
        if is_deleted:
            if old is not None and old.metadata.uid == obj.metadata.uid:
                del self._objects[key]
                yield ObjectChange(old, None)
            return
        if old is not None and old.metadata.uid != obj.metadata.uid:
            yield ObjectChange(old, None)  # another object has the name now
            old = None
        self._objects[key] = obj
        if obj != old:
            yield ObjectChange(old, obj)

    def _list(self, objects: tuple[ApiObject, ...]) -> Iterator[ObjectChange]:
        keys = {(type(obj), obj.metadata.key) for obj in objects}
        for key in [key for key in self._objects if key not in keys]:
            yield ObjectChange(self._objects.pop(key), None)
        for obj in objects:
            yield from self._observe(obj, False)

    def _new_decisions(self, process: SchedulerProcess) -> tuple[Decision, ...]:
        found: list[Decision] = []
        for decision in reversed(process.decisions):
            if decision is self._last or decision.at_ns < process.now_ns:
                break
            found.append(decision)
        if found:
            self._last = found[0]
        return tuple(reversed(found))
