"""Prints an explanation of a pod as text and tables."""

import re
import time
from typing import Final

from stower.cli.negotiation_printer import print_hints, print_negotiations
from stower.cli.output import console, table
from stower.devices.negotiation.overview import Negotiation
from stower.engine.explain.change_search import Change
from stower.engine.explain.explanation import Explanation, Score
from stower.engine.explain.group_explanation import GroupChange, GroupExplanation
from stower.framework.explanation import ExplanationClass
from stower.model.errors import printable

# Where an explanation says no more than its class.
CLASSES: Final = {
    ExplanationClass.NEVER: "no node of this cluster would do, nor one more of its kinds",
    ExplanationClass.BLOCKED: "something has to change in the cluster",
    ExplanationClass.WAITING: "this ends without anybody's doing",
    ExplanationClass.READY: "nothing keeps the pod",
}
WORD: Final = re.compile("([A-Z])")  # the beginning of a word in an event's name
OTHERS: Final = 2  # changes printed besides the smallest one


def print_explanation(found: Explanation, negotiation: Negotiation | None) -> None:
    """Prints the verdict, changes that would help, negotiations, victims, refusals and scores."""
    _print_line(_verdict(found))
    _print_line(_class(found))
    _print_changes(found)
    if negotiation is not None:
        _print_line("")
        print_negotiations((negotiation,), time.time_ns())
        print_hints(negotiation)
    if found.candidates:
        best = found.candidates[0]
        _print_line("")
        _print_line(f"Preemption would evict {', '.join(best.victims)} from {best.node}.")
    if found.refused and found.verdict != "placed":
        _print_refusals(found)
    if found.waits_for:
        _print_line("")
        flush = "" if found.gates else "; or after five minutes"
        events = ", ".join(WORD.sub(r" \1", name).strip().lower() for name in found.waits_for)
        _print_line(f"The scheduler retries the pod on: {events}{flush}.")
    if found.scores:
        _print_scores(found.scores, found.node)


def print_group(found: GroupExplanation) -> None:
    """Prints the answer for a group's tree, and changes that would help."""
    about = found.group if found.group == found.root else f"{found.group} of {found.root}"
    match found.answer:
        case "placed":
            _print_line(f"{about} is placed: {found.placed:,} pods have a node.")
        case "fits":
            _print_line(f"{about} fits: its {found.pods:,} waiting pods would be placed now.")
            shown = table("", "pod", "node")
            for pod, node in found.nodes.items():
                shown.add_row(printable(pod), printable(node))
            console().print(shown)
        case "impossible" | "not found yet":
            _print_line(f"{about} waits with {found.pods:,} pods: {found.message}")
        case _:
            _print_line(f"{about} is {found.answer}: {found.message}")
    if found.changes:
        first, *others = found.changes
        _print_line("")
        _print_line(f"The smallest change with which it would be placed: {_change(first, found)}.")
        for other in others[:OTHERS]:
            _print_line(f"Or: {_change(other, found)}.")
    elif found.answer in ("impossible", "not found yet"):
        _print_line("")
        _print_line("No single change of a minimum, a topology or the number of nodes was found.")


def _change(change: GroupChange, found: GroupExplanation) -> str:
    some = f" ({change.placed:,} of its {found.pods:,} pods)" if change.placed < found.pods else ""
    return f"{change.what}{some}"


def _print_line(text: str) -> None:
    console().print(printable(text), soft_wrap=True)


