"""Validates values of custom resources against their schemas.

Errors, their order and their texts are those of the validators that upstream calls one after the
other: type, combinations, text, format, number, list, enum, object. Source: kube-openapi
pkg/validation/validate; apiextensions-apiserver pkg/apiserver/validation and schema/listtype,
Kubernetes 1.36.
"""

import sys
from collections.abc import Iterator
from typing import Any, Final

from stower.api.custom_numbers import is_whole, number_faults
from stower.api.custom_schema import get_field_schema
from stower.api.errors import (
    DUPLICATE,
    INVALID,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    TYPE_INVALID,
    FieldError,
    format_value,
    go_quote,
    unsupported,
)
from stower.api.formats import RULES, is_of_format
from stower.cel.patterns import BadPatternError, Pattern, compile_pattern

Object = dict[str, Any]
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_PLAIN: Final = frozenset(("type", "description", "maxLength", "minLength", "pattern"))
# Of one object: instructions of patterns times bytes, a second at worst. Texts of 1 MiB may have
# patterns of 140 instructions; most have 10 to 30.
PATTERN_WORK_MAX: Final = 150_000_000
UNKNOWN: Final = object()  # an old value that there is not
_NUMBERS: Final = {"integer": ("int32", "int64"), "number": ("float", "double")}
_SCHEMAS: Final = {  # type and format of JSON values, as Go decodes them
    bool: ("boolean", ""), str: ("string", ""), int: ("integer", "int64"),
    float: ("number", "float64"), list: ("array", ""), dict: ("object", ""),
}  # fmt: skip


class _TooMuchWorkError(Exception):
    """The patterns of a schema take too long on an object. Its text is the path of a value."""


class _PatternWork:
    """What patterns may still cost for one object. RE2 takes time in proportion to the length of
    the text times the size of the pattern."""

    def __init__(self) -> None:
        self._left = PATTERN_WORK_MAX

    def match(self, wanted: str, text: str, at: str) -> bool | None:
        """Returns whether a pattern occurs in a text; None for one that is no regular expression,
        as definitions of earlier servers may have one. Raises _TooMuchWorkError."""
        try:
            pattern = compile_pattern(wanted)
        except BadPatternError:
            return None
        if not self.take(pattern, len(text) if text.isascii() else len(text.encode())):
            raise _TooMuchWorkError(at)
        return pattern.occurs_in(text)

    def take(self, pattern: Pattern, length: int) -> bool:
        """Counts the work on so many bytes; returns whether it may be done."""
        if pattern.size * length > self._left:
            return False
        self._left -= pattern.size * length
        return True


def value_faults(schema: Object, value: Any, path: str, old: Any = UNKNOWN) -> list[FieldError]:
    """Returns what a schema has against a value. `old`: of a change, of which parts that are as
    they were are not checked. Source: apiextensions-apiserver
    pkg/apiserver/validation/ratcheting.go."""
    validator = _Validator()
    try:
        validator.check(schema, value, path, old)
    except _TooMuchWorkError as error:
        text = "the patterns of the definition take too long on this object; shorten its texts"
        validator.found.append(FieldError(INVALID, str(error), "", text))
    return validator.found


