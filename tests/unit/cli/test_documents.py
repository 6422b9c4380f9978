"""Manifests are read as kubectl reads them, JSON byte for byte, and never beyond the limits."""

import builtins
import gzip
import io
import json
import os
import random
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
import zstandard

from stower.cli import documents, text_stream, yaml_text
from stower.cli.documents import DocumentError, Limits, read_documents

HEAD = "apiVersion: v1\nkind: Pod\n"
POD = b'{"apiVersion":"v1","kind":"Pod"}'
MIB = 2**20
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
}

# Without a time inside: the bytes are part of test names, which must not change.
zipped = partial(gzip.compress, mtime=0)


class Stream(io.RawIOBase):
    """A stream that gives at most `step` bytes at a time, and counts them."""

    def __init__(self, data: bytes, step: int) -> None:
        self.data = data
        self.step = step
        self.given = 0

    def read(self, size: int = -1) -> bytes:
        piece = self.data[self.given : self.given + self.step]
        self.given += len(piece)
        return piece


class Endless(io.RawIOBase):
    """A stream of one line without end, after a beginning."""

    def __init__(self, beginning: bytes) -> None:
        self.beginning = beginning
        self.given = 0

    def read(self, size: int = -1) -> bytes:
        piece = self.beginning + b"x" * (size - len(self.beginning))
        self.beginning = b""
        self.given += len(piece)
        return piece


def from_stdin(text: str | bytes, limits: Limits = documents.DEFAULT_LIMITS) -> list[bytes]:
    data = text.encode() if isinstance(text, str) else text
    found = read_documents(["-"], stdin=io.BytesIO(data), limits=limits)
    return [document.data for document in found]


def value_of(yaml_value: str) -> Any:
    """What a YAML value is in the JSON of its document, numbers as their text."""
    (data,) = from_stdin(f"{HEAD}a: {yaml_value}\n")
    return json.loads(data, parse_float=lambda text: ("number", text), parse_int=number)["a"]


def number(text: str) -> tuple[str, str]:
    return ("number", text)


def refused(text: str | bytes, limits: Limits = documents.DEFAULT_LIMITS) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        from_stdin(text, limits)
    return caught.value


def refused_path(path: Path | str, limits: Limits = documents.DEFAULT_LIMITS) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        list(read_documents([str(path)], limits=limits))
    return caught.value


