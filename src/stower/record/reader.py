"""Reads recordings: the complete lines of a file, plain or compressed with zstd.

A process that was killed leaves a file without an end; its complete lines are read. Memory is
bounded: a line holds one object at most, and a line longer than any object can be is rejected.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import zstandard

from stower.framework.events import Event
from stower.model.errors import InvalidObject
from stower.model.kinds import ApiObject
from stower.record.lines import Engine, Object, Step, read_event, read_line, read_object

BEGINNING: Final = b'{"type":"Engine"'
MAGIC: Final = b"\x28\xb5\x2f\xfd"
CHUNK_BYTES: Final = 2**16
# Ten times the largest object that an API server stores.
LINE_BYTES_MAX: Final = 16 * 2**20
WINDOW_BYTES_MAX: Final = 128 * 2**20
OBJECTS_MAX: Final = 2_000_000


class RecordedEvent(msgspec.Struct, frozen=True):
    """One event as it was recorded, what was written then, and its line's number."""

    engine: str
    number: int
    at_ns: int
    event: Event
    writes: bytes


def is_recording(path: Path) -> bool:
    """Whether the file begins as a recording does. Raises OSError."""
    head = b""
    try:
        for data in _unpack_lines(path):
            head += data
            if len(head) >= len(BEGINNING):
                return head.startswith(BEGINNING)
    except InvalidObject:
        pass
    return False


def read_recording(path: Path) -> Iterator[Engine | RecordedEvent]:
    """Engines and what they were told, in order. Raises InvalidObject with the line, OSError."""
    listed: list[ApiObject] = []
    known: set[str] = set()
    number = 0
    for number, data in enumerate(lines_of(path), 1):
        try:
            line = read_line(data)
            if isinstance(line, Object):
                listed.append(read_object(line.api_version, line.kind, bytes(line.object)))
                if len(listed) > OBJECTS_MAX:
                    raise InvalidObject("objects", len(listed), f"at most {OBJECTS_MAX:,}")
            elif isinstance(line, Step):
                if line.engine not in known:
                    raise InvalidObject(
                        "engine", line.engine, "an engine with an earlier Engine line"
                    )
                event = read_event(line, listed)
                listed = []
                yield RecordedEvent(line.engine, number, line.at_ns, event, bytes(line.writes))
            else:
                known.add(line.engine)
                yield line
        except InvalidObject as error:
            raise InvalidObject(f"line {number}, {error.path}", error.got, error.want) from None
    if not number:
        raise InvalidObject("line 1", "nothing", "a recording: its first line has the type Engine")


def lines_of(path: Path) -> Iterator[bytes]:
    """The whole lines of a file; half of a line at its end is left out."""
    held = bytearray()
    for data in _unpack_lines(path):
        cut = data.rfind(b"\n") + 1
        held += data[:cut] if cut else data
        if cut:
            yield from (line for line in bytes(held).split(b"\n") if line)
            held = bytearray(data[cut:])
        if len(held) > LINE_BYTES_MAX:
            raise InvalidObject("line", f"{len(held):,} bytes", f"at most {LINE_BYTES_MAX:,} bytes")


def _unpack_lines(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        head = file.read(CHUNK_BYTES)
        packed = head.startswith(MAGIC)
        unpacker = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX).decompressobj()
        while head:
            if not packed:
                yield head
            else:
                # Little by little: a few bytes can unpack to very many.
                for at in range(0, len(head), 256):
                    if unpacker.eof:
                        raise InvalidObject(
                            "file", "data after the first zstd frame", "a single zstd frame"
                        )
                    try:
                        yield unpacker.decompress(head[at : at + 256])
                    except zstandard.ZstdError as error:
                        raise InvalidObject("file", str(error), "valid zstd data") from None
                    if unpacker.unused_data:
                        raise InvalidObject(
                            "file", "data after the first zstd frame", "a single zstd frame"
                        )
            head = file.read(CHUNK_BYTES)
