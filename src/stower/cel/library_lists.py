"""The CEL functions of lists, sets, maps and optional values.

Sources: cel-go ext/lists.go (version 3), ext/sets.go, cel/optional types, ext/comprehensions.go;
apiserver pkg/cel/library/lists.go.
"""

from functools import cmp_to_key
from itertools import pairwise
from typing import Any, Final

from stower.cel.library_standard import INDEX_OF, LAST_INDEX_OF, add, is_contained
from stower.cel.library_times import TIME_MIN, Function
from stower.cel.values import (
    NOTHING,
    CelError,
    Duration,
    OptionalValue,
    Timestamp,
    Uint,
    charge,
    compare,
    is_same,
    key_of,
    no_overload,
)

COMPARABLE: Final = frozenset([bool, int, Uint, float, str, bytes, Duration, Timestamp])
INCLUDES_MAX: Final = 48  # ResourceSliceMaxAttributeValuesPerDevice


def lists(function: Function, *others: type) -> Function:
    """Returns a function of a list and of values of these types, with type checks; the last ones
    are optional."""

    def call_checked(target: Any, *args: Any) -> Any:
        if not isinstance(target, list) or len(args) > len(others):
            raise no_overload()
        for arg, other in zip(args, others):
            if type(arg) is not other and not (other is list and isinstance(arg, list)):
                raise no_overload()
        charge(len(target))
        return function(target, *args)

    return call_checked


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if end > len(items):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    flat: list[Any] = []
    for item in items:
        if isinstance(item, list) and depth > 0:
            charge(len(item))
            flat.extend(_flatten(item, depth - 1))
        else:
            flat.append(item)
    return flat


def _range(count: Any) -> list[int]:
    if type(count) is not int:
        raise no_overload()
    charge(max(0, count))
    return list(range(count))


def _distinct(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        charge(len(found))
        if not any(is_same(item, other) for other in found):
            found.append(item)
    return found


def _same_types(items: list[Any]) -> None:
    if any(type(item) is not type(items[0]) for item in items):
        raise CelError("list elements must have the same type")
    if items and type(items[0]) not in COMPARABLE:
        raise CelError("list elements must be comparable")


def _sort(items: list[Any]) -> list[Any]:
    _same_types(items)
    charge(len(items) * 16)
    return sorted(items, key=cmp_to_key(_order))


def _sort_by(items: list[Any], keys: list[Any]) -> list[Any]:
    _same_types(keys)
    charge(len(keys) * 16)
    order = sorted(range(len(items)), key=lambda i: cmp_to_key(_order)(keys[i]))
    return [items[i] for i in order]


def _order(a: Any, b: Any) -> int:
    """Compares two values for sorting; values without an order keep their positions."""
    return _is_greater(a, b) - _is_greater(b, a)


def _is_sorted(items: list[Any]) -> bool:
    if any(type(item) not in COMPARABLE for item in items):
        raise no_overload()
    return not any(_is_greater(a, b) for a, b in pairwise(items))


def _is_greater(a: Any, b: Any) -> bool:
    """Returns whether a is more than b; False if they have no order."""
    try:
        return compare(a, b) > 0
    except CelError:
        return False


def zero(overload: str) -> Any:
    """Returns the start value of an overload of `sum`."""
    return _ZEROS[overload.split("_")[1]]


_ZEROS: Final = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}


def _sum(items: Any, start: Any) -> Any:
    if not isinstance(items, list):
        raise no_overload()
    charge(len(items))
    for item in items:
        start = add(start, item)
    return start


def _extreme(name: str, wanted: int) -> Function:
    def find_extreme(items: list[Any]) -> Any:
        if not items:
            raise CelError(f"{name} called on empty list")
        best = items[0]
        if any(type(item) not in COMPARABLE for item in items):
            raise no_overload()
        for item in items[1:]:
            if _is_greater(item, best) if wanted > 0 else _is_greater(best, item):
                best = item
        return best

    return lists(find_extreme)


