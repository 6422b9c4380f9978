"""Checks the quantities of slices and claims, which an API server has checked: an older or laxer
one may not have.

Must not know what a quantity is used for.
"""

from collections.abc import Iterator

from stower.model.kinds import DeviceObject, ResourceClaim, ResourceSlice
from stower.model.kinds.resource_slice import Device, DeviceCapacity, QuantityText
from stower.model.quantity import QuantityError, quantity_of


def has_readable_quantities(obj: DeviceObject) -> bool:
    """Returns whether all quantities of an object can be parsed. Costs a parse for each quantity
    that the object has."""
    if isinstance(obj, ResourceSlice):
        quantities = _slice_quantities(obj)
    elif isinstance(obj, ResourceClaim):
        quantities = _claim_quantities(obj)
    else:
        return True
    try:
        for quantity in quantities:
            quantity_of(quantity)
    except QuantityError:
        return False
    return True


def _slice_quantities(slice_: ResourceSlice) -> Iterator[QuantityText]:
    for device in slice_.spec.devices or ():
        if device.capacity or device.consumes_counters or device.node_allocatable_resource_mappings:
            yield from _device_quantities(device)
    for counter_set in slice_.spec.shared_counters or ():
        for counter in counter_set.counters.values():
            yield counter.value


def _device_quantities(device: Device) -> Iterator[QuantityText]:
    for capacity in (device.capacity or {}).values():
        yield capacity.value
        if capacity.request_policy is not None:
            yield from _policy_quantities(capacity)
    for consumption in device.consumes_counters or ():
        for counter in consumption.counters.values():
            yield counter.value
    for mapping in (device.node_allocatable_resource_mappings or {}).values():
        if mapping.allocation_multiplier is not None:
            yield mapping.allocation_multiplier


def _policy_quantities(capacity: DeviceCapacity) -> Iterator[QuantityText]:
    policy = capacity.request_policy
    if policy is None:
        return
    if policy.default is not None:
        yield policy.default
    yield from policy.valid_values or ()
    if policy.valid_range is not None:
        bounds = (policy.valid_range.min, policy.valid_range.max, policy.valid_range.step)
        yield from (bound for bound in bounds if bound is not None)


def _claim_quantities(claim: ResourceClaim) -> Iterator[QuantityText]:
    for request in claim.spec.devices.requests or ():
        alternatives = request.first_available or ()
        exactly = () if request.exactly is None else (request.exactly,)
        for alternative in (*exactly, *alternatives):
            if alternative.capacity is not None:
                yield from (alternative.capacity.requests or {}).values()
    allocation = claim.status.allocation
    for result in (allocation.devices.results or ()) if allocation is not None else ():
        yield from (result.consumed_capacity or {}).values()
