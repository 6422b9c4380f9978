"""Maintains managedFields, the fields of each manager, on every write; server-side apply.

A set of fields is a frozenset of paths; a path is a tuple of elements as fieldsV1 writes them:
`f:name` a field, `k:{...}` an item of a list by its keys, `v:...` a value of a set.

Source: KEP-555; sigs.k8s.io/structured-merge-diff, apimachinery pkg/util/managedfields, 1.36.
"""

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from stower.api.applied_types import keys_of
from stower.api.byte_cache import ByteCache, encode
from stower.api.errors import ApiError
from stower.api.fields_v1 import (
    Entry,
    Fields,
    Manager,
    Managers,
    Path,
    from_tree,
    read_managers,
    subtract,
    to_tree,
    union,
    write_managers,
)
from stower.api.schema import Type

Value = Any
Object = dict[str, Any]

MANAGERS_MAX: Final = 10  # of Update entries; the oldest are merged into one, as upstream
_SERVER: Final = ("name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName",
                  "generation", "managedFields", "resourceVersion")  # fmt: skip
IGNORED: Final = frozenset(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{n}") for n in _SERVER)]
)
IGNORED_TREE: Final = to_tree(IGNORED)


# Paths of values


def key_of(kind: Type, item: Value) -> str | None:
    """The element that names an item of a map-like list."""
    if not isinstance(item, dict):
        return None
    if len(kind.map_keys) == 1 and type(value := item.get(kind.map_keys[0])) is str:
        return _text_key(kind.map_keys[0], value)
    found = keys_of(kind, item)
    return "k:" + _compact(found) if found else None


_encode = msgspec.json.Encoder(order="sorted").encode
_known: Final = ByteCache()
_MISSING: Final = object()


@lru_cache(4096)
def _text_key(name: str, value: str) -> str:
    return "k:" + _compact({name: value})


def _compact(value: Value) -> str:
    return _encode(value).decode()


class Repeated(tuple[Value, ...]):
    """All items that a list has with the same keys, or values of a set that are the same: one leaf.

    An applied configuration has none. Source: typed.AllowDuplicates.
    """


def _element(kind: Type, item: Value) -> str | None:
    """What names an item of a list that is not atomic; None: it has no key."""
    return key_of(kind, item) if kind.list_type == "map" else f"v:{_compact(item)}"


def _items(kind: Type, value: list[Value]) -> dict[str, Value]:
    """The items of a list that is not atomic, by their elements."""
    found: dict[str, Value] = {}
    for item in value:
        element = _element(kind, item)
        if element in found:
            known = found[element]
            found[element] = Repeated((*(known if type(known) is Repeated else (known,)), item))
        elif element is not None:
            found[element] = item
    return found


def _is_leaf(kind: Type | None, value: Value) -> bool:
    """Whether the value is managed as a whole."""
    if kind is None or not isinstance(value, dict | list) or not value:
        return True
    if isinstance(value, dict):
        return kind.atomic or kind.form not in ("struct", "map")
    return kind.form != "list" or kind.list_type == "atomic"


