"""Plans which nodes to empty, and to which nodes their placeholders move.

Plans in a trial on the whole cluster state: a placeholder moves only if it fits on a certain node.

Source: seed 001 (descheduling, the flood of deletions); the order is in docs/warm.md.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from stower.framework.companion import TrialScheduler
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.warm.nodes import PoolNodes
from stower.warm.pools import Pool


class Plan(NamedTuple):
    """Nodes that are drained, and who would go where, the first to move first. `kept`: nodes whose
    placeholders should leave and cannot, with the reason; `exits`: who leaves nodes that users
    cannot use, "" where for no node that is known."""

    draining: tuple[str, ...]
    moves: tuple[tuple[PodEntry, str], ...]
    kept: Mapping[str, str] = {}
    exits: tuple[tuple[PodEntry, str], ...] = ()


NO_PLAN = Plan((), ())


class Part(NamedTuple):
    """One pool in the plan of all pools that share nodes. `rows`: those that its users can use, the
    oldest first; `placeholders`: those on these rows, or without a node; `kept`: rows that stay in
    any case; `stranded`: placeholders on rows that users cannot use, and `closed`: those of these
    rows that they leave in any case."""

    pool: Pool
    nodes: PoolNodes
    rows: tuple[int, ...]
    placeholders: tuple[PodEntry, ...]
    kept: frozenset[int] = frozenset()
    stranded: tuple[PodEntry, ...] = ()
    closed: frozenset[int] = frozenset()


class Planner:
    """Over one state."""

    def __init__(self, state: ClusterState, placing: TrialScheduler) -> None:
        self._state = state
        self._placing = placing
        self.tried = ""  # uid of the placeholder for which a place was looked for last

    def plan_drain(self, parts: Sequence[Part], users: Ints) -> Plan:
        """Nodes without users that can be spared, the emptiest first, then the oldest: for all
        pools of these parts at once, as what one drains would be where another moves to. A node is
        emptied of all of their placeholders or of none, and each keeps a node. Who leaves nodes
        that users cannot use has a place before that. Sets `draining` of the pools."""
        names = self._state.node_names
        kept: dict[str, str] = {}
        rows_of = {part.pool.key: frozenset(part.rows) for part in parts}
        refuges = {
            e.uid: rows_of[p.pool.key] for p in parts for e in (*p.placeholders, *p.stranded)
        }
        entries = sorted((e for p in parts for e in p.placeholders), key=lambda e: e.pod.key)
        draining: dict[str, None] = {}
        moves: dict[str, tuple[PodEntry, str]] = {}
        with self._state.trial():
            _mark(parts, ())
            leaving = self._place_stranded(parts, refuges, kept)
            entries = sorted((*entries, *leaving), key=lambda e: e.pod.key)
            held = Counter(entry.row for entry in entries)
            rows = _candidates(parts, users, held, names)
            waiting = [
                entry
                for entry in entries
                if entry.row < 0 and not self._place(entry, draining, refuges[entry.uid])
            ]
            first = self._first_that_waits_for_room(parts, waiting, refuges)
            if first is not None:
                why = f"placeholder {first.pod.key} waits for room"
                kept |= {names[row]: why for row in rows if held[row]}
                return Plan((), (), kept, self._places_of(leaving))
            left = {key: len(theirs) for key, theirs in rows_of.items()}
            ready = {p.pool.key: {row for row in p.rows if p.nodes.ready[row]} for p in parts}
            on: dict[int, list[PodEntry]] = defaultdict(list)
            for entry in entries:
                on[entry.row].append(entry)
            for row in rows:
                pools = [key for key, theirs in rows_of.items() if row in theirs]
                last = next((k for k in pools if left[k] <= 1 or ready[k] == {row}), "")
                if last:
                    if held[row]:
                        what = "ready node" if left[last] > 1 else "node that its users can use"
                        kept[names[row]] = f"pool {last} has no other {what}"
                    continue
                draining[names[row]] = None
                here = sorted(on.pop(row, ()), key=lambda e: e.pod.key)
                if here:
                    _mark(parts, draining)
                    rest = self._clear(row, here, draining, refuges)
                    if rest is not None:
                        del draining[names[row]]
                        kept[names[row]] = f"no other node has room for placeholder {rest.pod.key}"
                        continue
                    for entry in here:
                        on[entry.row].append(entry)
                        moves[entry.uid] = entry, names[entry.row]
                for key in pools:
                    left[key] -= 1
                    ready[key].discard(row)
            exits = self._places_of(leaving)
        _mark(parts, draining)
        for entry, _ in exits:
            moves.pop(entry.uid, None)
        moved = tuple(move for move in moves.values() if move[0].row >= 0)
        return Plan(tuple(draining), moved, kept, exits)

    def _places_of(self, entries: Iterable[PodEntry]) -> tuple[tuple[PodEntry, str], ...]:
        """Returns the node on which the trial has each of them, "" for none."""
        names = self._state.node_names
        return tuple((e, names[e.row] if e.row >= 0 else "") for e in entries)

    def _place_stranded(
        self,
        parts: Sequence[Part],
        refuges: Mapping[str, Container[int]],
        kept: dict[str, str],
    ) -> list[PodEntry]:
        """Has placeholders leave the nodes that users cannot use, as far as there is room: those
        who leave. Of closed nodes all of them, and they wait for a node where there is none."""
        state, found = self._state, []
        every = ((e, part.closed) for part in parts for e in part.stranded)
        for entry, closed in sorted(every, key=lambda one: one[0].pod.key):
            was = entry.row
            state.displace(entry)
            if self._place(entry, (), refuges[entry.uid]) or was in closed:
                found.append(entry)
                continue
            state.assume(entry, was)
            kept[state.node_names[was]] = (
                f"no node that users can use has room for placeholder {entry.pod.key}"
            )
        return found

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

    def plan_replacement(
        self, rows: Sequence[int], placeholders: Iterable[PodEntry], shut: Container[str]
    ) -> Plan:
        """These are placed once more, wherever among `rows` they would go now, but on no node that
        is shut."""
        state, moves, known = self._state, [], frozenset(rows)
        with state.trial():
            for entry in placeholders:
                was = entry.row
                if was < 0:
                    continue
                state.displace(entry)
                if self._place(entry, shut, known):
                    moves.append((entry, state.node_names[entry.row]))
                else:
                    state.assume(entry, was)
        return Plan((), tuple(moves))

    def _place(self, entry: PodEntry, shut: Container[str], refuge: Container[int]) -> bool:
        """Whether it has a place among the rows of its refuge, and then it is there."""
        self.tried = entry.uid
        row = self._placing.select_row(entry)
        if row < 0 or self._state.node_names[row] in shut or row not in refuge:
            return False
        self._state.assume(entry, row)
        return True

    def _first_that_waits_for_room(
        self,
        parts: Sequence[Part],
        waiting: Sequence[PodEntry],
        refuges: Mapping[str, Container[int]],
    ) -> PodEntry | None:
        """The first that would have a place if no other placeholder had one. The rest fit nowhere,
        for whatever reason, and wait for no room that others could give up."""
        if not waiting:
            return None
        state, pods = self._state, self._state.pods
        known = (pods.get(uid) for part in parts for uid in part.pool.placeholders)
        placed = [(e, e.row) for e in known if e is not None and e.row >= 0 and not e.is_assumed]
        for entry, _ in placed:
            state.displace(entry)
        # Those of one shape are asked for once: anybody may have any number of them.
        alike = {entry.shape: entry for entry in reversed(waiting)}
        found = None
        for entry in reversed(alike.values()):
            self.tried = entry.uid
            if self._placing.select_row(entry) in refuges[entry.uid]:
                found = entry
                break
        for entry, row in placed:
            state.assume(entry, row)
        return found

    def _clear(
        self,
        row: int,
        here: Sequence[PodEntry],
        shut: Container[str],
        refuges: Mapping[str, Container[int]],
    ) -> PodEntry | None:
        """Places all of these elsewhere, or none: returns the first that has no place."""
        state = self._state
        for entry in here:
            state.displace(entry)
        for i, entry in enumerate(here):
            if not self._place(entry, shut, refuges[entry.uid]):
                for placed in here[:i]:
                    state.displace(placed)
                for one in here:
                    state.assume(one, row)
                return entry
        return None


def _mark(parts: Iterable[Part], draining: Iterable[str]) -> None:
    """Tells the pools which of their nodes are not to be gone to."""
    for part in parts:
        part.pool.draining = tuple(name for name in draining if part.nodes.has(name))


def _candidates(
    parts: Sequence[Part], users: Ints, held: Mapping[int, int], names: Sequence[str]
) -> list[int]:
    """Rows that nobody uses, in the order in which they are drained."""
    if not parts:
        return []
    born = parts[0].nodes.born_ns  # of all nodes, those of other pools among them
    rows = frozenset[int]().union(*(part.rows for part in parts))
    kept = frozenset[int]().union(*(part.kept for part in parts))
    free = [row for row in rows if row not in kept and not users[row]]
    return sorted(free, key=lambda row: (held[row], int(born[row]), names[row]))
