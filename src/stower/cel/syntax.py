"""The parser: turns the text of an expression into a syntax tree, expands macros, and reports
syntax errors in the words of cel-go.

Must not know types or functions.

Source: CEL specification, "Syntax"; cel-go parser (positions: of an operator, of a call's opening
bracket, of a selection's dot; limits).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from stower.model.integers import parse_decimal

# cel-go goes down to 250; Python's stack does not, and nobody writes so.
DEPTH_MAX: Final = 100
STARTS: Final = (
    "'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', "
    "NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER"
)
STARTS_OF_INDEX: Final = STARTS.replace("'!', ", "'!', '?', ")
RESERVED: Final = frozenset(
    "as break const continue else for function if import let loop package namespace return var "
    "void while".split()
)

_TOKEN: Final = re.compile(
    r"""
    (?P<space>[\t\x20\r\n\f]+|//[^\n]*)
  | (?P<text>[rR]?(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}
            |\"(?:[^\\\"\n\r]|\\.)*\"|'(?:[^\\'\n\r]|\\.)*'))
  | (?P<bytes>[bB][rR]?(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}
            |\"(?:[^\\\"\n\r]|\\.)*\"|'(?:[^\\'\n\r]|\\.)*'))
  | (?P<double>(?:[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+))
  | (?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
  | (?P<int>0x[0-9a-fA-F]+|[0-9]+)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>==|!=|<=|>=|&&|\|\||[-\[\]{}().,!?:+*/%<>])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
# Raw strings end at the first quote: a backslash escapes nothing in them.
_RAW: Final = re.compile(
    r"""[bB]?[rR](?:\"{3}.*?\"{3}|'{3}.*?'{3}|\"[^\"\n\r]*\"|'[^'\n\r]*')""", re.DOTALL
)


class Issue(NamedTuple):
    """One error and its offset in the text, -1 for before the start."""

    offset: int
    message: str


class CompileError(ValueError):
    """Raised for an invalid expression; `issues` has all errors, in the order of their offsets."""

    def __init__(self, issues: list[Issue]) -> None:
        super().__init__(issues[0].message)
        self.issues = issues


def explain(text: str, issues: list[Issue]) -> str:
    """Formats at most 100 issues like cel-go: position, message, the line, and a pointer below
    it."""
    said = []
    for offset, message in issues[:100]:
        before = text[: max(offset, 0)]
        line = before.count("\n") + 1
        start = before.rfind("\n") + 1
        column = offset - start
        source = text[start:].split("\n", 1)[0]
        said.append(f"ERROR: <input>:{line}:{column + 1}: {message}")
        if source:
            pointed = source.replace("\t", " ")
            dots = "".join("．" if ord(c) > 0x7F else "." for c in pointed[:column])
            wide = ord(pointed[column]) > 0x7F if 0 <= column < len(pointed) else False
            said[-1] += f"\n | {pointed}\n | {dots}{'＾' if wide else '^'}"
    if len(issues) > 100:
        said.append(f"{len(issues) - 100} more errors were truncated")
    return "\n".join(said)


# ------------------------------------------------------------------------------------------ tree


@dataclass(slots=True, eq=False)
class Node:
    """A node of a syntax tree. `offset` is its position in the text."""

    offset: int


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A constant: bool, int, Uint (kind says which), float, str, bytes or None."""

    kind: str
    value: Any


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A name."""

    name: str


@dataclass(slots=True, eq=False)
class Select(Node):
    """`operand.field`; with `test`, has(operand.field)."""

    operand: Node
    name: str
    test: bool = False


@dataclass(slots=True, eq=False)
class Call(Node):
    """A call of a function or an operator (`_+_`); `target` is the receiver of a method."""

    function: str
    target: Node | None
    args: list[Node]


@dataclass(slots=True, eq=False)
class ListOf(Node):
    """`[a, ?b]`; `optional` has the indices of the items with a question mark."""

    items: list[Node]
    optional: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class MapOf(Node):
    """`{a: b, ?c: d}`: keys, values, and whether the entry is optional."""

    entries: list[tuple[Node, Node, bool]]


@dataclass(slots=True, eq=False)
class Struct(Node):
    """`Message{field: value}`: parsed and then rejected, as Kubernetes defines no messages here."""

    name: str


@dataclass(slots=True, eq=False)
class Fold(Node):
    """A comprehension, to which all macros over lists and maps expand.

    For each element of `over`, `first` (and `second`, where `first` is the key or index) is set,
    and `accu` becomes `step`, as long as `condition` is true; the value is `result`. `cel.bind` is
    a comprehension over an empty list.
    """

    over: Node
    first: str
    second: str | None
    accu: str
    init: Node
    condition: Node
    step: Node
    result: Node


# ---------------------------------------------------------------------------------------- tokens


class Token(NamedTuple):
    """A token: kind (text, bytes, double, uint, int, name, sign, end), text and offset."""

    kind: str
    text: str
    offset: int


def tokens(text: str) -> list[Token]:
    """Returns the tokens; the last has the kind `end`. Raises CompileError for an invalid token."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _RAW.match(text, at)
        if match is not None:
            kind = "bytes" if match[0][0] in "bB" else "text"
        else:
            match = _TOKEN.match(text, at)
            if match is None:
                bad = text[at]
                raise CompileError(
                    [Issue(at, f"Syntax error: token recognition error at: '{bad}'")]
                )
            kind = match.lastgroup or ""
        if kind != "space":
            found.append(Token(kind, match[0], at))
        at = match.end()
    found.append(Token("end", "<EOF>", len(text)))
    return found


_ESCAPES: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`",
}  # fmt: skip
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|X([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})"
    r"|([0-3][0-7]{2})|(.))",
    re.DOTALL,
)


def unquote(token: Token) -> str | bytes:
    """Returns the value of a string or bytes literal. Raises CompileError for an invalid escape."""
    text = token.text
    is_bytes = token.kind == "bytes"
    if is_bytes:
        text = text[1:]
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    quote = 3 if text[:3] in ('"""', "'''") else 1
    text = text[quote:-quote].replace("\r\n", "\n").replace("\r", "\n")
    pieces: list[str | int] = []  # int: a byte
    at = 0
    for match in () if raw else _ESCAPE.finditer(text):
        pieces.append(text[at : match.start()])
        at = match.end()
        hexadecimal = match[1] or match[2]
        code = match[3] or match[4]
        if hexadecimal or match[5]:
            number = int(hexadecimal, 16) if hexadecimal else int(match[5], 8)
            pieces.append(number if is_bytes else chr(number))
        elif code:
            number = int(code, 16)
            if is_bytes or number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise _bad_escape(token)
            pieces.append(chr(number))
        elif match[6] in _ESCAPES:
            pieces.append(_ESCAPES[match[6]])
        else:
            raise _bad_escape(token)
    pieces.append(text[at:])
    if is_bytes:
        return b"".join(bytes([p]) if isinstance(p, int) else p.encode() for p in pieces)
    return "".join(str(piece) for piece in pieces)


def _bad_escape(token: Token) -> CompileError:
    kind = "bytes" if token.kind == "bytes" else "string"
    return CompileError(
        [Issue(token.offset, f"Syntax error: invalid {kind} literal: unable to unescape string")]
    )


# ---------------------------------------------------------------------------------------- parser

_BINARY: Final = {
    "||": 1, "&&": 2,
    "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3, "in": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip


def operator(sign: str) -> str:
    """Returns cel-go's name for the function of a binary operator."""
    return "@in" if sign == "in" else f"_{sign}_"


Macro = Callable[["Parser", int, Node | None, list[Node]], Node | None]


class Parser:
    """A precedence-climbing parser of one text."""

    def __init__(self, text: str, macros: dict[tuple[str, int, bool], Macro]) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.at = 0
        self.depth = 0
        self.macros = macros
        self.issues: list[Issue] = []

    def parse(self) -> Node:
        """Returns the tree of the whole text. Raises CompileError."""
        tree = self.expression()
        if self.token.kind != "end":
            self.raise_syntax_error("<EOF>", is_end=True)
        if self.issues:
            raise CompileError(sorted(self.issues))
        return tree

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def accept(self, sign: str) -> Token | None:
        """Consumes and returns the token if it is this sign, else returns None."""
        token = self.tokens[self.at]
        if token.text == sign and token.kind in ("sign", "name"):
            self.at += 1
            return token
        return None

    def expect(self, sign: str) -> Token:
        """Consumes and returns the token, which must be this sign. Raises CompileError
        otherwise."""
        return self.accept(sign) or self.raise_syntax_error(f"'{sign}'")

    def raise_syntax_error(self, expected: str, is_end: bool = False) -> Any:
        """Raises the error of ANTLR: an extraneous token if the token after it is the expected
        one."""
        token = self.token
        after = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        fits = after.kind == "end" if is_end else f"'{after.text}'" == expected
        kind = "extraneous" if token.kind != "end" and fits else "mismatched"
        # An empty text ends before it begins.
        offset = token.offset if self.text else -1
        raise CompileError(
            [Issue(offset, f"Syntax error: {kind} input '{token.text}' expecting {expected}")]
        )

    def expression(self) -> Node:
        """Parses a conditional, or an expression of higher precedence."""
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise CompileError([Issue(-1, f"expression recursion limit exceeded: {DEPTH_MAX}")])
        tree = self.binary(1)
        question = self.accept("?")
        if question is not None:
            then = self.binary(1)
            self.expect(":")
            otherwise = self.expression()
            tree = Call(question.offset, "_?_:_", None, [tree, then, otherwise])
        self.depth -= 1
        return tree

    def binary(self, lowest: int) -> Node:
        left = self.unary()
        links = 0
        while True:
            token = self.token
            strength = _BINARY.get(token.text, 0) if token.kind in ("sign", "name") else 0
            if strength < lowest or strength == 0:
                return left
            if token.text in ("&&", "||"):
                left = self.chain(left, token.text, strength)
                continue
            links += 1
            if links > DEPTH_MAX:
                raise CompileError([Issue(-1, "max recursion depth exceeded")])
            self.at += 1
            right = self.binary(strength + 1)
            left = Call(token.offset, operator(token.text), None, [left, right])

    def chain(self, first: Node, sign: str, strength: int) -> Node:
        """Parses all operands of one logical operator into a balanced tree, which limits the depth
        of long expressions."""
        terms, signs = [first], []
        while (token := self.accept(sign)) is not None:
            signs.append(token.offset)
            terms.append(self.binary(strength + 1))

        def balance(low: int, high: int) -> Node:
            middle = (low + high + 1) // 2
            left = terms[middle] if middle == low else balance(low, middle - 1)
            right = terms[middle + 1] if middle == high else balance(middle + 1, high)
            return Call(signs[middle], operator(sign), None, [left, right])

        return balance(0, len(signs) - 1)

    def unary(self) -> Node:
        token = self.token
        if token.kind == "sign" and token.text in "!-":
            count = 0
            start = self.at
            while self.accept(token.text):
                count += 1
            if token.text == "-" and self.token.kind in ("int", "double"):
                # The last minus belongs to the number.
                self.at -= 1
                count -= 1
            operand = self.member()
            if count % 2:
                name = "!_" if token.text == "!" else "-_"
                return Call(self.tokens[start].offset, name, None, [operand])
            return operand
        return self.member()

    def member(self) -> Node:
        tree = self.primary()
        links = 0
        while True:
            links += 1
            if links > DEPTH_MAX:
                raise CompileError([Issue(-1, f"expression recursion limit exceeded: {DEPTH_MAX}")])
            token = self.token
            if self.accept("."):
                optional = self.accept("?")
                name = self.name("IDENTIFIER")
                opening = None if optional else self.accept("(")
                if opening is not None:
                    tree = self.call(opening.offset, name.text, tree)
                elif optional:
                    field_name = Literal(name.offset, "string", name.text)
                    tree = Call(token.offset, "_?._", None, [tree, field_name])
                else:
                    tree = Select(token.offset, tree, name.text)
            elif self.accept("["):
                optional = self.accept("?")
                if not self.is_start():
                    self.raise_syntax_error(f"{{{STARTS if optional else STARTS_OF_INDEX}}}")
                index = self.expression()
                self.expect("]")
                function = "_[?_]" if optional else "_[_]"
                tree = Call(token.offset, function, None, [tree, index])
            else:
                return tree

    def name(self, expected: str) -> Token:
        token = self.token
        if token.kind != "name" or token.text in ("true", "false", "null", "in"):
            self.raise_syntax_error(expected)
        self.at += 1
        return token

    def is_start(self) -> bool:
        token = self.token
        if token.kind == "sign":
            return token.text in ("[", "{", "(", ".", "-", "!")
        return token.kind != "end" and token.text != "in"

    def primary(self) -> Node:
        token = self.token
        if not self.is_start() or (token.kind == "sign" and token.text in "-!"):
            if token.text == "-" and self.tokens[self.at + 1].kind in ("int", "double"):
                self.at += 1
                return self.number(self.tokens[self.at], "-", token.offset)
            self.raise_syntax_error(f"{{{STARTS}}}")
        if token.kind in ("int", "uint", "double"):
            return self.number(token, "", token.offset)
        self.at += 1
        if token.kind in ("text", "bytes"):
            kind = "string" if token.kind == "text" else "bytes"
            return Literal(token.offset, kind, unquote(token))
        if token.kind == "name" and token.text in ("true", "false", "null"):
            kind = "null" if token.text == "null" else "bool"
            value = {"true": True, "false": False, "null": None}[token.text]
            return Literal(token.offset, kind, value)
        if token.kind == "name" or token.text == ".":
            return self.identifier(token)
        if token.text == "(":
            tree = self.expression()
            self.expect(")")
            return tree
        if token.text == "[":
            return self.list_of(token.offset)
        return self.map_of(token.offset)

    def identifier(self, token: Token) -> Node:
        """Parses an identifier, a call of a function, or a message."""
        dotted = token.text == "."
        name = self.name("IDENTIFIER") if dotted else token
        if name.text in RESERVED:
            self.issues.append(
                Issue(name.offset, f"Syntax error: reserved identifier: {name.text}")
            )
        text = f".{name.text}" if dotted else name.text
        opening = self.accept("(")
        if opening is not None:
            return self.call(opening.offset, text, None)
        if self.token.text == "{" and self.token.kind == "sign":
            self.at += 1
            while not self.accept("}"):
                self.accept("?")
                self.name("IDENTIFIER")
                self.expect(":")
                self.expression()
                if not self.accept(","):
                    self.expect("}")
                    break
            return Struct(token.offset, text)
        return Ident(token.offset, text)

    def number(self, token: Token, sign: str, offset: int) -> Node:
        self.at += 1
        text = token.text
        if token.kind == "double":
            return Literal(offset, "double", float(sign + text))
        digits = text[:-1] if token.kind == "uint" else text
        number = int(digits, 16) if digits[:2] == "0x" else parse_decimal(digits, bits=65)
        number = 1 << 65 if number is None else number
        number = -number if sign else number
        low, high = (0, 2**64 - 1) if token.kind == "uint" else (-(2**63), 2**63 - 1)
        if not low <= number <= high:
            self.issues.append(Issue(offset, f"Syntax error: invalid {token.kind} literal"))
        return Literal(offset, token.kind, number)

    def arguments(self, closing: str) -> Iterator[Node]:
        """Parses expressions up to the closing sign, and consumes it."""
        if self.accept(closing):
            return
        while True:
            yield self.expression()
            if self.accept(closing):
                return
            if not self.accept(","):
                self.raise_syntax_error(f"'{closing}'")

    def list_of(self, offset: int) -> Node:
        items: list[Node] = []
        optional: set[int] = set()
        while not self.accept("]"):
            if self.accept("?"):
                optional.add(len(items))
            items.append(self.expression())
            if not self.accept(","):
                self.expect("]")
                break
        return ListOf(offset, items, optional)

    def map_of(self, offset: int) -> Node:
        entries: list[tuple[Node, Node, bool]] = []
        while not self.accept("}"):
            optional = self.accept("?") is not None
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression(), optional))
            if not self.accept(","):
                self.expect("}")
                break
        return MapOf(offset, entries)

    def call(self, offset: int, function: str, target: Node | None) -> Node:
        args = list(self.arguments(")"))
        macro = self.macros.get((function, len(args), target is not None))
        expanded = macro(self, offset, target, args) if macro is not None else None
        return expanded if expanded is not None else Call(offset, function, target, args)

    def refuse(self, offset: int, message: str) -> Node:
        """Records an error in a macro's arguments, and returns a placeholder tree so that parsing
        continues."""
        self.issues.append(Issue(offset, message))
        return Literal(offset, "bool", True)