def peak_bytes(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(params=["C", "Python"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers of PyYAML, the one in C where it is installed."""
    if request.param == "Python":
        monkeypatch.setattr(yaml_text, "_LOADER", yaml.SafeLoader)


# Inputs


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("extension", [".yaml", ".yml", ".json", ".ndjson", ".YAML", ".Json"])
def test_file_is_read_by_its_name(tmp_path: Path, extension: str, suffix: str) -> None:
    """Every extension, alone and compressed, gives the object of the file under its path."""
    data = HEAD.encode() if extension.lower().startswith(".y") else POD
    path = tmp_path / f"pod{extension}{suffix}"
    path.write_bytes(PACKERS[suffix](data))
    expected = documents.Document(source=str(path), index=1, item=None, data=POD)
    assert [expected] == list(read_documents([str(path)]))


def test_folder_is_read_recursively_in_order_of_names(tmp_path: Path) -> None:
    """Files and folders take their turns by name; only manifests that are not hidden are read."""
    for name in (
        "b/z.json",
        "b/a.json",
        "c.json",
        "a.yaml",
        ".hidden.json",
        ".git/x.json",
        "README.md",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(POD)
    (tmp_path / "x.json").mkdir()
    found = [Path(d.source).relative_to(tmp_path) for d in read_documents([str(tmp_path)])]
    assert ["a.yaml", "b/a.json", "b/z.json", "c.json"] == [str(path) for path in found]


def test_inputs_are_read_in_the_order_given(tmp_path: Path) -> None:
    for name in ("b.json", "a.json"):
        (tmp_path / name).write_bytes(POD)
    inputs = [str(tmp_path / "b.json"), "-", str(tmp_path / "a.json")]
    found = read_documents(inputs, stdin=io.BytesIO(POD))
    assert [inputs[0], "stdin", inputs[2]] == [document.source for document in found]


def test_linked_folders_are_read_once_and_loops_end(tmp_path: Path) -> None:
    """Neither a link to a parent nor many links to one folder multiply the work."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "pod.json").write_bytes(POD)
    (tmp_path / "real" / "up").symlink_to(tmp_path)
    (tmp_path / "same").symlink_to(tmp_path / "real")
    (tmp_path / "self.json").symlink_to(tmp_path / "self.json")
    found = [document.source for document in read_documents([str(tmp_path)])]
    assert [str(tmp_path / "real" / "pod.json")] == found


def test_linked_file_is_read(tmp_path: Path) -> None:
    """A mounted ConfigMap is a folder of links into a hidden folder."""
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "pod.json").write_bytes(POD)
    (tmp_path / "pod.json").symlink_to("..data/pod.json")
    assert [str(tmp_path / "pod.json")] == [d.source for d in read_documents([str(tmp_path)])]


def test_broken_link_matters_only_if_it_is_named_as_a_manifest(tmp_path: Path) -> None:
    (tmp_path / "socket").symlink_to(tmp_path / "nowhere")
    assert list(read_documents([str(tmp_path)])) == []
    (tmp_path / "pod.json").symlink_to(tmp_path / "nowhere")
    error = refused_path(tmp_path)
    assert f"{tmp_path}/pod.json: cannot be read: No such file or directory" == str(error)


def test_missing_file_is_named(tmp_path: Path) -> None:
    error = refused_path(tmp_path / "pod.yaml")
    assert (str(tmp_path / "pod.yaml"), None, None) == (error.source, error.document, error.field)
    assert f"{tmp_path}/pod.yaml: cannot be read: No such file or directory" == str(error)


@pytest.mark.parametrize("name", ["", "pod\0.yaml", "x" * 300 + ".yaml"])
def test_impossible_path_is_refused(name: str) -> None:
    assert "cannot be read: " in str(refused_path(name))


def test_path_that_is_no_text_can_be_printed(tmp_path: Path) -> None:
    error = refused_path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.yaml"))
    assert "\\udcff.yaml" in str(error).encode().decode()


def test_error_holds_nothing_that_a_terminal_obeys() -> None:
    assert "\\x1b[2J" in str(refused(POD + b"\x1b[2J"))
    assert "\\x9b2J" in str(refused(f'{HEAD}"\\x9b2J": 1\n"\\x9b2J": 2\n'))


@pytest.mark.parametrize("function", ["open", "listdir"])
def test_missing_permission_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    def deny(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "pod.json").write_bytes(POD)
    monkeypatch.setattr(builtins if function == "open" else os, function, deny)
    assert "cannot be read: Permission denied" in str(refused_path(tmp_path))


def test_failing_read_is_an_error_of_the_document() -> None:
    class Failing(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(DocumentError, match="cannot be read: Input/output error"):
        list(read_documents(["-"], stdin=cast(Any, Failing())))


def test_pipes_and_devices_are_refused_without_waiting(tmp_path: Path) -> None:
    """Opening a pipe without a writer would never return."""
    os.mkfifo(tmp_path / "pod.yaml")
    want = "is not a regular file; a stream can be read only from standard input, as '-'"
    assert want == refused_path(tmp_path / "pod.yaml").message
    assert want == refused_path(tmp_path).message
    assert want == refused_path("/dev/null").message


def test_unknown_extension_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pod.txt").write_bytes(POD)
    assert "unknown format, want a name that ends in" in str(refused_path(tmp_path / "pod.txt"))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
@pytest.mark.parametrize(
    "text",
    [POD, b" \n\t" + POD, b"\xef\xbb\xbf" + POD, b"[%b]" % POD, HEAD.encode(), b"# c\n---\n" + POD],
)
def test_format_of_standard_input_shows_in_its_first_bytes(
    text: bytes, pack: Callable[[bytes], bytes]
) -> None:
    assert [POD] == from_stdin(pack(text))


def test_standard_input_is_read_only_once() -> None:
    with pytest.raises(DocumentError, match="stdin: can be read only once"):
        list(read_documents(["-", "-"], stdin=io.BytesIO(POD)))


@pytest.mark.parametrize("step", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf" + f"{HEAD}a: é😀\n---\n{HEAD}b: '\n\n'\n...\n# end".encode(),
        b'\xef\xbb\xbf{"apiVersion":"v1","kind":"Pod",\n "a":"\xc3\xa9\\"{["}' + POD + b"\n",
    ],
)
def test_pieces_in_which_a_stream_comes_do_not_matter(text: bytes, step: int) -> None:
    stream = cast(Any, Stream(text, step))
    assert from_stdin(text) == [d.data for d in read_documents(["-"], stdin=stream)]


def test_documents_come_before_the_error_after_them() -> None:
    found = read_documents(["-"], stdin=io.BytesIO(POD + b"\n{"))
    assert POD == next(found).data
    with pytest.raises(DocumentError):
        next(found)


def test_error_says_file_document_field_and_message() -> None:
    error = DocumentError("pods.yaml", 3, "spec.containers[0].image", "got 1, want text")
    assert "pods.yaml: document 3: spec.containers[0].image: got 1, want text" == str(error)
    assert "pods.yaml: got 1, want text" == str(
        DocumentError("pods.yaml", None, None, "got 1, want text")
    )


# JSON


def test_json_keeps_every_byte_of_an_object() -> None:
    """Blanks, order, escapes, numbers and duplicate keys are the author's."""
    text = (
        b'{ "kind" : "Pod",\n\t"apiVersion":"v1", "n":1.50e+1, "a":"\\u00e9/\\/", "a":"\xc3\xa9" }'
    )
    assert [text] == from_stdin(text)
    assert [text, text] == from_stdin(b"[%b ,\n%b]" % (text, text))
    assert [text] == from_stdin(b'{"apiVersion":"v1","kind":"List","items":[ %b ]}' % text)


@pytest.mark.parametrize("between", [b"", b"\n", b"\r\n\r\n", b" \t"])
def test_json_values_follow_one_another_with_or_without_blanks(between: bytes) -> None:
    text = between.join([POD, b"[%b]" % POD, b'{\n"apiVersion":"v1",\n"kind":"Pod"\n}', POD])
    found = list(read_documents(["-"], stdin=io.BytesIO(text + between)))
    assert [(1, None), (2, 1), (3, None), (4, None)] == [(d.index, d.item) for d in found]


def test_brackets_and_quotes_in_strings_do_not_end_a_json_value() -> None:
    text = rb'{"apiVersion":"v1","kind":"Pod","a":"}]\"}{\\","b\\":"[\\\"{"}'
    assert [text, POD] == from_stdin(text + POD)


def test_duplicate_json_keys_are_left_to_the_decoder_and_the_last_counts_here() -> None:
    text = b'{"apiVersion":"v1","kind":"PodList","kind":"Pod","items":[]}'
    assert [text] == from_stdin(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"kind": "Pod",}', "line 1, column 16: malformed JSON: trailing comma in object"),
        (b'\n\n  {"kind":\n 01}', "line 4, column 3: malformed JSON: invalid number"),
        (b'{"kind": NaN}', "line 1, column 10: malformed JSON: invalid character"),
        (b"{'kind': 1}", "line 1, column 2: malformed JSON: expected '\"'"),
        (b'{"kind": "\t"}', "line 1, column 11: malformed JSON: invalid character"),
        (b'{"kind": "\\x"}', "line 1, column 12: malformed JSON: invalid escaped character"),
        (b'{"kind": "\\ud800"}', "line 1, column 1: malformed JSON: half of a surrogate pair"),
        (b'{"kind": [1}}', "line 1, column 12: malformed JSON: expected ',' or ']'"),
        (b'{"kind": "Pod"', "line 1, column 1: truncated: the object or array has no end"),
        (b'{"kind": "Pod\n"}', "line 1, column 10: the string does not end on its line"),
        (b'{"kind": "Pod', "line 1, column 10: the string does not end on its line"),
        (b'{"kind": "\\', "line 1, column 10: the string does not end on its line"),
        (b'{"kind":\n"\xc3\x28"}', "line 2, column 2: invalid UTF-8"),
        (b'{"kind": "\xed\xa0\x80"}', "line 1, column 11: invalid UTF-8"),
        (b'{"kind": "\xc3"}', "line 1, column 11: invalid UTF-8"),
    ],
)
def test_malformed_json_is_located(text: bytes, message: str) -> None:
    """Columns count bytes; the document is the one after those that were read."""
    assert f"stdin: document 1: {message}" == str(refused(text))
    assert 2 == refused(POD + b"\n" + text).document


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (POD + b" oops\n", "line 1, column 34: got oops, want an object or an array"),
        (POD + b"\n," + POD, "line 2, column 1: got ,"),
        (POD + b"\n}", "line 2, column 1: got }, want an object or an array"),
        (POD + b'\n"Pod"', 'line 2, column 1: got "Pod", want an object or an array'),
        (POD + b"\xff" * 200, "..., want an object or an array"),
    ],
)
def test_only_objects_and_arrays_stand_in_a_json_stream(text: bytes, message: str) -> None:
    error = refused(text)
    assert (2, True) == (error.document, message in error.message)


