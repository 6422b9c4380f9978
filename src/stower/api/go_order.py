"""Writes objects as JSON with their fields in the order of Go's structs, for texts that quote them.

The order is that of the messages in the tables, whose fields stand as Go declares them. Answers are
not written so: no client depends on an order there.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from stower.api.schema import Type

Object = dict[str, Any]
Touched = dict[str, Any]  # the keys that a patch has gone through, and below each the same
DEFINITIONS: Final = "io.k8s."  # in front of names of types
_encode = msgspec.json.encode


def touched_by_operations(operations: list[Object]) -> Touched:
    """What the operations of a JSON patch go through."""
    made: Touched = {}
    for operation in operations:
        for field in ("path", "from"):
            path = operation.get(field)
            if not isinstance(path, str):
                continue
            at = made
            for step in path.split("/")[1:-1]:
                at = at.setdefault(step.replace("~1", "/").replace("~0", "~"), {})
    return made


def touched_by_merge(patch: Object) -> Touched:
    """What a merge patch goes through; what it brings is in order all the way down."""
    return {name: touched_by_merge(v) if isinstance(v, dict) else {} for name, v in patch.items()}


class GoOrder:
    """The order of fields of all types that the tables know."""

    def __init__(self, messages: Mapping[str, Any]) -> None:
        self._messages = messages
        self._places: dict[str, dict[str, int]] = {}

    def _places_of(self, kind: Type) -> dict[str, int]:
        """Where each field of a struct stands."""
        found = self._places.get(kind.name)
        if found is None:
            message = "k8s.io." + kind.name.removeprefix(DEFINITIONS).replace("-", "_")
            names = ["kind", "apiVersion", *self._names(message, kind)]
            found = {name: place for place, name in enumerate(names)}
            self._places[kind.name] = found
        return found

    def _names(self, message: str, kind: Type) -> Iterator[str]:
        """The fields of a message, with those of messages that JSON has in place of a field."""
        for name, _, form in self._messages.get(message, ()):
            inner = f"{message.rpartition('.')[0]}.{form}"
            if name in kind.fields or inner not in self._messages:
                yield name
            else:
                yield from self._names(inner, kind)

    def text(self, value: Any, kind: Type | None, touched: Touched, new: list[Any]) -> str:
        """The JSON text of a patched object.

        `touched`: maps that the patch has gone through, whose keys are sorted. `new`: values of the
        patch, which keep the order in which they were sent.
        """
        own = {id(part) for value in new for part in _parts(value)}
        text: str = _encode(self._ordered(value, kind, touched, own)).decode()
        for character in "&<>":  # which Go's encoder keeps out of JSON
            text = text.replace(character, f"\\u{ord(character):04x}")
        return text

    def _ordered(
        self, value: Any, kind: Type | None, touched: Touched | None, own: set[int]
    ) -> Any:
        if id(value) in own:
            return value
        if isinstance(value, list):
            items = kind.items if kind is not None and kind.form == "list" else None
            below = touched or {}
            return [
                self._ordered(item, items, below.get(str(i)), own) for i, item in enumerate(value)
            ]
        if not isinstance(value, dict):
            return value
        is_struct = kind is not None and kind.form == "struct"
        if touched is None and kind is not None and is_struct:
            places = self._places_of(kind)
            names = sorted(value, key=lambda name: (places.get(name, len(places)), name))
        else:
            names = sorted(value)
        made: Object = {}
        for name in names:
            below_kind = kind.get_field_type(name) if kind is not None else None
            made[name] = self._ordered(value[name], below_kind, (touched or {}).get(name), own)
        return made


def _parts(value: Any) -> list[Any]:
    """The value and all maps and lists in it."""
    if isinstance(value, dict):
        return [value, *(part for inner in value.values() for part in _parts(inner))]
    if isinstance(value, list):
        return [value, *(part for inner in value for part in _parts(inner))]
    return []
