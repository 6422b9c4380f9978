"""Prints the reports of placements: as tables, or as values for programs."""

from typing import Any, Final

import msgspec

from stower.cli.output import amount, console, table
from stower.cli.reason_text import without_preemption
from stower.sim.simulation import Report

MESSAGES_MAX: Final = 10  # messages printed in full; a cluster can have one for each of its pods


def summary(report: Report) -> dict[str, Any]:
    """Returns a report for programs: figures in base units, without the data of plots."""
    brief = msgspec.structs.replace(report, placements=None)
    fields: dict[str, Any] = msgspec.to_builtins(brief)
    for name in ("curve", "node_use", "placements"):
        del fields[name]
    for use, entry in zip(report.use, fields["use"], strict=True):
        entry["percent"] = round(use.percent, 3)
    return {_camel(name): value for name, value in fields.items()}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def print_reports(reports: list[Report]) -> None:
    """Prints reports as tables, with one column for each policy."""
    out = console()
    names = [report.policy for report in reports]
    figures = table("Result", "", *names, right=tuple(names))
    for label, values in _figures(reports):
        figures.add_row(label, *values)
    out.print(figures)
    out.print()
    use = table(
        "Use of allocatable", "resource", "allocatable", *names, right=("allocatable", *names)
    )
    for entry in reports[0].use:
        shares = [_share(report, entry.resource) for report in reports]
        use.add_row(entry.resource, amount(entry.resource, entry.allocatable), *shares)
    out.print(use)
    for report in reports:
        if report.domains:
            out.print()
            domains = table(
                f"By domain: {report.policy}", "value", "nodes", "pods", "cpu %",
                right=("nodes", "pods", "cpu %"),
            )  # fmt: skip
            for domain in report.domains:
                domains.add_row(
                    domain.value, str(domain.nodes), str(domain.pods), f"{domain.cpu_percent:.1f}"
                )
            out.print(domains)
        if report.waiting:
            out.print()
            _print_waiting(report)


def _figures(reports: list[Report]) -> list[tuple[str, list[str]]]:
    rows = [
        ("pods", [f"{r.pods:,}" for r in reports]),
        ("placed", [f"{r.placed:,}" for r in reports]),
        ("pending", [f"{r.pending:,}" for r in reports]),
        ("nodes", [f"{r.nodes:,}" for r in reports]),
        ("empty nodes", [f"{r.empty_nodes:,}" for r in reports]),
        ("attempts", [f"{r.attempts:,}" for r in reports]),
        ("pods per second", [f"{r.pods_per_second:,.0f}" for r in reports]),
    ]
    if any(r.ended for r in reports):
        rows.insert(3, ("ended", [f"{r.ended:,}" for r in reports]))
    return rows


def _share(report: Report, resource: str) -> str:
    found = next((use for use in report.use if use.resource == resource), None)
    return f"{found.percent:.1f} %" if found is not None and found.allocatable else "-"


def _print_waiting(report: Report) -> None:
    out = console()
    reasons = table(f"Pending pods by reason: {report.policy}", "pods", "reason", right=("pods",))
    for reason, count in report.refusals.items():
        reasons.add_row(f"{count:,}", reason)
    for entry in report.waiting:
        if not entry.message.startswith("0/"):
            reasons.add_row(f"{entry.pods:,}", without_preemption(entry.message))
    out.print(reasons)
    out.print()
    waiting = table("Messages", "pods", "message", "for example", right=("pods",))
    for entry in report.waiting[:MESSAGES_MAX]:
        waiting.add_row(f"{entry.pods:,}", without_preemption(entry.message), entry.example)
    out.print(waiting)
    if len(report.waiting) > MESSAGES_MAX:
        out.print(f"and {len(report.waiting) - MESSAGES_MAX} more (all with --output json)")