def test_json_numbers_out_of_range_are_left_to_the_decoder() -> None:
    text = b'{"apiVersion":"v1","kind":"Pod","n":1e999,"m":123456789012345678901234567890}'
    assert [text] == from_stdin(text)


# Lists


@pytest.mark.parametrize("kind", ["List", "PodList", "FooList"])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_lists_give_their_items(kind: str, form: str) -> None:
    items = '[{"apiVersion":"v1","kind":"Pod"},{"apiVersion":"v1","kind":"Node"}]'
    text = f'"apiVersion":"v1","kind":"{kind}","metadata":{{}},"items":{items}'
    text = f"{{{text}}}" if form == "json" else f"---\n{{{text}}}"
    found = list(read_documents(["-"], stdin=io.BytesIO(text.encode())))
    assert [(1, 1, POD), (1, 2, POD.replace(b"Pod", b"Node"))] == [
        (d.index, d.item, d.data) for d in found
    ]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (b'{"a" : 1.0 }', b'{"apiVersion":"v1","kind":"Pod","a" : 1.0 }'),
        (b"{}", b'{"apiVersion":"v1","kind":"Pod"}'),
        (b"{ \n}", b'{"apiVersion":"v1","kind":"Pod" \n}'),
        (b'{"kind":"X"}', b'{"apiVersion":"v1","kind":"X"}'),
        (b'{"apiVersion":"x/v1"}', b'{"kind":"Pod","apiVersion":"x/v1"}'),
        (b'{"\\u006bind":"X","apiVersion":"v1"}', b'{"\\u006bind":"X","apiVersion":"v1"}'),
    ],
)
def test_items_of_a_typed_list_get_what_they_lack_in_front(item: bytes, expected: bytes) -> None:
    """Raw dumps leave apiVersion and kind out; no other byte of the item changes."""
    text = b'{"items":[ %b ],"kind":"PodList","apiVersion":"v1"}' % item
    assert [expected] == from_stdin(text)


