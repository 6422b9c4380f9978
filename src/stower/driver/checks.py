"""Validates the allocations that a driver returns, before they are written to ResourceClaims:
requests and counts, names of pools and devices, and nodes.

The API server would reject some of these errors, but not all.

Source: ValidateResourceClaimStatusUpdate of Kubernetes (names, at most 32 devices).
"""

from collections.abc import Mapping
from typing import Final

from stower.driver.author import Allocation
from stower.model.kinds import Node, ResourceClaim
from stower.model.kinds.resource_claim import RESULTS_MAX, DeviceRequest
from stower.model.names import label_faults, subdomain_faults

POOL_MAX: Final = 253
EXACT: Final = ("", "ExactCount")


def allocation_fault(
    claim: ResourceClaim, given: Allocation, node: str, nodes: Mapping[str, Node]
) -> str:
    """Returns what is wrong with the allocation of a claim, "" for nothing. `node`: the node that
    the devices were requested on, "" for any."""
    found = _devices_fault(claim, given) or _nodes_fault(given, node, nodes)
    return f"{claim.metadata.key}: {found}" if found else ""


def _devices_fault(claim: ResourceClaim, given: Allocation) -> str:
    counts: dict[str, int] = {}
    for request, pool, device in given.devices:
        counts[request] = counts.get(request, 0) + 1
        for fault in label_faults(device):
            return f"device {device!r}: {fault}"
        for part in pool.split("/"):
            for fault in subdomain_faults(part):
                return f"pool {pool!r}: {fault}"
        if len(pool) > POOL_MAX:
            return f"pool {pool!r}: must be no more than {POOL_MAX} characters"
    if len(given.devices) > RESULTS_MAX:
        return f"got {len(given.devices)} devices, want at most {RESULTS_MAX}"
    if not counts:
        return ""  # an optional device that is not there
    for one in claim.spec.devices.requests or ():
        fault = _count_fault(one, counts)
        if fault:
            return fault
    return f"request {next(iter(counts))!r} does not exist in the claim" if counts else ""


def _count_fault(request: DeviceRequest, counts: dict[str, int]) -> str:
    """Returns what is wrong with the devices of one request, and removes the request from
    `counts`."""
    options = {f"{request.name}/{one.name}": one for one in request.first_available or ()}
    if request.exactly is not None:
        options[request.name] = request.exactly
    chosen = [name for name in options if name in counts]
    if len(chosen) != 1:
        return f"request {request.name!r} has {'several alternatives' if chosen else 'no device'}"
    (name,) = chosen
    one, count = options[name], counts.pop(name)
    want = one.count or 1
    if one.allocation_mode in EXACT and count != want:
        return f"request {name!r} has {count} devices, want {want}"
    return ""


def _nodes_fault(given: Allocation, node: str, nodes: Mapping[str, Node]) -> str:
    reach = given.nodes
    if reach is None:
        return ""
    if isinstance(reach, str):
        return f"nodes: got {reach!r}, want a list of names or a mapping of labels"
    if not reach:
        return "nodes: got none, want names or labels, or None for all nodes"
    if isinstance(reach, Mapping):
        labels = (nodes[node].metadata.labels or {}) if node in nodes else None
        wrong = labels is not None and any(labels.get(k) != v for k, v in reach.items())
        return f"node {node} does not have the labels {dict(reach)}" if wrong else ""
    for name in reach:
        for fault in subdomain_faults(name):
            return f"node {name!r}: {fault}"
    if node and node not in reach:
        return f"nodes: node {node}, for which the devices were requested, is missing"
    return ""
