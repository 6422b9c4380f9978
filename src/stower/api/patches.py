"""Applies patches to JSON values: JSON patch, JSON merge patch, strategic merge patch.

Source: RFC 6902, RFC 7386; apimachinery pkg/util/strategicpatch, Kubernetes 1.36. Values are never
changed in place; results may share parts with the values from which they were made.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from stower.api.go_text import MAP, go_text, go_type
from stower.api.schema import Field, Type
from stower.model.integers import parse_decimal

Value = Any
Object = dict[str, Any]
OPERATIONS_MAX: Final = 10_000  # of one JSON patch, as upstream
COPIED_BYTES_MAX: Final = 3 * 1024 * 1024  # by one JSON patch, as upstream
GONE: Final = object()
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode

DIRECTIVE: Final = "$patch"
DELETE_PRIMITIVE: Final = "$deleteFromPrimitiveList/"
ORDER: Final = "$setElementOrder/"
RETAIN_KEYS: Final = "$retainKeys"
_MAPS: Final = {dict}  # types of the items of a list
_STRINGS: Final = {str}


class PatchError(Exception):
    """The patch cannot be applied to this object: 422."""


class CopyLimitError(Exception):
    """The copies of a JSON patch are too big: 413."""


class BadPatchError(Exception):
    """The patch makes no sense in itself; upstream has a code for each way."""

    def __init__(self, message: str, code: int = 500) -> None:
        super().__init__(message)
        self.code = code


def merge(original: Value, patch: Value) -> Value:
    """The original with a JSON merge patch applied: null removes."""
    if not isinstance(patch, dict):
        return patch
    result = dict(original) if isinstance(original, dict) else {}
    for name, change in patch.items():
        if change is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), change)
    return result


# JSON patch


def json_patch(original: Value, operations: Value) -> Value:
    """The original with all operations of a JSON patch applied, or PatchError and none.

    Raises CopyLimitError: a few operations could double the object each.
    """
    result = original
    copied = 0
    for operation in operations:
        if operation.get("op") == "copy":
            copied += len(_encode(_found(result, _steps(operation.get("from", "")))))
            if copied > COPIED_BYTES_MAX:
                raise CopyLimitError(
                    f"Unable to copy, the accumulated size increase of copy is {copied}, "
                    f"exceeding the limit {COPIED_BYTES_MAX}"
                )
        result = _apply(result, operation)
    return result


def _apply(value: Value, operation: Object) -> Value:
    kind = operation.get("op")
    steps = _steps(operation.get("path"))
    new = operation.get("value")
    if kind == "replace":
        # Of an object, one that has no such key too: as the library that API servers use
        # (evanphx/json-patch v4).
        if not steps and not isinstance(new, dict | list):
            raise PatchError("replace operation value must be object or array")
        return _set_at(value, steps, new, insert=False)
    if kind == "test":
        if not _same(_found(value, steps) if steps else value, new):
            raise PatchError(f"testing value {operation['path']} failed")
        return value
    if not steps:
        raise PatchError(f"{kind} operation does not apply: doc is missing path")
    if kind == "add":
        return _set_at(value, steps, new, insert=True)
    if kind == "remove":
        return _remove_at(value, steps)
    if kind in ("move", "copy"):
        origin = _steps(operation.get("from", ""))
        new = _found(value, origin)
        if kind == "move":
            value = _remove_at(value, origin)
        return _set_at(value, steps, new, insert=True)
    raise PatchError(f"unexpected kind: {kind}")


def _same(one: Value, other: Value) -> bool:
    """Equal as JSON: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(v, other[k]) for k, v in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _steps(path: Value) -> list[str]:
    if not isinstance(path, str):
        raise PatchError("missing path")
    if path and "/" not in path:
        raise PatchError(f"invalid path: {path}")
    return [s.replace("~1", "/").replace("~0", "~") for s in path.split("/")[1:]]


def _index(step: str, length: int) -> int:
    number = parse_decimal(step.removeprefix("-"))
    if number is None:
        raise PatchError(f"invalid index: {step}")
    index = length - number if step.startswith("-") else number
    if not 0 <= index < length:
        raise PatchError(f"index out of bounds: {step}")
    return index


