"""Keeps the Service `kubernetes` of the API server itself, its Endpoints and its EndpointSlice.

They are made where they are missing, and lead to the server again where they do not.

Source: pkg/controlplane (controller/kubernetesservice, reconcilers), Kubernetes 1.36.
"""

from typing import Any, Final

from stower.api.requests import Request, Response, encode
from stower.api.server import Api
from stower.api.users import SERVER

Object = dict[str, Any]
INTERVAL_S: Final = 10.0  # between two looks, as upstream
ADDRESS: Final = "10.96.0.1"  # the first of the Services' range
OWN: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # of servers that listen on all addresses
META: Final = {"name": "kubernetes", "namespace": "default"}
KEY: Final = "default/kubernetes"
SERVICES: Final = ("", "services")
ENDPOINTS: Final = ("", "endpoints")
SLICES: Final = ("discovery.k8s.io", "endpointslices")
PATHS: Final = {
    SERVICES: "/api/v1/namespaces/default/services",
    ENDPOINTS: "/api/v1/namespaces/default/endpoints",
    SLICES: "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
}
SKIP_MIRROR: Final = "endpointslice.kubernetes.io/skip-mirror"


class KubernetesService:
    """The three objects of a server that listens at one address and port."""

    def __init__(self, api: Api, address: str, port: int) -> None:
        """`address`: the IP on which the server listens."""
        self._api = api
        self._address = OWN.get(address, address)
        self._port = port

    def reconcile(self, now_ns: int) -> None:
        """Writes those of the objects that are missing or lead elsewhere. An existing Service stays
        as it is, as upstream."""
        if self._find(SERVICES) is None:
            self._ask("POST", SERVICES, self._service(), now_ns)
        self._keep_endpoints(now_ns)
        self._keep_slice(now_ns)

    def _keep_endpoints(self, now_ns: int) -> None:
        found, wanted = self._find(ENDPOINTS), self._endpoints()
        if found is None:
            self._ask("POST", ENDPOINTS, wanted, now_ns)
            return
        labels = {**_labels(found), SKIP_MIRROR: "true"}
        if labels != _labels(found) or found.get("subsets") != wanted["subsets"]:
            changed = {**found, "metadata": {**found["metadata"], "labels": labels}}
            self._ask("PUT", ENDPOINTS, {**changed, "subsets": wanted["subsets"]}, now_ns)

    def _keep_slice(self, now_ns: int) -> None:
        found, wanted = self._find(SLICES), self._slice()
        if found is not None and found["addressType"] != wanted["addressType"]:
            self._ask("DELETE", SLICES, None, now_ns)
            found = None
        if found is None:
            self._ask("POST", SLICES, wanted, now_ns)
        elif _labels(found) != _labels(wanted) or any(
            found.get(field) != wanted[field] for field in ("endpoints", "ports")
        ):
            self._ask("PUT", SLICES, wanted, now_ns)

    def _find(self, kind: tuple[str, str]) -> Object | None:
        record = self._api.store.collection(kind).records.get(KEY)
        return None if record is None else record.decode()

    def _ask(self, method: str, kind: tuple[str, str], body: Object | None, now_ns: int) -> None:
        path = PATHS[kind] if method == "POST" else f"{PATHS[kind]}/kubernetes"
        raw = b"" if body is None else encode(body)
        request = Request(method, path, now_ns, body=raw, user=SERVER, user_agent="stower")
        response = self._api.handle(request)
        assert isinstance(response, Response)

    # What they should be

    def _service(self) -> Object:
        ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": self._port}]
        spec = {"clusterIP": ADDRESS, "ports": ports, "type": "ClusterIP",
                "sessionAffinity": "None", "ipFamilyPolicy": "SingleStack"}  # fmt: skip
        labels = {"component": "apiserver", "provider": "kubernetes"}
        return {"apiVersion": "v1", "kind": "Service", "metadata": {**META, "labels": labels},
                "spec": spec}  # fmt: skip

    def _endpoints(self) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {**META, "labels": {SKIP_MIRROR: "true"}},
            "subsets": [{"addresses": [{"ip": self._address}], "ports": [self._endpoint_port()]}],
        }

    def _slice(self) -> Object:
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**META, "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv6" if ":" in self._address else "IPv4",
            "endpoints": [{"addresses": [self._address], "conditions": {"ready": True}}],
            "ports": [self._endpoint_port()],
        }

    def _endpoint_port(self) -> Object:
        return {"name": "https", "port": self._port, "protocol": "TCP"}


def _labels(obj: Object) -> Object:
    return obj["metadata"].get("labels") or {}
