"""Compiles and evaluates rules of schemas (x-kubernetes-validations): the CEL environment that
Kubernetes gives to CustomResourceDefinitions, with the variables `self` and `oldSelf`.

A schema is declared as a CEL type; fields that CEL cannot express are left out. Must not know which
objects have rules, or what a broken rule means. Source: apiextensions-apiserver
pkg/apiserver/schema/cel/compilation.go; apiserver pkg/cel/common/schemas.go and
valuesunstructured.go, pkg/cel/escaping.go, pkg/cel/limits.go, pkg/apis/cel/config.go.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from stower.cel.checker import CheckedTree, Checker, Environment
from stower.cel.cost import MOST, Path, estimate
from stower.cel.library_times import to_duration, to_timestamp
from stower.cel.literals import check_literals, children
from stower.cel.macros import MACROS
from stower.cel.program import Instantiation, Run, build
from stower.cel.syntax import CompileError, Ident, Node, Parser, explain
from stower.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    SELF,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
    optional_of,
)
from stower.cel.values import (
    NOTHING,
    CelError,
    CostExceededError,
    Duration,
    MapList,
    OptionalValue,
    SetList,
    begin_work,
    spent_work,
)

Object = dict[str, Any]
Convert = Callable[[Any], Any]
COST_MAX: Final = 1_000_000  # PerCallLimit: of one evaluation
COST_EXCEEDED: Final = "operation cancelled: actual cost limit exceeded"
REQUEST_BYTES_MAX: Final = 3 * 1024 * 1024
EXPRESSION_BYTES_MAX: Final = 16_384  # arbitrary: upstream bounds the definition alone
_TEXT_MAX: Final = REQUEST_BYTES_MAX - 2
_TIME_MAX: Final = 32
_DATE: Final = 12
# Formats of texts that CEL has types for: the type, the least size and the most as JSON.
_FORMATS: Final = {
    "byte": (BYTES, 2, _TEXT_MAX),
    "duration": (DURATION, 3, _TIME_MAX),
    "date": (TIMESTAMP, _DATE, _DATE),
    "date-time": (TIMESTAMP, 21, _TIME_MAX),
}
_RESERVED: Final = frozenset(
    "true false null in as break const continue else for function if import let loop package "
    "namespace return var void while".split()
)
_ESCAPED: Final = re.compile(r"__|[-./]")
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_NAME: Final = re.compile(r"[a-zA-Z_./-][a-zA-Z0-9_./-]*\Z")
_META: Final = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}},
}


def escape(name: str) -> str | None:
    """Returns the name of a field in expressions; None: it has none."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _NAME.match(name):
        return None
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], name)


class Declared(NamedTuple):
    """A schema as a CEL type. `size_max`: the most items, or characters; `bytes_min`: of the value
    as JSON; `convert`: makes the CEL value, None where the JSON value is one."""

    type: Type
    size_max: int = 0
    bytes_min: int = 0
    convert: Convert | None = None
    fields: "Mapping[str, Declared] | None" = None
    item: "Declared | None" = None


class Rule(NamedTuple):
    """A compiled expression, or the reason why it does not compile; both are None for an empty
    one. `cost`: at worst."""

    run: Run | None = None
    error: str | None = None
    cost: int = 0
    uses_old: bool = False


def with_metadata(schema: Object) -> Object:
    """Returns the schema of a resource with the fields of metadata that rules may use."""
    text = {"type": "string"}
    properties = schema.get("properties") or {}
    added = {"kind": text, "apiVersion": text, "metadata": _META}
    return {**schema, "type": schema.get("type") or "object", "properties": properties | added}


def declare(schema: Object, is_root: bool, name: str = SELF) -> Declared | None:
    """Returns a schema as a CEL type; None: rules do not see it. `is_root`: whether it is the
    schema of a resource."""
    if schema.get("x-kubernetes-int-or-string"):
        length = schema.get("maxLength")
        return Declared(DYN, _TEXT_MAX if length is None else max(length, 0) * 4, 1)
    if is_root:
        schema = with_metadata(schema)
    match schema.get("type"):
        case "array":
            return _declare_list(schema, name)
        case "object":
            return _declare_object(schema, name)
        case "string":
            return _declare_text(schema)
        case "boolean":
            return Declared(BOOL, 0, 4)
        case "number":
            return Declared(DOUBLE, 0, 1, _double)
        case "integer":
            return Declared(INT, 0, 1)
    return None


def _declare_nested(schema: Object, name: str) -> Declared | None:
    return declare(schema, bool(schema.get("x-kubernetes-embedded-resource")), name)


