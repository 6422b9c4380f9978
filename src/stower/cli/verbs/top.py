"""stower top: shows nodes, queue, rates and decisions of a running scheduler in the terminal."""

import http.client
import json
import os
import select
import sys
import termios
import threading
import time
import tty
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from stower.cli.board import SORTS, BoardState, render_board
from stower.cli.cluster_options import SchedulerPort, SchedulerToken, State
from stower.cli.output import can_redraw, console, failure
from stower.cli.scheduler_client import open_url, token_for
from stower.cli.state_folder import STATE, UpError
from stower.cli.supervisor import (
    dashboard_link,
    read_record,
)

NAME = "top"
EPILOG = """
Examples:

  stower top

  stower top --state ./lab

  stower top --port 10259 --token-file token

  stower top --once

Shows the scheduler of `stower up`, or with --port another scheduler on this machine. Keys: c, m and
p sort the nodes by CPU, memory and pods; q quits. Without a terminal, the view is printed once.
"""
FRESH_SECONDS: Final = 0.5
SLOW_SECONDS: Final = 2.0
PATIENCE_SECONDS: Final = 20.0
LINE_BYTES_MAX: Final = 64 << 20


def run(
    state: State = STATE,
    port: SchedulerPort = None,
    token_file: SchedulerToken = None,
    once: Annotated[bool, typer.Option("--once", help="Print the view once and exit.")] = False,
) -> None:
    """Show nodes, queue, rates and decisions of a running scheduler, live."""
    address, token = _address(state, port, token_for(port, token_file))
    known = BoardState()
    following = _StreamReader(address, token, known)
    following.start()
    following.wait_for_state(PATIENCE_SECONDS)
    out = console()
    if once or not sys.stdout.isatty():
        out.print(render_board(known, 60))
        return
    with _keys() as key, _screen(out) as show:
        sort = "cpu"
        while (pressed := key()) not in ("q", "\x03"):
            sort = SORTS.get(pressed, sort)
            show(render_board(known, out.height, sort, following.trouble))


@contextmanager
def _screen(out: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Shows one picture in place of the other; on a terminal that cannot, below it, less often."""
    if can_redraw():
        with Live(console=out, screen=True, auto_refresh=False) as live:
            yield lambda picture: live.update(picture, refresh=True)
        return
    shown_s = -SLOW_SECONDS

    def show(picture: RenderableType) -> None:
        nonlocal shown_s
        if time.monotonic() >= shown_s + SLOW_SECONDS:
            shown_s = time.monotonic()
            out.print(picture, end="\n\n")

    yield show


def _address(state: Path, port: int | None, token: str) -> tuple[str, str]:
    """Where the stream is, and the token that lets in. Ends the program where there is none."""
    if port is not None:
        return f"http://127.0.0.1:{port}", token
    try:
        record = read_record(state)
    except UpError as error:
        raise failure(str(error)) from None
    link = dashboard_link(state, record.dashboard) if record is not None else ""
    address, _, token = link.partition("/dashboard/#token=")
    if not token:
        text = f"no scheduler runs from {state}: start one with `stower up`, or give --port"
        raise failure(f"{text} and --token-file of a running scheduler")
    return address, token


class _StreamReader(threading.Thread):
    """Reads the stream, again where it breaks."""

    def __init__(self, address: str, token: str, known: BoardState) -> None:
        super().__init__(daemon=True)
        self._token = token
        self._address = address
        self._known = known
        self._begun = threading.Event()
        self._refused = ""
        self.trouble = ""

    def wait_for_state(self, seconds: float) -> None:
        """Wait until it is known how things stand. Ends the program where that is refused."""
        self._begun.wait(seconds)
        if not self._known.is_whole:
            why = self._refused or self.trouble or f"no data of a scheduler within {seconds:.0f} s"
            raise failure(f"{self._address}: {why}")

    def run(self) -> None:
        """See threading.Thread."""
        url = f"{self._address}/dashboard/stream"
        while not self._refused:
            try:
                with open_url(url, self._token, PATIENCE_SECONDS) as answer:
                    self._read(answer)
            except urllib.error.HTTPError as error:
                self.trouble = f"refused: {error.code} {error.reason}"
                if not self._known.is_whole:
                    self._refused = f"{error.code} {error.reason}"
            except (OSError, ValueError, http.client.HTTPException, AttributeError) as error:
                self.trouble = f"connection lost ({error})"
                if not self._known.is_whole:
                    self._refused = str(getattr(error, "reason", "") or error)
            if self._refused:
                self._begun.set()
                return
            time.sleep(FRESH_SECONDS)

    def _read(self, answer: http.client.HTTPResponse) -> None:
        while line := answer.readline(LINE_BYTES_MAX):
            if line.startswith(b"data: "):
                self._known.take(json.loads(line[6:]))
                self.trouble = ""
                if self._known.is_whole:
                    self._begun.set()


@contextmanager
def _keys() -> Iterator[Callable[[], str]]:
    """Asks for a key, and waits for it a moment; "" where there is none."""
    if not sys.stdin.isatty():

        def wait() -> str:
            time.sleep(FRESH_SECONDS)
            return ""

        yield wait
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def key() -> str:
        ready, _, _ = select.select([descriptor], [], [], FRESH_SECONDS)
        return os.read(descriptor, 1).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(descriptor)
        yield key
    except KeyboardInterrupt:
        pass
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
