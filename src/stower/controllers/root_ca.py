"""Root CA publisher: keeps the ConfigMap `kube-root-ca.crt` in every namespace, by which pods
verify the API server.

Source: pkg/controller/certificates/rootcacertpublisher.
"""

from collections.abc import Iterable
from typing import Final

from stower.controllers.objects import Object, ObjectStore, is_ending, name_of, namespace_of
from stower.controllers.runtime import BaseController, ReconcileResult

NAME: Final = "kube-root-ca.crt"
DESCRIPTION: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is "
    "guaranteed across distributions of Kubernetes clusters."
)


class RootCaPublisher(BaseController):
    """One namespace is one key. `authority`: certificates in PEM, "" to publish none."""

    name = "root-ca-certificate-publisher"
    kinds = ("configmaps", "namespaces")

    def __init__(self, authority: str) -> None:
        super().__init__()
        self._data = {"ca.crt": authority}

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The namespace, or that of its ConfigMap."""
        if kind == "namespaces":
            return (name_of(obj),)
        return (namespace_of(obj),) if name_of(obj) == NAME else ()

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Makes what is missing, and mends what somebody changed."""
        namespace = seen.get("namespaces", key)
        if namespace is None or is_ending(namespace) or not self._data["ca.crt"]:
            return
        there = seen.get("configmaps", f"{key}/{NAME}")
        if there is None:
            annotations = {"kubernetes.io/description": DESCRIPTION}
            meta = {"name": NAME, "namespace": key, "annotations": annotations}
            todo.create("configmaps", {"metadata": meta, "data": self._data})
        elif there.get("data") != self._data or there.get("binaryData"):
            todo.update("configmaps", {**there, "data": self._data, "binaryData": {}})
