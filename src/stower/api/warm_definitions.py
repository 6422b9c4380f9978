"""Defines WarmPool of stower.dev as a CustomResourceDefinition, from the types that schedulers use.

Our API server serves it by itself (native_kinds.py); for other clusters, tools/make_crds.py writes
it to deploy/warm/crds.
"""

import re
from typing import Any, Final

import msgspec

from stower.api.definition_parts import Object, definition, rule, struct
from stower.model.kinds.warm_pool import IMAGES_MAX, LECTURES_MAX, WarmPoolSpec, WarmPoolStatus

TEXT_MAX: Final = 253
LIST_MAX: Final = {"lectures": LECTURES_MAX, "names": IMAGES_MAX, "days": 7}
# What is Kubernetes' own is checked where it is used.
KEPT: Final[Object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_SNAKE: Final = re.compile(r"`([a-z]+(?:_[a-z]+)+)")


def _schemas() -> Object:
    _, found = msgspec.json.schema_components([WarmPoolSpec, WarmPoolStatus], ref_template="{name}")
    return found


_SCHEMAS: Final = _schemas()


def _plain(name: str, schema: Object) -> Object:
    """The same as an API server wants it: nothing refers to anything, and nulls are left out."""
    if "anyOf" in schema:
        (schema,) = (one for one in schema["anyOf"] if one != {"type": "null"})
    if "$ref" in schema:
        schema = _SCHEMAS[schema["$ref"]]
    if schema.get("type") == "object" and "properties" in schema:
        fields = {key: _plain(key, value) for key, value in schema["properties"].items()}
        about = _api_description(schema.get("description", ""))
        required = {"required": schema["required"]} if schema.get("required") else {}
        return struct(about, fields, **required)
    if schema.get("type") == "object":
        return dict(schema) if "additionalProperties" in schema else dict(KEPT)
    made: dict[str, Any] = {"type": schema.get("type", "string")}
    made |= {k: schema[k] for k in ("enum", "minimum", "maximum") if k in schema}
    if schema.get("default"):
        made["default"] = schema["default"]
    if made["type"] == "integer":
        made["format"] = "int32"
    if "items" in schema:
        made["items"] = _plain(name, schema["items"])
        made["maxItems"] = LIST_MAX.get(name, TEXT_MAX)
    return made


def _api_description(description: str) -> str:
    """With fields named as the API names them."""

    def camel(found: re.Match[str]) -> str:
        first, *others = found[1].split("_")
        return "`" + first + "".join(word.title() for word in others)

    return _SNAKE.sub(camel, " ".join(description.split()))


_SPEC: Final = _plain("spec", {"$ref": "WarmPoolSpec"})
_SPEC["required"] = ["users"]
_START: Final = rule(
    r"self.start.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$|^[0-9]{4}-[01][0-9]-[0-3][0-9]T')",
    "start must be an RFC 3339 time, or HH:MM",
)
_LECTURE: Final = _SPEC["properties"]["placeholders"]["properties"]["lectures"]["items"]
_LECTURE.update({"required": ["start", "enrolment"], "x-kubernetes-validations": [_START]})
_LECTURE["properties"]["start"]["maxLength"] = 64
_LECTURE["properties"]["days"]["items"]["enum"] = [
    "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun",
]  # fmt: skip


def _column(name: str, path: str, type: str = "integer") -> Object:
    return {"name": name, "type": type, "jsonPath": f".status.{path}"}


WARM_POOL: Final = definition(
    "WarmPool",
    "warmpools",
    "Namespaced",
    struct(
        "WarmPool selects the pods of users, defines when a node is ready for them, and sets how "
        "much room placeholders reserve for users that are expected.",
        {"spec": _SPEC, "status": _plain("status", {"$ref": "WarmPoolStatus"})},
        required=["spec"],
    ),
    [
        _column("Nodes", "nodes"),
        _column("Ready", "readyNodes"),
        _column("Users", "users"),
        _column("Waiting", "waitingUsers"),
        _column("Wanted", "wanted"),
        _column("Placed", "placed"),
        _column("Pending", "pending"),
        _column("Expected", "expected", "string"),
    ],
    status={},
)
WARM_DEFINITIONS: Final = (WARM_POOL,)
