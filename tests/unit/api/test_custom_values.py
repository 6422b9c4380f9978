"""Values of custom resources against their schemas: what kube-openapi's validators
(pkg/validation/validate) say, in their order, as a real server of 1.36 has answered."""

import json
from typing import Any, Final

import pytest

from stower.api.custom_values import value_faults
from tests.unit.api.custom_cluster import CustomCluster, Object, definition, version

THINGS: Final = "/apis/example.com/v1/things"
TEXT: Final = {"type": "string"}
INT: Final = {"type": "integer"}
NUMBER: Final = {"type": "number"}
EITHER: Final = {"x-kubernetes-int-or-string": True}
Found = list[tuple[str, str]]


def struct(**properties: Object) -> Object:
    return {"type": "object", "properties": properties}


def faults(schema: Object, value: Any) -> Found:
    """Returns the field, without the name of the value, and the message of each error."""
    found = value_faults(schema, value, "v")
    return [(fault.field.removeprefix("v").lstrip("."), fault.message) for fault in found]


def of_type(kind: str, found: str) -> str:
    return f'Invalid value: "{found}": v in body must be of type {kind}: "{found}"'


def whole(text: str) -> tuple[str, str]:
    """An error without a field."""
    return "<nil>", f'Invalid value: "": {text}'


def beyond(what: str, name: str = "Checked") -> tuple[str, str]:
    return whole(f"{name} value must be of type {what} in v")


DEFAULT: Final = "integer (default format)"


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (INT, 1.5, [("", of_type("integer", "number")), beyond(DEFAULT)]),
        (INT, float(1 << 63), [("", of_type("integer", "number")), beyond(DEFAULT)]),
        (INT, -float(1 << 63), [("", of_type("integer", "number")), beyond(DEFAULT)]),
        (INT, 1e18, [("", of_type("integer", "number"))]),
        (INT, "1", [("", of_type("integer", "string"))]),
        (INT, True, [("", of_type("integer", "boolean"))]),
        ({**INT, "format": "int32"}, 2147483648, [beyond("integer with format int32")]),
        ({**INT, "format": "int32"}, 1.5,
         [("", of_type("int32", "float64")), beyond("integer with format int32")]),
        ({**INT, "format": "int64"}, 1.5,
         [("", of_type("int64", "float64")), beyond("integer with format int64")]),
        ({**INT, "format": "uint8"}, 2147483648, []),
        ({**NUMBER, "format": "float"}, 3.5e38, [beyond("number with format float")]),
        ({**NUMBER, "format": "double"}, 3.5e38, []),
        ({**NUMBER, "format": "int32"}, 2147483648, []),
        (NUMBER, 1, []),
        ({**TEXT, "format": "date"}, 5, [("", of_type("date", "int64"))]),
        ({**INT, "multipleOf": 2, "minimum": 5}, 3,
         [("", "Invalid value: 3: v in body should be a multiple of 2"),
          ("", "Invalid value: 3: v in body should be greater than or equal to 5")]),
        ({**INT, "multipleOf": 2, "maximum": 5, "exclusiveMaximum": True}, 5,
         [("", "Invalid value: 5: v in body should be a multiple of 2"),
          ("", "Invalid value: 5: v in body should be less than 5")]),
        ({**NUMBER, "maximum": 1.5}, 2,
         [("", "Invalid value: 2: v in body should be less than or equal to 1")]),
        ({**NUMBER, "maximum": 12345678}, 12345678.5,
         [("", "Invalid value: 1.23456785e+07: v in body should be less than or equal to "
           "1.2345678e+07")]),
        ({**INT, "maximum": 1.5}, 1, [beyond(DEFAULT, "Maximum boundary")]),
        ({**NUMBER, "multipleOf": 0.1}, 0.3, []),
        ({**NUMBER, "multipleOf": 0.1}, 0.35,
         [("", "Invalid value: 0.35: v in body should be a multiple of 0.1")]),
        (EITHER, 1.5, [("", of_type("integer,string", "number"))]),
        ({**EITHER, "pattern": "^a$"}, "b",
         [("", 'Invalid value: "b": v in body should match \'^a$\'')]),
        ({**EITHER, "maximum": 5}, 6,
         [("", "Invalid value: 6: v in body should be less than or equal to 5")]),
        ({**EITHER, "format": "int32"}, 2147483648, []),
        # Enums convert numbers to the type of the choice.
        ({**INT, "enum": [1, 2]}, 3,
         [("", 'Unsupported value: 3: supported values: "1", "2"')]),
        ({**NUMBER, "enum": [1.5, 2]}, 2, []),
        ({**NUMBER, "enum": [1]}, 1.5, []),
        ({"type": "boolean", "enum": [1]}, True,
         [("", 'Unsupported value: true: supported values: "1"')]),
        ({**TEXT, "nullable": True, "enum": ["a"]}, None,
         [("", 'Unsupported value: null: supported values: "a"')]),
        # Of a text, the first fault is told.
        ({**TEXT, "minLength": 3, "pattern": "^a$"}, "b",
         [("", 'Invalid value: "b": v in body should be at least 3 chars long')]),
        ({"type": "array", "items": INT, "maxItems": 1}, [1, "2"],
         [("[1]", of_type("integer", "string").replace("v in", "v[1] in")),
          ("", "Too many: 2: must have at most 1 item")]),
        ({"type": "object", "maxProperties": 2, "additionalProperties": False}, {"a": 1},
         [("", 'Invalid value: "a": v.a in body is a forbidden property')]),
    ],
)  # fmt: skip
def test_a_value_is_checked(schema: Object, value: Any, expected: Found) -> None:
    assert expected == faults(schema, value)


