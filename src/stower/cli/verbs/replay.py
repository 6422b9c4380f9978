"""stower replay: replays a recording and compares every write with the recorded one.

With --port, the dashboard is served for the recording instead.
"""

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from stower.cli.output import (
    Output,
    as_dict,
    bad_input,
    console,
    emit,
    format_count,
    note,
    progress,
)
from stower.cli.recordings import engine_builder
from stower.cli.replay_dashboard import serve
from stower.cli.scheduler_configuration import IgnoreUnknownPlugins
from stower.model.errors import InvalidObject
from stower.model.times import SECOND_NS
from stower.record.reader import read_recording
from stower.record.replay import Difference, ReplayReport, replay

NAME = "replay"
EPILOG = """
Examples:

  stower up --record stower.ndjson.zst

  stower replay stower.ndjson.zst

  stower replay stower.ndjson.zst --port 0

Every engine of the recording is built again and receives the same events at the same times. The
exit code is 1 if a write differs from the recorded one; the first difference is shown. Internal
errors of the scheduler that happen again are printed with their tracebacks. With --port nothing is
compared: the dashboard shows the recording, with a slider for the time, until stopped.
"""
STRIDE = 1_000
ERRORS_PRINTED_MAX = 20  # with their tracebacks; all are counted


def run(
    recording: Annotated[
        Path, typer.Argument(metavar="FILE", help="A recording made by --record.")
    ],
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Serve the dashboard on this port; 0 takes a free port."
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="With --port: file with the bearer token.")
    ] = None,
    ignore_unknown_plugins: IgnoreUnknownPlugins = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Replay a recording and compare the writes, or show it in the dashboard (--port)."""
    if token_file is not None and port is None:
        raise bad_input(f"--token-file {token_file}: want --port too: without it nothing is served")
    if port is not None:
        serve(recording, port, token_file, ignore_unknown_plugins)
        return
    began = time.perf_counter()
    try:
        with progress("replay") as update:

            def on_progress(steps: int) -> None:
                if update is not None and steps % STRIDE == 0:
                    update(steps, steps)

            found = replay(
                read_recording(recording),
                engine_builder(ignore_unknown_plugins),
                on_progress,
                _InternalErrors().print,
            )
    except InvalidObject as error:
        raise bad_input(f"{recording}: {error}") from None
    except OSError as error:
        raise bad_input(f"{recording}: {error.strerror}") from None
    if not found.steps:
        raise bad_input(f"{recording}: the recording has no steps")
    if output is Output.TABLE:
        _print(found, time.perf_counter() - began)
    else:
        emit(as_dict(found), output)
    if found.difference is not None:
        raise typer.Exit(1)


class _InternalErrors:
    """Prints the log lines of internal errors, the first of them."""

    def __init__(self) -> None:
        self._left = ERRORS_PRINTED_MAX

    def print(self, step: int, text: str, about: str) -> None:
        """Prints one line of a step, with its traceback."""
        if self._left:
            self._left -= 1
            note(f"step {step:,}: {text.rstrip()}{f' ({about})' if about else ''}")


def _print(found: ReplayReport, seconds: float) -> None:
    covers = (found.last_ns - found.first_ns) / SECOND_NS
    what = f"{format_count(found.steps, 'step')} of {format_count(found.engines, 'engine')}"
    console().print(f"{what}, {covers:,.1f} s, replayed in {seconds:.1f} s.")
    if found.internal_errors:
        parts = ", ".join(f"{part}: {n:,}" for part, n in sorted(found.internal_errors.items()))
        console().print(f"Internal errors that the scheduler contained, by part: {parts}.")
    if found.difference is None:
        console().print(f"No difference in {format_count(found.writes, 'write')}, byte for byte.")
    else:
        _print_difference(found.difference)


def _print_difference(difference: Difference) -> None:
    """The first write that is not as it was."""
    note(
        f"step {difference.step:,} (line {difference.line:,}, {difference.event} at "
        f"{difference.at_ns / SECOND_NS:.3f} s, engine {difference.engine!r}) differs"
    )
    pairs = zip(difference.recorded, difference.replayed, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if same is None:
        same = min(len(difference.recorded), len(difference.replayed))
    for what, writes in (("recorded", difference.recorded), ("replayed", difference.replayed)):
        text = msgspec.json.encode(writes[same]).decode() if same < len(writes) else "none"
        note(f"  {what:8}: write {same + 1} of {len(writes)}: {text}")
    if difference.fault:
        note(f"  the replayed step failed: {difference.fault}")