def test_kind_with_quotes_is_inserted_as_valid_json() -> None:
    (data,) = from_stdin(rb'{"items":[{}],"kind":"a\"bList","apiVersion":"v1"}')
    assert {"apiVersion": "v1", "kind": 'a"b'} == json.loads(data)


def test_items_of_a_plain_list_need_their_own_kind() -> None:
    error = refused(b'{"apiVersion":"v1","kind":"List","items":[%b,{"kind":"Pod"}]}' % POD)
    assert "items[1].apiVersion" == error.field
    assert 'got nothing, want text such as "v1"' == error.message


def test_lists_in_a_list_are_read_one_level_deep() -> None:
    inner = b'{"apiVersion":"v1","kind":"PodList","items":[{},{}]}'
    outer = b'{"apiVersion":"v1","kind":"List","items":[%b,%b]}'
    found = list(read_documents(["-"], stdin=io.BytesIO(outer % (inner, POD))))
    assert [(1, POD), (2, POD), (3, POD)] == [(d.item, d.data) for d in found]
    error = refused(outer % (POD, outer % (inner, POD)))
    assert "items[1].items[0].items" == error.field


@pytest.mark.parametrize("kind", ["AllowList", "List"])
def test_kind_that_ends_with_list_but_has_no_items_is_an_object(kind: str) -> None:
    text = b'{"apiVersion":"v1","kind":"%b","spec":{}}' % kind.encode()
    assert [text] == from_stdin(text)


@pytest.mark.parametrize("items", ["[]", "null"])
def test_list_without_items_gives_nothing(items: str) -> None:
    assert from_stdin(f'{{"apiVersion":"v1","kind":"PodList","items":{items}}}') == []


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ('{"apiVersion":"v1","kind":"List","items":{}}', "items", "got {}, want an array"),
        (
            '{"apiVersion":"v1","kind":"List","items":[[1]]}',
            "items[0]",
            "got [1], want an object with apiVersion and kind",
        ),
        ("[null]", "[0]", "got null, want an object with apiVersion and kind"),
        ('[{"kind":"Pod"}]', "[0].apiVersion", 'got nothing, want text such as "v1"'),
        ('{"kind":"Pod"}', "apiVersion", 'got nothing, want text such as "v1"'),
        ('{"apiVersion":"v1"}', "kind", 'got nothing, want text such as "Pod"'),
        ('{"apiVersion":1,"kind":"Pod"}', "apiVersion", 'got 1, want text such as "v1"'),
        ('{"apiVersion":"v1","kind":""}', "kind", 'got "", want text such as "Pod"'),
        ('{"apiVersion":"v1","kind":null}', "kind", 'got null, want text such as "Pod"'),
        ("kind: Pod\n", "apiVersion", 'got nothing, want text such as "v1"'),
        ("kind: yes\napiVersion: v1\n", "kind", 'got true, want text such as "Pod"'),
        ("text\n", None, 'got "text", want an object with apiVersion and kind'),
        ("- a\n", None, 'got ["a"], want an object with apiVersion and kind'),
    ],
)
def test_object_must_name_its_version_and_kind(text: str, field: str | None, message: str) -> None:
    error = refused(text)
    assert (1, field, message) == (error.document, error.field, error.message)


# YAML


def test_yaml_documents_are_counted_from_one_with_the_empty_ones() -> None:
    """A licence before the first marker is no document, an empty one between markers is."""
    text = f"# licence\n\n---\n{HEAD}---\n---\n# nothing\n--- # comment\n{HEAD}...\n{HEAD}---\n"
    found = list(read_documents(["-"], stdin=io.BytesIO(text.encode())))
    assert [1, 4, 5] == [document.index for document in found]


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# comment\n", "---\n", "---\n...\n", "\ufeff", "~\n"]
)
def test_empty_text_has_no_documents(text: str) -> None:
    assert from_stdin(text) == []


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_any_line_ending_separates_documents(newline: str) -> None:
    text = f"{HEAD}---\n{HEAD}".replace("\n", newline)
    assert [POD, POD] == from_stdin(text)


def test_markers_need_a_line_of_their_own() -> None:
    text = f'{HEAD}a: |\n  ---\nb: "x---\n  ---"\nc: ---x\n'
    (data,) = from_stdin(text)
    assert {"a": "---\n", "b": "x--- ---", "c": "---x"} == {
        key: value for key, value in json.loads(data).items() if key in "abc"
    }