def _at(value: Value, steps: list[str]) -> Value:
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list):
            value = value[_index(step, len(value))]
        else:
            raise PatchError(f"no value at {step}")
    return value


def _found(value: Value, steps: list[str]) -> Value:
    """What is at a place, or null for a key that an object has not. Raises PatchError."""
    if not steps:
        raise PatchError("doc is missing path")
    parent = _at(value, steps[:-1])
    return parent.get(steps[-1]) if isinstance(parent, dict) else _at(parent, steps[-1:])


def _set_at(value: Value, steps: list[str], new: Value, insert: bool) -> Value:
    if not steps:
        return new
    step, *rest = steps
    if isinstance(value, dict):
        if rest and step not in value:
            raise PatchError(f"no value at {step}")
        return {**value, step: _set_at(value.get(step), rest, new, insert)}
    if not isinstance(value, list):
        raise PatchError(f"no value at {step}")
    result = list(value)
    if rest or not insert:
        index = _index(step, len(value))
        result[index] = _set_at(value[index], rest, new, insert)
    elif step == "-":
        result.append(new)
    else:
        result.insert(_index(step, len(value) + 1), new)
    return result


def _remove_at(value: Value, steps: list[str]) -> Value:
    if not steps:
        raise PatchError("cannot remove the whole object")
    step, *rest = steps
    if isinstance(value, dict) and step in value:
        result = dict(value)
        if rest:
            result[step] = _remove_at(value[step], rest)
        else:
            del result[step]
        return result
    if isinstance(value, list):
        index = _index(step, len(value))
        if rest:
            return [*value[:index], _remove_at(value[index], rest), *value[index + 1 :]]
        return [*value[:index], *value[index + 1 :]]
    raise PatchError(f"no value at {step}")


# Strategic merge patch


def strategic(original: Value, patch: Value, kind: Type | None) -> Value:
    """The original with a strategic merge patch applied, lists merged as the type says."""
    if not isinstance(patch, dict):
        raise BadPatchError("invalid JSON document", 400)
    return _strategic_map(original if isinstance(original, dict) else {}, patch, kind)


def _strategic_map(original: Object, patch: Object, kind: Type | None) -> Object:
    result = dict(original)
    for name, change in patch.items():
        if name[:1] == "$":
            return _directed_map(original, patch, kind)
        if change is None:
            result.pop(name, None)
        elif type(change) is not dict and type(change) is not list:
            result[name] = change
        elif type(result.get(name)) is type(change):
            field, inner = _get_field(kind, name)
            result[name] = _strategic_value(result[name], change, field, inner, None)
        else:
            _put_new(result, name, change)
    return result


def _put_new(result: Object, name: str, change: Value) -> None:
    """What takes the place of nothing, or of a value of another type; it may say that it is not."""
    made = _new_value(change)
    if made is GONE:
        result.pop(name, None)
    else:
        result[name] = made


def _new_value(change: Value) -> Value:
    """A value of a patch without nulls and without maps that have a directive, or GONE."""
    if isinstance(change, dict):
        if DIRECTIVE in change:
            return GONE
        kept = {k: _new_value(v) for k, v in change.items() if v is not None}
        return {k: v for k, v in kept.items() if v is not GONE}
    if isinstance(change, list):
        return [v for v in map(_new_value, change) if v is not GONE]
    return change


