"""Prints the result of `stower run --dry-run`: a line per differing decision, and a report.

A decision of the other scheduler differs if this scheduler would have decided otherwise. The report
follows at the end of the run.
"""

from collections import Counter
from typing import Any, Final

import msgspec

from stower.cli.output import Output, console, emit, table
from stower.engine.explain.agreement import Judgement
from stower.live.shadow import ShadowComparer
from stower.model.errors import printable

ORDER: Final = {
    "agrees": "one of the best nodes was chosen, or no node is feasible here either",
    "differs": "another node has a higher score",
    "refuses": "the chosen node is rejected here",
    "places": "no node was chosen, and a node is feasible here",
    "unknown": "the chosen node is not known here",
    "missed": "decided while a watch was lost",
    "race": "the other scheduler had seen a claim of the pod that was not known here yet",
}
NOT_JUDGED: Final = ("missed", "race")
DIFFERENCES_SHOWN: Final = 1_000


def format_judgement(found: Judgement) -> str:
    """One decision as a line."""
    where = f"{found.pod} -> {found.node or 'no node'}"
    of = f"score {found.node_score} of {found.score}, rank {found.rank} of {found.feasible:,}"
    best = ", ".join(found.best[:3]) + (", ..." if found.best_count > 3 else "")
    match found.verdict:
        case "agrees" if not found.node:
            return f"{where}: agrees: {found.message}"
        case "agrees":
            return f"{where}: agrees: one of {found.best_count:,} best of {found.feasible:,}"
        case "differs":
            parts = ", ".join(f"{name} {by:+}" for name, by in found.parts.items())
            return f"{where}: differs: {best} is better ({of}): {parts}"
        case "refuses":
            return f"{where}: refuses: {'; '.join(found.reasons)}"
        case "places":
            return f"{where}: places: {best} is feasible, but the pod is pending: {found.message}"
        case _:
            return f"{where}: {found.verdict}"


class JudgementPrinter:
    """Tells of each decision as it comes."""

    def __init__(self, output: Output, verbose: bool) -> None:
        self._output = output
        self._verbose = verbose
        self._out = console()

    def __call__(self, found: Judgement) -> None:
        if self._output is Output.TABLE and (self._verbose or found.verdict != "agrees"):
            self._out.print(printable(format_judgement(found)), soft_wrap=True)


def report(shadow: ShadowComparer, pending: list[Judgement], output: Output) -> bool:
    """Say how far both agree; whether they do in all decisions."""
    counts = shadow.verdicts
    total = sum(counts[name] for name in ORDER if name not in NOT_JUDGED)
    agrees = counts["agrees"] == total
    if output is not Output.TABLE:
        emit(_as_data(shadow, pending, total), output)
        return agrees
    shown = table(
        "Decisions of the other scheduler", "verdict", "count", "%", "meaning",
        right=("count", "%"),
    )  # fmt: skip
    for name, text in ORDER.items():
        if counts[name] or name == "agrees":
            share = f"{100 * counts[name] / total:.2f}" if total and name not in NOT_JUDGED else ""
            shown.add_row(name, f"{counts[name]:,}", share, text)
    console().print(shown)
    reasons = Counter(_reason_key(one) for one in shadow.differences)
    if reasons:
        why = table("Reasons", "count", "verdict", "reason", right=("count",))
        for (verdict, reason), count in sorted(reasons.items(), key=lambda r: (-r[1], r[0])):
            why.add_row(f"{count:,}", verdict, reason)
        console().print(why)
    waiting = table("Pending pods", "pod", "decision here")
    for one in pending:
        here = f"would be bound to {one.best[0]}" if one.best else one.message
        waiting.add_row(one.pod, here)
    if pending:
        console().print(waiting)
    return agrees


def _reason_key(found: Judgement) -> tuple[str, str]:
    if found.verdict == "refuses":
        return found.verdict, "; ".join(found.reasons)
    if found.verdict == "differs":
        return found.verdict, next(iter(found.parts), "")
    return found.verdict, ""


def _as_data(shadow: ShadowComparer, pending: list[Judgement], total: int) -> dict[str, Any]:
    return {
        "decisions": total,
        "verdicts": {name: shadow.verdicts[name] for name in ORDER},
        "agreementPercent": round(100 * shadow.verdicts["agrees"] / total, 3) if total else None,
        "differences": msgspec.to_builtins(shadow.differences[:DIFFERENCES_SHOWN]),
        "pending": msgspec.to_builtins(pending),
    }
