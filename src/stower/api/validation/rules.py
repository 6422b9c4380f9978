"""Validates parts that several kinds share: names, numbers, label selectors."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from stower.api.errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    NOT_FOUND,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    FieldError,
    unsupported,
)
from stower.model import names
from stower.model.integers import parse_decimal

Object = dict[str, Any]
Faults = list[FieldError]
INT32_MAX: Final = 2**31 - 1
NOT_NEGATIVE: Final = "must be greater than or equal to 0"
POSITIVE: Final = "must be greater than zero"
IMMUTABLE: Final = "field is immutable"
WHOLE: Final = "[]"  # upstream's path of what concerns the object as a whole
BAD_OPERATOR: Final = "not a valid selector operator"
PERCENT: Final = re.compile(r"[0-9]+%\Z")
PERCENT_TEXT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)


class Allowed(NamedTuple):
    """What rules for pods let pass: what the pod had before its change, wrong as it is.

    Source: GetValidationOptionsFromPodSpecAndMeta in pkg/api/pod, Kubernetes 1.36. `of_template`:
    the spec is a template's, and what a pod needs may still be filled in.
    """

    of_template: bool = False
    comparisons: bool = False  # tolerations with Lt and Gt, whose gate is off
    deletion_cost: bool = False
    huge_pages: bool = False  # parts of a page
    node_values: bool = False  # values of required node affinity that are no labels
    restarting: bool = False  # resize policies of init containers that are no sidecars
    selector_values: bool = False  # values of selectors of pod affinity that are no labels
    spread_keys: bool = False  # matchLabelKeys that the selector has too
    spread_selectors: bool = False
    selinux_policies: bool = False
    sysctls: bool = False  # of namespaces that the pod shares with its host
    token_paths: bool = False
    user_namespace_devices: bool = False


NONE_ALLOWED: Final = Allowed()


def required(path: str, detail: str = "") -> FieldError:
    """Something is missing."""
    return FieldError(REQUIRED, path, "", detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """The value is wrong."""
    return FieldError(INVALID, path, value, detail)


def forbidden(path: str, detail: str) -> FieldError:
    """Something may not be there, or not change."""
    return FieldError(FORBIDDEN, path, None, detail)


def duplicate(path: str, value: Any) -> FieldError:
    """The value is there already."""
    return FieldError(DUPLICATE, path, value)


def missing(path: str, value: Any, detail: str = "") -> FieldError:
    """What the value refers to is not there."""
    return FieldError(NOT_FOUND, path, value, detail)


def too_long(path: str, limit: int) -> FieldError:
    """The text has more bytes than it may."""
    return FieldError(TOO_LONG, path, None, f"may not be more than {limit} bytes")


def too_many(path: str, count: int, limit: int) -> FieldError:
    """The list or map has more items than it may."""
    return FieldError(TOO_MANY, path, count, f"must have at most {limit} items")


def byte_count(text: str) -> int:
    """The length of a text as limits count it."""
    return len(text.encode("utf-8", "surrogatepass"))


def named(path: str, value: str, faults: Callable[[str], Iterable[str]]) -> Faults:
    """A name must be well-formed."""
    return [invalid(path, value, fault) for fault in faults(value)]


def label_key(path: str, key: str) -> Faults:
    """A key of a label, or anything of that form."""
    return [invalid(path, key, fault) for fault in names.qualified_name_faults(key)]


def one_of(path: str, value: Any, supported: tuple[str, ...]) -> Faults:
    """A word out of a few; none at all is a fault of its own."""
    if not value:
        return [required(path)]
    return [] if value in supported else [unsupported(path, value, supported)]


def not_negative(path: str, value: int | None) -> Faults:
    """A number of at least zero, if there is one."""
    return [invalid(path, value, NOT_NEGATIVE)] if value is not None and value < 0 else []


def port(path: str, value: Any) -> Faults:
    """A port by number or name."""
    if isinstance(value, int):
        return [invalid(path, value, fault) for fault in names.port_number_faults(value)]
    return [invalid(path, value, fault) for fault in names.port_name_faults(value or "")]


def labels(path: str, given: Object | None) -> Faults:
    """Keys and values of labels."""
    faults: Faults = []
    for key, value in sorted((given or {}).items()):
        faults += label_key(path, key)
        faults += [invalid(path, value, f) for f in names.label_value_faults(value)]
    return faults


def label_selector(
    path: str, selector: Object | None, any_value: bool = False
) -> Iterator[FieldError]:
    """A LabelSelector. `any_value`: values that no label can have are no faults."""
    if selector is None:
        return
    yield from labels(f"{path}.matchLabels", selector.get("matchLabels"))
    for i, term in enumerate(selector.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{i}]"
        values = term.get("values") or ()
        operator = term.get("operator", "")
        if operator in ("In", "NotIn"):
            if not values:
                text = "must be specified when `operator` is 'In' or 'NotIn'"
                yield required(f"{at}.values", text)
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden(f"{at}.values", text)
        else:
            yield invalid(f"{at}.operator", operator, BAD_OPERATOR)
        yield from label_key(f"{at}.key", term.get("key", ""))
        if any_value:
            continue
        for j, value in enumerate(values):
            for fault in names.label_value_faults(value):
                yield invalid(f"{at}.values[{j}]", value, fault)


def count_or_percent(path: str, value: Any) -> Faults:
    """A number of at least zero, or a percentage. Source: ValidatePositiveIntOrPercent."""
    if isinstance(value, int):
        return not_negative(path, value)
    return [] if PERCENT.match(value) else [invalid(path, value, PERCENT_TEXT)]


def at_most_100_percent(path: str, value: Any) -> Faults:
    """A percentage is at most a hundred. Source: IsNotMoreThan100Percent."""
    if isinstance(value, int) or not PERCENT.match(value):
        return []
    share = parse_decimal(value[:-1])
    over = share is None or share > 100
    return [invalid(path, value, "must not be greater than 100%")] if over else []
