"""CEL values: the types that Python lacks, equality, order, map keys, evaluation errors, and the
work limit of an evaluation.

bool, int, float, str, bytes, None and list are Python's; a map is a dict with keys converted by
`key_of`. Must not know syntax or types of expressions. Sources: CEL specification "Values"; cel-go
common/types.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import total_ordering
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any, Final

from stower.model.quantity import Quantity


class CelError(Exception):
    """An evaluation error, with cel-go's message."""


class CostExceededError(Exception):
    """Raised if an evaluation exceeds its work limit. Not a CelError, so that `&&` and `||` do not
    ignore it."""


# Of one evaluation: beyond what upstream's limit of cost lets pass, and less than a second. A unit
# is about a node of the expression that is looked at, an item of a list, or 16 characters.
WORK_MAX: Final = 1_500_000


class _Work:
    """The work that the current evaluation may still do. One evaluation runs at a time."""

    left = WORK_MAX


_work = _Work()


def begin_work() -> None:
    """Resets the work limit at the start of an evaluation."""
    _work.left = WORK_MAX


def spent_work() -> int:
    """Returns the work since the start of the evaluation."""
    return WORK_MAX - _work.left


def charge(units: int) -> None:
    """Counts work before it is done. Raises CostExceededError."""
    _work.left -= units
    if _work.left < 0:
        raise CostExceededError


def charge_text(length: int) -> None:
    """Counts the work of reading or creating a text of this length."""
    if length >= 16:
        charge(length >> 4)


NO_OVERLOAD: Final = "no such overload"


def no_overload() -> CelError:
    """Returns the error for values whose types the function does not accept."""
    return CelError(NO_OVERLOAD)


def conversion_error(value: Any, wanted: str) -> CelError:
    """Returns the error for a value that cannot be converted to the wanted type."""
    return CelError(f"type conversion error from '{type_name(value)}' to '{wanted}'")


class Uint(int):
    """An unsigned integer."""

    __slots__ = ()


@total_ordering
@dataclass(frozen=True, slots=True)
class Duration:
    """A span of time, in ns."""

    ns: int

    def __lt__(self, other: "Duration") -> bool:
        return self.ns < other.ns


@total_ordering
@dataclass(frozen=True, slots=True)
class Timestamp:
    """A point in time, in ns since 1970-01-01T00:00:00Z, and the UTC offset of its text in
    seconds."""

    ns: int
    offset: int = field(default=0, compare=False)

    def __lt__(self, other: "Timestamp") -> bool:
        return self.ns < other.ns


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as a value."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class OptionalValue:
    """An optional value; `none` is the empty one."""

    value: Any
    is_some: bool = True


