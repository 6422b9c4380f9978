"""Converts YAML text to JSON text as Kubernetes reads YAML, within limits.

Two steps, both lazy: `split_documents` cuts a stream at its `---` and `...` lines, `yaml_values`
turns one such piece into JSON. Values are built from parser events and not by a PyYAML constructor:
only events show depth, aliases and the lines of keys before anything is built from them.

Scalars follow kubectl: `0x1F`, `0o17`, `0b1` and `017` are ints, `1e3` is a number, `y`, `yes`,
`on` and their opposites are booleans, timestamps and `1:30` are text. It is stricter where kubectl
would guess: duplicate keys, keys that are neither text, whole numbers nor booleans, NaN, Infinity
and unknown tags are refused; an explicit key wins over a merged one wherever `<<` stands.

Source: go.yaml.in/yaml/v2 resolve.go, sigs.k8s.io/yaml yaml.go, encoding/json for numbers.

Must not know what a document means.
"""

import math
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, Final

import msgspec
import yaml
from yaml import events

from stower.cli.text_stream import TextError, shorten

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Directives before one `---`. YAML has two kinds, one of them allowed once; the parser compares
# each with all before it, so that an unlimited number would cost quadratic time.
DIRECTIVES_MAX: Final = 16
# Longest plain text tried as a number. No number that a manifest can mean is longer, and turning
# very long digits into a float is not linear.
NUMBER_LENGTH_MAX: Final = 1_000

_MARKER: Final = re.compile(rb"^(?:---|\.\.\.)(?=[ \t\r\n]|\Z)", re.MULTILINE)
_BODY: Final = re.compile(rb"^[ \t]*+[^\s#%]", re.MULTILINE)
_DIRECTIVE: Final = re.compile(rb"^%", re.MULTILINE)

_TAG: Final = "tag:yaml.org,2002:"
_STRING_TAGS: Final = frozenset({"!", _TAG + "str", _TAG + "timestamp"})
_SCALAR_TAGS: Final = frozenset({_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"})

_CASES: Final = (str, str.capitalize, str.upper)
_WORDS: Final[dict[str, bool | None]] = {
    **{cased(word): True for word in ("y", "yes", "true", "on") for cased in _CASES},
    **{cased(word): False for word in ("n", "no", "false", "off") for cased in _CASES},
    **{cased("null"): None for cased in _CASES},
    "~": None,
    "": None,
}
_NOT_FINITE: Final = frozenset(
    f"{sign}.{word}" for sign in ("", "+", "-") for word in ("inf", "Inf", "INF")
) | {".nan", ".NaN", ".NAN"}
# A plain scalar that begins otherwise is text, whatever follows.
_HINTS: Final = frozenset("+-.0123456789yYnNtTfFoO~")
_INT: Final = re.compile(
    r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))"
)
_SEPARATOR: Final = re.compile(r"(?<=[0-9])_(?=[0-9])")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def split_documents(
    blocks: Iterable[bytes | bytearray], bytes_max: int
) -> Iterator[tuple[int, bytearray]]:
    """The documents of a YAML stream as (line of its first byte, text), still unparsed.

    `blocks` are pieces of the stream that end with a line. A document keeps its `---` line, and the
    comments and directives before it; comments at the end of a stream are no document. YAML ends a
    document at such lines even within quotes, so that cutting needs no parser. Raises TextError for
    a document of more than `bytes_max`.
    """
    text, first_line, line, marked = bytearray(), 1, 1, False

    def extend(piece: bytes | bytearray) -> None:
        nonlocal line
        text.extend(piece)
        line += piece.count(b"\n")
        if len(text) > bytes_max:
            raise TextError(f"the document has more than {bytes_max} bytes", first_line, 1)

    for block in blocks:
        start = 0
        for marker in _MARKER.finditer(block):
            extend(block[start : marker.start()])
            start = marker.start()
            if block.startswith(b"---", start):
                if marked or _BODY.search(text):
                    yield first_line, text
                    text, first_line = bytearray(), line
                marked = True
            else:
                newline = block.find(b"\n", start)
                stop = len(block) if newline < 0 else newline + 1
                extend(block[start:stop])
                yield first_line, text
                text, first_line, start, marked = bytearray(), line, stop, False
        extend(block[start:])
    if marked or _BODY.search(text) or _DIRECTIVE.search(text):
        yield first_line, text


