"""Namespace labels, and the pod selectors of services and controllers, as the API has them.

Must not know nodes or placements.
"""

from collections.abc import Mapping
from typing import Final

from stower.model.kinds import Namespace, Pod, Selecting, Service
from stower.model.selectors import IN, LabelSelector, Requirement

Key = tuple[str, str, str]  # kind, namespace, name
# Controllers whose selector is a pod's default one (helper.DefaultSelector), by kind.
CONTROLLERS: Final = {
    "ReplicationController": "v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
}
_NO_LABELS: Final[Mapping[str, str]] = {}


class PodSelectors:
    """The labels of all namespaces, and the selectors of all services and controllers."""

    __slots__ = ("_namespaces", "controllers", "services")

    def __init__(self) -> None:
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self.services: dict[str, dict[str, dict[str, str]]] = {}  # namespace: name: selector
        self.controllers: dict[Key, LabelSelector] = {}

    def put(self, obj: Selecting) -> None:
        """Adds or replaces an object."""
        meta = obj.metadata
        if isinstance(obj, Namespace):
            self._namespaces[meta.name] = dict(meta.labels or {})
        elif isinstance(obj, Service):
            self.drop(obj)
            if obj.spec.selector:
                self.services.setdefault(meta.namespace, {})[meta.name] = obj.spec.selector
        else:
            selector = obj.spec.selector
            if isinstance(selector, dict):
                selector = LabelSelector(match_labels=selector)
            if selector is not None:
                self.controllers[(type(obj).__name__, meta.namespace, meta.name)] = selector

    def drop(self, obj: Selecting) -> None:
        """Removes an object."""
        meta = obj.metadata
        if isinstance(obj, Namespace):
            self._namespaces.pop(meta.name, None)
        elif isinstance(obj, Service):
            services = self.services.get(meta.namespace, {})
            services.pop(meta.name, None)
            if not services:
                self.services.pop(meta.namespace, None)
        else:
            self.controllers.pop((type(obj).__name__, meta.namespace, meta.name), None)

    def clear(self) -> None:
        """Removes everything, before a list adds the objects that exist."""
        self._namespaces.clear()
        self.services.clear()
        self.controllers.clear()

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Returns the labels of a namespace, none where it is not known."""
        return self._namespaces.get(namespace, _NO_LABELS)

    def matching_namespaces(self, selector: LabelSelector) -> frozenset[str]:
        """Returns the namespaces whose labels a selector matches."""
        return frozenset(n for n, labels in self._namespaces.items() if selector.matches(labels))

    def default_selector(self, pod: Pod) -> LabelSelector | None:
        """Returns one selector for the pods that the services and the controller of a pod all
        select; None where the pod has neither, or they select every pod.

        Source: plugins/helper/spread.go DefaultSelector.
        """
        meta = pod.metadata
        if not meta.owner_references and meta.namespace not in self.services:
            return None
        labels = meta.labels or _NO_LABELS
        merged: dict[str, str] = {}
        for name in sorted(services := self.services.get(meta.namespace, {})):
            selector = services[name]
            if selector.items() <= labels.items():
                merged.update(selector)
        requirements: list[Requirement] = []
        owner = meta.controller
        if owner is not None and CONTROLLERS.get(owner.kind) == owner.api_version:
            controller_selector = self.controllers.get((owner.kind, meta.namespace, owner.name))
            if controller_selector is not None:
                requirements = [
                    Requirement(k, IN, (v,))
                    for k, v in (controller_selector.match_labels or {}).items()
                ]
                requirements += controller_selector.match_expressions or ()
        if not merged and not requirements:
            return None
        return LabelSelector(merged or None, tuple(requirements) or None)
