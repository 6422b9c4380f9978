"""Compares two values of a type by their meaning, for rules about fields that may not change.

An empty value equals an absent one, quantities compare by amount, and free-form JSON by its text.
Source: apimachinery pkg/api/equality (Semantic.DeepEqual), Kubernetes 1.36.
"""

from typing import Any

import msgspec

from stower.api.schema import Type
from stower.model.quantity import quantity_of

_encode = msgspec.json.encode


def same(kind: Type, one: Any, other: Any) -> bool:
    """Whether two cleaned values of the type are the same."""
    if kind.form in ("list", "map"):
        one, other = one or (), other or ()
        if len(one) != len(other):
            return False
        if not one:
            return True
    if one is None or other is None:
        return one is other
    if kind.form == "struct":
        fields = kind.fields
        return all(
            same(fields[name].type, one.get(name), other.get(name)) for name in {*one, *other}
        )
    items = kind.items
    if kind.form == "list" and items is not None:
        return all(same(items, a, b) for a, b in zip(one, other, strict=True))
    if kind.form == "map" and items is not None:
        return all(name in other and same(items, one[name], other[name]) for name in one)
    if kind.form == "any":
        return bool(_encode(one) == _encode(other))
    if kind.go_name == "resource.Quantity" and one != other:
        return quantity_of(one).cmp(quantity_of(other)) == 0
    return bool(one == other)


def same_at(kind: Type, one: Any, other: Any, *path: str) -> bool:
    """The same of one field somewhere below, given by its path; "*" stands for any item."""
    for name in path:
        below = kind.items if name == "*" else kind.fields[name].type
        assert below is not None, "the path has a field that the type does not have"
        kind = below
    return same(kind, one, other)
