"""Fills in the defaults of an API server, for objects that come from a file.

Only for the fields that scheduling reads. Source: pkg/apis/core/v1/defaults.go.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from stower.model.kinds import Node, Pod, PriorityClass, ResourceClaim
from stower.model.kinds.pod import Container, PodSpec, ResourceList
from stower.model.kinds.resource_claim import (
    EXACT_COUNT,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from stower.model.meta import ObjectMeta
from stower.model.resources import CPU, MEMORY, is_pod_level, pod_requests

DEFAULT_NAMESPACE: Final = "default"
# Source: pkg/apis/scheduling/types.go: classes that every cluster has.
SYSTEM_PRIORITIES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


def with_pod_defaults(pod: Pod, classes: Mapping[str, PriorityClass], uid: str) -> Pod:
    """The pod as an API server would have stored it: namespace, uid, priority, requests, ports.

    `classes` are the PriorityClasses by name; `uid` is used where the pod has none. Raises KeyError
    with the name of a PriorityClass that does not exist, InvalidObject for a quantity that is none.
    """
    spec = pod.spec
    containers = tuple(_with_defaults(c, spec.host_network) for c in spec.containers)
    init_containers = spec.init_containers and tuple(
        _with_defaults(c, spec.host_network) for c in spec.init_containers
    )
    priority, policy = spec.priority, spec.preemption_policy
    if priority is None:
        priority, policy = _priority(spec.priority_class_name, classes, policy)
    pod = msgspec.structs.replace(
        pod,
        metadata=_with_names(pod.metadata, uid, pod.metadata.namespace or DEFAULT_NAMESPACE),
        spec=msgspec.structs.replace(
            spec,
            containers=containers,
            init_containers=init_containers,
            scheduler_name=spec.scheduler_name or PodSpec().scheduler_name,
            priority=priority,
            preemption_policy=policy,
        ),
    )
    return _with_pod_level_requests(pod)


def with_node_defaults(node: Node, uid: str) -> Node:
    """The node with a uid, and with its capacity as allocatable where none is given."""
    status = node.status
    if status.allocatable is None and status.capacity is not None:
        status = msgspec.structs.replace(status, allocatable=status.capacity)
    return msgspec.structs.replace(
        node, metadata=_with_names(node.metadata, uid, ""), status=status
    )


def with_claim_defaults(claim: ResourceClaim, uid: str) -> ResourceClaim:
    """The claim with a uid and a namespace, and requests for one device where nothing else is
    said."""
    meta = _with_names(claim.metadata, uid, claim.metadata.namespace or "default")
    return msgspec.structs.replace(claim, metadata=meta, spec=with_claim_spec_defaults(claim.spec))


def with_claim_spec_defaults(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    """The same of the spec alone, as a template has it."""
    requests = tuple(_whole_request(request) for request in spec.devices.requests or ())
    devices = msgspec.structs.replace(spec.devices, requests=requests or None)
    return msgspec.structs.replace(spec, devices=devices)


def _whole_request(request: DeviceRequest) -> DeviceRequest:
    exactly, alternatives = request.exactly, request.first_available
    return msgspec.structs.replace(
        request,
        exactly=_counted(exactly) if exactly is not None else None,
        first_available=tuple(map(_counted, alternatives)) if alternatives is not None else None,
    )


def _counted(request: ExactDeviceRequest) -> ExactDeviceRequest:
    mode = request.allocation_mode or EXACT_COUNT
    count = request.count or int(mode == EXACT_COUNT)
    return msgspec.structs.replace(request, allocation_mode=mode, count=count)


def _with_names(metadata: ObjectMeta, uid: str, namespace: str) -> ObjectMeta:
    if metadata.uid and metadata.namespace == namespace:
        return metadata
    return msgspec.structs.replace(metadata, uid=metadata.uid or uid, namespace=namespace)


def _with_defaults(container: Container, host_network: bool) -> Container:
    """Requests from limits; on the host's network every port is a host port."""
    resources = container.resources
    if resources is not None and resources.limits:
        requests: ResourceList = {**resources.limits, **(resources.requests or {})}
        if requests != resources.requests:
            resources = msgspec.structs.replace(resources, requests=requests)
            container = msgspec.structs.replace(container, resources=resources)
    if host_network and container.ports:
        ports = tuple(
            p if p.host_port else msgspec.structs.replace(p, host_port=p.container_port)
            for p in container.ports
        )
        container = msgspec.structs.replace(container, ports=ports)
    return container


def _with_pod_level_requests(pod: Pod) -> Pod:
    """Where the pod itself has limits: its missing requests, from its containers or those limits.

    Source: defaultPodRequests. Only of cpu and memory may less be asked for than the limit.
    """
    own = pod.spec.resources
    if own is None or not own.limits:
        return pod
    bare = msgspec.structs.replace(pod.spec, overhead=None)
    asked = pod_requests(msgspec.structs.replace(pod, spec=bare), pod_level=False)
    from_containers: ResourceList = {
        name: str(asked[name]) for name in (CPU, MEMORY) if name in asked
    }
    requests: ResourceList = {
        name: limit for name, limit in own.limits.items() if is_pod_level(name)
    }
    requests.update(from_containers)
    requests.update(own.requests or {})
    own = msgspec.structs.replace(own, requests=requests)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=own))


def _priority(
    name: str, classes: Mapping[str, PriorityClass], policy: str | None
) -> tuple[int, str | None]:
    """Priority and preemption policy of the class; of the global default where none is named."""
    if name:
        if name in classes:
            return classes[name].value, policy or classes[name].preemption_policy
        return SYSTEM_PRIORITIES[name], policy
    defaults = sorted((c.value, c.metadata.name) for c in classes.values() if c.global_default)
    if not defaults:
        return 0, policy
    # With several, the one with the lowest value counts (plugin/pkg/admission/priority).
    value, chosen = defaults[0]
    return value, policy or classes[chosen].preemption_policy
