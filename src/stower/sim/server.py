"""The API server of a run with faults: typed objects under one revision counter.

Applies the rules of the API server (api/) to a scheduler's writes: a binding needs the pod's uid, a
pod without a node and without deletionTimestamp; a patch needs uid and resourceVersion; a deletion
needs the uid; a pod with a node is deleted gracefully. The history that watches resume from is
bounded. Must not know which client sends a request, nor how long a request takes.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from stower.framework.events import WatchType
from stower.framework.retries import CONFLICT
from stower.framework.writes import (
    ApiWrite,
    Bind,
    CreateEvent,
    CreateObject,
    DeleteObject,
    DeletePod,
    JsonPatchObject,
    ObjectWrite,
    PatchObject,
    PatchPodStatus,
)
from stower.model.kinds import ApiObject, Pod
from stower.model.times import time_text
from stower.sim.changes import bound, json_patched, make_object, merged, patched

OK: Final = 200
NOT_FOUND: Final = 404
INVALID: Final = 422
HISTORY_MAX: Final = 4_000

Change = tuple[int, WatchType, ApiObject]


class Server:
    """All objects, by view and key, and those who are told of each change, in order."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.revision = 0
        self.history: deque[Change] = deque()
        self.forgotten = 0  # changes up to this revision are not in the history any more
        self.tell: list[Callable[[Change], None]] = []
        self.leases: dict[str, dict[str, Any]] = {}  # by name
        self.is_scheduler_writing = False
        self._now_ns = now_ns
        self._objects: dict[type, dict[str, ApiObject]] = {}
        self._made_ns: dict[str, int] = {}
        self._pods_on: dict[str, dict[str, Pod]] = {}  # by node, "" for none, and key
        self._pods_of: dict[str, dict[str, Pod]] = {}  # by the key of the PodGroup, and key

    # Reading

    def all(self, view: type[Any]) -> dict[str, Any]:
        """By namespace and name. Read only."""
        return self._objects.setdefault(view, {})

    def get(self, view: type[Any], key: str) -> Any:
        """The object, or None."""
        return self._objects.get(view, {}).get(key)

    def creation_ns(self, obj: ApiObject) -> int:
        """When it was created."""
        return self._made_ns[obj.metadata.uid]

    def pods_on(self, node_name: str) -> dict[str, Pod]:
        """The pods of a node, those without one for "". Read only."""
        return self._pods_on.get(node_name) or {}

    def pods_of(self, group_key: str) -> dict[str, Pod]:
        """The pods of a PodGroup, whether or not that exists. Read only."""
        return self._pods_of.get(group_key) or {}

    def list_objects(self) -> Iterator[ApiObject]:
        """All objects, pods last."""
        for view, objects in self._objects.items():
            if view is not Pod:
                yield from objects.values()
        yield from self.all(Pod).values()

    # Changes by anybody

    def put(self, obj: ApiObject) -> None:
        """Create the object, or replace it."""
        objects = self._objects.setdefault(type(obj), {})
        key = obj.metadata.key
        kind = WatchType.MODIFIED if key in objects else WatchType.ADDED
        self._made_ns.setdefault(obj.metadata.uid, self._now_ns())
        old = objects.get(key)
        objects[key] = obj = self._assign_version(obj)
        if isinstance(obj, Pod):
            if isinstance(old, Pod):
                if old.spec.node_name != obj.spec.node_name:
                    del self._pods_on[old.spec.node_name][key]
                if old.group_name and old.group_name != obj.group_name:
                    self._leave_group(old)
            self._pods_on.setdefault(obj.spec.node_name, {})[key] = obj
            if obj.group_name:
                self._pods_of.setdefault(group_key_of(obj), {})[key] = obj
        self._publish_change(kind, obj)

    def remove(self, obj: ApiObject) -> None:
        """It is gone. What is not there, or is another of that name, stays."""
        objects = self._objects.get(type(obj), {})
        found = objects.get(obj.metadata.key)
        if found is not None and found.metadata.uid == obj.metadata.uid:
            del objects[obj.metadata.key]
            if isinstance(found, Pod):
                del self._pods_on[found.spec.node_name][obj.metadata.key]
                if found.group_name:
                    self._leave_group(found)
            self._publish_change(WatchType.DELETED, self._assign_version(found))

    def _leave_group(self, pod: Pod) -> None:
        group_key = group_key_of(pod)
        del self._pods_of[group_key][pod.metadata.key]
        if not self._pods_of[group_key]:
            del self._pods_of[group_key]

    def delete_pod(self, pod: Pod) -> None:
        """As DELETE does: at once where it has no node, else it is told to end."""
        found = self.get(Pod, pod.metadata.key)
        if found is None or found.metadata.uid != pod.metadata.uid:
            return
        self._end(found, at_once=not found.spec.node_name)

    def delete(self, obj: ApiObject) -> None:
        """As DELETE does of other objects: at once, unless a finalizer holds it."""
        found = self.get(type(obj), obj.metadata.key)
        if found is None or found.metadata.uid != obj.metadata.uid:
            return
        self._end(found, at_once=not found.metadata.finalizers)

    def _end(self, found: ApiObject, *, at_once: bool) -> None:
        if at_once:
            self.remove(found)
        elif found.metadata.deletion_timestamp is None:
            at = time_text(self._now_ns())
            meta = msgspec.structs.replace(found.metadata, deletion_timestamp=at)
            self.put(msgspec.structs.replace(found, metadata=meta))

    # What a scheduler writes

    def carry_out(self, write: ApiWrite, by_driver: bool = False) -> tuple[int, str]:
        """Do it. The HTTP status, and the resourceVersion of what was patched, else ""."""
        self.is_scheduler_writing = not by_driver
        try:
            status = self._carry_out(write)
        finally:
            self.is_scheduler_writing = False
        found = None
        if isinstance(write, ObjectWrite):
            found = self.get(write.view, _key(write))
        elif isinstance(write, PatchPodStatus):
            found = self.get(Pod, _key(write))
        return status, found.metadata.resource_version if found is not None and status == OK else ""

    def _carry_out(self, write: ApiWrite) -> int:
        if isinstance(write, CreateEvent):
            return OK
        if isinstance(write, CreateObject):
            return self._create(write)
        if isinstance(write, DeleteObject):
            return self._delete(write)
        if isinstance(write, PatchObject):
            return self._patch(write)
        if isinstance(write, JsonPatchObject):
            return self._json_patch(write)
        pod = self.get(Pod, f"{write.namespace}/{write.name}")
        if pod is None:
            return NOT_FOUND
        if pod.metadata.uid != write.uid:
            return CONFLICT
        if isinstance(write, DeletePod):
            self._end(pod, at_once=not pod.spec.node_name or write.grace_seconds == 0)
        elif isinstance(write, Bind):
            if pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
                return CONFLICT
            if write.resource_version not in ("", pod.metadata.resource_version):
                return CONFLICT
            self.put(bound(pod, write))
        elif write.resource_version not in ("", pod.metadata.resource_version):
            return CONFLICT
        else:
            self._put_changed(pod, patched(pod, write))
        return OK

    def _put_changed(self, old: ApiObject, new: ApiObject) -> None:
        """A patch that changes nothing makes no new version."""
        if new != old:
            self.put(new)

    def _patch(self, write: PatchObject) -> int:
        found = self.get(write.view, _key(write))
        if found is None:
            return NOT_FOUND
        meta = found.metadata
        if (meta.uid, meta.resource_version) != (write.uid, write.resource_version):
            return CONFLICT
        changed = merged(found, write)
        if changed.metadata.deletion_timestamp is not None and not changed.metadata.finalizers:
            self.remove(changed)
        else:
            self._put_changed(found, changed)
        return OK

    def _json_patch(self, write: JsonPatchObject) -> int:
        found = self.get(write.view, _key(write))
        if found is None:
            return NOT_FOUND
        changed = json_patched(found, write)
        if changed is None:
            return INVALID
        self._put_changed(found, changed)
        return OK

    def _create(self, write: CreateObject) -> int:
        if self.get(write.view, _key(write)) is not None:
            return CONFLICT
        made = make_object(write, f"made-{self.revision}")
        if isinstance(made, Pod):
            at = time_text(self._now_ns())
            meta = msgspec.structs.replace(made.metadata, creation_timestamp=at)
            status = msgspec.structs.replace(made.status, phase="Pending")
            made = msgspec.structs.replace(made, metadata=meta, status=status)
        self.put(made)
        return OK

    def _delete(self, write: DeleteObject) -> int:
        found = self.get(write.view, _key(write))
        if found is None:
            return NOT_FOUND
        if found.metadata.uid != write.uid:
            return CONFLICT
        self.delete(found)
        return OK

    # The Leases of leadership

    def put_lease(self, name: str, lease: dict[str, Any], version: int) -> int:
        """Write it, relying on the version that was read (0: there was none)."""
        known = self.leases.get(name)
        now = 0 if known is None else known["metadata"]["version"]
        if now != version:
            return CONFLICT
        self.leases[name] = {**lease, "metadata": {**lease["metadata"], "version": version + 1}}
        return OK

    # How

    def _assign_version(self, obj: Any) -> Any:
        self.revision += 1
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(self.revision))
        return msgspec.structs.replace(obj, metadata=meta)

    def _publish_change(self, kind: WatchType, obj: ApiObject) -> None:
        change = (self.revision, kind, obj)
        self.history.append(change)
        if len(self.history) > HISTORY_MAX:
            self.forgotten = self.history.popleft()[0]
        for tell in self.tell:
            tell(change)


def group_key_of(pod: Pod) -> str:
    """The key of the PodGroup that a pod of a group names."""
    return f"{pod.metadata.namespace}/{pod.group_name}"


def _key(write: ObjectWrite | PatchPodStatus) -> str:
    return f"{write.namespace}/{write.name}" if write.namespace else write.name
