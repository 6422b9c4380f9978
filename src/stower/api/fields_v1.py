"""Reads and writes the managers of an object's fields in metadata.managedFields.

Source: structured-merge-diff fieldpath (fieldsV1).
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

Object = dict[str, Any]
Path = tuple[str, ...]
Fields = frozenset[Path]


class Manager(NamedTuple):
    """Whose fields: the name, how they were written, and through which subresource."""

    name: str
    operation: str  # Apply or Update
    api_version: str
    subresource: str = ""


class Entry:
    """The fields of one manager: as paths or as fieldsV1, of which paths are made when needed."""

    __slots__ = ("_fields", "time", "tree")

    def __init__(self, time: str, fields: Fields | None, tree: Object | None = None) -> None:
        """One of `fields` and `tree` must be there."""
        self.time = time
        self.tree = tree
        self._fields = fields

    @property
    def fields(self) -> Fields:
        """Their paths."""
        if self._fields is None:
            self._fields = frozenset(from_tree(self.tree or {}))
        return self._fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and (self.time, self.fields) == (other.time, other.fields)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.tree if self.tree is not None else self._fields)


Managers = dict[Manager, Entry]


def to_tree(fields: Iterable[Path]) -> Object:
    """The set as fieldsV1."""
    tree: Object = {}
    ordered = sorted(fields)
    for i, path in enumerate(ordered):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        # Its children, if any, come right after it.
        if i + 1 < len(ordered) and ordered[i + 1][: len(path)] == path:
            node["."] = {}
    return tree


def from_tree(tree: Object, path: Path = ()) -> Iterator[Path]:
    """The paths of fieldsV1."""
    for element, inner in tree.items():
        if element == ".":
            yield path
        elif not inner:
            yield (*path, element)
        else:
            yield from from_tree(inner, (*path, element))


def union(one: Object, other: Object) -> Object:
    """The fieldsV1 of the paths of both."""
    if not one or not other:
        return one or other
    tree = dict(one)
    for element, inner in other.items():
        known = tree.get(element)
        tree[element] = inner if known is None else _unite(known, inner)
    return tree


def _unite(one: Object, other: Object) -> Object:
    """The same below a path, which itself is among those of an empty tree."""
    if one and other:
        return union(one, other)
    whole = one or other
    return whole if not whole or "." in whole else {".": {}, **whole}


def subtract(one: Object, other: Object) -> Object:
    """The fieldsV1 of the paths of one that are not paths of the other; itself where that is so."""
    tree = one
    for element, inner in other.items():
        if element == "." or element not in one:
            continue
        known = one[element]
        left = _subtract(known, inner)
        if left is not known:
            if tree is one:
                tree = dict(one)
            if left is None:
                del tree[element]
            else:
                tree[element] = left
    return tree


def _subtract(one: Object, other: Object) -> Object | None:
    """The same below a path; None where nothing is left, not even the path itself."""
    itself = (not one or "." in one) and not (not other or "." in other)
    left = subtract(one, other)
    if itself:
        return left if len(left) != 1 or "." not in left else {}
    if "." in left:
        left = {e: v for e, v in left.items() if e != "."}
    return left or None


def is_managed(metadata: Object) -> bool:
    """Whether the object has managers that can be read."""
    return any(
        isinstance(entry.get("fieldsV1"), dict) and entry.get("fieldsType") == "FieldsV1"
        for entry in metadata.get("managedFields") or ()
    )


def read_managers(metadata: Object) -> Managers:
    """The managers of an object; what cannot be read is left out."""
    found: Managers = {}
    for entry in metadata.get("managedFields") or ():
        tree = entry.get("fieldsV1")
        if not isinstance(tree, dict) or entry.get("fieldsType") != "FieldsV1":
            continue
        manager = Manager(
            entry.get("manager", ""),
            entry.get("operation", "Update"),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        found[manager] = Entry(entry.get("time", ""), None, tree)
    return found


def write_managers(managers: Managers) -> list[Object]:
    """The managers as they stand in an object."""
    entries = []
    ordered = sorted(
        managers.items(), key=lambda m: (m[0].operation, m[1].time, m[0].name, m[0].subresource)
    )
    for manager, entry in ordered:
        if not entry:
            continue
        written = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": manager.api_version,
            "time": entry.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_tree(entry.fields) if entry.tree is None else entry.tree,
        }
        if manager.subresource:
            written["subresource"] = manager.subresource
        entries.append(written)
    return entries
