"""Defines the API's errors, rendered as a Status with upstream's code, reason and causes."""

import json
import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final, NamedTuple

Object = dict[str, Any]

REQUIRED: Final = "FieldValueRequired"
INVALID: Final = "FieldValueInvalid"
UNSUPPORTED: Final = "FieldValueNotSupported"
FORBIDDEN: Final = "FieldValueForbidden"
DUPLICATE: Final = "FieldValueDuplicate"
NOT_FOUND: Final = "FieldValueNotFound"
TOO_LONG: Final = "FieldValueTooLong"
TOO_MANY: Final = "FieldValueTooMany"
TYPE_INVALID: Final = "FieldValueTypeInvalid"
INTERNAL: Final = "InternalError"
OTHER_NAMESPACE: Final = (
    "the namespace of the provided object does not match the namespace sent on the request"
)
_WORDS: Final = {
    REQUIRED: "Required value",
    INVALID: "Invalid value",
    UNSUPPORTED: "Unsupported value",
    FORBIDDEN: "Forbidden",
    DUPLICATE: "Duplicate value",
    NOT_FOUND: "Not found",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
    TYPE_INVALID: "Invalid value",
    INTERNAL: "Internal error",
}
_EXPONENT_MAX: Final = 6  # of floats that Go writes without one
OMITTED: Final = object()  # a value that its error leaves out
_WITHOUT_VALUE: Final = (REQUIRED, FORBIDDEN, TOO_LONG, INTERNAL)


class FieldError(NamedTuple):
    """One fault of one field. Source: apimachinery pkg/util/validation/field."""

    type: str
    field: str
    value: Any = None
    detail: str = ""

    @property
    def message(self) -> str:
        """The text of the cause."""
        text = _WORDS[self.type]
        if self.type not in _WITHOUT_VALUE and self.value is not OMITTED:
            text += f": {format_value(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text


def format_value(value: Any) -> str:
    """The value as it stands in a message."""
    if isinstance(value, str):
        return go_quote(value)
    if type(value) is float:
        return go_float(value)
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for character in "&<>":  # which Go's encoder keeps out of JSON
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def go_float(value: float) -> str:
    """Returns a number as Go's %v has it."""
    if type(value) is int or not math.isfinite(value):
        return str(value)
    digits, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    power = int(exponent)
    if -4 <= power < _EXPONENT_MAX:
        return f"{Decimal(repr(value)).normalize():f}"
    return f"{digits}e{'-' if power < 0 else '+'}{abs(power):02}"


def go_quote(text: str) -> str:
    """The text in quotes, as Go's %q has it for what is printable."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\x7f")


def unsupported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    """The value is none of a few, in upstream's order."""
    listed = ", ".join(map(go_quote, supported))
    return FieldError(UNSUPPORTED, field, value, f"supported values: {listed}")


class ApiError(Exception):
    """A request that is refused."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Object | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}
        self.may_end = False  # a controller is about to make what is missing

    def status(self) -> Object:
        """The answer's body."""
        body: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return {**body, "code": self.code}


def details(group: str, kind: str, name: str = "") -> Object:
    """The details of a Status, as far as they are known."""
    found = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in found.items() if value}


def qualified(group: str, name: str) -> str:
    """The resource or kind with its group."""
    return f"{name}.{group}" if group else name


def not_found(group: str, plural: str, name: str) -> ApiError:
    """No such object."""
    text = f'{qualified(group, plural)} "{name}" not found'
    return ApiError(404, "NotFound", text, details(group, plural, name))


def already_exists(group: str, plural: str, name: str) -> ApiError:
    """There is one of this name."""
    text = f'{qualified(group, plural)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", text, details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    """The object is not as the request supposed."""
    text = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return ApiError(409, "Conflict", text, details(group, plural, name))


def forbidden(group: str, plural: str, name: str, why: str) -> ApiError:
    """Admission or policy refuses."""
    text = f"{qualified(group, plural)}"
    text += f' "{name}" is forbidden: {why}' if name else f" is forbidden: {why}"
    return ApiError(403, "Forbidden", text, details(group, plural, name))


def bad_request(message: str) -> ApiError:
    """The request makes no sense."""
    return ApiError(400, "BadRequest", message)


def internal(message: str) -> ApiError:
    """What the real server answers with 500, and so do we."""
    return ApiError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        {"causes": [{"message": message}]},
    )


def gone(message: str) -> ApiError:
    """History that is needed is forgotten."""
    return ApiError(410, "Expired", message)


def too_large_resource_version(wanted: int, current: int) -> ApiError:
    """Returns the error for a revision that is newer than every write (504 Timeout)."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        {"causes": causes, "retryAfterSeconds": 1},
        {"Retry-After": "1"},
    )


def method_not_allowed() -> ApiError:
    """The path is known, the method is not."""
    text = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", text, {})


# Versions that one release of Kubernetes serves and another does not.
RELEASES: Final = {
    ("scheduling.k8s.io", "v1alpha2"): "1.36",
    ("scheduling.k8s.io", "v1alpha3"): "1.37",
    ("scheduling.k8s.io", "v1beta1"): "1.37",
}


def no_such_path(group: str = "", version: str = "") -> ApiError:
    """Nothing is served here. `group`, `version`: that were asked for, and are not served."""
    text = "the server could not find the requested resource"
    if release := RELEASES.get((group, version)):
        text += (
            f": {group}/{version} is what Kubernetes {release} has, and this server is another "
            f"one; start it with --kubernetes {release}"
        )
    return ApiError(404, "NotFound", text, {})


def unsupported_media_type() -> ApiError:
    """The body's type is not understood."""
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def invalid(group: str, kind: str, name: str, errors: list[FieldError]) -> ApiError:
    """The object or the options break rules."""
    texts = list(dict.fromkeys(f"{e.field}: {e.message}" for e in errors))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": e.type, "message": e.message, "field": e.field} for e in errors]
    return ApiError(
        422,
        "Invalid",
        f'{qualified(group, kind)} "{name}" is invalid: {text}',
        {**details(group, kind, name), "causes": causes},
    )
