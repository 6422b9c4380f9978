"""Objects as bytes: reading typed views, and edits that leave all other bytes alone."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stower.model.errors import InvalidObject
from stower.model.kinds import Node, Pod, PriorityClass
from stower.model.raw import decode, decode_object, edit, kind_of

RAW_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])

# Values whose text a decoder and encoder would change.
TELLTALE = ("1.0", "1e3", "-0.0", "1E+2", "0.10", "123456789012345678901234567890", r'"\u00e9\/"')

texts = st.one_of(
    st.sampled_from(TELLTALE),
    st.integers().map(str),
    st.text(max_size=4).map(json.dumps),
    st.sampled_from(("true", "false", "null", "[1 , 2]", "{ }", r'{"\u0061": 1.50}')),
)
names = st.sampled_from(("a", "b", "c", "é", "spec", "status", "a b"))


def written(fields: dict[str, Any]) -> str:
    """JSON of nested texts, with blanks that an encoder would not write."""
    items = (
        f"{json.dumps(k)} : {written(v) if isinstance(v, dict) else v}" for k, v in fields.items()
    )
    return "{" + " ,\n".join(items) + " }"


objects = st.recursive(
    st.dictionaries(names, texts, max_size=5),
    lambda inner: st.dictionaries(names, st.one_of(texts, inner), max_size=5),
    max_leaves=12,
)
paths = st.lists(names, min_size=1, max_size=3)


def nested(path: list[str], value: Any) -> dict[str, Any]:
    return {path[0]: nested(path[1:], value) if len(path) > 1 else value}


def off_path(data: bytes, path: list[str]) -> dict[tuple[str, ...], bytes]:
    """The raw bytes of every field that does not lie on the path, by its own path."""
    found: dict[tuple[str, ...], bytes] = {}
    prefix: tuple[str, ...] = ()
    for name in path:
        fields = RAW_FIELDS.decode(data)
        found |= {(*prefix, k): bytes(v) for k, v in fields.items() if k != name}
        prefix = (*prefix, name)
        data = bytes(fields[name]) if name in fields else b""
        if not data.startswith(b"{"):
            break
    return found


@settings(max_examples=200, derandomize=True, deadline=None)
@given(objects, paths, st.one_of(st.integers(-5, 5), st.text(max_size=3), st.none(), st.just([1])))
def test_an_edit_keeps_the_bytes_of_every_field_off_its_path(
    fields: dict[str, Any], path: list[str], value: Any
) -> None:
    before = written(fields).encode()
    after = edit(before, nested(path, value))
    assert off_path(before, path) == off_path(after, path)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(objects, paths, st.one_of(st.integers(-5, 5), st.text(max_size=3), st.none(), st.just([1])))
def test_an_edit_does_what_the_same_change_of_the_decoded_object_does(
    fields: dict[str, Any], path: list[str], value: Any
) -> None:
    """The result decodes to the object with exactly that field set or removed."""
    data = written(fields).encode()
    expected = json.loads(data)
    inner = expected
    for name in path[:-1]:
        if not isinstance(inner.get(name), dict):
            inner[name] = {}
        inner = inner[name]
    if value is None:
        inner.pop(path[-1], None)
    else:
        inner[path[-1]] = value
    actual = json.loads(edit(data, nested(path, value)))
    assert expected == actual
    assert list(expected) == list(actual)


def test_numbers_and_escapes_beside_an_edit_keep_their_text() -> None:
    values = ",".join(f'"f{i}":{text}' for i, text in enumerate(TELLTALE))
    data = f'{{"spec":{{{values},"nodeName":"old"}},"status":{{}}}}'.encode()
    expected = data.replace(b'"old"', b'"new"')
    assert expected == edit(data, {"spec": {"nodeName": "new"}})


def test_an_edit_adds_new_fields_last_and_makes_missing_objects() -> None:
    assert b'{"b":1,"a":{"x":{"y":2}}}' == edit(b'{"b":1}', {"a": {"x": {"y": 2}}})
    assert b'{"a":{"x":1}}' == edit(b'{"a":null}', {"a": {"x": 1}})
    assert b'{"a":{"x":1}}' == edit(b'{"a":"text"}', {"a": {"x": 1}})
    assert b'{"a":1}' == edit(b"", {"a": 1})


def test_an_edit_with_none_removes_the_field_alone() -> None:
    assert b'{"a":{"y":2.0}}' == edit(b'{"a":{"x":1,"y":2.0}}', {"a": {"x": None}})
    assert b'{"a":1}' == edit(b'{"a":1}', {"b": None})


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"metadata":{"name":3}}', "metadata.name"),
        ('{"metadata":{},"spec":{"containers":[{},{"name":false}]}}', "spec.containers[1].name"),
        (
            '{"metadata":{},"spec":{"tolerations":[{"tolerationSeconds":"5"}]}}',
            "spec.tolerations[0].tolerationSeconds",
        ),
        ('{"metadata":{},"spec":{"priority":1.5}}', "spec.priority"),
        ('{"metadata":{},"spec":[]}', "spec"),
        ('{"metadata":{"labels":["a"]}}', "metadata.labels"),
        ('{"metadata":{},"spec":{"schedulingGates":[{}]}}', "spec.schedulingGates[0].name"),
        ('{"metadata":{"labels":{"a":"b","c":1}}}', "metadata.labels[c]"),
        (
            '{"metadata":{},"spec":{"containers":[{"resources":{"requests":{"cpu":true}}}]}}',
            "spec.containers[0].resources.requests[cpu]",
        ),
        ("{}", "metadata"),
        ("[]", "$"),
    ],
)
def test_a_decode_error_names_the_field(text: str, path: str) -> None:
    with pytest.raises(InvalidObject) as error:
        decode(text.encode(), Pod)
    assert path == error.value.path


def test_a_decode_error_says_what_was_found_and_what_is_wanted() -> None:
    with pytest.raises(InvalidObject) as error:
        decode(b'{"metadata":{"name":3}}', Pod)
    assert "metadata.name: got int, want str" == str(error.value)


def test_a_value_out_of_bounds_is_shown() -> None:
    with pytest.raises(InvalidObject) as error:
        decode(b'{"metadata":{},"spec":{"priority":99999999999}}', Pod)
    assert "spec.priority: got 99999999999, want int <= 2147483647" == str(error.value)


def test_a_null_elsewhere_does_not_hide_the_field_at_fault() -> None:
    data = b'{"metadata":{},"spec":{"hostNetwork":null,"containers":[{"name":null,"image":7}]}}'
    with pytest.raises(InvalidObject) as error:
        decode(data, Pod)
    assert "spec.containers[0].image" == error.value.path


def test_a_null_reads_as_an_absent_field() -> None:
    data = b'{"metadata":{"name":"p","labels":null},"spec":{"hostNetwork":null},"status":null}'
    assert decode(b'{"metadata":{"name":"p"}}', Pod) == decode(data, Pod)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"metadata":{}} x',
        b"\xff",
        b'{"metadata":{"name":"\xff"}}',
        b'{"metadata":{"name":null,"uid":"\xff"}}',
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_no_json_is_the_authors_fault(data: bytes) -> None:
    """Broken syntax, text that is not UTF-8 and bottomless nesting are refused, never a crash."""
    with pytest.raises(InvalidObject) as error:
        decode(data, Pod)
    assert "$" == error.value.path


def test_fields_that_are_not_modelled_do_not_matter_to_reading() -> None:
    pod = decode(b'{"metadata":{"name":"p"},"spec":{"hostPID":[1,{"a":null}]},"x":1}', Pod)
    assert "p" == pod.metadata.name


def test_kinds_are_told_by_group_version_and_name() -> None:
    assert Node is kind_of(b'{"apiVersion":"v1","kind":"Node"}').view  # type: ignore[union-attr]
    assert kind_of(b'{"apiVersion":"v2","kind":"Node"}') is None
    assert kind_of(b'{"kind":"PriorityClass"}') is None
    with pytest.raises(InvalidObject, match="apiVersion, kind"):
        kind_of(b'{"apiVersion":1}')


def test_an_object_of_a_known_kind_is_read_as_its_view() -> None:
    head = b'{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass"'
    found = decode_object(head + b',"metadata":{"name":"high"},"value":7,"globalDefault":true}')
    assert isinstance(found, PriorityClass)
    assert (7, True) == (found.value, found.global_default)
    assert decode_object(b'{"apiVersion":"v1","kind":"Secret","metadata":3}') is None
