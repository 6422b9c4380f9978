"""Copies of nodes under other names, with their devices."""

from collections.abc import Iterable
from typing import Final

import msgspec

from stower.model.kinds import ApiObject, Node, ResourceSlice

HOSTNAME: Final = "kubernetes.io/hostname"


def copy_of_node(model: Node, taken: set[str]) -> Node:
    """Returns a node like another, not cordoned, under a name that is not taken, and takes it."""
    number = 1
    while (name := f"{model.metadata.name}-copy-{number}") in taken:
        number += 1
    taken.add(name)
    labels = {**(model.metadata.labels or {}), HOSTNAME: name}
    meta = msgspec.structs.replace(model.metadata, name=name, uid=name, labels=labels)
    spec = msgspec.structs.replace(model.spec, unschedulable=False)
    return msgspec.structs.replace(model, metadata=meta, spec=spec)


def slices_of_copy(objects: Iterable[ApiObject], model: Node, node: Node) -> list[ResourceSlice]:
    """Returns the devices of a copy: those of the node that it is like."""
    like, name = model.metadata.name, node.metadata.name
    slices = (obj for obj in objects if isinstance(obj, ResourceSlice))
    return [_slice_on(obj, name) for obj in slices if obj.spec.node_name == like]


def _slice_on(slice_: ResourceSlice, name: str) -> ResourceSlice:
    """The same devices on another node."""
    spec, old = slice_.spec, slice_.spec.node_name
    pool = name if spec.pool.name == old else f"{spec.pool.name}-on-{name}"
    pool_ = msgspec.structs.replace(spec.pool, name=pool)
    meta_name = f"{slice_.metadata.name}-on-{name}"
    meta = msgspec.structs.replace(slice_.metadata, name=meta_name, uid=meta_name)
    spec = msgspec.structs.replace(spec, node_name=name, pool=pool_)
    return msgspec.structs.replace(slice_, metadata=meta, spec=spec)