def yaml_values(
    text: bytes | bytearray,
    first_line: int,
    *,
    depth_max: int,
    alias_nodes_max: int,
    alias_text_max: int,
) -> Iterator[bytes | None]:
    """The values in one piece of a YAML stream as JSON text; None for an empty document.

    A piece from `split_documents` has one, or several if bare carriage returns end its lines.
    Aliases stay shared while building; what they stand for is counted, nodes and characters, before
    the JSON is written, so that memory is bounded by the limits and not by the expansion. Raises
    TextError.
    """
    marker = _MARKER.search(text)
    if len(_DIRECTIVE.findall(text, 0, marker.start() if marker else len(text))) > DIRECTIVES_MAX:
        raise TextError(f"more than {DIRECTIVES_MAX} directives", first_line, 1)
    builder = _Builder(first_line, depth_max, alias_nodes_max, alias_text_max)
    try:
        for event in yaml.parse(bytes(text), Loader=_LOADER):
            kind = type(event)
            if kind is events.ScalarEvent:
                builder.scalar(event)
            elif kind is events.MappingStartEvent or kind is events.SequenceStartEvent:
                builder.open(event)
            elif kind is events.MappingEndEvent or kind is events.SequenceEndEvent:
                builder.close(event)
            elif kind is events.AliasEvent:
                builder.alias(event)
            elif kind is events.DocumentEndEvent:
                yield builder.take_json()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, first_line) from None
    except yaml.reader.ReaderError as error:
        # The C reader counts bytes, the Python one characters: exact where all before is ASCII.
        before = bytes(text[: error.position])
        line = first_line + before.count(b"\n")
        column = error.position - before.rfind(b"\n")
        raise TextError(f"{error.reason} (0x{error.character:02x})", line, column) from None


def _syntax_error(
    error: yaml.MarkedYAMLError, text: bytes | bytearray, first_line: int
) -> TextError:
    mark = error.problem_mark or error.context_mark
    message = error.problem or error.context or "cannot be read"
    if mark is None:
        return TextError(message)
    lines = text.split(b"\n", mark.line + 1)
    if "start any token" in message and mark.line < len(lines):
        rest = bytes(lines[mark.line]).decode(errors="replace")[mark.column :]
        message = "a tab cannot indent or begin a value" if rest[:1] == "\t" else message
    elif error.context and error.context_mark is not None and error.problem:
        message = f"{error.problem}, {error.context} of line {first_line + error.context_mark.line}"
    return TextError(message, first_line + mark.line, mark.column + 1)


class _Node:
    """A collection that is being built, or anything that an anchor names.

    `nodes`, `text` and `deepest` are running totals of the document while it is open, and what it
    alone holds (with `deepest` as its height) once it is `closed`.
    """

    __slots__ = ("closed", "deepest", "key", "merge", "merging", "nodes", "text", "value")

    def __init__(self, value: Any, nodes: int, text: int, deepest: int, closed: bool) -> None:
        self.value = value
        self.nodes = nodes
        self.text = text
        self.deepest = deepest
        self.closed = closed
        self.key: str | None = None  # of a mapping: met, its value not yet
        self.merging = False  # that key is `<<`
        self.merge: Any = None  # what `<<` brings in: a mapping or a sequence of them


