"""Validates parts that kinds of devices share: names, selectors, parameters, taints, conditions.

Source: pkg/apis/resource/validation/validation.go, Kubernetes 1.36.
"""

import ipaddress
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from stower.api.errors import INTERNAL, FieldError, unsupported
from stower.api.validation.rules import (
    Faults,
    Object,
    byte_count,
    duplicate,
    forbidden,
    invalid,
    label_key,
    named,
    required,
    too_long,
    too_many,
)
from stower.cel.device import COST_MAX, LENGTH_MAX, Gates, compile_selector
from stower.model import names

Rule = Callable[[str, Any], Iterable[FieldError]]
Item = TypeVar("Item")

# Limits of the API's types.
CONFIGS_MAX: Final = 32
SELECTORS_MAX: Final = 32
REQUESTS_MAX: Final = 32
BINDING_CONDITIONS_MAX: Final = 4
DRIVER_BYTES_MAX: Final = 63
POOL_BYTES_MAX: Final = 253
IDENTIFIER_BYTES_MAX: Final = 32
DOMAIN_BYTES_MAX: Final = 63
PARAMETERS_BYTES_MAX: Final = 10 * 1024
REASON_BYTES_MAX: Final = 1024
MESSAGE_BYTES_MAX: Final = 32 * 1024

EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
OPERATORS: Final = ("Equal", "Exists")
STATUSES: Final = ("False", "True", "Unknown")

# New expressions may use what is on by default; stored ones are read with all that ever was.
_NEW: Final = Gates(new=True)
_STORED: Final = Gates()

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_IDENTIFIER_TEXT: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of "
    "alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for "
    "validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?\Z")
_REASON_TEXT: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. "
    "'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex "
    "used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\Z")
_HEX_32: Final = re.compile(r"[0-9A-Fa-f]{32}\Z")
_NOT_NORMAL: Final = (
    "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with "
    "lowercase hexadecimal characters"
)
_NUMBER: Final = re.compile(r"(?<![0-9A-Fa-f:])[0-9]++(?=\.|\Z)")
_PREFIX: Final = re.compile(r"[0-9]{1,4}\Z")


# Lists and maps


def check_each(
    path: str, given: Sequence[Any] | None, limit: int | None, rule: Rule
) -> Iterator[FieldError]:
    """A rule for all items of a list; nothing but their number where there are too many."""
    given = given or ()
    if limit is not None and len(given) > limit:
        yield too_many(path, len(given), limit)
        return
    for i, item in enumerate(given):
        yield from rule(f"{path}[{i}]", item)


def check_each_unique(
    path: str,
    given: Sequence[Item] | None,
    limit: int | None,
    rule: Rule,
    key: Callable[[Item], Hashable],
    show: Callable[[Item], Any] | None = None,
) -> Iterator[FieldError]:
    """The same for a list whose items differ in their key, which messages may show otherwise."""
    given = given or ()
    yield from check_each(path, given, limit, rule)
    if limit is not None and len(given) > limit:
        return
    seen: set[Hashable] = set()
    for i, item in enumerate(given):
        found = key(item)
        if found in seen:
            yield duplicate(f"{path}[{i}]", found if show is None else show(item))
        seen.add(found)


def name_of(item: Object) -> str:
    """The key of what is told apart by name."""
    return str(item.get("name", ""))


def identity(item: str) -> str:
    """The key of a text."""
    return item


# Names


def dns_label(path: str, name: str) -> Faults:
    """A request, device, counter or set of counters."""
    return named(path, name, names.label_faults)


def driver(path: str, name: str) -> Iterator[FieldError]:
    """The name of a driver: of a domain, in whatever case."""
    if not name:
        yield required(path)
        return
    if byte_count(name) > DRIVER_BYTES_MAX:
        yield too_long(path, DRIVER_BYTES_MAX)
    for fault in names.subdomain_faults(name.lower()):
        yield invalid(path, name, fault)


def pool(path: str, name: str) -> Iterator[FieldError]:
    """The name of a pool: one or more domains, with slashes between them."""
    if not name:
        yield required(path)
        return
    if byte_count(name) > POOL_BYTES_MAX:
        yield too_long(path, POOL_BYTES_MAX)
    for part in name.split("/"):
        yield from named(path, part, names.subdomain_faults)


