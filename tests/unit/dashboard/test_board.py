"""What pages are told, through everything that can come in between."""

import json
from collections import deque
from collections.abc import Iterable
from typing import Any

from stower.assembly import build_engine
from stower.dashboard.board import ROWS_AT_ONCE, Board
from stower.engine.engine import Engine
from stower.framework.events import Listed
from tests.builders import make_node


class Still:
    """A source at one moment."""

    is_leader = is_ready = True
    in_flight = now_ns = 0

    def __init__(self, nodes: int) -> None:
        self.engine: Engine | None = build_engine(None)
        self.engine.step(Listed(tuple(make_node(f"n{n}") for n in range(nodes))), 0)
        self.decisions: deque[Any] = deque()

    def standing(self) -> dict[str, Any]:
        return {}


def told(lines: Iterable[bytes], before: dict[str, Any] | None = None) -> dict[str, Any]:
    """Nodes by row, as a page has them then."""
    rows = dict(before or {})
    for line in lines:
        message = json.loads(line or b"{}")
        if message.get("begin"):
            rows.clear()
        for row, node in message.get("rows", {}).items():
            if node is None:
                rows.pop(row, None)
            else:
                rows[row] = node
    return rows


def look(board: Board, source: Any) -> Iterable[bytes]:
    return board.look(source)


def test_who_begins_anew_in_the_middle_of_a_look_tells_everything_again() -> None:
    board, source = Board(), Still(3 * ROWS_AT_ONCE)
    looking = iter(look(board, source))
    rows = told([next(looking), next(looking)])
    assert ROWS_AT_ONCE == len(rows)
    board.begin()
    rows = told(looking, rows)
    rows = told(look(board, source), rows)
    assert 3 * ROWS_AT_ONCE == len(rows)
    assert rows == told(board.whole()), "a page that opens now is told the same"


def test_another_engine_may_be_smaller() -> None:
    board = Board()
    rows = told(look(board, Still(300)))
    assert 300 == len(rows)
    small = Still(20)
    rows = told(look(board, small), rows)
    assert {f"n{n}" for n in range(20)} == {node["name"] for node in rows.values()}
    assert rows == told(look(board, small), rows)


def test_nothing_is_told_twice() -> None:
    board, source = Board(), Still(1)
    assert source.engine is not None
    for at in range(0, 60, 3):
        board.sample(float(at), source.engine)
    history = [
        sample["at"]
        for line in (*look(board, source), *board.whole(), *look(board, source))
        for sample in json.loads(line or b"{}").get("history", ())
    ]
    first = [float(at) for at in range(3, 60, 3)]
    assert history == [*first, *first], "once to pages that are open, once to one that opens"
    board.sample(100.0, source.engine)
    page = [
        sample["at"]
        for line in (*board.whole(), *look(board, source))
        for sample in json.loads(line or b"{}").get("history", ())
    ]
    assert page == [*first, 100.0]
