"""Writes small files such that a kill at any moment leaves the old file or the new one."""

import contextlib
import os
from pathlib import Path
from typing import BinaryIO, Final

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644
FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LOG_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def new_path(path: Path) -> Path:
    """Returns the path that a file has while it is written; a kill may leave it there."""
    return path.with_name(f".{path.name}.new")


def create_private(path: Path) -> None:
    """Makes an empty file that nobody else can read, unless there is a file. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, FLAGS, PRIVATE))


def open_log(path: Path) -> BinaryIO:
    """Opens a file to append to it; nobody else can read a new one. Raises OSError."""
    return os.fdopen(os.open(path, LOG_FLAGS, PRIVATE), "ab", buffering=0)


def write_private(path: Path, data: bytes) -> None:
    """Replaces a file; nobody else can read the new one, not even for a moment."""
    write_file(path, data, PRIVATE)


def write_file(path: Path, data: bytes, mode: int = PUBLIC) -> None:
    """Replaces a file. Raises OSError, and leaves the old file as it was."""
    new = new_path(path)
    new.unlink(missing_ok=True)
    descriptor = os.open(new, FLAGS, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)  # the name is never on disk before the content
    os.replace(new, path)