def _declare_list(schema: Object, name: str) -> Declared | None:
    items = schema.get("items")
    item = _declare_nested(items, f"{name}.@idx") if isinstance(items, dict) else None
    if item is None:
        return None
    count = schema.get("maxItems")
    if count is None:
        count = _TEXT_MAX // (item.bytes_min + 1)
    kind, inner = schema.get("x-kubernetes-list-type"), item.convert
    keys = tuple(escape(key) or key for key in schema.get("x-kubernetes-list-map-keys") or ())
    each: Convert = inner or (lambda value: value)
    convert: Convert | None = None
    if kind == "set":
        convert = lambda values: SetList(map(each, _typed(values, list)))  # noqa: E731
    elif kind == "map":
        convert = lambda values: MapList(map(each, _typed(values, list)), keys)  # noqa: E731
    elif inner is not None:
        convert = lambda values: [each(value) for value in _typed(values, list)]  # noqa: E731
    return Declared(list_of(item.type), max(count, 0), 2, _nullable(schema, convert), item=item)


def _declare_object(schema: Object, name: str) -> Declared | None:
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        item = _declare_nested(extra, f"{name}.@elem")
        if item is None:
            return None
        count = schema.get("maxProperties")
        if count is None:
            count = _TEXT_MAX // (item.bytes_min + 6)
        inner, convert = item.convert, None
        if inner is not None:
            each: Convert = inner
            convert = lambda value: {k: each(v) for k, v in _typed(value, dict).items()}  # noqa: E731
        kind = map_of(STRING, item.type)
        return Declared(kind, max(count, 0), 2, _nullable(schema, convert), item=item)
    fields: dict[str, Declared] = {}
    converts: dict[str, tuple[str, Convert | None]] = {}
    size = 2
    required = schema.get("required") or ()
    for field, inner_schema in (schema.get("properties") or {}).items():
        known = escape(field)
        found = _declare_nested(inner_schema, f"{name}.{known}")
        if found is None:
            continue
        if known is not None:
            fields[known] = found
            if known != field or found.convert is not None:
                converts[field] = known, found.convert
        if field in required and inner_schema.get("default") is None:
            size += len(field) + found.bytes_min + 4
    convert_all = _object_converter(converts) if converts else None
    return Declared(Type(name), 0, size, _nullable(schema, convert_all), fields)


def _object_converter(converts: Mapping[str, tuple[str, Convert | None]]) -> Convert:
    def convert(value: Any) -> Any:
        made = dict(_typed(value, dict))
        for field, (name, inner) in converts.items():
            if field in made:
                found = made.pop(field)
                made[name] = found if inner is None else inner(found)
        return made

    return convert


def _declare_text(schema: Object) -> Declared:
    form, length = schema.get("format"), schema.get("maxLength")
    if form in _FORMATS:
        kind, least, most = _FORMATS[form]
        if form == "byte" and length is not None:
            most = max(length, 0)
        return Declared(kind, most, least, _nullable(schema, _CONVERTERS[form]))
    if length is not None:
        most = max(length, 0) * 4
    elif schema.get("enum"):
        most = max((len(v.encode()) for v in schema["enum"] if isinstance(v, str)), default=0)
    else:
        most = _TEXT_MAX
    return Declared(STRING, most, 2)


def _nullable(schema: Object, convert: Convert | None) -> Convert | None:
    if convert is None or not schema.get("nullable"):
        return convert
    inner = convert
    return lambda value: None if value is None else inner(value)


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        word, form = ("an array", "array") if kind is list else ("a map", "object")
        raise CelError(f"invalid data, expected {word} for the provided schema with type={form}")
    return value


def _double(value: Any) -> Any:
    return float(value) if type(value) is int else value


_WORDS: Final = re.compile(
    r"(\d+)\s*(nanoseconds?|nanos?|ns|microseconds?|micros?|us|µs|μs|milliseconds?|millis?|ms|"
    r"seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|wks?|w)\Z"
)
_NS: Final = {"n": 1, "u": 1000, "µ": 1000, "μ": 1000, "mic": 1000, "mil": 10**6, "s": 10**9,
              "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86_400 * 10**9,
              "w": 7 * 86_400 * 10**9}  # fmt: skip


