"""The report of `stower run --dry-run`: a line for each difference, and a summary."""

import json
from typing import Any

import pytest

from stower.cli.output import Output
from stower.cli.shadow_report import JudgementPrinter, format_judgement, report
from stower.engine.explain.agreement import Judgement
from stower.live.shadow import ShadowComparer

AGREES = Judgement("d/a", "n1", "agrees", best=("n1",), best_count=3, feasible=5)
FULL = Judgement("d/b", "", "agrees", message="0/3 nodes are available")
DIFFERS = Judgement(
    "d/c", "n1", "differs", best=("n2", "n3", "n4"), best_count=4, score=90, node_score=70,
    rank=2, feasible=1_234, parts={"NodeResourcesFit": 15, "ImageLocality": -5},
)  # fmt: skip
REFUSES = Judgement("d/d", "n1", "refuses", reasons=("Insufficient cpu", "Too many pods"))
PLACES = Judgement("d/e", "", "places", best=("n2",), best_count=1, message="no room")
UNKNOWN = Judgement("d/f\x1b[2J", "n9", "unknown")


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (AGREES, "d/a -> n1: agrees: one of 3 best of 5"),
        (FULL, "d/b -> no node: agrees: 0/3 nodes are available"),
        (DIFFERS, "d/c -> n1: differs: n2, n3, n4, ... is better (score 70 of 90, rank 2 of 1,234)"
                  ": NodeResourcesFit +15, ImageLocality -5"),
        (REFUSES, "d/d -> n1: refuses: Insufficient cpu; Too many pods"),
        (PLACES, "d/e -> no node: places: n2 is feasible, but the pod is pending: no room"),
        (Judgement("d/f", "n9", "unknown"), "d/f -> n9: unknown"),
    ],
    ids=lambda value: value.verdict if isinstance(value, Judgement) else "",
)  # fmt: skip
def test_each_decision_is_a_line(found: Judgement, line: str) -> None:
    assert line == format_judgement(found)


def shadow(*found: Judgement, missed: int = 0) -> ShadowComparer:
    made = ShadowComparer(lambda judgement: None)
    for one in found:
        made.verdicts[one.verdict] += 1
        if one.verdict != "agrees":
            made.differences.append(one)
    made.verdicts["missed"] += missed
    return made


@pytest.mark.parametrize(
    ("output", "is_verbose", "lines"),
    [(Output.TABLE, False, 1), (Output.TABLE, True, 2), (Output.JSON, True, 0)],
)
def test_decisions_are_printed_as_they_come(
    output: Output, is_verbose: bool, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Agreement is printed on request alone. No name controls the terminal."""
    telling = JudgementPrinter(output, is_verbose)
    telling(AGREES)
    telling(UNKNOWN)
    said = capsys.readouterr().out
    assert (lines, False) == (len(said.splitlines()), "\x1b" in said)


def test_the_report_counts_verdicts_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    pending = [PLACES, Judgement("d/g", "", "agrees", message="still no room")]
    made = shadow(AGREES, DIFFERS, REFUSES, REFUSES, missed=7)
    assert not report(made, pending, Output.TABLE)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    for start in (
        ["agrees", "1", "25.00"], ["differs", "1", "25.00"], ["refuses", "2", "50.00"],
        ["missed", "7", "decided"], ["2", "refuses", "Insufficient"],
        ["1", "differs", "NodeResourcesFit"], ["d/e", "would", "be", "bound", "to", "n2"],
        ["d/g", "still", "no", "room"],
    ):  # fmt: skip
        assert start in [row[: len(start)] for row in rows]


def test_schedulers_that_agree_in_everything_are_told_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report(shadow(AGREES, FULL), [], Output.TABLE)
    assert "100.00" in capsys.readouterr().out
    assert report(shadow(), [], Output.TABLE)


def test_the_report_for_programs_has_the_differences(capsys: pytest.CaptureFixture[str]) -> None:
    assert not report(shadow(AGREES, AGREES, DIFFERS), [PLACES], Output.JSON)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (3, 66.667, ["d/c"], ["d/e"]) == (
        found["decisions"], found["agreementPercent"],
        [one["pod"] for one in found["differences"]], [one["pod"] for one in found["pending"]],
    )  # fmt: skip
