"""Reads manifests into raw documents: one per API object, as JSON text.

An input is a file, a folder or `-` (stdin). This module handles YAML, JSON, several documents in
one file, lists and compression, so that its callers receive one object at a time. JSON is never
encoded again: an object from a JSON file keeps its bytes, with unknown fields and the order of
keys. If a JSON object has a key twice, both are kept, and decoders use the last, as most parsers
do; YAML with a key twice is rejected.

Reading is lazy and bounded by `Limits`: a stream is read in pieces, and input beyond the limits is
rejected before it is held in memory. Syntax is checked here, values of fields are not.

Source: apimachinery pkg/util/yaml/decoder.go and cli-runtime pkg/resource for what kubectl accepts.

Must not know any kind: reads only apiVersion, kind and items.
"""

import errno
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import BinaryIO, Final

import msgspec

from stower.cli.text_stream import (
    BLANK,
    MIB,
    SHOWN_LENGTH_MAX,
    Text,
    TextError,
    blocks_of,
    check_utf8,
    first_byte,
    limit_bytes,
    packing_of,
    peek,
    position,
    read_chunks,
    shorten,
    too_large,
    unpack,
)
from stower.cli.yaml_text import split_documents, yaml_values
from stower.model.errors import printable

STDIN: Final = "-"
STDIN_SOURCE: Final = "stdin"

# Names that a folder is searched for, and what is in them.
_FORMATS: Final = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".ndjson": "json"}
_PACKED: Final = {".gz": "gz", ".zst": "zst"}
# Files that make a folder the source of manifests, and the command that prints these.
_GENERATORS: Final = {
    "kustomization.yaml": "kubectl kustomize",
    "kustomization.yml": "kubectl kustomize",
    "Kustomization": "kubectl kustomize",
    "Chart.yaml": "helm template",
}
# `kubectl cluster-info dump` without a folder mixes logs with objects.
_LOGS: Final = "==== START logs"
_WANTED: Final = "a name that ends in .yaml, .yml, .json or .ndjson, optionally with .gz or .zst"

# Lists within lists: the outer one and one more, for the output of several commands in one List.
_LIST_DEPTH_MAX: Final = 2

# A run of anything but brackets, whole strings included; then the bracket, or the quotation mark of
# a string that does not end on its line, or nothing at the end of the text. Possessive and atomic
# throughout, so that the time is linear. Groups are atomic: a possessive group that fails halfway
# stays there before Python 3.11.5.
_TOKEN: Final = re.compile(
    rb'[^"{}\[\]]*+(?>(?:"[^"\\\n]*+(?>(?:\\[^\n][^"\\\n]*+)*)"[^"{}\[\]]*+)*)(.?)', re.DOTALL
)
_BLANKS: Final = re.compile(rb"[ \t\r\n]*+")
_BYTE_NUMBER: Final = re.compile(r" \(byte (\d+)\)$")


class DocumentError(Exception):
    """Input that cannot be read: the file, its document from 1, the field, and what is wrong."""

    def __init__(self, source: str, document: int | None, field: str | None, message: str) -> None:
        number = None if document is None else f"document {document}"
        text = ": ".join(part for part in (source, number, field, message) if part)
        super().__init__(printable(text))
        self.source = source
        self.document = document
        self.field = field
        self.message = message


class Document(msgspec.Struct, frozen=True):
    """One API object: JSON text that is an object with apiVersion and kind, both non-empty text.

    `index` counts the documents of the file from 1, empty ones included; `item` counts the objects
    of a list or array from 1, over its inner lists, and is None for an object that stands alone.
    """

    source: str
    index: int
    item: int | None
    data: bytes


@dataclass(frozen=True, slots=True)
class Limits:
    """What is still read; beyond is a DocumentError."""

    # One file after decompression. 100,000 pods as kubectl dumps them are about 360 MB, and a
    # machine that can schedule them has this much memory; JSON without newlines is held whole.
    file_bytes_max: int = 512 * MIB
    # One line of YAML, so that text without newlines is refused early. A line can be a whole object
    # (JSON within YAML): twice the largest document, so that the more telling limit speaks first.
    yaml_line_bytes_max: int = 64 * MIB
    # One YAML document. Ten times the largest request that an API server takes, and a List of
    # 10,000 small pods. A MiB of pods takes about half a second and 12 MiB to read.
    yaml_document_bytes_max: int = 32 * MIB
    # Items of one list. Clusters are supported up to 150,000 pods; an item is at least two bytes of
    # text and takes 72 while the list is taken apart.
    list_items_max: int = 1_000_000
    # Collections within collections. CRD schemas, the deepest objects in use, have some dozens;
    # decoders that recurse stay far from the end of their stack.
    depth_max: int = 100
    # Values, with repetitions, that the aliases of one YAML document stand for. Hand-written
    # manifests have hundreds, a generated List of 10,000 pods with one shared spec half of this.
    alias_nodes_max: int = 1_000_000
    # Characters of those values: otherwise few aliases of one long text would be gigabytes. As much
    # as a document may have without aliases.
    alias_text_max: int = 32 * MIB

    def __post_init__(self) -> None:
        # Decoders recurse on Python's stack of 1,000 frames, which the caller uses as well.
        if not 1 <= self.depth_max <= 500:
            raise ValueError(f"depth_max: got {self.depth_max}, want 1 to 500")


