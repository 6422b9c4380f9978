"""Runs a verb repeatedly (--watch); on a terminal each result replaces the one before."""

import inspect
import io
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import wraps
from typing import Annotated, Any, Final, NoReturn

import msgspec
import typer

from stower.cli.output import Output, bad_input, can_redraw

SECONDS: Final = 2.0
AGAIN: Final = "\x1b[H\x1b[2J"  # from the top of an empty screen

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Repeat the output until Ctrl-C.")]
Every = Annotated[
    float, typer.Option(min=0.1, max=3600, metavar="SECONDS", help="With --watch: the interval.")
]


def add_watch(run: Callable[..., None]) -> Callable[..., None]:
    """The same with --watch."""

    @wraps(run)
    def run_watched(*args: Any, watch: bool = False, every: float = SECONDS, **given: Any) -> None:
        if not watch:
            run(*args, **given)
            return
        if "-" in (given.get("inputs") or ()):
            raise bad_input("--watch: - can be read only once; give a file")
        output = given.get("output")
        if output in (Output.JSON, Output.YAML):
            _stream(lambda: run(*args, **given), every, output is Output.JSON)
        _repeat(lambda: run(*args, **given), every)

    signature = inspect.signature(run)
    more = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, default, annotation in (("watch", False, Watch), ("every", SECONDS, Every))
    ]
    found: Any = run_watched
    found.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *more])
    found.__annotations__ = {**run.__annotations__, "watch": Watch, "every": Every}
    return run_watched


class _HeldOutput(io.StringIO):
    """What is written, held back. Says of itself what the real one would."""

    def __init__(self, instead_of: Any, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self._instead_of = instead_of

    def isatty(self) -> bool:
        return self._is_terminal

    def fileno(self) -> int:
        number: int = self._instead_of.fileno()
        return number


def _repeat(run: Callable[[], None], every_s: float) -> None:
    is_terminal = sys.stdout.isatty()
    is_redrawn, is_first = can_redraw(), True
    try:
        while True:
            shown, said, code = _run_once(run, is_terminal)
            if code and is_first and not shown:  # what is wrong now will not be right by itself
                sys.stderr.write(said)
                raise typer.Exit(code)
            text = shown + said
            if is_redrawn:
                text = AGAIN + text
            elif not is_first:
                text = "\n" + text
            sys.stdout.write(text)
            sys.stdout.flush()
            is_first = False
            time.sleep(every_s)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _stream(run: Callable[[], None], every_s: float, is_json: bool) -> NoReturn:
    """Repeats documents for programs: JSON on one line each, YAML between `---`."""
    try:
        while True:
            shown, said, code = _run_once(run, False)
            sys.stderr.write(said)
            if not shown and code:
                raise typer.Exit(code)
            if is_json and shown:
                shown = msgspec.json.format(shown, indent=-1) + "\n"
            sys.stdout.write(shown if is_json else f"---\n{shown}")
            sys.stdout.flush()
            time.sleep(every_s)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _run_once(run: Callable[[], None], is_terminal: bool) -> tuple[str, str, int]:
    """What it shows, what else it says, and its exit code."""
    shown, said = _HeldOutput(sys.stdout, is_terminal), _HeldOutput(sys.stderr, False)
    code = 0
    with redirect_stdout(shown), redirect_stderr(said):
        try:
            run()
        except typer.Exit as ended:
            code = ended.exit_code
    return shown.getvalue(), said.getvalue(), code
