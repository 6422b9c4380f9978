"""Converts YAML bodies to JSON and JSON responses to YAML as Go's library writes it.

Bounds nesting, and what aliases stand for. Source: sigs.k8s.io/yaml over go.yaml.in/yaml v2.
"""

from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml

from stower.api.bodies import count_keys, may_repeat
from stower.api.errors import ApiError, bad_request, go_quote
from stower.api.strict_json import read_pairs, strict_faults
from stower.apiserver.go_yaml import Infinite, is_text, is_time, key_text, resolve, sorted_keys

YAML_DEPTH_MAX: Final = 100
FAULTS_MAX: Final = 100  # that are told; arbitrary
# A definition of the largest size has some 50,000 in YAML. Each takes half a KiB and some 20 µs.
YAML_VALUES_MAX: Final = 100_000
# Characters with those that aliases stand for: as many as a body may have without aliases.
YAML_TEXT_MAX: Final = 3 * 1024 * 1024
PREFIX: Final = "tag:yaml.org,2002:"
_STR: Final = f"{PREFIX}str"
_PLAIN: Final = "!plain"  # of scalars without quotes and tag, which Go's rules resolve
_SCALARS: Final = {f"{PREFIX}{name}": name for name in ("bool", "int", "float", "null")}
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "bool": (bool,), "int": (int,), "float": (int, float), "null": (type(None),),
}  # fmt: skip
_INTEGRAL_MAX: Final = 1e21  # Go writes such numbers in JSON without an exponent


class UnreadableYamlError(ApiError):
    """The body is no YAML, or has no JSON: `why` is the text of Go's library."""

    def __init__(self, why: str) -> None:
        self.why = why
        text = " ".join(why.split("\n"))
        super().__init__(400, "BadRequest", f"error converting YAML to JSON: {text}")


@dataclass(frozen=True, slots=True)
class YamlBody:
    """A body as JSON; `repeats`: what a strict reader has against its keys, or ""."""

    json: bytes
    repeats: str = ""


def from_yaml(body: bytes) -> bytes:
    """The body as JSON. Raises what read_yaml raises."""
    return read_yaml(body).json


