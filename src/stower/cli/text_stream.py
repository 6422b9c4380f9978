"""Converts the bytes of a file or stream into checked text, piece by piece.

Generators read the bytes, bound them, decompress them and cut them into blocks of whole lines. Each
holds one piece at a time: memory is bounded by the longest line, and a decompression bomb is
rejected while it is decompressed.

Must not know what the text means.
"""

import codecs
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import BinaryIO, Final, Protocol

import zstandard

MIB: Final = 2**20
BLANK: Final = b" \t\r\n"

# Bytes asked of a file at a time: large enough that calls cost nothing, small beside every limit.
_CHUNK_BYTES: Final = MIB
# Compressed bytes unpacked at a time. Deflate makes at most 1,032 bytes of one, zstd 128 KiB of
# four: whatever they hold, one step makes about 4 MiB and 8 MiB at most.
_PIECE_BYTES: Final = {"gz": 4_096, "zst": 256}
# Compressed streams in a row in one file. Blocked gzip, which has one for each 64 KiB, needs 8,192
# for the largest file; without a limit, empty ones would cost time without end.
_STREAM_COUNT_MAX: Final = 10_000
# What a zstd stream may ask to keep in memory: the most that the zstd tool allows unasked.
_ZSTD_WINDOW_BYTES_MAX: Final = 128 * MIB
# Longest piece of a value that an error repeats: enough to recognise it, on a line still short.
SHOWN_LENGTH_MAX: Final = 60

_MAGIC: Final = {b"\x1f\x8b": "gz", b"\x28\xb5\x2f\xfd": "zst"}

Text = bytes | bytearray | memoryview


class TextError(Exception):
    """Text that cannot be read: what is wrong, and where if that is known.

    `line` and `column` count from 1, columns of YAML in characters and of JSON in bytes; `field` is
    the path of the value (`spec.containers[0].image`).
    """

    def __init__(
        self,
        message: str,
        line: int | None = None,
        column: int | None = None,
        field: str | None = None,
    ) -> None:
        where = "" if line is None else f"line {line}, column {column}: "
        super().__init__(where + message)
        self.field = field


def shorten(text: str) -> str:
    """Text as an error repeats it: never longer than SHOWN_LENGTH_MAX."""
    return text if len(text) <= SHOWN_LENGTH_MAX else text[: SHOWN_LENGTH_MAX - 3] + "..."


def too_large(bytes_max: int) -> str:
    return f"has more than {bytes_max} bytes"


def packing_of(head: bytes) -> str | None:
    """gz or zst if these first bytes of a stream say so."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def read_chunks(stream: BinaryIO) -> Iterator[bytes]:
    try:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk
    except OSError as error:
        raise TextError(f"cannot be read: {error.strerror or error}") from None


def limit_bytes(chunks: Iterable[bytes], bytes_max: int) -> Iterator[bytes]:
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > bytes_max:
            raise TextError(too_large(bytes_max))
        yield chunk


def peek(chunks: Iterator[bytes], enough: Callable[[bytes], bool]) -> tuple[bytes, Iterator[bytes]]:
    """The beginning of a stream as far as `enough` wants it, and the stream with it put back."""
    head = b""
    for chunk in chunks:
        head += chunk
        if enough(head):
            break
    return head, chain([head] if head else [], chunks)


def first_byte(head: bytes) -> bytes:
    return head.removeprefix(codecs.BOM_UTF8).lstrip(BLANK)[:1]


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def unpack(chunks: Iterable[bytes], packing: str) -> Iterator[bytes]:
    """Decompressed text of one stream or several in a row, in steps of at most 8 MiB."""

    def new() -> _Unpacker:
        if packing == "gz":
            return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX).decompressobj()

    step = _PIECE_BYTES[packing]
    unpacker, stream_count, complete = new(), 1, False
    try:
        for chunk in chunks:
            for start in range(0, len(chunk), step):
                piece = chunk[start : start + step]
                while piece:
                    if complete:
                        piece = piece.lstrip(b"\0")  # padding, which gzip skips as well
                        if not piece:
                            break
                        unpacker, stream_count, complete = new(), stream_count + 1, False
                        if stream_count > _STREAM_COUNT_MAX:
                            raise TextError(f"more than {_STREAM_COUNT_MAX} {packing} streams")
                    if data := unpacker.decompress(piece):
                        yield data
                    complete = unpacker.eof
                    piece = unpacker.unused_data if complete else b""
    except (zlib.error, zstandard.ZstdError) as error:
        raise TextError(f"damaged {packing} data: {error}") from None
    if not complete:
        raise TextError(f"truncated: the {packing} data has no end")


def blocks_of(chunks: Iterable[bytes], line_bytes_max: int | None) -> Iterator[bytearray]:
    """The text in pieces that end with a line, without a byte order mark at its beginning."""
    held, line, begun = bytearray(), 1, False
    for chunk in chain(chunks, [b""]):
        cut = chunk.rfind(b"\n") + 1
        held += chunk[:cut] if cut else chunk
        if line_bytes_max is not None and len(held) > line_bytes_max:
            _check_lines(held, line, line_bytes_max)
        if cut or not chunk:
            line += held.count(b"\n")
            if not begun and held.startswith(codecs.BOM_UTF8):
                del held[: len(codecs.BOM_UTF8)]
            begun = True
            if held:
                yield held
            held = bytearray(chunk[cut:])


def _check_lines(text: bytearray, line: int, bytes_max: int) -> None:
    start = 0
    while start < len(text):
        newline = text.find(b"\n", start)
        end = newline if newline >= 0 else len(text)
        if end - start > bytes_max:
            raise TextError(f"the line has more than {bytes_max} bytes", line, 1)
        start, line = end + 1, line + 1


def check_utf8(text: Text, line: int, column: int) -> None:
    """Raise where text that begins at that position is not UTF-8; in steps, to hold no copy."""
    if len(text) <= _CHUNK_BYTES and bytes(text).isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(text), _CHUNK_BYTES):
        held = len(decoder.getstate()[0])
        piece = bytes(text[start : start + _CHUNK_BYTES])
        try:
            if held or not piece.isascii():
                decoder.decode(piece, final=start + _CHUNK_BYTES >= len(text))
        except UnicodeDecodeError as error:
            where = position(text, start - held + error.start, line, column)
            raise TextError("invalid UTF-8", *where) from None


def position(text: Text, offset: int, line: int, column: int) -> tuple[int, int]:
    """Line and column of a byte in text that begins at that line and column."""
    for start in range(0, offset, _CHUNK_BYTES):
        piece = bytes(text[start : min(start + _CHUNK_BYTES, offset)])
        newline_count = piece.count(b"\n")
        line += newline_count
        column = len(piece) - piece.rfind(b"\n") if newline_count else column + len(piece)
    return line, column
