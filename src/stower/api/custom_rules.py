"""Applies the rules of schemas (x-kubernetes-validations) to custom resources.

A tree follows the schema as far as there are rules below. Rules are compiled with the tree, once
per version of a definition; an object costs what its rules cost. Broken rules of parts that a
change leaves alone do not count (ratcheting). Source: apiextensions-apiserver
pkg/apiserver/schema/cel/validation.go, Kubernetes 1.36; apiserver pkg/cel/common/equality.go.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from stower.api.errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    OMITTED,
    REQUIRED,
    FieldError,
    format_value,
)
from stower.api.requests import encode
from stower.cel.schema import (
    COST_EXCEEDED,
    Declared,
    Rule,
    Scope,
    declare,
    evaluate,
    optional_value,
    with_metadata,
)
from stower.cel.types import BOOL, STRING
from stower.cel.values import NO_OVERLOAD, CelError, CostExceededError

Object = dict[str, Any]
# Of all rules of one object, in units of work: two seconds at worst. Upstream's budget is 10 times
# the limit of one evaluation, and other requests do not wait for it.
BUDGET: Final = 3_000_000
MESSAGE_BYTES_MAX: Final = 5 * 1024
OUT_OF_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)
_EXCEEDED: Final = (
    "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {}"
)
_REASONS: Final = (FORBIDDEN, REQUIRED, DUPLICATE)
RULES: Final = "x-kubernetes-validations"
_NO_OLD: Final = object()


class Compiled(NamedTuple):
    """A rule of a schema: its text, its program, and that of its message."""

    spec: Object
    rule: Rule
    message: Rule | None
    field_path: str

    @property
    def text(self) -> str:
        """The rule in messages."""
        return str(self.spec.get("message") or self.spec["rule"]).strip()


class Part:
    """A part of a schema with rules of its own or below."""

    __slots__ = ("convert", "extra", "items", "keys", "properties", "rules", "schema")

    def __init__(self, schema: Object) -> None:
        self.schema = schema
        self.convert: Any = None
        self.rules: tuple[Compiled, ...] = ()
        self.properties: dict[str, Part] = {}
        self.items: Part | None = None
        self.extra: Part | None = None
        is_map = schema.get("x-kubernetes-list-type") == "map"
        self.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if is_map else ()


class BadPathError(Exception):
    """The fieldPath of a rule leads to no field. Its text says why."""


class Rules(NamedTuple):
    """The rules of a schema, without those of its parts, and the schema as a type."""

    declared: Declared
    rules: tuple[Compiled, ...]


COMPILED_MAX: Final = 512  # schemas with rules; arbitrary: a large definition has some 50
_compiled: Final[dict[bytes, Rules]] = {}


def compile_rules(schema: Object, is_root: bool) -> Rules | None:
    """Returns the compiled rules of a schema; None: it cannot be declared. `is_root`: whether it is
    the schema of a resource. Results are cached: a definition is checked before it is used."""
    key = hashlib.sha256(encode((schema, is_root))).digest()
    found = _compiled.get(key)
    if found is None:
        declared = declare(schema, is_root)
        if declared is None:
            return None
        found = _compiled[key] = Rules(declared, _compile(schema, declared))
        if len(_compiled) > COMPILED_MAX:
            del _compiled[next(iter(_compiled))]
    return found


def _compile(schema: Object, declared: Declared) -> tuple[Compiled, ...]:
    scope = Scope(declared)
    found = []
    for spec in schema.get(RULES) or ():
        is_optional = bool(spec.get("optionalOldSelf"))
        rule = scope.compile(spec.get("rule") or "", BOOL, is_optional)
        message = None
        if spec.get("messageExpression") and rule.error is None and rule.run is not None:
            message = scope.compile(spec["messageExpression"], STRING, is_optional)
        path = ""
        if spec.get("fieldPath"):
            try:
                path = field_path(spec["fieldPath"], schema)
            except BadPathError:
                path = ""
        found.append(Compiled(spec, rule, message, path))
    return tuple(found)


def rules_of(schema: Object, is_root: bool = True) -> Part | None:
    """Returns the rules of a schema; None: there are none. `is_root`: whether it is the schema of a
    resource."""
    return _part(schema, is_root)


def _part(schema: Object, is_root: bool) -> Part | None:
    part = Part(schema)
    if schema.get(RULES):
        found = compile_rules(schema, is_root)
        if found is None:
            return None
        part.convert, part.rules = found.declared.convert, found.rules
        if is_root:
            part.schema = with_metadata(schema)
    for name, inner in (schema.get("properties") or {}).items():
        if (below := _nested(inner)) is not None:
            part.properties[name] = below
    for word, slot in (("items", "items"), ("additionalProperties", "extra")):
        if isinstance(schema.get(word), dict):
            setattr(part, slot, _nested(schema[word]))
    has_any = part.rules or part.properties or part.items or part.extra
    return part if has_any else None


def _nested(schema: Object) -> Part | None:
    return _part(schema, bool(schema.get("x-kubernetes-embedded-resource")))


class Ratchet(NamedTuple):
    """What a part was before a change: its old value, where that is known, and whether a part
    around it is unchanged."""

    old: Any = _NO_OLD
    is_unchanged: bool = False

    def tolerates(self, value: Any) -> bool:
        """Whether the part is as it was."""
        return self.is_unchanged or (self.old is not _NO_OLD and self.old == value)


class Checker:
    """Evaluates the rules of one object."""

    def __init__(self) -> None:
        self.left = BUDGET
        self.found: list[FieldError] = []

    def check(self, part: Part, path: str, value: Any, old: Any, ratchet: Ratchet) -> None:
        """Adds what the rules of a part have against a value. `old`: None where there is none."""
        if value is None or self.left < 0:
            return
        if part.rules:
            self._evaluate(part, path, value, old, ratchet)
        if self.left < 0:
            return
        find_old = _old_children(part, old)
        is_unchanged = (old is not None or ratchet.is_unchanged) and ratchet.tolerates(value)
        for name, below, inner, key in _children(part, value):
            if self.left < 0:
                return
            was = find_old(key, inner)
            correlated = Ratchet(_NO_OLD if was is None else was, is_unchanged)
            self.check(below, f"{path}{name}" if path else name.lstrip("."), inner, was, correlated)

    def _evaluate(self, part: Part, path: str, value: Any, old: Any, ratchet: Ratchet) -> None:
        kind = part.schema.get("type", "")
        at = path or "<nil>"
        if self.left <= 0:
            self._stop(FieldError(INVALID, at, kind, OUT_OF_BUDGET))
            return
        convert = part.convert or (lambda given: given)
        for compiled in part.rules:
            rule = compiled.rule
            is_optional = bool(compiled.spec.get("optionalOldSelf"))
            if rule.error is not None:
                text = f"rule compile error: {rule.error}"
                self.found.append(FieldError(INVALID, at, kind, text))
            if rule.run is None or (rule.uses_old and old is None and not is_optional):
                continue
            try:
                seen = convert(value)
                before = convert(old) if rule.uses_old and old is not None else None
                if is_optional:
                    before = optional_value(before, old is not None)
                result, cost = evaluate(rule.run, seen, before)
            except CelError as error:
                self.found.append(FieldError(INVALID, at, kind, _failure(str(error), compiled)))
                continue
            except CostExceededError:
                text = _EXCEEDED.format(COST_EXCEEDED, compiled.text)
                self._stop(FieldError(INVALID, at, kind, text))
                return
            self.left -= cost
            if self.left < 0:
                self._stop(FieldError(INVALID, at, kind, OUT_OF_BUDGET))
                return
            if result is not True:
                given = OMITTED if kind in ("object", "array") else value
                broken = self._error(compiled, path, given, kind, (seen, before))
                if rule.uses_old or not ratchet.tolerates(value):
                    self.found.append(broken)
                if self.left < 0:
                    return

    def _stop(self, error: FieldError) -> None:
        self.found.append(error)
        self.left = -1

    def _error(
        self, compiled: Compiled, path: str, value: Any, kind: str, seen: tuple[Any, Any]
    ) -> FieldError:
        """Returns the error of a broken rule."""
        at = f"{path}{compiled.field_path}" if path else compiled.field_path.lstrip(".")
        at = at or "<nil>"
        text: str | None = None
        message = compiled.message
        if message is not None and message.run is not None:
            try:
                found, cost = evaluate(message.run, *seen)
                text = _message(found)
                self.left -= cost
            except CelError:
                text = None
            except CostExceededError:
                self.left = -1
                text = (
                    "no further validation rules will be run due to call cost exceeds limit for "
                    f'messageExpression: "{compiled.spec["messageExpression"]}"'
                )
                return FieldError(INVALID, at, kind, text)
        if text is None:
            text = str(compiled.spec.get("message") or "").strip()
            text = text or f"failed rule: {compiled.text}"
        reason = compiled.spec.get("reason") or INVALID
        return FieldError(reason if reason in _REASONS else INVALID, at, value, text)


def rule_faults(part: Part, item: Object, old: Object | None) -> list[FieldError]:
    """Returns what the rules of a resource have against an object, and a change of it."""
    checker = Checker()
    ratchet = Ratchet(old) if old is not None else Ratchet()
    checker.check(part, "", item, old, ratchet)
    return checker.found


def _failure(error: str, compiled: Compiled) -> str:
    if error.startswith(NO_OVERLOAD):
        return (
            f"'{error}': call arguments did not match a supported operator, function or macro "
            f"signature for rule: {compiled.text}"
        )
    return f"{error} evaluating rule: {compiled.text}"


def _message(found: Any) -> str | None:
    """Returns the value of a messageExpression; None: the message of the rule is told instead."""
    text = found.strip() if isinstance(found, str) else ""
    if not text or "\n" in text or len(text.encode()) > MESSAGE_BYTES_MAX:
        return None
    return text


def _children(part: Part, value: Any) -> Iterator[tuple[str, Part, Any, Any]]:
    """The name, rules and value of each part of a value that has rules, and its key or index."""
    if isinstance(value, list):
        if part.items is not None:
            for i, inner in enumerate(value):
                yield f"[{i}]", part.items, inner, i
    elif isinstance(value, dict):
        if part.extra is not None:
            for name, inner in value.items():
                yield f"[{name}]", part.extra, inner, name
        for name, below in part.properties.items():
            if name in value:
                yield f".{name}", below, value[name], name


def _no_child(key: Any, value: Any) -> Any:
    return None


def _old_children(part: Part, old: Any) -> Callable[[Any, Any], Any]:
    """Finds what was at the place of a part before: by name, or by the keys of a map-like list."""
    if isinstance(old, dict):
        return lambda key, _: old.get(key) if isinstance(key, str) else None
    if not part.keys or not isinstance(old, list):
        return _no_child
    known = {_keys_of(part, item): item for item in old if isinstance(item, dict)}
    return lambda _, value: known.get(_keys_of(part, value)) if isinstance(value, dict) else None


def _keys_of(part: Part, item: Object) -> tuple[str, ...]:
    return tuple(format_value(item.get(name)) for name in part.keys)


def field_path(text: str, schema: Object) -> str:
    """Returns the fieldPath of a rule as it stands in errors: `.a.b`, `['c']` as a name or key.
    Raises BadPathError."""
    found, at = "", 0
    while at < len(text):
        if text[at] == ".":
            end = at + 1
            while end < len(text) and text[end] not in ".[]":
                end += 1
            name = text[at + 1 : end]
        elif text[at] == "[":
            end = text.find("']", at + 2)
            while end > 0 and text[end - 1] == "\\":
                end = text.find("']", end + 1)
            if text[at + 1 : at + 2] != "'" or end < 0:
                raise BadPathError("expected single quoted string in brackets")
            name = text[at + 2 : end].replace("\\'", "'").replace("\\\\", "\\")
            end += 2
        else:
            raise BadPathError(f"expected [ or . but got: {text[at:]}")
        properties, extra = schema.get("properties"), schema.get("additionalProperties")
        if properties:
            if name not in properties:
                raise BadPathError("does not refer to a valid field")
            found, schema = f"{found}.{name}", properties[name]
        elif isinstance(extra, dict):
            found, schema = f"{found}[{name}]", extra
        else:
            raise BadPathError("does not refer to a valid field")
        at = end
    return found