def read_yaml(body: bytes) -> YamlBody:
    """The first document of a body as JSON; JSON is YAML too, and quicker read as it is if no key
    is there twice.

    Raises UnreadableYamlError, and ApiError 400 or 413 beyond the limits.
    """
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            if not _repeats(body, msgspec.json.decode(body)):
                return YamlBody(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    try:
        node = _Composer().compose(body)
        reader = _Reader()
        value = None if node is None else reader.value(node)
        repeats = "\n  ".join(reader.repeats)
        raw = msgspec.json.encode(value)
        return YamlBody(raw, f"yaml: unmarshal errors:\n  {repeats}" if repeats else "")
    except ApiError:
        raise
    except yaml.MarkedYAMLError as error:
        raise UnreadableYamlError(_go_error(error)) from None
    except Exception as error:  # PyYAML lets through whatever it stumbles over
        text = (str(error) or type(error).__name__).replace("\n", " ")
        raise UnreadableYamlError(f"yaml: {text}") from None


def _repeats(body: bytes, value: Any) -> bool:
    """Whether JSON has a key twice in an object."""
    return may_repeat(body, count_keys(value)) and bool(strict_faults(read_pairs(body), None))


class _Part:
    """A node that is being composed, or that an anchor names, with what it stands for: how many
    values, how many characters, and how many levels of lists and maps."""

    __slots__ = ("children", "is_open", "levels", "node", "text", "values")

    def __init__(self, node: yaml.Node, text: int, levels: int) -> None:
        self.node, self.text, self.levels = node, text, levels
        self.children: list[yaml.Node] = []
        self.is_open = levels > 0
        self.values = 1

    def add(self, part: "_Part") -> None:
        """Put another node into this one."""
        self.children.append(part.node)
        self.values += part.values
        self.text += part.text
        self.levels = max(self.levels, part.levels + 1)


class _Composer:
    """Makes the nodes of the first document, in which an alias is the node that it stands for.

    Aliases make a small text a huge value: what they stand for counts as if it was written out.
    """

    def __init__(self) -> None:
        self._open: list[_Part] = []
        self._anchors: dict[str, _Part] = {}
        self._values = self._text = 0
        self._root: yaml.Node | None = None

    def compose(self, body: bytes) -> yaml.Node | None:
        """The node; None: there is no document. Raises UnreadableYamlError and ApiError."""
        for event in yaml.parse(body, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):
                self._put(self._alias(event.anchor or ""))
            elif isinstance(event, yaml.ScalarEvent):
                tag = _PLAIN if event.implicit[0] else event.tag or _STR
                part = _Part(_node(yaml.ScalarNode, tag, event.value, event), len(event.value), 0)
                if event.anchor is not None:
                    self._anchors[event.anchor] = part
                self._put(part)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._start(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end()
            elif isinstance(event, yaml.DocumentEndEvent):
                break
        return self._root

    def _start(self, event: yaml.CollectionStartEvent) -> None:
        is_map = isinstance(event, yaml.MappingStartEvent)
        tag = event.tag if event.tag not in (None, "!") else f"{PREFIX}{'map' if is_map else 'seq'}"
        kind = yaml.MappingNode if is_map else yaml.SequenceNode
        part = _Part(_node(kind, tag, [], event), 0, 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = part
        self._open.append(part)
        if len(self._open) > YAML_DEPTH_MAX:
            raise _too_deep()

    def _end(self) -> None:
        part = self._open.pop()
        part.is_open = False
        found = part.children
        if isinstance(part.node, yaml.MappingNode):
            part.node.value = list(zip(found[::2], found[1::2], strict=True))
        else:
            part.node.value = found
        self._values -= part.values - 1  # those in it, which are counted with it
        self._text -= part.text
        self._put(part)

    def _alias(self, anchor: str) -> _Part:
        """What an alias stands for. Raises UnreadableYamlError and ApiError."""
        part = self._anchors.get(anchor)
        if part is None:
            raise UnreadableYamlError(f"yaml: unknown anchor '{anchor}' referenced")
        if part.is_open:
            raise UnreadableYamlError(f"yaml: anchor '{anchor}' value contains itself")
        if len(self._open) + part.levels > YAML_DEPTH_MAX:
            raise _too_deep()
        values, text = self._values + part.values, self._text + part.text
        if values > YAML_VALUES_MAX or text > YAML_TEXT_MAX:
            raise UnreadableYamlError("yaml: document contains excessive aliasing")
        return part

    def _put(self, part: _Part) -> None:
        """A whole node takes its place."""
        self._values += part.values
        self._text += part.text
        if self._values > YAML_VALUES_MAX:
            text = f"the body has more than {YAML_VALUES_MAX} values in YAML; send it as JSON"
            raise ApiError(413, "RequestEntityTooLarge", text)
        if self._open:
            self._open[-1].add(part)
        else:
            self._root = part.node


def _node(kind: type[yaml.Node], tag: str, value: Any, event: yaml.Event) -> yaml.Node:
    """A node that starts where an event does."""
    return kind(tag, value, event.start_mark, None)  # type: ignore[arg-type]


def _too_deep() -> ApiError:
    text = f"error converting YAML to JSON: nested more than {YAML_DEPTH_MAX} levels deep"
    return bad_request(text)


def _go_error(error: yaml.MarkedYAMLError) -> str:
    """The error in the words of Go's library, whose lines start at 0 unless its scanner stops."""
    mark, context = error.problem_mark, error.context_mark
    line = 0
    if mark is not None and mark.line:
        line = mark.line + isinstance(error, yaml.scanner.ScannerError)
    elif context is not None:
        line = context.line
    where = f"line {line}: " if line else ""
    return f"yaml: {where}{error.problem or 'unknown problem parsing YAML content'}"


class _Reader:
    """Turns nodes into JSON values, and notes keys that a mapping has twice."""

    def __init__(self) -> None:
        self.repeats: list[str] = []

    def value(self, node: yaml.Node) -> Any:
        """The value of a node. Raises UnreadableYamlError."""
        found = self._value(node)
        if isinstance(found, Infinite):
            raise UnreadableYamlError(f"json: unsupported value: {found}")
        if isinstance(found, float) and found.is_integer() and abs(found) < _INTEGRAL_MAX:
            return int(found)
        return found

    def _value(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.SequenceNode):
            _check_tag(node, "seq")
            return [self.value(item) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            _check_tag(node, "map")
            return self._mapping(node)
        text: str = node.value
        if node.tag == _PLAIN:
            return resolve(text)
        if node.tag == f"{PREFIX}binary":
            return b64decode(text).decode("utf-8", "replace")
        if (name := _SCALARS.get(node.tag)) is not None:
            found = resolve(text)
            if not isinstance(found, _TYPES[name]):
                tag = "str" if isinstance(found, str) else type(found).__name__
                raise UnreadableYamlError(f"yaml: cannot decode !!{tag} `{text}` as a !!{name}")
            return found
        if node.tag == f"{PREFIX}timestamp" and not is_time(text):
            raise UnreadableYamlError(f"yaml: cannot decode !!str `{text}` as a !!timestamp")
        _check_tag(node, "str", "timestamp")
        return text

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        made: dict[str, Any] = {}
        self._fill(node, made, set())
        return made

    def _fill(
        self, node: yaml.MappingNode, made: dict[str, Any], seen: set[tuple[type, str]]
    ) -> None:
        """Sets the keys of a mapping. `seen`: those that are set already."""
        for key_node, value_node in node.value:
            if key_node.tag == _PLAIN and key_node.value == "<<":
                for part in _merged(value_node):
                    self._fill(part, made, seen)
                continue
            key = self._value(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            text = key_text(key)
            if text is None:
                raise UnreadableYamlError(
                    f"unsupported map key of type: {'%!s(<nil>)' if key is None else type(key)}"
                )
            if (type(key), text) in seen:
                shown = go_quote(key) if type(key) is str else text
                line = key_node.start_mark.line + 1
                self.repeats.append(f"line {line}: key {shown} already set in map")
            seen.add((type(key), text))
            made[text] = self.value(value_node)


def _merged(node: yaml.Node) -> Iterator[yaml.MappingNode]:
    """The mappings that a mapping takes in, the first of several last: it wins."""
    parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for part in reversed(parts):
        if not isinstance(part, yaml.MappingNode):
            raise UnreadableYamlError(
                "yaml: map merge requires map or sequence of maps as the value"
            )
        yield part


def _check_tag(node: yaml.Node, *names: str) -> None:
    if node.tag not in [f"{PREFIX}{name}" for name in names]:
        raise UnreadableYamlError(f"yaml: the tag {node.tag} is not accepted")


class _Dumper(yaml.CSafeDumper):
    """Keys in order, text of several lines as a block, text that looks like another type quoted."""


def _text(dumper: Any, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    elif not is_text(text):
        style = '"'
    return yaml.ScalarNode(_STR, text, style=style)


def _map(dumper: Any, value: dict[str, Any]) -> yaml.MappingNode:
    pairs = [
        (dumper.represent_data(name), dumper.represent_data(value[name]))
        for name in sorted_keys(value)
    ]
    return yaml.MappingNode(f"{PREFIX}map", pairs, flow_style=False)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(dict, _map)


def to_yaml(body: bytes) -> bytes:
    """JSON as YAML."""
    value = msgspec.json.decode(body)
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=-1).encode()
