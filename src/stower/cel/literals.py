"""What is checked of literals once the types are right: durations, times, patterns, mixed lists.

Source: cel-go cel/validator.go; which of its validators Kubernetes 1.36 turns on.
"""

from collections.abc import Iterator

from stower.cel.checker import Checked
from stower.cel.library_standard import pattern, to_duration, to_timestamp
from stower.cel.syntax import Call, CompileError, Fold, Issue, ListOf, Literal, MapOf, Node, Select
from stower.cel.types import Type
from stower.cel.values import CelError


def check_literals(checked: Checked) -> None:
    """CompileError where a literal can have no meaning where it stands."""
    issues = [
        *_walk(checked.tree, _call_issues),
        *_walk(checked.tree, lambda node: _mixed(node, checked), stops_at="format"),
    ]
    if issues:
        raise CompileError(sorted(set(issues)))


def children(node: Node) -> Iterator[Node]:
    """The parts of a node."""
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


def _mixed(node: Node, checked: Checked) -> Iterator[Issue]:
    if isinstance(node, ListOf):
        yield from _first_differs(node.items, node.optional, checked)
    elif isinstance(node, MapOf):
        optional = {i for i, entry in enumerate(node.entries) if entry[2]}
        yield from _first_differs([entry[0] for entry in node.entries], set(), checked)
        yield from _first_differs([entry[1] for entry in node.entries], optional, checked)


def _first_differs(items: list[Node], optional: set[int], checked: Checked) -> Iterator[Issue]:
    first: Type | None = None
    for index, item in enumerate(items):
        type_ = checked.types[item]
        if index in optional and type_.name == "optional":
            type_ = type_.params[0]
        if first is None:
            first = type_
        elif type_ != first:
            yield Issue(item.offset, f"expected type '{first}' but found '{type_}'")
            return