DEFAULT_LIMITS: Final = Limits()


def read_documents(
    inputs: Sequence[str], *, limits: Limits = DEFAULT_LIMITS, stdin: BinaryIO | None = None
) -> Iterator[Document]:
    """The objects in all inputs, in the order of inputs, files, documents and items.

    An input is the path of a file (`.yaml`, `.yml`, `.json`, `.ndjson`, and perhaps `.gz` or `.zst`
    after it), of a folder (searched recursively for such files, by name; hidden ones are skipped,
    and so is a folder that was met before, through a link), or `-` for `stdin`, whose format shows
    in its first bytes. Lists (a kind that ends with List, and `items`) and JSON arrays give their
    items; items of a typed list such as PodList without apiVersion or kind get them from it. Raises
    DocumentError, after the documents before the fault were given out.
    """
    if list(inputs).count(STDIN) > 1:
        raise DocumentError(STDIN_SOURCE, None, None, "can be read only once")
    for name in inputs:
        if name == STDIN:
            stream = stdin or (sys.stdin.buffer if sys.stdin else None)
            if stream is None:
                raise DocumentError(STDIN_SOURCE, None, None, "is closed")
            yield from _read(STDIN_SOURCE, stream, None, None, limits)
            continue
        for path in _files(name):
            text_format, packing = _format(path)
            with _open(path, limits.file_bytes_max) as stream:
                yield from _read(path, stream, text_format, packing, limits)


def _format(path: str) -> tuple[str | None, str | None]:
    """(yaml or json, gz or zst or None) by the name; the first is None for other names."""
    stem, extension = os.path.splitext(path.lower())
    packing = _PACKED.get(extension)
    if packing is not None:
        extension = os.path.splitext(stem)[1]
    return _FORMATS.get(extension), packing


def _files(name: str) -> Iterator[str]:
    """The file itself, or the manifests of a folder: every real folder once, entries by name."""
    seen: set[tuple[int, int]] = set()
    pending = [name]
    while pending:
        path = pending.pop()
        wanted = _format(path)[0] is not None
        try:
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                identity = (status.st_dev, status.st_ino)
                if identity not in seen:
                    seen.add(identity)
                    entries = sorted(os.listdir(path), reverse=True)
                    _check_folder(path, entries)
                    pending += [os.path.join(path, e) for e in entries if not e.startswith(".")]
            elif wanted or path == name:
                yield path
        except (OSError, ValueError) as error:
            # In a folder, links that lead nowhere matter only if they are named as manifests.
            loop = isinstance(error, OSError) and error.errno == errno.ELOOP
            if path == name or (wanted and not loop) or isinstance(error, PermissionError):
                raise _unreadable(path, error) from None


def _check_folder(path: str, entries: Sequence[str]) -> None:
    """Refuses a folder whose files are the source of manifests. Raises DocumentError."""
    for name in entries:
        command = _GENERATORS.get(name)
        if command is not None:
            want = f"want its output: {command} {path} | stower ... -"
            raise DocumentError(path, None, None, f"is the source of manifests ({name}), {want}")


