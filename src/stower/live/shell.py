"""Parts that all shells share: a clock, running and stopping tasks, sleeping, and requests within a
Window.
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
    """A shell cannot run, or cannot go on; the text says why, in one line."""


class StopRequested(Exception):
    """The stop event was set before the shell had started."""


def os_error_text(error: OSError) -> str:
    """Returns the system's text of an error, without the text that asyncio adds."""
    # Errors of name resolution and of TLS have numbers that os.strerror does not know.
    if error.errno is None or error.errno <= 0 or isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    return os.strerror(error.errno)


class Clock:
    """A clock that never goes back, even if the system's clock is set: ns since the epoch."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ns(self) -> int:
        """Returns the time now, in ns since the epoch."""
        return time.monotonic_ns() + self._offset_ns


async def run_until_stopped(
    stop: asyncio.Event, server: str, coroutines: Iterable[Coroutine[Any, Any, None]]
) -> None:
    """Runs all coroutines concurrently until `stop` is set or one of them ends; cancels the rest.

    Raises ShellError if the server refuses a list, and what the ended coroutine raises.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    stop_task = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait((*tasks, stop_task), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task is not stop_task:
                task.result()
    except ListError as error:
        raise ShellError(f"{server} refuses the list of {error}") from None
    finally:
        for task in (*tasks, stop_task):
            task.cancel()
        await asyncio.gather(*tasks, stop_task, return_exceptions=True)


async def run_unless_stopped(stop: asyncio.Event, coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns the coroutine's result. Raises StopRequested if `stop` is set before."""
    work_task, stop_task = asyncio.create_task(coroutine), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((work_task, stop_task), return_when=asyncio.FIRST_COMPLETED)
        if work_task.done():
            return work_task.result()
        raise StopRequested
    finally:
        for task in (work_task, stop_task):
            task.cancel()
        await asyncio.gather(work_task, stop_task, return_exceptions=True)


async def sleep_until(wake_event: asyncio.Event, due_ns: int | None, clock: Clock) -> None:
    """Waits until `wake_event` is set, or until `due_ns` (None: for ever); sets it at `due_ns`."""
    timer = None
    if due_ns is not None:
        delay_s = max(0, due_ns - clock.now_ns()) / 1e9
        timer = asyncio.get_running_loop().call_later(delay_s, wake_event.set)
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
    """Sends a request (see Client.request) and adjusts the window to the response.

    Never raises: status 0 if there are no credentials.
    """
    clock = asyncio.get_running_loop().time
    started_s = clock()
    try:
        answer = await client.request(method, path, body, content_type, may_send=may_send)
    except AccessError as error:
        return Response(0, str(error).encode())
    now_s = clock()
    window.observe_response(now_s - started_s, now_s, answer.status == TOO_MANY_REQUESTS)
    return answer
