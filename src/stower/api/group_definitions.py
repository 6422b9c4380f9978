"""Groups of pods as CustomResourceDefinitions of stower.dev, for API servers that have none.

The fields are those of scheduling.k8s.io in Kubernetes 1.37; pods are linked by a label, and no
Workload is needed. Our own API server does not serve these: it has scheduling.k8s.io.
"""

from typing import Any, Final

from stower.api.definition_parts import (
    CONDITION,
    INT32_MAX,
    NAME_BYTES_MAX,
    SUBDOMAIN,
    Object,
    definition,
    listed,
    rule,
    struct,
    text,
)

KEY_BYTES_MAX: Final = 317  # a prefix of 253, a slash and a name of 63
PRIORITY_MAX: Final = 1_000_000_000
_NAMED: Final = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


def _fixed(*fields: str) -> list[Object]:
    """Fields that stay as they were made."""
    return [
        rule(
            f"has(self.{f}) == has(oldSelf.{f}) && (!has(self.{f}) || self.{f} == oldSelf.{f})",
            f"{f} is immutable",
        )
        for f in fields
    ]


def _one_of(first: str, second: str) -> Object:
    return rule(f"has(self.{first}) != has(self.{second})", f"must have one of {first}, {second}")


def _name(description: str) -> Object:
    return text(description, minLength=1, maxLength=NAME_BYTES_MAX, pattern=f"^{SUBDOMAIN}$")


def _policy(count: str, what: str, rules: list[Object]) -> Object:
    minimum = {
        "type": "integer",
        "format": "int32",
        "minimum": 1,
        "maximum": INT32_MAX,
        "description": f"So many {what} at once, or none.",
    }
    return struct(
        "How the group is placed. Whether it is basic or a gang cannot be changed.",
        {
            "basic": struct("As many as there is room for.", {}),
            "gang": struct("A minimum, or none.", {count: minimum}, required=[count]),
        },
        **{"x-kubernetes-validations": [_one_of("basic", "gang"), *rules]},
    )


def _kept(*fields: str) -> list[Object]:
    return [
        rule(f"has(self.{f}) == has(oldSelf.{f})", f"{f} cannot be set or unset") for f in fields
    ]


_KEY: Final = text("The key of a node label.", minLength=1, maxLength=KEY_BYTES_MAX)
_SHARED: Final[Object] = {
    "parentCompositePodGroupName": _name("The CompositePodGroup that this one is in."),
    "workloadRef": struct(
        "The template that the group was made from, for whoever has such.",
        {"workloadName": _name("A Workload."), "templateName": _name("A template in it.")},
        required=["workloadName", "templateName"],
    ),
    "schedulingConstraints": struct(
        "Where the pods may be, with regard to each other.",
        {
            "topology": listed(
                "All pods in one domain of this node label.",
                struct("A topology.", {"key": _KEY}, required=["key"]),
                maxItems=1,
                **{"x-kubernetes-list-type": "atomic"},
            )
        },
    ),
    "disruptionMode": struct(
        "Whether who is in the group goes alone, where somebody has to; single by default.",
        {"single": struct("One by one.", {}), "all": struct("All together.", {})},
        default={"single": {}},
        **{"x-kubernetes-validations": [_one_of("single", "all")]},
    ),
    "priorityClassName": _name("The PriorityClass of its pods."),
    "priority": {
        "type": "integer",
        "format": "int32",
        "maximum": PRIORITY_MAX,
        "description": "The priority of its pods; absent, that of the pods counts.",
    },
    "preemptionPolicy": text(
        "Whether others may have to go for it.", enum=["PreemptLowerPriority", "Never"]
    ),
}
_CONDITIONS: Final = listed(
    "What is known of the group.",
    CONDITION,
    **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
)
_COLUMNS: Final = [
    {"name": "Parent", "type": "string", "jsonPath": ".spec.parentCompositePodGroupName"},
    {"name": "Priority", "type": "integer", "jsonPath": ".spec.priority"},
    {
        "name": "Topology",
        "type": "string",
        "jsonPath": ".spec.schedulingConstraints.topology[0].key",
    },
]


def _group(
    kind: str, count: str, what: str, rules: list[Object], status: Object, **own: Any
) -> Object:
    properties = {**_SHARED, "schedulingPolicy": _policy(count, what, rules), **own}
    spec = struct(
        "What the group is.",
        properties,
        required=["schedulingPolicy"],
        **{"x-kubernetes-validations": _fixed(*_SHARED, *own)},
    )
    condition = f"{kind}InitiallyScheduled"
    return definition(
        kind,
        f"{kind.lower()}s",
        "Namespaced",
        struct(
            f"{kind} is a group of {what} that are placed together.",
            {"spec": spec, "status": struct("What became of the group.", status)},
            required=["spec"],
        ),
        [
            {
                "name": "Minimum",
                "type": "integer",
                "jsonPath": f".spec.schedulingPolicy.gang.{count}",
            },
            {
                "name": "Scheduled",
                "type": "string",
                "jsonPath": f'.status.conditions[?(@.type=="{condition}")].status',
            },
            *_COLUMNS,
        ],
        status={},
    )


_CLAIM: Final = struct(
    "A claim that all pods of the group share: of the same name and source in each of them.",
    {
        "name": _name("Its name in the group."),
        "resourceClaimName": _name("A ResourceClaim."),
        "resourceClaimTemplateName": _name("A ResourceClaimTemplate."),
    },
    required=["name"],
    **{
        "x-kubernetes-validations": [_one_of("resourceClaimName", "resourceClaimTemplateName")],
    },
)
_MADE: Final = struct(
    "The claim that was made from a template.",
    {"name": _name("Its name in the group."), "resourceClaimName": _name("A ResourceClaim.")},
    required=["name"],
)
POD_GROUP: Final = _group(
    "PodGroup",
    "minCount",
    "pods",
    _kept("basic", "gang"),
    {
        "conditions": _CONDITIONS,
        "resourceClaimStatuses": listed("Made claims.", _MADE, maxItems=4, **_NAMED),
    },
    resourceClaims=listed("Shared claims.", _CLAIM, maxItems=4, **_NAMED),
)
COMPOSITE_POD_GROUP: Final = _group(
    "CompositePodGroup",
    "minGroupCount",
    "groups",
    [rule("self == oldSelf", "schedulingPolicy is immutable")],
    {"conditions": _CONDITIONS},
)

GROUP_DEFINITIONS: Final = (POD_GROUP, COMPOSITE_POD_GROUP)
