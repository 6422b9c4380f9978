"""Converts a recording into a workload: the external events, without the scheduler's decisions.

Pods that the recorded scheduler bound become arrivals, to be scheduled again. A pod that ended by
itself runs for the same duration from its new placement; a pod that a client deleted is deleted at
the recorded time. A pod that the scheduler evicted, and its replacement by a controller, are left
to the caller that runs the workload. The simulation repeats the work of provisioners on claims and
volumes.
"""

from collections.abc import Iterable, Mapping
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
    ResourceClaim,
)
from stower.record.lines import Engine
from stower.record.reader import RecordedEvent, read_recording
from stower.sim.workload import Arrival, ObjectChange, Workload
from stower.state.devices import extended_claim_owner

BIND: Final = b'"write":"Bind"'
DELETE: Final = b'"write":"DeletePod"'


class RecordedWorkload(msgspec.Struct, frozen=True):
    """The history, how things stood at its end, and how the engine was built. `nodes`: the node
    that each pod had last, "" for none, by the uid of the pod, or of that in whose place it was
    made."""

    history: Workload
    end: Workload
    built: Engine
    nodes: Mapping[str, str] = {}


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
        self.happened: list[ObjectChange] = []
        self._ours: set[str] = set()  # bound by the recorded scheduler
        # Pods that went because of what was decided, or with their node, and those that controllers
        # made in their place: whoever runs this again sees to both.
        self._theirs: set[str] = set()
        self._owed: dict[str, list[Pod]] = {}
        self._instead_of: dict[str, Pod] = {}
        self._placed_ns: dict[str, int] = {}  # when those got their node
        self.lasts_ns: dict[str, int] = {}  # how long they ran, by the uid of the first
        self.nodes: dict[str, str] = {}  # the last that pods had, by the uid of the first
        self._begun_ns = 0

    def take(self, told: RecordedEvent) -> None:
        """One step. Raises InvalidObject."""
        if self.first is None:
            self._begun_ns = told.at_ns
        at_ns = told.at_ns - self._begun_ns
        event = told.event
        if isinstance(event, Listed):
            self._handle_list(event.objects, at_ns)
        elif isinstance(event, Observed):
            self._handle_object(event.type, event.object, at_ns)
        if BIND in told.writes or DELETE in told.writes:
            for write in _writes(told):
                if write.write == "Bind":
                    self._ours.add(write.uid)
                elif write.write == "DeletePod":
                    self._lose_pod(self._pod_of(write.uid))

    def _handle_list(self, objects: Iterable[ApiObject], at_ns: int) -> None:
        now = {_key(obj): obj for obj in objects}
        if self.first is None:
            self.first = tuple(now.values())
            self.objects = now
            for obj in now.values():
                if isinstance(obj, Pod) and not obj.spec.node_name:
                    self.lives[obj.metadata.uid] = _Life(obj, at_ns)
                if isinstance(obj, Pod):
                    self.nodes[obj.metadata.uid] = obj.spec.node_name
            return
        for key, obj in [*self.objects.items()]:
            found = now.get(key)
            if found is None or found.metadata.uid != obj.metadata.uid:
                self._handle_object(WatchType.DELETED, obj, at_ns)
        for key, obj in now.items():
            if self.objects.get(key) != obj:
                self._handle_object(WatchType.MODIFIED, obj, at_ns)

    def _handle_object(self, type: WatchType, obj: ApiObject, at_ns: int) -> None:
        key = _key(obj)
        known = self.objects.get(key)
        if type is WatchType.DELETED:
            if known is None or known.metadata.uid != obj.metadata.uid:
                return
            del self.objects[key]
        else:
            if known is not None and known.metadata.uid != obj.metadata.uid:
                self._handle_object(WatchType.DELETED, known, at_ns)
                known = None
            self.objects[key] = obj
            type = WatchType.ADDED if known is None else WatchType.MODIFIED
        if isinstance(obj, Pod):
            self._pod(type, known if isinstance(known, Pod) else None, obj, at_ns)
            return
        if isinstance(obj, Node) and type is WatchType.DELETED:
            for pod in self.objects.values():
                if isinstance(pod, Pod) and pod.spec.node_name == obj.metadata.name:
                    self._lose_pod(pod)
        # What provisioners make of claims, whoever runs this makes anew.
        is_made = (isinstance(obj, PersistentVolumeClaim) and type is WatchType.MODIFIED) or (
            isinstance(obj, PersistentVolume) and type is not WatchType.DELETED
        )
        # A pod's own claim goes with the pod, whenever that ends in the run.
        is_own = isinstance(obj, ResourceClaim) and bool(obj.metadata.controller_uid)
        # The scheduler makes claims for extended resources, in the run too.
        is_made |= isinstance(obj, ResourceClaim) and extended_claim_owner(obj) in self.lives
        if not is_made and not (is_own and type is WatchType.DELETED):
            self.happened.append(ObjectChange(at_ns, type, obj))

    def _pod(self, type: WatchType, known: Pod | None, pod: Pod, at_ns: int) -> None:
        uid = pod.metadata.uid
        first = self._instead_of.get(uid, pod)
        if uid not in self._theirs or first is not pod:
            self.nodes[first.metadata.uid] = pod.spec.node_name
        if uid in self._theirs:
            self._in_place(type, known, pod, at_ns)
            return
        life, gone = self.lives.get(uid), type is WatchType.DELETED
        if type is WatchType.ADDED and not pod.spec.node_name:
            owner = pod.metadata.controller_uid
            if self._owed.get(owner):
                self._theirs.add(uid)
                first = self._instead_of[uid] = self._owed[owner].pop(0)
                self.nodes.pop(uid, None)
                self.nodes[first.metadata.uid] = ""
            else:
                self.lives[uid] = _Life(pod, at_ns)
        elif life is None:
            ended = gone or pod.is_terminal
            self.happened.append(ObjectChange(at_ns, WatchType.DELETED if ended else type, pod))
        elif gone or pod.is_terminal:
            told_to_end = known is not None and known.metadata.deletion_timestamp is not None
            if life.lasts_ns is not None or life.ends_ns is not None:
                return
            if life.bound_ns is not None and not told_to_end:
                life.lasts_ns = at_ns - life.bound_ns
            else:
                life.ends_ns = at_ns
        elif pod.spec.node_name and life.bound_ns is None:
            life.bound_ns = at_ns
            if uid not in self._ours:
                self.happened.append(ObjectChange(at_ns, type, pod))  # by another scheduler
        elif known is not None and _wishes(known) != _wishes(pod):
            self.happened.append(ObjectChange(at_ns, WatchType.MODIFIED, _unbound(pod)))

    def _pod_of(self, uid: str) -> Pod | None:
        pods = (obj for obj in self.objects.values() if isinstance(obj, Pod))
        return next((pod for pod in pods if pod.metadata.uid == uid), None)

    def _lose_pod(self, pod: Pod | None) -> None:
        """It goes because of what was decided, or with its node; its controller makes another."""
        if pod is None:
            return
        uid = pod.metadata.uid
        first = self._instead_of.pop(uid, pod)
        if uid in self._theirs and first is pod:
            return
        self._theirs.add(uid)
        owner = pod.metadata.controller_uid
        if owner:
            self._owed.setdefault(owner, []).append(first)

    def _in_place(self, type: WatchType, known: Pod | None, pod: Pod, at_ns: int) -> None:
        """What becomes of a pod that was made in the place of another becomes of that."""
        uid = pod.metadata.uid
        first = self._instead_of.get(uid)
        if first is None:
            return
        if type is not WatchType.DELETED and not pod.is_terminal:
            if pod.spec.node_name:
                self._placed_ns.setdefault(uid, at_ns)
            return
        del self._instead_of[uid]
        told_to_end = known is not None and known.metadata.deletion_timestamp is not None
        if uid in self._placed_ns and not told_to_end:
            self.lasts_ns[first.metadata.uid] = at_ns - self._placed_ns[uid]
        else:
            self.happened.append(ObjectChange(at_ns, WatchType.DELETED, first))

    def workload(self) -> Workload:
        """From beginning to end."""
        first = self.first or ()
        arrivals = tuple(
            Arrival(
                life.first,
                life.at_ns,
                life.ends_ns,
                life.lasts_ns or self.lasts_ns.get(life.first.metadata.uid),
            )
            for life in self.lives.values()
        )
        placed = tuple(o for o in first if isinstance(o, Pod) and o.spec.node_name)
        nodes = tuple(o for o in first if isinstance(o, Node))
        related: Any = tuple(o for o in first if isinstance(o, BACKGROUND))
        lasts_ns = {
            pod.metadata.uid: self.lasts_ns[pod.metadata.uid]
            for pod in placed
            if pod.metadata.uid in self.lasts_ns
        }
        return Workload(
            nodes, placed, arrivals, False, related, tuple(self.happened), True, lasts_ns
        )

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


