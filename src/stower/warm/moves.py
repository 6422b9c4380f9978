"""Plans which nodes to empty, and to which nodes their placeholders move.

Plans in a trial on the whole cluster state: a placeholder moves only if it fits on a certain node.

Source: seed 001 (descheduling, the flood of deletions); the order is in docs/warm.md.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple

from stower.framework.companion import TrialScheduler
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry


class Plan(NamedTuple):
    """Nodes that are drained, and who would go where; the first to move first."""

    draining: tuple[str, ...]
    moves: tuple[tuple[PodEntry, str], ...]


class Planner:
    """Over one state."""

    def __init__(self, state: ClusterState, placing: TrialScheduler) -> None:
        self._state = state
        self._placing = placing
        # Whether a row is a place for placeholders: set by each plan.
        self._is_refuge: Callable[[int], bool] = lambda row: True

    def plan_drain(
        self,
        rows: Sequence[int],
        users: Callable[[int], int],
        placeholders: Iterable[PodEntry],
        mark: Callable[[tuple[str, ...]], None],
        kept: int = -1,
    ) -> Plan:
        """Nodes without users that can be spared, the emptiest first, then the oldest. `rows`: the
        pool's, the oldest first; `mark` says which are not to be gone to; `kept`: one that stays in
        any case."""
        state, names = self._state, self._state.node_names
        known = frozenset(rows)
        self._is_refuge = known.__contains__
        draining: dict[str, None] = {}
        moves: dict[str, tuple[PodEntry, str]] = {}
        entries = sorted(placeholders, key=lambda entry: entry.pod.key)
        with state.trial():
            mark(())
            for entry in entries:
                if entry.row < 0 and not self._place(entry, draining):
                    return Plan((), ())  # nothing can be spared
            free = [row for row in rows if row != kept and not users(row)]
            held = Counter(entry.row for entry in entries)
            for row in sorted(free, key=lambda row: held[row]):
                if len(rows) - len(draining) <= 1:
                    break
                draining[names[row]] = None
                here = [e for e in entries if e.row == row] if held[row] or moves else []
                if not here:
                    continue
                mark(tuple(draining))
                if self._clear(row, here, draining):
                    moves |= {e.uid: (e, names[e.row]) for e in here}
                else:
                    del draining[names[row]]
        mark(tuple(draining))
        return Plan(tuple(draining), tuple(m for m in moves.values() if m[0].row >= 0))

    def plan_newest_node(
        self, rows: Sequence[int], newest_rows: Sequence[int], placeholders: Iterable[PodEntry]
    ) -> Plan:
        """Those that are not on the newest node go there, as far as there is room (the seed's
        script). `newest_rows`: of several that were made in the same second, each is the newest;
        the last one draws."""
        if len(rows) < 2:
            return Plan((), ())
        newest, state = newest_rows[-1], self._state
        moves = []
        with state.trial():
            for entry in sorted(placeholders, key=lambda entry: entry.pod.key):
                was = entry.row
                if was < 0 or was in newest_rows or was not in rows:
                    continue
                state.displace(entry)
                fits = self._placing.fits(entry, newest)
                state.assume(entry, newest if fits else was)
                if fits:
                    moves.append((entry, state.node_names[newest]))
        return Plan((), tuple(moves))

    def plan_exit(
        self, rows: Sequence[int], placeholders: Iterable[PodEntry], must: Container[int]
    ) -> Plan:
        """These leave for nodes among `rows`, as far as there is room; those on rows that they
        `must` leave go in any case, and wait for a node where there is no room."""
        state, moves, known = self._state, list[tuple[PodEntry, str]](), frozenset(rows)
        self._is_refuge = known.__contains__
        with state.trial():
            for entry in sorted(placeholders, key=lambda entry: entry.pod.key):
                was = entry.row
                state.displace(entry)
                if self._place(entry, ()):
                    moves.append((entry, state.node_names[entry.row]))
                    continue
                state.assume(entry, was)
                if was in must:
                    moves.append((entry, ""))
        return Plan((), tuple(moves))

    def plan_replacement(self, placeholders: Iterable[PodEntry]) -> Plan:
        """These are placed once more, wherever they would go now."""
        state, moves = self._state, []
        with state.trial():
            for entry in placeholders:
                was = entry.row
                if was < 0:
                    continue
                state.displace(entry)
                if self._place(entry, ()):
                    moves.append((entry, state.node_names[entry.row]))
                else:
                    state.assume(entry, was)
        return Plan((), tuple(moves))

    def _place(self, entry: PodEntry, shut: Container[str]) -> bool:
        row = self._placing.select_row(entry)
        if row < 0 or self._state.node_names[row] in shut or not self._is_refuge(row):
            return False
        self._state.assume(entry, row)
        return True

    def _clear(self, row: int, here: Sequence[PodEntry], shut: Container[str]) -> bool:
        """Whether all of these have a place elsewhere, and then they are there."""
        state = self._state
        for entry in here:
            state.displace(entry)
        for i, entry in enumerate(here):
            if not self._place(entry, shut):
                for placed in here[:i]:
                    state.displace(placed)
                for one in here:
                    state.assume(one, row)
                return False
        return True
