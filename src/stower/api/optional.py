"""Kinds that a server knows, and serves only where it is told to: DeviceTaintRule.

The API of Kubernetes 1.36 has it in resource.k8s.io/v1beta2, off by default. Everything about it
is as for other kinds once it is added to a registry.
"""

from typing import Any, Final

from stower.api.registry import Registry, Resource

Object = dict[str, Any]
GROUP: Final = "resource.k8s.io"
VERSION: Final = "v1beta2"
KIND: Final = "DeviceTaintRule"
_BASE: Final = "io.k8s.api.resource.v1beta2."
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_TEXT: Final = {"type": "string"}


def _ref(name: str) -> Object:
    return {"$ref": f"#/definitions/{name}"}


def _struct(required: tuple[str, ...] = (), **properties: Object) -> Object:
    return {"type": "object", "required": [*required], "properties": properties}


_DEFINITIONS: Final = {
    f"{_BASE}{KIND}": _struct(
        ("spec",),
        apiVersion=_TEXT,
        kind=_TEXT,
        metadata=_ref(f"{_META}ObjectMeta"),
        spec=_ref(f"{_BASE}{KIND}Spec"),
        status=_ref(f"{_BASE}{KIND}Status"),
    ),
    f"{_BASE}{KIND}Spec": _struct(
        ("taint",),
        deviceSelector=_ref(f"{_BASE}DeviceTaintSelector"),
        taint=_ref("io.k8s.api.resource.v1.DeviceTaint"),  # which is the same
    ),
    f"{_BASE}DeviceTaintSelector": _struct(driver=_TEXT, pool=_TEXT, device=_TEXT),
    f"{_BASE}{KIND}Status": _struct(
        conditions={
            "type": "array",
            "items": _ref(f"{_META}Condition"),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "x-kubernetes-patch-merge-key": "type",
            "x-kubernetes-patch-strategy": "merge",
        }
    ),
}
# Which fields are pointers and which values; see tools/make_api_tables.py.
_FACTS: Final = {
    f"{_BASE}{KIND}": "metadata:s spec:s status:s",
    f"{_BASE}{KIND}Spec": "taint:s",
    f"{_BASE}DeviceTaintSelector": "driver:p pool:p device:p",
}
_AS: Final = {"group": "", "version": "", "kind": KIND}
_ENTRY: Final = {
    "resource": "devicetaintrules",
    "responseKind": _AS,
    "scope": "Cluster",
    "singularResource": "devicetaintrule",
    "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    "subresources": [
        {"subresource": "status", "responseKind": _AS, "verbs": ["get", "patch", "update"]}
    ],
}

_COLUMNS: Final = [
    {"name": name, "type": "string", "format": "name" if name == "Name" else "",
     "description": text, "priority": 0}
    for name, text in (
        ("Name", "Name must be unique."),
        ("Key", "The taint key to be applied to a device."),
        ("Value", "The taint value corresponding to the taint key."),
        ("Effect", "What the taint does to those who do not tolerate it."),
        ("TimeAdded", "When the taint was added, or its effect last changed."),
        ("Age", "When the object was created."),
    )
]  # fmt: skip


def serve_device_taint_rules(registry: Registry) -> Resource:
    """Serve DeviceTaintRules; the resource that was added."""
    registry.schema.add(_DEFINITIONS, _FACTS)
    name = f"{_BASE}{KIND}"
    registry.kinds[f"{GROUP}/{VERSION}/{KIND}"] = name
    resource = Resource(GROUP, VERSION, _ENTRY, registry.schema.type_of(name))
    resource.columns = _COLUMNS
    registry.add(resource)
    return resource


# By the key of --runtime-config, as kube-apiserver has it.
SERVE: Final = {f"{GROUP}/{VERSION}/devicetaintrules": serve_device_taint_rules}
