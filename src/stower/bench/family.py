"""Describes a benchmark that has a module of its own, and runs the module's measurement.

Each of these modules has a FAMILY; cli/verbs/bench.py lists the modules.
"""

import sys
from collections.abc import Callable
from typing import Any

import msgspec


class Family(msgspec.Struct, frozen=True):
    """Benchmarks that measure the same things.

    best: the field by which the best run is chosen, the most or the least; ratios: what --compare
    adds, and the field that it divides.
    """

    result: type[msgspec.Struct]
    best: str
    unit: str
    ratios: dict[str, str]
    about: str = ""
    is_least_best: bool = False


def tell(name: str, phase: str) -> None:
    """Say on stderr what is being measured."""
    sys.stderr.write(f"stower: bench {name}: {phase}\n")


def run_once(name: str, measure: Callable[[], Any], arguments: list[str]) -> None:
    """The program of a module: print the result as JSON."""
    if arguments != [name]:
        raise SystemExit(f"usage: python -m stower.bench.{name} {name}")
    sys.stdout.buffer.write(msgspec.json.encode(measure()) + b"\n")
