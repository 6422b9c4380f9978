"""Macros (`has`, `all`, `exists`, `map`, `filter`, `cel.bind` and others): calls that the parser
replaces by comprehensions and other trees, before types are checked.

Source: cel-go parser/macro.go, ext/comprehensions.go, ext/bindings.go, cel/library.go (optMap),
ext/lists.go (sortBy).
"""

from collections.abc import Callable
from typing import Final

from stower.cel.syntax import Call, Fold, Ident, ListOf, Literal, Macro, MapOf, Node, Parser, Select

ACCU: Final = "@result"
_TAKEN: Final = (ACCU, "__result__")  # the second was the name of the first in older versions
UNUSED: Final = "#unused"
NOT_IDENTIFIER: Final = "argument is not an identifier"


def call(offset: int, function: str, *args: Node) -> Node:
    """Returns the node of a call of a function or operator."""
    return Call(offset, function, None, list(args))


def _has(parser: Parser, offset: int, target: Node | None, args: list[Node]) -> Node | None:
    tested = args[0]
    if isinstance(tested, Select) and not tested.test:
        return Select(offset, tested.operand, tested.name, True)
    return parser.refuse(tested.offset, "invalid argument to has() macro")


Build = Callable[[int, list[Node]], tuple[Node, Node, Node, Node]]


def _fold(variables: int, build: Build, unnamed: str = "argument must be a simple name") -> Macro:
    """Returns a macro over a list or map. Its first arguments are the variables; `build` gets the
    others and returns the accumulator's start, the loop condition, the step and the result."""

    def macro(parser: Parser, offset: int, target: Node | None, args: list[Node]) -> Node | None:
        names = []
        for arg in args[:variables]:
            if not isinstance(arg, Ident) or arg.name.startswith("."):
                return parser.refuse(arg.offset, unnamed)
            if arg.name in _TAKEN:
                return parser.refuse(
                    arg.offset, "iteration variable overwrites accumulator variable"
                )
            if arg.name in names:
                return parser.refuse(arg.offset, f"duplicate variable name: {arg.name}")
            names.append(arg.name)
        assert target is not None
        first, second = (names[0], names[1]) if variables == 2 else (names[0], None)
        variable_nodes: list[Node] = [Ident(arg.offset, n) for arg, n in zip(args, names)]
        init, condition, step, result = build(offset, [*variable_nodes, *args[variables:]])
        return Fold(offset, target, first, second, ACCU, init, condition, step, result)

    return macro


def _accu(offset: int) -> Node:
    return Ident(offset, ACCU)


def _bool(offset: int, value: bool) -> Node:
    return Literal(offset, "bool", value)


def _all(at: int, args: list[Node]) -> tuple[Node, Node, Node, Node]:
    go_on = call(at, "@not_strictly_false", _accu(at))
    return _bool(at, True), go_on, call(at, "_&&_", _accu(at), args[-1]), _accu(at)


def _exists(at: int, args: list[Node]) -> tuple[Node, Node, Node, Node]:
    go_on = call(at, "@not_strictly_false", call(at, "!_", _accu(at)))
    return _bool(at, False), go_on, call(at, "_||_", _accu(at), args[-1]), _accu(at)


def _exists_one(at: int, args: list[Node]) -> tuple[Node, Node, Node, Node]:
    one = Literal(at, "int", 1)
    step = call(at, "_?_:_", args[-1], call(at, "_+_", _accu(at), one), _accu(at))
    return Literal(at, "int", 0), _bool(at, True), step, call(at, "_==_", _accu(at), one)


def _collect(tested: int | None, item: int) -> Build:
    """Builds a comprehension that lists the argument at `item` for the elements where the argument
    at `tested` is true."""

    def build(at: int, args: list[Node]) -> tuple[Node, Node, Node, Node]:
        step = call(at, "_+_", _accu(at), ListOf(at, [args[item]]))
        if tested is not None:
            step = call(at, "_?_:_", args[tested], step, _accu(at))
        return ListOf(at, []), _bool(at, True), step, _accu(at)

    return build


