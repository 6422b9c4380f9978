"""Renders values of claims, slices and Jobs as upstream's messages quote them: Go structs, all
fields.

Source: pkg/apis/{resource,core,batch}/types.go, Kubernetes 1.36. An empty list is
shown as null, since it is not known here whether the list was sent.
"""

from typing import Any, Final

Object = dict[str, Any]

# Fields in Go's order. "Name" is a text, "Name #" a number, "Name ?" a value or null, "Name !" free
# JSON, "Name *Kind" a struct or null, "Name Kind" a struct, "Name []Kind" a list of them, "+Kind"
# the fields of another kind. The name in JSON follows from Go's, unless "Name=json" says otherwise.
_KINDS: Final = {
    "ResourceClaimSpec": "Devices DeviceClaim",
    "DeviceClaim": (
        "Requests []DeviceRequest, Constraints []DeviceConstraint, "
        "Config []DeviceClaimConfiguration"
    ),
    "DeviceRequest": ("Name, Exactly *ExactDeviceRequest, FirstAvailable []DeviceSubRequest"),
    "ExactDeviceRequest": (
        "DeviceClassName, Selectors []DeviceSelector, AllocationMode, Count #, AdminAccess ?, "
        "Tolerations []DeviceToleration, Capacity *CapacityRequirements"
    ),
    "DeviceSubRequest": (
        "Name, DeviceClassName, Selectors []DeviceSelector, AllocationMode, Count #, "
        "Tolerations []DeviceToleration, Capacity *CapacityRequirements"
    ),
    "CapacityRequirements": "Requests ?",
    "DeviceSelector": "CEL=cel *CELDeviceSelector",
    "CELDeviceSelector": "Expression",
    "DeviceToleration": "Key, Operator, Value, Effect, TolerationSeconds ?",
    "DeviceConstraint": "Requests ?, MatchAttribute ?, DistinctAttribute ?",
    "DeviceClaimConfiguration": "Requests ?, +DeviceConfiguration",
    "DeviceConfiguration": "Opaque *OpaqueDeviceConfiguration",
    "OpaqueDeviceConfiguration": "Driver, Parameters !",
    "AllocationResult": (
        "Devices DeviceAllocationResult, NodeSelector *NodeSelector, AllocationTimestamp ?"
    ),
    "DeviceAllocationResult": (
        "Results []DeviceRequestAllocationResult, Config []DeviceAllocationConfiguration"
    ),
    "DeviceRequestAllocationResult": (
        "Request, Driver, Pool, Device, AdminAccess ?, Tolerations []DeviceToleration, "
        "BindingConditions ?, BindingFailureConditions ?, ShareID ?, ConsumedCapacity ?"
    ),
    "DeviceAllocationConfiguration": "Source, Requests ?, +DeviceConfiguration",
    "PodIP": "IP=ip",
    "SeccompProfile": "Type, LocalhostProfile ?",
    "PodResourceClaim": "Name, ResourceClaimName ?, ResourceClaimTemplateName ?",
    "NodeAddress": "Type, Address",
    "NodeSelector": "NodeSelectorTerms []NodeSelectorTerm",
    "NodeSelectorTerm": (
        "MatchExpressions []NodeSelectorRequirement, MatchFields []NodeSelectorRequirement"
    ),
    "NodeSelectorRequirement": "Key, Operator, Values ?",
    "PodFailurePolicy": "Rules []PodFailurePolicyRule",
    "PodFailurePolicyRule": (
        "Action, OnExitCodes *PodFailurePolicyOnExitCodes, "
        "OnPodConditions []PodFailurePolicyOnPodConditions"
    ),
    "PodFailurePolicyOnExitCodes": "ContainerName ?, Operator, Values ?",
    "PodFailurePolicyOnPodConditions": "Type, Status",
    "SuccessPolicy": "Rules []SuccessPolicyRule",
    "SuccessPolicyRule": "SucceededIndexes ?, SucceededCount ?",
    "DeviceAttribute": (
        "IntValue=int ?, BoolValue=bool ?, StringValue=string ?, VersionValue=version ?, "
        "IntValues=ints ?, BoolValues=bools ?, StringValues=strings ?, VersionValues=versions ?"
    ),
}
_TEMPLATE_METADATA: Final = ("labels", "annotations")


def go_value(kind: str, value: Object) -> Object:
    """A struct of the kind with all its fields."""
    made: Object = {}
    for field in _KINDS[kind].split(", "):
        name, _, form = field.partition(" ")
        if name.startswith("+"):
            made.update(go_value(name[1:], value))
            continue
        name, _, json_name = name.partition("=")
        made[name] = _field(form, value.get(json_name or name[0].lower() + name[1:]))
    return made


def go_values(kind: str, values: list[Object]) -> list[Object] | None:
    """A list of structs of the kind."""
    return [go_value(kind, value) for value in values] or None


def go_template(spec: Object) -> Object:
    """The spec of a ResourceClaimTemplate, whose metadata stands beside its own fields."""
    meta = spec.get("metadata") or {}
    kept = {name: _sorted(meta[name]) for name in _TEMPLATE_METADATA if meta.get(name)}
    return {**kept, "Spec": go_value("ResourceClaimSpec", spec["spec"])}


def _field(form: str, value: Any) -> Any:
    if form == "":
        return value or ""
    if form == "#":
        return value or 0
    if form == "!":
        return value
    if form == "?":
        return None if value == [] else _sorted(value)
    if form.startswith("[]"):
        return go_values(form[2:], value or [])
    if form.startswith("*"):
        return None if value is None else go_value(form[1:], value)
    return go_value(form, value or {})


def _sorted(value: Any) -> Any:
    """Maps are quoted in the order of their keys."""
    is_map = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
    return dict(sorted(value.items())) if is_map else value