class _Builder:
    """Builds one document after another from parser events."""

    def __init__(
        self, first_line: int, depth_max: int, alias_nodes_max: int, alias_text_max: int
    ) -> None:
        self._first_line = first_line
        self._depth_max = depth_max
        self._alias_nodes_max = alias_nodes_max
        self._alias_text_max = alias_text_max
        self._reset()

    def _reset(self) -> None:
        self._root: Any = None
        self._stack: list[_Node] = []
        self._anchors: dict[str, _Node] = {}
        self._nodes = self._text = 0
        self._alias_nodes = self._alias_text = 0

    def take_json(self) -> bytes | None:
        """The finished document, and a fresh start. Shared values are written out here."""
        root = self._root
        self._reset()
        try:
            return None if root is None else msgspec.json.encode(root)
        except UnicodeEncodeError:
            raise TextError("half of a surrogate pair is not a character") from None

    def scalar(self, event: Any) -> None:
        text: str = event.value
        tag: str | None = event.tag
        self._nodes += 1
        self._text += len(text)
        if tag is not None:
            value = self._build_tagged(event, tag, text)
        elif event.implicit[0]:
            top = self._stack[-1] if self._stack else None
            if text == "<<" and top is not None and type(top.value) is dict and top.key is None:
                self._begin_merge(top, event)
                return
            if text in _NOT_FINITE:
                raise self._error(f"got {text}, want a finite number", event)
            value = plain_scalar(text)
        else:
            value = text
        if event.anchor is not None:
            self._anchors[event.anchor] = _Node(value, 1, len(text), 0, closed=True)
        self._place(value, event)

    def open(self, event: Any) -> None:
        value: Any = {} if type(event) is events.MappingStartEvent else []
        expected = _TAG + ("map" if type(value) is dict else "seq")
        if event.tag not in (None, "!", expected):
            raise self._tag_error(event)
        depth = len(self._stack) + 1
        if depth > self._depth_max:
            raise self._too_deep(event)
        top = self._stack[-1] if self._stack else None
        if top is not None and type(top.value) is dict and top.key is None:
            raise self._error("a mapping or sequence cannot be a key", event)
        node = _Node(value, self._nodes, self._text, depth, closed=False)
        self._nodes += 1
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._stack.append(node)

    def close(self, event: Any) -> None:
        node = self._stack[-1]
        if node.merge is not None:
            self._merge(node, event)
        self._stack.pop()
        if self._stack:
            parent = self._stack[-1]
            parent.deepest = max(parent.deepest, node.deepest)
        node.nodes = self._nodes - node.nodes
        node.text = self._text - node.text
        node.deepest -= len(self._stack)
        node.closed = True
        self._place(node.value, event)

    def alias(self, event: Any) -> None:
        node = self._anchors.get(event.anchor)
        if node is None:
            raise self._error(f"no anchor &{shorten(event.anchor)} before this alias", event)
        if not node.closed:
            raise self._error(f"the anchor &{shorten(event.anchor)} contains itself", event)
        self._nodes += node.nodes
        self._text += node.text
        self._alias_nodes += node.nodes
        self._alias_text += node.text
        if self._alias_nodes > self._alias_nodes_max:
            message = f"aliases expand to more than {self._alias_nodes_max} values"
            raise self._error(message, event)
        if self._alias_text > self._alias_text_max:
            message = f"aliases expand to more than {self._alias_text_max} characters"
            raise self._error(message, event)
        if self._stack:
            parent = self._stack[-1]
            parent.deepest = max(parent.deepest, len(self._stack) + node.deepest)
            if parent.deepest > self._depth_max:
                raise self._too_deep(event)
        self._place(node.value, event)

    def _place(self, value: Any, event: Any) -> None:
        """Put a value where the parser is: the root, the end of a sequence, a key, or its value."""
        if not self._stack:
            self._root = value
            return
        parent = self._stack[-1]
        container = parent.value
        if type(container) is list:
            container.append(value)
        elif parent.key is None:
            key = self._key(value, event)
            if key in container:
                parent.key = key  # so that the path in the error names it
                raise self._error(f'duplicate key "{shorten(key)}"', event)
            parent.key = key
        elif parent.merging:
            if type(value) is not dict and type(value) is not list:
                raise self._error("want a mapping or a sequence of mappings to merge", event)
            parent.merge, parent.merging, parent.key = value, False, None
        else:
            container[parent.key] = value
            parent.key = None

    def _begin_merge(self, node: _Node, event: Any) -> None:
        node.key = "<<"
        if node.merge is not None:
            raise self._error('duplicate key "<<"', event)
        node.merging = True

    def _merge(self, node: _Node, event: Any) -> None:
        """Add what `<<` names: an explicit key wins, then the earlier mapping."""
        sources = [node.merge] if type(node.merge) is dict else node.merge
        for source in sources:
            if type(source) is not dict:
                node.key = "<<"
                raise self._error("want a mapping or a sequence of mappings to merge", event)
            for key, value in source.items():
                node.value.setdefault(key, value)

    def _key(self, value: Any, event: Any) -> str:
        if type(value) is str:
            return value
        if type(value) is bool:
            return "true" if value else "false"
        if type(value) is int:
            return str(value)
        text = shorten(event.value) if type(event) is events.ScalarEvent else "an alias"
        raise self._error(f'got "{text}" as a key, want text (put it in quotes)', event)

    def _build_tagged(self, event: Any, tag: str, text: str) -> Any:
        """A scalar with an explicit tag, which its text must agree with."""
        if tag in _STRING_TAGS:
            return text
        if tag not in _SCALAR_TAGS:
            raise self._tag_error(event)
        want = tag.removeprefix(_TAG)
        value = plain_scalar(text)
        if want == "float" and type(value) is int:
            value = msgspec.Raw(json_number(float(value)))
        types = {"int": int, "float": msgspec.Raw, "bool": bool, "null": type(None)}
        if type(value) is not types[want]:
            raise self._error(f'got "{shorten(text)}", want a value of the tag !!{want}', event)
        return value

    def _error(self, message: str, event: Any) -> TextError:
        mark = event.start_mark
        return TextError(message, self._first_line + mark.line, mark.column + 1, self._path())

    def _tag_error(self, event: Any) -> TextError:
        tag = shorten(event.tag.replace(_TAG, "!!"))
        return self._error(f"the tag {tag} is not allowed", event)

    def _too_deep(self, event: Any) -> TextError:
        mark = event.start_mark  # without the path, which would be as deep
        message = f"nested deeper than {self._depth_max} levels"
        return TextError(message, self._first_line + mark.line, mark.column + 1)

    def _path(self) -> str | None:
        """Where the parser is, as Kubernetes writes paths: `metadata.labels[app.io/name]`."""
        path = ""
        for node in self._stack:
            if type(node.value) is list:
                path += f"[{len(node.value)}]"
            elif node.key is not None:
                plain = _PLAIN_KEY.fullmatch(node.key)
                path += f".{node.key}" if plain else f"[{shorten(node.key)}]"
        return path.removeprefix(".") or None


