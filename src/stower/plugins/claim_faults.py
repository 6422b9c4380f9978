"""Finds invalid requests of ResourceClaims: disabled features, unknown device classes; words the
errors of claims.

Source: kube-scheduler plugins/dynamicresources PreFilter, Kubernetes 1.36.
"""

from collections.abc import Sequence

from stower.devices.negotiation.claims import driver_of
from stower.devices.overcommits import Overcommits
from stower.devices.requests import AllocationError
from stower.framework.device_gates import DeviceGates
from stower.framework.plugin_guard import PluginError
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.resource_claim import RESERVED_FOR_MAX, DeviceRequest
from stower.plugins.claim_consumers import is_reserved_for_pod
from stower.state.cluster import ClusterState


def request_fault(
    claim: ResourceClaim, request: DeviceRequest, state: ClusterState, gates: DeviceGates
) -> str:
    """Returns why no device can be allocated for the request on any node, or ""."""
    prefix = f"resource claim {claim.metadata.key}, request {request.name}"
    if request.exactly is not None:
        alternatives = [(request.name, request.exactly)]
    elif request.first_available:
        if not gates.prioritized_list:
            gate = "the DRAPrioritizedList feature is disabled"
            return f"{prefix}: has subrequests, but {gate}"
        alternatives = [(f"{request.name}/{a.name}", a) for a in request.first_available]
    else:
        return f"{prefix}: unknown request type"
    for name, alternative in alternatives:
        class_name = alternative.device_class_name
        if class_name not in state.devices.classes:
            return f"request {name}: device class {class_name} does not exist"
    return ""


def filter_error(error: AllocationError, claims: Sequence[ResourceClaim]) -> PluginError:
    """Returns the error with the text that kube-scheduler has for errors of Filter."""
    keys = tuple(claim.metadata.key for claim in claims)
    return PluginError(f'running "DynamicResources" filter plugin: {error.message(keys)}')


def claim_fault(claim: ResourceClaim, pod: Pod, state: ClusterState, gates: DeviceGates) -> str:
    """Returns why the pod cannot use the claim on any node, or ""."""
    key = claim.metadata.key
    driver = driver_of(claim, state.negotiations.classes)
    if driver:
        return f"resource claim {key} is allocated by {driver}: enable NegotiatedResources"
    consumers = claim.status.reserved_for or ()
    if claim.status.allocation is not None:
        is_full = len(consumers) >= RESERVED_FOR_MAX
        if is_full and not is_reserved_for_pod(claim, pod, gates.group_claims):
            return "resourceclaim in use"
        reason = state.devices.extension(Overcommits).reason(claim)
        return f"resource claim {key}: {reason}" if reason else ""
    assumed = state.devices.assumed_claim(key)
    if assumed is not None and assumed.status.allocation is not None:
        return f"resource claim {key} is in the process of being allocated"
    for request in claim.spec.devices.requests or ():
        fault = request_fault(claim, request, state, gates)
        if fault:
            return fault
    return ""
