"""ResourceSlice (resource.k8s.io/v1): devices that a driver publishes.

Source: KEP-4381; KEP-4815 (counters, node selection per device), KEP-5055 (taints), KEP-5007
(binding conditions), KEP-5075 (shared devices), KEP-5491 (attributes that are lists), KEP-5517
(devices that stand for a node's own resources).
"""

import msgspec

from stower.model.meta import ObjectMeta
from stower.model.numbers import Int64
from stower.model.selectors import NodeSelector
from stower.model.taints import Taint

QuantityText = str | Int64 | float


class DeviceAttribute(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One value, or a list of values of one type."""

    int_value: Int64 | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")
    int_values: tuple[Int64, ...] | None = msgspec.field(default=None, name="ints")
    bool_values: tuple[bool, ...] | None = msgspec.field(default=None, name="bools")
    string_values: tuple[str, ...] | None = msgspec.field(default=None, name="strings")
    version_values: tuple[str, ...] | None = msgspec.field(default=None, name="versions")


class ValidRange(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What may be consumed: min, min + step, min + 2 step, ... up to max."""

    min: QuantityText | None = None
    max: QuantityText | None = None
    step: QuantityText | None = None


class RequestPolicy(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What a request for a part of a capacity becomes (KEP-5075)."""

    default: QuantityText | None = None
    valid_values: tuple[QuantityText, ...] | None = None
    valid_range: ValidRange | None = None


class DeviceCapacity(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """How much there is of something, and how it may be shared out."""

    value: QuantityText = "0"
    request_policy: RequestPolicy | None = None


class DeviceTaint(Taint, frozen=True, gc=False, rename="camel"):
    """A reason not to use the device (None, NoSchedule) or to stop using it (NoExecute)."""

    time_added: str | None = None


class Counter(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An amount that devices of a pool share, or consume of it."""

    value: QuantityText = "0"


class CounterSet(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Counters under a name."""

    name: str = ""
    counters: dict[str, Counter] = {}


class CounterConsumption(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What a device in use takes from a counter set."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class NodeResourceMapping(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True
):
    """How much of a resource of the node itself a device takes: of a capacity as much as is
    consumed, or something for each device; times the multiplier."""

    capacity_key: str | None = None
    allocation_multiplier: QuantityText | None = None


class Device(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One device of a slice."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: tuple[CounterConsumption, ...] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] | None = None
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resource_mappings: dict[str, NodeResourceMapping] | None = None


class ResourcePool(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The pool that a slice is a part of, and of how many parts it consists in this generation."""

    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Devices, or counter sets, and the nodes that reach them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] | None = None
    shared_counters: tuple[CounterSet, ...] | None = None


class ResourceSlice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A part of a pool."""

    metadata: ObjectMeta
    spec: ResourceSliceSpec = ResourceSliceSpec()