def _open(path: str, bytes_max: int) -> BinaryIO:
    """A file of a known format, opened; checked before, as opening a pipe waits for its writer."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            message = "is not a regular file; a stream can be read only from standard input, as '-'"
            raise DocumentError(path, None, None, message)
        if _format(path)[0] is None:
            raise DocumentError(path, None, None, f"unknown format, want {_WANTED}")
        if status.st_size > bytes_max:
            raise DocumentError(path, None, None, too_large(bytes_max))
        return open(path, "rb", buffering=0)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: OSError | ValueError) -> DocumentError:
    reason = error.strerror if isinstance(error, OSError) else None
    return DocumentError(path, None, None, f"cannot be read: {reason or error}")


def _read(
    source: str, stream: BinaryIO, text_format: str | None, packing: str | None, limits: Limits
) -> Iterator[Document]:
    """The objects of one stream; format and packing are found out if text_format is None."""
    number = 1
    try:
        chunks = limit_bytes(read_chunks(stream), limits.file_bytes_max)
        if text_format is None:
            head, chunks = peek(chunks, lambda head: len(head) >= 4)
            packing = packing_of(head)
        if packing is not None:
            chunks = limit_bytes(unpack(chunks, packing), limits.file_bytes_max)
        if text_format is None:
            head, chunks = peek(chunks, lambda head: len(head) >= MIB or bool(first_byte(head)))
            text_format = "json" if first_byte(head) in (b"{", b"[") else "yaml"
        texts = (_json_texts if text_format == "json" else _yaml_texts)(chunks, limits)
        for text in texts:
            if text is not None:
                yield from _objects(source, number, text, text_format == "json", limits)
            number += 1
    except TextError as error:
        raise DocumentError(source, number, error.field, str(error)) from None


def _yaml_texts(chunks: Iterable[bytes], limits: Limits) -> Iterator[Text | None]:
    """The documents of a YAML stream as JSON text; None for an empty one."""
    blocks = blocks_of(chunks, limits.yaml_line_bytes_max)
    for line, text in split_documents(blocks, limits.yaml_document_bytes_max):
        check_utf8(text, line, 1)
        yield from yaml_values(
            text,
            line,
            depth_max=limits.depth_max,
            alias_nodes_max=limits.alias_nodes_max,
            alias_text_max=limits.alias_text_max,
        )


def _json_texts(chunks: Iterable[bytes], limits: Limits) -> Iterator[Text]:
    """The values of a JSON stream, one after another with or without blanks between; all valid."""
    blocks, first = blocks_of(chunks, None), 1
    for block in blocks:
        end = 0
        for whole in _whole_lines(block, limits.depth_max):
            check_utf8(whole, first, 1)
            yield whole
            end, first = end + len(whole) + 1, first + 1
        if end < len(block):
            blocks = chain([block[end:]], blocks)
            break
    for line, column, text in _json_values(blocks, limits.depth_max, first):
        check_utf8(text, line, column)
        try:
            _RAW.decode(text)
        except msgspec.DecodeError as error:
            found = _BYTE_NUMBER.search(str(error))
            if found is None:  # brackets and strings are whole: only this can still be cut short
                raise TextError("malformed JSON: half of a surrogate pair", line, column) from None
            reason = str(error)[: found.start()].removeprefix("JSON is malformed: ")
            where = position(text, int(found[1]), line, column)
            raise TextError(f"malformed JSON: {reason}", *where) from None
        yield text


def _whole_lines(block: bytearray, depth_max: int) -> Iterator[bytes]:
    """The first lines of the block, as long as each is one valid object and nothing else."""
    begin, view = 0, memoryview(block)
    while (end := block.find(b"\n", begin)) >= 0:
        line = bytes(view[begin:end])
        if line[:1] != b"{" or line[-1:] != b"}":
            return
        if line.count(b"{") + line.count(b"[") > depth_max:
            return  # it may be nested too deeply for a decoder
        try:
            _RAW.decode(line)
        except msgspec.DecodeError:
            return
        yield line
        begin = end + 1


def _json_values(
    blocks: Iterable[bytearray], depth_max: int, line: int
) -> Iterator[tuple[int, int, Text]]:
    """Each value of a JSON stream, which begins on this line, with the line and column where it
    begins.

    Only brackets and strings are looked at, which finds the ends and bounds the depth for decoders
    that recurse. A value within one block is a view of it, so that a long line is held once.
    """
    column, depth = 1, 0
    begun_at = (line, column)
    held = bytearray()
    for block in blocks:
        # Of the block, what is before `seen` is counted in line and column.
        view, seen, begin = memoryview(block), 0, 0
        for token in _TOKEN.finditer(block):
            mark = token[1]
            opening = mark == b"{" or mark == b"["
            if depth == 0:
                begin = _blank_end(block, token.start())
                line, column = position(view[seen:], begin - seen, line, column)
                seen, begun_at = begin, (line, column)
                if begin < token.end() - opening:
                    got = block[begin : begin + 4 * SHOWN_LENGTH_MAX].decode(errors="replace")
                    message = f"got {shorten(got.splitlines()[0])}, want an object or an array"
                    if got.startswith(_LOGS):
                        message += "; use kubectl cluster-info dump --output-directory FOLDER"
                    raise TextError(message, line, column)
            if opening:
                depth += 1
                if depth > depth_max:
                    where = position(view[seen:], token.start(1) - seen, line, column)
                    raise TextError(f"nested deeper than {depth_max} levels", *where)
            elif mark == b'"':
                where = position(view[seen:], token.start(1) - seen, line, column)
                raise TextError("the string does not end on its line", *where)
            elif mark:
                depth -= 1
                if depth == 0:
                    held += view[begin : token.end()] if held else b""
                    yield *begun_at, held or view[begin : token.end()]
                    held = bytearray()
        if depth:
            held += view[begin:]
        line, column = position(view[seen:], len(block) - seen, line, column)
    if depth:
        raise TextError("truncated: the object or array has no end", *begun_at)


def _blank_end(block: bytearray, start: int) -> int:
    """Where the blanks that begin at `start` end."""
    blanks = _BLANKS.match(block, start)
    return blanks.end() if blanks else start


class _Head(msgspec.Struct):
    """What is read of an object; an empty Raw where the key is missing."""

    api_version: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="apiVersion")
    kind: msgspec.Raw = msgspec.Raw()
    items: msgspec.Raw = msgspec.Raw()


_RAW: Final = msgspec.json.Decoder(msgspec.Raw)
_RAWS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_HEAD: Final = msgspec.json.Decoder(_Head)


def _objects(
    source: str, number: int, text: Text, array_allowed: bool, limits: Limits
) -> Iterator[Document]:
    """The object in a document, or the objects if it is a list."""
    if array_allowed and text[:1] == b"[":
        found = _entries(text, "", {}, 1, limits)
    else:
        found = _expanded(text, "", {}, 0, limits)
    for item, (in_list, data) in enumerate(found, 1):
        yield Document(source, number, item if in_list else None, data)


def _entries(
    array: Text, path: str, inherited: dict[str, str], depth: int, limits: Limits
) -> Iterator[tuple[bool, bytes]]:
    """What `_expanded` gives for each item of an array."""
    if len(array) > 2 * limits.list_items_max:
        _check_items(array, path, limits.list_items_max)
    for i, raw in enumerate(_RAWS.decode(array)):
        for _, data in _expanded(bytes(raw), f"{path}[{i}]", inherited, depth, limits):
            yield True, data


def _check_items(array: Text, path: str, items_max: int) -> None:
    """Raise if an array has other items than objects, or too many; holds a few bytes for each."""
    numbers = count(1)

    class Item(msgspec.Struct):
        def __post_init__(self) -> None:
            if next(numbers) > items_max:
                raise ValueError(f"more than {items_max} items")

    try:
        msgspec.json.decode(array, type=list[Item])
    except msgspec.ValidationError as error:
        raise TextError(str(error), field=path or None) from None


def _expanded(
    text: Text, path: str, inherited: dict[str, str], depth: int, limits: Limits
) -> Iterator[tuple[bool, bytes]]:
    """(whether it comes from a list, the object) for one object or each item of a list.

    `inherited` are the apiVersion and kind that an item without them gets; they are written in
    front of it, and its own bytes stay.
    """
    if text[:1] != b"{":
        message = f"got {_shown_json(text)}, want an object with apiVersion and kind"
        raise TextError(message, field=path or None)
    head = _HEAD.decode(text)
    own = {"apiVersion": head.api_version, "kind": head.kind}
    values: dict[str, str] = {}
    added = b""
    for name, example in (("apiVersion", "v1"), ("kind", "Pod")):
        raw = bytes(own[name])
        value = msgspec.json.decode(raw) if raw else inherited.get(name)
        if not isinstance(value, str) or not value:
            got = _shown_json(raw) if raw else "nothing"
            message = f'got {got}, want text such as "{example}"'
            raise TextError(message, field=f"{path}.{name}".removeprefix("."))
        if not raw:
            added += msgspec.json.encode(name) + b":" + msgspec.json.encode(value) + b","
        values[name] = value
    kind = values["kind"]
    items: Text = memoryview(head.items)
    if not kind.endswith("List") or not items:
        if added:
            rest = bytes(text[1:])
            closed = rest.lstrip(BLANK) == b"}"
            yield False, b"{" + (added[:-1] if closed else added) + rest
        else:
            yield False, bytes(text)
        return
    path = f"{path}.items".removeprefix(".")
    if depth >= _LIST_DEPTH_MAX:
        raise TextError("lists nested in lists of lists are not supported", field=path)
    if items[:1] != b"[" and items != b"null":
        raise TextError(f"got {_shown_json(items)}, want an array", field=path)
    for_items = {} if kind == "List" else {**values, "kind": kind.removesuffix("List")}
    if items != b"null":
        yield from _entries(items, path, for_items, depth + 1, limits)


def _shown_json(text: Text) -> str:
    return shorten(bytes(text[: 4 * SHOWN_LENGTH_MAX]).decode(errors="replace"))