NOTHING: Final = OptionalValue(None, False)


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A name format, by its name in the library."""

    name: str


@dataclass(frozen=True, slots=True)
class Url:
    """An absolute URL or path, split like Go's net/url does."""

    text: str
    scheme: str
    host: str
    hostname: str
    port: str
    escaped_path: str
    query: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version; comparisons ignore the build metadata after `+`.

    `key` sorts as in SemVer 2.0.0 section 11: a release after its pre-releases, numbers before
    words.
    """

    numbers: tuple[int, int, int]
    key: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def read_semver(text: str) -> Semver:
    """Parses a version. Raises CelError with the message of blang/semver if it is invalid."""
    if not text:
        raise CelError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise CelError("No Major.Minor.Patch elements found")
    patch, plus, build = parts[2].partition("+")
    patch, dash, preview = patch.partition("-")
    names = ("major", "minor", "patch")
    major, minor, patch_number = (
        _number(part, f"{name} number") for name, part in zip(names, (*parts[:2], patch))
    )
    previews = [_preview(part) for part in preview.split(".")] if dash else []
    for part in build.split(".") if plus else ():
        if not part:
            raise CelError("Build meta data is empty")
        if not _WORD.match(part):
            raise CelError(f'Invalid character(s) found in build meta data "{part}"')
    numbers = (major, minor, patch_number)
    return Semver(numbers, (*numbers, not previews, tuple(previews)))


_WORD: Final = re.compile(r"[0-9A-Za-z-]+\Z", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]*\Z", re.ASCII)


def _number(text: str, name: str) -> int:
    if not _DIGITS.match(text):
        raise CelError(f'Invalid character(s) found in {name} "{text}"')
    if len(text) > 1 and text[0] == "0":
        raise CelError(f'{name.capitalize()} must not contain leading zeroes "{text}"')
    return _parse_unsigned(text)


def _parse_unsigned(text: str) -> int:
    if not text:
        raise CelError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 20 or int(text) >= 2**64:
        raise CelError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _preview(text: str) -> tuple[int, int, str]:
    if not text:
        raise CelError("Prerelease is empty")
    if _DIGITS.match(text):
        if len(text) > 1 and text[0] == "0":
            raise CelError(f'Numeric PreRelease version must not contain leading zeroes "{text}"')
        return 0, _parse_unsigned(text), ""
    if not _WORD.match(text):
        raise CelError(f'Invalid character(s) found in prerelease "{text}"')
    return 1, 0, text


class ComputedQuantity(Quantity):
    """The quantity of a sum or difference, which Kubernetes does not accept as the right operand of
    `==`."""

    __slots__ = ()

    @staticmethod
    def from_quantity(quantity: Quantity) -> "ComputedQuantity":
        return ComputedQuantity(quantity.mantissa, quantity.scale, quantity.format, quantity.big)


Ip = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class CidrValue:
    """An address with a prefix length; the address keeps its host bits."""

    address: Ip
    network: IPv4Network | IPv6Network


def parse_ip(text: str) -> Ip:
    """Parses an address as Kubernetes does: no zone, no IPv4-mapped IPv6, no leading zeros."""
    try:
        address = ip_address(text)
    except (ValueError, AddressValueError):
        raise CelError(f'IP Address "{text}" parse error during conversion from string') from None
    if "%" in text:
        raise CelError(f'IP address "{text}" with zone value is not allowed')
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise CelError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


def parse_cidr(text: str) -> CidrValue:
    """A network in CIDR notation, with the same restrictions."""
    address_text, slash, bits = text.partition("/")
    error = CelError(f'network address parse error during conversion from string: "{text}"')
    if not slash or not bits.isdigit() or (len(bits) > 1 and bits[0] == "0"):
        raise error
    if "%" in text:
        raise error
    try:
        address = ip_address(address_text)
        network = ip_network(text, strict=False)
    except ValueError:
        raise error from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise CelError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return CidrValue(address, network)


class Overlay(dict[str, Any]):
    """A map that returns an empty map for a missing key: the domains of a device's attributes."""

    __slots__ = ()

    def __missing__(self, key: object) -> dict[str, Any]:
        return {}


class SetList(list[Any]):
    """A list of scalars that is equal to others in any order; a sum has each item once."""

    __slots__ = ()

    @staticmethod
    def key(item: Any) -> Any:
        """Returns what tells the items apart."""
        return type(item) is bool, item


class MapList(list[Any]):
    """A list of objects that are told apart by the values of some fields, and equal in any order;
    items of the right operand of a sum replace those of the left one."""

    __slots__ = ("fields",)

    def __init__(self, items: Iterable[Any] = (), fields: tuple[str, ...] = ()) -> None:
        super().__init__(items)
        self.fields = fields

    def key(self, item: Any) -> Any:
        """Returns what tells the items apart."""
        return tuple(SetList.key(item.get(name)) for name in self.fields)


def joined(a: list[Any], b: list[Any]) -> list[Any]:
    """Returns the sum of two lists, of the type of the first."""
    if not isinstance(a, SetList | MapList):
        return [*a, *b]
    found = {a.key(item): item for item in a}
    for item in b:
        if isinstance(a, MapList) or a.key(item) not in found:
            found[a.key(item)] = item
    items = found.values()
    return MapList(items, a.fields) if isinstance(a, MapList) else SetList(items)


def _has_equal_items(a: list[Any], b: list[Any]) -> bool:
    if not isinstance(a, SetList | MapList):
        return not any(map(differs, a, b))
    found = {a.key(item): item for item in a}
    return all((key := a.key(item)) in found and not differs(found[key], item) for item in b)


