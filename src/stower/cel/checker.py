"""The type checker: assigns a type to each node of a syntax tree, resolves names and the overloads
of calls, and reports type errors in the words of cel-go.

Must not know values or how expressions are evaluated.

Source: cel-go checker/checker.go; cel/validator.go for the checks of literals.
"""

from collections.abc import Mapping
from typing import NamedTuple

from stower.cel.declarations import DECLARED_ONLY, FUNCTIONS, TYPE_NAMES, Overload
from stower.cel.syntax import (
    RESERVED,
    Call,
    CompileError,
    Fold,
    Ident,
    Issue,
    ListOf,
    Literal,
    MapOf,
    Node,
    Select,
    Struct,
)
from stower.cel.types import (
    ANY,
    BOOL,
    DYN,
    ERROR,
    INT,
    Substitution,
    Type,
    join,
    list_of,
    map_of,
    optional_of,
    parse_type,
)


class Environment(NamedTuple):
    """The names that an expression may use: variables, the fields of message types, and functions
    that are not available."""

    variables: Mapping[str, Type]
    fields: Mapping[str, Mapping[str, Type]]
    without: frozenset[str] = frozenset()


class CheckedTree(NamedTuple):
    """The result of a check: the tree, the type of each node, and the possible overloads (names, in
    order) of each call.

    `globals`: calls with the syntax of a method that are calls of a function with a dotted name
    (`optional.of(x)`), with that name; `names`: selections that are an identifier with dots;
    `escaped`: selections of a field by a reserved word, with the name that the field has.
    """

    tree: Node
    types: Mapping[Node, Type]
    overloads: Mapping[Node, tuple[str, ...]]
    globals: Mapping[Node, str]
    names: Mapping[Node, str]
    escaped: Mapping[Node, str]


