"""Simulates each workload under each configuration and seed, in processes or on a Ray cluster.

The input of one run is file names and documents, so that any machine with the files can execute it.
"""

import csv
import logging
import multiprocessing
import os
import socket
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from stower.cli.configuration_files import InputError
from stower.cli.inputs import LoadedWorkload, load, load_generated
from stower.cli.parquet import ENDING, write_parquet
from stower.cli.plugins import plugins_of
from stower.cli.scheduler_configuration import recorded_configuration
from stower.cli.workers import quiet
from stower.framework.plugin import Features
from stower.model.errors import InvalidObject
from stower.model.times import SECOND_NS, duration_ns
from stower.sim.arrivals import PROCESSES, read_lifetime
from stower.sim.cluster_generator import Course, cluster
from stower.sim.simulation import Options, simulate

GENERATE: Final = "generate:"
KEYS: Final = ("nodes", "pods", "until", "arrivals", "lifetime")
COUNT_MAX: Final = 1_000_000
FIRST: Final = (
    "workload", "config", "seed", "nodes", "emptyNodes", "pods", "placed", "pending", "ended",
    "attempts", "evictions", "waitedSeconds",
)  # fmt: skip
LAST: Final = ("seconds", "podsPerSecond", "assignments")
RAY_LOCAL: Final = "local"
REACH_SECONDS: Final = 10.0

Row = dict[str, Any]


class SweepError(Exception):
    """A sweep cannot be run; the text says why, in one line."""


class Task(msgspec.Struct, frozen=True):
    """One run. `workload`: names of files, or what is to be generated for the seed."""

    workload: str
    config: str
    document: dict[str, Any] | None
    seed: int
    timed: bool
    ignores_unknown: bool = False  # of the configuration of a recording
    tells_unknown: bool = False


def read_generated(text: str) -> tuple[int, int, Course | None]:
    """`generate:nodes=100,pods=2000,until=24h,arrivals=daily,lifetime=lognormal:30m`. Raises
    InvalidObject."""
    given = {}
    for part in filter(None, text.removeprefix(GENERATE).split(",")):
        key, _, value = part.partition("=")
        if key not in KEYS or not value or key in given:
            raise InvalidObject(
                GENERATE.rstrip(":"), part, f"KEY=VALUE, each of {', '.join(KEYS)} once"
            )
        given[key] = value
    counts = []
    for key, default in (("nodes", "100"), ("pods", "2000")):
        value = given.get(key, default)
        is_number = value.isascii() and value.isdigit() and len(value) <= len(f"{COUNT_MAX}")
        if not is_number or not 0 < int(value) <= COUNT_MAX:
            raise InvalidObject(f"{GENERATE}{key}", value, f"1 to {COUNT_MAX}")
        counts.append(int(value))
    if "until" not in given:
        for key in ("arrivals", "lifetime"):
            if key in given:
                raise InvalidObject(f"{GENERATE}{key}", given[key], "until=DURATION as well")
        return counts[0], counts[1], None
    ns = duration_ns(given["until"])
    arrivals = given.get("arrivals", "poisson")
    if ns is None or ns <= 0:
        raise InvalidObject(f"{GENERATE}until", given["until"], "a duration, such as 24h")
    if arrivals not in PROCESSES:
        raise InvalidObject(f"{GENERATE}arrivals", arrivals, f"one of {', '.join(PROCESSES)}")
    lifetime = read_lifetime(given.get("lifetime", "forever"))
    return counts[0], counts[1], Course(PROCESSES[arrivals], ns / SECOND_NS, lifetime)


_loaded: dict[str, LoadedWorkload] = {}  # of this process: a file is read once for all of its runs


def run_task(task: Task) -> Row:
    """One run, as a row. Raises InputError."""
    try:
        return _run_task(task)
    except InvalidObject as error:  # which a process cannot send to another
        raise InputError(f"{task.workload}: {error}") from None


def _run_task(task: Task) -> Row:
    if task.workload.startswith(GENERATE):
        nodes, pods, course = read_generated(task.workload)
        loaded = load_generated(cluster(nodes, pods, task.seed, course))
        timed = course is not None
    else:
        if task.workload not in _loaded:
            _loaded[task.workload] = load([task.workload])
        loaded, timed = _loaded[task.workload], task.timed
    document = task.document
    if document is None and loaded.built is not None:
        recorded = loaded.built.configuration
        document = recorded_configuration(recorded, task.ignores_unknown, task.tells_unknown)
    features = Features(drivers=False)
    options = Options(task.seed, timed, features=features, plugins=plugins_of(document))
    report = simulate(loaded.workload, task.config, document, options)
    told = msgspec.json.encode(sorted(report.assignments.items()))
    row: Row = {
        "workload": task.workload,
        "config": task.config,
        "seed": task.seed,
        "nodes": report.nodes,
        "emptyNodes": report.empty_nodes,
        "pods": report.pods,
        "placed": report.placed,
        "pending": report.pending,
        "ended": report.ended,
        "attempts": report.attempts,
        "evictions": report.evictions,
        "waitedSeconds": round(report.waited_seconds, 3),
    }
    for use in report.use:
        row[f"use {use.resource} %"] = round(use.percent, 3)
    row["seconds"] = round(report.seconds, 3)
    row["podsPerSecond"] = round(report.pods_per_second, 1)
    row["assignments"] = blake2b(told, digest_size=8).hexdigest()
    return row


def in_processes(tasks: Sequence[Task], jobs: int) -> Iterator[Row]:
    """The rows as they are done."""
    if min(jobs, len(tasks)) <= 1:
        yield from map(run_task, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(tasks)), quiet) as pool:
        yield from pool.imap_unordered(run_task, tasks)


def on_ray(tasks: Sequence[Task], address: str, jobs: int) -> Iterator[Row]:
    """The same on a Ray cluster, or on a local one of so many processes. Raises SweepError."""
    # Asked for nothing else: no usage statistics leave this machine, nothing listens more widely.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise SweepError("--ray needs Ray: pip install 'stower[ray]'") from None
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():  # Ray itself would wait for minutes
            socket.create_connection((host, int(port)), REACH_SECONDS).close()
        if address == RAY_LOCAL:
            ray.init(
                num_cpus=jobs, include_dashboard=False, logging_level=logging.ERROR,
                log_to_driver=False, _node_ip_address="127.0.0.1",
            )  # fmt: skip
        else:
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        raise SweepError(f"--ray {address}: {str(error).splitlines()[0]}") from None
    try:
        remote = ray.remote(run_task)
        waiting = [remote.remote(task) for task in tasks]
        while waiting:
            done, waiting = ray.wait(waiting)
            for reference in done:
                yield ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError | InvalidObject):
            raise SweepError(str(error.cause)) from None
        raise
    finally:
        ray.shutdown()


def columns_of(rows: Sequence[Row]) -> list[str]:
    """All columns: those that every row has, with the use of resources between."""
    uses = sorted({name for row in rows for name in row if name.startswith("use ")})
    return [*FIRST, *uses, *LAST]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """As CSV or Parquet, by the file's ending. Raises InvalidObject and OSError."""
    columns = columns_of(rows)
    if path.suffix == ENDING:
        write_parquet(path, [{name: row.get(name) for name in columns} for row in rows])
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
