"""The ledger of a resource driver in a file: which claims have which devices. One line of JSON per
change, synced to disk before it takes effect.

A line is a whole transaction: entries that were put, or entries that were dropped. A crash may
leave the last line incomplete; that change never took effect, and the line is skipped. Any other
line that cannot be read is an error, and the file is left unchanged.
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterable
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

import msgspec

from stower.driver.ledger import Entry

log = logging.getLogger(__name__)

VERSION: Final = 1
LINE_BYTES_MAX: Final = 1 << 20  # a pod's claims at one driver: a few KB each
# The file is compacted when it has COMPACT_LINES lines, and COMPACT_FACTOR times as many lines as
# entries.
COMPACT_LINES: Final = 1_000
COMPACT_FACTOR: Final = 4
FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class LedgerError(Exception):
    """The ledger cannot be used; the text says why, in one line."""


class _Head(msgspec.Struct):
    """The first line of the file."""

    ledger: int
    driver: str


class _Line(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """One transaction; exactly one of the fields is set."""

    put: tuple[Entry, ...] | None = None
    drop: tuple[str, ...] | None = None


_encode = msgspec.json.Encoder().encode
_header_decoder = msgspec.json.Decoder(_Head)
_line_decoder = msgspec.json.Decoder(_Line)
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class FileLedger:
    """A stower.driver.Ledger in a file. Owns a lock: one process at a time can open the file."""

    def __init__(self, path: str | os.PathLike[str], driver: str) -> None:
        """Reads the file, or creates it. Raises LedgerError."""
        self.entries: dict[str, Entry] = {}
        self._path = Path(path).resolve()
        self._driver = driver
        self._valid_bytes = 0  # length of the valid content
        self._line_count = 0
        self._compact_at = COMPACT_LINES
        self._is_torn = False  # whether the file may be longer than that
        self._is_directory_synced = True  # whether the name of the file is on disk, too
        self._fd = -1
        self._lock_fd = self._acquire_lock()
        try:
            self._open()
        except OSError as error:
            self.close()
            raise LedgerError(f"ledger {self._path}: {error.strerror or error}") from None
        except BaseException:
            self.close()
            raise

    def put(self, entries: Iterable[Entry]) -> None:
        """See Ledger. Raises ValueError for entries that are too long for a line, or not JSON."""
        added = tuple(entries)
        if added:
            self._append(_Line(put=added))
            self.entries.update((entry.uid, entry) for entry in added)
            self._compact_if_due()

    def drop(self, uids: Iterable[str]) -> None:
        """See Ledger."""
        dropped = tuple(uid for uid in uids if uid in self.entries)
        if dropped:
            self._append(_Line(drop=dropped))
            for uid in dropped:
                self.entries.pop(uid, None)
            self._compact_if_due()

    def close(self) -> None:
        """Closes the file and releases its lock."""
        for fd in (self._fd, self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock_fd = -1

    def __enter__(self) -> "FileLedger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Locking

    def _acquire_lock(self) -> int:
        """Locks a file next to the ledger, as compaction replaces the ledger itself.

        Returns the descriptor of the lock. Raises LedgerError.
        """
        path = self._path.with_name(f"{self._path.name}.lock")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerError(f"ledger {self._path}: {error.strerror}") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
            os.close(fd)
            if isinstance(error, BlockingIOError):
                text = f"in use by process {holder}: only one process can use a ledger"
                raise LedgerError(f"ledger {self._path}: {text}") from None
            raise LedgerError(f"ledger {self._path}: {error.strerror}") from None
        return fd

    # Reading

    def _open(self) -> None:
        if not self._path.exists() or not self._path.stat().st_size:
            self._compact()
            return
        with self._path.open("rb") as file:
            self._read(file)
        self._fd = os.open(self._path, FLAGS, 0o600)
        if self._path.stat().st_size > self._valid_bytes:
            log.warning("ledger %s: removed the last line, which was incomplete", self._path)
            self._is_torn = True
            self._truncate_torn_write()

    def _read(self, file: BufferedReader) -> None:
        torn = ""
        while text := file.readline(LINE_BYTES_MAX + 1):
            number = self._line_count + 1
            if torn:
                raise self._corruption_error(number - 1, torn)
            if len(text) > LINE_BYTES_MAX:
                raise self._corruption_error(
                    number, f"the line has more than {LINE_BYTES_MAX} bytes"
                )
            if number == 1:
                self._check(text)
            elif not text.endswith(b"\n") or b"\0" in text:
                # After a power cut a file may have its new length without all of its data.
                torn = "the line is incomplete"
            else:
                self._apply_line(number, text)
            self._line_count += 1
            self._valid_bytes += 0 if torn else len(text)

    def _check(self, text: bytes) -> None:
        try:
            head = _header_decoder.decode(text)
        except DECODE_ERRORS:
            head = None
        if head is None or not text.endswith(b"\n"):
            raise self._corruption_error(1, "the file is not a ledger of a driver")
        if head.ledger != VERSION:
            raise self._corruption_error(1, f"got version {head.ledger}, want {VERSION}")
        if head.driver != self._driver:
            raise self._corruption_error(
                1, f"the ledger of driver {head.driver!r}, want {self._driver!r}"
            )

    def _apply_line(self, number: int, text: bytes) -> None:
        try:
            line = _line_decoder.decode(text)
        except DECODE_ERRORS as error:
            raise self._corruption_error(number, str(error)) from None
        if (line.put is None) == (line.drop is None):
            raise self._corruption_error(number, "want either put or drop")
        self.entries.update((entry.uid, entry) for entry in line.put or ())
        for uid in line.drop or ():
            self.entries.pop(uid, None)

    def _corruption_error(self, number: int, problem: str) -> LedgerError:
        advice = "the file is unchanged: repair it, or move it away once no claim is allocated"
        return LedgerError(f"ledger {self._path}, line {number}: {problem}; {advice}")

    # Writing

    def _append(self, line: _Line) -> None:
        text = self._encode_line(line)
        self._truncate_torn_write()
        self._is_torn = True
        try:
            _write(self._fd, text)
            os.fsync(self._fd)
        except OSError:
            with contextlib.suppress(OSError):
                self._truncate_torn_write()
            raise
        self._is_torn = False
        self._valid_bytes += len(text)
        self._line_count += 1

    def _encode_line(self, line: Any) -> bytes:
        text = bytes(_encode(line)) + b"\n"
        if len(text) > LINE_BYTES_MAX:
            raise ValueError(
                f"got {len(text)} bytes for a ledger line, want at most {LINE_BYTES_MAX}"
            )
        return text

    def _truncate_torn_write(self) -> None:
        """Removes an incomplete write from the file. Raises OSError."""
        if self._is_torn:
            os.ftruncate(self._fd, self._valid_bytes)
            os.fsync(self._fd)
            self._is_torn = False
        if not self._is_directory_synced:
            _sync_folder(self._path.parent)
            self._is_directory_synced = True

    def _compact_if_due(self) -> None:
        if self._line_count < max(self._compact_at, COMPACT_FACTOR * len(self.entries)):
            return
        try:
            self._compact()
            self._compact_at = COMPACT_LINES
        except OSError as error:
            self._compact_at = 2 * self._line_count
            log.warning("ledger %s: cannot compact the file: %s", self._path, error.strerror)

    def _compact(self) -> None:
        """Replaces the file by one with a line per entry. Raises OSError."""
        new_path = self._path.with_name(f"{self._path.name}.new")
        texts = [self._encode_line(_Head(VERSION, self._driver))]
        texts += [self._encode_line(_Line(put=(entry,))) for entry in self.entries.values()]
        fd = os.open(new_path, FLAGS | os.O_TRUNC, 0o600)
        try:
            for text in texts:
                _write(fd, text)
            os.fsync(fd)
            os.rename(new_path, self._path)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                new_path.unlink()
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._valid_bytes, self._line_count = fd, sum(map(len, texts)), len(texts)
        self._is_torn, self._is_directory_synced = False, False
        self._truncate_torn_write()


def _write(fd: int, text: bytes) -> None:
    while text:
        text = text[os.write(fd, text) :]


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
