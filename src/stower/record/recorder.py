"""Writes recordings to files that are rotated and bounded in size.

A part begins with a new engine, so that it can be replayed alone: when a part is full, the shell
builds a new engine. The current part has the given file name, older parts have a number before the
ending. A crash loses the end of the current part at most.
"""

import contextlib
import errno
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import zstandard

from stower.framework.events import Event, Listed
from stower.framework.plugin import Features
from stower.framework.writes import Write
from stower.record.lines import engine_line, step_lines
from stower.record.reader import is_recording

log = logging.getLogger(__name__)

PACKED: Final = ".zst"
LEVEL: Final = 3
PARTS: Final = 4  # that are kept, of a size that together is what was allowed
BYTES_MAX: Final = 2**30


class EngineInputs:
    """What engines are built from, as far as a recording has to say it."""

    def __init__(
        self,
        configuration: Mapping[str, Any] | None,
        seed: int,
        cycles_per_step_max: int,
        features: Features,
    ) -> None:
        self.configuration = configuration
        self.seed = seed
        self.cycles_per_step_max = cycles_per_step_max
        self.features = features


class Recorder:
    """Writes a recording to files. A disk that fails ends the recording, not who is recorded."""

    def __init__(self, path: Path, built: EngineInputs, bytes_max: int = BYTES_MAX) -> None:
        """`bytes_max`: of all parts together. Nothing is touched before the first engine begins.
        Raises OSError where the file cannot be made, or something else is in its place."""
        for number in range(PARTS):
            _check(_numbered_path(path, number))
        folder = path.absolute().parent
        if not os.access(folder, os.W_OK):
            code = errno.EACCES if folder.is_dir() else errno.ENOENT
            raise OSError(code, os.strerror(code))
        self._path = path
        self._built = built
        self._part_bytes_max = bytes_max // PARTS
        self._file: BinaryIO | None = None
        self._packer: Any = None
        self._unflushed = 0
        self._list_bytes = 0  # of the part's first list, known once that is written
        self._has_begun = False
        self.cut = ""  # why it ended before its time, if it did

    @property
    def is_full(self) -> bool:
        """Whether the current part is as large as it may be.

        Where the first list alone is larger than a part, parts are twice as large as that.
        """
        return self._file is not None and self._file.tell() >= self._bytes_max

    def record_engine(self, engine: str) -> None:
        """An engine begins, and with it a new part where the current one is full."""
        try:
            if self.is_full or not self._has_begun:
                self._has_begun = True
                self._end()
                self._begin()
        except OSError as error:
            self._give_up(error)
        built = self._built
        self._write(
            engine_line(
                engine, built.seed, built.cycles_per_step_max, built.features, built.configuration
            )
        )

    def record_step(self, engine: str, now_ns: int, event: Event, writes: Sequence[Write]) -> None:
        """One step of it."""
        for line in step_lines(engine, now_ns, event, writes):
            self._write(line)
        if isinstance(event, Listed) and not self._list_bytes and self._file is not None:
            self.flush()
            self._list_bytes = self._file.tell()

    def flush(self) -> None:
        """What was recorded by now can be read, whatever becomes of us."""
        if self._file is None or not self._unflushed:
            return
        self._unflushed = 0
        try:
            if self._packer is not None:
                self._file.write(self._packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """No more."""
        try:
            self._end()
        except OSError as error:
            self._give_up(error)

    # How

    def _begin(self) -> None:
        """A new part under the name that was given; the others move on, and the oldest goes. For
        the owner alone: labels and annotations may say more than everybody is to know."""
        last = _numbered_path(self._path, PARTS - 1)
        last.unlink(missing_ok=True)
        for number in range(PARTS - 2, -1, -1):
            part = _numbered_path(self._path, number)
            if part.exists():
                part.rename(_numbered_path(self._path, number + 1))
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file, self._list_bytes = os.fdopen(descriptor, "wb"), 0
        if self._path.suffix == PACKED:
            self._packer = zstandard.ZstdCompressor(level=LEVEL).compressobj()

    @property
    def _bytes_max(self) -> int:
        return max(self._part_bytes_max, 2 * self._list_bytes)

    def _write(self, line: bytes) -> None:
        if self._file is None:
            return
        data = line + b"\n"
        if self._list_bytes and self._file.tell() > 2 * self._bytes_max:
            log.warning(
                "%s: recording stopped: the part is full and no new part could begin", self._path
            )
            self.cut = "its size limit is exceeded (--record-max)"
            self.close()
            return
        self._unflushed += len(data)
        try:
            self._file.write(data if self._packer is None else self._packer.compress(data))
        except OSError as error:
            self._give_up(error)

    def _end(self) -> None:
        if self._file is None:
            return
        file, self._file = self._file, None
        with file:
            if self._packer is not None:
                file.write(self._packer.flush())

    def _give_up(self, error: OSError) -> None:
        log.warning("%s: recording stopped: %s", self._path, error.strerror or error)
        file, self._file = self._file, None
        self.cut = error.strerror or str(error)
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()


def _check(path: Path) -> None:
    """Refuse to move away, or delete, what is no recording."""
    if not os.path.lexists(path):
        return
    if not path.is_file():
        raise OSError(errno.EINVAL, f"{path} is not a regular file")
    if path.stat().st_size and not is_recording(path):
        raise OSError(errno.EEXIST, f"{path} already exists and is not a recording")


def _numbered_path(path: Path, number: int) -> Path:
    """The name of an older part: a number before the endings."""
    if not number:
        return path
    stem, dot, endings = path.name.partition(".")
    return path.with_name(f"{stem}.{number}{dot}{endings}")
