"""Stops a server at a signal or at the end of its parent process, and delays its start.

A parent process (`stower up`) writes a line to the standard input of its child to start it, and
closes the standard input to stop it.
"""

import asyncio
import os
import signal
import sys
from typing import Annotated

import typer

WithParent = Annotated[bool, typer.Option(hidden=True, help="Stop when standard input ends.")]


def stop_event(with_parent: bool = False) -> asyncio.Event:
    """Set at SIGINT and SIGTERM, and (`with_parent`) when standard input ends."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    if with_parent:
        descriptor = sys.stdin.fileno()

        def read() -> None:
            if not os.read(descriptor, 1024):
                loop.remove_reader(descriptor)
                stop.set()

        loop.add_reader(descriptor, read)
    return stop


def wait_for_go(with_parent: bool) -> None:
    """A parent says when to begin, with a line on standard input."""
    if with_parent and not os.read(sys.stdin.fileno(), 1):
        raise SystemExit(0)  # it has gone