def _duration(value: Any) -> Any:
    """As strfmt.ParseDuration, which knows Go's durations and words such as `2 days`."""
    try:
        return to_duration(value)
    except CelError:
        match = _WORDS.match(value) if isinstance(value, str) else None
        if match is None:
            text = f'unable to parse "{value}" as a duration'
            raise CelError(f"Invalid duration {value}: {text}") from None
    unit = match[2]
    ns = _NS["mil" if unit == "ms" else unit[:3] if unit[:3] in _NS else unit[0]]
    return Duration(int(match[1]) * ns)


def _date(value: Any) -> Any:
    try:
        return to_timestamp(f"{value}T00:00:00Z")
    except CelError:
        raise CelError(f"Invalid date formatted string {value}") from None


def _date_time(value: Any) -> Any:
    try:
        return to_timestamp(value if isinstance(value, str) else None)
    except CelError:
        raise CelError(f"Invalid date-time formatted string {value}") from None


def _bytes(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise CelError(f"Invalid byte formatted string {value}") from None


_CONVERTERS: Final[Mapping[str, Convert]] = {
    "byte": _bytes, "duration": _duration, "date": _date, "date-time": _date_time,
}  # fmt: skip


def _collect(declared: Declared, found: dict[str, dict[str, Type]]) -> None:
    if declared.fields is not None:
        found[declared.type.name] = {n: field.type for n, field in declared.fields.items()}
        for field in declared.fields.values():
            _collect(field, found)
    elif declared.item is not None:
        _collect(declared.item, found)


class Scope:
    """The environment of the rules of one schema."""

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        fields: dict[str, dict[str, Type]] = {}
        _collect(declared, fields)
        kind = declared.type
        without = frozenset(["includes"])  # of devices
        self._environments = {
            False: Environment({"self": kind, "oldSelf": kind}, fields, without),
            True: Environment({"self": kind, "oldSelf": optional_of(kind)}, fields, without),
        }

    def compile(self, text: str, wanted: Type, old_is_optional: bool) -> Rule:
        """Returns the compiled expression, which must be of the type; never raises."""
        what = "" if wanted == BOOL else "messageExpression "
        if not text.strip():
            return Rule()
        if len(text.encode()) > EXPRESSION_BYTES_MAX:
            return Rule(error=f"{what}compilation failed: the text has more than "
                        f"{EXPRESSION_BYTES_MAX} bytes")  # fmt: skip
        begin_work()
        try:
            tree = Parser(text, MACROS).parse()
            checked = Checker(self._environments[old_is_optional]).check(tree)
            check_literals(checked)
        except CompileError as error:
            return Rule(error=f"{what}compilation failed: {explain(text, error.issues)}")
        except CostExceededError:
            return Rule(error=f"{what}compilation failed: {COST_EXCEEDED}")
        if checked.types[tree] != wanted:
            subject = what.strip() or "cel expression"
            word = "bool" if wanted == BOOL else "string"
            return Rule(error=f"{subject} must evaluate to a {word}")
        return self._finish(checked, what)

    def _finish(self, checked: CheckedTree, what: str) -> Rule:
        try:
            cost = estimate(checked, self._size_of)
            run = build(checked, ("self", "oldSelf"), COST_MAX if cost > COST_MAX else None)
        except Instantiation as error:
            subject = what.strip() or "program"
            return Rule(error=f"{subject} instantiation failed: {error}", cost=MOST)
        return Rule(run, None, cost, _uses_old(checked.tree))

    def _size_of(self, path: Path) -> int | None:
        """Returns the largest size of the value at a path from a variable; None: not known."""
        if not path:
            return None
        at: Declared | None = self.declared
        for name in path[1:]:
            if at is None:
                return None
            if name in ("@items", "@values"):
                at = at.item
            elif name == "@keys":
                return 0 if at.type.name == "map" else None
            else:
                at = (at.fields or {}).get(name)
        return None if at is None else at.size_max


def _uses_old(tree: Node) -> bool:
    if isinstance(tree, Ident) and tree.name.removeprefix(".") == "oldSelf":
        return True
    return any(_uses_old(child) for child in children(tree))


def cardinality(declared: Declared) -> int:
    """Returns how often a value of the schema may be in an object at most."""
    return REQUEST_BYTES_MAX // (declared.bytes_min + 1)


def optional_value(value: Any, is_there: bool) -> OptionalValue:
    """Returns the value of `oldSelf` of a rule for which the old value may be absent."""
    return OptionalValue(value) if is_there else NOTHING


def evaluate(run: Run, value: Any, old: Any) -> tuple[Any, int]:
    """Returns the value of an expression, and its cost. Raises CelError, CostExceededError."""
    result = run([value, old])
    return result, spent_work()
