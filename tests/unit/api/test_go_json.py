"""Texts that are no JSON, in the words of Go's decoder."""

import json

import pytest

from stower.api.go_json import decoding_error
from tests.unit.api.one_client import PODS, Client


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "unexpected end of JSON input"),
        ('{"a"', "unexpected end of JSON input"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("apiVersion: v1", "invalid character 'a' looking for beginning of value"),
        ("trux", "invalid character 'x' in literal true (expecting 'e')"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("01", "invalid character '1' after top-level value"),
        ('"\\x"', "invalid character 'x' in string escape code"),
        ('"a\nb"', "invalid character '\\n' in string literal"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("'a'", "invalid character '\\'' looking for beginning of value"),
        ("é", "invalid character 'Ã' looking for beginning of value"),
    ],
)
def test_errors(text: str, error: str) -> None:
    assert error == decoding_error(text.encode())


@pytest.mark.parametrize("value", [None, [], {}, [{"a": [1, -2.5e3, "é\\"]}], "x"])
def test_values_have_none(value: object) -> None:
    assert "" == decoding_error(json.dumps(value, ensure_ascii=False).encode())


def test_depth_costs_no_stack() -> None:
    assert "unexpected end of JSON input" == decoding_error(b"[" * 5_000)
    assert "exceeded max depth" == decoding_error(b"[" * 20_000)


def test_a_body_is_refused_with_the_error() -> None:
    answer = Client().ask("POST", PODS, b'{"a":1,}')
    assert 400 == answer.status
    assert b"looking for beginning of object key string" in answer.body
