"""Builds the ResourceClaim for a pod's extended resources that devices back (KEP-5004).

The extended resources of a pod share one claim, which differs from node to node: resources in the
node's allocatable come from its device plugin, the others from devices of a class. Only the
scheduler writes the claim, once it has chosen the node.

Source: kube-scheduler plugins/dynamicresources/extendeddynamicresources.go. Differs from
kube-scheduler: on a node that has all of the resources itself there is no claim, whatever else the
pod claims.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np

from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.pod import Container, ExtendedResourceRequest
from stower.model.kinds.resource_claim import (
    EXACT_COUNT,
    EXTENDED_RESOURCE_CLAIM,
    FINALIZER,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from stower.model.meta import ObjectMeta, OwnerReference
from stower.model.quantity import quantity_of
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

RESTART_ALWAYS: Final = "Always"
SUFFIX: Final = "-extended-resources-"
# As in names that the API server generates: the maximum length, and the length of the suffix.
NAME_MAX: Final = 63
RANDOM_SUFFIX_LENGTH: Final = 5
LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"

RequestMappings = tuple[ExtendedResourceRequest, ...]


class DeviceBackedRows(NamedTuple):
    """Rows on which devices back the same resources; no names: the nodes have all of them."""

    rows: Bools
    names: tuple[str, ...]


def has_device_backed_resources(shape: Shape, state: ClusterState) -> bool:
    """Returns whether a device class may back an extended resource of the shape."""
    resources = state.devices.class_by_resource
    return any(column.name in resources for column, _ in shape.extended_requests)


def device_backed_rows(shape: Shape, state: ClusterState) -> list[DeviceBackedRows]:
    """Returns all rows, grouped by the resources that devices back there."""
    resources, limit = state.devices.class_by_resource, state.row_limit
    groups = [DeviceBackedRows(np.ones(limit, np.bool_), ())]
    for column, _ in shape.extended_requests:
        if column.name in resources:
            is_missing = column.allocatable[:limit] == 0
            groups = [
                group
                for rows, names in groups
                for group in (
                    DeviceBackedRows(rows & ~is_missing, names),
                    DeviceBackedRows(rows & is_missing, (*names, column.name)),
                )
                if group.rows.any()
            ]
    return groups


def extended_codes(
    pod: Pod,
    shape: Shape,
    claims: Sequence[ResourceClaim],
    state: ClusterState,
    sought: Bools | None,
    codes_of: Callable[[list[ResourceClaim], ClusterState, Bools], Ints],
) -> Ints:
    """Returns int64[row_limit]: where the claims, and what the extended resources claim there, can
    be allocated, by `codes_of`: 0 where they can, and on rows that are not `sought`."""
    codes = np.zeros(state.row_limit, np.int64)
    for rows, names in device_backed_rows(shape, state):
        asked = [*claims]
        if names:
            asked.append(make_extended_claim(pod, names, state.devices.class_by_resource)[0])
        if asked:
            here = rows if sought is None else rows & sought
            codes[here] = codes_of(asked, state, here)[: state.row_limit][here]
    return codes


def device_backed_resources(shape: Shape, state: ClusterState, row: int) -> tuple[str, ...]:
    """Returns the resources that devices back on one row."""
    resources = state.devices.class_by_resource
    return tuple(
        column.name
        for column, _ in shape.extended_requests
        if column.name in resources and not column.allocatable_cells[row]
    )


def rows_missing_resource(shape: Shape, state: ClusterState) -> Bools:
    """Returns bool[row_limit]: nodes without a requested extended resource that no class backs."""
    resources, limit = state.devices.class_by_resource, state.row_limit
    result = np.zeros(limit, np.bool_)
    for column, _ in shape.extended_requests:
        if column.name in resources:
            continue
        for row in np.flatnonzero(state.present[:limit] & (column.allocatable[:limit] == 0)):
            if column.name not in (state.node_at(int(row)).status.allocatable or {}):
                result[row] = True
    return result


def make_extended_claim(
    pod: Pod, names: Sequence[str], classes: Mapping[str, str]
) -> tuple[ResourceClaim, RequestMappings]:
    """Returns the claim for these resources of the pod, and which request each container uses."""
    requests: list[DeviceRequest] = []
    mappings: list[ExtendedResourceRequest] = []
    for name in sorted(names):
        resource_requests, resource_mappings = _requests(pod, name, classes[name])
        requests += resource_requests
        mappings += resource_mappings
    requests.sort(key=lambda request: request.name)
    meta = pod.metadata
    owner = OwnerReference("Pod", meta.name, meta.uid, "v1", True)
    claim_meta = ObjectMeta(
        name=_name(pod),
        namespace=meta.namespace,
        annotations={EXTENDED_RESOURCE_CLAIM: "true"},
        owner_references=(owner,),
        finalizers=(FINALIZER,),
    )
    spec = ResourceClaimSpec(DeviceClaim(tuple(requests)))
    return ResourceClaim(claim_meta, spec), tuple(mappings)


def _name(pod: Pod) -> str:
    """Returns a name that no other attempt of the pod uses; the claim does not exist yet."""
    meta = pod.metadata
    key = f"{meta.uid}\0{meta.resource_version}".encode()
    digits = int.from_bytes(blake2b(key, digest_size=8).digest(), "big")
    suffix = ""
    for _ in range(RANDOM_SUFFIX_LENGTH):
        digits, letter = divmod(digits, len(LETTERS))
        suffix += LETTERS[letter]
    return f"{meta.name}{SUFFIX}"[: NAME_MAX - RANDOM_SUFFIX_LENGTH] + suffix


def _requests(
    pod: Pod, name: str, class_name: str
) -> tuple[list[DeviceRequest], list[ExtendedResourceRequest]]:
    """Returns the requests for one resource, and the mappings of containers to requests.

    Regular init containers reuse the devices of the containers that run after them. The largest
    number of devices that one of them needs beyond these becomes an extra request, which they
    share.
    """
    inits = pod.spec.init_containers or ()
    containers = (*inits, *pod.spec.containers)
    request_by_index: dict[int, DeviceRequest] = {}
    regular_inits: list[tuple[int, Container]] = []
    mappings = []
    for i, container in enumerate(containers):
        if i < len(inits) and container.restart_policy != RESTART_ALWAYS:
            regular_inits.append((i, container))
            continue
        count = _count(container, name)
        if count:
            request = request_by_index[i] = _request(i, container, name, class_name, count)
            mappings.append(ExtendedResourceRequest(container.name, name, request.name))
    extra: DeviceRequest | None = None
    extra_count = 0
    # Indices of `mappings` whose request is the extra one.
    extra_indices: dict[int, int] = {}
    for i, container in regular_inits:
        missing = _count(container, name)
        for index, request in request_by_index.items():
            if index < i or missing <= 0:
                continue
            assert request.exactly is not None
            missing -= request.exactly.count
            mappings.append(ExtendedResourceRequest(container.name, name, request.name))
        if missing > 0:
            candidate = _request(i, container, name, class_name, missing)
            extra_indices[len(mappings)] = i
            mappings.append(ExtendedResourceRequest(container.name, name, candidate.name))
            if missing > extra_count:
                extra, extra_count = candidate, missing
    if extra is not None:
        for index in extra_indices:
            mappings[index] = ExtendedResourceRequest(
                mappings[index].container_name, name, extra.name
            )
    return [*([extra] if extra is not None else ()), *request_by_index.values()], mappings


def _count(container: Container, name: str) -> int:
    """Returns the amount of the resource that the container requests, rounded up."""
    requests = (container.resources.requests if container.resources is not None else None) or {}
    return quantity_of(requests[name]).round_up(0) if name in requests else 0


def _request(i: int, container: Container, name: str, class_name: str, count: int) -> DeviceRequest:
    """Returns a request named by the container's index and by the resource's index within it."""
    assert container.resources is not None
    position = sorted(container.resources.requests or ()).index(name)
    exactly = ExactDeviceRequest(class_name, allocation_mode=EXACT_COUNT, count=count)
    return DeviceRequest(f"container-{i}-request-{position}", exactly)
