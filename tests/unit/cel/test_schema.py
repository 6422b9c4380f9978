"""Rules of schemas: types, values and costs. The costs are those of Kubernetes for the same schemas
(apiextensions-apiserver pkg/apiserver/schema/cel/compilation_test.go)."""

from typing import Any

import pytest

from stower.cel.schema import Scope, declare, escape, evaluate, optional_value
from stower.cel.types import BOOL, STRING
from stower.cel.values import CelError

Object = dict[str, Any]
MOST = 3 * 1024 * 2048
TEXT: Object = {"type": "string"}
INT: Object = {"type": "integer"}
NUMBER: Object = {"type": "number"}
FLAG: Object = {"type": "boolean"}
FREE: Object = {"x-kubernetes-int-or-string": True}


def form(name: str) -> Object:
    return {"type": "string", "format": name}


def array(items: Object, most: int | None = None, **more: Any) -> Object:
    return {
        "type": "array",
        "items": items,
        **({"maxItems": most} if most is not None else {}),
        **more,
    }


def table(values: Object, most: int | None = None) -> Object:
    found: Object = {"type": "object", "additionalProperties": values}
    return found if most is None else {**found, "maxProperties": most}


def text(most: int | None) -> Object:
    return TEXT if most is None else {**TEXT, "maxLength": most}


def struct(required: tuple[str, ...] = (), **properties: Object) -> Object:
    return {"type": "object", "properties": properties, "required": [*required]}


def scope(schema: Object, is_root: bool = False) -> Scope:
    declared = declare(schema, is_root)
    assert declared is not None
    return Scope(declared)


def cost(schema: Object, rule: str) -> int:
    found = scope(schema).compile(rule, BOOL, False)
    assert found.error is None
    return found.cost


@pytest.mark.parametrize(
    ("items", "rule", "unbounded", "most", "bounded"),
    [
        (NUMBER, "self.all(x, true)", 4718591, 10, 32),
        (TEXT, "self.all(x, true)", 3145727, 20, 62),
        (FLAG, "self.all(x, true)", 1887437, 5, 17),
        (array(NUMBER), "self.all(x, true)", 3145727, 100, 302),
        (NUMBER, "self[1] == 0.0", 2, 5000, 2),
        (TEXT, "self[1] == self[1]", 314577, 8, 314577),
        (NUMBER, "self.all(x, x == 0.0)", 6291454, MOST, 25165826),
        (FREE, "self.all(x, true)", 4718591, 10, 32),
        (FREE, "self[0] == 5", 3, 10, 3),
        (form("duration"), "self.all(x, true)", 2359295, 5, 17),
        (form("duration"), "self[0].getHours() == 2", 4, 525, 4),
        (form("date"), "self.all(x, true)", 725936, 15, 47),
        (form("date-time"), "self.all(x, true)", 428963, 25, 77),
        (form("date-time"), "self[2].getMinutes() == 45", 4, 99, 4),
        (array(NUMBER), "self[0][0] == -1.0", 3, 51, 3),
        (table(NUMBER), "self.all(x, x.y == 25.2)", 6291452, 12, 74),
        (table(NUMBER), "self[0].x > 2.0", 4, 3000, 4),
    ],
)
def test_costs_of_rules_of_lists(
    items: Object, rule: str, unbounded: int, most: int, bounded: int
) -> None:
    assert (unbounded, bounded) == (cost(array(items), rule), cost(array(items, most), rule))


def test_costs_of_loops_in_loops() -> None:
    assert 352 == cost(array(NUMBER, 10), "self.all(x, self.all(y, true))")
    assert 3552 == cost(array(NUMBER, 10), "self.all(x, self.all(y, self.all(z, true)))")


@pytest.mark.parametrize(
    ("values", "rule", "unbounded", "most", "bounded"),
    [
        (NUMBER, "self.all(x, true)", 1348169, 10, 32),
        (TEXT, "self.all(x, true)", 1179647, 3, 11),
        (FLAG, "self.all(x, true)", 943718, 100, 302),
        (NUMBER, 'self["x"] == 0.0', 2, 0, 2),
    ],
)
def test_costs_of_rules_of_maps(
    values: Object, rule: str, unbounded: int, most: int, bounded: int
) -> None:
    assert (unbounded, bounded) == (cost(table(values), rule), cost(table(values, most), rule))


