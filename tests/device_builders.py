"""Small objects of resource.k8s.io for tests, and an API that agrees with what is written."""

from collections import deque
from typing import Any

import msgspec

from stower.engine.engine import Engine
from stower.engine.limits import SECOND_NS
from stower.framework.events import Event, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.writes import (
    Bind,
    CreateObject,
    DeleteObject,
    PatchObject,
    PatchPodStatus,
    Write,
)
from stower.model.kinds import DeviceClass, DeviceTaintRule, Pod, ResourceClaim, ResourceSlice
from stower.sim.changes import bound, merged, patched
from tests.builders import make_pod

GPU = "gpu.example.com"


def device_class(name: str = "gpu", expression: str = "", **spec: Any) -> DeviceClass:
    """A class of the devices that an expression chooses (none: of the driver)."""
    cel = {"cel": {"expression": expression or f'device.driver == "{GPU}"'}}
    data = {"metadata": {"name": name, "uid": f"c-{name}"}, "spec": {"selectors": [cel], **spec}}
    return msgspec.convert(data, DeviceClass)


def device(name: str, memory: str = "", shared: bool = False, **fields: Any) -> dict[str, Any]:
    """A device, with memory of so much."""
    found: dict[str, Any] = {"name": name, **fields}
    if memory:
        found["capacity"] = {"memory": {"value": memory}}
    if shared:
        found["allowMultipleAllocations"] = True
    return found


def device_slice(
    node: str = "n1", *devices: dict[str, Any], driver: str = GPU, pool: str = "", **spec: Any
) -> ResourceSlice:
    """A pool of one slice on a node ("" for all nodes)."""
    name = pool or node
    where = {"nodeName": node} if node else {"allNodes": True}
    own = {"name": name, "generation": 1, "resourceSliceCount": 1}
    data = {
        "metadata": {"name": f"{driver}-{name}", "uid": f"s-{driver}-{name}"},
        "spec": {"driver": driver, "pool": own, "devices": list(devices), **where, **spec},
    }
    return msgspec.convert(data, ResourceSlice)


def request(name: str = "r", class_name: str = "gpu", count: int = 1, **fields: Any) -> Any:
    """A request for so many devices of a class; `memory` is a part of each."""
    memory = fields.pop("memory", None)
    exactly = {
        "deviceClassName": class_name, "allocationMode": "ExactCount", "count": count, **fields
    }  # fmt: skip
    if memory is not None:
        exactly["capacity"] = {"requests": {"memory": memory}}
    return {"name": name, "exactly": exactly}


def resource_claim(
    name: str = "c1", *requests: Any, owner: Pod | None = None, **fields: Any
) -> ResourceClaim:
    """A claim; with an owner, one that was made for that pod."""
    meta: dict[str, Any] = {
        "name": name, "namespace": "default", "uid": f"u-{name}", "resourceVersion": "1",
    }  # fmt: skip
    if owner is not None:
        meta["ownerReferences"] = [
            {"kind": "Pod", "name": owner.metadata.name, "uid": owner.metadata.uid,
             "apiVersion": "v1", "controller": True}
        ]  # fmt: skip
    status = fields.pop("status", {})
    meta |= fields.pop("meta", {})
    devices = {"requests": list(requests or [request()]), **fields}
    data = {"metadata": meta, "spec": {"devices": devices}, "status": status}
    return msgspec.convert(data, ResourceClaim)


def claiming(name: str = "p1", *claims: str, **fields: Any) -> Pod:
    """A pod that uses these claims."""
    named = [{"name": f"d{i}", "resourceClaimName": c} for i, c in enumerate(claims or ("c1",))]
    return make_pod(name, resourceClaims=named, **fields)


def taint_rule(name: str, effect: str, **selector: str) -> DeviceTaintRule:
    """A rule that taints the devices that a selector chooses."""
    spec = {"deviceSelector": selector, "taint": {"key": "example.com/ill", "effect": effect}}
    return msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": spec}, DeviceTaintRule)


