"""Finds invalid requests of ResourceClaims: disabled features, unknown device classes; words the
errors of claims.

Source: kube-scheduler plugins/dynamicresources PreFilter, Kubernetes 1.36.
"""

from collections.abc import Sequence

from stower.devices.requests import AllocationError
from stower.framework.device_gates import DeviceGates
from stower.framework.plugin_guard import PluginError
from stower.model.kinds import ResourceClaim
from stower.model.kinds.resource_claim import DeviceRequest
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