@pytest.mark.parametrize(
    ("rule", "unbounded", "most", "bounded"),
    [
        ("self.contains('test')", 314574, 10, 5),
        ("self.startsWith('test')", 2, 15, 2),
        ('size(self + "hello") > size("hello")', 314578, 4, 7),
        ('self.matches("x")', 314574, 50, 22),
        ('"".matches("(((((((((())))))))))[0-9]")', 7, 10, 7),
        ('self.matches("")', 1, 100, 1),
        ('self == "x"', 2, 0, 1),
    ],
)
def test_costs_of_rules_of_texts(rule: str, unbounded: int, most: int, bounded: int) -> None:
    assert (unbounded, bounded) == (cost(text(None), rule), cost(text(most), rule))


def run(schema: Object, rule: str, value: Any, old: Any = None, is_root: bool = False) -> Any:
    declared = declare(schema, is_root)
    assert declared is not None
    compiled = Scope(declared).compile(rule, BOOL, False)
    assert compiled.error is None, compiled.error
    assert compiled.run is not None
    convert = declared.convert or (lambda given: given)
    return evaluate(compiled.run, convert(value), convert(old) if old is not None else None)[0]


@pytest.mark.parametrize(
    ("schema", "rule", "value"),
    [
        (struct(a=INT), "self.a == 1 && type(self.a) == int", {"a": 1}),
        (struct(a=NUMBER), "self.a == 1.0 && type(self.a) == double", {"a": 1}),
        (struct(a=FREE), "type(self.a) == string || self.a > 1", {"a": 5}),
        (struct(a=FREE), "type(self.a) == string", {"a": "50%"}),
        (struct(a=form("duration")), "self.a.getMinutes() == 90", {"a": "1h30m"}),
        (struct(a=form("duration")), "self.a == duration('48h')", {"a": "2 days"}),
        (struct(a=form("date")), "self.a.getMonth() == 1", {"a": "2026-02-03"}),
        (struct(a=form("date-time")), "self.a < timestamp('2026-01-02T00:00:00Z')",
         {"a": "2026-01-01T00:00:00Z"}),
        (struct(a=form("byte")), "size(self.a) == 2", {"a": "YWI="}),
        (struct(**{"x-y": INT, "a.b": INT, "in": INT, "a__b": INT}),
         "self.x__dash__y + self.a__dot__b + self.__in__ + self.a__underscores__b == 10",
         {"x-y": 1, "a.b": 2, "in": 3, "a__b": 4}),
        (struct(a=TEXT), "!has(self.a)", {}),
        (table(form("duration")), "self['a'].getSeconds() == 1", {"a": "1s"}),
        (array(TEXT, **{"x-kubernetes-list-type": "set"}),
         "self == ['b', 'a'] && size(self + ['a', 'c']) == 3", ["a", "b"]),
        (array(struct(k=TEXT, v=INT), **{"x-kubernetes-list-type": "map",
                                         "x-kubernetes-list-map-keys": ["k"]}),
         "(self + self).map(x, x.v) == [1, 2]", [{"k": "a", "v": 1}, {"k": "b", "v": 2}]),
        (array(TEXT), "self != ['b', 'a']", ["a", "b"]),
    ],
)  # fmt: skip
def test_what_rules_see(schema: Object, rule: str, value: Any) -> None:
    assert run(schema, rule, value) is True


def test_lists_of_maps_are_equal_in_any_order() -> None:
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    schema = array(struct(k=TEXT, v=INT), **keys)
    one, other = {"k": "a", "v": 1}, {"k": "b", "v": 2}
    assert run(schema, "self == oldSelf", [one, other], [other, one])
    assert not run(schema, "self == oldSelf", [one, other], [other, {**one, "v": 3}])