class Agreeing:
    """An API that does what it is told at once: objects by uid, and what was bound where."""

    def __init__(self, engine: Engine, *objects: Any) -> None:
        self.engine = engine
        self.objects: dict[str, Any] = {}
        self.bound: dict[str, str] = {}
        self.messages: dict[str, str] = {}
        self.told: dict[str, Any] = {}  # claims for extended resources, by pod
        self.writes: list[Write] = []
        self.refuses: Any = lambda write: 0  # the status that a write is refused with
        self._version = 100
        self.now_ns = 0
        self._inbox: deque[Event] = deque()
        for obj in objects:
            self.put(obj)

    def put(self, obj: Any) -> None:
        """An object as somebody else has written it."""
        kind = WatchType.MODIFIED if obj.metadata.uid in self.objects else WatchType.ADDED
        self._version += 1
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(self._version))
        obj = msgspec.structs.replace(obj, metadata=meta)
        self.objects[obj.metadata.uid] = obj
        self.tell(Observed(kind, obj))

    def remove(self, obj: Any) -> None:
        """It is deleted."""
        found = self.objects.pop(obj.metadata.uid)
        self.tell(Observed(WatchType.DELETED, found))

    def get(self, obj: Any) -> Any:
        """An object as it is now."""
        return self.objects[obj.metadata.uid]

    def tell(self, *events: Event) -> None:
        """Give the engine events, and carry out what it writes, until it is quiet."""
        self._inbox.extend(events)
        if len(self._inbox) > len(events):
            return
        while self._inbox:
            for write in self.engine.step(self._inbox[0], self.now_ns):
                self.writes.append(write)
                self._carry_out(write)
            self._inbox.popleft()

    def wait(self, seconds: int) -> None:
        """Let time pass."""
        self.now_ns += seconds * SECOND_NS
        self.tell(Tick())

    def _carry_out(self, write: Write) -> None:
        code = self.refuses(write)
        if code:
            self._inbox.append(WriteFailed(write.id, code, "refused"))
            return
        found = self.objects.get(getattr(write, "uid", ""))
        if isinstance(write, CreateObject):
            self._create(write)
        elif isinstance(write, DeleteObject):
            self._inbox.append(WriteOk(write.id))
            if found is not None:
                self._inbox.append(Observed(WatchType.DELETED, self.objects.pop(write.uid)))
        elif isinstance(write, PatchObject):
            if found is None or found.metadata.resource_version != write.resource_version:
                self._inbox.append(WriteFailed(write.id, 409, "conflict"))
                return
            self._put_quietly(merged(found, write))
            version = self.objects[write.uid].metadata.resource_version
            self._inbox.append(WriteOk(write.id, version))
        else:
            self._inbox.append(WriteOk(write.id))
            if isinstance(write, Bind):
                self.bound[write.name] = write.node_name
                self._put_quietly(bound(found, write))
            elif isinstance(write, PatchPodStatus) and found is not None:
                if write.condition is not None:
                    self.messages[write.name] = write.condition.message
                if write.extended_resource_claim is not None:
                    self.told[write.name] = write.extended_resource_claim
                self._put_quietly(patched(found, write))

    def _create(self, write: CreateObject) -> None:
        names = [(type(obj), obj.metadata.name) for obj in self.objects.values()]
        if (write.view, write.name) in names:
            self._inbox.append(WriteFailed(write.id, 409, "conflict"))
            return
        self._version += 1
        made = msgspec.convert(write.body, write.view)
        version = str(self._version)
        meta = msgspec.structs.replace(
            made.metadata, uid=f"made-{version}", resource_version=version
        )
        made = self.objects[meta.uid] = msgspec.structs.replace(made, metadata=meta)
        self._inbox.append(WriteOk(write.id, version))
        self._inbox.append(Observed(WatchType.ADDED, made))

    def _put_quietly(self, obj: Any) -> None:
        self._version += 1
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(self._version))
        obj = msgspec.structs.replace(obj, metadata=meta)
        self.objects[obj.metadata.uid] = obj
        self._inbox.append(Observed(WatchType.MODIFIED, obj))