def read_recorded_workload(path: Path) -> RecordedWorkload:
    """What is in a recording. Raises InvalidObject and OSError."""
    history, built = _History(), None
    for line in read_recording(path):
        if isinstance(line, RecordedEvent):
            history.take(line)
        else:
            built = built or line
    if built is None or history.first is None:
        raise InvalidObject("file", "no list of objects", "a recording with such a list")
    return RecordedWorkload(history.workload(), history.end(), built, history.nodes)


def _writes(told: RecordedEvent) -> list[_Write]:
    try:
        return msgspec.json.decode(told.writes, type=list[_Write])
    except (msgspec.DecodeError, UnicodeDecodeError):
        shown = told.writes[:60].decode("utf-8", "replace")
        raise InvalidObject(f"line {told.number}, writes", shown, "a list of writes") from None


def _key(obj: ApiObject) -> tuple[type, str]:
    return type(obj), obj.metadata.key


def _wishes(pod: Pod) -> Any:
    """What somebody may have changed that matters to the pod, or to others: those that are being
    deleted do not count where pods are spread."""
    meta, spec = pod.metadata, pod.spec
    claims, is_leaving = pod.status.resource_claim_statuses, bool(meta.deletion_timestamp)
    return meta.labels, spec.scheduling_gates, spec.tolerations, spec.containers, claims, is_leaving


def _unbound(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
