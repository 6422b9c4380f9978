"""Defines ResourceClass and PodScheduling of stower.dev as CustomResourceDefinitions.

Our API server serves these kinds by itself (native_kinds.py); for any other cluster,
tools/make_crds.py writes the definitions to deploy/crds. A new kind is one more row in
DEFINITIONS. A rule that a schema cannot express is a rule in CEL here, and a row in
native_kinds.RULES.
"""

from typing import Final

from stower.api.definition_parts import (
    INT32_MAX,
    LABEL,
    LABEL_BYTES_MAX,
    NAME_BYTES_MAX,
    SUBDOMAIN,
    Object,
    definition,
    list_of,
    rule,
    struct,
    text,
)
from stower.model.kinds.pod_scheduling import NODES_MAX

DRIVER_BYTES_MAX: Final = 63
UID_BYTES_MAX: Final = 128  # arbitrary: a UUID has 36
CLAIMS_MAX: Final = 256  # arbitrary: upstream had no limit


def _never_falls(field: str) -> Object:
    """A number that is 0 where it is absent."""
    before, after = (f"(has({it}.{field}) ? {it}.{field} : 0)" for it in ("oldSelf", "self"))
    return rule(f"{after} >= {before}", f"{field} must not be decremented")


# What both kinds refer to


def _node_name(description: str) -> Object:
    return text(description, maxLength=NAME_BYTES_MAX, pattern=f"^{SUBDOMAIN}$")


def _nodes(description: str) -> Object:
    """At most NODES_MAX nodes. Each is there once; but a list is written as a whole: it would be
    all of the managed fields, if who wrote which name were kept."""
    return list_of(
        description,
        _node_name("The name of a node."),
        maxItems=NODES_MAX,
        **{"x-kubernetes-list-type": "atomic"},
    )


def _requirements(description: str, key: str, operators: tuple[str, ...]) -> Object:
    values = list_of(
        "The values to compare with. Their number depends on the operator.",
        {"type": "string"},
        **{"x-kubernetes-list-type": "atomic"},
    )
    properties = {
        "key": text(key),
        "operator": text("How the values are compared.", enum=[*operators]),
        "values": values,
    }
    item = struct("A requirement.", properties, required=["key", "operator"])
    return list_of(description, item, **{"x-kubernetes-list-type": "atomic"})


_TERM: Final = struct(
    "Requirements that a node must meet, all of them. A term without any selects no node.",
    {
        "matchExpressions": _requirements(
            "Requirements on labels.",
            "The key of a label.",
            ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
        ),
        "matchFields": _requirements(
            "Requirements on fields.", "The name of the field: metadata.name.", ("In", "NotIn")
        ),
    },
    **{"x-kubernetes-map-type": "atomic"},
)
_NODE_SELECTOR: Final = struct(
    "The nodes on which the driver can allocate claims; all nodes if absent. It applies to claims "
    "that are not allocated yet.",
    {
        "nodeSelectorTerms": list_of(
            "A node is selected if it matches at least one of the terms.",
            _TERM,
            minItems=1,
            **{"x-kubernetes-list-type": "atomic"},
        )
    },
    required=["nodeSelectorTerms"],
    **{"x-kubernetes-map-type": "atomic"},
)

# Devices that are negotiated with their drivers

RESOURCE_CLASS: Final = definition(
    "ResourceClass",
    "resourceclasses",
    "Cluster",
    struct(
        "ResourceClass declares that a driver, not the scheduler, allocates the claims for the "
        "DeviceClass of the same name. The scheduler negotiates the node with the driver.",
        {
            "driverName": text(
                "The name of the driver that allocates the claims: a DNS subdomain in lower "
                "case. It cannot be changed.",
                minLength=1,
                maxLength=DRIVER_BYTES_MAX,
                pattern=f"^{SUBDOMAIN}$",
                **{
                    "x-kubernetes-validations": [rule("self == oldSelf", "field is immutable")],
                },
            ),
            "parameters": {
                "type": "object",
                "description": "Parameters for the driver: at most 10 KiB of JSON.",
                "x-kubernetes-preserve-unknown-fields": True,
            },
            "suitableNodes": _NODE_SELECTOR,
        },
        required=["driverName"],
    ),
    [{"name": "Driver", "type": "string", "jsonPath": ".driverName"}],
)

_SPEC: Final = struct(
    "The request of the scheduler to the drivers.",
    {
        "selectedNode": text(
            "The node for which drivers must allocate the pod's claims; empty for none.",
            maxLength=NAME_BYTES_MAX,
            pattern=f"^({SUBDOMAIN})?$",
        ),
        "potentialNodes": _nodes("The candidate nodes that drivers must check, best first."),
        "round": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "The number of the list in potentialNodes: increases with each change, "
            "never decreases.",
        },
        "attempt": {
            "type": "integer",
            "format": "int32",
            "minimum": 0,
            "maximum": INT32_MAX,
            "description": "The number of the selection: increases when a selection timed out or "
            "one of several drivers refused it, never decreases.",
        },
    },
    **{"x-kubernetes-validations": [_never_falls("round"), _never_falls("attempt")]},
)
_CLAIM: Final = struct(
    "The answer of the driver of one claim.",
    {
        "name": text(
            "The name of the claim in the pod's spec.resourceClaims.",
            minLength=1,
            maxLength=LABEL_BYTES_MAX,
            pattern=f"^{LABEL}$",
        ),
        "claimUID": text(
            "The UID of the ResourceClaim that the answer is about.", maxLength=UID_BYTES_MAX
        ),
        "unsuitableNodes": _nodes("The nodes on which the claim cannot be allocated."),
        "observedRound": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "The value of spec.round for which the nodes were checked.",
        },
    },
    required=["name"],
)
_STATUS: Final = struct(
    "The answers of the drivers.",
    {
        "resourceClaims": list_of(
            "One entry for each claim of the pod that is not allocated yet.",
            _CLAIM,
            maxItems=CLAIMS_MAX,
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        )
    },
)
POD_SCHEDULING: Final = definition(
    "PodScheduling",
    "podschedulings",
    "Namespaced",
    struct(
        "PodScheduling holds the negotiation between the scheduler and the drivers of devices "
        "about the node of a pod that waits for claims. It has the pod's name, and the pod as its "
        "only owner.",
        {"spec": _SPEC, "status": _STATUS},
        **{
            "x-kubernetes-validations": [
                rule("!has(oldSelf.spec) || has(self.spec)", "spec must not be removed")
            ]
        },
    ),
    [
        {"name": "Selected", "type": "string", "jsonPath": ".spec.selectedNode"},
        {"name": "Round", "type": "integer", "jsonPath": ".spec.round"},
        {"name": "Attempt", "type": "integer", "jsonPath": ".spec.attempt"},
        {
            "name": "Candidates",
            "type": "string",
            "jsonPath": ".spec.potentialNodes",
            "priority": 1,  # shown by -o wide
        },
    ],
    status={},
)

# What our API server serves by itself.
DEFINITIONS: Final = (RESOURCE_CLASS, POD_SCHEDULING)
