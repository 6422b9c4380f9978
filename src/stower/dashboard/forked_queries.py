"""Runs slow queries in a forked child process, so that they do not block the scheduler.

The child has a copy of the scheduler's state at the time of the fork; the scheduler goes on after
some milliseconds. The child has no open file but the pipe for its result, a low priority, and
limited time.
"""

import asyncio
import contextlib
import gc
import math
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from stower.model.errors import InvalidObject

SECONDS_MAX: Final = 60.0
ANSWER_BYTES_MAX: Final = 32 << 20
NICE: Final = 10
CHUNK_BYTES: Final = 1 << 18
GOOD, BAD = b"+", b"-"


class QueryError(Exception):
    """There is no answer; the message says why."""


async def run_in_child(work: Callable[[], bytes], seconds_max: float = SECONDS_MAX) -> bytes:
    """What `work` returns, worked out in a child. Raises Unanswered."""
    read, write = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(read)
        os.close(write)
        raise QueryError(f"cannot fork a process: {error.strerror}") from None
    if pid == 0:
        _be_child(work, write, seconds_max)
    os.close(write)
    try:
        async with asyncio.timeout(seconds_max):
            data = await _read_all(read)
    except TimeoutError:
        raise QueryError(f"no result after {seconds_max:.0f} s") from None
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        await asyncio.shield(asyncio.to_thread(os.waitpid, pid, 0))
    if data[:1] != GOOD:
        raise QueryError(data[1:].decode(errors="replace") or "the process ended without a result")
    return data[1:]


async def _read_all(descriptor: int) -> bytes:
    loop, ended, parts = asyncio.get_running_loop(), asyncio.Event(), bytearray()
    os.set_blocking(descriptor, False)

    def read() -> None:
        data = os.read(descriptor, CHUNK_BYTES)
        parts.extend(data)
        if not data or len(parts) > ANSWER_BYTES_MAX:
            ended.set()

    loop.add_reader(descriptor, read)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
    return bytes(parts) if len(parts) <= ANSWER_BYTES_MAX else BAD + b"the result is too long"


def _be_child(work: Callable[[], bytes], write: int, seconds_max: float) -> NoReturn:
    """Answer, and end without a trace: no buffer is flushed twice, no handler runs."""
    try:
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
            signal.signal(name, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(math.ceil(seconds_max) + 1)  # where its parent can end it no more
        with contextlib.suppress(OSError):  # if memory is short, it goes and not the scheduler
            Path("/proc/self/oom_score_adj").write_text("1000")
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        os.closerange(3, write)
        os.closerange(write + 1, most)
        os.nice(NICE)
        gc.disable()
        try:
            answer = GOOD + work()
        except Exception as error:
            kind = "" if isinstance(error, InvalidObject) else f"{type(error).__name__}: "
            answer = BAD + f"{kind}{error}".encode(errors="replace")
        while answer:
            answer = answer[os.write(write, answer) :]
    finally:
        os._exit(0)
