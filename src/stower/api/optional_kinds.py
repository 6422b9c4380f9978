"""Serves kinds that are off by default and switched on by --runtime-config: DeviceTaintRule.

The API of Kubernetes 1.36 has DeviceTaintRule in resource.k8s.io/v1beta2, off by default. Once
added to a registry, an optional kind is like any other kind.
"""

from typing import Final

from stower.api.registry import Registry, Resource
from stower.api.schema_parts import META, TEXT, columns, conditions, entry, ref, struct

GROUP: Final = "resource.k8s.io"
VERSION: Final = "v1beta2"
KIND: Final = "DeviceTaintRule"
_BASE: Final = "io.k8s.api.resource.v1beta2."

_DEFINITIONS: Final = {
    f"{_BASE}{KIND}": struct(
        ("spec",),
        apiVersion=TEXT,
        kind=TEXT,
        metadata=ref(f"{META}ObjectMeta"),
        spec=ref(f"{_BASE}{KIND}Spec"),
        status=ref(f"{_BASE}{KIND}Status"),
    ),
    f"{_BASE}{KIND}Spec": struct(
        ("taint",),
        deviceSelector=ref(f"{_BASE}DeviceTaintSelector"),
        taint=ref("io.k8s.api.resource.v1.DeviceTaint"),  # which is the same
    ),
    f"{_BASE}DeviceTaintSelector": struct(driver=TEXT, pool=TEXT, device=TEXT),
    f"{_BASE}{KIND}Status": struct(conditions=conditions()),
}
# Which fields are pointers and which values; see tools/make_api_tables.py.
_FACTS: Final = {
    f"{_BASE}{KIND}": "metadata:s spec:s status:s",
    f"{_BASE}{KIND}Spec": "taint:s",
    f"{_BASE}DeviceTaintSelector": "driver:p pool:p device:p",
}
_ENTRY: Final = entry(KIND, "devicetaintrules", "Cluster")
_COLUMNS: Final = columns(
    (
        ("Name", "Name must be unique."),
        ("Key", "The taint key to be applied to a device."),
        ("Value", "The taint value corresponding to the taint key."),
        ("Effect", "The effect of the taint on claims that do not tolerate it, and on their pods."),
        ("TimeAdded", "When the taint was added, or its effect last changed."),
        ("Age", "When the object was created."),
    )
)


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
