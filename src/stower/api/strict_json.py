"""Finds unknown and repeated fields of JSON texts, in the order in which Go's decoder meets them.

Source: sigs.k8s.io/json (UnmarshalStrict): depth first, a field's own fault before those inside of
it; nothing inside of an unknown field; each fault once, and 100 at most.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import go_quote
from stower.api.schema import Type

FAULTS_MAX: Final = 100


class Pairs(list[tuple[str, Any]]):
    """A JSON object with the keys that it has twice, in the order of the text."""


def read_pairs(body: bytes | str) -> Any:
    """A JSON value whose objects are Pairs; None for what is none."""
    try:
        return json.loads(body, object_pairs_hook=Pairs)
    except (ValueError, RecursionError):
        return None


def strict_faults(value: Any, kind: Type | None) -> list[str]:
    """The faults of a value, whose objects are Pairs or maps.

    `kind`: its type; None: a value of no type, in which keys may only not be repeated.
    """
    if kind is None:
        found = _repeated(value, "")
    else:
        found = _typed(value, kind, "")
    return _first(found)


def record_faults(values: Any, fields: tuple[str, ...]) -> list[str]:
    """The faults of a list of flat records that have these fields, of any value each."""

    def walk() -> Iterator[str]:
        for i, record in enumerate(values if isinstance(values, list) else ()):
            seen: set[str] = set()
            for name, inner in _items(record):
                path = f"[{i}].{name}"
                if name not in fields:
                    yield _unknown(path)
                    continue
                if name in seen:
                    yield _duplicate(path)
                seen.add(name)
                yield from _repeated(inner, path)

    return _first(walk())


def _first(found: Iterator[str]) -> list[str]:
    kept: dict[str, None] = {}
    for text in found:
        kept.setdefault(text)
        if len(kept) >= FAULTS_MAX:
            break
    return list(kept)


def _items(value: Any) -> Any:
    if isinstance(value, Pairs):
        return value
    return value.items() if isinstance(value, dict) else ()


def _unknown(path: str) -> str:
    return f"unknown field {go_quote(path)}"


def _duplicate(path: str) -> str:
    return f"duplicate field {go_quote(path)}"


def _typed(value: Any, kind: Type, path: str) -> Iterator[str]:
    if kind.form == "any":
        if kind.go_name == "interface {}":
            yield from _repeated(value, path)
        return  # others read themselves
    if kind.form == "list":
        if kind.items is not None and isinstance(value, list) and not isinstance(value, Pairs):
            for i, inner in enumerate(value):
                yield from _typed(inner, kind.items, f"{path}[{i}]")
        return
    if kind.form == "scalar":
        return
    seen: set[str] = set()
    for name, inner in _items(value):
        where = f"{path}.{name}" if path else name
        below = kind.items if kind.form == "map" else kind.get_field_type(name)
        if below is None:
            yield _unknown(where)
            continue
        if name in seen:
            yield _duplicate(where)
        seen.add(name)
        yield from _typed(inner, below, where)


def _repeated(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list) and not isinstance(value, Pairs):
        for i, inner in enumerate(value):
            yield from _repeated(inner, f"{path}[{i}]")
        return
    seen: set[str] = set()
    for name, inner in _items(value):
        where = f"{path}.{name}" if path else name
        if name in seen:
            yield _duplicate(where)
        seen.add(name)
        yield from _repeated(inner, where)