def _children(kind: Type, value: Value) -> Iterator[tuple[str, Type | None, Value]]:
    """Element, type and value of everything directly below a value that is no leaf."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"f:{name}", kind.get_field_type(name), inner
    else:
        for element, item in _items(kind, value).items():
            yield element, kind.items, item


def applied_fields(kind: Type | None, value: Value, path: Path = ()) -> Iterator[Path]:
    """The paths that an applied configuration speaks of."""
    if _is_open(kind, value):
        return
    if _is_leaf(kind, value):
        if path:
            yield path
        return
    assert kind is not None
    for element, inner_kind, inner in _children(kind, value):
        below = (*path, element)
        if element[0] != "f" and not (element[0] == "v" and not isinstance(inner, dict)):
            yield below
        yield from applied_fields(inner_kind, inner, below)


class Difference:
    """What changed between two values."""

    __slots__ = ("changed", "removed")

    def __init__(self) -> None:
        self.changed: set[Path] = set()  # added or modified
        self.removed: set[Path] = set()


def compare(kind: Type, old: Object, new: Object) -> Difference:
    """The paths that were added or modified, and those that went."""
    found = Difference()
    changed, removed = _diff(kind, old, new)
    found.changed = set(from_tree(changed)) - IGNORED
    found.removed = set(from_tree(removed)) - IGNORED
    return found


def _diff(kind: Type, old: Object, new: Object) -> tuple[Object, Object]:
    """The trees of what was added or modified, and of what went."""
    changed, removed = _diff_value(kind, old, new)
    return changed or {}, removed or {}


def _diff_value(kind: Type | None, old: Value, new: Value) -> tuple[Object | None, Object | None]:
    """The same of a value; None where nothing was."""
    if old is new or old == new:
        return None, None
    if old is None and isinstance(new, dict | list):
        old = type(new)()
    elif new is None and isinstance(old, dict | list):
        new = type(old)()
    structured = (isinstance(old, dict) and isinstance(new, dict)) or (
        isinstance(old, list) and isinstance(new, list)
    )
    if type(old) is Repeated or type(new) is Repeated:
        gone = {e: fields for e, fields in _whole(kind, old).items() if e != "."}
        return _whole(kind, new), gone or None
    if not structured or kind is None or (_is_leaf(kind, old) and _is_leaf(kind, new)):
        return {}, None
    changed: Object = {}
    removed: Object = {}
    if isinstance(new, dict):
        _compare_maps(kind, old, new, changed, removed)
        return changed or None, removed or None
    before = {} if not old else {e: v for e, _, v in _children(kind, old)}
    after = {e: (k, v) for e, k, v in _children(kind, new)} if new else {}
    for element, (inner_kind, inner) in after.items():
        if element not in before:
            changed[element] = _whole(inner_kind, inner)
            continue
        was = before[element]
        if was is not inner and was != inner:
            more, less = _diff_value(inner_kind, was, inner)
            if more is not None:
                changed[element] = more
            if less is not None:
                removed[element] = less
    for element, inner in before.items():
        if element not in after:
            removed[element] = _whole(kind.items, inner)
    return changed or None, removed or None


def _compare_maps(kind: Type, old: Object, new: Object, changed: Object, removed: Object) -> None:
    """The same of structs and maps, whose elements need no keys made."""
    for name, inner in new.items():
        was = old.get(name, _MISSING)
        if was is inner or was == inner:
            continue
        inner_kind = kind.get_field_type(name)
        if was is _MISSING:
            changed[f"f:{name}"] = _whole(inner_kind, inner)
            continue
        more, less = _diff_value(inner_kind, was, inner)
        if more is not None:
            changed[f"f:{name}"] = more
        if less is not None:
            removed[f"f:{name}"] = less
    for name, inner in old.items():
        if name not in new:
            removed[f"f:{name}"] = _whole(kind.get_field_type(name), inner)


def without_managers(item: Object) -> Object:
    """The object without managedFields; parts are shared."""
    metadata = item.get("metadata") or {}
    if "managedFields" not in metadata:
        return item
    bare = {k: v for k, v in metadata.items() if k != "managedFields"}
    return {**item, "metadata": bare}


def _not_reset(fields: Iterable[Path], reset: tuple[str, ...]) -> Iterator[Path]:
    return (path for path in fields if path[0] not in reset)


# Writes


def create_managers(
    kind: Type,
    bones: Object,
    new: Object,
    manager: Manager,
    now: str,
    reset: tuple[str, ...],
    alike: bool = False,
) -> list[Object]:
    """managedFields of a new object: as `update_managers` from what is there anyway, in one pass.

    `bones`: the parts that every object of the type has; `alike`: see Strategy.
    """
    tree = {}
    for name, value in new.items():
        element = f"f:{name}"
        if element in reset or name in ("kind", "apiVersion"):
            continue
        if name == "metadata":
            value = {k: v for k, v in value.items() if k not in _SERVER}
        inner = kind.get_field_type(name)
        if name == "spec" and alike:
            key = encode((kind.name, value))
            branch = _known.get(key)
            if branch is None:
                branch = _diff_skeleton(inner, bones, name, value)
                _known.put(key, branch)
        else:
            branch = _diff_skeleton(inner, bones, name, value)
        if branch is not None:
            tree[element] = branch
    if not tree:
        return []
    entry = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": tree,
    }
    return [{**entry, "subresource": manager.subresource} if manager.subresource else entry]


def _diff_skeleton(kind: Type | None, bones: Object, name: str, value: Value) -> Object | None:
    """The tree of what is more than the bones; None where nothing is."""
    if name not in bones:
        return _whole(kind, value)
    bone = bones[name]
    if value == bone:
        return None
    if kind is None or not isinstance(value, dict | list) or _is_leaf(kind, value):
        return None if not value and not bone else {}
    if isinstance(value, list) or bone is None:
        return {element: _whole(k, v) for element, k, v in _children(kind, value)} or None
    tree = {}
    for field, inner in value.items():
        found = kind.fields.get(field)
        branch = _diff_skeleton(found.type if found is not None else kind.items, bone, field, inner)
        if branch is not None:
            tree[f"f:{field}"] = branch
    return tree or None


def _whole(kind: Type | None, value: Value) -> Object:
    """The tree of a value that is new as a whole."""
    if kind is None or not value:
        return {}
    if type(value) is dict:
        if kind.atomic:
            return {}
        if kind.form == "struct":
            fields = kind.fields
            tree: Object = {".": {}}
            for name, inner in value.items():
                field = fields.get(name)
                nested = type(inner) is dict or type(inner) is list
                tree[f"f:{name}"] = _whole(field.type, inner) if nested and field else {}
            return tree
        if kind.form == "map":
            return {".": {}, **{f"f:{name}": _whole(kind.items, v) for name, v in value.items()}}
        return {}
    if type(value) is not list or kind.form != "list" or kind.list_type == "atomic":
        return {}
    items = _items(kind, value).items()
    return {".": {}, **{element: _whole(kind.items, item) for element, item in items}}


def update_managers(
    kind: Type,
    old: Object,
    new: Object,
    manager: Manager,
    now: str,
    reset: tuple[str, ...] = (),
) -> list[Object]:
    """managedFields after the manager changed old to new; the old ones where nothing changed.

    `reset`: elements at the top that this write cannot set.
    """
    meta = old.get("metadata") or {}
    changed, removed = _diff(kind, without_managers(old), without_managers(new))
    for tree in (changed, removed):
        for element in reset:
            tree.pop(element, None)
    changed, removed = subtract(changed, IGNORED_TREE), subtract(removed, IGNORED_TREE)
    if not changed and not removed:
        return meta.get("managedFields") or []
    managers = read_managers(meta)
    # One manager has one Update entry for each subresource, whatever the version.
    mine = next((m for m in managers if _same_manager(m, manager)), manager)
    own = managers.pop(mine, Entry(now, frozenset(), {}))
    gone = union(changed, removed)
    result: Managers = {}
    for other, entry in managers.items():
        left = subtract(entry.tree or {}, gone)
        result[other] = entry if left is entry.tree else Entry(entry.time, None, left)
    fields = subtract(union(own.tree or {}, changed), removed)
    same = not changed and fields == own.tree
    result[manager] = Entry(own.time if same else now, None, fields)
    return write_managers(_capped(result))


def _same_manager(one: Manager, other: Manager) -> bool:
    return one._replace(api_version="") == other._replace(api_version="")


def _capped(managers: Managers) -> Managers:
    """At most MANAGERS_MAX Update entries: the oldest become one. Source: capManagersManager."""
    updates = sorted(
        (m for m in managers if m.operation == "Update" and managers[m]),
        key=lambda m: managers[m].time,
    )
    if len(updates) <= MANAGERS_MAX:
        return managers
    merged = updates[: len(updates) - MANAGERS_MAX + 1]
    fields = frozenset().union(*(managers[m].fields for m in merged))
    time = managers[merged[-1]].time
    kept = {m: e for m, e in managers.items() if m not in merged}
    kept[Manager("ancient-changes", "Update", merged[-1].api_version)] = Entry(time, fields)
    return kept


def apply(
    kind: Type,
    live: Object,
    config: Object,
    manager: Manager,
    force: bool,
    reset: tuple[str, ...],
    allowed: Fields = frozenset(),
) -> tuple[Object, Managers]:
    """The live object with a configuration applied, and who manages what then.

    `allowed`: fields that may be taken from others, if no others are in conflict. Times are the
    old ones, empty for the manager itself. Raises ApiError 409 for conflicts.
    """
    managers = read_managers(live.get("metadata") or {})
    last = managers.pop(manager, Entry("", frozenset())).fields
    last |= frozenset().union(
        *(managers.pop(m).fields for m in list(managers) if _same_manager(m, manager))
    )
    bare = without_managers(live)
    wanted = frozenset(_not_reset(applied_fields(kind, config), reset)) - IGNORED
    merged = merged_value(kind, bare, config)
    changed = compare(kind, bare, merged).changed
    conflicts = {
        other: entry.fields & changed & _closure(wanted, changed)
        for other, entry in managers.items()
    }
    conflicts = {other: fields for other, fields in conflicts.items() if fields}
    if conflicts and not force:
        left = {other: fields - allowed for other, fields in conflicts.items()}
        left = {other: fields for other, fields in left.items() if fields}
        if left:
            raise conflict_error(left)
    for other, fields in conflicts.items():
        managers[other] = Entry(managers[other].time, managers[other].fields - fields)
    others: frozenset[Path] = frozenset().union(*(entry.fields for entry in managers.values()))
    merged = remove_fields(kind, merged, last - wanted - others, wanted | others)
    gone = compare(kind, bare, merged).removed
    for other, entry in managers.items():
        managers[other] = Entry(entry.time, entry.fields - gone)
    managers[manager] = Entry("", wanted)
    return merged, managers


def _closure(wanted: Fields, changed: set[Path]) -> frozenset[Path]:
    """Changed paths that the configuration speaks of."""
    return frozenset(p for p in changed if p in wanted)


def conflict_error(conflicts: dict[Manager, frozenset[Path]]) -> ApiError:
    """The refusal that names managers and fields."""
    causes = []
    texts = []
    alone = sum(map(len, conflicts.values())) == 1
    for manager in sorted(conflicts, key=lambda m: (m.name, m.operation, m.subresource)):
        fields = [shown_path(path) for path in sorted(conflicts[manager], key=_set_order)]
        name = _shown_manager(manager)
        causes += [
            {"reason": "FieldManagerConflict", "message": f"conflict with {name}", "field": field}
            for field in fields
        ]
        if alone:
            texts.append(f"conflict with {name}: {fields[0]}")
        else:
            texts.append(f"conflicts with {name}:\n" + "\n".join(f"- {f}" for f in fields))
    count = "1 conflict" if alone else f"{len(causes)} conflicts"
    text = f"Apply failed with {count}: " + "\n".join(texts)
    return ApiError(409, "Conflict", text, {"causes": causes})


def _shown_manager(manager: Manager) -> str:
    name = json.dumps(manager.name, ensure_ascii=False)
    if manager.subresource:
        name += f' with subresource "{manager.subresource}"'
    if manager.operation != "Update":
        return name
    return f"{name} using {manager.api_version}"


_ELEMENTS: Final = "fkvi"  # names, keys, values, indices: in this order in a set


def _set_order(path: Path) -> list[tuple[bool, int, str]]:
    """The place of a path in a set of them: fields of a level come before what is below others."""
    last = len(path) - 1
    return [(i < last, _ELEMENTS.find(part[0]), part) for i, part in enumerate(path)]


def shown_path(path: Path) -> str:
    """The path as people write it."""
    text = ""
    for element in path:
        if element.startswith("f:"):
            text += f".{element[2:]}"
        elif element.startswith("k:"):
            keys = json.loads(element[2:])
            text += "[" + ",".join(f"{k}={_compact(v)}" for k, v in sorted(keys.items())) + "]"
        elif element.startswith("i:"):
            text += f"[{element[2:]}]"
        else:
            text += f"[={element[2:]}]"
    return text


def _is_open(kind: Type | None, value: Value) -> bool:
    """An empty list that says nothing of the items of others."""
    return value == [] and kind is not None and kind.form == "list" and kind.list_type in (
        "set", "map",
    )  # fmt: skip


def merged_value(kind: Type | None, old: Value, new: Value) -> Value:
    """The old value with an applied one laid over it."""
    if _is_open(kind, new) and isinstance(old, list) and old:
        return old
    if kind is None or (_is_leaf(kind, new) and not (new == {} and isinstance(old, dict))):
        return new
    if isinstance(new, dict):
        if not isinstance(old, dict) or kind.atomic:
            old = {}
        result = dict(old)
        for name, inner in new.items():
            field = kind.fields.get(name) if kind.form == "struct" else None
            inner_kind = field.type if field else kind.items
            if inner is None:
                continue
            result[name] = merged_value(inner_kind, old.get(name), inner)
        return result
    old = old if isinstance(old, list) else []
    before, after = _items(kind, old), _items(kind, new)
    met: set[str] = set()
    items = []
    for item in old:
        element = _element(kind, item)
        if element is None or element not in after:
            items.append(item)
        elif element not in met:  # the first of those that are repeated stands for all
            met.add(element)
            items.append(merged_value(kind.items, before[element], after[element]))
    fresh = [item for element, item in after.items() if element not in met]
    return items + [merged_value(kind.items, None, item) for item in fresh]


def remove_fields(kind: Type, value: Value, paths: frozenset[Path], kept: frozenset[Path]) -> Value:
    """The value without the fields that nobody manages any more."""
    prefixes = {path[:n] for path in kept for n in range(1, len(path) + 1)}
    # A field's name stays while somebody manages what is below it; an item of a list, or an entry
    # of a map, only while somebody manages it itself.
    doomed = {p for p in paths if p not in (prefixes if p[-1][0] == "f" else kept)}
    for path in paths:
        # A struct that was there only for what goes goes too, with what was defaulted in it.
        for n in range(2, len(path)):
            above = path[:n]
            if above[-1][0] == "f" and above not in prefixes and above not in IGNORED:
                doomed.add(above)
    return _remove_field(kind, value, (), frozenset(doomed)) if doomed else value


def _remove_field(kind: Type | None, value: Value, path: Path, doomed: frozenset[Path]) -> Value:
    if kind is None or _is_leaf(kind, value):
        return value
    touched = False
    if isinstance(value, dict):
        result = {}
        for element, inner_kind, inner in _children(kind, value):
            below = (*path, element)
            if below in doomed:
                touched = True
                continue
            left = _remove_field(inner_kind, inner, below, doomed)
            touched |= left is not inner
            if left != {} or inner == {}:
                result[element[2:]] = left
        return result if touched else value
    items = []
    known = _items(kind, value)
    for item in value:
        name = _element(kind, item)
        if name is None:
            items.append(item)
            continue
        below = (*path, name)
        if below in doomed:
            touched = True
            continue
        is_one = type(known[name]) is not Repeated
        left = _remove_field(kind.items, item, below, doomed) if is_one else item
        touched |= left is not item
        items.append(left)
    return items if touched else value
