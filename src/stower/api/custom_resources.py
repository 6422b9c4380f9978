"""Serves custom resources: each served version of a CustomResourceDefinition becomes a Resource.

Structural schemas prune, fill in defaults and validate; printer columns, status and scale
subresources work. Objects are stored as the storage version's schema prunes them, and shown with
its defaults, as the schema of the version that is asked for prunes them. Source:
apiextensions-apiserver pkg/apiserver/customresource_handler.go, Kubernetes 1.36.
"""

import copy
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from stower.api.custom_numbers import with_go_numbers
from stower.api.custom_openapi import published
from stower.api.custom_rules import Part, rule_faults, rules_of
from stower.api.custom_schema import pruned, type_of, undocumented, unknown
from stower.api.custom_values import UNKNOWN, list_faults, value_faults
from stower.api.embedded_resources import (
    BadResourceError,
    clean_resources,
    has_embedded,
    resource_faults,
)
from stower.api.errors import (
    INVALID,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    TYPE_INVALID,
    UNSUPPORTED,
    FieldError,
    bad_request,
)
from stower.api.hooks import Hooks
from stower.api.metadata import finalizer_warnings
from stower.api.printers.parts import format_age
from stower.api.registry import Registry, Resource, version_rank
from stower.api.requests import WriteOptions, encode
from stower.api.schema import BadValueError, Reading
from stower.model.integers import parse_decimal
from stower.model.times import age

Object = dict[str, Any]
WEBHOOK: Final = "Webhook"
# Errors with which rules are not checked: they suppose that the types are right.
BLOCKING: Final = (UNSUPPORTED, REQUIRED, TOO_LONG, TOO_MANY, TYPE_INVALID)
NOT_CHECKED: Final = (
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)
VERBS: Final = (
    "delete", "deletecollection", "get", "list", "patch", "create", "update", "watch",
)  # fmt: skip
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
        self._stored_schema = _schema_of(storage_version(spec))
        # Objects may have been stored when the schema was another one, and through another version,
        # which does not fill in the defaults of this one.
        self.converts: bool = not spec.get("preserveUnknownFields") and (
            definition["metadata"].get("generation", 1) > 1
            or any(_schema_of(other) != self._stored_schema for other in spec["versions"])
        )
        self.kind: str = spec["names"]["kind"]
        self.api_version = f"{spec['group']}/{version['name']}"
        reverse = ".".join(reversed(spec["group"].split(".")))
        self.definition = f"{reverse}.{version['name']}.{self.kind}"
        self.schema: Object = _schema_of(version)
        self._has_resources = has_embedded(self.schema)
        self.keeps_unknown = bool(spec.get("preserveUnknownFields"))
        parts = version.get("subresources") or {}
        self.has_status = "status" in parts
        self.scale: Object | None = parts.get("scale")
        self.deprecation = _deprecation(spec, version)  # a warning, or nothing
        self.selectable: list[str] = [
            field["jsonPath"] for field in version.get("selectableFields") or ()
        ]
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
        self._expressions: Part | None = None
        self._has_compiled = False
        self.hooks = Hooks(
            validate_create=lambda call, item: self._all_faults(item, None),
            validate_update=lambda call, new, old: self._all_faults(new, old),
            validate_status=lambda call, new, old: self._all_faults(new, old, is_status=True),
            warnings=lambda call, item: finalizer_warnings(item["metadata"], {}),
            change_warnings=lambda call, new, old: finalizer_warnings(
                new["metadata"], old["metadata"]
            ),
        )

    def read(
        self, item: Object, options: WriteOptions, prefix: str, repeated: Iterable[str] = ()
    ) -> tuple[Object, tuple[str, ...]]:
        """The object as it is kept, without kind and apiVersion; and warnings. `repeated`: of
        fields that the body has twice."""
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
                found += [f'unknown field "{path}"' for path in sorted(unknown(self.schema, body))]
            found = [*repeated, *found]
        kept = copy.deepcopy(body) if self.keeps_unknown else pruned(self.schema, body)
        paths: list[str] = []
        try:
            with_go_numbers(kept)
            if self._has_resources:
                paths = clean_resources(self.schema, kept, "", self._meta)
        except OverflowError:
            text = "json: cannot unmarshal number into Go value of type float64"
            raise bad_request(f"{prefix}{text}") from None
        except BadResourceError as error:
            raise bad_request(f"{prefix}{error}") from None
        if options.validation != "Ignore":
            found += [f'unknown field "{path}"' for path in paths]
            if found and options.validation == "Strict":
                raise bad_request(f"{prefix}strict decoding error: {', '.join(found)}")
        return {"metadata": cleaned, **kept}, tuple(found)

    def show(self, item: Object) -> Object:
        """Returns a stored object as this version has it; the object itself is not changed."""
        made = pruned(self._stored_schema, _body(item))
        if self.schema != self._stored_schema:
            made = pruned(self.schema, made, fills=False)
        return {"metadata": item.get("metadata"), **made}

    def store(self, item: Object) -> Object:
        """Returns an object of this version as it is stored."""
        if self.schema == self._stored_schema:
            return item
        made = pruned(self._stored_schema, _body(item), fills=False)
        return {"metadata": item["metadata"], **made}

    def faults(self, item: Object, old: Object | None = None) -> list[FieldError]:
        """What the schema has against an object, its rules aside. `old`: of a change, of which the
        parts that are as they were count no more."""
        if old == item:
            return []
        whole = self._whole(item)
        before = self._whole(old) if old is not None else UNKNOWN
        found = value_faults(self.schema, whole, "", before)
        if self._has_resources:
            found += resource_faults(self.schema, whole, "")
        return found + self._list_faults(whole, before)

    def _status_faults(self, item: Object, old: Object) -> list[FieldError]:
        """What the schema of the status has against that of an object."""
        schema = (self.schema.get("properties") or {}).get("status")
        if schema is None or "status" not in item:
            return []
        found = []
        for fault in value_faults(schema, item["status"], "", old.get("status", UNKNOWN)):
            field = "status" if fault.field == "<nil>" else f"status.{fault.field}"
            found.append(fault._replace(field=field))
        return found + self._list_faults(self._whole(item), self._whole(old))

    def _list_faults(self, whole: Object, before: Any) -> list[FieldError]:
        """What is wrong with sets and map-like lists, unless something was so before."""
        if before is not UNKNOWN and any(list_faults(self.schema, before, "")):
            return []
        return list(list_faults(self.schema, whole, ""))

    def _whole(self, item: Object) -> Object:
        return {"kind": self.kind, "apiVersion": self.api_version, **item}

    def _all_faults(
        self, item: Object, old: Object | None, is_status: bool = False
    ) -> list[FieldError]:
        if is_status and old is not None:
            found = self._status_faults(item, old)
        else:
            found = self.faults(item, old)
        if not self._has_compiled:
            self._expressions, self._has_compiled = rules_of(self.schema), True
        if self._expressions is None:
            return found
        if any(error.type in BLOCKING for error in found):
            return [*found, FieldError(INVALID, "<nil>", None, NOT_CHECKED)]
        before = self._whole(old) if old is not None else None
        return found + rule_faults(self._expressions, self._whole(item), before)

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

    def published(self, prefix: str, v2: bool) -> Object:
        """The schema as OpenAPI documents have it."""
        group, _, version = self.api_version.rpartition("/")
        gvk = {"group": group, "version": version, "kind": self.kind}
        return published(self.schema, prefix, gvk, self.selectable, v2)

    def select_text(self, item: Object, field: str) -> str:
        """Returns the text of a stored object's field that objects can be selected by."""
        shown: Any = self.show(item) if self.converts else item
        for name in field.split("."):
            shown = shown.get(name) if isinstance(shown, dict) else None
        if isinstance(shown, bool):
            return "true" if shown else "false"
        return "" if shown is None or isinstance(shown, dict | list) else str(shown)


