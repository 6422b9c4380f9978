"""ResourceClaim (resource.k8s.io/v1): requested devices, allocated devices, and reservations.

Source: KEP-4381; KEP-4816 (firstAvailable), KEP-5018 (adminAccess), KEP-5055 (tolerations),
KEP-5075 (capacity, distinctAttribute, shareID), KEP-5007 (binding conditions).
"""

from typing import Any, Final

import msgspec

from stower.model.kinds.device_class import DeviceSelector
from stower.model.kinds.resource_slice import QuantityText
from stower.model.meta import ObjectMeta
from stower.model.numbers import Int64
from stower.model.selectors import NodeSelector
from stower.model.taints import Toleration

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
# On a claim that the scheduler has made for a pod's extended resources (KEP-5004).
EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
# On a claim that was made for a pod: its name in the pod's spec.resourceClaims.
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
# When a claim whose devices are negotiated is allocated: as soon as it is there, or (so it is where
# nothing is said) when a pod uses it.
ALLOCATION_MODE: Final = "stower.dev/allocation-mode"
IMMEDIATE: Final = "Immediate"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
ALLOCATION_MODES: Final = (IMMEDIATE, WAIT_FOR_FIRST_CONSUMER)
ALLOCATED: Final = "/allocated"  # ends the finalizer of a driver that negotiates
# Its driver is to take the devices back once nobody uses them; the value says why.
DEALLOCATION_REQUESTED: Final = "stower.dev/deallocation-requested"
DEALLOCATION_REASON_MAX: Final = 256  # bytes
RESERVED_FOR_MAX: Final = 256  # ResourceClaimReservedForMaxSize
RESULTS_MAX: Final = 32  # AllocationResultsMaxSize
FIRST_AVAILABLE_MAX: Final = 8  # FirstAvailableDeviceRequestMaxSize
EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"
DISTINCT_DRIVERS: Final = "/"


class DeviceToleration(Toleration, frozen=True, gc=False):
    """A taint that the request does not mind; for NoExecute, for how long. Operators are Equal and
    Exists."""


class CapacityRequirements(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How much of each capacity of a device is asked for."""

    requests: dict[str, QuantityText] | None = None


class ExactDeviceRequest(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Devices of one class."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    capacity: CapacityRequirements | None = None
    name: str = ""  # of an alternative of firstAvailable


class DeviceRequest(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One request, or alternatives in order of preference."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[ExactDeviceRequest, ...] | None = None


class DeviceConstraint(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What the devices of the requests must have in common, or must not."""

    requests: tuple[str, ...] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ClaimConfig(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Parameters for the driver, for some requests or all."""

    requests: tuple[str, ...] | None = None
    opaque: dict[str, Any] | None = None


class DeviceClaim(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """All that is asked for."""

    requests: tuple[DeviceRequest, ...] | None = None
    constraints: tuple[DeviceConstraint, ...] | None = None
    config: tuple[ClaimConfig, ...] | None = None


class ResourceClaimSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What is claimed."""

    devices: DeviceClaim = DeviceClaim()

    @property
    def is_admin(self) -> bool:
        """Whether nothing but admin access is asked for."""
        asked = [request.exactly for request in self.devices.requests or ()]
        return all(exactly is not None and exactly.admin_access for exactly in asked)


class DeviceResult(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One device that was given, or a share of one."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, QuantityText] | None = None


class AllocatedConfig(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Parameters that come with the devices, from the class or the claim."""

    source: str = ""
    requests: tuple[str, ...] | None = None
    opaque: dict[str, Any] | None = None


class AllocatedDevices(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The devices that were given."""

    results: tuple[DeviceResult, ...] | None = None
    config: tuple[AllocatedConfig, ...] | None = None


class AllocationResult(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The devices, and which nodes reach them (all, where there is no selector)."""

    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ConsumerReference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Who uses the claim: a pod, or a pod group."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class Condition(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A condition of a device, from its driver."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class DeviceStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What the driver says of a device that was given."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Condition, ...] | None = None


class ResourceClaimStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True
):
    """What has become of the claim."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ConsumerReference, ...] | None = None
    devices: tuple[DeviceStatus, ...] | None = None


class ResourceClaim(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A claim for devices."""

    metadata: ObjectMeta
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def results(self) -> tuple[DeviceResult, ...]:
        """The devices that are allocated."""
        allocation = self.status.allocation
        return (allocation.devices.results or ()) if allocation is not None else ()

    def is_reserved_for(self, uid: str) -> bool:
        """Whether the pod (or group) of that uid may use it."""
        return any(consumer.uid == uid for consumer in self.status.reserved_for or ())