def plain_scalar(text: str) -> str | int | bool | msgspec.Raw | None:
    """What an unquoted scalar means; a number with a fraction or exponent comes as its JSON text.

    Numbers beyond 64 bits become floats and those beyond float64 stay text, as in Go.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _HINTS or len(text) > NUMBER_LENGTH_MAX:
        return text
    digits = _SEPARATOR.sub("", text) if text[0] == "." else text.replace("_", "")
    match = _INT.fullmatch(digits)
    if match:
        sign, hexadecimal, binary, octal, decimal = match.groups()
        if hexadecimal:
            value = int(hexadecimal, 16)
        elif binary:
            value = int(binary, 2)
        else:
            value = int(octal, 8) if octal else int(decimal)
        if value < 2**63 or (not sign and value < 2**64) or (sign == "-" and value == 2**63):
            return -value if sign == "-" else value
    if _FLOAT.fullmatch(digits):
        number = float(digits)
        if not math.isinf(number):
            return msgspec.Raw(json_number(number))
    return text


def json_number(value: float) -> bytes:
    """A finite float as Go's encoding/json writes it: 1.0 is `1`, 1e-5 is `0.00001`."""
    if value != 0 and not 1e-6 <= abs(value) < 1e21:
        return repr(value).replace("e-0", "e-").encode()
    if value == 0:
        return b"-0" if math.copysign(1, value) < 0 else b"0"
    return format(Decimal(repr(value)).normalize(), "f").encode()
