"""Prints the report of runs with faults (sim/report.py): as tables, and as a document."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from rich.table import Table

from stower.cli.output import lines, table
from stower.sim.report import Histogram, LongestStep, Memory, Part, Report
from stower.sim.trial import Finding

MS_NS = 1_000_000
MIB = 2**20
PARTS = tuple(Part)
LATENCY_COLUMNS = ("p50 ms", "p99 ms", "longest ms", "CPU s")


def merge_reports(found: Iterable[Finding]) -> Report:
    """Returns the reports of all findings as one."""
    total = Report()
    for finding in found:
        if finding.report is not None:
            total.merge(finding.report)
    return total


def finding_json(finding: Finding) -> dict[str, Any]:
    """Returns a finding as a document, with its report as `report_json` has it."""
    document: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(finding, report=None))
    del document["report"]
    if finding.report is not None:
        document["report"] = report_json(finding.report)
    return document


def report_json(report: Report) -> dict[str, Any]:
    """Returns a report as a document."""
    longest = report.longest_step
    return {
        "parts": {
            part.value: {
                "decisions": _histogram_json(found.decisions),
                "work": dict(sorted(found.work.items())),
            }
            for part, found in sorted(report.parts.items())
        },
        "steps": {
            event: {
                **_histogram_json(step.steps),
                "longest": None if step.longest is None else _longest_json(step.longest),
            }
            for event, step in sorted(report.steps.items())
        },
        "longestStep": None if longest is None else _longest_json(longest),
        "memory": {"third": _memory_json(report.a_third), "end": _memory_json(report.end)},
        "garbageCollectionCpuMs": report.gc_ns / MS_NS,
    }


def _histogram_json(histogram: Histogram) -> dict[str, Any]:
    return {
        "count": histogram.count,
        "cpuMs": {
            "p50": histogram.quantile_ns(0.5) / MS_NS,
            "p99": histogram.quantile_ns(0.99) / MS_NS,
            "longest": histogram.longest_ns / MS_NS,
            "total": histogram.total_ns / MS_NS,
        },
    }


def _longest_json(longest: LongestStep) -> dict[str, Any]:
    return {
        "cpuMs": longest.cpu_ns / MS_NS,
        "event": longest.event,
        "seed": longest.seed,
        "atSeconds": longest.at_s,
        "process": longest.process,
        "writes": longest.write_count,
    }


def _memory_json(memory: Memory) -> dict[str, int]:
    return {"residentBytes": memory.rss_bytes, "pythonBlocks": memory.block_count}


def report_tables(report: Report) -> Iterator[Table]:
    """Yields the tables of a report: parts, steps by event, memory."""
    yield _parts_table(report)
    yield _steps_table(report)
    yield _memory_table(report)


def _parts_table(report: Report) -> Table:
    columns = ("part", "decisions", *LATENCY_COLUMNS, "work")
    out = table("CPU time of decisions, by part", *columns, right=columns[1:-1])
    for part, found in sorted(report.parts.items(), key=lambda item: PARTS.index(item[0])):
        work = lines(f"{number:,} {what}" for what, number in sorted(found.work.items()))
        out.add_row(part.value, *_histogram_cells(found.decisions), work)
    return out


def _steps_table(report: Report) -> Table:
    columns = ("event", "steps", *LATENCY_COLUMNS, "longest step")
    out = table("CPU time of steps, by event", *columns, right=columns[1:-1])
    by_longest = sorted(report.steps.items(), key=lambda item: (-item[1].steps.longest_ns, item[0]))
    for event, step in by_longest:
        longest = step.longest
        about = ""
        if longest is not None:
            about = f"seed {longest.seed}, {longest.at_s:,.3f} s: {longest.event}"
        out.add_row(event, *_histogram_cells(step.steps), about)
    return out


def _memory_table(report: Report) -> Table:
    columns = ("memory", "resident MiB", "Python blocks")
    out = table("Memory of the simulation's process, maximum of all seeds", *columns,
                right=columns[1:])  # fmt: skip
    for when, memory in (("after a third", report.a_third), ("at the end", report.end)):
        out.add_row(when, f"{memory.rss_bytes / MIB:,.0f}", f"{memory.block_count:,}")
    return out


def _histogram_cells(histogram: Histogram) -> list[str]:
    if not histogram.count:
        return [""] * (1 + len(LATENCY_COLUMNS))
    shares = [histogram.quantile_ns(0.5), histogram.quantile_ns(0.99), histogram.longest_ns]
    cells = [f"{ns / MS_NS:,.2f}" for ns in shares]
    return [f"{histogram.count:,}", *cells, f"{histogram.total_ns / 1e9:,.2f}"]
