"""Holds the folder of a cluster: one supervisor at a time, and nobody else may write to it.

What is in the folder decides which processes are stopped, which server is asked and which token is
sent. So it is used only if it and its files belong to this user or to root, and no other user can
write to them.
"""

import contextlib
import fcntl
import grp
import os
import pwd
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

STATE: Final = Path(".stower")  # where a cluster is kept if nobody says where
LOCK: Final = "up.lock"  # contains the process id of the holder
LOCK_TRIES: Final = 4
LOCK_PAUSE_SECONDS: Final = 0.03
LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
PID_BYTES_MAX: Final = 20


class UpError(Exception):
    """A cluster cannot run; the text says why, in one line."""


def check_trusted(state: Path) -> None:
    """Checks that only this user can write to a folder and what is in it. Raises UpError."""
    try:
        paths = [state, *state.iterdir()]
        for path in paths:
            _check_path(state, path)
    except FileNotFoundError:
        return  # of a file that has gone meanwhile
    except OSError as error:
        raise UpError(f"--state {state}: {error.strerror}") from None


def _check_path(state: Path, path: Path) -> None:
    found = path.stat() if path == state else path.lstat()
    name = "the folder" if path == state else path.name
    if found.st_uid not in (os.geteuid(), 0):
        raise UpError(
            f"--state {state}: {name} belongs to {_user_name(found.st_uid)}, want "
            f"{_user_name(os.geteuid())}; use another folder"
        )
    if stat.S_ISLNK(found.st_mode):
        return  # its mode says nothing, and only its owner can change it
    if found.st_mode & stat.S_IWOTH or _may_group_write(found):
        raise UpError(
            f"--state {state}: other users can write to {name}; take that away with "
            f"`chmod go-w {path}`"
        )


def _may_group_write(found: os.stat_result) -> bool:
    """Whether the group of a file may write to it and has other members than the owner."""
    if not found.st_mode & stat.S_IWGRP:
        return False
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


@contextlib.contextmanager
def hold_state(state: Path) -> Iterator[None]:
    """Holds the folder, which is made if it is missing. Raises UpError if it cannot be trusted or
    written to, or if another supervisor holds it."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise UpError(f"--state {state}: want a folder, or a name for a new one") from None
    except OSError as error:
        raise UpError(f"--state {state}: {error.strerror}") from None
    with _lock(state) as descriptor:
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        try:
            yield
        finally:
            os.truncate(descriptor, 0)


@contextlib.contextmanager
def _lock(state: Path) -> Iterator[int]:
    check_trusted(state)
    try:
        descriptor = os.open(state / LOCK, LOCK_FLAGS, 0o600)
    except OSError as error:
        raise UpError(f"--state {state}: {error.strerror}") from None
    try:
        for _ in range(LOCK_TRIES):  # who only looks whether it is held lets go at once
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(LOCK_PAUSE_SECONDS)
        else:
            raise UpError(
                f"--state {state}: a cluster already runs from this folder; stop it with "
                f"`stower down --state {state}`"
            )
        yield descriptor
    finally:
        os.close(descriptor)


def is_held(state: Path) -> bool:
    """Returns whether a supervisor runs from the folder, or could not be told from one."""
    try:
        with _lock(state):
            return False
    except UpError:
        return True


def read_holder(state: Path) -> int | None:
    """Returns the id of the process that holds the folder; None if nobody does.

    Raises UpError if the folder cannot be trusted.
    """
    if not (state / LOCK).exists():
        return None
    check_trusted(state)
    if not is_held(state):
        return None
    try:
        with open(state / LOCK, "rb", opener=_no_follow) as file:
            return int(file.read(PID_BYTES_MAX))
    except (OSError, ValueError):
        return None  # it is about to say so


def _no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)