@pytest.mark.parametrize(
    "text", ["--- {apiVersion: v1, kind: Pod}", f"%YAML 1.1\n# c\n---\n{HEAD}"]
)
def test_content_beside_the_marker_and_directives_before_it_belong_to_the_document(
    text: str,
) -> None:
    assert [POD, POD] == from_stdin(f"{HEAD}...\n{text}")


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[(word, True) for word in ("yes", "Yes", "YES", "on", "On", "true", "True", "y", "Y")],
        *[(word, False) for word in ("no", "No", "off", "OFF", "false", "FALSE", "n", "N")],
        *[(word, None) for word in ("null", "Null", "~", "", "# comment")],
        *[(word, word) for word in ("yEs", "nULL", "=", "2024-01-01", "2024-01-01T10:00:00Z")],
        *[(word, word) for word in ("12:30:45", "190:20:30.15", "1Gi", "100m", "1.2.3", "v1")],
        *[(word, word) for word in ("0x", "0b2", "1e", ".", ".e1", "+", "_1", "0x1p4", "1e999")],
        *[(word, word) for word in ("._5", ".5__0", ".5_")],
        ("'yes'", "yes"),
        ('"1"', "1"),
        ("!!str 1", "1"),
        ("! 1", "1"),
        ("!!str yes", "yes"),
        ("!!timestamp 2024-01-01", "2024-01-01"),
        ("!!null ''", None),
        ("!!bool 'no'", False),
        ("<<", "<<"),
    ],
)
def test_plain_words_mean_what_kubectl_takes_them_for(text: str, expected: object) -> None:
    assert expected == value_of(text)


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("+7", "7"),
        ("010", "8"),
        ("-010", "-8"),
        ("08", "8"),
        ("0o17", "15"),
        ("0x1F", "31"),
        ("-0X1f", "-31"),
        ("0b1_1", "3"),
        ("1_000", "1000"),
        ("1_", "1"),
        ("1e3", "1000"),
        ("1E+3", "1000"),
        ("1.0", "1"),
        ("5.", "5"),
        (".5", "0.5"),
        ("-.5", "-0.5"),
        (".5_0", "0.5"),
        ("1e-5", "0.00001"),
        ("1e-7", "1e-7"),
        ("1e-10", "1e-10"),
        ("1e20", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("-0.0", "-0"),
        ("1e-400", "0"),
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("-9223372036854775809", "-9223372036854776000"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "18446744073709552000"),
        ("+9223372036854775808", "9223372036854776000"),
        ("0777777777777777777777777", "7.777777777777778e+23"),
        ("!!float 3", "3"),
        ("!!int '3'", "3"),
    ],
)
def test_numbers_are_written_as_kubectl_writes_them(text: str, expected: str) -> None:
    assert ("number", expected) == value_of(text)


def test_very_long_digits_stay_text() -> None:
    assert "1" * 5_000 == value_of("1" * 5_000)


def test_keys_become_text_as_in_json() -> None:
    (data,) = from_stdin(f"{HEAD}1: a\n0x10: b\ntrue: c\nno: d\n'2': e\n")
    assert {"1": "a", "16": "b", "true": "c", "false": "d", "2": "e"} == {
        key: value for key, value in json.loads(data).items() if len(value) == 1
    }


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("b: 1\nb: 2", "b", 'line 4, column 1: duplicate key "b"'),
        ("1: a\n'1': b", "1", 'line 4, column 1: duplicate key "1"'),
        (
            "spec:\n  containers:\n  - name: x\n  - image: a\n    image: b",
            "spec.containers[1].image",
            'line 7, column 5: duplicate key "image"',
        ),
        (
            "metadata: {labels: {app.io/name: a, app.io/name: b}}",
            "metadata.labels[app.io/name]",
            'line 3, column 37: duplicate key "app.io/name"',
        ),
        ("a: {<<: {b: 1}, <<: {c: 1}}", "a[<<]", 'line 3, column 17: duplicate key "<<"'),
        ("1.5: a", None, 'line 3, column 1: got "1.5" as a key, want text (put it in quotes)'),
        ("~: a", None, 'line 3, column 1: got "~" as a key, want text (put it in quotes)'),
        ("? [a]\n: b", None, "line 3, column 3: a mapping or sequence cannot be a key"),
        ("a: &x [b]\n*x : c", None, 'line 4, column 1: got "an alias" as a key'),
        ("a: .nan", "a", "line 3, column 4: got .nan, want a finite number"),
        ("a: [-.INF]", "a[0]", "line 3, column 5: got -.INF, want a finite number"),
        ("a: !!binary aGk=", "a", "line 3, column 4: the tag !!binary is not allowed"),
        ("a: !!set {b}", "a", "line 3, column 4: the tag !!set is not allowed"),
        ("a: !mine b", "a", "line 3, column 4: the tag !mine is not allowed"),
        ("a: !!int b", "a", 'line 3, column 4: got "b", want a value of the tag !!int'),
        ("a: *b", "a", "line 3, column 4: no anchor &b before this alias"),
        ("a: &b [*b]", "a[0]", "line 3, column 8: the anchor &b contains itself"),
        ("a: {<<: 1}", "a[<<]", "want a mapping or a sequence of mappings to merge"),
        ("a: {<<: [1]}", "a[<<]", "want a mapping or a sequence of mappings to merge"),
        ("a:\n\tb: c", None, "line 4, column 1: a tab cannot indent or begin a value"),
        ("a: \x01", None, "line 3, column 4: "),
        ('a: "b', None, "line 3, column 6: found unexpected end of stream"),
        ("a: [b", None, "line 3 or later"),
        ("a: b: c", None, "line 3, column 5: mapping values are not allowed"),
    ],
)
def test_faulty_yaml_is_located(text: str, field: str | None, message: str) -> None:
    """Lines are those of the file, also in its later documents."""
    error = refused(HEAD + text)
    assert (1, field) == (error.document, error.field)
    assert message.removesuffix("line 3 or later") in error.message
    shifted = refused(f"{HEAD}---\n{HEAD}{text}")
    assert 2 == shifted.document
    if message.startswith("line 3,"):
        assert message.replace("line 3,", "line 6,") in shifted.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a: \xff\n", "line 1, column 4: invalid UTF-8"),
        (b"\xef\xbb\xbfa:\n- \xc3", "line 2, column 3: invalid UTF-8"),
        ("a: b\n".encode("utf-16"), "line 1, column 1: invalid UTF-8"),
        (b"%YAML 3.0\n---\na: b\n", "line 1, column 1: found incompatible YAML document"),
    ],
)
def test_text_that_is_no_yaml_1_in_utf8_is_refused(text: bytes, message: str) -> None:
    assert message == refused(text).message


