"""Conversion of bodies from YAML to JSON and of answers from JSON to YAML."""

import json
from typing import Any

import pytest
import yaml

from stower.api.errors import ApiError
from stower.apiserver.documents import (
    YAML_DEPTH_MAX,
    YAML_VALUES_MAX,
    from_yaml,
    read_yaml,
    to_yaml,
)


def read(text: str) -> Any:
    return json.loads(from_yaml(text.encode()))


def test_a_json_body_is_not_changed() -> None:
    for body in (b' {"a" : 1.50}', b'\n[1, "\\u00e9"]'):
        assert body == from_yaml(body)


def test_a_yaml_body_becomes_json() -> None:
    text = "metadata: {name: a, labels: {}}\nlist:\n- 1\n- 1.5\n- yes\n- null\ntext: |\n  a\n  b\n"
    want = {"metadata": {"name": "a", "labels": {}}, "list": [1, 1.5, True, None], "text": "a\nb\n"}
    assert want == read(text)


def test_plain_scalars_are_read_as_go_reads_them() -> None:
    text = (
        "[y, Off, ~, 1_000, 0x10, 0o17, 017, 0b11, 08, 2.0, .5, 1e3, 2026-01-01, 12:30, '1', "
        "!!str 1]"
    )
    want = [
        True,
        False,
        None,
        1000,
        16,
        15,
        15,
        3,
        8,
        2,
        0.5,
        1000,
        "2026-01-01",
        "12:30",
        "1",
        "1",
    ]
    assert want == read(f"a: {text}")["a"]
    assert 18446744073709551615 == read("a: 18446744073709551615")["a"]
    assert 1.8446744073709552e19 == read("a: 18446744073709551616")["a"]


def test_the_first_document_counts_and_maps_are_merged() -> None:
    assert {"a": 1} == read("a: 1\n---\nb: 2\n")
    assert {"a": 1, "b": 3} == read("a:\n  <<: {a: 1, b: 2}\n  b: 3\n")["a"]


def test_an_alias_is_what_its_anchor_names() -> None:
    assert {"a": ["b"], "c": ["b"], "b": 1} == read("a: &x [&y b]\nc: *x\n*y : 1\n")
    assert {"a": 1, "b": 2, "c": 2} == read("a: &x 1\nb: &x 2\nc: *x\n")
    assert {"a": [1, [1]]} == read("a: &x [&x 1, [*x]]\n")
    text = "a: &x {p: 1, q: 1}\nb: {<<: *x, q: 2}\nc: {<<: [*x, {q: 3, r: 3}]}\n"
    want = {"a": {"p": 1, "q": 1}, "b": {"p": 1, "q": 2}, "c": {"p": 1, "q": 1, "r": 3}}
    assert want == read(text)
    assert {"a": 1} == read("a: 1\n---\nb: *x\n")


def test_keys_that_a_merge_has_set_are_there_twice() -> None:
    body = read_yaml(b"a: &x {p: 1}\nb:\n  <<: *x\n  p: 2\n")
    assert 'yaml: unmarshal errors:\n  line 4: key "p" already set in map' == body.repeats


def _doubling(lines: int, first: str) -> str:
    """A document of which each line is twice the line before it."""
    return f"x0: &x0 {first}\n" + "".join(
        f"x{n}: &x{n} [*x{n - 1}, *x{n - 1}]\n" for n in range(1, lines)
    )


def test_what_aliases_stand_for_is_bounded() -> None:
    few, many = _doubling(15, "a"), _doubling(16, "a")
    assert 2**14 == from_yaml(few.encode()).rpartition(b"x14")[2].count(b'"a"')
    long = "b" * 1000
    for text in (many, _doubling(1000, "a"), _doubling(12, long)):
        with pytest.raises(ApiError, match="yaml: document contains excessive aliasing"):
            from_yaml(text.encode())
    from_yaml(_doubling(11, long).encode())
    deep = "a: &x " + "[" * 60 + "]" * 60 + "\nb: " + "[" * 40 + "*x" + "]" * 40
    with pytest.raises(ApiError, match="nested more than 100 levels deep"):
        from_yaml(deep.encode())
    from_yaml(deep.replace("b: [", "b: ").removesuffix("]").encode())


