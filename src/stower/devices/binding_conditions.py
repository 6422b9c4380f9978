"""Conditions of allocated devices that must be true before the claim's pod is bound (KEP-5007).

Source: kube-scheduler plugins/dynamicresources (hasDeviceBindingStatus, isPodReadyForBinding).
"""

from operator import attrgetter

from stower.model.kinds import ResourceClaim
from stower.model.kinds.resource_claim import AllocationResult, DeviceResult, DeviceStatus
from stower.model.times import time_ns


def binding_deadline_ns(claim: ResourceClaim, timeout_ns: int) -> int | None:
    """Returns when the claim's binding conditions time out, in Unix ns; None without conditions."""
    allocation = claim.status.allocation
    if allocation is None:
        return None
    allocated_ns = time_ns(allocation.allocation_timestamp)
    has_conditions = any(r.binding_conditions is not None for r in allocation.devices.results or ())
    return allocated_ns + timeout_ns if has_conditions and allocated_ns is not None else None


def has_binding_conditions(allocation: AllocationResult) -> bool:
    """Returns whether some device of the allocation has binding conditions."""
    for result in allocation.devices.results or ():  # noqa: SIM110 (a generator is a call more)
        if result.binding_conditions:
            return True
    return False


def binding_fault(claim: ResourceClaim) -> str:
    """Returns which condition says that a device cannot be bound, or ""."""
    for result in _binding_results(claim):
        status = device_status(claim, result)
        for condition in (status.conditions if status is not None else None) or ():
            is_failure = condition.type in (result.binding_failure_conditions or ())
            if is_failure and condition.status == "True":
                return (
                    f"device binding failed: claim={claim.metadata.name}, "
                    f'reason={condition.reason}, message="{condition.message}"'
                )
    return ""


def is_ready(claim: ResourceClaim) -> bool:
    """Returns whether all binding conditions of the claim's devices are true."""
    for result in _binding_results(claim):  # noqa: SIM110 (a generator is a call more)
        if awaited_conditions(claim, result):
            return False
    return True


def unready_results(claim: ResourceClaim) -> list[DeviceResult]:
    """Returns the allocated devices that have failed to get ready; where none has, those of which a
    binding condition is not true."""
    failed, late = [], []
    for result in _binding_results(claim):
        status = device_status(claim, result)
        true = {c.type for c in (status.conditions if status else None) or () if c.status == "True"}
        if true.intersection(result.binding_failure_conditions or ()):
            failed.append(result)
        elif awaited_conditions(claim, result):
            late.append(result)
    return failed or late


def _binding_results(claim: ResourceClaim) -> list[DeviceResult]:
    """Returns the allocated devices that have binding conditions."""
    return list(filter(attrgetter("binding_conditions"), claim.results))


def device_status(claim: ResourceClaim, result: DeviceResult) -> DeviceStatus | None:
    """Returns the driver's status of a device of the claim, for the share of `result`."""
    for status in claim.status.devices or ():
        is_same_device = (status.driver, status.pool, status.device) == (
            result.driver, result.pool, result.device,
        )  # fmt: skip
        if is_same_device and (status.share_id or None) == result.share_id:
            return status
    return None


def awaited_conditions(claim: ResourceClaim, result: DeviceResult) -> list[str]:
    """Returns the binding conditions of one of the claim's devices that are not true."""
    status = device_status(claim, result)
    true = {c.type for c in (status.conditions if status else None) or () if c.status == "True"}
    return [name for name in result.binding_conditions or () if name not in true]


def awaited_text(claim: ResourceClaim) -> str:
    """Returns which conditions of the claim's devices are waited for, and since when, "" for
    none."""
    allocation = claim.status.allocation
    texts = [
        f"condition {name} of device {result.driver}/{result.pool}/{result.device}"
        for result in _binding_results(claim)
        for name in awaited_conditions(claim, result)
    ]
    if allocation is None or not texts:
        return ""
    since = allocation.allocation_timestamp
    return f"{', '.join(texts)}{f' since {since}' if since else ''}"
