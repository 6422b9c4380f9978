"""Resource requests of a pod and allocatable resources of a node, as integers per resource.

CPU is in milli-CPU, everything else in the resource's base unit (bytes, devices, pods).

Source: component-helpers resource/helpers.go (PodRequests); KEP-753 (sidecars), KEP-1287 (in-place
resize), KEP-2837 (pod-level resources), KEP-5419 (their resize), KEP-5517 (what claims take);
scheduler framework/types.go.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from stower.model.errors import InvalidObject
from stower.model.kinds.pod import (
    ClaimedResources,
    Container,
    ContainerStatus,
    Pod,
    ResourceList,
)
from stower.model.quantity import MILLI, Quantity, QuantityError, quantity_of
from stower.model.selectors import label_key_fault

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
KEPT_BYTES_MAX: Final = 2_048  # of an allocatable; what is longer is read each time
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode

# What a container that asks for nothing counts as when nodes are scored (never when filtered).
# Source: scheduler util/pod_resources.go: "pretty arbitrary", similar to cluster add-ons.
NON_ZERO_CPU_MILLI: Final = 100
NON_ZERO_MEMORY_BYTES: Final = 200 * 1024 * 1024
NON_ZERO: Final[Mapping[str, Quantity]] = {
    CPU: Quantity.of_milli(NON_ZERO_CPU_MILLI),
    MEMORY: Quantity.of(NON_ZERO_MEMORY_BYTES),
}

# Amounts beyond these are cut to them, instead of wrapping around as upstream's do. What a node
# has, times 100 (a score), must fit into an int64: 64 PiB. A pod can ask for more: it never fits.
ROOM_MAX: Final = 2**56
AMOUNT_MAX: Final = 2**57

Quantities = dict[str, Quantity]
Amounts = dict[str, int]
Claimed = tuple[ClaimedResources, ...]

CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"  # and the name of a DeviceClass

HUGE_PAGES: Final = "hugepages-"
_NATIVE: Final = "kubernetes.io/"
_VOLUMES: Final = "attachable-volumes-"


def is_scalar(name: str) -> bool:
    """Whether the scheduler counts this resource beside cpu, memory, ephemeral-storage and pods."""
    return is_extended(name) or name.startswith((HUGE_PAGES, _VOLUMES)) or _NATIVE in name


def is_extended(name: str) -> bool:
    """Whether this is an extended resource such as nvidia.com/gpu."""
    if "/" not in name or _NATIVE in name or name.startswith("requests."):
        return False
    return label_key_fault(f"requests.{name}") is None


def is_class_resource(name: str) -> bool:
    """Whether a device class may stand for this resource (KEP-5004)."""
    return is_extended(name) or name.startswith(CLASS_PREFIX)


def is_counted(name: str) -> bool:
    """Whether a request for this resource is looked at at all."""
    return name in (CPU, MEMORY, EPHEMERAL_STORAGE) or is_scalar(name)


def is_pod_level(name: str) -> bool:
    """Whether a pod may ask for this resource as a whole (KEP-2837)."""
    return name in (CPU, MEMORY) or name.startswith(HUGE_PAGES)


def parse_list(resources: ResourceList | None, path: str = "resources") -> Quantities:
    """The quantities of a resource list; raises InvalidObject that names the entry."""
    result = {}
    for name, value in (resources or {}).items():
        try:
            result[name] = quantity_of(value)
        except QuantityError:
            raise InvalidObject(f"{path}.{name}", value, 'a quantity such as "1500m"') from None
    return result


def amounts(quantities: Mapping[str, Quantity]) -> Amounts:
    """Whole numbers of the resources that count, CPU in thousandths, rounded up, 0 to AMOUNT_MAX.

    Upstream starts from 0 and takes the maximum: a negative request asks for nothing.
    """
    return {
        name: _amount(name, quantity) for name, quantity in quantities.items() if is_counted(name)
    }


def amount_text(name: str, amount: int) -> str:
    """Returns a whole number of a resource as the API writes it: CPU in thousandths."""
    return f"{amount}m" if name == CPU else str(amount)


def node_room(allocatable: ResourceList | None) -> Amounts:
    """What a node has to give, `pods` included, 0 to ROOM_MAX. Raises InvalidObject."""
    if not allocatable:
        return {}
    text = _encode(allocatable)
    return (_known_room(text) if len(text) <= KEPT_BYTES_MAX else _node_room(text)).copy()


def _node_room(text: bytes) -> Amounts:
    quantities = parse_list(_decode(text), "status.allocatable")
    return {
        name: min(_amount(name, quantity), ROOM_MAX)
        for name, quantity in quantities.items()
        if name == PODS or is_counted(name)
    }


_known_room = lru_cache(1024)(_node_room)  # a cluster has nodes of few kinds


def _amount(name: str, quantity: Quantity) -> int:
    return max(0, min(quantity.round_up(MILLI if name == CPU else 0), AMOUNT_MAX))


def pod_requests(
    pod: Pod,
    *,
    use_status: bool = False,
    pod_level: bool = True,
    non_missing: Mapping[str, Quantity] | None = None,
    claimed: Claimed = (),
) -> Quantities:
    """What the pod asks for in all: containers, sidecars, init containers, pod level, overhead.

    `use_status` takes the larger of asked, allocated and actual during a resize; `pod_level` lets
    the pod's own requests replace the sum of its containers'; `non_missing` stands in for what a
    container does not name; `claimed` is what claims take of the node's own resources, beside what
    containers ask for. Raises InvalidObject for a quantity that is none.
    """
    requests = _container_requests(pod, use_status, non_missing or {})
    for part in claimed:
        _add(requests, parse_list(part.resources, "status.nodeAllocatableResourceClaimStatuses"))
    own = pod.spec.resources
    if pod_level and own is not None and own.requests:
        asked = parse_list(own.requests, "spec.resources.requests")
        effective = asked
        actual = pod.status.resources
        if use_status and actual is not None:
            given = parse_list(actual.requests, "status.resources.requests")
            allocated = parse_list(pod.status.allocated_resources, "status.allocatedResources")
            effective = _effective(pod, asked, given, allocated)
        for name in asked:
            if is_pod_level(name):
                requests[name] = effective.get(name, Quantity.of(0))
    _add(requests, parse_list(pod.spec.overhead, "spec.overhead"))
    return requests


def non_zero_requests(
    pod: Pod, requests: Mapping[str, Quantity], claimed: Claimed = ()
) -> tuple[int, int]:
    """(milli-CPU, bytes of memory) that a placed pod counts as when its node is scored; `requests`
    and `claimed` as of `pod_requests`.

    Source: PodInfo.CalculateResource: where pod-level requests are set, only those resources that
    are missing altogether get the stand-in.
    """
    own = pod.spec.resources
    has_pod_level = bool(own and own.requests) and any(
        is_pod_level(name) for name in (own.requests or {} if own else {})
    )
    stand_in = {
        name: quantity
        for name, quantity in NON_ZERO.items()
        if not has_pod_level or name not in requests
    }
    if stand_in:
        requests = pod_requests(pod, use_status=True, non_missing=stand_in, claimed=claimed)
    counted = amounts(requests)
    return counted.get(CPU, 0), counted.get(MEMORY, 0)


def host_ports(pod: Pod) -> tuple[tuple[str, int, str], ...]:
    """(protocol, port, IP) that the pod takes on its node; containers and sidecars only."""
    running = [c for c in pod.spec.init_containers or () if c.restart_policy == "Always"]
    return tuple(
        (port.protocol or "TCP", port.host_port, port.host_ip or "0.0.0.0")
        for container in (*running, *pod.spec.containers)
        for port in container.ports or ()
        if port.host_port > 0
    )


def normalized_image(name: str) -> str:
    """The image's name with the tag that is meant where none is written."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _container_requests(
    pod: Pod, use_status: bool, non_missing: Mapping[str, Quantity]
) -> Quantities:
    statuses: dict[str, ContainerStatus] = {}
    if use_status:
        both = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
        statuses = {status.name: status for status in both}

    def read_requests(container: Container, path: str, resizable: bool) -> Quantities:
        own = container.resources
        result = parse_list(own.requests if own else None, f"{path}.resources.requests")
        status = statuses.get(container.name) if resizable else None
        if status is not None and status.resources is not None:
            actual = parse_list(status.resources.requests, "status.containerStatuses.resources")
            allocated = parse_list(
                status.allocated_resources, "status.containerStatuses.allocatedResources"
            )
            result = _effective(pod, result, actual, allocated)
        return {**non_missing, **result}

    total: Quantities = {}
    for i, container in enumerate(pod.spec.containers):
        _add(total, read_requests(container, f"spec.containers[{i}]", True))
    sidecars: Quantities = {}
    peak: Quantities = {}
    for i, container in enumerate(pod.spec.init_containers or ()):
        is_sidecar = container.restart_policy == "Always"
        mine = read_requests(container, f"spec.initContainers[{i}]", is_sidecar)
        if is_sidecar:
            _add(total, mine)
            _add(sidecars, mine)
            _raise(peak, sidecars)
        else:
            _add(mine, sidecars)
            _raise(peak, mine)
    _raise(total, peak)
    return total


def _effective(
    pod: Pod, asked: Quantities, actual: Quantities, allocated: Quantities
) -> Quantities:
    """The most of what is asked, actual and allocated; without asked if the resize cannot be."""
    pending = pod.condition("PodResizePending")
    infeasible = pending is not None and pending.reason == "Infeasible"
    result = dict(actual if infeasible else asked)
    for other in (allocated,) if infeasible else (actual, allocated):
        _raise(result, other)
    return result


def _add(total: Quantities, more: Mapping[str, Quantity]) -> None:
    for name, quantity in more.items():
        total[name] = total[name].add(quantity) if name in total else quantity


def _raise(total: Quantities, other: Mapping[str, Quantity]) -> None:
    for name, quantity in other.items():
        if name not in total or quantity.cmp(total[name]) > 0:
            total[name] = quantity
