"""Rebuilds the engine that a recording ends with, or had at a time of it."""

from collections.abc import Sequence
from pathlib import Path

from stower.cli.output import bad_input
from stower.cli.recordings import engine_builder
from stower.engine.engine import Engine
from stower.model.errors import InvalidObject
from stower.model.times import SECOND_NS
from stower.record.reader import RecordedEvent, is_recording, read_recording


def recording_of(inputs: Sequence[str] | None) -> Path | None:
    """Returns the recording that INPUT is, None where it is something else."""
    path = Path(inputs[0]) if inputs and len(inputs) == 1 else None
    return path if path is not None and path.is_file() and is_recording(path) else None


def replayed_engine(path: Path, at: float | None, ignores_unknown: bool) -> Engine:
    """The engine that a recording ends with, or had at that time; `ignores_unknown`: without
    unknown plugins."""
    build = engine_builder(ignores_unknown)
    engines: dict[str, Engine] = {}
    last, begun_ns = None, None
    try:
        for line in read_recording(path):
            if not isinstance(line, RecordedEvent):
                engines[line.engine] = build(line)
                continue
            begun_ns = line.at_ns if begun_ns is None else begun_ns
            if at is not None and line.at_ns - begun_ns > at * SECOND_NS:
                break
            last = engines[line.engine]
            last.step(line.event, line.at_ns)
            last.drain()
    except InvalidObject as error:
        raise bad_input(f"{path}: {error}") from None
    except OSError as error:
        raise bad_input(f"{path}: {error.strerror}") from None
    if last is None:
        raise bad_input(f"{path}: the recording is empty")
    return last
