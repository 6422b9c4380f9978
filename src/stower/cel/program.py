"""Compiles a type-checked tree into a Python function that takes the values of the variables and
returns the value of the expression.

Each node of the tree becomes a closure, which takes a frame: a list with one slot for each variable
and for each name that a comprehension introduces. Work is counted, and an evaluation that exceeds
its limit ends in CostExceededError. Must not know devices or claims.

Source: cel-go interpreter (errors: `&&` and `||` ignore the error of one operand if the other
operand decides; a comprehension's accumulator keeps errors).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from stower.cel import library_format, library_kubernetes, library_lists, library_standard
from stower.cel.checker import CheckedTree
from stower.cel.declarations import FUNCTIONS as DECLARED
from stower.cel.declarations import TYPE_NAMES
from stower.cel.syntax import Call, Fold, Ident, ListOf, Literal, MapOf, Node, Select
from stower.cel.values import (
    NO_OVERLOAD,
    NOTHING,
    CelError,
    CostExceededError,
    OptionalValue,
    Overlay,
    TypeName,
    Uint,
    begin_work,
    charge,
    go_type,
    key_of,
    lookup_key,
    type_name,
    value_of,
)

Frame = list[Any]
Run = Callable[[Frame], Any]

IMPLEMENTED: Final[Mapping[str, Callable[..., Any]]] = {
    **library_standard.FUNCTIONS,
    **library_lists.FUNCTIONS,
    **library_format.FUNCTIONS,
    **library_kubernetes.FUNCTIONS,
}
# Conversions of constants are done when a program is made, and their errors told then.
_WITH_PATTERN: Final = frozenset(["matches", "find", "findAll"])
_FOLDED: Final = frozenset(
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"]
)


class Instantiation(Exception):
    """Raised if a constant in the expression cannot be converted."""


def build(checked: CheckedTree, variables: Sequence[str], steps_max: int | None) -> Run:
    """Returns the program: a function of the list of the variables' values.

    The function raises CostExceededError if its work exceeds values.WORK_MAX or, with `steps_max`,
    if more than this number of nodes is evaluated in loops.
    """
    builder = _Builder(checked, variables, steps_max)
    run = builder.visit(checked.tree)
    slots, size = [None] * (builder.slots - len(variables)), builder.visited

    def run_program(frame: Frame) -> Any:
        begin_work()
        charge(size)
        return run([*frame, *slots])

    return run_program


class _LazyValue:
    """The value of a name of `cel.bind`, evaluated at its first use."""

    __slots__ = ("run", "value")

    def __init__(self, run: Run) -> None:
        self.run: Run | None = run
        self.value: Any = None


class _Builder:
    def __init__(
        self, checked: CheckedTree, variables: Sequence[str], steps_max: int | None
    ) -> None:
        self.checked = checked
        self.globals = {name: slot for slot, name in enumerate(variables)}
        self.names: list[tuple[str, int]] = []
        self.slots = len(variables)
        self.steps_max = steps_max
        self.counter = -1
        self.visited = 0  # nodes
        self.constants: set[Node] = set()  # conversions of constants
        if steps_max is not None:
            self.counter = self.new_slot()

    def new_slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def visit(self, node: Node) -> Run:
        self.visited += 1
        match node:
            case Literal():
                value = Uint(node.value) if node.kind == "uint" else node.value
                return lambda frame: value
            case Ident():
                return self.ident(node)
            case Select():
                return self.select(node)
            case Call():
                return self.call(node)
            case ListOf():
                return self.list_of(node)
            case MapOf():
                return self.map_of(node)
            case Fold():
                return self.fold(node)
        raise AssertionError(node)

    def ident(self, node: Ident) -> Run:
        for name, slot in reversed(self.names):
            if name == node.name:
                return _slot(slot)
        name = node.name.removeprefix(".")
        if name in self.globals:
            slot = self.globals[name]
            return lambda frame: frame[slot]
        return _type_value(name)

    def select(self, node: Select) -> Run:
        if node in self.checked.names:
            return _type_value(self.checked.names[node])
        operand, name = self.visit(node.operand), self.checked.escaped.get(node, node.name)
        if node.test:
            return lambda frame: _has(operand(frame), name)
        return lambda frame: field(operand(frame), name)

    def call(self, node: Call) -> Run:
        name = self.checked.globals.get(node, node.function).removeprefix(".")
        nodes = list(node.args)
        if node.target is not None and node not in self.checked.globals:
            nodes.insert(0, node.target)
        runs = [self.visit(arg) for arg in nodes]
        if node in self.checked.escaped:
            field_name = self.checked.escaped[node]
            runs[1] = lambda frame: field_name
        special = _SPECIAL.get(name)
        if special is not None:
            return special(*runs)
        function = IMPLEMENTED[name]
        if name in _WITH_PATTERN and self.is_constant(nodes[1]):
            self.prepare(lambda: library_standard.pattern(runs[1]([])))
        if name in _FOLDED and self.is_constant(nodes[0]):
            value = self.prepare(lambda: function(runs[0]([])))
            self.constants.add(node)
            return lambda frame: value
        if name == "@in" and isinstance(nodes[1], ListOf) and not nodes[1].items:
            return lambda frame: False  # what is looked for is not even worked out
        if name == "sum":
            zero = library_lists.zero(self.checked.overloads[node][0])
            return _build_call(name, lambda items: function(items, zero), runs)
        return _build_call(name, function, runs)

    def is_constant(self, node: Node) -> bool:
        return isinstance(node, Literal) or node in self.constants

    @staticmethod
    def prepare(work: Callable[[], Any]) -> Any:
        """Returns the result of `work`, done once when the program is built. Raises Instantiation
        on a CelError."""
        try:
            return work()
        except CelError as error:
            raise Instantiation(str(error)) from None

    def list_of(self, node: ListOf) -> Run:
        runs = [self.visit(item) for item in node.items]
        if not node.optional:
            if all(isinstance(item, Literal) for item in node.items):
                values = [run([]) for run in runs]
                return lambda frame: values
            return lambda frame: [run(frame) for run in runs]
        optional = node.optional

        def build(frame: Frame) -> list[Any]:
            items: list[Any] = []
            for index, run in enumerate(runs):
                value = run(frame)
                if index in optional:
                    if type(value) is not OptionalValue:
                        raise CelError(
                            "cannot initialize optional list element from non-optional value "
                            f"{value}"
                        )
                    if not value.is_some:
                        continue
                    value = value.value
                items.append(value)
            return items

        return build

    def map_of(self, node: MapOf) -> Run:
        entries = [(self.visit(k), self.visit(v), optional) for k, v, optional in node.entries]

        def build(frame: Frame) -> dict[Any, Any]:
            result: dict[Any, Any] = {}
            for key_run, value_run, optional in entries:
                key, value = key_run(frame), value_run(frame)
                if optional:
                    if type(value) is not OptionalValue:
                        raise CelError(
                            f"cannot initialize optional entry '{key}' from non-optional value "
                            f"{value}"
                        )
                    if not value.is_some:
                        result.pop(key_of(key), None)
                        continue
                    value = value.value
                result[key_of(key)] = value
            return result

        return build

    def fold(self, node: Fold) -> Run:
        if isinstance(node.condition, Literal) and node.condition.value is False:
            return self.bind(node)
        over, init = self.visit(node.over), self.visit(node.init)
        accu, first = self.new_slot(), self.new_slot()
        second = self.new_slot() if node.second is not None else -1
        self.names.append((node.accu, accu))
        self.names.append((node.first, first))
        if node.second is not None:
            self.names.append((node.second, second))
        before = self.visited
        condition, step = self.visit(node.condition), self.visit(node.step)
        turn = _STEPS_OF_LOOP + self.visited - before
        del self.names[-2 if node.second is not None else -1 :]
        result = self.visit(node.result)
        self.names.pop()
        counter, steps_max = self.counter, self.steps_max

        def run(frame: Frame) -> Any:
            pairs = _pairs(charge_size(over(frame)), second >= 0)
            frame[accu] = init(frame)
            for key, value in pairs:
                charge(turn)
                if steps_max is not None:
                    frame[counter] = (frame[counter] or 0) + _STEPS_OF_LOOP
                    if frame[counter] > steps_max:
                        raise CostExceededError
                frame[first] = key
                if second >= 0:
                    frame[second] = value
                if condition(frame) is not True:
                    break
                try:
                    stepped = step(frame)
                except CelError as error:
                    stepped = error
                frame[accu] = stepped
            return result(frame)

        return run

    def bind(self, node: Fold) -> Run:
        """A name for a value, worked out when first used and then kept."""
        init = self.visit(node.init)
        slot = self.new_slot()
        self.names.append((node.accu, slot))
        result = self.visit(node.result)
        self.names.pop()

        def run(frame: Frame) -> Any:
            frame[slot] = _LazyValue(init)
            return result(frame)

        return run


# What one turn of a loop counts for, in units of cost: the condition, the step and its parts.
_STEPS_OF_LOOP: Final = 4


def _type_value(name: str) -> Run:
    value = TypeName({"null": "null_type"}.get(name, name))
    assert name in TYPE_NAMES
    return lambda frame: value


def _slot(slot: int) -> Run:
    def run(frame: Frame) -> Any:
        value = frame[slot]
        if isinstance(value, CelError):
            raise value
        if type(value) is _LazyValue:
            if value.run is not None:
                try:
                    value.value = value.run(frame)
                except CelError as error:
                    value.value = error
                value.run = None
            if isinstance(value.value, CelError):
                raise value.value
            return value.value
        return value

    return run


def _pairs(value: Any, both: bool) -> list[tuple[Any, Any]]:
    if isinstance(value, list):
        return list(enumerate(value)) if both else [(item, None) for item in value]
    if isinstance(value, dict):
        return [(value_of(key), item) for key, item in value.items()]
    if both:
        raise CelError(f"unsupported comprehension range type: {go_type(value)}")
    raise CelError(f"got '{go_type(value)}', expected iterable type")


def field(value: Any, name: str) -> Any:
    """`value.name`. Raises CelError if there is no such field."""
    try:
        return value[name]
    except (KeyError, TypeError, IndexError):
        pass
    if hasattr(type(value), "field"):  # a message
        return value.field(name)
    if type(value) is OptionalValue:
        return select_optional(value, name)
    if isinstance(value, list):
        list_index(name)
    raise CelError(f"no such key: {name}")


def _has(value: Any, name: str) -> bool:
    if isinstance(value, OptionalValue):
        return value.is_some and _has(value.value, name)
    if hasattr(type(value), "field"):
        return True
    if isinstance(value, dict):
        return name in value or type(value) is Overlay
    if isinstance(value, list):
        list_index(name)
    return False


def index(value: Any, key: Any) -> Any:
    """`value[key]`. Raises CelError if there is no such element."""
    if isinstance(value, dict):
        try:
            return value[lookup_key(key)]
        except KeyError:
            raise _missing_key(key) from None
    if isinstance(value, list):
        at = list_index(key)
        if not 0 <= at < len(value):
            raise CelError(f"index out of bounds: {library_standard.to_string(key)}")
        return value[at]
    if type(value) is OptionalValue:
        return index_optional(value, key)
    raise _missing_key(key)


def _missing_key(key: Any) -> CelError:
    try:
        return CelError(f"no such key: {library_standard.to_string(key)}")
    except CelError:
        return CelError(f"no such key: {type_name(key)}")


def list_index(key: Any) -> int:
    """Returns the key as an index. Raises CelError unless it is a whole number."""
    if type(key) not in (int, Uint, float):
        raise CelError(f"unsupported index type '{type_name(key)}' in list")
    if type(key) is float and not (key.is_integer() and abs(key) < 2.0**63):
        raise CelError(f"unsupported index value {library_standard.to_string(key)} in list")
    return int(key)


def select_optional(value: Any, name: str) -> OptionalValue:
    """`value.?name`."""
    return index_optional(value, name)


def index_optional(value: Any, key: Any) -> OptionalValue:
    """`value[?key]`."""
    if type(value) is OptionalValue:
        return index_optional(value.value, key) if value.is_some else NOTHING
    if hasattr(type(value), "field"):
        return OptionalValue(value.field(key))
    if isinstance(value, dict):
        found = lookup_key(key)
        known = found in value or type(value) is Overlay
        return OptionalValue(value[found]) if known else NOTHING
    if isinstance(value, list):
        at = list_index(key)
        return OptionalValue(value[at]) if 0 <= at < len(value) else NOTHING
    return NOTHING


def charge_size(value: Any) -> Any:
    """Counts the work of creating this value, by its size, and returns the value."""
    if isinstance(value, _SIZED) and len(value) > _SMALL:
        charge(len(value) >> (2 if isinstance(value, list) else 4))
    return value


_SIZED: Final = (str, bytes, list, dict)
_SMALL: Final = 256


def _build_call(name: str, function: Callable[..., Any], runs: list[Run]) -> Run:
    is_operator = name.startswith(("_", "@", "!", "-"))

    def explain(error: CelError, args: list[Any]) -> CelError:
        if is_operator or str(error) != NO_OVERLOAD:
            return error
        return CelError(f"{NO_OVERLOAD}: {name}({', '.join(type_name(arg) for arg in args)})")

    if len(runs) == 1:
        (only,) = runs

        def run_one(frame: Frame) -> Any:
            value = only(frame)
            try:
                return charge_size(function(value))
            except CelError as error:
                raise explain(error, [value]) from None

        return run_one
    if len(runs) == 2:
        left, right = runs

        def run_two(frame: Frame) -> Any:
            a, b = left(frame), right(frame)
            try:
                return charge_size(function(a, b))
            except CelError as error:
                raise explain(error, [a, b]) from None

        return run_two

    def run_many(frame: Frame) -> Any:
        args = [run(frame) for run in runs]
        try:
            return charge_size(function(*args))
        except CelError as error:
            raise explain(error, args) from None

    return run_many


def _build_logical(decisive: bool) -> Callable[[Run, Run], Run]:
    """Returns the implementation of `&&` (False decides) or `||` (True decides)."""

    def build_run(left: Run, right: Run) -> Run:
        def run(frame: Frame) -> Any:
            problem: CelError | None = None
            for side in (left, right):
                try:
                    value = side(frame)
                except CelError as error:
                    problem = problem or error
                    continue
                if value is decisive:
                    return decisive
                if value is not (not decisive):
                    problem = problem or CelError(NO_OVERLOAD)
            if problem is not None:
                raise problem
            return not decisive

        return run

    return build_run


def _conditional(condition: Run, then: Run, otherwise: Run) -> Run:
    def run(frame: Frame) -> Any:
        chosen = condition(frame)
        if type(chosen) is not bool:
            raise CelError(NO_OVERLOAD)
        return then(frame) if chosen else otherwise(frame)

    return run


def _not_strictly_false(value: Run) -> Run:
    def run(frame: Frame) -> Any:
        try:
            return value(frame) is not False
        except CelError:
            return True

    return run


def _or(first: Run, second: Run) -> Run:
    def run(frame: Frame) -> Any:
        maybe = first(frame)
        return second(frame) if type(maybe) is OptionalValue and not maybe.is_some else maybe

    return run


def _or_value(first: Run, second: Run) -> Run:
    def run(frame: Frame) -> Any:
        maybe = first(frame)
        if type(maybe) is not OptionalValue:
            return maybe
        return maybe.value if maybe.is_some else second(frame)

    return run


_SPECIAL: Final[Mapping[str, Callable[..., Run]]] = {
    "_&&_": _build_logical(False),
    "_||_": _build_logical(True),
    "_?_:_": _conditional,
    "@not_strictly_false": _not_strictly_false,
    "or": _or,
    "orValue": _or_value,
    "_[_]": lambda value, key: lambda frame: index(value(frame), key(frame)),
    "_[?_]": lambda value, key: lambda frame: index_optional(value(frame), key(frame)),
    "_?._": lambda value, key: lambda frame: index_optional(value(frame), key(frame)),
}

MISSING: Final = sorted(DECLARED.keys() - IMPLEMENTED.keys() - _SPECIAL.keys())
assert not MISSING, MISSING
