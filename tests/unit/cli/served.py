"""An API server in a thread of this process, for verbs that open connections of their own.

Verbs run in the main thread, where `asyncio.run` needs a loop of its own.
"""

import asyncio
import contextlib
import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from typer.testing import CliRunner, Result

from stower.cli.main import app
from tests.unit.live.fake_api import FakeApi, over_http, serving, until

Handler = Callable[[web.Request], Any]
STARTED = "Stop it with"
LOGGERS = ("", "stower.decisions", "stower.writes")


def invoke(*arguments: str | Path) -> Result:
    """Runs `stower` with the arguments. Raises what a verb raises, except for its exit code."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@contextlib.contextmanager
def in_thread(handler: Handler) -> Iterator[str]:
    """An HTTP server on loopback; its address."""
    started = threading.Event()
    where: list[Any] = []

    async def serve() -> None:
        stop = asyncio.Event()
        async with serving(handler) as url:
            where.extend((url, asyncio.get_running_loop(), stop))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(10)
    url, loop, stop = where
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def write_kubeconfig(path: Path, url: str) -> Path:
    """Writes the kubeconfig of a server without TLS, with the contexts `x` and `gone`."""
    path.write_text(yaml.safe_dump({
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "x", "context": {"cluster": "c"}},
                     {"name": "gone", "context": {"cluster": "none"}}],
        "current-context": "x",
    }))  # fmt: skip
    return path


@contextlib.contextmanager
def served(fake: FakeApi, path: Path) -> Iterator[Path]:
    """The fake over HTTP; the kubeconfig of its server, written to the path."""
    with in_thread(over_http(fake)) as url:
        yield write_kubeconfig(path, url)


def has_printed(text: str) -> bool:
    """Whether the verb that runs under `invoke` has printed the text to standard output."""
    buffer = sys.stdout.buffer
    assert isinstance(buffer, io.BytesIO)
    return text.encode() in buffer.getvalue()


def stop_when(condition: Callable[[], Any] = lambda: True) -> Callable[..., asyncio.Event]:
    """A `stop_event` that is set once the verb has printed that it runs, and a condition holds."""
    tasks: list[asyncio.Task[None]] = []

    def stop_event(with_parent: bool = False) -> asyncio.Event:
        event = asyncio.Event()

        async def watch() -> None:
            try:
                await until(lambda: has_printed(STARTED) and condition())
            finally:
                event.set()  # a verb that does not do its work ends all the same

        tasks.append(asyncio.get_running_loop().create_task(watch()))
        return event

    return stop_event


@contextlib.contextmanager
def logging_restored() -> Iterator[None]:
    """Takes back what a verb changes of the loggers."""
    root = logging.getLogger()
    handlers = list(root.handlers)
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