def test_merge_keys_add_what_is_not_said_explicitly() -> None:
    """The mapping's own keys win wherever `<<` stands, then the earlier of several sources."""
    text = "base: &base {b: 1, c: 2}\none: {c: 3, <<: *base}\ntwo:\n  <<: [*base, {c: 4, d: 5}]\n"
    (data,) = from_stdin(f"{HEAD}{text}three: {{'<<': 6}}\n")
    value = json.loads(data)
    assert [{"b": 1, "c": 3}, {"b": 1, "c": 2, "d": 5}] == [value["one"], value["two"]]
    assert {"<<": 6} == value["three"]
    assert {"b": 1, "c": 2} == value["base"]


def test_aliases_repeat_values_and_anchors_end_with_their_document() -> None:
    (data,) = from_stdin(f"{HEAD}a: &x [1, {{b: 2}}]\nb: *x\nc: &x d\ne: *x\n? *x\n: f\n")
    assert {"a": [1, {"b": 2}], "b": [1, {"b": 2}], "c": "d", "e": "d", "d": "f"} == {
        key: value for key, value in json.loads(data).items() if len(key) == 1
    }
    assert 2 == refused(f"{HEAD}a: &x b\n---\n{HEAD}a: *x\n").document


def test_yaml_text_is_encoded_as_json() -> None:
    assert ("\x07\x85é😀\u2028", "a b\n") == (
        value_of(r'"\a\x85é😀\u2028"'),
        value_of(">\n  a\n  b"),
    )


# Compression


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_compressed_streams_may_follow_one_another(pack: Callable[[bytes], bytes]) -> None:
    data = pack(POD) + pack(b"") + pack(POD) + b"\0" * 600
    assert [POD, POD] == from_stdin(data)


@pytest.mark.parametrize(("pack", "name"), [(gzip.compress, "gz"), (zstandard.compress, "zst")])
def test_damaged_compression_is_refused(
    tmp_path: Path, pack: Callable[[bytes], bytes], name: str
) -> None:
    packed = pack(POD * 100)
    path = tmp_path / f"pods.json.{name}"
    path.write_bytes(packed[:-1])
    assert f"truncated: the {name} data has no end" == refused_path(path).message
    for data in (POD, packed + b"trailing", packed[:10] + bytes(10) + packed[20:]):
        path.write_bytes(data)
        assert refused_path(path).message.startswith(f"damaged {name} data: ")
    path.write_bytes(b"")
    assert f"truncated: the {name} data has no end" == refused_path(path).message


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("beginning", [b"", b"[", b"a: "])
def test_decompression_bomb_is_refused_while_it_unfolds(
    pack: Callable[[bytes], bytes], beginning: bytes
) -> None:
    """32 MiB out of some kilobytes, with a limit of 1: no more than a step beyond it is held."""
    packed = pack(beginning + b" " * (32 * MIB))
    limits = Limits(file_bytes_max=MIB, yaml_line_bytes_max=MIB)
    errors: list[DocumentError] = []
    assert peak_bytes(lambda: errors.append(refused(packed, limits))) < 16 * MIB
    assert "has more than 1048576 bytes" in errors[0].message


def test_zstd_that_asks_for_too_much_memory_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=28)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert "too much memory" in refused(packer.compress(POD) + packer.flush()).message


def test_endless_row_of_compressed_streams_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_stream, "_STREAM_COUNT_MAX", 100)
    assert [POD] == from_stdin(zipped(b"") * 99 + zipped(POD))
    assert "more than 100 gz streams" == refused(zipped(b"") * 101).message


# Limits


