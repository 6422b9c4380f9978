"""What both shells have: a clock that never goes back, how they run, sleep, ask, and what stops
them.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from stower.framework.retries import TOO_MANY_REQUESTS
from stower.live.access import AccessError
from stower.live.client import Client, Response
from stower.live.reflector import ListError
from stower.live.window import Window

T = TypeVar("T")


class ShellError(Exception):
    """A shell cannot run; the text says why, in one line."""


class StopRequested(Exception):
    """Told to stop before there was anything to stop."""


def os_error_text(error: OSError) -> str:
    """The system's own words, without those that asyncio puts around them."""
    # A name that is not found, and TLS, have numbers of their own.
    if error.errno is None or error.errno <= 0 or isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    return os.strerror(error.errno)


class Clock:
    """Nanoseconds since the epoch that never go back, whatever is done to the wall's clock."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ns(self) -> int:
        """Now."""
        return time.monotonic_ns() + self._offset_ns


async def run_until_stopped(
    stop: asyncio.Event, server: str, work: Iterable[Coroutine[Any, Any, None]]
) -> None:
    """All of the work at once, until `stop` or until one of it ends. Raises ShellError."""
    tasks = [asyncio.create_task(each) for each in work]
    waiter = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait((*tasks, waiter), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task is not waiter:
                task.result()
    except ListError as error:
        raise ShellError(f"{server} refuses {error}") from None
    finally:
        for task in (*tasks, waiter):
            task.cancel()
        await asyncio.gather(*tasks, waiter, return_exceptions=True)


async def run_unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work. Raises Stopped where `stop` is set before there is one."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise StopRequested
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)


async def sleep_until(wake_event: asyncio.Event, due_ns: int | None, clock: Clock) -> None:
    """Until somebody wakes us, or that time has come."""
    timer = None
    if due_ns is not None:
        after_s = max(0, due_ns - clock.now_ns()) / 1e9
        timer = asyncio.get_running_loop().call_later(after_s, wake_event.set)
    await wake_event.wait()
    if timer is not None:
        timer.cancel()


async def request_in_window(
    window: Window,
    client: Client,
    method: str,
    path: str,
    body: bytes | None,
    content_type: str,
    may_send: Callable[[], bool] = lambda: True,
) -> Response:
    """One request, whose answer says how many may be in flight; see Client.ask. Never raises."""
    clock = asyncio.get_running_loop().time
    began = clock()
    try:
        answer = await client.request(method, path, body, content_type, may_send=may_send)
    except AccessError as error:
        return Response(0, str(error).encode())
    now = clock()
    window.observe_response(now - began, now, answer.status == TOO_MANY_REQUESTS)
    return answer
