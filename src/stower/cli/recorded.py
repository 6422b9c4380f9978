"""A recording as a workload: what happened from outside, without what the scheduler made of it.

Pods that the recorded scheduler bound come as arrivals, to be placed anew. One that ended by itself
lasts as long again, from when it is placed; one that somebody deleted is gone at that time. A pod
that the scheduler evicted, and the one that its controller made in its place, are left to whoever
runs the workload. What provisioners did with claims and volumes is done by the simulation.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from stower.framework.events import Listed, Observed, WatchType
from stower.model.errors import InvalidObject
from stower.model.kinds import (
    BACKGROUND,
    ApiObject,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
)
from stower.record.lines import Engine
from stower.record.reader import Told, read
from stower.sim.workload import Arrival, Happened, Workload

BIND: Final = b'"write":"Bind"'
DELETE: Final = b'"write":"DeletePod"'


class Recorded(msgspec.Struct, frozen=True):
    """The history, how things stood at its end, and how the engine was built."""

    history: Workload
    end: Workload
    built: Engine


class _Write(msgspec.Struct):
    write: str
    uid: str = ""


class _Life:
    """One pod, as far as the recording tells."""

    __slots__ = ("at_ns", "bound_ns", "ends_ns", "first", "lasts_ns", "pod")

    def __init__(self, pod: Pod, at_ns: int) -> None:
        self.first = self.pod = pod
        self.at_ns = at_ns
        self.bound_ns: int | None = None
        self.ends_ns: int | None = None
        self.lasts_ns: int | None = None


class _History:
    """Takes events in, and says what came from outside."""

    def __init__(self) -> None:
        self.objects: dict[tuple[type, str], ApiObject] = {}
        self.first: tuple[ApiObject, ...] | None = None
        self.lives: dict[str, _Life] = {}  # of pods that had no node when they came
        self.happened: list[Happened] = []
        self.ours: set[str] = set()  # bound by the recorded scheduler
        self.evicted: set[str] = set()
        self._begun_ns = 0
        self._owed: dict[str, int] = {}  # pods that controllers make for those that were evicted

    def take(self, told: Told) -> None:
        """One step."""
        if self.first is None:
            self._begun_ns = told.at_ns
        at_ns = told.at_ns - self._begun_ns
        event = told.event
        if isinstance(event, Listed):
            self._listed(event.objects, at_ns)
        elif isinstance(event, Observed):
            self._observed(event.type, event.object, at_ns)
        if BIND in told.writes or DELETE in told.writes:
            for write in msgspec.json.decode(told.writes, type=list[_Write]):
                if write.write == "Bind":
                    self.ours.add(write.uid)
                elif write.write == "DeletePod":
                    self.evicted.add(write.uid)

    def _listed(self, objects: Iterable[ApiObject], at_ns: int) -> None:
        now = {_key(obj): obj for obj in objects}
        if self.first is None:
            self.first = tuple(now.values())
            self.objects = now
            for obj in now.values():
                if isinstance(obj, Pod) and not obj.spec.node_name:
                    self.lives[obj.metadata.uid] = _Life(obj, at_ns)
            return
        for key, obj in [*self.objects.items()]:
            found = now.get(key)
            if found is None or found.metadata.uid != obj.metadata.uid:
                self._observed(WatchType.DELETED, obj, at_ns)
        for key, obj in now.items():
            if self.objects.get(key) != obj:
                self._observed(WatchType.MODIFIED, obj, at_ns)

    def _observed(self, type: WatchType, obj: ApiObject, at_ns: int) -> None:
        key = _key(obj)
        known = self.objects.get(key)
        if type is WatchType.DELETED:
            if known is None or known.metadata.uid != obj.metadata.uid:
                return
            del self.objects[key]
        else:
            if known is not None and known.metadata.uid != obj.metadata.uid:
                self._observed(WatchType.DELETED, known, at_ns)
                known = None
            self.objects[key] = obj
            type = WatchType.ADDED if known is None else WatchType.MODIFIED
        if isinstance(obj, Pod):
            self._pod(type, known if isinstance(known, Pod) else None, obj, at_ns)
        elif not (isinstance(obj, PersistentVolumeClaim) and type is WatchType.MODIFIED) and not (
            isinstance(obj, PersistentVolume) and type is not WatchType.DELETED
        ):
            self.happened.append(Happened(at_ns, type, obj))

    def _pod(self, type: WatchType, known: Pod | None, pod: Pod, at_ns: int) -> None:
        uid = pod.metadata.uid
        life = self.lives.get(uid)
        if type is WatchType.ADDED and not pod.spec.node_name:
            owner = _owner(pod)
            if self._owed.get(owner):
                self._owed[owner] -= 1  # whoever runs this makes one of its own
            else:
                self.lives[uid] = _Life(pod, at_ns)
        elif type is WatchType.DELETED and uid in self.evicted:
            self._owed[_owner(pod)] = self._owed.get(_owner(pod), 0) + 1
        elif life is None:
            self.happened.append(Happened(at_ns, type, pod))
        elif type is WatchType.DELETED:
            told_to_end = known is not None and known.metadata.deletion_timestamp is not None
            if life.bound_ns is not None and not told_to_end:
                life.lasts_ns = life.lasts_ns or at_ns - life.bound_ns
            elif life.lasts_ns is None:
                life.ends_ns = at_ns
        elif pod.is_terminal and life.bound_ns is not None:
            if life.lasts_ns is None:
                life.lasts_ns = at_ns - life.bound_ns
        elif pod.spec.node_name and life.bound_ns is None:
            life.bound_ns = at_ns
            if uid not in self.ours:
                self.happened.append(Happened(at_ns, type, pod))  # by another scheduler
        elif known is not None and _wishes(known) != _wishes(pod):
            changed = _unbound(pod)
            self.happened.append(Happened(at_ns, WatchType.MODIFIED, changed))

    def workload(self) -> Workload:
        """From beginning to end."""
        first = self.first or ()
        arrivals = tuple(
            Arrival(life.first, life.at_ns, life.ends_ns, life.lasts_ns)
            for life in self.lives.values()
        )
        placed = tuple(o for o in first if isinstance(o, Pod) and o.spec.node_name)
        nodes = tuple(o for o in first if isinstance(o, Node))
        related: Any = tuple(o for o in first if isinstance(o, BACKGROUND))
        return Workload(nodes, placed, arrivals, False, related, tuple(self.happened), True)

    def end(self) -> Workload:
        """How things stood."""
        found = self.objects.values()
        pods = [o for o in found if isinstance(o, Pod) and not o.is_terminal]
        related: Any = tuple(o for o in found if isinstance(o, BACKGROUND))
        return Workload(
            tuple(o for o in found if isinstance(o, Node)),
            tuple(pod for pod in pods if pod.spec.node_name),
            tuple(Arrival(pod) for pod in pods if not pod.spec.node_name),
            True,
            related,
        )


def recorded(path: Path) -> Recorded:
    """What is in a recording. Raises InvalidObject and OSError."""
    history, built = _History(), None
    for line in read(path):
        if isinstance(line, Told):
            history.take(line)
        else:
            built = built or line
    if built is None or history.first is None:
        raise InvalidObject("file", "no list of objects", "a recording in which an engine began")
    return Recorded(history.workload(), history.end(), built)


def _key(obj: ApiObject) -> tuple[type, str]:
    return type(obj), f"{obj.metadata.namespace}/{obj.metadata.name}"


def _owner(pod: Pod) -> str:
    owners = (o.uid for o in pod.metadata.owner_references or () if o.controller)
    return next(owners, "")


def _wishes(pod: Pod) -> Any:
    """What somebody may have changed that matters before a pod has a node."""
    return pod.metadata.labels, pod.spec.scheduling_gates, pod.spec.tolerations, pod.spec.containers


def _unbound(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
