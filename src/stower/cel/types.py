"""CEL types for the checker: their representation and text, which type is assignable to which, and
the inference of type parameters.

Must not know values or the syntax tree.

Source: cel-go common/types/types.go, checker/types.go, checker/format.go.
"""

import re
from typing import Final, NamedTuple


class Type(NamedTuple):
    """A type and its type arguments. A name of a single capital letter is a type parameter of a
    declaration; with a number after it, a fresh copy that the checker made for one use."""

    name: str
    params: tuple["Type", ...] = ()

    def __str__(self) -> str:
        """Returns the type in the notation of the checker's error messages."""
        name = _SHOWN.get(self.name, self.name)
        return f"{name}({', '.join(map(str, self.params))})" if self.params else name

    @property
    def declared_name(self) -> str:
        """The type in the notation of messages about the result of an expression."""
        if self.params:
            return f"{self.name}({', '.join(param.declared_name for param in self.params)})"
        return _DECLARED.get(self.name, self.name)

    @property
    def runtime(self) -> str:
        """The name of the type as a CEL value."""
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
SELF: Final = "selfType"  # how the names of types of objects begin that a schema declares
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
    """Parses a type in the notation of the declarations: `map(string, list(A))`."""
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
    """The types that were inferred for type parameters."""

    def __init__(self) -> None:
        self.found: dict[Type, Type] = {}

    def find(self, type_: Type) -> Type:
        """Returns the type itself or, for a type parameter, the type inferred for it; type
        arguments are not replaced."""
        while type_ in self.found:
            type_ = self.found[type_]
        return type_

    def apply(self, type_: Type, free_to_dyn: bool = False) -> Type:
        """Returns the type with all inferred type parameters replaced. `free_to_dyn`: replaces the
        others by dyn."""
        type_ = self.find(type_)
        if type_.is_param and free_to_dyn:
            return DYN
        if not type_.params:
            return type_
        return Type(type_.name, tuple(self.apply(p, free_to_dyn) for p in type_.params))

    def assignable(self, given: list[Type], wanted: list[Type]) -> bool:
        """Returns whether each given type is assignable to the wanted one. Infers type parameters
        if so."""
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
        """Returns whether a type is assignable to the type parameter, and whether the parameter had
        a type before. If both types fit, the parameter gets the more general one."""
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
    """Returns the more general of two types that are assignable to each other."""
    return first if is_at_least(first, second) else second


def is_at_least(first: Type, second: Type) -> bool:
    """Returns whether the first type is equal to the second one or more general."""
    if first.name in ("dyn", "any") or first.is_param:
        return True
    if second.name in ("dyn", "any") or second.is_param:
        return False
    if first.name != second.name or len(first.params) != len(second.params):
        return False
    return first.name == "type" or all(
        is_at_least(a, b) for a, b in zip(first.params, second.params)
    )
