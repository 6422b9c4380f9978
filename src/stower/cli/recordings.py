"""Defines the options of recordings, opens recorders, and builds engines from recordings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from stower.assembly import build_engine
from stower.cli.output import bad_input
from stower.cli.plugins import plugins_of
from stower.cli.scheduler_configuration import recorded_configuration
from stower.engine.engine import Engine
from stower.engine.limits import Limits
from stower.framework.plugin import Features
from stower.model.quantity import parse_quantity
from stower.record.lines import Engine as BuiltLine
from stower.record.recorder import BYTES_MAX, PARTS, EngineInputs, Recorder

Record = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="FILE",
        help="Record all inputs and writes of the scheduler, for replay and what-if; "
        "compressed if the name ends in .zst.",
    ),
]
RecordMax = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        help="With --record: size of all its parts; the oldest part is dropped.",
    ),
]
RECORD_MAX = f"{BYTES_MAX >> 30}Gi"
PART_BYTES_MIN = 2**16


def size_of(text: str) -> int:
    """Bytes of --record-max. Ends the program where that makes no sense."""
    least = PARTS * PART_BYTES_MIN
    try:
        bytes_max = parse_quantity(text).value()
    except ValueError:
        bytes_max = 0
    if bytes_max < least:
        raise bad_input(f"--record-max: got {text!r}, want a size of {least >> 10}Ki or more")
    return bytes_max


def recorder_of(
    path: Path | None,
    size: str,
    configuration: Mapping[str, Any] | None,
    seed: int,
    features: Features,
    cycles_per_step_max: int = Limits().cycles_per_step_max,
) -> Recorder | None:
    """Who records, if asked to. Ends the program where that cannot be."""
    if path is None:
        return None
    bytes_max = size_of(size)
    if not path.name or path.name == "..":
        raise bad_input(f"--record {path}: want the name of a file")
    built = EngineInputs(configuration, seed, cycles_per_step_max, features)
    try:
        return Recorder(path, built, bytes_max)
    except OSError as error:
        raise bad_input(f"--record {path}: {error.strerror}") from None


def engine_builder(ignores_unknown: bool) -> Callable[[BuiltLine], Engine]:
    """Returns a function that builds the engines of one recording; `ignores_unknown`: without
    unknown plugins, about which it prints notes once. The function raises InvalidObject."""
    is_told = False

    def build(line: BuiltLine) -> Engine:
        nonlocal is_told
        engine = rebuild_engine(line, ignores_unknown, not is_told)
        is_told = True
        return engine

    return build


def rebuild_engine(
    line: BuiltLine, ignores_unknown: bool = False, tells_unknown: bool = True
) -> Engine:
    """An engine as the recording says; `ignores_unknown`: without unknown plugins; `tells_unknown`:
    prints notes about them. Raises InvalidObject."""
    configuration = recorded_configuration(line.configuration, ignores_unknown, tells_unknown)
    return build_engine(
        configuration,
        seed=line.seed,
        features=line.features,
        cycles_per_step_max=line.cycles_per_step_max,
        plugins=plugins_of(configuration),
    )