def _directed_map(original: Object, patch: Object, kind: Type | None) -> Object:
    """The same of a patch that says how."""
    directive = patch.get(DIRECTIVE)
    if directive == "replace":
        replaced: Object = _clean({k: v for k, v in patch.items() if k != DIRECTIVE})
        return replaced
    if directive == "delete":
        return {}
    if DIRECTIVE in patch:
        raise BadPatchError(f"unknown patch type: {go_text(directive)} in map: {go_text(patch)}")
    result = dict(original)
    if (keys := patch.get(RETAIN_KEYS)) is not None:
        if not isinstance(keys, list):
            raise BadPatchError("invalid patch format of retainKeys", 400)
        if any(n not in keys and v is not None and not _is_directive(n) for n, v in patch.items()):
            raise BadPatchError("invalid patch format of retainKeys", 400)
        for name in [n for n in result if n not in keys]:
            del result[name]
    for name, change in patch.items():
        if name in (DIRECTIVE, RETAIN_KEYS) or name.startswith(ORDER):
            continue
        if name.startswith(DELETE_PRIMITIVE):
            target = name.removeprefix(DELETE_PRIMITIVE)
            if not isinstance(change, list):
                raise BadPatchError("invalid patch format of primitive list", 400)
            if isinstance(result.get(target), list):
                gone = set(map(_token, change))
                result[target] = [v for v in result[target] if _token(v) not in gone]
        elif change is None:
            result.pop(name, None)
        elif type(result.get(name)) is not type(change) and ORDER + name not in patch:
            _put_new(result, name, change)
        else:
            field, inner = _get_field(kind, name)
            order = _order_of(patch, name)
            if order is not None:
                _check_order(change, order, field.merge_key if field else "")
            result[name] = _strategic_value(result.get(name), change, field, inner, order)
    for name in patch:
        if not name.startswith(ORDER):
            continue
        target = name.removeprefix(ORDER)
        order = _order_of(patch, target)
        if target not in patch and isinstance(result.get(target), list):
            field, _ = _get_field(kind, target)
            key = field.merge_key if field else ""
            items = result[target]
            result[target] = _ordered(items, [], items, order, key)
    return result


def _order_of(patch: Object, name: str) -> list[Value] | None:
    order = patch.get(ORDER + name)
    if order is not None and not isinstance(order, list):
        raise BadPatchError("invalid patch format of setElementOrder list", 400)
    return order


def _check_order(change: Value, order: list[Value], key: str) -> None:
    """The items of a patch stand in the order that the patch names. Raises BadPatchError."""
    if not isinstance(change, list) or not change or not order:
        return
    left = deque(v for v in change if not (isinstance(v, dict) and DIRECTIVE in v))
    for place in order:
        if left and _merge_value(left[0], key) == _merge_value(place, key):
            left.popleft()
    if left:
        raise BadPatchError(
            f"The order in patch list:\n{go_text(change)}\n doesn't match $setElementOrder list:\n"
            f"{go_text(order)}\n"
        )


def _merge_value(item: Value, key: str) -> str | bytes:
    """What an item is known by in its list. Raises BadPatchError."""
    if not key:
        return _token(item)
    if not isinstance(item, dict):
        raise BadPatchError(f"expected a {MAP}, but received a {go_type(item)}")
    if key not in item:
        raise BadPatchError(f"map: {go_text(item)} does not contain declared merge key: {key}")
    return _token(item[key])


def _get_field(kind: Type | None, name: str) -> tuple[Field | None, Type | None]:
    if kind is None:
        return None, None
    if kind.form == "struct":
        field = kind.fields.get(name)
        return field, field.type if field else None
    return None, kind.items if kind.form == "map" else None


def _strategic_value(
    old: Value, change: Value, field: Field | None, kind: Type | None, order: Value
) -> Value:
    if isinstance(change, dict):
        if kind is not None and kind.form == "any":
            return merge(old, change)
        if field is not None and "replace" in field.strategy:
            return _clean(change)
        return _strategic_map(old if isinstance(old, dict) else {}, change, kind)
    if isinstance(change, list):
        if field is None or "merge" not in field.strategy:
            return _clean(change)
        items = kind.items if kind is not None else None
        old = old if isinstance(old, list) else []
        if field.merge_key:
            return _merge_items(old, change, field.merge_key, items, order)
        _check_types(old, change)
        merged = _unique([*old, *change])
        return _ordered(merged, change, old, order, "")
    return change


def _unique(values: list[Value]) -> list[Value]:
    first: dict[str | bytes, Value] = {}
    for value in values:
        first.setdefault(_token(value), value)
    return list(first.values())


def _token(value: Value) -> str | bytes:
    """What is equal for equal values alone, and can be a key."""
    return value if isinstance(value, str) else _encode_sorted(value)


