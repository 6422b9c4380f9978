"""The Service `kubernetes` of the API server itself, and its EndpointSlice."""

from typing import Any, Final

Object = dict[str, Any]
ADDRESS: Final = "10.96.0.1"  # the first of the Services' range
LABELS: Final = {"component": "apiserver", "provider": "kubernetes"}
OWN: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # of servers that listen on all addresses
META: Final = {"name": "kubernetes", "namespace": "default"}


def kubernetes_service(port: int) -> Object:
    """Returns the Service. `port`: where the server listens."""
    ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]
    spec = {"clusterIP": ADDRESS, "ports": ports, "type": "ClusterIP", "sessionAffinity": "None"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {**META, "labels": LABELS},
            "spec": spec}  # fmt: skip


def kubernetes_slice(address: str, port: int) -> Object:
    """Returns the EndpointSlice. `address`: the IP on which the server listens."""
    address = OWN.get(address, address)
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**META, "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv6" if ":" in address else "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    }