def qualified(path: str, name: str) -> Iterator[FieldError]:
    """The name of an attribute or capacity: an identifier, perhaps in a domain.

    More than one slash is nothing that upstream looks at.
    """
    parts = name.split("/")
    if len(parts) == 1:
        yield from _identifier(path, name)
    elif len(parts) == 2:
        if parts[0]:
            yield from driver(path, parts[0])
        else:
            yield invalid(path, "", "the domain must not be empty")
        if parts[1]:
            yield from _identifier(path, parts[1])
        else:
            yield invalid(path, "", "the name must not be empty")


def fully_qualified(path: str, name: str) -> Iterator[FieldError]:
    """The same where the domain must be there."""
    yield from qualified(path, name)
    if "/" not in name:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        yield invalid(path, name, text)


def _identifier(path: str, name: str) -> Iterator[FieldError]:
    if byte_count(name) > IDENTIFIER_BYTES_MAX:
        yield too_long(path, IDENTIFIER_BYTES_MAX)
    if not _IDENTIFIER.match(name):
        yield invalid(path, name, _IDENTIFIER_TEXT)


def share(path: str, uid: str | None) -> Iterator[FieldError]:
    """The identity of a share of a device: a UUID in its usual form."""
    if uid is None:
        return
    fault = _uuid_fault(uid)
    if fault:
        yield invalid(path, uid, f"error validating uid: {fault}")
    elif len(uid) != 36 or uid != uid.lower():
        yield invalid(path, uid, _NOT_NORMAL)


def _uuid_fault(uid: str) -> str:
    """What keeps the text from being a UUID in any of its four forms. Source: google/uuid."""
    size = byte_count(uid)
    if size == 32:
        return "" if _HEX_32.match(uid) else "invalid UUID format"
    if size == 45:
        if uid[:9].lower() != "urn:uuid:":
            return f'invalid urn prefix: "{uid[:9]}"'
        uid = uid[9:]
    elif size == 38:
        if uid[0] != "{" or uid[-1] != "}":
            return "invalid bracketed UUID format"
        uid = uid[1:-1]
    elif size != 36:
        return f"invalid UUID length: {size}"
    return "" if _UUID.match(uid) else "invalid UUID format"


def _without_zeros(number: re.Match[str]) -> str:
    return number[0].lstrip("0") or "0"


def interface_address(path: str, text: str) -> Iterator[FieldError]:
    """An address with the size of its network, as it is usually written."""
    address, _, bits = text.partition("/")
    try:
        # Zeros before a number are read as nothing, and then found not to be usual.
        found = ipaddress.ip_address(_NUMBER.sub(_without_zeros, address))
        size = int(bits) if _PREFIX.match(bits) else -1
    except ValueError:
        size = -1
    if size < 0 or size > found.max_prefixlen or "%" in address:
        detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        yield invalid(path, text, detail)
        return
    shown = str(found)
    if found.version == 6 and found.ipv4_mapped is not None:
        shown = str(found.ipv4_mapped)
        size = size - 96 if size > 32 else size
    if text != f"{shown}/{size}":
        yield invalid(path, text, f'must be in canonical form ("{shown}/{size}")')


# Selectors and configuration


def selectors(path: str, given: Any, stored: bool) -> Iterator[FieldError]:
    """Selectors of devices; stored: they were there before, and may use what was on then."""
    return check_each(path, given, SELECTORS_MAX, lambda at, item: _selector(at, item, stored))


def _selector(path: str, given: Object, stored: bool) -> Iterator[FieldError]:
    if given.get("cel") is None:
        yield required(f"{path}.cel")
        return
    at, text = f"{path}.cel.expression", given["cel"].get("expression", "")
    if byte_count(text) > LENGTH_MAX:
        yield too_long(at, LENGTH_MAX)
        return
    found = compile_selector(text, _STORED if stored else _NEW)
    if found.error is not None:
        if found.is_internal:
            yield FieldError(INTERNAL, at, None, found.error)
        else:
            yield invalid(at, text, found.error)
    elif found.cost > COST_MAX:
        yield forbidden(at, "too complex, exceeds cost limit")


def configuration(path: str, given: Object, stored: bool) -> Iterator[FieldError]:
    """Parameters for a driver, which only it understands."""
    opaque = given.get("opaque")
    if opaque is None:
        yield required(f"{path}.opaque")
        return
    yield from driver(f"{path}.opaque.driver", opaque.get("driver", ""))
    limit = None if stored else PARAMETERS_BYTES_MAX
    yield from raw(f"{path}.opaque.parameters", opaque.get("parameters"), limit)


