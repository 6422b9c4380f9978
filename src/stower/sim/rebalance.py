"""Plans few moves of pods that let pods that wait run, or that empty nodes: a bounded search on the
state of an engine, in trials. rebalance_steps.py tries the plan in a world.

A pod that waits gets the node from which the fewest movable pods have to leave; each of these goes
where the scheduler places it, for which up to one further pod moves. Must not change anything.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from stower.engine.cycle import reference
from stower.engine.engine import Engine
from stower.framework.profile import Profile
from stower.sim.node_pods import belongs_to_node
from stower.state.arrays import Bools, Ints
from stower.state.pod_entry import PodEntry

# Moves for one pod that waits, and how often a moved pod may have others move for it.
MOVES_PER_POD: Final = 3
DEPTH_MAX: Final = 1
# What is looked at for one pod: nodes, sets of pods of a node, and sets in all.
ROWS_MAX: Final = 200
SETS_PER_ROW: Final = 60
SETS_MAX: Final = 2_000
SYSTEM_PRIORITY: Final = 2_000_000_000  # system-cluster-critical and above
# Annotations with which users keep a pod where it is.
KEPT: Final = (
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
    ("karpenter.sh/do-not-disrupt", "true"),
    ("descheduler.alpha.kubernetes.io/prefer-no-eviction", "true"),
)


class Move(NamedTuple):
    """A pod that leaves its row for another."""

    entry: PodEntry
    from_row: int
    to_row: int


class Relocation(NamedTuple):
    """Moves after which a row has room for a pod, in the order in which they are made. `row`: of
    the pod that waits, or the row that is emptied."""

    row: int
    moves: tuple[Move, ...]
    entry: PodEntry | None = None


class RelocationSearch:
    """The search on one engine's state. `searched`: sets of pods that were tried; `kept`: why pods
    do not move, by key."""

    def __init__(self, engine: Engine) -> None:
        self._state, self._cycle = engine.state, engine.cycle
        self._profiles = engine.profiles
        self.searched = 0
        self._left = SETS_MAX  # of the pod that is looked at
        self.kept: dict[str, str] = {}
        self._moved: set[str] = set()  # uids: no pod moves twice

    def place(self, waiting: Sequence[PodEntry]) -> Iterator[tuple[PodEntry, Relocation | None]]:
        """Yields for each pod the moves after which it has a node, None where none were found. The
        caller has opened a trial; what was yielded counts for the next pod."""
        for entry in waiting:
            profile = self._profiles.get(entry.pod.spec.scheduler_name)
            if profile is None:
                yield entry, None
                continue
            row = self._cycle.choose(profile, entry)
            if row >= 0:
                self._state.assume(entry, row)
                yield entry, Relocation(row, (), entry)
                continue
            self._left = SETS_MAX
            found = None
            for limit in range(1, MOVES_PER_POD + 1):  # the fewest moves first
                found = found or self._make_room(entry, profile, frozenset(), DEPTH_MAX, limit)
            if found is not None:
                self._apply(found)
            yield entry, found

    def empty(self, count: int, moves_max: int) -> list[Relocation]:
        """Returns the moves that empty so many nodes, those with the fewest pods first; fewer where
        no more were found, or for more than `moves_max` moves. The caller has opened a trial."""
        found: list[Relocation] = []
        gone: set[int] = set()
        for row in self._rows_by_pods():
            if len(found) == count:
                break
            moves = self._clear(row, frozenset(gone | {row}))
            if moves is not None and len(moves) <= moves_max:
                moves_max -= len(moves)
                relocation = Relocation(row, tuple(moves))
                self._apply(relocation)
                found.append(relocation)
                gone.add(row)
        return found

    # Bounds

    def fewest_to_leave(self, entry: PodEntry) -> int:
        """Returns a lower bound of the moves that let the pod run: on the best node, so many of the
        largest pods have to leave. -1 where no node has room for it even then."""
        profile = self._profiles.get(entry.pod.spec.scheduler_name)
        if profile is None:
            return -1
        bounds = self._bounds(entry, profile)
        known = bounds[bounds >= 0]
        return int(known.min()) if len(known) else -1

    def fewest_for(self, entries: Sequence[PodEntry]) -> int:
        """Returns a lower bound of the moves that let all of these pods run. A move on a node makes
        room for so many of them, in a resource of which no node has enough for the smallest."""
        fewest = max((self.fewest_to_leave(entry) for entry in entries), default=0)
        state = self._state
        requests = [dict(entry.shape.requests) for entry in entries]
        for column in requests[0] if requests else ():
            smallest = min(amounts.get(column, 0) for amounts in requests)
            free = (column.allocatable - column.requested)[: state.row_limit]
            if smallest and int(free[state.present[: state.row_limit]].max(initial=0)) < smallest:
                placed = (e for e in state.pods.values() if e.row >= 0)
                largest = max((dict(e.shape.usage).get(column, 0) for e in placed), default=0)
                fewest = max(fewest, -(-len(entries) // (largest // smallest + 1)))
        return fewest

    def fewest_on_nodes(self) -> list[int]:
        """Returns the numbers of pods on nodes that could be emptied, the smallest first. The sum
        of the first k is a lower bound of the moves that empty k nodes."""
        return sorted(len(self._movable_on(row)) for row in self._rows_by_pods())

    def _bounds(self, entry: PodEntry, profile: Profile) -> Ints:
        """Returns int64[row_limit]: how many pods have to leave each row at least, -1 where the pod
        cannot go."""
        state, shape = self._state, entry.shape
        bounds: Ints = np.zeros(state.row_limit, np.int64)
        bounds[~state.present[: state.row_limit]] = -1
        for plugin in profile.filters:
            if not plugin.is_relevant(shape):
                continue
            codes = reference.filter_codes(plugin, entry.pod, shape, state, state.all_rows)
            refused = codes != 0 if codes is not None else None
            if refused is None or not refused.any():
                continue
            constraints = plugin.capacity_constraints(shape, state) or ()
            lacking = [(c, np.maximum(c.need - c.free(state.all_rows), 0)) for c in constraints]
            for row in np.flatnonzero(refused & (bounds >= 0)).tolist():
                short = [(c, int(by[row])) for c, by in lacking if by[row]]
                if not short:
                    assert codes is not None
                    is_resolvable = plugin.rejection(shape, int(codes[row])).may_evict
                    bounds[row] = max(bounds[row], 1) if is_resolvable else -1
                for constraint, by in short:
                    sizes = [constraint.usage(e.shape) for e in state.pods_by_row[row].values()]
                    fewest = _fewest(sizes, by) if any(sizes) else min(1, len(sizes)) or -1
                    is_possible = bounds[row] >= 0 and fewest >= 0
                    bounds[row] = max(bounds[row], fewest) if is_possible else -1
        return bounds

    # Search

    def _make_room(
        self,
        entry: PodEntry,
        profile: Profile,
        excluded: frozenset[int],
        depth: int,
        limit: int,
    ) -> Relocation | None:
        """Returns at most `limit` moves after which some row takes the pod."""
        bounds = self._bounds(entry, profile)
        rows = [row for row in np.flatnonzero(bounds >= 0).tolist() if row not in excluded]
        rows.sort(key=lambda row: (int(bounds[row]), row))
        for size in range(1, limit + 1):
            for row in rows[:ROWS_MAX]:
                if bounds[row] > size:
                    break
                movable = self._movable_on(row)
                for leaving in _first_sets(movable, size):
                    if self._left <= 0:
                        return None
                    self._left -= 1
                    self.searched += 1
                    around = excluded | {row}
                    moves = self._moves_for(entry, profile, row, leaving, around, depth, limit)
                    if moves is not None:
                        return Relocation(row, tuple(moves), entry)
        return None

    def _moves_for(
        self,
        entry: PodEntry,
        profile: Profile,
        row: int,
        leaving: Sequence[PodEntry],
        excluded: frozenset[int],
        depth: int,
        limit: int,
    ) -> list[Move] | None:
        """Returns the moves with which these pods leave the row for the pod, None where the pod
        does not fit then, or one of them finds no other row."""
        state = self._state
        with state.trial():
            for other in leaving:
                state.displace(other)
            if not self._cycle.fits(profile, entry, row):
                return None
            state.assume(entry, row)
            return self._place_all(leaving, row, excluded, depth, limit)

    def _clear(self, row: int, excluded: frozenset[int]) -> list[Move] | None:
        with self._state.trial():
            leaving = self._movable_on(row)
            for other in leaving:
                self._state.displace(other)
            return self._place_all(leaving, row, excluded, 0, len(leaving))

    def _place_all(
        self,
        leaving: Sequence[PodEntry],
        row: int,
        excluded: frozenset[int],
        depth: int,
        limit: int,
    ) -> list[Move] | None:
        """Places displaced pods on rows that are not excluded, within a trial, with at most `limit`
        moves in all."""
        state, moves = self._state, list[Move]()
        spare = limit - len(leaving)  # moves of others
        allowed: Bools = np.ones(state.row_limit, np.bool_)
        allowed[[*excluded]] = False
        for other in leaving:
            profile = self._profiles.get(other.pod.spec.scheduler_name)
            if profile is None:
                return None
            points = np.zeros(state.row_limit, np.int64)
            target = self._cycle.choose_among(profile, other, allowed, points)
            if target < 0 and depth > 0 and spare > 0:
                found = self._make_room(other, profile, excluded, depth - 1, spare)
                if found is None:
                    return None
                spare -= len(found.moves)
                self._apply(found)
                moves += found.moves
                moves.append(Move(other, row, found.row))
                continue
            if target < 0:
                return None
            state.assume(other, target)
            moves.append(Move(other, row, target))
        return moves

    def _apply(self, found: Relocation) -> None:
        """Makes moves, and places the pod, in the open trial."""
        state = self._state
        for move in found.moves:
            if move.entry.row >= 0:
                state.displace(move.entry)
        for move in found.moves:
            state.assume(move.entry, move.to_row)
            self._moved.add(move.entry.uid)
        if found.entry is not None and found.entry.row < 0:
            state.assume(found.entry, found.row)

    # Pods that move

    def _rows_by_pods(self) -> list[int]:
        """Returns the rows whose pods all may move, or belong to the node, those with the fewest
        pods first."""
        state, rows = self._state, list[tuple[int, str, int]]()
        for row in state.present_rows():
            pods = [e for e in state.pods_by_row[row].values() if not belongs_to_node(e.pod)]
            if pods and all(self._may_move(entry) for entry in pods):
                rows.append((len(pods), state.node_names[row], row))
        return [row for *_, row in sorted(rows)]

    def _movable_on(self, row: int) -> list[PodEntry]:
        """Returns the pods that may leave a row, the largest first."""
        entries = [e for e in self._state.pods_by_row[row].values() if self._may_move(e)]
        return sorted(entries, key=lambda e: (*(-amount for _, amount in e.shape.requests), e.uid))

    def _may_move(self, entry: PodEntry) -> bool:
        if entry.uid in self._moved:
            return False
        reason = self._reason_to_stay(entry)
        if reason:
            self.kept[entry.pod.key] = reason
        return not reason

    def _reason_to_stay(self, entry: PodEntry) -> str:
        pod, notes = entry.pod, entry.pod.metadata.annotations or {}
        owner = pod.metadata.controller
        if belongs_to_node(pod):
            return "it belongs to its node"
        if owner is None:
            return "no controller creates it again"
        if entry.is_deletion_pending or pod.metadata.deletion_timestamp is not None:
            return "it is being deleted"
        if pod.priority >= SYSTEM_PRIORITY:
            return "it has a system priority"
        if kept := next((name for name, value in KEPT if notes.get(name) == value), ""):
            return f"annotation {kept}"
        if pod.group_name:
            return "it is of a pod group"
        if any(entry.resource_claim_name for entry in pod.spec.resource_claims or ()):
            return "it uses a ResourceClaim by name"
        violating, _ = self._state.budgets.split_by_violation([entry])
        return "a PodDisruptionBudget allows no eviction" if violating else ""


def _fewest(sizes: Sequence[int], lacking: int) -> int:
    """Returns how many of these amounts, the largest first, make up for what is lacking; -1 where
    all do not."""
    for count, size in enumerate(sorted(sizes, reverse=True), 1):
        lacking -= size
        if lacking <= 0:
            return count
    return -1


def _first_sets(entries: Sequence[PodEntry], size: int) -> Iterator[tuple[PodEntry, ...]]:
    """Yields sets of pods, at most SETS_PER_ROW; of pods that are alike, the first ones."""
    seen: set[tuple[object, ...]] = set()
    labels = {e.uid: repr(sorted((e.pod.metadata.labels or {}).items())) for e in entries}
    for found in combinations(entries, size):
        key = tuple((entry.shape.serial, labels[entry.uid]) for entry in found)
        if key not in seen:
            seen.add(key)
            yield found
        if len(seen) >= SETS_PER_ROW:
            return
