"""Validates the literals of a type-checked expression: durations, timestamps, regular expressions
and format strings that are certain to fail at evaluation, and lists or maps of mixed types.

Source: cel-go cel/validator.go, ext/formatting.go: the validators that Kubernetes 1.36 enables.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from stower.cel.checker import CheckedTree
from stower.cel.library_format import clauses, refusal_text
from stower.cel.library_standard import pattern
from stower.cel.library_times import to_duration, to_timestamp
from stower.cel.syntax import Call, CompileError, Fold, Issue, ListOf, Literal, MapOf, Node, Select
from stower.cel.types import Type
from stower.cel.values import CelError


def check_literals(checked: CheckedTree) -> None:
    """Raises CompileError if a literal is invalid where it is used."""
    issues = [
        *_walk(checked.tree, _call_issues),
        *_walk(checked.tree, lambda node: _find_mixed(node, checked), stops_at="format"),
        *_walk(checked.tree, lambda node: _format_issues(node, checked)),
    ]
    if issues:
        raise CompileError(sorted(set(issues)))


def children(node: Node) -> Iterator[Node]:
    """Returns the child nodes."""
    match node:
        case Select():
            yield node.operand
        case Call():
            if node.target is not None:
                yield node.target
            yield from node.args
        case ListOf():
            yield from node.items
        case MapOf():
            for key, value, _ in node.entries:
                yield from (key, value)
        case Fold():
            yield from (node.over, node.init, node.condition, node.step, node.result)


def _walk(node: Node, look, stops_at: str = "") -> Iterator[Issue]:  # type: ignore[no-untyped-def]
    if stops_at and isinstance(node, Call) and node.function == stops_at:
        return
    yield from look(node)
    for child in children(node):
        yield from _walk(child, look, stops_at)


def _call_issues(node: Node) -> Iterator[Issue]:
    if not isinstance(node, Call) or not node.args or not isinstance(node.args[0], Literal):
        return
    literal = node.args[0]
    try:
        if node.function == "duration":
            to_duration(literal.value)
        elif node.function == "timestamp":
            to_timestamp(literal.value)
        elif node.function == "matches" and literal.kind == "string":
            pattern(literal.value)
    except CelError:
        yield Issue(literal.offset, f"invalid {node.function} argument")


# Which types (by name) a clause of a format string takes.
_FORMATTED: Final = {
    "s": frozenset(
        "list map int uint double bool string timestamp bytes duration type null dyn".split()
    ),
    "d": frozenset(["int", "uint", "dyn"]),
    "f": frozenset(["double", "string", "dyn"]),  # "NaN" is one, too
    "e": frozenset(["double", "string", "dyn"]),
    "b": frozenset(["int", "uint", "bool", "dyn"]),
    "x": frozenset(["int", "uint", "string", "bytes", "dyn"]),
    "X": frozenset(["int", "uint", "string", "bytes", "dyn"]),
    "o": frozenset(["int", "uint", "dyn"]),
}


def _format_issues(node: Node, checked: CheckedTree) -> Iterator[Issue]:
    """Returns the issues of a literal format string and of its literal list of values."""
    if not isinstance(node, Call) or node.function != "format" or len(node.args) != 1:
        return
    text, values = node.target, node.args[0]
    if not isinstance(text, Literal) or text.kind != "string" or not isinstance(values, ListOf):
        return
    used = 0
    try:
        for part in clauses(text.value, lambda at: at < len(values.items)):
            if isinstance(part, tuple):
                bad = _find_unformatted(part[0], values.items[used], checked)
                if bad is not None:
                    yield Issue(bad.offset, refusal_text(part[0], checked.types[bad].runtime))
                    return
                used += 1
    except CelError as error:
        yield Issue(node.offset, str(error))
        return
    if used < len(values.items):
        yield Issue(
            node.offset,
            "too many arguments supplied to string.format "
            f"(expected {used}, got {len(values.items)})",
        )


def _find_unformatted(letter: str, node: Node, checked: CheckedTree) -> Node | None:
    """Returns the part of a value that the clause does not accept, or None."""
    if checked.types[node].name not in _FORMATTED[letter]:
        return node
    if letter == "s" and isinstance(node, ListOf | MapOf):
        bad = (_find_unformatted(letter, child, checked) for child in children(node))
        return next((part for part in bad if part is not None), None)
    return None


def _find_mixed(node: Node, checked: CheckedTree) -> Iterator[Issue]:
    if isinstance(node, ListOf):
        yield from islice(_find_different(node.items, node.optional, checked), 1)
    elif isinstance(node, MapOf):
        optional = {i for i, entry in enumerate(node.entries) if entry[2]}
        yield from _find_different([entry[0] for entry in node.entries], set(), checked)
        yield from _find_different([entry[1] for entry in node.entries], optional, checked)


def _find_different(items: list[Node], optional: set[int], checked: CheckedTree) -> Iterator[Issue]:
    first: Type | None = None
    for index, item in enumerate(items):
        type_ = checked.types[item]
        if index in optional and type_.name == "optional":
            type_ = type_.params[0]
        if first is None:
            first = type_
        elif type_ != first:
            yield Issue(item.offset, f"expected type '{first}' but found '{type_}'")
