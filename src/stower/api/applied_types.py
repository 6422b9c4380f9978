"""Checks an applied configuration against its type, with the messages of structured-merge-diff.

A list that is found by keys, and a set, must not have an item twice. Source:
sigs.k8s.io/structured-merge-diff typed/validate.go, kube-openapi pkg/schemaconv, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import go_quote
from stower.api.go_text import go_syntax, go_text, go_type
from stower.api.schema import Type

Value = Any
Object = dict[str, Any]
_NUMBERS: Final = ("int32", "int64", "float64", "integer", "number")
_TEXTS: Final = ("string", "[]uint8")
_BOOLEANS: Final = ("bool", "boolean")
# A type that takes any form here: its own decoder reads it later.
_READ_LATER: Final = "intstr.IntOrString"
# Defaults of keys that an item leaves out, where these are not the zero values.
_KEY_DEFAULTS: Final = {
    ("v1.ContainerPort", "protocol"): "TCP", ("v1.ServicePort", "protocol"): "TCP",
}  # fmt: skip


class _BadItem(Exception):
    """An item that its list cannot name."""


def keys_of(kind: Type, item: Object) -> Object:
    """The keys of an item of a list that is found by them, with the keys' defaults."""
    found = {}
    for name in kind.map_keys:
        value = item[name] if name in item else _key_default(kind.items, name)
        if name in item or value is not None:
            found[name] = value
    return found


def _key_default(kind: Type | None, name: str) -> Value:
    if kind is None or name not in kind.fields:
        return None
    return _KEY_DEFAULTS.get((kind.go_name, name)) or kind.fields[name].zero()


def typed_faults(kind: Type, config: Object) -> str:
    """What is wrong with the types of a configuration, in one text; "" where nothing is."""
    found = [f"{path}: {text}" for path, text in _faults(kind, config, "")]
    return found[0] if len(found) == 1 else "\n  ".join(["errors:", *found]) if found else ""


def _faults(kind: Type | None, value: Value, path: str) -> Iterator[tuple[str, str]]:
    if value is None or kind is None or kind.items is kind:
        return
    if kind.form in ("struct", "map"):
        yield from _map_faults(kind, value, path)
    elif kind.form == "list":
        yield from _list_faults(kind, value, path)
    elif kind.form == "scalar":
        if text := _scalar_fault(kind.go_name, value):
            yield path, text
    elif kind.go_name == "object" and not isinstance(value, dict):
        yield path, f"expected map, got &{{{go_text(value)}}}"


def _map_faults(kind: Type, value: Value, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield path, f"expected map, got &{{{go_text(value)}}}"
        return
    for name, inner in value.items():
        inner_kind = kind.get_field_type(name)
        if inner_kind is None and kind.form == "struct":
            yield f"{path}.{name}", "field not declared in schema"
            return  # upstream looks no further here
        yield from _faults(inner_kind, inner, f"{path}.{name}")


def _list_faults(kind: Type, value: Value, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, list):
        yield path, f"expected list, got &{{{go_text(value)}}}"
        return
    if kind.list_type == "atomic":
        for i, item in enumerate(value):
            yield from _faults(kind.items, item, f"{path}[{i}]")
        return
    seen: set[str] = set()
    for i, item in enumerate(value):
        try:
            element = _keyed(kind, item) if kind.list_type == "map" else _of_set(item)
        except _BadItem as error:
            yield path, f"element {i}: {error}"
            return  # upstream looks no further here
        if element in seen:
            yield path, f"duplicate entries for key {element}"
        seen.add(element)
        yield from _faults(kind.items, item, f"{path}{element}")


def _keyed(kind: Type, item: Value) -> str:
    """The element of a path that names an item by its keys. Raises _BadItem."""
    if item is None:
        raise _BadItem("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise _BadItem("associative list with keys may not have non-map elements")
    found = keys_of(kind, item)
    if not found:
        names = " ".join(map(go_quote, kind.map_keys))
        raise _BadItem(
            f"associative list with keys has an element that omits all key fields [{names}] (and "
            "doesn't have default values for any key fields)"
        )
    return "[" + ",".join(f"{name}={_shown(value)}" for name, value in sorted(found.items())) + "]"


def _of_set(item: Value) -> str:
    """The element of a path that names a value of a set. Raises _BadItem."""
    if isinstance(item, dict):
        raise _BadItem("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise _BadItem("not supported: associative list with lists as elements")
    if item is None:
        raise _BadItem("associative list without keys has an element that's an explicit null")
    return f"[={_shown(item)}]"


def _shown(value: Value) -> str:
    """A value in a path. Source: value.ToString."""
    if isinstance(value, dict):
        return "".join(f"{name}={_shown(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return "[" + ",".join(map(_shown, value)) + "]"
    return (
        go_quote(value) if isinstance(value, str) else "null" if value is None else go_text(value)
    )


def _scalar_fault(name: str, value: Value) -> str:
    """What is wrong with the type of a value that must be a scalar of the named Go type."""
    is_number = type(value) is int or type(value) is float
    if name in _NUMBERS:
        return "" if is_number else f"expected numeric (int or float), got {go_type(value)}"
    if name in _TEXTS:
        wrong = f"expected string, got &value.valueUnstructured{{Value:{go_syntax(value)}}}"
        return "" if isinstance(value, str) else wrong
    if name in _BOOLEANS:
        return "" if type(value) is bool else f"expected boolean, got &{{{go_text(value)}}}"
    is_scalar = is_number or isinstance(value, str | bool) or name == _READ_LATER
    return "" if is_scalar else f"expected any scalar, got &{{{go_text(value)}}}"