def _check_types(old: list[Value], change: list[Value]) -> None:
    """The items of both lists are of one type, which is not a list. Raises BadPatchError."""
    if {*map(type, old), *map(type, change)} in (_MAPS, _STRINGS):
        return
    types = [go_type(item) for item in (*old, *change)]
    if types and types[0] == go_type([]):
        raise BadPatchError("lists of lists are not supported", 422)
    if any(t != types[0] for t in types):
        raise BadPatchError(f"list element types are not identical: {go_text([old, change])}")


def _merge_items(
    old: list[Value], change: list[Value], key: str, kind: Type | None, order: Value
) -> list[Value]:
    _check_types(old, change)
    if change and not isinstance(change[0], dict):
        raise BadPatchError(f"expected a {MAP}, but received a {go_type(change[0])}")
    if any(item.get(DIRECTIVE) == "replace" for item in change):
        return [_clean(item) for item in change if item.get(DIRECTIVE) != "replace"]
    places: dict[str | bytes, list[int]] = {}
    result: list[Value] = list(old)  # what is deleted becomes GONE
    for i, item in enumerate(old):
        if isinstance(item, dict):
            places.setdefault(_token(item.get(key)), []).append(i)
    for item in change:
        if key not in item:
            raise BadPatchError(f"map: {go_text(item)} does not contain declared merge key: {key}")
        token = _token(item[key])
        if DIRECTIVE in item and item[DIRECTIVE] != "delete":
            text = "merging lists cannot yet be specified in the patch"
            if item[DIRECTIVE] != "merge":
                text = f"unknown patch type: {go_text(item[DIRECTIVE])} in map: {go_text(item)}"
            raise BadPatchError(text)
        if DIRECTIVE in item:
            for i in places.pop(token, ()):
                result[i] = GONE
        elif token in places:
            i = places[token][0]
            result[i] = _strategic_map(result[i], item, kind)
        else:
            places[token] = [len(result)]
            if any(type(v) in (dict, list) or k[:1] == "$" for k, v in item.items()):
                result.append(_clean(_strategic_map({}, item, kind)))
            else:
                result.append({k: v for k, v in item.items() if v is not None})
    kept = [item for item in change if DIRECTIVE not in item]
    return _ordered([v for v in result if v is not GONE], kept, old, order, key)


def _ordered(
    items: list[Value],
    patch: list[Value],
    original: list[Value],
    order: list[Value] | None,
    key: str,
) -> list[Value]:
    """What the order (or else the patch) names as it is named there, the rest as it was.

    An item that the server alone knows comes before one of the patch only where it already did.
    Source: normalizeElementOrder, mergeSortedSlice.
    """
    if not original and order is None:
        return items  # all are the patch's own, and in its order

    named = _places(patch if order is None else order, key)
    before = _places(original, key)
    known = list(zip(_tokens(items, key), items, strict=True))
    right = deque(sorted((t for t in known if t[0] in named), key=lambda t: named[t[0]]))
    result: list[Value] = []
    for token, item in known:
        if token in named:
            continue
        place = before.get(token, -1)
        while right and not 0 <= place < before.get(right[0][0], -1):
            result.append(right.popleft()[1])
        result.append(item)
    result += [item for _, item in right]
    return result


def _tokens(items: list[Value], key: str) -> list[str | bytes]:
    """What each item of a list is known by."""
    return [_token(v.get(key) if key and type(v) is dict else v) for v in items]


def _places(items: list[Value], key: str) -> dict[str | bytes, int]:
    """Where the first item of each name is."""
    found: dict[str | bytes, int] = {}
    for i, token in enumerate(_tokens(items, key)):
        found.setdefault(token, i)
    return found


def _clean(value: Value) -> Value:
    """The value without directives and nulls."""
    if isinstance(value, dict):
        return {k: _clean(v) for k, v in value.items() if v is not None and not _is_directive(k)}
    if isinstance(value, list):
        return [_clean(v) for v in _drop_directives(value)]
    return value


def _is_directive(name: str) -> bool:
    return name in (DIRECTIVE, RETAIN_KEYS) or name.startswith((DELETE_PRIMITIVE, ORDER))


def _drop_directives(values: Iterable[Value]) -> list[Value]:
    return [v for v in values if not (isinstance(v, dict) and DIRECTIVE in v and len(v) == 1)]
