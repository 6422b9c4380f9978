"""Serves custom resources: each served version of a CustomResourceDefinition becomes a Resource.

Structural schemas prune, fill in defaults and validate; printer columns, status and scale
subresources work; versions differ in name only (conversion None). Rules in CEL are not evaluated.
Source: apiextensions-apiserver, Kubernetes 1.36.
"""

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from stower.api.calls import Call
from stower.api.context import Context
from stower.api.custom_schema import (
    list_faults,
    pattern_faults,
    pruned,
    published,
    type_of,
    unknown,
    value_faults,
)
from stower.api.errors import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    FieldError,
    bad_request,
    unsupported,
)
from stower.api.hooks import Hooks
from stower.api.printers.parts import format_age
from stower.api.registry import Registry, Resource
from stower.api.requests import WriteOptions, encode
from stower.api.schema import BadValueError, Reading
from stower.model.integers import parse_decimal
from stower.model.times import age

Object = dict[str, Any]
KEY: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
VERBS: Final = (
    "delete", "deletecollection", "get", "list", "patch", "create", "update", "watch",
)  # fmt: skip
PROTECTED_GROUPS: Final = (".k8s.io", ".kubernetes.io")
APPROVED: Final = "api-approved.kubernetes.io"
SERVED_SUBRESOURCES: Final = ("status", "scale")
NAME_TEXT: Final = (
    "Name must be unique within a namespace. Is required when creating resources, although some "
    "resources may allow a client to request the generation of an appropriate name automatically. "
    "Name is primarily intended for creation idempotence and configuration definition. Cannot be "
    "updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
COLUMN_TEXT: Final = "Custom resource definition column (in JSONPath format): "
AGE_COLUMN: Final = {
    "name": "Age",
    "type": "date",
    "description": "CreationTimestamp is a timestamp representing the server time when this object "
    "was created. It is not guaranteed to be set in happens-before order across separate "
    "operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.",
    "jsonPath": ".metadata.creationTimestamp",
}


class CustomVersion:
    """One version of a custom resource."""

    def __init__(self, definition: Object, version: Object, registry: Registry) -> None:
        spec = definition["spec"]
        self.kind: str = spec["names"]["kind"]
        self.api_version = f"{spec['group']}/{version['name']}"
        reverse = ".".join(reversed(spec["group"].split(".")))
        self.definition = f"{reverse}.{version['name']}.{self.kind}"
        self.schema: Object = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        self.keeps_unknown = bool(spec.get("preserveUnknownFields"))
        parts = version.get("subresources") or {}
        self.has_status = "status" in parts
        self.scale: Object | None = parts.get("scale")
        meta = registry.schema.type_of("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
        self._meta = meta
        self.type = type_of(self.schema, meta)
        printed = version.get("additionalPrinterColumns") or [AGE_COLUMN]
        self._paths = [(c.get("jsonPath", ""), c.get("type", "string")) for c in printed]
        self.columns = [
            {"name": "Name", "type": "string", "format": "name", "description": NAME_TEXT,
             "priority": 0}
        ] + [
            {
                "name": c.get("name", ""),
                "type": c.get("type", "string"),
                "format": c.get("format", ""),
                "description": c.get("description") or COLUMN_TEXT + c.get("jsonPath", ""),
                "priority": c.get("priority", 0),
            }
            for c in printed
        ]  # fmt: skip
        self.hooks = Hooks(
            validate_create=lambda call, item: self.faults(item),
            validate_update=lambda call, new, old: self.faults(new),
            validate_status=lambda call, new, old: self.faults(new),
        )

    def read(
        self, item: Object, options: WriteOptions, prefix: str
    ) -> tuple[Object, tuple[str, ...]]:
        """The object as it is kept, without kind and apiVersion; and warnings."""
        meta = item.get("metadata")
        reading = Reading()
        try:
            cleaned = self._meta.clean(meta if meta is not None else {}, reading)
        except BadValueError as error:
            raise bad_request(f"{prefix}{error}") from None
        body = {k: v for k, v in item.items() if k not in ("kind", "apiVersion", "metadata")}
        found: list[str] = []
        if options.validation != "Ignore":
            if reading.unknown and isinstance(meta, dict):
                names = (n for n in meta if n not in self._meta.fields)
                found = [f'unknown field "metadata.{name}"' for name in names]
            if not self.keeps_unknown:
                found += [f'unknown field "{path}"' for path in unknown(self.schema, body)]
            if found and options.validation == "Strict":
                raise bad_request(f"{prefix}strict decoding error: {', '.join(found)}")
        kept = copy.deepcopy(body) if self.keeps_unknown else pruned(self.schema, body)
        return {"metadata": cleaned, **kept}, tuple(found)

    def faults(self, item: Object) -> list[FieldError]:
        """What the schema has against the object."""
        body = {k: v for k, v in item.items() if k != "metadata"}
        found = list(value_faults(self.schema, body, "", top=True))
        return found or list(list_faults(self.schema, body, ""))

    def row(self, item: Object, now_ns: int) -> list[Any]:
        """The cells of one object."""
        cells: list[Any] = [item["metadata"].get("name", "")]
        for path, kind in self._paths:
            if path == ".metadata.creationTimestamp":
                cells.append(format_age(item, now_ns))
                continue
            value = at_path(item, path)
            if value is None:
                cells.append(None if kind != "string" else "")
            elif kind == "date":
                cells.append(age(now_ns, value if isinstance(value, str) else None))
            elif kind == "string" and not isinstance(value, str):
                cells.append(encode(value).decode())
            else:
                cells.append(value)
        return cells

    def published(self, prefix: str) -> Object:
        """The schema as OpenAPI documents have it."""
        group, _, version = self.api_version.rpartition("/")
        return published(self.schema, prefix, {"group": group, "version": version,
                                               "kind": self.kind})  # fmt: skip


def at_path(item: Any, path: str) -> Any:
    """What a simple JSONPath finds: names, and indices or filters by equality in brackets."""
    value = item
    for part in path.strip("{}").strip(".").replace("[", ".[").split("."):
        if not part:
            continue
        if part.startswith("["):
            inner = part.strip("[]")
            index = parse_decimal(inner)
            if index is not None and isinstance(value, list) and index < len(value):
                value = value[index]
            elif isinstance(value, dict) and inner.strip("'\"") in value:
                value = value[inner.strip("'\"")]
            else:
                return _get_condition_status(value, path)
        elif isinstance(value, dict) and part.replace("\\", "") in value:
            value = value[part.replace("\\", "")]
        else:
            return None
    return value


def _get_condition_status(value: Any, path: str) -> Any:
    """The common `conditions[?(@.type=="Ready")].status`."""
    found = re.search(r"\[\?\(@\.(\w+)\s*==\s*[\"']([^\"']*)[\"']\)\](?:\.(\w+))?$", path)
    if found is None or not isinstance(value, list):
        return None
    key, wanted, field = found.groups()
    for item in value:
        if isinstance(item, dict) and item.get(key) == wanted:
            return item.get(field) if field else item
    return None


# Definitions


def prepare(call: Call, item: Object) -> None:
    """Names that follow from others, and the status of a definition that is accepted at once."""
    spec = item["spec"]
    names = spec["names"]
    kind = names.get("kind") or ""
    if not names.get("singular"):
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"
    spec.setdefault("conversion", {"strategy": "None"})
    _accept(call, item)


def prepare_update(call: Call, new: Object, old: Object) -> None:
    """The same for a changed one."""
    prepare(call, new)


def _accept(call: Call, item: Object) -> None:
    spec = item["spec"]
    status = item.get("status") or {}
    before = {c["type"]: c for c in status.get("conditions") or ()}
    conditions = []
    for kind, reason, text in (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ):
        made = {
            "type": kind,
            "status": "True",
            "lastTransitionTime": call.now,
            "reason": reason,
            "message": text,
        }
        conditions.append(before.get(kind, made))
    storage = [v["name"] for v in spec.get("versions") or () if v.get("storage")]
    kept = status.get("storedVersions") or []
    item["status"] = {
        "conditions": conditions,
        "acceptedNames": dict(spec["names"]),
        "storedVersions": [*kept, *(name for name in storage if name not in kept)],
    }


def new_faults(call: Call, item: Object) -> list[FieldError]:
    """What is wrong with a definition that is created."""
    spec = item["spec"]
    group, plural = spec.get("group", ""), (spec.get("names") or {}).get("plural", "")
    registry = call.context.registry
    found = list(_faults(item))
    if registry.is_built_in(group, plural) and (group, plural) not in registry.native:
        text = f"{plural}.{group} is a resource of this server itself"
        found.append(FieldError(FORBIDDEN, "spec.names.plural", None, text))
    annotations = item["metadata"].get("annotations") or {}
    if f".{group}".endswith(PROTECTED_GROUPS) and not annotations.get(APPROVED):
        text = f'protected groups must have approval annotation "{APPROVED}"'
        found.append(FieldError(REQUIRED, f"metadata.annotations[{APPROVED}]", "", text))
    return found


def faults(item: Object) -> list[FieldError]:
    """What is wrong with a definition."""
    return list(_faults(item))


def _faults(item: Object) -> Iterator[FieldError]:
    spec = item["spec"]
    names, versions = spec.get("names") or {}, spec.get("versions") or []
    group = spec.get("group", "")
    plural = names.get("plural", "")
    wanted = f"{plural}.{group}"
    if item["metadata"].get("name") != wanted:
        text = 'must be spec.names.plural+"."+spec.group'
        yield FieldError(INVALID, "metadata.name", item["metadata"].get("name", ""), text)
    if not group:
        yield FieldError(REQUIRED, "spec.group")
    elif "." not in group:
        text = "should be a domain with at least one dot"
        yield FieldError(INVALID, "spec.group", group, text)
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        yield unsupported("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced"))
    for field in ("plural", "kind"):
        if not names.get(field):
            yield FieldError(REQUIRED, f"spec.names.{field}")
    if sum(bool(v.get("storage")) for v in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield FieldError(INVALID, "spec.versions", [v.get("name") for v in versions], text)
    for i, version in enumerate(versions):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        at = f"spec.versions[{i}].schema.openAPIV3Schema"
        if schema is None:
            yield FieldError(REQUIRED, at, "", "schemas are required")
        else:
            structural = list(_structural(schema, at))
            yield from structural
            if not structural:  # which bounds the depth
                yield from pattern_faults(schema, at)
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        text = "this server supports only the strategy None: it calls no conversion webhooks"
        yield FieldError(FORBIDDEN, "spec.conversion.strategy", None, text)


def _structural(schema: Object, path: str, depth: int = 0) -> Iterator[FieldError]:
    """Every part of a schema has a type, unless it keeps anything."""
    free = schema.get("x-kubernetes-int-or-string") or schema.get(
        "x-kubernetes-preserve-unknown-fields"
    )
    if not schema.get("type") and not free:
        text = "must not be empty for specified object fields"
        yield FieldError(REQUIRED, f"{path}.type", "", text)
    if depth > 60:
        yield FieldError(FORBIDDEN, path, None, "must not be nested more than 60 levels deep")
        return
    for name, inner in (schema.get("properties") or {}).items():
        if depth == 0 and name in ("metadata", "kind", "apiVersion"):
            continue
        yield from _structural(inner, f"{path}.properties[{name}]", depth + 1)
    for field in ("items", "additionalProperties"):
        inner = schema.get(field)
        if isinstance(inner, dict):
            yield from _structural(inner, f"{path}.{field}", depth + 1)
        elif inner is not None and not (field == "additionalProperties" and inner is True):
            yield FieldError(FORBIDDEN, f"{path}.{field}", None, f"{field} must be a schema object")


def on_definition_change(call: Call, item: Object | None) -> None:
    """A definition is stored, or gone: serve what it says."""
    if item is None:
        group, plural = _names(call.name)
        if call.context.registry.is_built_in(group, plural):
            return
        call.context.registry.remove(group, plural)
        store = call.context.store
        collection = store.collection((group, plural))
        for key in list(collection.records):
            store.remove(collection, key, collection.records[key].decode())
        call.context.on_resource_change()
    else:
        serve(call.context, item)


def _names(name: str) -> tuple[str, str]:
    plural, _, group = name.partition(".")
    return group, plural


def serve(context: Context, definition: Object) -> None:
    """Serve the resources of a definition, unless they are served whatever definitions say."""
    group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
    if context.registry.is_built_in(group, plural):
        return
    context.registry.remove(group, plural)
    for resource in resources_of(definition, context.registry):
        context.registry.add(resource)
    context.on_resource_change()


def resources_of(
    definition: Object,
    registry: Registry,
    make: Callable[[Object, Object, Registry], CustomVersion] = CustomVersion,
) -> Iterator[Resource]:
    """A resource for each version of a definition that is served."""
    spec = definition["spec"]
    names, group = spec["names"], spec["group"]
    for version in spec.get("versions") or ():
        if not version.get("served"):
            continue
        custom = make(definition, version, registry)
        kind = {"group": group, "version": version["name"], "kind": names["kind"]}
        subresources = []
        if custom.has_status:
            verbs = ["get", "patch", "update"]
            subresources.append({"subresource": "status", "responseKind": kind, "verbs": verbs})
        if custom.scale is not None:
            scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
            verbs = ["get", "patch", "update"]
            subresources.append({"subresource": "scale", "responseKind": scale, "verbs": verbs})
        entry: Object = {
            "resource": names["plural"],
            "responseKind": kind,
            "scope": spec["scope"],
            "singularResource": names.get("singular", ""),
            "verbs": list(VERBS),
        }
        if names.get("shortNames"):
            entry["shortNames"] = names["shortNames"]
        if names.get("categories"):
            entry["categories"] = names["categories"]
        if subresources:
            entry["subresources"] = subresources
        resource = Resource(group, version["name"], entry, custom.type)
        resource.custom = custom
        yield resource
