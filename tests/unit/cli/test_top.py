"""The terminal's picture of a scheduler: what it shows, and that it fits."""

import io
import re
from typing import Any

import pytest
from rich.console import Console

from stower.cli.board import BoardState, render_board


def node(name: str, cpu: int, memory: int, pods: int) -> dict[str, Any]:
    amounts = {"cpu": [cpu, 1000], "memory": [memory, 1000], "pods": [pods, 110]}
    placed = [[f"default/p{n}", "pod", 1, 1, False] for n in range(min(pods, 3))]
    return {"name": name, "zone": "a", "rack": "", "off": False, "amounts": amounts,
            "pods": placed}  # fmt: skip


def known(nodes: int = 3, waiting: int = 2, decisions: int = 2) -> BoardState:
    found = BoardState()
    found.take({"begin": True})
    found.take({"rows": {str(n): node(f"node-{n}", n * 100, 900 - n * 100, n)
                         for n in range(nodes)}})  # fmt: skip
    found.take({
        "standing": {"leads": True}, "queue": {"active": waiting}, "more": 0,
        "waiting": [{"pod": f"default/{'long-' * 30}{n}", "place": "backoff", "attempts": 3,
                     "seconds": 1.5, "refusedBy": ["NodeResourcesFit", "NodeAffinity"]}
                    for n in range(waiting)],
        "decisions": [{"pod": f"default/d{n}", "outcome": "unschedulable", "node": "",
                       "message": "no room " * 40, "atNs": n} for n in range(decisions)],
        "history": [{"bound": 12.5, "events": 3, "p50": 0.05, "p99": 1.25}],
    })  # fmt: skip
    return found


def text(of: BoardState, height: int = 24, width: int = 80, **more: str) -> list[str]:
    out = Console(file=io.StringIO(), width=width, no_color=True, force_terminal=True)
    out.print(render_board(of, height, **more))
    shown = re.sub("\x1b\\[[0-9;]*m", "", out.file.getvalue())  # type: ignore[attr-defined]
    return [line.rstrip() for line in shown.split("\n")]


@pytest.mark.parametrize("counts", [(0, 0, 0), (1, 0, 0), (3, 2, 2), (5_000, 500, 100)])
def test_it_fits_in_80_columns_and_24_lines(counts: tuple[int, int, int]) -> None:
    shown = text(known(*counts))
    assert max(map(len, shown)) <= 80
    assert len(shown) <= 25


def test_each_decision_says_of_whom_and_what() -> None:
    shown = text(known(decisions=1))
    (line,) = (line for line in shown if "default/d0" in line)
    assert "unschedulable  no room no" in line
    assert line.endswith("…")


def test_how_it_stands_is_in_the_first_lines() -> None:
    first, second, *_ = text(known())
    assert "Stower leads   3 nodes   3 pods placed   2 waiting" == first
    assert "12.5 bound/s" in second
    assert "p50 50 ms, p99 1.2 s" in second
    assert "Stower connection lost" in text(known(), trouble="connection lost")[0]


@pytest.mark.parametrize(("sort", "order"), [("cpu", [2, 1, 0]), ("memory", [0, 1, 2])])
def test_nodes_are_sorted_by_what_is_asked_for(sort: str, order: list[int]) -> None:
    rows = [line for line in text(known(), sort=sort) if line.startswith("node-")]
    assert [f"node-{n}" for n in order] == [line.split()[0] for line in rows]
    assert "#########." in rows[0] or "##........" in rows[0]


def test_what_is_gone_is_forgotten() -> None:
    found = known()
    found.take({"rows": {"1": None}})
    assert ["0", "2"] == sorted(found.rows)
    found.take({"begin": True})
    assert not found.rows
    assert not found.decisions
