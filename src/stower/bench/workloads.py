"""Reads the workloads: the nodes and pods of each benchmark, and its driver."""

from importlib.resources import files
from typing import Any, Final

import msgspec
import yaml

from stower.framework.args import convert
from stower.model.errors import InvalidObject

# How a workload drives the engine; see drivers.py.
DRIVERS: Final = (
    "arrive", "bytes", "restart", "hold", "wake", "churn", "preempt", "preempt-one", "relabel",
    "waiting", "perf", "claims", "devices", "partitions", "negotiation",
    "trees", "small_gangs", "vms",
)  # fmt: skip


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pods of one sort (perf.py); beside: another sort, of which one comes for every so many."""

    pod: str
    count: int
    namespace: str = "default"
    timed: bool = False
    beside: str = ""
    every: int = 0


class BenchWorkload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One benchmark.

    nodes: nodes at the start; existing: pods placed before the clock runs; arriving: pods that
    are timed; shapes: how many different requests they have; label_each: a label value of its own
    on every pod; affinity: every pod requires one of two zones and prefers one; soft_tainted,
    tainted: shares of the nodes; drift: share of the rows that change between two pods; groups:
    how many labels the pods are dealt out to; hard_spread, soft_spread, near (required and
    preferred affinity) and away (required anti-affinity): topology keys, each about the pods of the
    own group; service: one selects them all, and spreads them by the defaults; existing_milli,
    arriving_milli: cpu that the pods ask for, where it is not 100 and more; priority: of the
    arriving pods; existing_waiting: pods that fit nowhere; profiles: how many the pods are dealt
    out to; steps, zones: of the driver perf; shape: of the driver trees.
    """

    name: str
    about: str
    driver: str = "arrive"
    nodes: int = 5000
    existing: int = 0
    arriving: int = 10_000
    shapes: int = 1
    label_each: bool = False
    affinity: bool = False
    soft_tainted: float = 0.0
    tainted: float = 0.0
    drift: float = 0.0
    groups: int = 1
    hard_spread: tuple[str, ...] = ()
    soft_spread: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    near_preferred: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    service: bool = False
    existing_milli: int = 0
    arriving_milli: int = 0
    priority: int = 0
    profiles: int = 1
    steps: tuple[Step, ...] = ()
    zones: tuple[str, ...] = ()
    existing_waiting: int = 0
    shape: str = ""


def workloads() -> dict[str, BenchWorkload]:
    """All workloads by name, in the order of the files."""
    found: dict[str, BenchWorkload] = {}
    folder = files("stower.bench") / "workloads"
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            entries: list[dict[str, Any]] = yaml.safe_load(file.read_text())
            for i, entry in enumerate(entries):
                workload = convert(entry, BenchWorkload, f"{file.name}[{i}]")
                if workload.driver not in DRIVERS:
                    at = f"{file.name}[{i}].driver"
                    raise InvalidObject(at, workload.driver, " or ".join(DRIVERS))
                found[workload.name] = workload
    return found
