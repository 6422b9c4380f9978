"""Holds the folder of a cluster: one supervisor at a time, and nobody else may write to it.

What is in the folder decides which processes are stopped, which server is asked and which token is
sent. So it is used only if it and its files belong to this user or to root, and no other user can
write to them.
"""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stower.model.integers import parse_decimal
from stower.pki.trust import UntrustedError, check_folder

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
        check_folder(state)
    except UntrustedError as error:
        raise UpError(f"--state {state}: {error}") from None
    except OSError as error:
        raise UpError(f"--state {state}: {error.strerror}") from None


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
            pid = parse_decimal(file.read(PID_BYTES_MAX).decode("ascii").strip(), bits=31)
    except (OSError, ValueError):
        return None  # it is about to say so
    return pid if pid and _has_lock(pid, state / LOCK) else None


def stop_holder(state: Path, pid: int) -> None:
    """Asks the process that holds the folder to end, if it still does.

    Raises UpError if the folder cannot be trusted, and OSError.
    """
    with contextlib.suppress(ProcessLookupError), _process(pid) as descriptor:
        if read_holder(state) != pid:
            return
        if descriptor is None:
            os.kill(pid, signal.SIGTERM)
        else:
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)


@contextlib.contextmanager
def _process(pid: int) -> Iterator[int | None]:
    """A descriptor that means the same process for as long as it is open; None where the system
    has none."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):  # an old kernel, or a sandbox
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _has_lock(pid: int, lock: Path) -> bool:
    """Returns whether it is this process that has locked the file: its id in there may be that of
    an earlier holder, and another process by now. True where the system cannot say."""
    if not Path("/proc/self/fdinfo").is_dir():
        return True
    with contextlib.suppress(OSError):
        wanted = lock.stat()
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                info = Path(f"/proc/{pid}/fdinfo/{file.name}")
                if os.path.samestat(file.stat(), wanted) and "FLOCK" in info.read_text():
                    return True
    return False


def _no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)
