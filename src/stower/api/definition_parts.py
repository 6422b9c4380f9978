"""Builds parts of CustomResourceDefinitions; the group is stower.dev unless another is given.

Must not know the kinds that are defined.
"""

from typing import Any, Final

Object = dict[str, Any]
GROUP: Final = "stower.dev"
VERSION: Final = "v1"
NAME_BYTES_MAX: Final = 253
LABEL_BYTES_MAX: Final = 63
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN: Final = rf"{LABEL}(\.{LABEL})*"
AGE: Final = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
TOP: Final = {
    "apiVersion": {
        "type": "string",
        "description": "The version of the schema that this object follows.",
    },
    "kind": {"type": "string", "description": "The kind of this object."},
    "metadata": {"type": "object"},
}


def text(description: str, **more: Any) -> Object:
    """A string."""
    return {"type": "string", "description": description, **more}


def struct(description: str, properties: Object, **more: Any) -> Object:
    """An object with these fields."""
    return {"type": "object", "description": description, "properties": properties, **more}


def list_of(description: str, items: Object, **more: Any) -> Object:
    """A list."""
    return {"type": "array", "description": description, "items": items, **more}


def rule(rule: str, message: str) -> Object:
    """What must be true, in CEL."""
    return {"rule": rule, "message": message}


def definition(
    kind: str,
    plural: str,
    scope: str,
    schema: Object,
    columns: list[Object],
    group: str = GROUP,
    singular: str = "",
    **parts: Any,
) -> Object:
    """A definition of one version. The age is the last column, where it is not one of them."""
    schema = {**schema, "properties": {**TOP, **schema["properties"]}}
    version: Object = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        **({"subresources": parts} if parts else {}),
        "additionalPrinterColumns": columns if AGE in columns else [*columns, AGE],
    }
    names = {
        "plural": plural,
        "singular": singular or kind.lower(),
        "kind": kind,
        "listKind": f"{kind}List",
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [version]},
    }


CONDITION: Final = struct(
    "metav1.Condition.",
    {
        "type": text("The type of the condition.", maxLength=316),
        "status": text("True, False or Unknown.", enum=["True", "False", "Unknown"]),
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "lastTransitionTime": text("When the status last changed.", format="date-time"),
        "reason": text("The reason for the status, as one word in CamelCase.", maxLength=1024),
        "message": text("Details about the status, for people.", maxLength=32768),
    },
    required=["type", "status", "lastTransitionTime", "reason", "message"],
)