def qualified(node: Node) -> str | None:
    """Returns the dotted name that a chain of selections forms; None if it forms none."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test:
        before = qualified(node.operand)
        return None if before is None else f"{before}.{node.name}"
    return None


class Checker:
    """Checks one tree, in one traversal."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.scopes: list[dict[str, Type]] = []
        self.known = Substitution()
        self.fresh = 0
        self.issues: list[Issue] = []
        self.types: dict[Node, Type] = {}
        self.overloads: dict[Node, tuple[str, ...]] = {}
        self.globals: dict[Node, str] = {}
        self.names: dict[Node, str] = {}
        self.escaped: dict[Node, str] = {}

    def check(self, tree: Node) -> CheckedTree:
        """Returns the tree with its types. Raises CompileError with all issues."""
        self.visit(tree)
        if self.issues:
            raise CompileError(sorted(set(self.issues)))
        types = {node: self.known.apply(type_, True) for node, type_ in self.types.items()}
        return CheckedTree(tree, types, self.overloads, self.globals, self.names, self.escaped)

    def visit(self, node: Node) -> Type:
        match node:
            case Literal():
                type_ = Type(node.kind)
            case Ident():
                type_ = self.ident(node)
            case Select():
                type_ = self.select(node)
            case Call():
                type_ = self.call(node)
            case ListOf():
                type_ = self.list_of(node)
            case MapOf():
                type_ = self.map_of(node)
            case Fold():
                type_ = self.fold(node)
            case Struct():
                type_ = self.complain_undeclared(node.offset, node.name)
            case _:
                raise AssertionError(node)
        self.types[node] = type_
        return type_

    def complain(self, offset: int, message: str) -> Type:
        self.issues.append(Issue(offset, message))
        return ERROR

    def complain_undeclared(self, offset: int, name: str) -> Type:
        return self.complain(offset, f"undeclared reference to '{name}' (in container '')")

    def new_param(self) -> Type:
        self.fresh += 1
        return Type(f"V#{self.fresh}")

    def lookup(self, name: str) -> Type | None:
        """Returns the type of a variable or of a type name."""
        if not name.startswith("."):
            for scope in reversed(self.scopes):
                if name in scope:
                    return scope[name]
        name = name.removeprefix(".")
        if name in self.environment.variables:
            return self.environment.variables[name]
        if name in TYPE_NAMES:
            return Type("type", (parse_type(TYPE_NAMES[name]),))
        return None

    def ident(self, node: Ident) -> Type:
        type_ = self.lookup(node.name)
        return self.complain_undeclared(node.offset, node.name) if type_ is None else type_

    def select(self, node: Select) -> Type:
        name = None if node.test else qualified(node)
        if name is not None and name.partition(".")[0] not in self.variables_in_scope():
            type_ = self.lookup(name)
            if type_ is not None:
                self.names[node] = name
                return type_
        type_ = self.field(node, self.visit(node.operand), node.name, False)
        return BOOL if node.test else type_

    def variables_in_scope(self) -> set[str]:
        return {name for scope in self.scopes for name in scope}

    def field(self, node: Select | Call, operand: Type, name: str, optional: bool) -> Type:
        target = self.known.apply(operand)
        if target.name == "optional":
            optional = True
            target = target.params[0]
        fields = self.environment.fields.get(target.name)
        if target.name == "map":
            result = target.params[1]
        elif fields is not None:
            found = fields.get(name)
            if found is None and name in RESERVED and (escaped := f"__{name}__") in fields:
                found, self.escaped[node] = fields[escaped], escaped
            result = (
                self.complain(node.offset, f"undefined field '{name}'") if found is None else found
            )
        elif target.is_param:
            self.known.assignable([DYN], [target])
            result = DYN
        elif target.name.startswith("kubernetes."):
            result = self.complain(node.offset, f"unexpected failed resolution of '{target.name}'")
        else:
            if target.name not in ("dyn", "any", "error"):
                self.complain(node.offset, f"type '{target}' does not support field selection")
            result = DYN
        return optional_of(result) if optional else result

    def call(self, node: Call) -> Type:
        if node.function == "_?._":
            return self.optional_select(node)
        args = [self.visit(arg) for arg in node.args]
        if node.target is None:
            overloads = self.function(node.function)
            if overloads is None:
                return self.complain_undeclared(node.offset, node.function.removeprefix("."))
            return self.resolve(node, node.function, overloads, args, False)
        prefix = qualified(node.target)
        if prefix is not None and prefix.partition(".")[0] not in self.variables_in_scope():
            name = f"{prefix}.{node.function}"
            overloads = self.function(name)
            if overloads is not None:
                self.globals[node] = name
                return self.resolve(node, name, overloads, args, False)
        target = self.visit(node.target)
        overloads = self.function(node.function)
        if overloads is None:
            return self.complain_undeclared(node.offset, node.function)
        return self.resolve(node, node.function, overloads, [target, *args], True)

    def function(self, name: str) -> tuple[Overload, ...] | None:
        name = name.removeprefix(".")
        if name in self.environment.without:
            return None
        return () if name in DECLARED_ONLY else FUNCTIONS.get(name)

    def optional_select(self, node: Call) -> Type:
        operand = self.visit(node.args[0])
        name = node.args[1]
        assert isinstance(name, Literal)
        self.visit(name)
        self.overloads[node] = ("select_optional_field",)
        return self.known.apply(self.field(node, operand, name.value, True))

    def resolve(
        self,
        node: Call,
        name: str,
        overloads: tuple[Overload, ...],
        args: list[Type],
        is_member: bool,
    ) -> Type:
        """Records the overloads of a call that fit the arguments, and returns the result type; dyn
        if the overloads differ in it."""
        if name in ("_&&_", "_||_"):
            fits = [self.expect(arg.offset, type_, BOOL) for arg, type_ in zip(node.args, args)]
            self.overloads[node] = (overloads[0].id,)
            return BOOL if all(fits) else ERROR
        result: Type | None = None
        fitting = []
        for overload in overloads:
            if overload.is_member != is_member or len(overload.args) != len(args):
                continue
            renamed: dict[str, Type] = {}
            wanted = [self.renew(type_, renamed) for type_ in overload.args]
            if self.known.assignable(args, wanted):
                fitting.append(overload.id)
                given = self.known.apply(self.renew(overload.result, renamed))
                if result is None:
                    result = given
                elif result not in (DYN, ANY) and given != result:
                    result = DYN
        if result is None:
            shown = [str(self.known.apply(arg, True)) for arg in args]
            said = f"{shown[0]}.({', '.join(shown[1:])})" if is_member else f"({', '.join(shown)})"
            return self.complain(
                node.offset, f"found no matching overload for '{name}' applied to '{said}'"
            )
        self.overloads[node] = tuple(fitting)
        return result

    def renew(self, type_: Type, renamed: dict[str, Type]) -> Type:
        """Returns the type of a declaration with fresh type parameters."""
        if type_.is_param:
            return renamed.setdefault(type_.name, self.new_param())
        if not type_.params:
            return type_
        return Type(type_.name, tuple(self.renew(param, renamed) for param in type_.params))

    def expect(self, offset: int, found: Type, wanted: Type) -> bool:
        """Returns whether the type is the wanted one; reports an issue if not."""
        fits = self.known.assignable([found], [wanted])
        if not fits:
            self.mismatch(offset, wanted, found)
        return fits

    def mismatch(self, offset: int, wanted: Type, found: Type) -> Type:
        want, have = self.known.apply(wanted), self.known.apply(found)
        return self.complain(offset, f"expected type '{want}' but found '{have}'")

    def join(self, before: Type | None, type_: Type) -> Type:
        """Returns the type of the items of a literal with one more item; dyn if they differ, which
        check_literals reports."""
        if before is None:
            return type_
        return join(before, type_) if self.known.assignable([before], [type_]) else DYN

    def unwrapped_type(self, node: Node, is_optional: bool) -> Type:
        type_ = self.known.apply(self.visit(node))
        if not is_optional:
            return type_
        if type_.name == "optional":
            return type_.params[0]
        if type_.name not in ("dyn", "any", "error"):
            self.mismatch(node.offset, optional_of(type_), type_)
        return type_

    def list_of(self, node: ListOf) -> Type:
        type_: Type | None = None
        for index, item in enumerate(node.items):
            type_ = self.join(type_, self.unwrapped_type(item, index in node.optional))
        return list_of(type_ or self.new_param())

    def map_of(self, node: MapOf) -> Type:
        key_type: Type | None = None
        value_type: Type | None = None
        for key, value, is_optional in node.entries:
            key_type = self.join(key_type, self.visit(key))
            value_type = self.join(value_type, self.unwrapped_type(value, is_optional))
        if key_type is None or value_type is None:
            return map_of(self.new_param(), self.new_param())
        return map_of(key_type, value_type)

    def fold(self, node: Fold) -> Type:
        over = self.known.apply(self.visit(node.over))
        accu = self.visit(node.init)
        scope: dict[str, Type] = {}
        if over.name == "list":
            first, second = over.params[0], over.params[0]
            scope[node.first] = first if node.second is None else INT
        elif over.name == "map":
            first, second = over.params
            scope[node.first] = first
        else:
            if over.name in ("dyn", "error") or over.is_param:
                self.known.assignable([DYN], [over])
                second = DYN
            else:
                second = self.complain(
                    node.over.offset,
                    f"expression of type '{over}' cannot be range of a comprehension "
                    "(must be list, map, or dynamic)",
                )
            scope[node.first] = second
        if node.second is not None:
            scope[node.second] = second
        self.scopes.append({node.accu: accu})
        self.scopes.append(scope)
        self.expect(node.condition.offset, self.visit(node.condition), BOOL)
        self.expect(node.step.offset, self.visit(node.step), accu)
        self.scopes.pop()
        result = self.visit(node.result)
        self.scopes.pop()
        return self.known.apply(result)
