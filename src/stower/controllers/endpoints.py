"""Endpoints controller: keeps the Endpoints object of each Service that selects its pods.

Source: pkg/controller/endpoint, Kubernetes 1.36, without the annotation of the last change.
"""

from typing import Final

from stower.controllers.objects import Object, ObjectStore, name_of, namespace_of
from stower.controllers.pods import is_ready
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

ENDPOINTS: Final = "endpoints"
MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
OWN_NAME: Final = "endpoint-controller"
ADDRESSES_MAX: Final = 1_000
OVER_CAPACITY: Final = "endpoints.kubernetes.io/over-capacity"


class EndpointsController(ServiceController):
    """One Service is one key; its Endpoints have its name."""

    name = "endpoints-controller"
    kinds = (SERVICES, ENDPOINTS, "pods")
    made = ENDPOINTS

    def service_of(self, obj: Object) -> str:
        """The Service of the same name."""
        return name_of(obj)

    def clean_up(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Deletes the Endpoints that were made for a Service that is gone."""
        found = seen.get(ENDPOINTS, key)
        if found is not None and _labels(found).get(MANAGED_BY) == OWN_NAME:
            todo.delete(ENDPOINTS, found)

    def reconcile_service(
        self, seen: ObjectStore, service: Object, pods: list[Object], todo: ReconcileResult
    ) -> None:
        """Creates or updates the Endpoints."""
        subsets, is_cut = _cut(_subsets(service, pods))
        labels = {**_labels(service), MANAGED_BY: OWN_NAME}
        labels.pop(HEADLESS, None)
        if is_headless(service):
            labels[HEADLESS] = ""
        meta: Object = {"name": name_of(service), "namespace": namespace_of(service)}
        found = seen.get(ENDPOINTS, f"{meta['namespace']}/{meta['name']}")
        marks = dict((found or {"metadata": {}})["metadata"].get("annotations") or {})
        before = dict(marks)
        marks.pop(OVER_CAPACITY, None)
        if is_cut:
            marks[OVER_CAPACITY] = "truncated"
        if found is None:
            meta |= {"labels": labels, "annotations": marks}
            todo.create(ENDPOINTS, {"metadata": meta, "subsets": subsets})
        elif (found.get("subsets") or []) != subsets or _labels(found) != labels or marks != before:
            meta = {**found["metadata"], "labels": labels, "annotations": marks}
            todo.update(ENDPOINTS, {**found, "metadata": meta, "subsets": subsets})


def _labels(obj: Object) -> Object:
    return obj["metadata"].get("labels") or {}


def _subsets(service: Object, pods: list[Object]) -> list[Object]:
    """Addresses by the ports that they have, in order. Source: RepackSubsets."""
    is_ipv6 = (service["spec"].get("ipFamilies") or ["IPv4"])[0] == "IPv6"
    found: dict[str, Object] = {}
    for pod in sorted(pods, key=lambda pod: (addresses_of(pod, is_ipv6), name_of(pod))):
        own = addresses_of(pod, is_ipv6)
        ports = [
            {name: value for name, value in port.items() if value != ""}
            for port in ports_of(service, pod)
        ]
        if not has_endpoint(pod, publishes_unready(service)) or not own:
            continue
        if not ports and not has_no_ports(service):
            continue
        address: Object = {"ip": own[0]}
        if hostname := hostname_of(service, pod):
            address["hostname"] = hostname
        if pod["spec"].get("nodeName"):
            address["nodeName"] = pod["spec"]["nodeName"]
        address["targetRef"] = target_of(pod)
        subset = found.setdefault(str(ports), {"ports": ports} if ports else {})
        is_good = publishes_unready(service) or is_ready(pod)
        subset.setdefault("addresses" if is_good else "notReadyAddresses", []).append(address)
    return [found[key] for key in sorted(found)]


def _cut(subsets: list[Object]) -> tuple[list[Object], bool]:
    """At most so many addresses, ready ones first; whether some were left out."""
    rest, is_cut = ADDRESSES_MAX, False
    kept: list[Object] = [dict(subset) for subset in subsets]
    for field in ("addresses", "notReadyAddresses"):
        for subset in kept:
            if field in subset:
                is_cut |= len(subset[field]) > rest
                subset[field] = subset[field][:rest]
                rest -= len(subset[field])
                if not subset[field]:
                    del subset[field]
    return [s for s in kept if "addresses" in s or "notReadyAddresses" in s], is_cut
