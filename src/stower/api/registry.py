"""Registers the served resources: one Resource per kind, from the tables of a Kubernetes version.

A custom resource is one more Resource. Must not know how requests are carried out.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from stower.api.defaults import DEFAULTS
from stower.api.schema import Schema, Type

Object = dict[str, Any]
WRITE: Final = ("create", "update", "patch", "delete", "deletecollection")


class Subresource:
    """A part of an object with a path of its own."""

    __slots__ = ("group", "kind", "name", "verbs", "version")

    def __init__(self, entry: Object) -> None:
        kind = entry.get("responseKind") or {}
        self.name: str = entry["subresource"]
        self.group: str = kind.get("group", "")
        self.version: str = kind.get("version", "")
        self.kind: str = kind.get("kind", "")
        self.verbs: tuple[str, ...] = tuple(entry["verbs"])


# Two names of one thing, converted at the edge.
_STORED_AS: Final = {("events.k8s.io", "events"): ("", "events")}


class Resource:
    """One resource of one version."""

    def __init__(self, group: str, version: str, entry: Object, kind: Type | None) -> None:
        self.group = group
        self.version = version
        self.entry = entry
        self.plural: str = entry["resource"]
        self.kind: str = entry["responseKind"]["kind"]
        self.singular: str = entry.get("singularResource", "")
        self.namespaced: bool = entry["scope"] == "Namespaced"
        self.verbs: tuple[str, ...] = tuple(entry["verbs"])
        self.subresources = {s.name: s for s in map(Subresource, entry.get("subresources", ()))}
        self.type = kind
        self.columns: list[Object] = []
        self.custom: Any = None  # the version of a CustomResourceDefinition, for its kinds
        # As its objects say it, and where they are kept: versions of one resource share that.
        self.api_version = f"{group}/{version}" if group else version
        self.key: tuple[str, str] = _STORED_AS.get((group, self.plural), (group, self.plural))
        # Whether there are objects of it, or only answers.
        self.stored = "list" in self.verbs and self.plural != "componentstatuses"


class Registry:
    """All resources, found by path or by kind."""

    def __init__(self, tables: Object, version: str) -> None:
        self.version = version
        self.tables = tables
        self.schema = Schema(tables["definitions"], tables["fields"], DEFAULTS)
        self.kinds: dict[str, str] = tables["kinds"]
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self.groups: dict[str, list[str]] = {}
        # Keys of what is served as custom resources are, whatever is defined by clients.
        self.native: set[tuple[str, str]] = set()
        for root in ("/api", "/apis"):
            for item in tables["discovery"][root]["items"]:
                for served in item["versions"]:
                    self._add_version(item.get("metadata", {}).get("name", ""), served)

        self._own_groups = frozenset(self.groups)  # whose versions are in the order of the tables

    def _add_version(self, group: str, served: Object) -> None:
        version = served["version"]
        self.groups.setdefault(group, []).append(version)
        base = f"/apis/{group}/{version}/" if group else f"/api/{version}/"
        for entry in served["resources"]:
            kind = entry["responseKind"]
            full = (kind["group"] or group, kind["version"] or version, kind["kind"])
            name = self.kinds.get("/".join(full))
            resource = Resource(group, version, entry, self.schema.type_of(name) if name else None)
            resource.columns = self.tables["columns"].get(base + resource.plural, [])
            self._resources[group, version, resource.plural] = resource

    def add(self, resource: Resource) -> None:
        """Serve a custom resource."""
        self._resources[resource.group, resource.version, resource.plural] = resource
        versions = self.groups.setdefault(resource.group, [])
        if resource.version not in versions:
            versions.append(resource.version)
            if resource.group not in self._own_groups:
                versions.sort(key=version_rank)

    def remove(self, group: str, plural: str) -> None:
        """Serve a custom resource no longer."""
        for key in [k for k in self._resources if k[0] == group and k[2] == plural]:
            del self._resources[key]
        left = list(dict.fromkeys(k[1] for k in self._resources if k[0] == group))
        if left:
            ranked = left if group in self._own_groups else sorted(left, key=version_rank)
            self.groups[group] = ranked
        else:
            self.groups.pop(group, None)

    def is_built_in(self, group: str, plural: str) -> bool:
        """Returns whether the server has the resource whatever clients define."""
        return (group, plural) in self.native or any(
            key[0] == group and key[2] == plural and resource.custom is None
            for key, resource in self._resources.items()
        )

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource of a path."""
        return self._resources.get((group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> Resource | None:
        """The resource whose objects have this kind."""
        for resource in self._resources.values():
            if (resource.group, resource.version, resource.kind) == (group, version, kind):
                return resource
        return None

    def resources(self) -> Iterator[Resource]:
        """All of them, built-in ones first."""
        return iter(self._resources.values())

    def type_of_kind(self, group: str, version: str, kind: str) -> Type:
        """The type of a kind that need not be a resource."""
        return self.schema.type_of(self.kinds[f"{group}/{version}/{kind}"])


_VERSION: Final = re.compile(r"v(\d{1,9})(?:(alpha|beta)(\d{1,9}))?\Z", re.ASCII)
_STABILITY: Final = {None: 0, "beta": 1, "alpha": 2}


def version_rank(version: str) -> tuple[int, int, int, int, str]:
    """Sorts the preferred version first: stable ones, then newer ones, then other names. Source:
    apimachinery pkg/version/helpers.go."""
    match = _VERSION.match(version)
    if match is None:
        return 1, 0, 0, 0, version
    return 0, _STABILITY[match[2]], -int(match[1]), -int(match[3] or 0), version


def internal_type(resource: Resource) -> str:
    """The kind as Go's internal packages name it: core.Pod."""
    if resource.custom is not None:
        return "unstructured.Unstructured"
    group = "core" if resource.plural == "events" else resource.group.partition(".")[0]
    return f"{group or 'core'}.{resource.kind}"


_PREFIXES: Final = {("", "nodes"): "minions", ("", "services"): "services/specs"}


def storage_error(resource: tuple[str, str], key: str, why: str) -> str:
    """etcd's words for a write whose precondition fails; the key is that of the object there."""
    prefix = _PREFIXES.get(resource, resource[1])
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{prefix}/{key}, "
        f"ResourceVersion: 0, AdditionalErrorMsg: {why}"
    )
