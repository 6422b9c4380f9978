"""Replays a recording on engines built the same way, and compares their writes byte for byte."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from stower.engine.engine import Engine
from stower.model.errors import InvariantError
from stower.record.lines import Engine as Built
from stower.record.lines import writes_json
from stower.record.reader import RecordedEvent


class Difference(msgspec.Struct, frozen=True, rename="camel"):
    """The first step that went another way. Writes as JSON; `only`: place of the first unlike."""

    step: int
    line: int
    engine: str
    at_ns: int
    event: str
    recorded: tuple[Any, ...]
    replayed: tuple[Any, ...]
    fault: str = ""


class ReplayReport(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a replay. `internal_errors`: errors that the replayed engines contained, by
    part."""

    engines: int
    steps: int
    writes: int
    first_ns: int
    last_ns: int
    difference: Difference | None
    internal_errors: dict[str, int] = {}


def replay(
    lines: Iterable[Built | RecordedEvent],
    build: Callable[[Built], Engine],
    progress: Callable[[int], None] = lambda steps: None,
    on_internal_error: Callable[[int, str, str], None] = lambda step, text, about: None,
) -> ReplayReport:
    """Plays it back up to the first difference. `on_internal_error`: called with the step, the log
    line and the object of each error that an engine has contained. Raises what `lines` and `build`
    raise."""
    engines: dict[str, Engine] = {}
    built = steps = writes = first_ns = last_ns = 0
    difference = None
    counts: Counter[str] = Counter()
    for line in lines:
        if isinstance(line, Built):
            if line.engine in engines:
                counts += engines[line.engine].errors.counts
            engines[line.engine] = build(line)
            built += 1
            continue
        steps += 1
        first_ns = first_ns or line.at_ns
        last_ns = max(last_ns, line.at_ns)
        again, fault = b"[]", ""
        try:
            found = engines[line.engine].step(line.event, line.at_ns)
            writes += len(found)
            again = writes_json(found)
            engines[line.engine].drain()
            for _, text, about in engines[line.engine].errors.take_log_lines():
                on_internal_error(steps, text, about)
            engines[line.engine].notes()  # else the lines of companions pile up
        except (InvariantError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            fault = f"{type(error).__name__}: {error}"
        if again != line.writes or fault:
            difference = Difference(
                steps, line.number, line.engine, line.at_ns, type(line.event).__name__,
                _decoded(line.writes), _decoded(again), fault,
            )  # fmt: skip
            break
        progress(steps)
    for engine in engines.values():
        counts += engine.errors.counts
    return ReplayReport(built, steps, writes, first_ns, last_ns, difference, dict(counts))


def _decoded(writes: bytes) -> tuple[Any, ...]:
    try:
        return tuple(msgspec.json.decode(writes, type=list[Any]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return (writes.decode("utf-8", "replace"),)