@pytest.mark.parametrize(
    ("beginning", "message"),
    [
        (b"", "line 1, column 1: the line has more than 4194304 bytes"),
        (b"a: 1\nb: ", "line 2, column 1: the line has more than 4194304 bytes"),
        (b'{"a":"', "has more than 8388608 bytes"),
        (b'[\n"', "has more than 8388608 bytes"),
    ],
)
def test_line_without_end_is_refused_at_the_limit(beginning: bytes, message: str) -> None:
    """No more is asked of the stream than the limit and one piece, and nothing is held twice."""
    stream = Endless(beginning)
    limits = Limits(file_bytes_max=8 * MIB, yaml_line_bytes_max=4 * MIB)

    def read() -> None:
        with pytest.raises(DocumentError) as caught:
            list(read_documents(["-"], stdin=cast(Any, stream), limits=limits))
        assert message == caught.value.message

    limit = limits.file_bytes_max if beginning[:1] in b"{[" and beginning else 4 * MIB
    assert peak_bytes(read) < 2 * limit
    assert stream.given <= limit + MIB


def test_lines_at_the_limit_are_read(tmp_path: Path) -> None:
    limits = Limits(yaml_line_bytes_max=100)
    text = f"{HEAD}a: {'x' * 97}\n"
    assert 1 == len(from_stdin(text, limits))
    error = refused(f"{HEAD}---\n{text}b: {'x' * 98}\n", limits)
    assert "line 7, column 1: the line has more than 100 bytes" == error.message


def test_large_file_is_refused_by_its_size_unread(tmp_path: Path) -> None:
    """A sparse file of 1 TiB: reading it would take hours."""
    path = tmp_path / "pods.json"
    with path.open("wb") as file:
        file.truncate(2**40)
    assert f"{path}: has more than 536870912 bytes" == str(refused_path(path))


def test_file_at_the_limit_is_read() -> None:
    assert [POD] == from_stdin(POD, Limits(file_bytes_max=len(POD)))
    assert 1 == refused(POD + b"\n", Limits(file_bytes_max=len(POD))).document


def test_large_yaml_document_is_refused_and_its_neighbours_are_not() -> None:
    limits = Limits(yaml_document_bytes_max=100)
    small = f"---\n{HEAD}"
    assert 20 == len(from_stdin(small * 20, limits))
    error = refused(f"{small}{small}a:\n" + "- x\n" * 50, limits)
    assert (2, "line 4, column 1: the document has more than 100 bytes") == (
        error.document,
        error.message,
    )


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_nesting_is_limited(form: str, brackets: str) -> None:
    """The object itself is the first level; deeper text is refused before it is decoded."""

    def nested(depth: int) -> str:
        key = '"a":' if brackets == "{}" else ""
        value = (brackets[0] + key) * depth + "1" + brackets[1] * depth
        text = f'{{"apiVersion":"v1","kind":"Pod","a":{value}}}'
        return text if form == "json" else f"---\n{text}"

    assert 1 == len(from_stdin(nested(99)))
    for depth in (100, 200_000):
        assert "nested deeper than 100 levels" in refused(nested(depth)).message
    assert 1 == len(from_stdin(nested(5), Limits(depth_max=6)))
    assert "nested deeper than 5 levels" in refused(nested(5), Limits(depth_max=5)).message


def test_blocks_and_aliases_count_as_nesting() -> None:
    limits = Limits(depth_max=4)
    assert 1 == len(from_stdin(f"{HEAD}a:\n- - - 1\n", limits))
    assert "nested deeper" in refused(f"{HEAD}a:\n- - - - 1\n", limits).message
    assert 1 == len(from_stdin(f"{HEAD}a: &a [[1]]\nb: [*a]\n", limits))
    assert "nested deeper" in refused(f"{HEAD}a: &a [[1]]\nb: [[*a]]\n", limits).message


@pytest.mark.parametrize("depth", [0, 501])
def test_depth_that_decoders_cannot_hold_is_no_limit(depth: int) -> None:
    with pytest.raises(ValueError, match="depth_max: got"):
        Limits(depth_max=depth)


@pytest.mark.parametrize(
    ("first", "form"),
    [("a0: &a0 [x,x,x,x,x,x,x,x,x,x]", "[{}]"), ("a0: &a0 {b: x}", "{{{}}}")],
)
def test_yaml_bomb_is_refused_before_it_unfolds(first: str, form: str) -> None:
    """Ten levels of ten would be 10**10 values."""
    lines = [first]
    for level in range(1, 10):
        keys = "" if form == "[{}]" else "k{}: "
        aliases = ", ".join(keys.format(i) + f"*a{level - 1}" for i in range(10))
        lines.append(f"a{level}: &a{level} " + form.format(aliases))
    text = HEAD + "\n".join(lines)
    errors: list[DocumentError] = []
    assert peak_bytes(lambda: errors.append(refused(text))) < 2 * MIB
    assert "aliases expand to more than 1000000 values" in errors[0].message


def test_merge_bomb_is_refused() -> None:
    keys = ", ".join(f"k{i}: {i}" for i in range(1_000))
    text = f"{HEAD}a: &a {{{keys}}}\nb:\n" + "- <<: *a\n" * 1_000
    errors: list[DocumentError] = []
    assert peak_bytes(lambda: errors.append(refused(text))) < 64 * MIB
    assert "aliases expand to more than 1000000 values" in errors[0].message


