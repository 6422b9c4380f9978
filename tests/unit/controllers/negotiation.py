"""What drivers and users write in the negotiation about devices."""

from typing import Any

from stower.controllers.runtime import path_to
from tests.unit.controllers.cluster import Cluster, pools

Object = dict[str, Any]
DRIVER = "fabric.example.com"
FINALIZER = f"{DRIVER}/allocated"
FLAG = "stower.dev/deallocation-requested"
SPEC: Object = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "fabric"}}]}}


class Negotiated(Cluster):
    """A cluster with a class of devices that a driver allocates. The driver is the test."""

    def __init__(self, nodes: int = 2) -> None:
        super().__init__(pools(nodes), scheduler=False)
        self.create("deviceclasses", {"metadata": {"name": "fabric"}, "spec": {}}, "")
        made = {"metadata": {"name": "fabric"}, "driverName": DRIVER}
        self.create("resourceclasses", made, "")

    def claim(self, name: str = "mine", **annotations: str) -> Object:
        """A claim of a user."""
        meta = {"name": name, "annotations": annotations}
        return self.create("resourceclaims", {"metadata": meta, "spec": SPEC})

    def pod(self, name: str = "p", claim: str = "mine", **spec: Any) -> Object:
        """A pod with that claim."""
        used = [{"name": "fabric", "resourceClaimName": claim}]
        return self.create("pods", claiming(name, used, **spec))

    def allocate(self, name: str = "mine", node: str = "node-1", pod: str = "") -> None:
        """What the driver does: the finalizer first, then devices and the pod in one update."""
        claim = self.one("resourceclaims", name)
        claim["metadata"].setdefault("finalizers", []).append(FINALIZER)
        claim = self.put("resourceclaims", claim)
        claim["status"] = {"allocation": allocation(node)}
        if pod:
            uid = self.one("pods", pod)["metadata"]["uid"]
            claim["status"]["reservedFor"] = [{"resource": "pods", "name": pod, "uid": uid}]
        self.put("resourceclaims", claim, "status")

    def put(self, kind: str, obj: Object, subresource: str = "") -> Object:
        """Replace an object, and let everybody act on it."""
        name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
        path = path_to(kind, namespace, name)
        path = f"{path}/{subresource}" if subresource else path
        status, answer = self.ask("PUT", path, obj)
        assert 200 == status, answer
        self.settle()
        return answer

    def relist(self, kind: str) -> None:
        """The watch was cut, and history is forgotten: what there is now is listed."""
        listed = self.get(path_to(kind))
        self.actors.handle_list(kind, listed["items"])
        self.watches[kind] = self._watch(kind, listed["metadata"]["resourceVersion"])

    def consumers(self, name: str = "mine") -> list[str]:
        """The uids for which a claim is reserved."""
        status = self.one("resourceclaims", name).get("status") or {}
        return [consumer["uid"] for consumer in status.get("reservedFor") or ()]

    def uid(self, pod: str) -> str:
        """The pod's."""
        return str(self.one("pods", pod)["metadata"]["uid"])


def allocation(node: str) -> Object:
    """One device, which a node reaches; one of no name: all nodes."""
    result = {"request": "r", "driver": DRIVER, "pool": "fabric", "device": "d"}
    found: Object = {"devices": {"results": [result]}}
    if node:
        only = {"key": "metadata.name", "operator": "In", "values": [node]}
        found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [only]}]}
    return found


def claiming(name: str, claims: list[Object], **spec: Any) -> Object:
    """A pod with claims."""
    container = {"name": "c", "image": "i"}
    return {"metadata": {"name": name},
            "spec": {"containers": [container], "resourceClaims": claims, **spec}}  # fmt: skip
