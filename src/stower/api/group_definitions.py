"""Defines PodGroup and CompositePodGroup of stower.dev as CustomResourceDefinitions.

They are for API servers without kinds for groups of pods. The fields are those of
scheduling.k8s.io in Kubernetes 1.37; a label links pods to their group, and no Workload is needed.
Our own API server does not serve these kinds: it serves scheduling.k8s.io.
"""

from typing import Any, Final

from stower.api.definition_parts import (
    CONDITION,
    INT32_MAX,
    NAME_BYTES_MAX,
    SUBDOMAIN,
    Object,
    definition,
    list_of,
    rule,
    struct,
    text,
)

KEY_BYTES_MAX: Final = 317  # a prefix of 253, a slash and a name of 63
PRIORITY_MAX: Final = 1_000_000_000
_NAMED: Final = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


def _fix_fields(*fields: str) -> list[Object]:
    """Fields that stay as they were made."""
    return [
        rule(
            f"has(self.{f}) == has(oldSelf.{f}) && (!has(self.{f}) || self.{f} == oldSelf.{f})",
            f"{f} is immutable",
        )
        for f in fields
    ]


def _one_of(first: str, second: str) -> Object:
    return rule(
        f"has(self.{first}) != has(self.{second})", f"must have exactly one of {first}, {second}"
    )


def _name(description: str) -> Object:
    return text(description, minLength=1, maxLength=NAME_BYTES_MAX, pattern=f"^{SUBDOMAIN}$")


def _policy(count: str, what: str, rules: list[Object]) -> Object:
    minimum = {
        "type": "integer",
        "format": "int32",
        "minimum": 1,
        "maximum": INT32_MAX,
        "description": f"The minimum number of {what} that must be scheduled at the same time.",
    }
    return struct(
        "The scheduling policy: basic or gang. The choice between them cannot be changed.",
        {
            "basic": struct("Members are scheduled one by one, as many as fit.", {}),
            "gang": struct(
                "A minimum of members is scheduled together, or none.",
                {count: minimum},
                required=[count],
            ),
        },
        **{"x-kubernetes-validations": [_one_of("basic", "gang"), *rules]},
    )


def _keep_presence(*fields: str) -> list[Object]:
    return [
        rule(f"has(self.{f}) == has(oldSelf.{f})", f"{f} cannot be set or unset") for f in fields
    ]


_KEY: Final = text("The key of a node label.", minLength=1, maxLength=KEY_BYTES_MAX)
_SHARED: Final[Object] = {
    "parentCompositePodGroupName": _name(
        "The name of the CompositePodGroup that contains this group."
    ),
    "workloadRef": struct(
        "The template from which the group was created, if there is one.",
        {
            "workloadName": _name("The name of the Workload."),
            "templateName": _name("The name of the template in the Workload."),
        },
        required=["workloadName", "templateName"],
    ),
    "schedulingConstraints": struct(
        "Constraints on the nodes of the pods relative to each other.",
        {
            "topology": list_of(
                "All pods must run in one domain: on nodes with the same value of a label.",
                struct("A topology constraint.", {"key": _KEY}, required=["key"]),
                maxItems=1,
                **{"x-kubernetes-list-type": "atomic"},
            )
        },
    ),
    "disruptionMode": struct(
        "Whether members of the group are preempted one by one (default) or all together.",
        {
            "single": struct("Members are preempted one by one.", {}),
            "all": struct("Members are preempted all together.", {}),
        },
        default={"single": {}},
        **{"x-kubernetes-validations": [_one_of("single", "all")]},
    ),
    "priorityClassName": _name("The name of the PriorityClass of the group's pods."),
    "priority": {
        "type": "integer",
        "format": "int32",
        "maximum": PRIORITY_MAX,
        "description": "The priority of the group's pods; if absent, that of each pod counts.",
    },
    "preemptionPolicy": text(
        "Whether the group may preempt pods of lower priority.",
        enum=["PreemptLowerPriority", "Never"],
    ),
}
_CONDITIONS: Final = list_of(
    "The conditions of the group.",
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
        "The desired state of the group.",
        properties,
        required=["schedulingPolicy"],
        **{"x-kubernetes-validations": _fix_fields(*_SHARED, *own)},
    )
    condition = f"{kind}InitiallyScheduled"
    return definition(
        kind,
        f"{kind.lower()}s",
        "Namespaced",
        struct(
            f"{kind} is a group of {what} that are scheduled together.",
            {"spec": spec, "status": struct("The observed state of the group.", status)},
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
    "A claim that all pods of the group share. Each pod names it with the same source.",
    {
        "name": _name("The name of the claim in the group."),
        "resourceClaimName": _name("The name of a ResourceClaim."),
        "resourceClaimTemplateName": _name("The name of a ResourceClaimTemplate."),
    },
    required=["name"],
    **{
        "x-kubernetes-validations": [_one_of("resourceClaimName", "resourceClaimTemplateName")],
    },
)
_MADE: Final = struct(
    "A claim that was created from a template.",
    {
        "name": _name("The name of the claim in the group."),
        "resourceClaimName": _name("The name of the ResourceClaim."),
    },
    required=["name"],
)
POD_GROUP: Final = _group(
    "PodGroup",
    "minCount",
    "pods",
    _keep_presence("basic", "gang"),
    {
        "conditions": _CONDITIONS,
        "resourceClaimStatuses": list_of(
            "The claims that were created from templates.", _MADE, maxItems=4, **_NAMED
        ),
    },
    resourceClaims=list_of(
        "The claims that all pods of the group share.", _CLAIM, maxItems=4, **_NAMED
    ),
)
COMPOSITE_POD_GROUP: Final = _group(
    "CompositePodGroup",
    "minGroupCount",
    "groups",
    [rule("self == oldSelf", "schedulingPolicy is immutable")],
    {"conditions": _CONDITIONS},
)

GROUP_DEFINITIONS: Final = (POD_GROUP, COMPOSITE_POD_GROUP)
