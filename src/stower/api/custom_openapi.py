"""Publishes the schemas of custom resources in OpenAPI documents.

Version 2 cannot express all of a structural schema: what kubectl would misread is left out. Source:
apiextensions-apiserver pkg/controller/openapi/builder and v2/conversion.go, Kubernetes 1.36.
"""

from typing import Any, Final

Object = dict[str, Any]
OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
GVK: Final = "x-kubernetes-group-version-kind"
SELECTABLE: Final = "x-kubernetes-selectable-fields"
KEEPS_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
_CONVENTIONS: Final = (
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
)
API_VERSION: Final = {
    "type": "string",
    "description": "APIVersion defines the versioned schema of this representation of an object. "
    "Servers should convert recognized schemas to the latest internal value, and may reject "
    f"unrecognized values. More info: {_CONVENTIONS}#resources",
}
KIND: Final = {
    "type": "string",
    "description": "Kind is a string value representing the REST resource this object represents. "
    "Servers may infer this from the endpoint the client submits requests to. Cannot be updated. "
    f"In CamelCase. More info: {_CONVENTIONS}#types-kinds",
}
METADATA_TEXT: Final = f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"
# For `kubectl explain`; the tables have no descriptions.
OBJECT_META_TEXTS: Final = {
    "annotations": "Annotations is a map of names to texts of any size, for tools and libraries. "
    "Objects cannot be selected by them.",
    "creationTimestamp": "CreationTimestamp is a timestamp of the server's clock when the object "
    "was created, in RFC 3339 and UTC. Clients cannot set it.",
    "deletionGracePeriodSeconds": "The number of seconds that the object has to end before it is "
    "removed. Set together with deletionTimestamp.",
    "deletionTimestamp": "DeletionTimestamp is the time at which the object will be deleted, set "
    "by the server when a client asks for its deletion.",
    "finalizers": "The object is removed only when this list is empty: each entry names a "
    "component that removes the entry after its own work.",
    "generateName": "GenerateName is a prefix of which the server makes a unique name, where name "
    "is empty.",
    "generation": "A sequence number of the desired state, set by the server.",
    "labels": "Map of names to short texts by which objects are organized and selected.",
    "managedFields": "Which manager last wrote which fields, and when. Kept by the server.",
    "name": "Name must be unique within a namespace. It cannot be updated.",
    "namespace": "Namespace defines the space within which each name must be unique. Objects of "
    "the cluster have none.",
    "ownerReferences": "The objects that this object depends on: it is removed when all are gone.",
    "resourceVersion": "An opaque value that changes with every write of the object, for "
    "optimistic concurrency and watches.",
    "selfLink": "Deprecated: a field that the server no longer fills in.",
    "uid": "UID is the unique identity of the object in time and space, set by the server.",
}


def published(schema: Object, prefix: str, gvk: Object, selectable: list[str], v2: bool) -> Object:
    """Returns the schema of a custom resource as an OpenAPI document has it.

    `prefix`: of references; `gvk`: group, version and kind; `selectable`: paths of fields.
    """
    if v2 and schema.get(KEEPS_UNKNOWN):
        # kubectl takes fields of an object with properties for all there are.
        made: Object = {"type": "object"}
    else:
        made = _converted(schema, v2)
        properties = dict(made.get("properties") or {})
        properties |= {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": _metadata(prefix, v2),
        }
        made = {**made, "properties": properties}
        made = _with_embedded(made, prefix, v2)
    if not v2:
        made.setdefault("type", "object")
    made[GVK] = [gvk]
    if selectable:
        made[SELECTABLE] = [{"fieldPath": path.removeprefix(".")} for path in selectable]
    return made


def _metadata(prefix: str, v2: bool) -> Object:
    reference = {"$ref": f"{prefix}{OBJECT_META}"}
    if v2:
        return {**reference, "description": METADATA_TEXT}
    return {"description": METADATA_TEXT, "allOf": [reference]}


def _converted(schema: Object, v2: bool) -> Object:
    """A copy of a schema; for version 2, without what it cannot express."""
    made = dict(schema)
    if v2:
        for name in ("allOf", "oneOf", "anyOf", "not"):
            made.pop(name, None)
        is_nullable = made.pop("nullable", False)
        if is_nullable or made.get(KEEPS_UNKNOWN):
            for name in ("items", "properties", *(("type",) if is_nullable else ())):
                made.pop(name, None)
        is_free = made.get(KEEPS_UNKNOWN) and made.get("type") == "object"
        if is_free or (made.get("type") == "array" and not made.get("items")):
            made.pop("type", None)
    if "properties" in made:
        nullable = [n for n, inner in made["properties"].items() if inner.get("nullable")]
        made["properties"] = {n: _converted(s, v2) for n, s in made["properties"].items()}
        if v2 and nullable and made.get("required"):
            made["required"] = [name for name in made["required"] if name not in nullable]
            if not made["required"]:
                del made["required"]
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), dict):
            made[name] = _converted(made[name], v2)
    return made


def _with_embedded(schema: Object, prefix: str, v2: bool) -> Object:
    """The schema with the fields of the resources that are embedded in it."""
    made = dict(schema)
    if "properties" in made:
        made["properties"] = {
            name: _with_embedded(inner, prefix, v2) for name, inner in made["properties"].items()
        }
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), dict):
            made[name] = _with_embedded(made[name], prefix, v2)
    if not made.get(EMBEDDED) or (v2 and made.get(KEEPS_UNKNOWN)):
        return made
    head = {"apiVersion": API_VERSION, "kind": KIND, "metadata": _metadata(prefix, v2)}
    made["properties"] = {**(made.get("properties") or {}), **head}
    required = made.get("required") or []
    made["required"] = [*required, *(n for n in ("kind", "apiVersion") if n not in required)]
    return made
