"""EndpointSlice controller: keeps the slices of each Service that selects its pods.

An endpoint stays in its slice, so that few slices change. Source: pkg/controller/endpointslice,
staging endpointslice, Kubernetes 1.36, without topology hints and the annotation of the last
change.
"""

from typing import Final

from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    name_of,
    namespace_of,
    uid_of,
)
from stower.controllers.pods import is_ready, reference_to
from stower.controllers.runtime import ReconcileResult
from stower.controllers.service_endpoints import (
    HEADLESS,
    SERVICES,
    ServiceController,
    addresses_of,
    has_endpoint,
    has_no_ports,
    hostname_of,
    is_headless,
    ports_of,
    publishes_unready,
    target_of,
)

SLICES: Final = "endpointslices"
SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
OWN_NAME: Final = "endpointslice-controller.k8s.io"
ZONE: Final = "topology.kubernetes.io/zone"
ENDPOINTS_MAX: Final = 100  # of a slice
PortKey = tuple[tuple[tuple[str, str], ...], ...]
RESERVED: Final = (HEADLESS, SERVICE_NAME, MANAGED_BY)


class EndpointSliceController(ServiceController):
    """One Service is one key; its slices are labelled with its name and go with it."""

    name = "endpointslice-controller"
    kinds = (SERVICES, SLICES, "pods", "nodes")
    made = SLICES

    def keys(
        self, seen: ObjectStore, kind: str, old: Object | None, obj: Object
    ) -> tuple[str, ...]:
        """A node is looked at when a pod is there: its zone does not change."""
        return () if kind == "nodes" else tuple(super().keys(seen, kind, old, obj))

    def service_of(self, obj: Object) -> str:
        """The Service that the label names, for slices of this controller."""
        labels = obj["metadata"].get("labels") or {}
        return str(labels.get(SERVICE_NAME) or "") if labels.get(MANAGED_BY) == OWN_NAME else ""

    def reconcile_service(
        self, seen: ObjectStore, service: Object, pods: list[Object], todo: ReconcileResult
    ) -> None:
        """Creates, updates and deletes slices, family by family."""
        own = [
            found
            for found in seen.list_namespace(SLICES, namespace_of(service))
            if self.service_of(found) == name_of(service) and not is_ending(found)
        ]
        families = service["spec"].get("ipFamilies") or ["IPv4"]
        for family in families:
            there = [found for found in own if found["addressType"] == family]
            _reconcile_family(seen, service, pods, family, there, todo)
        for found in own:
            if found["addressType"] not in families:
                todo.delete(SLICES, found)


def _reconcile_family(
    seen: ObjectStore,
    service: Object,
    pods: list[Object],
    family: str,
    there: list[Object],
    todo: ReconcileResult,
) -> None:
    # By ports: the ports, and the endpoints by uid of the pod.
    wanted: dict[PortKey, tuple[list[Object], dict[str, Object]]] = {}
    for pod in pods:
        ports = ports_of(service, pod)
        if not has_endpoint(pod, with_ending=True) or not addresses_of(pod, family == "IPv6"):
            continue
        if ports or has_no_ports(service):
            _, group = wanted.setdefault(_port_key(ports), (ports, {}))
            group[uid_of(pod)] = _endpoint(seen, service, pod, family)
    kept = 0
    for found in there:
        ports, group = wanted.get(_port_key(found.get("ports") or []), ([], {}))
        own = [
            group.pop(uid)
            for endpoint in found.get("endpoints") or ()
            if (uid := (endpoint.get("targetRef") or {}).get("uid")) in group
        ]
        while group and len(own) < ENDPOINTS_MAX and (own or not found.get("endpoints")):
            own.append(group.pop(next(iter(group))))
        is_placeholder = not wanted and not found.get("ports") and not kept
        if not own and not is_placeholder:
            todo.delete(SLICES, found)
            continue
        kept += 1
        labels = _labels(service)
        if (found.get("endpoints") or []) != own or found["metadata"].get("labels") != labels:
            meta = {**found["metadata"], "labels": labels}
            todo.update(SLICES, {**found, "metadata": meta, "endpoints": own})
    for ports, group in wanted.values():
        rest = list(group.values())
        for start in range(0, len(rest), ENDPOINTS_MAX):
            _create(service, family, ports, rest[start : start + ENDPOINTS_MAX], todo)
            kept += 1
    if not kept:
        _create(service, family, [], [], todo)  # which says that there are none


def _port_key(ports: list[Object]) -> PortKey:
    return tuple(sorted(tuple(sorted((k, str(v)) for k, v in port.items())) for port in ports))


def _create(
    service: Object, family: str, ports: list[Object], endpoints: list[Object],
    todo: ReconcileResult,
) -> None:  # fmt: skip
    meta = {
        "generateName": f"{name_of(service)}-",
        "namespace": namespace_of(service),
        "labels": _labels(service),
        "ownerReferences": [reference_to(service, SERVICES)],
    }
    todo.create(
        SLICES,
        {"metadata": meta, "addressType": family, "endpoints": endpoints, "ports": ports},
    )


def _labels(service: Object) -> Object:
    own = service["metadata"].get("labels") or {}
    labels = {name: value for name, value in own.items() if name not in RESERVED}
    if is_headless(service):
        labels[HEADLESS] = ""
    return {**labels, SERVICE_NAME: name_of(service), MANAGED_BY: OWN_NAME}


def _endpoint(seen: ObjectStore, service: Object, pod: Object, family: str) -> Object:
    serving, ending = is_ready(pod), is_ending(pod)
    found: Object = {
        "addresses": addresses_of(pod, family == "IPv6"),
        "conditions": {
            "ready": publishes_unready(service) or (serving and not ending),
            "serving": serving,
            "terminating": ending,
        },
        "targetRef": target_of(pod),
    }
    if hostname := hostname_of(service, pod):
        found["hostname"] = hostname
    if name := pod["spec"].get("nodeName"):
        found["nodeName"] = name
        zone = ((seen.get("nodes", name) or {"metadata": {}})["metadata"].get("labels") or {}).get(
            ZONE
        )
        if zone:
            found["zone"] = zone
    return found