def _insert(tested: int | None, with_key: bool) -> Build:
    """Builds a comprehension that collects a map: the last argument is the value under the key or,
    without `with_key`, a map of entries."""

    def build(at: int, args: list[Node]) -> tuple[Node, Node, Node, Node]:
        inserted = [args[0], args[-1]] if with_key else [args[-1]]
        step = call(at, "cel.@mapInsert", _accu(at), *inserted)
        if tested is not None:
            step = call(at, "_?_:_", args[tested], step, _accu(at))
        return MapOf(at, []), _bool(at, True), step, _accu(at)

    return build


def bind_name(at: int, name: str, value: Node, result: Node) -> Node:
    """Returns the tree in which the name in `result` has the value."""
    nothing = ListOf(at, [])
    return Fold(at, nothing, UNUSED, None, name, value, _bool(at, False), Ident(at, name), result)


def _bind(parser: Parser, offset: int, target: Node | None, args: list[Node]) -> Node | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name = args[0]
    if not isinstance(name, Ident):
        return parser.refuse(name.offset, "cel.bind() variable names must be simple identifiers")
    return bind_name(offset, name.name, args[1], args[2])


def _opt_map(function: str, wraps: bool) -> Macro:
    def macro(parser: Parser, offset: int, target: Node | None, args: list[Node]) -> Node | None:
        name, mapped = args
        if not isinstance(name, Ident):
            return parser.refuse(
                name.offset, f"{function}() variable name must be a simple identifier"
            )
        assert target is not None
        value = bind_name(offset, name.name, Call(offset, "value", target, []), mapped)
        some = call(offset, "optional.of", value) if wraps else value
        none = call(offset, "optional.none")
        return call(offset, "_?_:_", Call(offset, "hasValue", target, []), some, none)

    return macro


def _sort_by(parser: Parser, offset: int, target: Node | None, args: list[Node]) -> Node | None:
    name, key = args
    if not isinstance(name, Ident):
        return parser.refuse(name.offset, NOT_IDENTIFIER)
    if not isinstance(target, (Select, ListOf, Fold, Call, Ident)):
        assert target is not None
        return parser.refuse(
            target.offset,
            "sortBy can only be applied to a list, identifier, comprehension, call or select "
            "expression",
        )
    given = "@__sortBy_input__"
    init, condition, step, result = _collect(None, 1)(offset, [name, key])
    keys = Fold(offset, Ident(offset, given), name.name, None, ACCU, init, condition, step, result)
    return bind_name(
        offset, given, target,
        Call(offset, "@sortByAssociatedKeys", Ident(offset, given), [keys]),
    )  # fmt: skip


# (name, number of arguments, whether it is called on something): what it becomes.
MACROS: Final[dict[tuple[str, int, bool], Macro]] = {
    ("has", 1, False): _has,
    ("all", 2, True): _fold(1, _all),
    ("exists", 2, True): _fold(1, _exists),
    ("exists_one", 2, True): _fold(1, _exists_one),
    ("existsOne", 2, True): _fold(1, _exists_one),
    ("map", 2, True): _fold(1, _collect(None, 1), NOT_IDENTIFIER),
    ("map", 3, True): _fold(1, _collect(1, 2), NOT_IDENTIFIER),
    ("filter", 2, True): _fold(1, _collect(1, 0), NOT_IDENTIFIER),
    ("all", 3, True): _fold(2, _all),
    ("exists", 3, True): _fold(2, _exists),
    ("exists_one", 3, True): _fold(2, _exists_one),
    ("existsOne", 3, True): _fold(2, _exists_one),
    ("transformList", 3, True): _fold(2, _collect(None, 2)),
    ("transformList", 4, True): _fold(2, _collect(2, 3)),
    ("transformMap", 3, True): _fold(2, _insert(None, True)),
    ("transformMap", 4, True): _fold(2, _insert(2, True)),
    ("transformMapEntry", 3, True): _fold(2, _insert(None, False)),
    ("transformMapEntry", 4, True): _fold(2, _insert(2, False)),
    ("bind", 3, True): _bind,
    ("optMap", 2, True): _opt_map("optMap", True),
    ("optFlatMap", 2, True): _opt_map("optFlatMap", False),
    ("sortBy", 2, True): _sort_by,
}