def raw(path: str, value: Any, bytes_max: int | None) -> Iterator[FieldError]:
    """An object of JSON, of at most so many bytes."""
    if value is None:
        yield required(path)
    elif bytes_max is not None and len(msgspec.json.encode(value)) > bytes_max:
        yield too_long(path, bytes_max)
    elif not isinstance(value, dict):
        yield invalid(path, "<value omitted>", "must be a valid JSON object")


# Taints and conditions


def taint(path: str, given: Object, effect_before: str | None = None) -> Iterator[FieldError]:
    """A taint of a device; an effect that it had before is one for good."""
    yield from label_key(f"{path}.key", given.get("key", ""))
    yield from _label_value(f"{path}.value", given.get("value", ""))
    effect = given.get("effect", "")
    if effect_before is None or effect != effect_before:
        if not effect:
            yield required(f"{path}.effect")
        elif effect not in EFFECTS:
            yield unsupported(f"{path}.effect", effect, EFFECTS)


def toleration(path: str, given: Object) -> Iterator[FieldError]:
    """A toleration of taints of devices."""
    key, value = given.get("key", ""), given.get("value", "")
    operator, effect = given.get("operator", ""), given.get("effect", "")
    if key:
        yield from label_key(f"{path}.key", key)
    if operator == "Exists":
        if value:
            yield invalid(f"{path}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        yield from _label_value(f"{path}.value", value)
    elif operator:
        yield unsupported(f"{path}.operator", operator, OPERATORS)
    else:
        yield required(f"{path}.operator")
    if effect and effect not in EFFECTS:
        yield unsupported(f"{path}.effect", effect, EFFECTS)


def _label_value(path: str, value: str) -> Iterator[FieldError]:
    for fault in names.label_value_faults(value):
        yield invalid(path, value, fault)


def binding_conditions(path: str, given: Object) -> Iterator[FieldError]:
    """Conditions to wait for, and those that end the wait: both or neither, none of them twice."""
    fields = ("bindingConditions", "bindingFailureConditions")
    waits, fails = (given.get(field) or [] for field in fields)
    for field, found in zip(fields, (waits, fails), strict=True):
        yield from check_each(f"{path}.{field}", found, BINDING_CONDITIONS_MAX, label_key)
    for field, found in zip(fields, (waits, fails), strict=True):
        for i, condition in enumerate(found):
            at = f"{path}.{field}[{i}]"
            if condition in found[:i]:
                yield duplicate(at, condition)
            if found is fails and condition in waits:
                text = "bindingFailureConditions must not overlap with bindingConditions"
                yield invalid(at, condition, text)
    for field, found, other_field, other in (
        (fields[0], waits, fields[1], fails),
        (fields[1], fails, fields[0], waits),
    ):
        if other and not found:
            yield invalid(f"{path}.{field}", None, f"{field} are required to use {other_field}")


def conditions(path: str, given: Any) -> Iterator[FieldError]:
    """Conditions in the form that new kinds have. Source: ValidateConditions of meta/v1."""
    seen: set[str] = set()
    for i, condition in enumerate(given or ()):
        at, kind = f"{path}[{i}]", condition.get("type", "")
        if kind in seen:
            yield duplicate(f"{at}.type", kind)
        seen.add(kind)
        yield from label_key(f"{at}.type", kind)
        if (status := condition.get("status", "")) not in STATUSES:
            yield unsupported(f"{at}.status", status, STATUSES)
        if (generation := condition.get("observedGeneration", 0)) < 0:
            text = "must be greater than or equal to zero"
            yield invalid(f"{at}.observedGeneration", generation, text)
        if condition.get("lastTransitionTime") is None:
            yield required(f"{at}.lastTransitionTime")
        yield from _reason(f"{at}.reason", condition.get("reason", ""))
        if byte_count(condition.get("message", "")) > MESSAGE_BYTES_MAX:
            yield too_long(f"{at}.message", MESSAGE_BYTES_MAX)


def _reason(path: str, reason: str) -> Iterator[FieldError]:
    if not reason:
        yield required(path)
        return
    if not _REASON.match(reason):
        yield invalid(path, reason, _REASON_TEXT)
    if byte_count(reason) > REASON_BYTES_MAX:
        yield too_long(path, REASON_BYTES_MAX)
