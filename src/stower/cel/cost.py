"""Estimates the cost of evaluating an expression, least and most, in CEL's cost units, from the
tree and its types. Kubernetes rejects selectors whose most exceeds a limit.

All numbers saturate at 2^64 - 1. Must not know values: sizes come from `size_of`.

Source: cel-go checker/cost.go, ext/sets.go and ext/lists.go; apiserver pkg/cel/library/cost.go.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from stower.cel.checker import CheckedTree
from stower.cel.macros import ACCU
from stower.cel.syntax import Call, Fold, Ident, ListOf, Literal, MapOf, Node, Select
from stower.cel.types import SELF, Type

MOST: Final = 2**64 - 1
_TRAVERSAL: Final = 0.1  # of a string, per character
_REGEX: Final = 0.25  # of a pattern, per character
_LIST: Final = 10  # creating a list
_MAP: Final = 30
_NAME_REGEX_MAX: Final = 128  # apiserver pkg/cel/format.go: MaxNameFormatRegexSize
_FORMAT_MAX: Final = 64  # MaxFormatSize

Path = tuple[str, ...]


def _times(number: int, factor: float) -> int:
    """Returns the product, rounded up."""
    if number > 0 and factor > 0 and float(number) > float(MOST) / factor:
        return MOST
    product = math.ceil(float(number) * factor)
    return min(product, MOST)


class Range(NamedTuple):
    """The least and the most of a cost or a size."""

    least: int
    most: int

    def plus(self, other: "Range") -> "Range":
        return Range(min(self.least + other.least, MOST), min(self.most + other.most, MOST))

    def times(self, other: "Range") -> "Range":
        return Range(min(self.least * other.least, MOST), min(self.most * other.most, MOST))

    def factor(self, factor: float) -> "Range":
        return Range(_times(self.least, factor), _times(self.most, factor))

    def union(self, other: "Range") -> "Range":
        return Range(min(self.least, other.least), max(self.most, other.most))


def fixed_range(amount: int) -> Range:
    """Returns the range with this single value."""
    return Range(amount, amount)


NONE: Final = fixed_range(0)
ONE: Final = fixed_range(1)
UNKNOWN: Final = Range(0, MOST)


class Entries(NamedTuple):
    """The sizes of the keys and values of a list or map."""

    kind: str
    key: Range
    value: Range


class Estimate(NamedTuple):
    """The cost of a call without its arguments, and the size of its result."""

    cost: Range
    size: Range | None = None
    with_args: bool = True


@dataclass(slots=True)
class _Local:
    path: Path
    size: Range | None
    entries: Entries | None


# How large what a path leads to may be: None where that is not known.
SizeOf = Callable[[Path], int | None]
_SCALARS: Final = frozenset(["bool", "double", "duration", "int", "timestamp", "uint"])
_UNIT: Final = frozenset(
    "masked prefixLength family isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast "
    "isGlobalUnicast sign asInteger isInteger asApproximateFloat isGreaterThan isLessThan "
    "compareTo add sub major minor patch getScheme getHostname getHost getPort getEscapedPath "
    "getQuery format.named".split()
)
_STRUCTS: Final = ("kubernetes.DRADevice", SELF)  # types with fields
_COMPARED: Final = frozenset(
    f"{op}_{kind}" for op in ("less", "greater", "less_equals", "greater_equals")
    for kind in ("string", "bytes")
) | {"equals", "not_equals"}  # fmt: skip


def estimate(checked: CheckedTree, size_of: SizeOf) -> int:
    """Returns the cost range. `size_of` returns the sizes of variables."""
    return _Coster(checked, size_of).cost(checked.tree).most


class _Coster:
    def __init__(self, checked: CheckedTree, size_of: SizeOf) -> None:
        self.checked = checked
        self.size_of = size_of
        self.paths: dict[Node, Path] = {}
        self.sizes: dict[Node, Range] = {}
        self.entries: dict[Node, Entries] = {}
        self.locals: dict[str, list[_Local]] = {}

    def cost(self, node: Node) -> Range:
        match node:
            case Ident():
                local = self.local(node.name)
                self.paths[node] = local.path if local is not None else (node.name,)
                return ONE
            case Select():
                return self.select(node)
            case Call():
                return self.call(node)
            case ListOf():
                return self.list_of(node)
            case MapOf():
                return self.map_of(node)
            case Fold():
                return self.bind(node) if self.is_bind(node) else self.fold(node)
            case _:
                return NONE

    def local(self, name: str) -> _Local | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def push(self, name: str, local: _Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def type(self, node: Node) -> Type:
        return self.checked.types[node]

    def select(self, node: Select) -> Range:
        if node in self.checked.names:
            return ONE
        operand = self.cost(node.operand)
        if node.test:
            return operand  # a test costs nothing: PresenceTestHasCost(false)
        self.paths[node] = (*self.path(node.operand), node.name)
        kind = self.type(node.operand).name
        is_costly = kind == "map" or kind.startswith(_STRUCTS)
        return operand.plus(ONE) if is_costly else operand

    def list_of(self, node: ListOf) -> Range:
        cost, value = NONE, Range(MOST if node.items else 0, 0)
        for item in node.items:
            cost = cost.plus(self.cost(item))
            value = value.union(self.size_or_unknown(item))
        self.entries[node] = Entries("list", ONE, value)
        return cost.plus(fixed_range(_LIST))

    def map_of(self, node: MapOf) -> Range:
        cost = NONE
        key = value = Range(MOST if node.entries else 0, 0)
        for key_node, value_node, _ in node.entries:
            cost = cost.plus(self.cost(key_node)).plus(self.cost(value_node))
            key = key.union(self.size_or_unknown(key_node))
            value = value.union(self.size_or_unknown(value_node))
        self.entries[node] = Entries("map", key, value)
        return cost.plus(fixed_range(_MAP))

    @staticmethod
    def is_bind(node: Fold) -> bool:
        return (
            isinstance(node.over, ListOf)
            and not node.over.items
            and isinstance(node.condition, Literal)
            and node.condition.value is False
            and node.accu != ACCU
        )

    def bind(self, node: Fold) -> Range:
        cost = self.cost(node.over).plus(self.cost(node.init))
        self.push_value(node.accu, node.init)
        cost = cost.plus(self.cost(node.result))
        self.locals[node.accu].pop()
        self.copy(node, node.result)
        return cost

    def fold(self, node: Fold) -> Range:
        cost = self.cost(node.over).plus(self.cost(node.init))
        self.push_value(node.accu, node.init)
        entries = self.entry_sizes(node.over)
        path = self.path(node.over)
        is_list = (entries.kind if entries is not None else self.type(node.over).name) == "list"
        key = entries.key if entries is not None else None
        value = entries.value if entries is not None else None
        if node.second is not None:
            keys = "@indices" if is_list else "@keys"
            self.push(node.first, _Local((*path, keys), key, None))
            values = "@items" if is_list else "@values"
            self.push(node.second, _Local((*path, values), value, None))
        elif is_list:
            self.push(node.first, _Local((*path, "@items"), value, None))
        else:
            self.push(node.first, _Local((*path, "@keys"), key, None))
        each = self.cost(node.condition)
        each = self.cost(node.step).plus(each)
        self.locals[node.first].pop()
        if node.second is not None:
            self.locals[node.second].pop()
        cost = cost.plus(self.cost(node.result))
        self.locals[node.accu].pop()
        count = self.size_or_unknown(node.over)
        if isinstance(node.init, Literal):
            self.set_size(node, self.size(node.init))
        elif isinstance(node.init, ListOf | MapOf):
            self.set_size(node, count)
            stepped = self.entry_sizes(node.step)
            if stepped is not None:
                self.entries[node] = stepped
        return cost.plus(count.times(each))

    def push_value(self, name: str, node: Node) -> None:
        self.push(name, _Local(self.path(node), self.size(node), self.entry_sizes(node)))

    def call(self, node: Call) -> Range:
        name = self.checked.globals.get(node, node.function)
        if name == "dyn":
            cost = self.cost(node.args[0])
            self.copy(node, node.args[0])
            return cost.plus(ONE)
        costs = [self.cost(arg) for arg in node.args]
        args_cost = NONE
        for arg_cost in costs:
            args_cost = args_cost.plus(arg_cost)
        total = NONE
        target = None if node in self.checked.globals else node.target
        if target is not None:
            total = self.cost(target)
        called = Range(MOST, 0)
        size: Range | None = None
        for overload in self.checked.overloads.get(node, ()):
            found = self.call_cost(node, name, overload, target, costs)
            called = called.union(found.cost.plus(args_cost) if found.with_args else found.cost)
            if found.size is not None:
                size = found.size if size is None else size.union(found.size)
            if overload in ("index_list", "index_map"):
                entries = self.entry_sizes(node.args[0])
                size = entries.value if entries is not None else None
                part = "@items" if overload == "index_list" else "@values"
                self.paths[node] = (*self.path(node.args[0]), part)
            if size is None:
                size = self.size(node)
        self.set_size(node, size)
        return total.plus(called)

    def call_cost(
        self, node: Call, name: str, overload: str, target: Node | None, costs: Sequence[Range]
    ) -> Estimate:
        args = node.args
        if overload.startswith("list_sets_"):
            factor = 2 if "equivalent" in overload else 1
            product = self.size_or_unknown(args[0]).times(self.size_or_unknown(args[1]))
            return Estimate(product.factor(factor).plus(ONE))
        return (
            self.list_cost(overload, target, args)
            or self.kubernetes_cost(name, overload, target, args)
            or self.standard_cost(node, overload, target, costs)
        )

    # ------------------------------------------------------------------------- cel-go's lists

    def list_cost(self, overload: str, target: Node | None, args: list[Node]) -> Estimate | None:
        if overload == "lists_range":
            return _allocation_cost(1, fixed_range(_int_of(args[0], MOST)))
        if target is None:
            return None
        if overload == "list_slice":
            size = self.size_or_unknown(target)
            length = _int_of(args[1], size.most) - _int_of(args[0], 0)
            return _allocation_cost(1, fixed_range(length % (MOST + 1)))
        if overload == "list_reverse":
            return _allocation_cost(1, self.size_or_unknown(target))
        if overload in ("list_flatten", "list_flatten_int"):
            depth = _int_of(args[0], MOST) if args else 1
            return _allocation_cost(float(depth), self.size_or_unknown(target))
        if overload == "list_distinct":
            size = self.size_or_unknown(target)
            return _allocation_cost(2, size.times(size))
        if overload.endswith(("_sort", "_sortByAssociatedKeys")):
            size = self.size_or_unknown(target if overload.endswith("_sort") else args[0])
            is_text = overload.startswith(("list_string_", "list_bytes_"))
            return _allocation_cost(2 + _TRAVERSAL if is_text else 2, size.times(size))
        return None

    # ------------------------------------------------------------------------- Kubernetes' own

    def kubernetes_cost(
        self, name: str, overload: str, target: Node | None, args: list[Node]
    ) -> Estimate | None:
        if name in _UNIT or overload == "cidr_ip":
            return Estimate(ONE)
        if name == "includes":
            return Estimate(Range(0, 48))  # the most values that a list attribute has
        if name in ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"):
            return self.traversal(target) if target is not None else None
        if name in ("url", "lowerAscii", "upperAscii", "substring", "trim"):
            source = args[0] if name == "url" else target
            if source is None:
                return None
            size = self.size_or_unknown(source)
            return Estimate(size.factor(_TRAVERSAL), size)
        if name == "replace" and target is not None:
            size = self.size_or_unknown(target)
            result = _replaced(size, self.size_or_unknown(args[0]), self.size_or_unknown(args[1]))
            return Estimate(size.factor(2 * _TRAVERSAL), result)
        if name == "split" and target is not None:
            size = self.size_or_unknown(target)
            most = size.most
            if len(args) > 1 and isinstance(args[1], Literal) and args[1].kind == "int":
                most = args[1].value & MOST  # upstream's conversion: -1 is the most there is
            return Estimate(size.factor(2 * _TRAVERSAL), Range(0, most))
        if name == "join" and target is not None:
            return self.join(target, args)
        if name in ("find", "findAll") and target is not None:
            size = self.size_or_unknown(target)
            pattern = self.size_or_unknown(args[0]).factor(_REGEX)
            cost = size.plus(ONE).factor(_TRAVERSAL).times(pattern)
            return Estimate(cost, Range(0, size.most))
        if name in ("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"):
            return Estimate(self.size_or_unknown(args[0]).factor(_TRAVERSAL))
        if name == "ip.isCanonical":
            return Estimate(self.size_or_unknown(args[0]).factor(2 * _TRAVERSAL))
        if name in ("containsIP", "containsCIDR"):
            bytes_ = Range(4, 16)
            cost = bytes_.plus(bytes_).factor(_TRAVERSAL)
            if name == "containsCIDR":
                cost = cost.plus(bytes_.factor(_TRAVERSAL)).plus(ONE)
            if overload.endswith("_string"):
                cost = cost.plus(self.size_or_unknown(args[0]).factor(_TRAVERSAL))
            return Estimate(cost)
        if name == "validate":
            cost = self.size_or_unknown(args[0]).factor(_TRAVERSAL)
            return Estimate(cost.factor(_NAME_REGEX_MAX * _REGEX))
        if name == "_==_":
            return self.equal(args)
        return None

    def traversal(self, target: Node) -> Estimate:
        size = self.size_or_unknown(target)
        type_ = self.type(target)
        if not type_.params:
            return Estimate(size.factor(_TRAVERSAL))
        each = ONE
        if type_.params[0].name in ("string", "bytes"):
            each = each.plus(self.item_size(target).factor(_TRAVERSAL))
        return Estimate(size.times(each))

    def join(self, target: Node, args: list[Node]) -> Estimate:
        count = self.size_or_unknown(target)
        size = count.times(self.item_size(target)) if self.type(target).params else NONE
        if args:
            between = Range(max(count.least - 1, 0), max(count.most - 1, 0))
            size = size.plus(self.size_or_unknown(args[0]).times(between))
        return Estimate(size.factor(_TRAVERSAL), size)

    def equal(self, args: list[Node]) -> Estimate | None:
        left, right = self.type(args[0]), self.type(args[1])
        if left != right:
            return None
        if left.name in ("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"):
            return Estimate(ONE)
        if left.name == "kubernetes.NamedFormat":
            return Estimate(Range(1, _FORMAT_MAX).factor(_TRAVERSAL))
        if left.name == "kubernetes.URL":
            size = self.size(args[1])
            most = size.most if size is not None else 1
            return Estimate(Range(1, most).factor(_TRAVERSAL))
        return None

    # ------------------------------------------------------------------------- the standard ones

    def standard_cost(
        self, node: Call, overload: str, target: Node | None, costs: Sequence[Range]
    ) -> Estimate:
        args = node.args
        if overload == "string_format" and target is not None:
            return Estimate(self.size_or_unknown(target).factor(_TRAVERSAL))
        if overload == "string_to_bytes":
            size = self.size_or_unknown(args[0])
            return Estimate(size.factor(_TRAVERSAL), Range(size.least, size.most * 4 & MOST))
        if overload == "bytes_to_string":
            size = self.size_or_unknown(args[0])
            return Estimate(size.factor(_TRAVERSAL), Range(size.least // 4, size.most))
        if overload == "strings_quote":
            size = self.size_or_unknown(args[0])
            result = Range(size.least + 2 & MOST, size.most * 2 + 2 & MOST)
            return Estimate(size.factor(_TRAVERSAL), result)
        if overload in ("starts_with_string", "ends_with_string"):
            return Estimate(self.size_or_unknown(args[0]).factor(_TRAVERSAL))
        if overload == "in_list":
            return Estimate(self.size_or_unknown(args[1]).factor(1))
        if overload == "matches_string" and target is not None:
            text = self.size_or_unknown(target).plus(ONE).factor(_TRAVERSAL)
            return Estimate(text.times(self.size_or_unknown(args[0]).factor(_REGEX)))
        if overload == "contains_string" and target is not None:
            text = self.size_or_unknown(target).factor(_TRAVERSAL)
            return Estimate(text.times(self.size_or_unknown(args[0]).factor(_TRAVERSAL)))
        if overload in ("logical_and", "logical_or"):
            both = Range(costs[0].least, costs[0].plus(costs[1]).most)
            return Estimate(both, with_args=False)
        if overload == "conditional":
            size = self.size_or_unknown(args[1]).union(self.size_or_unknown(args[2]))
            self.join_entries(node, args[1], args[2])
            return Estimate(costs[0].plus(costs[1].union(costs[2])), size, with_args=False)
        if overload in ("add_string", "add_bytes", "add_list"):
            size = self.size_or_unknown(args[0]).plus(self.size_or_unknown(args[1]))
            self.join_entries(node, args[0], args[1])
            return Estimate(ONE if overload == "add_list" else size.factor(_TRAVERSAL), size)
        if overload in _COMPARED:
            most = min(self.size_or_unknown(args[0]).most, self.size_or_unknown(args[1]).most)
            return Estimate(Range(min(most, 1), most).factor(_TRAVERSAL))
        return Estimate(ONE)

    def join_entries(self, node: Node, first: Node, second: Node) -> None:
        one, other = self.entry_sizes(first), self.entry_sizes(second)
        if one is not None and other is not None:
            key, value = one.key.union(other.key), one.value.union(other.value)
            self.entries[node] = Entries(one.kind, key, value)

    # -------------------------------------------------------------------------------- sizes

    def path(self, node: Node) -> Path:
        if isinstance(node, Ident):
            local = self.local(node.name)
            if local is not None:
                return local.path
        return self.paths.get(node, ())

    def copy(self, node: Node, source: Node) -> None:
        self.set_size(node, self.size(source))
        entries = self.entry_sizes(source)
        if entries is not None:
            self.entries[node] = entries

    def set_size(self, node: Node, size: Range | None) -> None:
        if size is not None:
            self.sizes[node] = size

    def size(self, node: Node) -> Range | None:
        if node in self.sizes:
            return self.sizes[node]
        if isinstance(node, Literal):
            is_long = node.kind in ("string", "bytes")
            return fixed_range(len(node.value) if is_long else 1)
        if isinstance(node, ListOf):
            return fixed_range(len(node.items))
        if isinstance(node, MapOf):
            return fixed_range(len(node.entries))
        most = self.size_of(self.path(node))
        if most is not None:
            self.sizes[node] = Range(0, most)
            return self.sizes[node]
        type_ = self.type(node)
        scalar = type_.params[0] if type_.name == "optional" else type_
        if scalar.name in _SCALARS:
            return ONE
        local = self.local(node.name) if isinstance(node, Ident) else None
        return local.size if local is not None else None

    def size_or_unknown(self, node: Node) -> Range:
        return self.size(node) or UNKNOWN

    def item_size(self, target: Node) -> Range:
        path = self.path(target)
        most = self.size_of((*path, "@items")) if path else None
        return UNKNOWN if most is None else Range(0, most)

    def entry_sizes(self, node: Node) -> Entries | None:
        if node in self.entries:
            return self.entries[node]
        local = self.local(node.name) if isinstance(node, Ident) else None
        return local.entries if local is not None else None


def _allocation_cost(factor: float, size: Range) -> Estimate:
    return Estimate(size.factor(factor).plus(fixed_range(_LIST + 1)), size)


def _int_of(node: Node, otherwise: int) -> int:
    if isinstance(node, Literal) and node.kind == "int":
        return max(int(node.value), 0)
    return otherwise


def _replaced(size: Range, old: Range, new: Range) -> Range:
    """Returns the range of the size of a string in which old parts are replaced by new ones."""
    kept_most = kept_least = 0
    if old.least == 0:
        # Nothing is replaced: the new part goes before, between and after all characters.
        count_most, kept_most = min(size.most + 1, MOST), size.most
    elif new.most <= old.least:
        count_most, kept_most = 0, size.most
    else:
        count_most = math.ceil(size.most / old.least)
    if old.most == 0:
        count_least, kept_least = min(size.least + 1, MOST), size.least
    elif old.most <= new.least:
        count_least, kept_least = 0, size.least
    else:
        count_least = math.ceil(size.least / old.most)
    return Range(count_least, count_most).times(new).plus(Range(kept_least, kept_most))
