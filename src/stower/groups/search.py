"""A heuristic search for placements of a tree of pod groups: assigns groups one after another to
topology domains and packs their pods on nodes, in several rounds with different orders.

Finds a placement in most cases where one exists, within milliseconds; finding none proves nothing.
Each round follows one Policy; groups that failed come earlier in the next round. The budget counts
packings of one part (interchangeable pods of a group) into one domain, never time.
"""

from typing import Final, NamedTuple

import numpy as np

from stower.groups.bounds import Bounds, count_together, scope_sums
from stower.groups.problem import NO_CAP, Group, Placement, Problem, collect_placement
from stower.state.arrays import Ints, Rows

ROUNDS_MAX: Final = 12
# Packings in all rounds together; a packing takes some 40 µs.
PACKINGS_MAX: Final = 20_000
# Domains that are tried for one group inside one of its parent's; more in later rounds.
DOMAINS_TRIED: Final = 4
DOMAINS_TRIED_LATER: Final = 8
# Of what counting allows: more is not looked for by construction.
ENOUGH: Final = 0.99


class Progress(NamedTuple):
    """How far a search has come that was given up, for the next one: the rounds and packings that
    were made, and how often each group failed."""

    rounds: int = 0
    packings: int = 0
    weights: tuple[int, ...] = ()


NO_PROGRESS: Final = Progress()


class Policy(NamedTuple):
    """The choices that one round of the search makes."""

    tight_domains: bool
    """Whether domains with the least sufficient room come first, or those with the most."""
    tight_nodes: bool
    """Whether nodes with the least room come first, or those with the most."""
    whole: bool
    """Whether a group first tries all its pods, or only its minimum."""
    optional: bool
    """Whether children beyond the minimum are placed with their siblings, or at the end."""


POLICIES: Final = (
    Policy(True, True, True, True),
    Policy(True, True, False, True),
    Policy(True, True, False, False),
    Policy(False, True, False, True),
    Policy(True, False, True, True),
    Policy(False, False, False, False),
)


class Board:
    """The free amounts during a search, and a log of placements that can be undone."""

    def __init__(self, problem: Problem, free: Ints) -> None:
        self.problem = problem
        self.free = free.copy()
        # Of kinds of which nodes can have so many only, how many more.
        self.caps = {
            k: kind.cap.copy()
            for k, kind in enumerate(problem.kinds)
            if ((kind.cap > 0) & (kind.cap < NO_CAP)).any()
        }
        # Of each rule between pods, int64[kind, domain]: the pods that are there.
        self._there = [
            np.zeros((len(problem.kinds), rule.domain_count), np.int64) for rule in problem.rules
        ]
        self._limited = {kind for rule in problem.rules for kind in rule.limited}
        self.log: list[tuple[int, int, Ints, Ints]] = []  # group, part, nodes, counts
        self.packings = 0
        # The more a resource is asked for, the less it goes to pods that could do without it.
        wanted = np.zeros(len(free), np.float64)
        for group in problem.groups:
            for part in group.parts:
                wanted += problem.kinds[part.kind].demand * float(part.count)
        self.scarce = int(np.argmax(wanted / np.maximum(free.sum(axis=1), 1))) if len(free) else -1

    def put(self, g: int, p: int, nodes: Ints, counts: Ints) -> None:
        """Places `counts` pods of a part on the nodes."""
        self._count(g, p, nodes, counts)
        self.log.append((g, p, nodes, counts))

    def undo(self, mark: int) -> None:
        """Undoes all placements since the log had the length `mark`."""
        while len(self.log) > mark:
            g, p, nodes, counts = self.log.pop()
            self._count(g, p, nodes, -counts)

    def _count(self, g: int, p: int, nodes: Ints, counts: Ints) -> None:
        kind = self.problem.groups[g].parts[p].kind
        self.free[:, nodes] -= self.problem.kinds[kind].demand[:, None] * counts
        if kind in self.caps:
            self.caps[kind][nodes] -= counts
        for rule, there in zip(self.problem.rules, self._there, strict=True):
            if kind in rule.concerned:
                np.add.at(there[kind], rule.codes[nodes], counts)

    def slots(self, kind: int, nodes: Rows) -> Ints:
        """Returns int64[nodes]: how many more pods of the kind fit on each node now."""
        found = self.problem.slots(kind, self.free[:, nodes], nodes, self.caps.get(kind))
        if kind in self._limited:
            for rule, there in zip(self.problem.rules, self._there, strict=True):
                if kind in rule.limited:
                    found = np.minimum(found, rule.room(kind, there)[rule.codes[nodes]])
        return found

    def counts(self) -> dict[tuple[int, int], int]:
        """Returns the number of placed pods by group and part."""
        found: dict[tuple[int, int], int] = {}
        for g, p, _, counts in self.log:
            found[g, p] = found.get((g, p), 0) + int(counts.sum())
        return found

    def pack(self, g: int, p: int, nodes: Rows, wanted: int, tight: bool) -> int:
        """Places up to `wanted` pods of a part on these nodes; returns the number that fit."""
        kind = self.problem.groups[g].parts[p].kind
        if kind not in self._limited:
            return self._pack(g, p, nodes, wanted, tight)
        placed = 0  # each pod may change where the next may be
        while placed < wanted and (more := self._pack(g, p, nodes, wanted - placed, tight, 1)):
            placed += more
        return placed

    def _pack(
        self, g: int, p: int, nodes: Rows, wanted: int, tight: bool, nodes_max: int = NO_CAP
    ) -> int:
        """As `pack`, on so many nodes at most."""
        problem = self.problem
        kind = problem.groups[g].parts[p].kind
        self.packings += 1
        slots = self.slots(kind, nodes)
        able = np.flatnonzero(slots > 0)
        if not len(able):
            return 0
        room = slots[able]
        ranks = room if tight else -room
        if self.scarce >= 0 and not problem.kinds[kind].demand[self.scarce]:
            order = np.lexsort((ranks, self.free[self.scarce, nodes][able]))
        else:
            order = np.argsort(ranks, kind="stable")
        ends = np.cumsum(room[order])
        used = min(int(np.searchsorted(ends, wanted)) + 1, nodes_max)
        order = order[:used]
        counts = room[order]
        placed = int(ends[min(used, len(ends)) - 1])
        if placed > wanted:
            counts[-1] -= placed - wanted
            placed = wanted
        chosen = able[order]
        self.put(g, p, chosen if isinstance(nodes, slice) else nodes[chosen], counts)
        return placed


