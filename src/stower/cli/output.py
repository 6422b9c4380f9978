"""Prints the results of verbs as tables, JSON or YAML, and errors, notes and progress on stderr.

Colours appear only on a terminal (rich detects one); lines of JSON and YAML are not wrapped.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TextIO

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from stower.model.errors import printable

BAD_INPUT = 2
WIDE = 200  # characters
PATIENCE_SECONDS = 2.0  # before there is a bar
AGAIN_SECONDS = 10.0  # between lines, where there is no terminal

OnProgress = Callable[[int, int], None]  # done, of how many


class Output(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def emit(value: object, output: Output) -> None:
    """Print a value as JSON or YAML."""
    plain = msgspec.to_builtins(value)
    if output is Output.JSON:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n")
    else:
        import yaml

        sys.stdout.write(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def console() -> Console:
    """Standard output for tables. Off a terminal, wide enough to cut nothing, or as wide as COLUMNS
    says.

    Names and messages are printed as they are: a `[x]` or `:x:` in them is no markup.
    """
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDE
    return Console(width=width, markup=False, emoji=False, highlight=False)


def can_redraw() -> bool:
    """Whether standard output is a terminal that lets its screen be written over."""
    return sys.stdout.isatty() and not console().is_dumb_terminal


class _Printable(Table):
    """A table whose cells give a terminal no orders, whatever names hold."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*(printable(c) if isinstance(c, str) else c for c in cells), **options)


def table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table with these columns; those in `right` hold numbers."""
    made = _Printable(title=title, title_justify="left", box=None, pad_edge=False)
    made.title_style = "bold"
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def lines(texts: Iterable[str]) -> Text:
    """A cell of several lines."""
    return Text("\n".join(map(printable, texts)))


@contextmanager
def progress(what: str) -> Iterator[OnProgress | None]:
    """How far it is, on stderr: a bar on a terminal once it takes longer than a moment, elsewhere a
    line now and then."""
    ended = threading.Event()
    counts = [0, 0]

    def update(done: int, total: int) -> None:
        counts[:] = done, total

    show = _bar if sys.stderr.isatty() else _lines
    showing = threading.Thread(target=show, args=(what, counts, ended, sys.stderr), daemon=True)
    showing.start()
    try:
        yield update
    finally:
        ended.set()
        showing.join()


def _bar(what: str, counts: list[int], ended: threading.Event, to: TextIO) -> None:
    if ended.wait(PATIENCE_SECONDS):
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), console=Console(file=to), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task(what, total=None)
        while not ended.wait(0.2):
            done, total = counts
            bar.update(task, completed=done, total=total or None)


def _lines(what: str, counts: list[int], ended: threading.Event, to: TextIO) -> None:
    began_s = time.monotonic()
    while not ended.wait(AGAIN_SECONDS):
        done, total = counts
        share = f" {done:,} of {total:,}," if total else f" {done:,}," if done else ""
        to.write(f"stower: {what}:{share} {time.monotonic() - began_s:.0f} s\n")
        to.flush()


def note(message: str) -> None:
    """Tell something on stderr that is no result."""
    sys.stderr.write(f"stower: {printable(message)}\n")


def bad_input(message: str) -> typer.Exit:
    """Say what is wrong with what was given; `raise` the result to end with exit code 2."""
    sys.stderr.write(f"stower: error: {printable(message)}\n")
    return typer.Exit(BAD_INPUT)


def failure(message: str) -> typer.Exit:
    """Say what could not be done; `raise` the result to end with exit code 1."""
    sys.stderr.write(f"stower: error: {printable(message)}\n")
    return typer.Exit(1)


def format_count(number: int, noun: str) -> str:
    """So many of them."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def amount(resource: str, value: int) -> str:
    """An amount of a resource as people read it."""
    if resource == "cpu":
        return f"{value / 1000:,.1f}"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for unit, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20)):
            if value >= 10 * size:
                return f"{value / size:,.1f}{unit}"
    return f"{value:,}"


def as_dict(value: Any, *without: str) -> dict[str, Any]:
    """A struct as a dictionary, less some fields."""
    return {k: v for k, v in msgspec.to_builtins(value).items() if k not in without}
