"""Converts YAML bodies to JSON and JSON responses to YAML as Go's library writes it.

Rejects aliases and deep nesting. Source: sigs.k8s.io/yaml over go.yaml.in/yaml v2.
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


class _Anything:
    """A pattern that every text matches."""

    def match(self, text: str) -> bool:
        """Returns True."""
        return True


class _Loader(yaml.CSafeLoader):
    """Leaves the types of plain scalars open."""

    yaml_implicit_resolvers: Final = {None: [(_PLAIN, _Anything())]}  # type: ignore[misc]


def from_yaml(body: bytes) -> bytes:
    """The body as JSON. Raises what read_yaml raises."""
    return read_yaml(body).json


def read_yaml(body: bytes) -> YamlBody:
    """The first document of a body as JSON; JSON is YAML too, and quicker read as it is if no key
    is there twice.

    Without aliases, which can make a small text a huge value, and not deep. Raises
    UnreadableYamlError, and ApiError 400 or 413 beyond the limits.
    """
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            if not _repeats(body, msgspec.json.decode(body)):
                return YamlBody(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    try:
        _check_limits(body)
        loader = _Loader(body)
        try:
            node = loader.get_node() if loader.check_node() else None
        finally:
            loader.dispose()
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


def _check_limits(body: bytes) -> None:
    """Raises ApiError for a body that is too long, deep or has aliases."""
    depth = values = 0
    for event in yaml.parse(body, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise bad_request("error converting YAML to JSON: aliases are not accepted")
        values += isinstance(event, yaml.NodeEvent)
        if values > YAML_VALUES_MAX:
            text = f"the body has more than {YAML_VALUES_MAX} values in YAML; send it as JSON"
            raise ApiError(413, "RequestEntityTooLarge", text)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > YAML_DEPTH_MAX:
            raise bad_request(
                f"error converting YAML to JSON: nested more than {YAML_DEPTH_MAX} levels deep"
            )


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
        seen: set[tuple[type, str]] = set()
        for key_node, value_node in node.value:
            if key_node.tag == _PLAIN and key_node.value == "<<":
                for part in self._merged(value_node):
                    made.update(part)
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
        return made

    def _merged(self, node: yaml.Node) -> Iterator[dict[str, Any]]:
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for part in reversed(parts):  # the first of several wins
            if not isinstance(part, yaml.MappingNode):
                raise UnreadableYamlError(
                    "yaml: map merge requires map or sequence of maps as the value"
                )
            yield self._mapping(part)


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