def test_aliases_of_long_text_are_counted_by_their_length() -> None:
    text = f"{HEAD}a: &a {'x' * MIB}\nb: [{', '.join(['*a'] * 100)}]\n"
    assert "b[32]" == refused(text).field
    assert "aliases expand to more than 33554432 characters" in refused(text).message


def test_many_small_aliases_are_read() -> None:
    text = f"{HEAD}a: &a {{b: c}}\nd:\n" + "- *a\n" * 10_000
    (data,) = from_stdin(text)
    assert [{"b": "c"}] * 10_000 == json.loads(data)["d"]


def test_list_items_are_counted_before_they_are_held() -> None:
    limits = Limits(list_items_max=1_000)
    start = '{"apiVersion":"v1","kind":"PodList","items":['
    assert 1_000 == len(from_stdin(start + ",".join(["{}"] * 1_000) + "]}", limits))
    error = refused(start + ",".join(["{}"] * 1_001) + "]}", limits)
    assert ("items", True) == (error.field, "more than 1000 items" in error.message)
    assert "Expected `object`" in refused("[" + "1," * 5_000 + "1]", limits).message


def test_directives_are_limited() -> None:
    """The parser compares each with all others."""
    tags = "".join(f"%TAG !{i}! x\n" for i in range(20_000))
    assert "line 1, column 1: more than 16 directives" == refused(f"{tags}---\n{HEAD}").message
    assert "line 1, column 1: more than 16 directives" == refused(tags).message


# Everything else


SEEDS = [
    '{"apiVersion":"v1","kind":"Pod","a":["x\\"{[",{"b":"é😀"}],"c":1.5e3}\n',
    '{"apiVersion":"v1","kind":"PodList","items":[{"a":{}},{},{"kind":"X","apiVersion":"y"}]}',
    f"{HEAD}metadata: {{name: é😀, labels: {{a: b, 'c': \"d\\n\"}}}}\n",
    "---\n",
    "...\n",
    "%YAML 1.1\n",
    "a: &x [1, 2]\nb: *x\n<<: {c: d}\n",
    "- a\n- b: |\n    text\n",
    "? k\n: !!int 5\n",
]
SCRAPS = [*'{}[]"\\,:\n\t&*!%#|>?-\r\0', "---\n", "\ufeff", "\x85", "&a ", "*a", "- "]


@pytest.mark.parametrize("seed", range(4))
def test_mutilated_text_is_read_or_refused_and_nothing_else(seed: int) -> None:
    """Only DocumentError escapes, what comes out is an object, and pieces never matter."""
    rng = random.Random(seed)
    for _ in range(400):
        text = bytearray("".join(rng.choices(SEEDS, k=rng.randint(1, 3))).encode())
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            scrap = rng.choice(SCRAPS).encode() if rng.random() < 0.8 else b"\xff"
            text[at : at + rng.randint(0, 3)] = scrap
        results = []
        for step in (3, MIB):
            found: list[object] = []
            try:
                for document in read_documents(["-"], stdin=cast(Any, Stream(bytes(text), step))):
                    assert {"apiVersion", "kind"} <= json.loads(document.data).keys()
                    found.append(document)
            except DocumentError as error:
                found.append(str(error))
            results.append(found)
        assert results[0] == results[1]


def test_lines_that_are_whole_objects_are_read_as_all_others(tmp_path: Path) -> None:
    """They take a shorter way, which a blank in front of the first one closes."""
    draw = random.Random(5)
    deep = b'{"apiVersion":"v1","kind":"Pod","a":' + b"[" * 101 + b"]" * 101 + b"}"
    wide = b'{"apiVersion":"v1","kind":"Pod","a":[' + b"{}," * 150 + b"{}]}"
    pretty = b'{\n "apiVersion": "v1",\n "kind": "Pod"\n}'
    pieces = (
        POD,
        POD,
        POD,
        POD + b"\r",
        POD + b" " + POD,
        b"",
        b"  ",
        wide,
        pretty,
        b"[" + POD + b"]",
    )
    broken = (
        deep,
        b'{"apiVersion":"v1","kind"}',
        b"{" + b'"\xff":1}',
        b'{"a":"\\ud800"}',
        b"x",
        b'{"a"',
    )

    def told(data: bytes) -> list[tuple[int, int | None, bytes] | str]:
        path = tmp_path / "lines.json"
        path.write_bytes(data)
        found: list[tuple[int, int | None, bytes] | str] = []
        try:
            found += ((one.index, one.item, one.data) for one in read_documents([str(path)]))
        except DocumentError as error:
            found.append(str(error))
        return found

    for _ in range(300):
        lines = [draw.choice(pieces) for _ in range(draw.randrange(1, 6))]
        if draw.random() < 0.5:
            lines.insert(draw.randrange(1, len(lines) + 1), draw.choice(broken))
        data = POD + b"\n" + b"\n".join(lines) + draw.choice((b"", b"\n"))
        assert told(b" " + data) == told(data), data
