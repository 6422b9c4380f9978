"""Converts YAML bodies to JSON and JSON responses to YAML as Go's library writes it.

Rejects aliases and deep nesting. Source: sigs.k8s.io/yaml over go-yaml v2.
"""

import re
from typing import Any, Final

import msgspec
import yaml

from stower.api.errors import ApiError, bad_request

YAML_DEPTH_MAX: Final = 100
FAULTS_MAX: Final = 100  # that are told; arbitrary
# A definition of the largest size has some 50,000 in YAML. Each takes half a KiB and some 20 µs.
YAML_VALUES_MAX: Final = 100_000
# What go-yaml reads as something else than text, beyond what PyYAML does.
_OTHER: Final = re.compile(
    r"[yYnN]|[-+]?(?:\d[\d_]*+(?:\.\d++|(?<=\d))|\.\d++)(?:[eE][-+]?\d++)?|0[xX][\da-fA-F]+|0[oO]?[0-7]+|0b[01]+"
)


class _Keys:
    """Finds keys that a map of a YAML text has twice, in the words of go-yaml."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        # Of each collection around: the keys of a map, None for a list.
        self._maps: list[set[str] | None] = []
        self._is_key: list[bool] = []

    def see(self, event: Any) -> None:
        """Takes one event of the parser."""
        if isinstance(event, yaml.CollectionEndEvent):
            self._maps.pop()
            self._is_key.pop()
            return
        if not isinstance(event, yaml.NodeEvent):
            return
        keys = self._maps[-1] if self._maps else None
        if keys is not None:
            if self._is_key[-1] and isinstance(event, yaml.ScalarEvent):
                if event.value in keys and len(self.faults) < FAULTS_MAX:
                    mark: Any = event.start_mark
                    text = f'line {mark.line + 1}: key "{event.value}" already set in map'
                    self.faults.append(text)
                keys.add(event.value)
            self._is_key[-1] = not self._is_key[-1]
        if isinstance(event, yaml.CollectionStartEvent):
            self._maps.append(set() if isinstance(event, yaml.MappingStartEvent) else None)
            self._is_key.append(True)


def from_yaml(body: bytes, faults: list[str] | None = None) -> bytes:
    """The body as JSON; JSON is YAML too, and quicker read as it is. Raises ApiError 400.

    Without aliases, which can make a small text a huge value, and not deep. `faults` fills with
    keys that are there twice, of which the last value counts.
    """
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            msgspec.json.decode(body)
            return body
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    try:
        depth = values = 0
        keys = _Keys()
        for event in yaml.parse(body, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise bad_request("error converting YAML to JSON: aliases are not accepted")
            keys.see(event)
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
        if faults is not None:
            faults += keys.faults
        return msgspec.json.encode(yaml.load(body, Loader=yaml.CSafeLoader))
    except ApiError:
        raise
    except Exception as error:  # PyYAML lets through whatever a constructor stumbles over
        text = (str(error) or type(error).__name__).replace("\n", " ")
        raise bad_request(f"error converting YAML to JSON: {text}") from None


class _Dumper(yaml.CSafeDumper):
    """Keys in order, text of several lines as a block, text that looks like another type quoted."""


def _text(dumper: Any, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    elif _OTHER.fullmatch(text) or _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)) != _STR:
        style = '"'
    return yaml.ScalarNode(_STR, text, style=style)


_STR: Final = "tag:yaml.org,2002:str"
_RESOLVER: Any = yaml.resolver.Resolver()
_Dumper.add_representer(str, _text)


def to_yaml(body: bytes) -> bytes:
    """JSON as YAML."""
    value = msgspec.json.decode(body)
    return yaml.dump(value, Dumper=_Dumper, sort_keys=True, allow_unicode=True, width=-1).encode()
