"""Node (core/v1): the fields that scheduling reads."""

import msgspec

from stower.model.kinds.pod import ResourceList
from stower.model.meta import ObjectMeta
from stower.model.numbers import Int64
from stower.model.taints import Taint


class NodeSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Taints, and whether the node is cordoned."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class ContainerImage(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """An image that the node has, under all its names."""

    names: tuple[str, ...] | None = None
    size_bytes: Int64 = 0


class NodeStatus(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What the node has to give to pods, and what it has in all."""

    allocatable: ResourceList | None = None
    capacity: ResourceList | None = None
    images: tuple[ContainerImage, ...] | None = None
    # KEP-5328: what the kubelet can do that others may not.
    declared_features: tuple[str, ...] | None = msgspec.field(default=None, name="declaredFeatures")


class Node(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
