"""Types of CEL as the checker sees them: how they are written, and what may stand for what.

Source: cel-go common/types/types.go, checker/types.go, checker/format.go.
"""

import re
from typing import Final, NamedTuple


class Type(NamedTuple):
    """A type and its parameters. A single capital letter is a parameter of a declaration; with a
    number after it, a fresh one that the checker found a use of.
    """

    name: str
    params: tuple["Type", ...] = ()

    def __str__(self) -> str:
        """As error messages of the checker write it."""
        name = _SHOWN.get(self.name, self.name)
        return f"{name}({', '.join(map(str, self.params))})" if self.params else name

    @property
    def declared(self) -> str:
        """As messages about the result of an expression write it."""
        if self.params:
            return f"{self.name}({', '.join(param.declared for param in self.params)})"
        return _DECLARED.get(self.name, self.name)

    @property
    def runtime(self) -> str:
        """As the name of the type as a value."""
        return "google.protobuf.Any" if self == ANY else _DECLARED.get(self.name, self.name)

    @property
    def is_param(self) -> bool:
        return self.name[0] in "ABKNTV" and (len(self.name) == 1 or self.name[1] == "#")


_SHOWN: Final = {"error": "!error!", "optional": "optional_type"}
_DECLARED: Final = {
    "null": "null_type",
    "optional": "optional_type",
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
    "error": "*error*",
}

BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null")
DYN: Final = Type("dyn")
ANY: Final = Type("any")
ERROR: Final = Type("error")
DURATION: Final = Type("duration")
TIMESTAMP: Final = Type("timestamp")
QUANTITY: Final = Type("kubernetes.Quantity")
DEVICE: Final = Type("kubernetes.DRADevice")

_TYPE_PART: Final = re.compile(r"\s*([A-Za-z_.]+|[(),])")


def list_of(item: Type) -> Type:
    """list(item)."""
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    """map(key, value)."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """optional_type(value)."""
    return Type("optional", (value,))


def parse_type(text: str) -> Type:
    """A type as the tables of declarations write it: `map(string, list(A))`."""
    parts = _TYPE_PART.findall(text)

    def read(at: int) -> tuple[Type, int]:
        name = parts[at]
        at += 1
        params: list[Type] = []
        if at < len(parts) and parts[at] == "(":
            while parts[at] != ")":
                param, at = read(at + 1)
                params.append(param)
            at += 1
        return Type(name, tuple(params)), at

    return read(0)[0]


# Types whose values may be null (opaque and message types, and what wraps a value).
_PRIMITIVE: Final = frozenset(
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "type"]
)


class Substitution:
    """What the parameters of types turned out to be."""

    def __init__(self) -> None:
        self.found: dict[Type, Type] = {}

    def find(self, type_: Type) -> Type:
        """What is known of a type at its top."""
        while type_ in self.found:
            type_ = self.found[type_]
        return type_

    def apply(self, type_: Type, free_to_dyn: bool = False) -> Type:
        """The type with all that is known put in; what is not known is dyn, if asked for."""
        type_ = self.find(type_)
        if type_.is_param and free_to_dyn:
            return DYN
        if not type_.params:
            return type_
        return Type(type_.name, tuple(self.apply(p, free_to_dyn) for p in type_.params))

    def assignable(self, given: list[Type], wanted: list[Type]) -> bool:
        """Whether each given type can stand for the wanted one; learns what parameters are."""
        before = dict(self.found)
        if all(self._assignable(g, w) for g, w in zip(given, wanted)):
            return True
        self.found = before
        return False

    def _assignable(self, given: Type, wanted: Type) -> bool:
        if wanted.is_param:
            fits, is_known = self._stands_for(given, wanted)
            if fits or is_known:
                return fits
        if given.is_param:
            return self._stands_for(wanted, given)[0]
        if _is_any(given) or _is_any(wanted):
            return True
        if given == wanted:
            return True
        if given.name == "null":
            return wanted.name not in _PRIMITIVE
        if wanted.name == "null":
            return given.name not in _PRIMITIVE
        if given.name == wanted.name == "type":
            return True
        if given.name != wanted.name or len(given.params) != len(wanted.params):
            return False
        return self.assignable(list(given.params), list(wanted.params))

    def _stands_for(self, type_: Type, param: Type) -> tuple[bool, bool]:
        """Whether a type can be the parameter's, and whether that was known before.

        Of two that fit, the parameter is the more general one from then on.
        """
        if type_ == param:
            return True, True
        known = self.found.get(param)
        if known is not None:
            if type_ == known:
                return True, True
            if not self._assignable(type_, known):
                return False, True
            general = join(type_, known)
            if not self._occurs(param, general):
                self.found[param] = general
            return True, True
        if self._occurs(param, type_):
            return False, False
        self.found[param] = type_
        return True, False

    def _occurs(self, param: Type, within: Type) -> bool:
        if within == param:
            return True
        if within.is_param:
            known = self.found.get(within)
            return known is not None and self._occurs(param, known)
        return any(self._occurs(param, part) for part in within.params)


def _is_any(type_: Type) -> bool:
    return type_.name in ("dyn", "any", "error")


def join(first: Type, second: Type) -> Type:
    """The more general of two types that can stand for each other."""
    return first if is_at_least(first, second) else second


def is_at_least(first: Type, second: Type) -> bool:
    """Whether the first type is equal to the second one or less specific."""
    if first.name in ("dyn", "any") or first.is_param:
        return True
    if second.name in ("dyn", "any") or second.is_param:
        return False
    if first.name != second.name or len(first.params) != len(second.params):
        return False
    return first.name == "type" or all(
        is_at_least(a, b) for a, b in zip(first.params, second.params)
    )