@pytest.mark.parametrize(
    ("text", "why"), [("a: .nan", "NaN"), ("~: 1", "map key"), ("<<: 1", "map merge")]
)
def test_what_json_does_not_have_is_refused(text: str, why: str) -> None:
    with pytest.raises(ApiError, match=why):
        from_yaml(text.encode())


def test_keys_are_ordered_by_the_numbers_in_them() -> None:
    text = to_yaml(b'{"a10": 1, "a9": 1, "f:x": 1, ".": 1, "B": 1, "a_b": 1, "a01": 1}').decode()
    assert [".", "B", "a_b", "a01", "a9", "a10", "f:x"] == [
        line.rpartition(":")[0] for line in text.splitlines()
    ]


def test_flow_style_that_is_not_json_is_read_as_yaml() -> None:
    assert {"a": ["b"]} == read("{a: [b]}")


def test_a_body_has_a_maximum_depth() -> None:
    deepest = "[" * YAML_DEPTH_MAX + "a" + "]" * YAML_DEPTH_MAX
    assert [["a"]] == json.loads(from_yaml(b"[[a]]"))
    from_yaml(deepest.encode())
    with pytest.raises(ApiError, match="nested more than 100 levels deep"):
        from_yaml(f"[{deepest}]".encode())


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"a: *x\n", "yaml: unknown anchor 'x' referenced"),
        (b"a: &x {b: [*x]}\n", "yaml: anchor 'x' value contains itself"),
        (b"a: &x b\nc: {<<: *x}\n", "yaml: map merge requires map or sequence of maps"),
        (b"a: [1", "converting YAML to JSON"),
        (b"a: \xff", "converting YAML to JSON"),
        (b"a: !!int x", "converting YAML to JSON"),
        (b"a: !!python/object:os.system {}", "converting YAML to JSON"),
        (b"? [a, b]\n: c\n", "converting YAML to JSON"),
    ],
)
def test_a_malformed_body_is_a_bad_request_with_a_message_of_one_line(
    body: bytes, why: str
) -> None:
    with pytest.raises(ApiError, match=why) as caught:
        from_yaml(body)
    assert (400, 1) == (caught.value.code, len(caught.value.message.splitlines()))


# Strings that parsers of YAML 1.1, go-yaml among them, resolve to another type.
AMBIGUOUS = (
    "y", "N", "yes", "off", "true", "null", "~", "", "1", "-1_000", "+1.5", ".5e3", "0x1F", "0o17",
    "017", "0b101", "1e3", ".inf", "2026-01-01", "12:30:45", "=", "<<",
)  # fmt: skip
PLAIN = ("a", "v1", "1.2.3", "10Mi", "100m", "a b", "é", "0xZZ", "yesterday")


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_a_string_that_resolves_to_another_type_is_quoted(text: str) -> None:
    assert f'a: "{text}"\n' == to_yaml(json.dumps({"a": text}).encode()).decode()


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_string_is_not_quoted(text: str) -> None:
    assert f"a: {text}\n" == to_yaml(json.dumps({"a": text}).encode()).decode()


def test_keys_are_sorted_and_long_strings_are_not_folded() -> None:
    value = {"b": 1, "a": {"d": [1, "x y " * 100], "c": "one\ntwo\n"}, "e": None}
    text = to_yaml(json.dumps(value).encode()).decode()
    assert ["a:", "  c: |", "    one", "    two", "  d:", "  - 1"] == text.splitlines()[:6]
    assert ["b: 1", "e: null"] == text.splitlines()[-2:]
    assert value == yaml.safe_load(text)
    assert value == read(text)


def test_yaml_with_very_many_values_is_refused_before_any_is_built() -> None:
    """Each takes a hundred times what it takes as JSON."""
    few = b"- a\n" * (YAML_VALUES_MAX - 1)
    assert YAML_VALUES_MAX - 1 == len(json.loads(from_yaml(few)))
    with pytest.raises(ApiError) as caught:
        from_yaml(few + b"- a\n")
    assert 413 == caught.value.code
    as_json = b"[" + b"1, " * YAML_VALUES_MAX + b"1]"
    assert as_json == from_yaml(as_json)
