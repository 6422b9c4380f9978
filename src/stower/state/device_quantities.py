"""Checks the quantities of slices and claims, which an API server has checked: an older or laxer
one may not have.

Must not know what a quantity is used for.
"""

from collections.abc import Iterator
from functools import lru_cache

from stower.model.kinds import DeviceObject, ResourceClaim, ResourceSlice
from stower.model.kinds.resource_slice import Device, DeviceCapacity, QuantityText
from stower.model.quantity import QuantityError, quantity_of


def has_readable_quantities(obj: DeviceObject) -> bool:
    """Returns whether all quantities of an object can be parsed. Costs a parse for each quantity
    that the object has."""
    if isinstance(obj, ResourceSlice):
        return all(map(_is_readable, _slice_quantities(obj)))
    if not isinstance(obj, ResourceClaim):
        return True
    # Claims change with each decision that uses them: no call for each part.
    amounts = []
    for request in obj.spec.devices.requests or ():
        for alternative in (request.exactly, *(request.first_available or ())):
            if alternative is not None and alternative.capacity is not None:
                amounts.append(alternative.capacity.requests)
    allocation = obj.status.allocation
    for result in (allocation.devices.results or ()) if allocation is not None else ():
        amounts.append(result.consumed_capacity)
    for found in amounts:  # noqa: SIM110 (a generator is a call for each part)
        if found and not all(map(_is_readable, found.values())):
            return False
    return True


@lru_cache(maxsize=65536)
def _is_readable(text: QuantityText) -> bool:
    try:
        quantity_of(text)
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