class Search:
    """All rounds of the search over one problem."""

    def __init__(
        self,
        problem: Problem,
        bounds: Bounds,
        effort: int = 1,
        begun: Progress = NO_PROGRESS,
        packings_max: int = PACKINGS_MAX,
    ) -> None:
        """`effort`: the factor by which budget and width exceed the usual ones; `begun`: where it
        goes on."""
        self.problem = problem
        self.bounds = bounds
        self.effort = effort
        self.board = Board(problem, problem.free)
        self.board.packings = begun.packings
        self._packings_max = packings_max * effort
        # Those that failed come first.
        self.weights = [0] * len(problem.groups)
        if len(begun.weights) == len(problem.groups):
            self.weights = list(begun.weights)
        self.policy = POLICIES[0]
        self.domains_tried = DOMAINS_TRIED
        self.domain_of: dict[int, int] = {}  # of the groups that are placed
        self._round = begun.rounds
        self._best: Placement | None = None
        self._hardness = [self._hard(g) for g in range(len(problem.groups))]
        # Parts of a group, those first that take most of what is scarce.
        self._big_first = [self._by_size(group) for group in problem.groups]

    def run(self, last: int = ROUNDS_MAX) -> Placement | None:
        """Goes on up to this round, times the effort; returns the best placement of all so far,
        None if no round succeeded."""
        enough = ENOUGH * self.bounds.pods_max
        while self._round < last * self.effort:
            if self._best is not None and self._best.count >= enough:
                break
            if self.board.packings > self._packings_max:
                break
            i = self._round
            self._round += 1
            self.policy = POLICIES[i % len(POLICIES)]
            some = DOMAINS_TRIED if i < len(POLICIES) else DOMAINS_TRIED_LATER
            self.domains_tried = some * self.effort
            found = self._run_round()
            if found is not None and (self._best is None or found.count > self._best.count):
                self._best = found
        return self._best

    @property
    def progress(self) -> Progress:
        """How far it has come."""
        return Progress(self._round, self.board.packings, tuple(self.weights))

    def _run_round(self) -> Placement | None:
        self.board.undo(0)
        self.domain_of.clear()
        if not self._place(0, 0) and not self.bounds.met[0]:
            return None
        self._fill()
        return self.placement()

    def placement(self) -> Placement:
        """Returns the placement that the board holds."""
        return collect_placement(
            (g, p, int(node), int(count))
            for g, p, nodes, counts in self.board.log
            for node, count in zip(nodes, counts, strict=True)
        )

    # Minimums

    def _place(self, g: int, around: int) -> bool:
        """Places at least the group's minimum inside this domain of its parent's scope."""
        group = self.problem.groups[g]
        parent = self.problem.groups[group.parent].scope if group.parent >= 0 else 0
        if group.scope == parent:
            return bool(self.bounds.alive[g][around]) and self.place_in(g, around)
        is_inside = self.problem.outer_domains(group.scope, parent) == around
        alive = np.flatnonzero(self.bounds.alive[g] & is_inside)
        for domain in self._order_domains(g, alive)[: self.domains_tried]:
            if self.place_in(g, int(domain)):
                return True
        return False

    def place_in(self, g: int, domain: int) -> bool:
        """Places at least the group's minimum in this domain of its own scope. Places nothing on
        failure."""
        if self.board.packings > self._packings_max:
            return False
        mark = len(self.board.log)
        self.domain_of[g] = domain
        group = self.problem.groups[g]
        if self._groups_in(g, group, domain) if group.children else self._pods_in(g, group, domain):
            return True
        self.board.undo(mark)
        self._clear_placement(g)
        return False

    def _clear_placement(self, g: int) -> None:
        self.domain_of.pop(g, None)
        for child in self.problem.groups[g].children:
            if child in self.domain_of:
                self._clear_placement(child)

    def _order_domains(self, g: int, domains: Ints) -> Ints:
        """Returns the domains that may be sufficient for a group, the best first."""
        if len(domains) < 2 and self.problem.groups[g].children:
            return domains
        group, board = self.problem.groups[g], self.board
        scope = self.problem.scopes[group.scope]
        rooms = scope_sums(board.free, scope)[:, domains]
        room = rooms[board.scarce] if board.scarce >= 0 else np.zeros(len(domains))
        sign = 1 if self.policy.tight_domains else -1
        if group.children:
            able = (rooms >= self.bounds.least[g][:, None]).all(axis=0)
            return domains[able][np.argsort(sign * room[able], kind="stable")]
        fits = np.zeros(len(domains), np.int64)
        for part in group.parts:
            slots = board.slots(part.kind, slice(0, self.problem.node_count))
            fits += np.minimum(scope.sums(slots)[domains], part.count)
        if len(group.parts) > 1:
            # Each may fit alone, but not together.
            fits = np.minimum(fits, count_together(self.problem, group, rooms))
        able = fits >= max(group.minimum, 1 if group.count else 0)
        order = np.lexsort(
            (sign * room[able], -fits[able] if self.policy.whole else fits[able] * 0)
        )
        return domains[able][order]

    def _groups_in(self, g: int, group: Group, domain: int) -> bool:
        children = sorted(group.children, key=lambda c: (-self.weights[c], -self._hardness[c], c))
        if group.minimum < len(children) and not self.policy.optional:
            children.sort(key=lambda c: (-self.weights[c], self._hardness[c], c))
        placed, failed = 0, 0
        for child in children:
            if placed >= group.minimum and not self.policy.optional:
                break
            if self._place(child, domain) or self.bounds.met[child]:
                placed += 1
                continue
            self.weights[child] += 1
            failed += 1
            if len(children) - failed < group.minimum:
                return False
        return True

    def _pods_in(self, g: int, group: Group, domain: int) -> bool:
        nodes = self.problem.scopes[group.scope].members(domain)
        mark = len(self.board.log)
        whole = group.count
        big_first = self._big_first[g]
        tries = (whole, group.minimum) if self.policy.whole else (group.minimum, whole)
        for wanted in dict.fromkeys(tries):
            if self._pack(g, nodes, big_first, wanted) >= group.minimum:
                return True
            self.board.undo(mark)
        if len(group.parts) > 1 and self._pack(g, nodes, big_first[::-1], whole) >= group.minimum:
            return True
        self.board.undo(mark)
        return False

    def _pack(self, g: int, nodes: Rows, parts: list[int], wanted: int) -> int:
        placed = 0
        group = self.problem.groups[g]
        for p in parts:
            most = min(group.parts[p].count, wanted - placed)
            if most > 0:
                placed += self.board.pack(g, p, nodes, most, self.policy.tight_nodes)
        return placed

    # More than the minimum

    def _fill(self) -> None:
        """Places groups that were left out, then single pods, smallest first, in the remaining
        room."""
        groups = self.problem.groups
        for g, group in enumerate(groups):
            if g not in self.domain_of and group.parent in self.domain_of:
                self._place(g, self.domain_of[group.parent])
        counts = self.board.counts()
        left = [
            (int(self._size(part.kind) * 2**20), g, p, part.count - counts.get((g, p), 0))
            for g, group in enumerate(groups)
            if g in self.domain_of
            for p, part in enumerate(group.parts)
        ]
        for _, g, p, count in sorted(left):
            if count > 0:
                nodes = self.problem.scopes[groups[g].scope].members(self.domain_of[g])
                self.board.pack(g, p, nodes, count, True)

    # Sizes

    def _size(self, kind: int) -> float:
        """Returns the pod's largest share of the total free amount of any resource."""
        free = np.maximum(self.problem.free.sum(axis=1), 1)
        return float((self.problem.kinds[kind].demand / free).max(initial=0.0))

    def _by_size(self, group: Group) -> list[int]:
        sizes = [self._size(part.kind) for part in group.parts]
        return sorted(range(len(sizes)), key=lambda p: -sizes[p])

    def _hard(self, g: int) -> float:
        """Returns the group's demand as a share of the free amounts, divided by the number of its
        domains."""
        free = np.maximum(self.problem.free.sum(axis=1), 1)
        share = float((self.bounds.least[g] / free).max(initial=0.0))
        return share / max(int(self.bounds.alive[g].sum()), 1)
