"""Tells whether only this user can write to a file, or to a folder and what is in it."""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PARTS_MAX: Final = 1_000  # of a path with those of all links
ACCESS_LIST: Final = "system.posix_acl_access"  # the attribute that has a file's POSIX ACL
INNER: Final = ("pki", "logs")  # folders of a cluster's folder, with files of their own


class UntrustedError(Exception):
    """Somebody else can write to a file; the text says who, and what to do."""


def check_folder(folder: Path) -> None:
    """Checks that a folder, its files, and those in `pki` and `logs` belong to this user or to
    root, and that no other user can write to them. A folder that does not exist is no fault.

    Raises UntrustedError, and OSError for what cannot be read.
    """
    for link in _links(folder):  # whoever can change one decides which folder is meant
        _check_owner(link, link.lstat())
    for path in _paths(folder):
        try:
            found = path.stat() if path == folder else path.lstat()
        except FileNotFoundError:
            continue  # it has gone meanwhile
        _check_owner(path, found)
        _check_mode(path, found)


def check_file(path: Path) -> None:
    """Checks one file, and not where it is. Raises UntrustedError and OSError."""
    found = path.stat()
    _check_owner(path, found)
    _check_mode(path, found)


def _links(folder: Path) -> Iterator[Path]:
    """Yields all links that lead to a folder, also those that links lead to."""
    path, left = Path("/"), [*reversed(folder.absolute().parts[1:])]
    for _ in range(PARTS_MAX):
        if not left:
            return
        part = left.pop()
        path = path.parent if part == ".." else path / part
        if path.is_symlink():
            yield path
            target = path.readlink()
            path = Path("/") if target.is_absolute() else path.parent
            left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    raise UntrustedError(f"too many links lead to {folder}")


def _paths(folder: Path) -> Iterator[Path]:
    if not folder.exists():
        return
    yield folder
    for path in folder.iterdir():
        yield path
        if path.name in INNER and path.is_dir():
            if path.is_symlink():
                raise UntrustedError(f"{path} is a link, want a folder")
            yield from path.iterdir()


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        raise UntrustedError(
            f"{path} belongs to {_user_name(found.st_uid)}, want {_user_name(os.geteuid())}; use "
            "one of your own"
        )


def _check_mode(path: Path, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        return  # its mode says nothing, and only its owner can change it
    if found.st_mode & stat.S_IWOTH or _may_group_write(path, found):
        raise UntrustedError(
            f"other users can write to {path}; take that away with `chmod go-w {path}`"
        )


def _may_group_write(path: Path, found: os.stat_result) -> bool:
    """Whether the group of a file may write to it and has other members than the owner; or somebody
    that its access control list names, which those bits of its mode bound."""
    if not found.st_mode & stat.S_IWGRP:
        return False
    if hasattr(os, "listxattr") and ACCESS_LIST in os.listxattr(path):
        return True
    try:
        group, owner = grp.getgrgid(found.st_gid), pwd.getpwuid(found.st_uid)
    except KeyError:
        return True
    is_private = group.gr_name == owner.pw_name and owner.pw_gid == group.gr_gid
    return not is_private or not {owner.pw_name}.issuperset(group.gr_mem)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