class _Validator:
    """Validates one value. Each function returns how many checks have passed, by which upstream
    finds the alternative that was meant."""

    def __init__(self) -> None:
        self.found: list[FieldError] = []
        self.work = _PatternWork()

    def add(self, kind: str, path: str, value: Any, text: str) -> None:
        self.found.append(FieldError(kind, path or "<nil>", value, text))

    def add_whole(self, text: str) -> None:
        """Adds an error that upstream has for no field."""
        self.add(INVALID, "", "", text)

    def check(self, schema: Object, value: Any, path: str, old: Any = UNKNOWN) -> int:
        if old is not UNKNOWN and old == value:
            return 1
        return self.match(schema, value, path, old)

    def match(self, schema: Object, value: Any, path: str, old: Any) -> int:
        """Checks a value even if it is as it was, but not its parts that are."""
        types = _types(schema)
        form = _format(schema, types)
        passed = self.check_type(types, form, schema, value, path) if types or form else 0
        if value is None:
            self.check_choice(schema, value, path)
            return passed
        passed += bool(types or form)
        passed += self.check_combinations(schema, value, path, old) + 4
        if isinstance(value, str):
            self.check_text(schema, value, path)
            passed += 1
            if form.replace("-", "") in RULES:
                passed += 1
                if not is_of_format(value, form):
                    text = f"{path} in body must be of type {form}: {go_quote(value)}"
                    self.add(TYPE_INVALID, path, value, text)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            kind = types[0] if len(types) == 1 else ""
            is_own = form in _NUMBERS.get(kind, ())
            self.found += number_faults(schema, value, path, kind, form if is_own else "")
            passed += 2
        elif isinstance(value, list):
            passed += self.check_list(schema, value, path, old) + 2
        self.check_choice(schema, value, path)
        if isinstance(value, dict):
            passed += self.check_object(schema, value, path, old) + 1
        return passed

    def check_type(self, types: list[str], form: str, schema: Object, value: Any, path: str) -> int:
        if value is None:
            if not types or schema.get("nullable"):
                return 1
            found = "null"
        else:
            found, own_form = _SCHEMAS.get(type(value), ("object", ""))
            is_text = isinstance(value, str | list)
            fits = found in types or (
                found == "number" and "integer" in types and is_whole(value)
            ) or (found == "integer" and "number" in types)  # fmt: skip
            if form and not is_text and not fits and own_form != form:
                text = f"{path} in body must be of type {form}: {go_quote(own_form)}"
                self.add(TYPE_INVALID, path, own_form, text)
                return 0
            if fits or (form and is_text and not {"number", "integer"}.intersection(types)):
                return 1
        text = f"{path} in body must be of type {','.join(types)}: {go_quote(found)}"
        self.add(TYPE_INVALID, path, found, text)
        return 0

    def check_combinations(self, schema: Object, value: Any, path: str, old: Any) -> int:
        passed = 0
        if schema.get("anyOf"):
            valid, count = self.alternatives(schema["anyOf"], value, path, old, True)
            passed += count
            if not valid:
                self.add_whole(f"{go_quote(path)} must validate at least one schema (anyOf)")
                self.found += self.best
        if schema.get("oneOf"):
            valid, count = self.alternatives(schema["oneOf"], value, path, old, False)
            passed += count
            if valid != 1:
                told = f"Found {valid} valid alternatives" if valid else "Found none valid"
                text = f"{go_quote(path)} must validate one and only one schema (oneOf). {told}"
                self.add_whole(text)
                self.found += self.best
        if schema.get("allOf"):
            right = 0
            for inner in schema["allOf"]:
                before = len(self.found)
                passed += self.match(inner, value, path, old)
                right += len(self.found) == before
            if right < len(schema["allOf"]):
                none = "" if right else ". None validated"
                self.add_whole(f"{go_quote(path)} must validate all the schemas (allOf){none}")
        if schema.get("not") is not None:
            before = len(self.found)
            self.match(schema["not"], value, path, old)
            is_valid = len(self.found) == before
            del self.found[before:]
            if is_valid:
                self.add_whole(f"{go_quote(path)} must not validate the schema (not)")
        return passed

    def alternatives(
        self, options: list[Object], value: Any, path: str, old: Any, one_is_enough: bool
    ) -> tuple[int, int]:
        """Returns how many alternatives are valid, and how many checks have passed in the first of
        them or in the one that was meant, whose errors are `best`."""
        valid, count = 0, -1
        self.best: list[FieldError] = []
        outer, self.found = self.found, []
        for option in options:
            passed = self.match(option, value, path, old)
            if not self.found:
                count, self.best = (passed if not valid else count), []
                valid += 1
                if one_is_enough:
                    break
            elif not valid and passed > count:
                count, self.best = passed, self.found
            self.found = []
        best, self.found = self.best, outer
        self.best = best
        return valid, max(count, 0)

    def check_text(self, schema: Object, value: str, path: str) -> None:
        most, least = schema.get("maxLength"), schema.get("minLength")
        wanted = schema.get("pattern")
        if most is not None and len(value) > most:
            self.add(TOO_LONG, path, "", f"may not be more than {most} bytes")
        elif least is not None and len(value) < least:
            text = f"{path} in body should be at least {least} chars long"
            self.add(INVALID, path, value, text)
        elif wanted and not (found := self.work.match(wanted, value, path or "<nil>")):
            text = f"{path} in body should match '{wanted}'"
            text += "" if found is False else ", but pattern is invalid"
            self.add(INVALID, path, value, text)

    def check_list(self, schema: Object, value: list[Any], path: str, old: Any) -> int:
        passed, items = 0, schema.get("items")
        if isinstance(items, dict) and not _are_plain(items, value, self.work):
            before = _items_by_key(schema, old)
            for i, inner in enumerate(value):
                was = before.get(_keys_of(schema, inner), UNKNOWN) if before else UNKNOWN
                passed += self.check(items, inner, f"{path}[{i}]", was)
        self.check_count(schema, len(value), path, "Items")
        return passed

    def check_count(self, schema: Object, count: int, path: str, name: str) -> None:
        least, most = schema.get(f"min{name}"), schema.get(f"max{name}")
        if least is not None and count < least:
            text = f"{path} in body should have at least {least} {name.lower()}"
            self.add(INVALID, path, count, text)
        if most is not None and count > most:
            text = f"must have at most {most} {'item' if most == 1 else 'items'}"
            self.add(TOO_MANY, path, count, text)

    def check_choice(self, schema: Object, value: Any, path: str) -> None:
        choices = schema.get("enum")
        if choices and not any(_is_choice(value, choice) for choice in choices):
            shown = [c if isinstance(c, str) else format_value(c) for c in choices]
            self.found.append(unsupported(path or "<nil>", value, shown))

    def check_object(self, schema: Object, value: Object, path: str, old: Any) -> int:
        passed = 0
        self.check_count(schema, len(value), path, "Properties")
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        prefix = f"{path}." if path else ""
        before = old if isinstance(old, dict) else {}
        if extra is False:
            for name in value:
                if name not in properties:
                    text = f"{path}.{name} in body is a forbidden property"
                    self.add(INVALID, path, name, text)
        elif isinstance(extra, dict):
            for name, inner in value.items():
                if name not in properties:
                    was = before.get(name, UNKNOWN)
                    passed += self.check(extra, inner, f"{path}.{name}", was)
        for name, below in properties.items():
            if name in value:
                was = before.get(name, UNKNOWN)
                passed += self.check(below, value[name], f"{prefix}{name}", was)
        for name in schema.get("required") or ():
            if name not in value:
                self.found.append(FieldError(REQUIRED, f"{prefix}{name}"))
        return passed


