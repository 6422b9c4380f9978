"""Renders values of claims, slices, Jobs, strategies and definitions as upstream's messages quote
them: Go structs, all fields.

Source: pkg/apis/{resource,core,batch,apps}/types.go and apiextensions-apiserver
pkg/apis/apiextensions/types*.go, Kubernetes 1.36. An empty list is
shown as null, since it is not known here whether the list was sent.
"""

from typing import Any, Final

Object = dict[str, Any]

# Fields in Go's order. "Name" is a text, "Name #" a number, "Name -" a boolean, "Name ?" a value or
# null, "Name !" free
# JSON, "Name *Kind" a struct or null, "Name Kind" a struct, "Name []Kind" a list of them,
# "Name {}Kind" a map of them, "Name items" and "Name extra" a schema or something simpler, "+Kind"
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
    "DeploymentStrategy": "Type, RollingUpdate *RollingUpdate",
    "DaemonSetUpdateStrategy": "Type, RollingUpdate *RollingUpdate",
    "RollingUpdate": "MaxUnavailable #, MaxSurge #",
    "StatefulSetUpdateStrategy": "Type, RollingUpdate *RollingUpdateStatefulSetStrategy",
    "RollingUpdateStatefulSetStrategy": "Partition #, MaxUnavailable ?",
    "DeviceAttribute": (
        "IntValue=int ?, BoolValue=bool ?, StringValue=string ?, VersionValue=version ?, "
        "IntValues=ints ?, BoolValues=bools ?, StringValues=strings ?, VersionValues=versions ?"
    ),
    "CustomResourceDefinitionVersion": (
        "Name, Served -, Storage -, Deprecated -, DeprecationWarning ?, "
        "Schema *CustomResourceValidation, Subresources *CustomResourceSubresources, "
        "AdditionalPrinterColumns []CustomResourceColumnDefinition, "
        "SelectableFields []SelectableField"
    ),
    "CustomResourceValidation": "OpenAPIV3Schema=openAPIV3Schema *JSONSchemaProps",
    "CustomResourceSubresources": "Status !, Scale *CustomResourceSubresourceScale",
    "CustomResourceSubresourceScale": "SpecReplicasPath, StatusReplicasPath, LabelSelectorPath ?",
    "CustomResourceColumnDefinition": (
        "Name, Type, Format, Description, Priority #, JSONPath=jsonPath"
    ),
    "SelectableField": "JSONPath=jsonPath",
    "JSONSchemaProps": (
        "ID=id, Schema=$schema, Ref=$ref ?, Description, Type, Nullable -, Format, Title, "
        "Default !, Maximum ?, ExclusiveMaximum -, Minimum ?, ExclusiveMinimum -, MaxLength ?, "
        "MinLength ?, Pattern, MaxItems ?, MinItems ?, UniqueItems -, MultipleOf ?, Enum ?, "
        "MaxProperties ?, MinProperties ?, Required ?, Items items, AllOf []JSONSchemaProps, "
        "OneOf []JSONSchemaProps, AnyOf []JSONSchemaProps, Not *JSONSchemaProps, "
        "Properties {}JSONSchemaProps, AdditionalProperties extra, "
        "PatternProperties {}JSONSchemaProps, Dependencies !, AdditionalItems extra, "
        "Definitions {}JSONSchemaProps, ExternalDocs *ExternalDocumentation, Example !, "
        "XPreserveUnknownFields=x-kubernetes-preserve-unknown-fields ?, "
        "XEmbeddedResource=x-kubernetes-embedded-resource -, "
        "XIntOrString=x-kubernetes-int-or-string -, XListMapKeys=x-kubernetes-list-map-keys ?, "
        "XListType=x-kubernetes-list-type ?, XMapType=x-kubernetes-map-type ?, "
        "XValidations=x-kubernetes-validations []ValidationRule"
    ),
    "ExternalDocumentation": "Description, URL=url",
    "ValidationRule": ("Rule, Message, MessageExpression, Reason ?, FieldPath, OptionalOldSelf ?"),
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
    if form == "-":
        return bool(value)
    if form == "!" or (value is None and form in ("items", "extra")):
        return value
    if form == "items":
        is_list = isinstance(value, list)
        return {
            "Schema": None if is_list else go_value("JSONSchemaProps", value),
            "JSONSchemas": go_values("JSONSchemaProps", value) if is_list else None,
        }
    if form == "extra":
        is_schema = isinstance(value, dict)
        return {
            "Allows": is_schema or value,
            "Schema": go_value("JSONSchemaProps", value) if is_schema else None,
        }
    if form.startswith("{}"):
        found = {name: go_value(form[2:], inner) for name, inner in sorted((value or {}).items())}
        return found or None
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
