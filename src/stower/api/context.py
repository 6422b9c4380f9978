"""Holds the objects and services that all operations of one API server share.

Must not know requests or the operations themselves.
"""

import weakref
from typing import Any

from stower.api.go_order import GoOrder
from stower.api.identifiers import Identifiers
from stower.api.openapi import Documents
from stower.api.rbac import Rbac
from stower.api.registry import Registry
from stower.api.schema import Type, skeleton
from stower.api.store import Store
from stower.api.tokens import TokenIssuer
from stower.api.watches import Feed

Object = dict[str, Any]


class Context:
    """The served resources, the stored objects and what is derived from them.

    `rbac` is None where every request is allowed. `admission_plugins` are the plugins that are on
    besides the default ones. `feeds` holds one feed per selection and form of watches, while there
    are any.
    """

    __slots__ = (
        "_documents", "_skeletons", "admission_plugins", "feeds", "go_order", "identifiers",
        "rbac", "registry", "store", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        registry: Registry,
        store: Store,
        rbac: Rbac | None,
        identifiers: Identifiers,
        tokens: TokenIssuer,
        admission_plugins: frozenset[str],
    ) -> None:
        self.registry = registry
        self.go_order = GoOrder(registry.tables["protobuf"])
        self.store = store
        self.rbac = rbac
        self.identifiers = identifiers
        self.tokens = tokens
        self.admission_plugins = admission_plugins
        self.feeds: weakref.WeakValueDictionary[tuple[Any, ...], Feed] = (
            weakref.WeakValueDictionary()
        )
        self._skeletons: dict[str, Object] = {}
        self._documents: Documents | None = None

    def documents(self) -> Documents:
        """Returns the OpenAPI documents of the registry, built once per state of the registry."""
        if self._documents is None:
            self._documents = Documents(self.registry)
        return self._documents

    def on_resource_change(self) -> None:
        """Drops what was derived from the registry, after custom resources changed."""
        self._documents = None
        self.feeds.clear()

    def skeleton_of(self, kind: Type) -> Object:
        """Returns the fields that every object of the type has, whatever a client sends."""
        found = self._skeletons.get(kind.name)
        if found is None:
            found = self._skeletons[kind.name] = skeleton(kind)
        return found