def _body(item: Object) -> Object:
    return {name: value for name, value in item.items() if name != "metadata"}


def _schema_of(version: Object) -> Object:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def storage_version(spec: Object) -> Object:
    """The version of a definition's spec in which objects are stored."""
    found: Object = next((v for v in spec.get("versions") or () if v.get("storage")), {})
    return found


def unconverted(spec: Object) -> list[str]:
    """The names of served versions that only a webhook could convert to the storage version."""
    if (spec.get("conversion") or {}).get("strategy") != WEBHOOK:
        return []
    stored = undocumented(_schema_of(storage_version(spec)))
    return [
        version["name"]
        for version in spec.get("versions") or ()
        if version.get("served") and undocumented(_schema_of(version)) != stored
    ]


def _deprecation(spec: Object, version: Object) -> str:
    """The warning of a version that is deprecated: its own, or one that names a newer version."""
    if not version.get("deprecated"):
        return ""
    if (text := version.get("deprecationWarning")) is not None:
        return str(text)
    group, kind, name = spec["group"], spec["names"]["kind"], version["name"]
    newer = sorted(
        (
            other["name"]
            for other in spec["versions"]
            if other.get("served")
            and not other.get("deprecated")
            and version_rank(other["name"]) < version_rank(name)
        ),
        key=version_rank,
    )
    text = f"{group}/{name} {kind} is deprecated"
    return f"{text}; use {group}/{newer[0]} {kind}" if newer else text


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


def resources_of(
    definition: Object,
    registry: Registry,
    make: Callable[[Object, Object, Registry], CustomVersion] = CustomVersion,
) -> Iterator[Resource]:
    """A resource for each version of a definition that is served."""
    spec = definition["spec"]
    names, group = spec["names"], spec["group"]
    skipped = unconverted(spec)
    for version in spec.get("versions") or ():
        if not version.get("served") or version["name"] in skipped:
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
