"""Checks, before a verb runs, that the files and folders of its options can be written."""

import errno
import os
from pathlib import Path

from stower.cli.output import bad_input


def check_target(option: str, path: Path | None) -> None:
    """Refuse a file that cannot be written, before anything runs or is written."""
    if path is None:
        return
    folder, fault = path.absolute().parent, 0
    if os.path.isdir(path):
        fault = errno.EISDIR
    elif not os.path.isdir(folder):
        fault = errno.ENOENT
    elif not os.access(path if os.path.exists(path) else folder, os.W_OK):
        fault = errno.EACCES
    if fault:
        raise bad_input(f"{option} {path}: {os.strerror(fault)}")


def check_folder(option: str, path: Path) -> None:
    """Refuse a folder that cannot be written to."""
    if not path.is_dir():
        raise bad_input(f"{option} {path}: want a folder that exists")
    if not os.access(path, os.W_OK):
        raise bad_input(f"{option} {path}: {os.strerror(errno.EACCES)}")