def _list_index_of(target: Any, *args: Any) -> int:
    if not isinstance(target, list):
        return int(INDEX_OF(target, *args))
    (wanted,) = args
    charge(len(target))
    return next((i for i, item in enumerate(target) if is_same(item, wanted)), -1)


def _list_last_index_of(target: Any, *args: Any) -> int:
    if not isinstance(target, list):
        return int(LAST_INDEX_OF(target, *args))
    (wanted,) = args
    charge(len(target))
    return next((i for i in reversed(range(len(target))) if is_same(target[i], wanted)), -1)


def _sets_contains(items: list[Any], others: list[Any]) -> bool:
    return all(is_contained(other, items) for other in others)


def _sets_equivalent(items: list[Any], others: list[Any]) -> bool:
    return _sets_contains(items, others) and _sets_contains(others, items)


def _sets_intersects(items: list[Any], others: list[Any]) -> bool:
    return any(is_contained(other, items) for other in others)


def optionals(function: Function) -> Function:
    """Returns a function of an optional value, with a type check."""

    def call_checked(target: Any, *args: Any) -> Any:
        if type(target) is not OptionalValue:
            raise no_overload()
        return function(target, *args)

    return call_checked


def _value(maybe: OptionalValue) -> Any:
    if not maybe.is_some:
        raise CelError("optional.none() dereference")
    return maybe.value


_ZERO: Final = (False, 0, 0.0, "", b"", None, Duration(0), Timestamp(TIME_MIN))


def _of_non_zero(value: Any) -> OptionalValue:
    is_empty = isinstance(value, list | dict) and not value
    if is_empty or any(type(value) in (type(zero), Uint) and value == zero for zero in _ZERO):
        return NOTHING
    return OptionalValue(value)


def _unwrap(items: Any) -> list[Any]:
    if not isinstance(items, list) or any(type(item) is not OptionalValue for item in items):
        raise no_overload()
    return [item.value for item in items if item.is_some]


def _insert(into: Any, *entry: Any) -> dict[Any, Any]:
    added = {key_of(entry[0]): entry[1]} if len(entry) == 2 else entry[0]
    if not isinstance(into, dict) or not isinstance(added, dict):
        raise no_overload()
    charge(len(into) + len(added))
    for key in added:
        if key in into:
            raise CelError(f"insert failed: key {key} already exists")
    return {**into, **added}


def _includes(target: Any, wanted: Any) -> bool:
    if not isinstance(target, list):
        return is_same(target, wanted)
    for item in target[:INCLUDES_MAX]:
        if is_same(item, wanted):
            return True
    if len(target) > INCLUDES_MAX:
        raise CelError(
            f"'includes' function cannot be applied to lists longer than {INCLUDES_MAX} values"
        )
    return False


FUNCTIONS: Final[dict[str, Function]] = {
    "slice": lists(_slice, int, int), "flatten": lists(_flatten, int), "lists.range": _range,
    "reverse": lists(lambda items: items[::-1]), "distinct": lists(_distinct),
    "sort": lists(_sort), "@sortByAssociatedKeys": lists(_sort_by, list),
    "isSorted": lists(_is_sorted), "sum": _sum, "max": _extreme("max", 1),
    "min": _extreme("min", -1), "indexOf": _list_index_of, "lastIndexOf": _list_last_index_of,
    "sets.contains": lists(_sets_contains, list), "sets.equivalent": lists(_sets_equivalent, list),
    "sets.intersects": lists(_sets_intersects, list), "optional.of": OptionalValue,
    "optional.ofNonZeroValue": _of_non_zero, "optional.none": lambda: NOTHING,
    "value": optionals(_value), "hasValue": optionals(lambda maybe: maybe.is_some),
    "first": lists(lambda items: OptionalValue(items[0]) if items else NOTHING),
    "last": lists(lambda items: OptionalValue(items[-1]) if items else NOTHING),
    "optional.unwrap": _unwrap, "unwrapOpt": _unwrap, "cel.@mapInsert": _insert,
    "includes": _includes,
}  # fmt: skip