def test_alternatives_say_what_the_nearest_of_them_lacks() -> None:
    a, b = {"required": ["a"]}, {"required": ["b"]}
    of_kind = {"properties": {"kind": {"enum": ["B"]}}, **b}
    missing = ("a", "Required value")
    any_of = whole('"v" must validate at least one schema (anyOf)')
    assert [any_of, missing] == faults({"anyOf": [a, b]}, {})
    assert [any_of, ("b", "Required value")] == faults({"anyOf": [a, of_kind]}, {"kind": "B"})
    assert [] == faults({"anyOf": [b, a]}, {"a": 1})
    one_of = '"v" must validate one and only one schema (oneOf). Found '
    assert [whole(f"{one_of}none valid"), missing] == faults({"oneOf": [a, b]}, {})
    assert [whole(f"{one_of}2 valid alternatives")] == faults({"oneOf": [a, b]}, {"a": 1, "b": 1})
    all_of = '"v" must validate all the schemas (allOf)'
    assert [missing, ("b", "Required value"), whole(f"{all_of}. None validated")] == faults(
        {"allOf": [a, b]}, {}
    )
    assert [missing, whole(all_of)] == faults({"allOf": [a, b]}, {"b": 1})
    assert [whole('"v" must not validate the schema (not)')] == faults({"not": a}, {"a": 1})
    assert [] == faults({"not": a}, {})


@pytest.fixture
def cluster() -> CustomCluster:
    return CustomCluster()


def post(cluster: CustomCluster, spec: str, name: str = "t") -> tuple[int, Any]:
    head = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}}
    body = f'{json.dumps(head)[:-1]}, "spec": {spec}}}'
    response = cluster.respond("POST", THINGS, json.loads(body, parse_float=float))
    return response.status, json.loads(response.body)


@pytest.mark.parametrize(
    ("number", "stored"),
    [
        ("1.0", "1"), ("1e3", "1000"), ("-0.0", "0"), ("100e-2", "1"), ("1.50", "1.5"),
        ("9223372036854775807", "9223372036854775807"),
    ],
)  # fmt: skip
def test_whole_numbers_are_stored_as_integers(
    cluster: CustomCluster, number: str, stored: str
) -> None:
    """Go's encoder writes them so, wherever they stand."""
    free = {"x-kubernetes-preserve-unknown-fields": True}
    schema = struct(n=NUMBER, any=free, l={"type": "array", "items": NUMBER})
    cluster.define(definition(versions=[version("v1", {"spec": schema})]))
    code, _ = post(cluster, f'{{"n": {number}, "any": {{"a": [{number}]}}, "l": [{number}]}}')
    assert 201 == code
    spec = cluster.respond("GET", f"{THINGS}/t").body.decode()
    assert f'"n":{stored}' in spec
    assert f'"any":{{"a":[{stored}]}}' in spec
    assert f'"l":[{stored}]' in spec


def test_a_whole_number_is_an_integer(cluster: CustomCluster) -> None:
    schema = struct(i=INT, j={**INT, "format": "int32"}, e=EITHER)
    cluster.define(definition(versions=[version("v1", {"spec": schema})]))
    assert 201 == post(cluster, '{"i": 1.0, "j": 1e3, "e": 2.0}')[0]
    for spec, count in (('{"i": 1.5}', 2), ('{"i": 9223372036854775808}', 2), ('{"e": 1.5}', 1)):
        code, body = post(cluster, spec, "u")
        assert (422, count) == (code, len(body["details"]["causes"]))


def test_the_whole_object_is_checked(cluster: CustomCluster) -> None:
    """Kind, apiVersion and metadata are fields of it."""
    meta = struct(name={**TEXT, "maxLength": 3})
    found = version("v1", {"metadata": meta, "a": TEXT}, maxProperties=4, required=["metadata"])
    cluster.define(definition(versions=[found]))
    cluster.make(THINGS, {"metadata": {"name": "abc"}, "a": "x"})
    code, body = cluster.ask("POST", THINGS, {"metadata": {"name": "abcd"}, "a": "x"})
    assert 422 == code
    assert ["metadata.name"] == [cause["field"] for cause in body["details"]["causes"]]


def test_items_that_are_there_twice_are_told_with_what_else_is_wrong(
    cluster: CustomCluster,
) -> None:
    tags = {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}
    cluster.define(definition(versions=[version("v1", {"spec": struct(i=INT, tags=tags)})]))
    code, body = post(cluster, '{"i": "x", "tags": ["a", "a"]}')
    assert 422 == code
    assert ["spec.i", "spec.tags[1]"] == [cause["field"] for cause in body["details"]["causes"]]
