"""Draws the state of a scheduler on a terminal, from the messages of its dashboard's stream: nodes,
queue, rates and last decisions. Must not know where the messages come from.
"""

import threading
from collections import deque
from datetime import datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stower.cli.output import lines, table

Object = dict[str, Any]
DECISIONS: Final = 100
BAR: Final = 10
SORTS: Final = {"c": "cpu", "m": "memory", "p": "pods"}
LEAST: Final = {"at": 8, "outcome": 13, "where": 13, "cpu": 15, "memory": 15}  # of columns
POD_MAX: Final = 36  # characters of its name: what is said of it has to be seen too
HEADERS: Final = 9  # lines that are no rows


class BoardState:
    """What the stream has told."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # whoever reads and whoever draws take turns
        self.rows: dict[str, Object] = {}
        self.last: Object = {}
        self.decisions: deque[Object] = deque(maxlen=DECISIONS)
        self.sample: Object = {}

    def take(self, message: Object) -> None:
        """One message of the stream."""
        with self.lock:
            self._take(message)

    def _take(self, message: Object) -> None:
        if message.get("begin"):
            self.rows.clear()
            self.decisions.clear()
        for row, node in message.get("rows", {}).items():
            if node is None:
                self.rows.pop(row, None)
            else:
                self.rows[row] = node
        self.decisions.extend(message.get("decisions", ()))
        for sample in message.get("history", ()):
            self.sample = sample
        self.last.update(message)

    @property
    def is_whole(self) -> bool:
        """Whether it has said how things stand."""
        return "standing" in self.last


def render_board(
    known: BoardState, height: int, sort: str = "cpu", trouble: str = ""
) -> RenderableType:
    """For so many lines: how it stands, the fullest nodes, who waits, what was decided last."""
    with known.lock:
        return _render_board(known, height, sort, trouble)


def _render_board(known: BoardState, height: int, sort: str, trouble: str) -> RenderableType:
    rows = max(3, height - HEADERS)
    waiting = known.last.get("waiting", [])
    for_queue = min(len(waiting), max(3, rows // 3)) if waiting else 0
    for_decisions = min(len(known.decisions), max(3, rows // 3))
    for_nodes = max(1, rows - for_queue - for_decisions)
    parts: list[RenderableType] = [_head(known, trouble)]
    parts.append(_nodes(known, for_nodes, sort))
    if waiting:
        parts.append(_queue(waiting[:for_queue], len(waiting) + known.last.get("more", 0)))
    if known.decisions:
        parts.append(_decisions(list(known.decisions)[-for_decisions:][::-1]))
    return Group(*parts)


def _head(known: BoardState, trouble: str) -> Text:
    standing, sample = known.last.get("standing", {}), known.sample
    placed = sum(len(node["pods"]) for node in known.rows.values())
    waiting = sum(known.last.get("queue", {}).values())
    leads = "leads" if standing.get("leads") else "stands by"
    first = f"Stower {trouble or leads}   {len(known.rows):,} nodes   {placed:,} pods placed   "
    first += f"{waiting:,} waiting"
    second = f"{sample.get('bound', 0):,.1f} bound/s   {sample.get('events', 0):,.1f} events/s   "
    p50, p99 = (_seconds(sample.get(name)) for name in ("p50", "p99"))
    head = lines((first, f"{second}arrival to bound p50 {p50}, p99 {p99}"))
    head.no_wrap, head.overflow = True, "ellipsis"
    return head


def _seconds(value: float | None) -> str:
    if not value:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _share(node: Object, resource: str) -> float:
    used, all_ = node["amounts"].get(resource, (0, 0))
    return used / all_ if all_ else 0.0


def _bar(share: float) -> str:
    filled = min(BAR, round(share * BAR))
    return f"{'#' * filled}{'.' * (BAR - filled)} {share:4.0%}"


def _nodes(known: BoardState, most: int, sort: str) -> RenderableType:
    ordered = sorted(known.rows.values(), key=lambda node: (-_share(node, sort), node["name"]))
    title = f"Nodes, by {sort} ({len(ordered):,})"
    shown = _cut(table(title, "node", "zone", "cpu", "memory", "pods", right=("pods",)))
    for node in ordered[:most]:
        zone = node["zone"] + (" (unschedulable)" if node["off"] else "")
        shown.add_row(
            node["name"], zone, _bar(_share(node, "cpu")), _bar(_share(node, "memory")),
            f"{len(node['pods']):,}",
        )  # fmt: skip
    return shown


def _queue(waiting: list[Object], count: int) -> RenderableType:
    shown = _cut(table(f"Waiting ({count:,})", "pod", "where", "attempts", "waits", "rejected by",
                       right=("attempts", "waits")))  # fmt: skip
    for one in waiting:
        shown.add_row(
            one["pod"], one["place"], f"{one['attempts']}", f"{one['seconds']:,.0f}s",
            ", ".join(one["refusedBy"]),
        )  # fmt: skip
    return shown


def _decisions(decisions: list[Object]) -> RenderableType:
    shown = _cut(table("Last decisions", "at", "pod", "outcome", "node or reason"))
    for one in decisions:
        at = datetime.fromtimestamp(one["atNs"] / 1e9).strftime("%H:%M:%S")
        shown.add_row(at, one["pod"], one["outcome"], one["node"] or one["message"])
    return shown


def _cut(shown: Table) -> Table:
    """A row is a line: what does not fit is cut; the last column has what the others leave."""
    for column in shown.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
        column.min_width = LEAST.get(str(column.header))
        column.max_width = POD_MAX if column.header == "pod" else None
    if shown.columns[-1].justify != "right":
        shown.columns[-1].ratio, shown.expand = 1, True
    return shown
