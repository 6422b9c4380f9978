"""The kinds of the group stower.dev, as CustomResourceDefinitions.

Our API server serves them by itself (native.py); for any other cluster, tools/make_crds.py writes
them to deploy/crds. A new kind is one more row in DEFINITIONS. What a schema cannot say is a rule
in CEL here, and a row in native.RULES.
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
    listed,
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
    return listed(
        description,
        _node_name("The name of a node."),
        maxItems=NODES_MAX,
        **{"x-kubernetes-list-type": "atomic"},
    )


def _requirements(description: str, key: str, operators: tuple[str, ...]) -> Object:
    values = listed(
        "Values to compare with; how many there may be depends on the operator.",
        {"type": "string"},
        **{"x-kubernetes-list-type": "atomic"},
    )
    properties = {
        "key": text(key),
        "operator": text("How the values are compared.", enum=[*operators]),
        "values": values,
    }
    item = struct("One requirement.", properties, required=["key", "operator"])
    return listed(description, item, **{"x-kubernetes-list-type": "atomic"})


_TERM: Final = struct(
    "Labels and fields that a node must have. A term without any selects no node.",
    {
        "matchExpressions": _requirements(
            "Requirements on labels.",
            "The key of a label.",
            ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
        ),
        "matchFields": _requirements(
            "Requirements on fields.", "The field: metadata.name.", ("In", "NotIn")
        ),
    },
    **{"x-kubernetes-map-type": "atomic"},
)
_NODE_SELECTOR: Final = struct(
    "Only these nodes are worth asking the driver about; all nodes, where it is absent. It counts "
    "for claims that are not allocated yet.",
    {
        "nodeSelectorTerms": listed(
            "A node is selected by any one of the terms.",
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
        "ResourceClass says that claims for the DeviceClass of the same name are allocated by a "
        "driver, which is asked node by node, and not by the scheduler.",
        {
            "driverName": text(
                "The driver that allocates such claims, a DNS subdomain in lower case. It "
                "cannot be changed.",
                minLength=1,
                maxLength=DRIVER_BYTES_MAX,
                pattern=f"^{SUBDOMAIN}$",
                **{
                    "x-kubernetes-validations": [rule("self == oldSelf", "field is immutable")],
                },
            ),
            "parameters": {
                "type": "object",
                "description": "Anything that the driver understands, at most 10 KiB of JSON.",
                "x-kubernetes-preserve-unknown-fields": True,
            },
            "suitableNodes": _NODE_SELECTOR,
        },
        required=["driverName"],
    ),
    [{"name": "Driver", "type": "string", "jsonPath": ".driverName"}],
)

_SPEC: Final = struct(
    "What the scheduler asks.",
    {
        "selectedNode": text(
            "Where drivers are to allocate the pod's claims; empty for nowhere yet.",
            maxLength=NAME_BYTES_MAX,
            pattern=f"^({SUBDOMAIN})?$",
        ),
        "potentialNodes": _nodes("The nodes that drivers are asked about, the best first."),
        "round": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "Grows with each change of potentialNodes; it never falls.",
        },
        "attempt": {
            "type": "integer",
            "format": "int32",
            "minimum": 0,
            "maximum": INT32_MAX,
            "description": "Grows with each selection that was waited for in vain, or that one of "
            "several drivers has refused; it never falls.",
        },
    },
    **{"x-kubernetes-validations": [_never_falls("round"), _never_falls("attempt")]},
)
_CLAIM: Final = struct(
    "What the driver of one claim answers.",
    {
        "name": text(
            "The name of the claim in the pod's spec.resourceClaims.",
            minLength=1,
            maxLength=LABEL_BYTES_MAX,
            pattern=f"^{LABEL}$",
        ),
        "claimUID": text(
            "The uid of the ResourceClaim that the answer is about.", maxLength=UID_BYTES_MAX
        ),
        "unsuitableNodes": _nodes("The nodes on which the claim cannot be allocated."),
        "observedRound": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "The round of the candidates that the answer is about.",
        },
    },
    required=["name"],
)
_STATUS: Final = struct(
    "What the drivers answer.",
    {
        "resourceClaims": listed(
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
        "PodScheduling is what the scheduler and the drivers of devices say to each other about a "
        "pod that waits for claims. It has the pod's name, and the pod as its one owner.",
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