def _types(schema: Object) -> list[str]:
    if schema.get(INT_OR_STRING):
        return ["integer", "string"]
    return [schema["type"]] if schema.get("type") else []


def _format(schema: Object, types: list[str]) -> str:
    """Returns the format of a schema where it means something for the type."""
    form = schema.get("format") or ""
    kind = types[0] if len(types) == 1 else ""
    if kind in ("", "string"):
        return form if form.replace("-", "") in RULES else ""
    return form if form in _NUMBERS.get(kind, ()) else ""


def _is_choice(value: Any, choice: Any) -> bool:
    """Whether a value is one of an enum: numbers are converted to the type of the choice."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if type(choice) is int:
            return int(value) == choice
        return type(choice) is float and float(value) == choice
    return choice is not None and type(value) is type(choice) and bool(value == choice)


def _items_by_key(schema: Object, old: Any) -> dict[Any, Any]:
    """The items of an old map-like list: those of other lists are not told apart."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return {}
    return {_keys_of(schema, item): item for item in old}


def _keys_of(schema: Object, item: Any) -> tuple[str, ...]:
    names = schema.get("x-kubernetes-list-map-keys") or ()
    return tuple(format_value(item.get(n)) if isinstance(item, dict) else "" for n in names)


def _are_plain(schema: Object, values: list[Any], work: _PatternWork) -> bool:
    """Whether all are texts with which nothing is wrong: the common case of long lists, quickly."""
    if schema.get("type") != "string" or not _PLAIN.issuperset(schema):
        return False
    most, least = schema.get("maxLength", sys.maxsize), schema.get("minLength", 0)
    if not all(type(value) is str and least <= len(value) <= most for value in values):
        return False
    wanted = schema.get("pattern")
    if not wanted:
        return True
    try:
        pattern = compile_pattern(wanted)
        if not work.take(pattern, len("".join(values).encode(errors="replace"))):
            return False  # said of the first that is too much
        return all(map(pattern.occurs_in, values))
    except BadPatternError:
        return False


def list_faults(schema: Object, value: Any, path: str) -> Iterator[FieldError]:
    """Items of sets and map-like lists that are there twice."""
    if isinstance(value, dict):
        for name, inner in value.items():
            below = get_field_schema(schema, name)
            if below:
                yield from list_faults(below, inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        items = schema.get("items") or {}
        kind = schema.get("x-kubernetes-list-type")
        if kind not in ("set", "map") and items.get("type") not in ("object", "array"):
            return
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        seen: list[Any] = []
        for i, item in enumerate(value):
            if kind in ("set", "map"):
                own = item
                if kind == "map" and isinstance(item, dict):
                    own = {key: item.get(key) for key in keys}
                if own in seen:
                    yield FieldError(DUPLICATE, f"{path}[{i}]", own)
                seen.append(own)
            yield from list_faults(items, item, f"{path}[{i}]")
