"""Service account controller: keeps a ServiceAccount `default` in every namespace.

Source: pkg/controller/serviceaccount.
"""

from collections.abc import Iterable
from typing import Final

from stower.controllers.objects import Object, ObjectStore, is_ending, name_of, namespace_of
from stower.controllers.runtime import BaseController, ReconcileResult

DEFAULT: Final = "default"


class ServiceAccountController(BaseController):
    """One namespace is one key."""

    name = "serviceaccount-controller"
    kinds = ("serviceaccounts", "namespaces")

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The namespace, or that of its account when it goes."""
        if kind == "namespaces":
            return (name_of(obj),)
        return (namespace_of(obj),) if old is obj and name_of(obj) == DEFAULT else ()

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Make what is missing."""
        namespace = seen.get("namespaces", key)
        if namespace is None or is_ending(namespace):
            return
        if seen.get("serviceaccounts", f"{key}/{DEFAULT}") is None:
            todo.create("serviceaccounts", {"metadata": {"name": DEFAULT, "namespace": key}})
