"""Patterns of definitions: RE2's, in time linear in the text."""

import time
from typing import Any

import pytest

from stower.api.custom_schema import pattern_faults
from stower.api.custom_values import value_faults
from tests.unit.api.role_cluster import Object, RoleCluster

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"


def definition(**spec: Any) -> Object:
    names = {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}
    return {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": names,
            "versions": [{"name": "v1", "served": True, "storage": True,
                          "schema": {"openAPIV3Schema": schema}}],
        },
    }  # fmt: skip


def defined(pattern: str) -> tuple[RoleCluster, int, Any]:
    cluster = RoleCluster()
    code, answer = cluster.ask("POST", DEFINITIONS, definition(
        s={"type": "string", "pattern": pattern},
        l={"type": "array", "items": {"type": "string", "pattern": pattern}},
    ))  # fmt: skip
    return cluster, code, answer


def test_a_pattern_that_takes_forever_elsewhere_takes_no_time() -> None:
    cluster, code, _ = defined("^(a+)+$")
    assert 201 == code
    text = "a" * 100_000 + "!"
    body = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"},
            "spec": {"s": text, "l": [text[-1000:]] * 100}}  # fmt: skip
    began = time.process_time()
    code, answer = cluster.ask("POST", THINGS, body)
    assert time.process_time() - began < 1
    assert 422 == code
    fields = {cause["field"] for cause in answer["details"]["causes"]}
    assert {"spec.s", *(f"spec.l[{i}]" for i in range(100))} == fields
    body["spec"] = {"s": "a" * 100_000, "l": ["a"] * 100}
    assert 201 == cluster.ask("POST", THINGS, body)[0]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing closing ): `(`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("((a{100}){100}){100}", ""),
    ],
)
def test_a_pattern_that_re2_does_not_know_is_refused(pattern: str, why: str) -> None:
    _, code, answer = defined(pattern)
    assert (422, "Invalid") == (code, answer["reason"])
    (second, first) = answer["details"]["causes"]
    schema = "spec.validation.openAPIV3Schema.properties[spec].properties"
    assert f"{schema}[s].pattern" == first["field"]
    assert f"{schema}[l].items.pattern" == second["field"]
    assert "must be a valid regular expression, but isn't" in first["message"]
    assert why in first["message"]


def test_patterns_are_looked_for_in_all_parts_of_a_schema() -> None:
    wrong = {"pattern": "("}
    schema: Object = {
        "additionalProperties": wrong, "not": wrong, "items": True,
        "allOf": [{}, wrong], "anyOf": [wrong], "oneOf": [{"properties": {"a": wrong}}],
    }  # fmt: skip
    assert {
        "s.additionalProperties.pattern", "s.not.pattern", "s.allOf[1].pattern",
        "s.anyOf[0].pattern", "s.oneOf[0].properties[a].pattern",
    } == {fault.field for fault in pattern_faults(schema, "s")}  # fmt: skip


def test_no_value_matches_a_pattern_that_an_earlier_server_has_stored() -> None:
    schema = {"type": "array", "items": {"type": "string", "pattern": "(?=a)"}}
    (fault,) = value_faults(schema, ["a"], "f")
    assert "f[0] in body should match '(?=a)', but pattern is invalid" in fault.message


@pytest.mark.parametrize(
    ("pattern", "text", "does"),
    [
        ("b", "abc", True), ("^b", "abc", False), ("", "", True), ("é+$", "caféé", True),
        (r"^\d{3}$", "123", True), (r"^\d{3}$", "\u0661\u0662\u0663", False),
        ("(?i)ABC", "xabcx", True), (r"\bword\b", "a word here", True),
        ("(a|b)*a(a|b){21}c", "ab" * 50 + "c", True), ("(a|b)*a(a|b){21}d", "ab" * 5000, False),
    ],
)  # fmt: skip
def test_a_pattern_matches_a_part_of_the_text(pattern: str, text: str, does: bool) -> None:
    schema = {"type": "string", "pattern": pattern}
    assert does == (not list(value_faults(schema, text, "f")))


LARGE = "(a|b)*a(a|b){900}$"  # 2,708 instructions


@pytest.mark.parametrize("is_list", [False, True])
def test_a_large_pattern_on_a_long_text_is_refused_and_takes_no_time(is_list: bool) -> None:
    text = {"type": "string", "pattern": LARGE}
    schema: Object = {"type": "object", "properties": {"s": text}}
    value: Object = {"s": "ab" * 500_000}
    if is_list:
        schema["properties"]["s"] = {"type": "array", "items": {"anyOf": [text] * 100}}
        value = {"s": ["ab" * 1000] * 500}
    began = time.process_time()
    *_, fault = value_faults(schema, value, "")
    assert time.process_time() - began < 3
    assert fault.field.startswith("s")
    assert "take too long on this object" in fault.message
    assert [] == list(value_faults(text, "a" * 20_000, "f"))


def test_the_patterns_of_a_schema_are_bounded_together() -> None:
    patterns = [f"^.{{1,{n}}}N$" for n in range(900, 1000)]  # 8,100 to 9,000 instructions each
    schema = {"properties": {f"p{i}": {"pattern": p} for i, p in enumerate(patterns)}}
    (fault,) = pattern_faults(schema, "s")
    assert "more than 300000 instructions" in fault.message
    same = {"properties": {f"p{i}": {"pattern": patterns[0]} for i in range(100)}}
    assert [] == list(pattern_faults(same, "s"))
