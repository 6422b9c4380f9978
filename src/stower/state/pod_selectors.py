"""What other kinds say about pods: labels of namespaces, whom services and controllers select.

Must not know of nodes or placements.
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
    """All of them, as the API has them."""

    __slots__ = ("_namespaces", "controllers", "services")

    def __init__(self) -> None:
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self.services: dict[str, dict[str, dict[str, str]]] = {}  # namespace: name: selector
        self.controllers: dict[Key, LabelSelector] = {}

    def put(self, obj: Selecting) -> None:
        """An object as it is now."""
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
        """It is gone."""
        meta = obj.metadata
        if isinstance(obj, Namespace):
            self._namespaces.pop(meta.name, None)
        elif isinstance(obj, Service):
            within = self.services.get(meta.namespace, {})
            within.pop(meta.name, None)
            if not within:
                self.services.pop(meta.namespace, None)
        else:
            self.controllers.pop((type(obj).__name__, meta.namespace, meta.name), None)

    def clear(self) -> None:
        """Nothing is known: a list tells all."""
        self._namespaces.clear()
        self.services.clear()
        self.controllers.clear()

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace, none where it is not known."""
        return self._namespaces.get(namespace, _NO_LABELS)

    def matching_namespaces(self, selector: LabelSelector) -> frozenset[str]:
        """The namespaces that a selector takes."""
        return frozenset(n for n, labels in self._namespaces.items() if selector.matches(labels))

    def default_selector(self, pod: Pod) -> LabelSelector | None:
        """What the services and the controller of a pod select together; None where that is all.

        Source: plugins/helper/spread.go DefaultSelector.
        """
        meta = pod.metadata
        if not meta.owner_references and meta.namespace not in self.services:
            return None
        labels = meta.labels or _NO_LABELS
        merged: dict[str, str] = {}
        for name in sorted(within := self.services.get(meta.namespace, {})):
            selector = within[name]
            if selector.items() <= labels.items():
                merged.update(selector)
        more: list[Requirement] = []
        owner = meta.controller
        if owner is not None and CONTROLLERS.get(owner.kind) == owner.api_version:
            own = self.controllers.get((owner.kind, meta.namespace, owner.name))
            if own is not None:
                more = [Requirement(k, IN, (v,)) for k, v in (own.match_labels or {}).items()]
                more += own.match_expressions or ()
        if not merged and not more:
            return None
        return LabelSelector(merged or None, tuple(more) or None)
