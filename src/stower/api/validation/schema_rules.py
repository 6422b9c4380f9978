"""Validates each part of the schema of a definition, and its rules (x-kubernetes-validations).

Rules are compiled where the schemas are right, and what they may cost is bounded: one rule times
the number of values that it may be about, and all rules of a schema together. Source:
apiextensions-apiserver pkg/apis/apiextensions/validation/validation.go and cel_validation.go,
Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from stower.api.custom_rules import RULES, BadPathError, Compiled, compile_rules, field_path
from stower.api.custom_schema import EMBEDDED, TOP
from stower.api.errors import FORBIDDEN, INTERNAL, INVALID, REQUIRED, FieldError, unsupported
from stower.api.validation.openapi_schemas import (
    LIST_TYPE,
    Lenience,
    Place,
    schema_faults,
)
from stower.api.validation.structural_schemas import FAULTS_MAX, constraints, others, parts
from stower.cel.cost import MOST
from stower.cel.schema import cardinality

Object = dict[str, Any]
RULE_COST_MAX: Final = 10_000_000  # StaticEstimatedCostLimit
SCHEMA_COST_MAX: Final = 100_000_000  # StaticEstimatedCRDCostLimit
# Of a schema, a few seconds at worst to compile; arbitrary. Public definitions have up to 220 rules
# of 10 KiB, and up to 1,000 parts below schemas with rules, counted for each such schema.
RULES_MAX: Final = 2_000
RULES_BYTES_MAX: Final = 128 * 1024
PARTS_MAX: Final = 100_000
EXPENSIVE_MAX: Final = 4  # rules that are named where all together cost too much
REASONS: Final = (
    "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired",
)  # fmt: skip
FIELD: Final = RULES
_ADVICE: Final = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, "
    "maps, and strings are declared)"
)


def part_faults(
    schema: Object, path: str, lenience: Lenience, is_known: bool | None
) -> list[FieldError]:
    """Returns what is wrong with the parts of the schema of a resource, and with its rules.

    `is_known`: whether it was stored like this before, so that the cost of one rule is not bounded;
    None: rules are not looked at, as the schema is not structural.
    """
    walk = _Walk(lenience, is_known)
    walk.visit(schema, path, Place(), 1, True)
    if walk.total > SCHEMA_COST_MAX:
        text = (
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 "
            "schema"
        )
        expensive = sorted(walk.expensive, key=lambda rule: -rule.cost)[:EXPENSIVE_MAX]
        walk.rule_faults += [FieldError(FORBIDDEN, rule.path, None, text) for rule in expensive]
        name = f"{FIELD} estimated rule cost total for entire OpenAPIv3 schema"
        text = _cost_text(name, walk.total, SCHEMA_COST_MAX)
        walk.rule_faults.append(FieldError(FORBIDDEN, path, None, text))
    return walk.faults + walk.rule_faults


def _count_parts(schema: Object, most: int) -> int:
    """How many schemas there are in a schema, itself included; or more than `most`."""
    count, waiting = 0, [schema]
    while waiting and count <= most:
        count += 1
        waiting += [inner for _, inner in parts(waiting.pop())]
    return count


class _Cost(NamedTuple):
    path: str
    cost: int


class _Walk:
    """Collects what is wrong with the parts of a schema, and with their rules."""

    def __init__(self, lenience: Lenience, is_known: bool | None) -> None:
        self.lenience = lenience
        self.is_known = is_known
        self.faults: list[FieldError] = []
        self.rule_faults: list[FieldError] = []
        self.total = 0
        self.count = self.bytes = self.parts = 0
        self.is_full = False
        self.expensive: list[_Cost] = []

    def visit(
        self, schema: Object, path: str, place: Place, count: int | None, is_root: bool
    ) -> None:
        """`count`: how many values of the schema an object has at most, None where nothing bounds
        it. `is_root`: whether it is the schema of the resource itself."""
        before = len(self.faults)
        if before > FAULTS_MAX:
            return
        self.faults += schema_faults(schema, path, place, self.lenience)
        each = _size_max(schema)
        below = None if count is None or each is None else min(count * each, MOST)
        for name, inner in parts(schema):
            inside = _place_within(schema, path, name, place, is_root)
            self.visit(inner, path + name, inside, below, False)
        for name, inner in (*constraints(schema), *others(schema)):
            self.visit_constraint(inner, path + name, place)
        for i, rule in enumerate(schema.get(FIELD) or ()):
            self.faults += _text_faults(rule, schema, f"{path}.{FIELD}[{i}]")
        if schema.get(FIELD) and self.is_known is not None and len(self.faults) == before:
            self._compile(schema, path, place, count, is_root)

    def visit_constraint(self, schema: Object, path: str, place: Place) -> None:
        """Visits a schema within allOf, anyOf, oneOf or not, which has no rules."""
        known, self.is_known = self.is_known, None
        self.visit(schema, path, place, None, False)
        self.is_known = known

    def _compile(
        self, schema: Object, path: str, place: Place, count: int | None, is_root: bool
    ) -> None:
        """Compiles the rules of a schema."""
        if self.is_full or not self.has_room(schema, f"{path}.{FIELD}"):
            return
        found = compile_rules(schema, is_root or bool(schema.get(EMBEDDED)))
        if found is None:
            text = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations"  # noqa: E501
            self.rule_faults.append(FieldError(INTERNAL, f"{path}.{FIELD}", "", text))
            return
        for i, compiled in enumerate(found.rules):
            at = f"{path}.{FIELD}[{i}]"
            self._add(compiled, at, cardinality(found.declared) if count is None else count)
            self._compare(compiled, at, place.uncorrelated)

    def has_room(self, schema: Object, path: str) -> bool:
        """Counts the rules of a schema before they are compiled."""
        rules = schema[FIELD]
        self.count += len(rules)
        for rule in rules:
            texts = (rule.get("rule") or "", rule.get("messageExpression") or "")
            self.bytes += sum(len(text.encode()) for text in texts)
        self.parts += _count_parts(schema, PARTS_MAX - self.parts)
        for found, most, what in (
            (self.count, RULES_MAX, "rules"),
            (self.bytes, RULES_BYTES_MAX, "bytes of rules"),
            (self.parts, PARTS_MAX, "fields that rules are about"),
        ):
            if found > most:
                text = f"a schema must have at most {most} {what}"
                self.rule_faults.append(FieldError(FORBIDDEN, path, None, text))
                self.is_full = True
                return False
        return True

    def _add(self, compiled: Compiled, at: str, count: int) -> None:
        """Adds errors of the compiler, and costs."""
        rule, message = compiled.rule, compiled.message
        given = _as_go(compiled.spec)
        cost = min(rule.cost * count, MOST)
        if rule.error is None:
            self._bound(f"{at}.rule", "estimated rule cost", cost)
        else:
            self.rule_faults.append(FieldError(INVALID, f"{at}.rule", given, rule.error))
        if message is None:
            return
        if message.error is None:
            self._bound(f"{at}.messageExpression", "estimated messageExpression cost", message.cost)
        else:
            self.rule_faults.append(
                FieldError(INVALID, f"{at}.messageExpression", given, message.error)
            )

    def _bound(self, path: str, name: str, cost: int) -> None:
        if cost > RULE_COST_MAX and not self.is_known:
            text = _cost_text(name, cost, RULE_COST_MAX)
            self.rule_faults.append(FieldError(FORBIDDEN, path, None, text))
        self.total = min(self.total + cost, MOST)
        if cost >= SCHEMA_COST_MAX // 100:
            self.expensive.append(_Cost(path, cost))

    def _compare(self, compiled: Compiled, at: str, uncorrelated: str) -> None:
        """Adds errors about the use of oldSelf."""
        is_optional = compiled.spec.get("optionalOldSelf")
        if compiled.rule.uses_old and uncorrelated:
            text = (
                "oldSelf cannot be used on the uncorrelatable portion of the schema within "
                f"{uncorrelated}"
            )
            self.rule_faults.append(FieldError(INVALID, f"{at}.rule", compiled.spec["rule"], text))
        elif not compiled.rule.uses_old and is_optional is not None:
            text = "may not be set if oldSelf is not used in rule"
            self.rule_faults.append(FieldError(INVALID, f"{at}.optionalOldSelf", is_optional, text))


def _place_within(schema: Object, path: str, name: str, place: Place, is_root: bool) -> Place:
    """Returns the place of a part of a schema that is at a place."""
    if name == ".items":
        if schema.get(LIST_TYPE) != "map" and not place.uncorrelated:
            return place._replace(uncorrelated=path)
        return place
    if name == ".additionalProperties":
        if place.in_metadata:
            text = "inside additionalProperties applying to object metadata"
            return place._replace(no_default=text)
        return place
    field = name.removeprefix(".properties[")[:-1]
    if field in TOP and (is_root or schema.get(EMBEDDED)):
        place = place._replace(in_metadata=True)
        if is_root:
            place = place._replace(no_default=f"in top-level {field}")
    return place


def _size_max(schema: Object) -> int | None:
    """By which factor there may be more values of the parts of a schema than of itself."""
    form, most = schema.get("type"), None
    if form == "array":
        most = schema.get("maxItems")
    elif form == "object" and schema.get("additionalProperties") is not None:
        most = schema.get("maxProperties")
    else:
        return 1
    return None if most is None else max(most, 0)


def _text_faults(rule: Object, schema: Object, at: str) -> Iterator[FieldError]:
    text, message = rule.get("rule") or "", rule.get("message") or ""
    if not text.strip():
        yield FieldError(REQUIRED, f"{at}.rule", "", "rule is not specified")
    elif message and not message.strip():
        yield FieldError(INVALID, f"{at}.message", message, "must be non-empty if specified")
    elif _has_line_breaks(message.strip()):
        yield FieldError(INVALID, f"{at}.message", message, "must not contain line breaks")
    elif _has_line_breaks(text.strip()) and not message.strip():
        said = "message must be specified if rule contains line breaks"
        yield FieldError(REQUIRED, f"{at}.message", "", said)
    expression = rule.get("messageExpression") or ""
    if expression and not expression.strip():
        said = "messageExpression must be non-empty if specified"
        yield FieldError(REQUIRED, f"{at}.messageExpression", "", said)
    reason = rule.get("reason")
    if reason is not None and reason not in REASONS:
        yield unsupported(f"{at}.reason", reason, REASONS)
    path = rule.get("fieldPath") or ""
    at = f"{at}.fieldPath"
    if path and not path.strip():
        yield FieldError(INVALID, at, path, "must be non-empty if specified")
    if _has_line_breaks(path):
        yield FieldError(INVALID, at, path, "must not contain line breaks")
    if path:
        try:
            field_path(path, schema)
        except BadPathError:
            yield FieldError(INVALID, at, path, "must be a valid path")


def _has_line_breaks(text: str) -> bool:
    return "\n" in text or "\r" in text


def _as_go(rule: Object) -> Object:
    """The rule as upstream's messages have it."""
    return {
        "Rule": rule.get("rule") or "",
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def _cost_text(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    if factor > 100:
        shown = "more than 100x"
    else:
        shown = f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{name} exceeds budget by factor of {shown} {_ADVICE}"