def test_a_resource_has_a_kind_and_a_name() -> None:
    value = {"kind": "K", "apiVersion": "g/v1", "metadata": {"name": "n"}, "spec": {}}
    rule = "self.kind == 'K' && self.apiVersion == 'g/v1' && self.metadata.name == 'n'"
    assert run(struct(spec=struct()), rule, value, is_root=True)
    error = scope(struct(), True).compile("self.metadata.labels.size() == 0", BOOL, False).error
    assert error is not None
    assert "undefined field 'labels'" in error


def test_a_value_that_is_no_duration_is_an_error_of_the_rule() -> None:
    with pytest.raises(CelError, match="Invalid duration x"):
        run(struct(a=form("duration")), "self.a == self.a", {"a": "x"})


@pytest.mark.parametrize(
    ("rule", "wanted", "error"),
    [
        ("self.z == 1", BOOL, "compilation failed: ERROR: <input>:1:5: undefined field 'z'"),
        ("self.a", BOOL, "cel expression must evaluate to a bool"),
        ("self.a", STRING, "messageExpression must evaluate to a string"),
        ("self.z", STRING, "messageExpression compilation failed: ERROR: <input>:1:5"),
        ("oldSelf.orValue(1) == 1", BOOL, "compilation failed: ERROR"),
        ("includes(self.a, 1)", BOOL, "undeclared reference to 'includes'"),
        ("true || " * 3000 + "true", BOOL, "compilation failed: the text has more than 16384"),
        ("device.driver == ''", BOOL, "undeclared reference to 'device'"),
    ],
)
def test_a_rule_that_does_not_compile_says_why(rule: str, wanted: Any, error: str) -> None:
    found = scope(struct(a=INT)).compile(rule, wanted, False)
    assert found.run is None
    assert error in (found.error or "")


def test_a_message_formats_values_of_different_types() -> None:
    """apiextensions-apiserver pkg/apiserver/schema/cel/validation_test.go."""
    text = "'%s %d %s'.format([self.a, self.n, self.l])"
    compiled = scope(struct(a=TEXT, n=INT, l=array(INT))).compile(text, STRING, False)
    assert compiled.run is not None, compiled.error
    assert "b 2 [3]" == evaluate(compiled.run, {"a": "b", "n": 2, "l": [3]}, None)[0]


def test_a_rule_knows_whether_it_compares_with_the_old_value() -> None:
    rules = scope(struct(a=INT))
    assert not rules.compile("self.a > 0", BOOL, False).uses_old
    assert rules.compile("self.a > oldSelf.a", BOOL, False).uses_old
    found = rules.compile("oldSelf.hasValue() ? self.a > oldSelf.value().a : true", BOOL, True)
    assert found.uses_old
    assert found.run is not None
    assert evaluate(found.run, {"a": 1}, optional_value(None, False))[0] is True
    assert evaluate(found.run, {"a": 1}, optional_value({"a": 2}, True))[0] is False


@pytest.mark.parametrize(
    ("rule", "value", "result"),
    [
        ("!has(self.namespace) || self.namespace == ''", {"namespace": "a"}, False),
        ("!has(self.namespace) || self.namespace == ''", {}, True),
        ("self.?namespace.orValue('b') == self.__namespace__", {"namespace": "a"}, True),
        ("self.package.import == 'a'", {"package": {"import": "a"}}, True),
    ],
)
def test_fields_named_by_reserved_words_need_no_escape(
    rule: str, value: Object, result: bool
) -> None:
    """apiserver pkg/cel/types.go, FindStructFieldType: recognizeKeywordAsFieldName."""
    schema = struct(namespace=TEXT, package=struct(**{"import": TEXT}))
    assert result is run(schema, rule, value)
    assert "undefined field 'let'" in str(
        scope(schema).compile("self.let == ''", BOOL, False).error
    )


def test_fields_that_rules_cannot_name_are_left_out() -> None:
    assert [None, None, "__slash__"] == [escape(name) for name in ("", "a b", "/")]
    assert None is escape("1a")
    schema = struct(a={"x-kubernetes-preserve-unknown-fields": True}, b=INT)
    error = scope(schema).compile("self.a == 1", BOOL, False).error
    assert error is not None
    assert "undefined field 'a'" in error
