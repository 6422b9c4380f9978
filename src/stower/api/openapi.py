"""Builds the OpenAPI v2 and v3 documents, for `kubectl explain` and validation by clients.

Types come from the tables, paths from the registry. Documents are built once for each state of the
registry and served from memory from then on.
"""

import hashlib
from typing import Any, Final

from stower.api.custom_openapi import OBJECT_META, OBJECT_META_TEXTS
from stower.api.openapi_protobuf import MEDIA_TYPE, document
from stower.api.registry import Registry, Resource
from stower.api.requests import JSON, Response, encode

Object = dict[str, Any]
GVK: Final = "x-kubernetes-group-version-kind"
V2: Final = "#/definitions/"
V3: Final = "#/components/schemas/"
PATCHES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",  # not for custom resources; kubectl goes by this
)
WRITE_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation")
LIST_PARAMETERS: Final = ("labelSelector", "fieldSelector", "continue", "resourceVersion")


class Documents:
    """The documents of one state of the registry."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._kinds: dict[str, list[Object]] = {}
        for key, name in registry.kinds.items():
            group, version, kind = key.rsplit("/", 2)
            entry = {"group": group, "version": version, "kind": kind}
            self._kinds.setdefault(name, []).append(entry)
        self._made: dict[str, bytes] = {}

    def answer(self, path: str, accept: str) -> Response | None:
        """The document of a path below /openapi, or None."""
        if path == "/openapi/v2":
            if "proto-openapi" in accept.partition(",")[0]:
                body = self._document("v2 protobuf", lambda: document(self._v2()))
                return Response(200, [body], content_type=MEDIA_TYPE)
            return Response(200, [self._document("v2", self._v2)])
        if path == "/openapi/v3":
            body = self._document("index", self._index)
            return Response(200, [body], content_type="text/plain; charset=utf-8")
        name = path.removeprefix("/openapi/v3/")
        if name in self._names():
            return Response(200, [self._document(name, lambda: self._v3(name))], content_type=JSON)
        return None

    def _document(self, name: str, make: Any) -> bytes:
        made = self._made.get(name)
        if made is None:
            made = make()
            if not isinstance(made, bytes):
                made = encode(made)
            self._made[name] = made
        return made

    def _names(self) -> dict[str, tuple[str, str]]:
        names = {}
        for group, versions in self.registry.groups.items():
            for version in versions:
                prefix = f"apis/{group}" if group else "api"
                names[f"{prefix}/{version}"] = (group, version)
        return names

    def _index(self) -> Object:
        paths = {}
        for name in self._names():
            body = self._document(name, lambda name=name: self._v3(name))
            digest = hashlib.sha256(body).hexdigest().upper()
            paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
        return {"paths": paths}

    # Types

    def _schema(self, name: str, prefix: str) -> Object:
        defined = self.registry.schema.definitions[name]
        if name == OBJECT_META:
            texts = OBJECT_META_TEXTS
            fields = {n: {**field, "description": texts[n]} if n in texts else field
                      for n, field in defined["properties"].items()}  # fmt: skip
            defined = {**defined, "properties": fields}
        schema: Object = _prefixed(defined, prefix)
        if name in self._kinds:
            schema = {**schema, GVK: self._kinds[name]}
        return schema

    def _info(self) -> Object:
        return {"title": "Kubernetes", "version": f"v{self.registry.version}.0"}

    def _v2(self) -> Object:
        names = self.registry.schema.definitions
        paths: Object = {}
        for resource in self.registry.resources():
            paths |= _paths(resource, V2)
        definitions = {name: self._schema(name, V2) for name in names}
        for resource in self.registry.resources():
            if resource.custom is not None:
                definitions[resource.custom.definition] = resource.custom.published(V2, True)
        return {
            "swagger": "2.0",
            "info": self._info(),
            "paths": paths,
            "definitions": definitions,
            "parameters": {},
            "securityDefinitions": {
                "BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}
            },
            "security": [{"BearerToken": []}],
        }

    def _v3(self, name: str) -> Object:
        group, version = self._names()[name]
        paths: Object = {}
        schemas: Object = {}
        for resource in self.registry.resources():
            if (resource.group, resource.version) != (group, version):
                continue
            paths |= _paths(resource, V3)
            if resource.custom is not None:
                schemas[resource.custom.definition] = resource.custom.published(V3, False)
                self._reach(OBJECT_META, schemas)
            elif resource.type is not None:
                self._reach(resource.type.name, schemas)
                listed = f"{resource.type.name}List"
                if listed in self.registry.schema.definitions:
                    self._reach(listed, schemas)
            for sub in resource.subresources.values():
                key = f"{sub.group or group}/{sub.version or version}/{sub.kind}"
                if key in self.registry.kinds:
                    self._reach(self.registry.kinds[key], schemas)
        self._reach("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", schemas)
        self._reach("io.k8s.apimachinery.pkg.apis.meta.v1.Status", schemas)
        return {
            "openapi": "3.0.0",
            "info": self._info(),
            "paths": paths,
            "components": {"schemas": dict(sorted(schemas.items()))},
        }

    def _reach(self, name: str, schemas: Object) -> None:
        """Add a type and all that it refers to."""
        waiting = [name]
        while waiting:
            name = waiting.pop()
            if name not in schemas:
                schemas[name] = self._schema(name, V3)
                waiting += _references(schemas[name])


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [r for item in schema for r in _references(item)]
    if not isinstance(schema, dict):
        return []
    found = [r for key, item in schema.items() if key != GVK for r in _references(item)]
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found.append(reference.removeprefix(V3))
    return found


def _prefixed(schema: Any, prefix: str) -> Any:
    """The schema with its references below another place."""
    if isinstance(schema, list):
        return [_prefixed(item, prefix) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {}
    for key, item in schema.items():
        if key == "$ref" and isinstance(item, str):
            found[key] = prefix + item.removeprefix(V2)
        else:
            found[key] = _prefixed(item, prefix)
    if isinstance(found.get("$ref"), str) and prefix == V3 and len(found) > 1:
        reference = {"$ref": found.pop("$ref")}
        return {**found, "allOf": [reference]}
    return found


def _paths(resource: Resource, prefix: str) -> Object:
    root = f"/apis/{resource.group}" if resource.group else "/api"
    root += f"/{resource.version}"
    base = f"{root}/namespaces/{{namespace}}" if resource.namespaced else root
    collection = f"{base}/{resource.plural}"
    gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    verbs = {
        "get": "list" if "list" in resource.verbs else "",
        "post": "create" if "create" in resource.verbs else "",
        "delete": "deletecollection" if "deletecollection" in resource.verbs else "",
    }
    paths = {collection: _operations(verbs, gvk, resource, prefix)}
    if resource.namespaced and "list" in resource.verbs:
        paths[f"{root}/{resource.plural}"] = _operations({"get": "list"}, gvk, resource, prefix)
    single = {
        method: verb
        for method, verb in (
            ("get", "get"), ("put", "update"), ("patch", "patch"), ("delete", "delete"),
        )
        if verb in resource.verbs
    }  # fmt: skip
    if single:
        paths[f"{collection}/{{name}}"] = _operations(single, gvk, resource, prefix)
    return paths


def _operations(verbs: dict[str, str], gvk: Object, resource: Resource, prefix: str) -> Object:
    found = {}
    patches = list(PATCHES if resource.custom is None else PATCHES[:-1])
    for method, verb in verbs.items():
        if not verb:
            continue
        names: tuple[str, ...] = WRITE_PARAMETERS if verb in ("create", "update", "patch") else ()
        if verb in ("list", "deletecollection"):
            names = LIST_PARAMETERS
        parameters = [_parameter(name, prefix) for name in names]
        action = {"update": "put", "create": "post"}.get(verb, verb)
        operation: Object = {
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": action,
            GVK: gvk,
        }
        if prefix == V2:
            operation["consumes"] = patches if verb == "patch" else ["*/*"]
            operation["produces"] = [JSON]
        elif verb == "patch":
            content = {media: {"schema": {"type": "object"}} for media in patches}
            operation["requestBody"] = {"content": content}
        found[method] = operation
    return found


def _parameter(name: str, prefix: str) -> Object:
    found: Object = {"name": name, "in": "query"}
    return {**found, "type": "string"} if prefix == V2 else {**found, "schema": {"type": "string"}}
