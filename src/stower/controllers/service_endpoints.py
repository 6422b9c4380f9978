"""Finds the pods behind a Service: which of them count, at which addresses and ports.

Shared by the controllers of Endpoints and of EndpointSlices. Source: staging endpointslice
(utils.go, util/controller_utils.go), Kubernetes 1.36.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from stower.controllers.pods import is_finished, is_ready
from stower.controllers.runtime import BaseController, ReconcileResult

SERVICES: Final = "services"
HEADLESS: Final = "service.kubernetes.io/headless"


class ServiceController(BaseController):
    """A controller with a Service as its key, for Services that select their pods.

    `made`: the kind of the objects that it makes.
    """

    made = ""

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The Service, or those that select a pod, as it is or was."""
        if kind == SERVICES:
            return (key_of(obj),)
        if kind == self.made:
            name = self.service_of(obj)
            return (f"{namespace_of(obj)}/{name}",) if name else ()
        all_services = seen.list_namespace(SERVICES, namespace_of(obj))
        services = [service for service in all_services if service["spec"].get("selector")]
        if not services:
            return ()
        if old is not None and old is not obj and _relevant(old) == _relevant(obj):
            return ()
        return tuple(
            key_of(service)
            for service in services
            if any(pod is not None and _selects(service, pod) for pod in (obj, old))
        )

    def service_of(self, obj: Object) -> str:
        """Returns the name of the Service that an object of the made kind is for, or ""."""
        raise NotImplementedError

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Makes the objects of a Service, or deletes them."""
        service = seen.get(SERVICES, key)
        if service is None:
            self.clean_up(seen, key, todo)
            return
        spec = service["spec"]
        if spec.get("type") == "ExternalName" or not spec.get("selector"):
            return  # somebody else makes them, if anybody
        namespace = seen.get("namespaces", namespace_of(service))
        if is_ending(service) or (namespace is not None and is_ending(namespace)):
            return
        pods = seen.list_namespace("pods", namespace_of(service))
        self.reconcile_service(seen, service, [pod for pod in pods if _selects(service, pod)], todo)

    def clean_up(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Deletes what is left of a Service that is gone."""

    def reconcile_service(
        self, seen: ObjectStore, service: Object, pods: list[Object], todo: ReconcileResult
    ) -> None:
        """Makes the objects of a Service with these pods."""
        raise NotImplementedError


def _selects(service: Object, pod: Object) -> bool:
    selector = service["spec"].get("selector")
    labels = pod["metadata"].get("labels") or {}
    return bool(selector) and all(labels.get(name) == value for name, value in selector.items())


def _relevant(pod: Object) -> tuple[Any, ...]:
    """What of a pod that changes can matter to Services."""
    status = pod.get("status") or {}
    return (
        pod["metadata"].get("labels"),
        status.get("podIPs"),
        pod["spec"].get("nodeName"),
        is_ready(pod),
        is_finished(pod),
        is_ending(pod),
    )


def has_endpoint(pod: Object, with_ending: bool) -> bool:
    """Whether a pod has an endpoint: it has an address and has not ended."""
    if is_finished(pod) or not addresses_of(pod):
        return False
    return with_ending or not is_ending(pod)


def addresses_of(pod: Object, is_ipv6: bool | None = None) -> list[str]:
    """The pod's addresses, of one family or all."""
    found = [entry["ip"] for entry in (pod.get("status") or {}).get("podIPs") or ()]
    return [ip for ip in found if is_ipv6 is None or (":" in ip) is is_ipv6]


def publishes_unready(service: Object) -> bool:
    """Whether pods count as ready that are not."""
    return bool(service["spec"].get("publishNotReadyAddresses"))


def is_headless(service: Object) -> bool:
    """Whether a Service has no address of its own."""
    return service["spec"].get("clusterIP") in (None, "", "None")


def ports_of(service: Object, pod: Object) -> list[Object]:
    """The ports of a Service as the pod has them; those that it does not have are left out."""
    return list(_ports(service["spec"].get("ports") or (), pod))


def has_no_ports(service: Object) -> bool:
    """Whether a headless Service names no ports: its endpoints have none."""
    return not service["spec"].get("ports") and service["spec"].get("clusterIP") == "None"


def _ports(ports: Iterable[Object], pod: Object) -> Iterator[Object]:
    for port in ports:
        protocol = port.get("protocol", "TCP")
        target: Any = port.get("targetPort", port["port"])
        number = target if isinstance(target, int) else _named_port(pod, target, protocol)
        if number is not None:
            found = {"name": port.get("name", ""), "port": number, "protocol": protocol}
            if port.get("appProtocol"):
                found["appProtocol"] = port["appProtocol"]
            yield found


def _named_port(pod: Object, name: str, protocol: str) -> int | None:
    spec = pod["spec"]
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            if port.get("name") == name and port.get("protocol", "TCP") == protocol:
                return int(port["containerPort"])
    return None


def target_of(pod: Object) -> Object:
    """A reference to the pod."""
    return {
        "kind": "Pod",
        "namespace": namespace_of(pod),
        "name": name_of(pod),
        "uid": uid_of(pod),
    }


def hostname_of(service: Object, pod: Object) -> str:
    """The pod's name in the domain of a headless Service, or ""."""
    spec = pod["spec"]
    return str(spec.get("hostname") or "") if spec.get("subdomain") == name_of(service) else ""