class Key:
    """A bool as a map key, because Python's True equals 1."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value


_KEYS: Final = {True: Key(True), False: Key(False)}


def key_of(value: Any) -> Any:
    """Returns the dict key for a value. Raises CelError if the value cannot be a map key."""
    kind = type(value)
    if kind is str or kind is int or kind is Uint:
        return value  # to Python, 1 and 1u are the same key
    if kind is bool:
        return _KEYS[value]
    if kind is float:
        return int(value) if value.is_integer() else value
    raise CelError("unsupported key type")


def lookup_key(value: Any) -> Any:
    """Returns the dict key to look up; a value that cannot be a key is found in no map."""
    try:
        return key_of(value)
    except CelError:
        return _NO_KEY


_NO_KEY: Final = object()


def value_of(key: Any) -> Any:
    """Returns the CEL value of a dict key."""
    return key.value if type(key) is Key else key


_NUMBERS: Final = (int, float, Uint)
_IPS: Final = (IPv4Address, IPv6Address)
_OPAQUE: Final = (Quantity, Semver, CidrValue, Url, NamedFormat, *_IPS)


def equal(a: Any, b: Any) -> bool:
    """Returns whether two values are equal: numbers by amount, other values only within their
    type."""
    kind, other = type(a), type(b)
    if kind in _NUMBERS:
        if kind is not other and float in (kind, other) and other in _NUMBERS:
            return float(a) == float(b)  # as doubles, however large
        return other in _NUMBERS and bool(a == b)
    if kind is Overlay:
        kind = dict
    if other is Overlay:
        other = dict
    if kind is ComputedQuantity:
        kind = Quantity
    if isinstance(a, list) and isinstance(b, list):
        charge(len(a) + 1)
        return len(a) == len(b) and _has_equal_items(a, b)
    if kind is not other:
        if kind in _OPAQUE and not (kind in _IPS and other in _IPS):
            # A text is just not equal to a version; a version to a text is a fault.
            raise CelError(NO_OVERLOAD)
        return False
    if kind is str:
        charge_text(min(len(a), len(b)))
        return bool(a == b)
    if kind is dict:
        charge(len(a) + 1)
        return len(a) == len(b) and all(k in b and not differs(v, b[k]) for k, v in a.items())
    if kind is OptionalValue:
        return a.is_some == b.is_some and (not a.is_some or equal(a.value, b.value))
    return bool(a == b)


def is_same(a: Any, b: Any) -> bool:
    """Returns whether two values are equal; False if they cannot be compared."""
    try:
        return equal(a, b)
    except CelError:
        return False


def differs(a: Any, b: Any) -> bool:
    """Returns whether two values are unequal; False if they cannot be compared."""
    try:
        return not equal(a, b)
    except CelError:
        return False


_ORDERED: Final = (bool, str, bytes, Timestamp, Duration)


def compare(a: Any, b: Any) -> int:
    """Returns -1, 0 or 1. Raises CelError if the values have no order."""
    kind, other = type(a), type(b)
    if kind in _NUMBERS and other in _NUMBERS:
        if float in (kind, other):
            a, b = float(a), float(b)  # as doubles, however large
            if a != a or b != b:
                raise CelError("NaN values cannot be ordered")
    elif kind is not other or kind not in _ORDERED:
        raise CelError(NO_OVERLOAD)
    if a == b:
        return 0
    return -1 if a < b else 1


_GO_TYPES: Final[dict[type, str]] = {
    bool: "types.Bool", int: "types.Int", Uint: "types.Uint", float: "types.Double",
    str: "types.String", bytes: "types.Bytes", type(None): "types.Null", Semver: "cel.Semver",
    Quantity: "cel.Quantity", ComputedQuantity: "*cel.Quantity", Duration: "types.Duration",
    Timestamp: "types.Timestamp", OptionalValue: "*types.Optional",
    TypeName: "*types.Type", Url: "cel.URL", CidrValue: "cel.CIDR",
    NamedFormat: "*cel.Format", IPv4Address: "cel.IP", IPv6Address: "cel.IP",
}  # fmt: skip
_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool", int: "int", Uint: "uint", float: "double", str: "string", bytes: "bytes",
    type(None): "null_type", list: "list", SetList: "list", MapList: "list",
    dict: "map", Overlay: "map",
    Duration: "google.protobuf.Duration", Timestamp: "google.protobuf.Timestamp",
    TypeName: "type", OptionalValue: "optional_type", Quantity: "kubernetes.Quantity",
    ComputedQuantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver", Url: "kubernetes.URL", NamedFormat: "kubernetes.NamedFormat",
    IPv4Address: "net.IP", IPv6Address: "net.IP", CidrValue: "net.CIDR",
}  # fmt: skip


def type_name(value: Any) -> str:
    """Returns the name of the value's type, as `type()` does."""
    return _TYPE_NAMES.get(type(value), "map")


def go_type(value: Any) -> str:
    """Returns cel-go's name of the type, for errors about values that are no range of a
    comprehension."""
    return _GO_TYPES.get(type(value), "types.Unknown")