def _verdict(found: Explanation) -> str:
    """Returns where the pod is, or why it has no node."""
    gates = f" It has scheduling gates: {', '.join(found.gates)}." if found.gates else ""
    match found.verdict:
        case "placed":
            return (
                f"{found.pod} is on {found.node}. As a new pod it would fit on "
                f"{found.feasible:,} of {found.nodes:,} nodes."
            )
        case "fits":
            return f"{found.pod} can be scheduled: it would be placed on {found.node}."
        case "grouped":
            return (
                f"{found.pod} alone would fit on {found.node}; it waits for its group: "
                f"{found.message}."
            )
        case "settling":
            rest = f"{found.feasible:,} of {found.nodes:,} nodes meet its other requirements"
            return f"{found.pod} is not placed yet: {found.message}. {rest}."
        case "gated" if found.node and found.message:
            return (
                f"{found.pod} is gated.{gates} Without them it would not be placed yet: "
                f"{found.message}."
            )
        case "gated" if found.node:
            return f"{found.pod} is gated.{gates} Without them it would be placed on {found.node}."
        case "gated":
            return f"{found.pod} is gated.{gates} Without them it would not fit: {found.message}"
        case "leaving":
            return f"{found.pod} is being deleted."
        case "unknown":
            return f"{found.pod} is for another scheduler: {found.message}"
        case _:
            return f"{found.pod} waits: {found.message}"


def _class(found: Explanation) -> str:
    """Returns what it takes until the pod runs."""
    what = found.because or CLASSES[found.class_]
    return f"Class {found.class_}: {what}."


def _print_changes(found: Explanation) -> None:
    """Prints the smallest changes that would help, or that none was found for a refused pod."""
    if found.changes:
        _print_line("")
        some = f" (of {found.tried:,} nodes tried)" if found.tried < found.nodes else ""
        if found.changes[0].waits:
            _print_line(f"The smallest change to continue the negotiation{some}:")
        else:
            _print_line(f"The smallest change to schedule the pod{some}:")
        _print_change(found.changes[0])
        for change in found.changes[1 : 1 + OTHERS]:
            _print_line("or:")
            _print_change(change)
    elif found.verdict == "refused":
        _print_line("")
        _print_line("No change was found that makes the pod schedulable.")


def _print_change(change: Change) -> None:
    for text in change.what:
        _print_line(f"  {text}")
    alike = f" (or the same on {change.alike:,} more of the nodes tried)" if change.alike else ""
    if change.waits:
        _print_line(f"  -> {change.node}{alike}, then: {change.waits}")
    else:
        _print_line(f"  -> {change.node}{alike}")


def _print_refusals(found: Explanation) -> None:
    """Prints how many nodes each plugin refuses, then the details that a plugin gives."""
    shown = table("Rejections", "nodes", "plugin", "reason", "for example", right=("nodes",))
    for refusal in found.refused:
        shown.add_row(
            f"{refusal.nodes:,}", refusal.plugin, ", ".join(refusal.reasons),
            ", ".join(refusal.examples),
        )  # fmt: skip
    _print_line("")
    console().print(shown)
    for refusal in found.refused:
        if refusal.details:
            _print_line("")
            on = f" on {refusal.examples[0]}" if refusal.examples else ""
            _print_line(f"{refusal.plugin}{on}:")
            for line in refusal.details:
                _print_line(f"  {line}")


def _print_scores(scores: tuple[Score, ...], node: str) -> None:
    """Prints the scores of all plugins, and what sets the chosen node apart from the next."""
    out = console()
    plugins = sorted({name for score in scores for name in score.parts})
    shown = table("Scores", "node", "total", *plugins, right=("total", *plugins))
    for score in scores:
        shown.add_row(
            score.node, str(score.total), *(str(score.parts.get(name, 0)) for name in plugins)
        )
    out.print("")
    out.print(shown)
    first = next((s for s in scores if s.node == node), scores[0])
    second = next((s for s in scores if s is not first), None)
    if second is None:
        return
    apart = {p: first.parts.get(p, 0) - second.parts.get(p, 0) for p in plugins}
    said = ", ".join(f"{p} {n:+}" for p, n in sorted(apart.items(), key=lambda i: -abs(i[1])) if n)
    what = said or "none: the tie is broken by a hash of pod and node"
    text = f"Score differences between {first.node} and {second.node}: {what}."
    out.print(printable(text), soft_wrap=True)
