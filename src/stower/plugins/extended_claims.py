"""Extended resources that a node does not have as such, and that devices stand in for (KEP-5004).

All such resources of a pod make one claim, which differs from node to node: what the node lists in
its allocatable comes from its device plugin, the rest from devices of a class. Nobody but the
scheduler writes that claim, once it has decided on the node.

Source: kube-scheduler plugins/dynamicresources/extendeddynamicresources.go. Different from
upstream: where a node has all of the resources itself, there is no claim, whatever else the pod
claims.
"""

from collections.abc import Mapping, Sequence
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
from stower.state.arrays import Bools
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

RESTART_ALWAYS: Final = "Always"
SUFFIX: Final = "-extended-resources-"
# As names that the API server makes up: so long at most, the last characters chance.
NAME_MAX: Final = 63
RANDOM_SUFFIX_LENGTH: Final = 5
LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"

RequestMappings = tuple[ExtendedResourceRequest, ...]


class DeviceBackedRows(NamedTuple):
    """Rows on which devices stand in for the same resources (none: the node has all of them)."""

    rows: Bools
    names: tuple[str, ...]


def has_device_backed_resources(shape: Shape, state: ClusterState) -> bool:
    """Whether devices may stand in for something that such a pod asks for."""
    resources = state.devices.class_by_resource
    return any(column.name in resources for column, _ in shape.extended_requests)


def device_backed_rows(shape: Shape, state: ClusterState) -> list[DeviceBackedRows]:
    """All rows, by what devices stand in for there."""
    resources, limit = state.devices.class_by_resource, state.row_limit
    found = [DeviceBackedRows(np.ones(limit, np.bool_), ())]
    for column, _ in shape.extended_requests:
        if column.name in resources:
            lacks = column.allocatable[:limit] == 0
            found = [
                part
                for rows, names in found
                for part in (
                    DeviceBackedRows(rows & ~lacks, names),
                    DeviceBackedRows(rows & lacks, (*names, column.name)),
                )
                if part.rows.any()
            ]
    return found


def device_backed_resources(shape: Shape, state: ClusterState, row: int) -> tuple[str, ...]:
    """What devices stand in for on one row."""
    resources = state.devices.class_by_resource
    return tuple(
        column.name
        for column, _ in shape.extended_requests
        if column.name in resources and not column.allocatable_cells[row]
    )


def rows_missing_resource(shape: Shape, state: ClusterState) -> Bools:
    """bool[row_limit]: rows whose node does not know of a resource that no class stands for."""
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
    """The claim for these resources of the pod, and who of its containers has what of it."""
    requests: list[DeviceRequest] = []
    mappings: list[ExtendedResourceRequest] = []
    for name in sorted(names):
        own, told = _requests(pod, name, classes[name])
        requests += own
        mappings += told
    requests.sort(key=lambda request: request.name)
    meta = pod.metadata
    owner = OwnerReference("Pod", meta.name, meta.uid, "v1", True)
    made = ObjectMeta(
        name=_name(pod),
        namespace=meta.namespace,
        annotations={EXTENDED_RESOURCE_CLAIM: "true"},
        owner_references=(owner,),
        finalizers=(FINALIZER,),
    )
    spec = ResourceClaimSpec(DeviceClaim(tuple(requests)))
    return ResourceClaim(made, spec), tuple(mappings)


def _name(pod: Pod) -> str:
    """A name that another attempt for the pod does not have: it is known before the claim is."""
    meta = pod.metadata
    key = f"{meta.uid}\0{meta.resource_version}".encode()
    digits = int.from_bytes(blake2b(key, digest_size=8).digest(), "big")
    chance = ""
    for _ in range(RANDOM_SUFFIX_LENGTH):
        digits, letter = divmod(digits, len(LETTERS))
        chance += LETTERS[letter]
    return f"{meta.name}{SUFFIX}"[: NAME_MAX - RANDOM_SUFFIX_LENGTH] + chance


def _requests(
    pod: Pod, name: str, class_name: str
) -> tuple[list[DeviceRequest], list[ExtendedResourceRequest]]:
    """Of one resource. What containers that end before others start ask for, they take from what
    these will have; the most that is missing is one request more, for all of them."""
    inits = pod.spec.init_containers or ()
    containers = (*inits, *pod.spec.containers)
    lasting: dict[int, DeviceRequest] = {}
    passing: list[tuple[int, Container]] = []
    mappings = []
    for i, container in enumerate(containers):
        if i < len(inits) and container.restart_policy != RESTART_ALWAYS:
            passing.append((i, container))
            continue
        count = _count(container, name)
        if count:
            request = lasting[i] = _request(i, container, name, class_name, count)
            mappings.append(ExtendedResourceRequest(container.name, name, request.name))
    most: DeviceRequest | None = None
    more = 0
    own: dict[int, int] = {}  # where in `mappings` the extra request stands
    for i, container in passing:
        missing = _count(container, name)
        for at, request in lasting.items():
            if at < i or missing <= 0:
                continue
            assert request.exactly is not None
            missing -= request.exactly.count
            mappings.append(ExtendedResourceRequest(container.name, name, request.name))
        if missing > 0:
            extra = _request(i, container, name, class_name, missing)
            own[len(mappings)] = i
            mappings.append(ExtendedResourceRequest(container.name, name, extra.name))
            if missing > more:
                most, more = extra, missing
    if most is not None:
        for at in own:
            mappings[at] = ExtendedResourceRequest(mappings[at].container_name, name, most.name)
    return [*([most] if most is not None else ()), *lasting.values()], mappings


def _count(container: Container, name: str) -> int:
    asked = (container.resources.requests if container.resources is not None else None) or {}
    return quantity_of(asked[name]).round_up(0) if name in asked else 0


def _request(i: int, container: Container, name: str, class_name: str, count: int) -> DeviceRequest:
    """Named by the container, and by the resource's place among all that it asks for."""
    assert container.resources is not None
    place = sorted(container.resources.requests or ()).index(name)
    exactly = ExactDeviceRequest(class_name, allocation_mode=EXACT_COUNT, count=count)
    return DeviceRequest(f"container-{i}-request-{place}", exactly)
