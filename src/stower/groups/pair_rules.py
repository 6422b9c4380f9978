"""Rules between the pods of a tree, in numbers: how many pods of which kinds (problem.py) a domain
of one topology key may have beside others.

Each says how many more pods of a kind a domain takes after those that are there (`room`), and
whether a placement breaks it, in whatever order its pods come (`is_broken`). exact_rules.py has the
same rules as rows of the exact model. `counts` are int64[kind, domain]; domain 0 is that of nodes
which are in none. Must not know nodes or plugins.

Source: kube-scheduler plugins/interpodaffinity and podtopologyspread (filtering).
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from stower.framework.tree_rules import ApartRule, NearRule, TogetherRule, TreeRule, Uids
from stower.state.arrays import Bools, Ints

NO_LIMIT: Final = 2**40

Kinds = frozenset[int]


class Apart(msgspec.Struct, frozen=True, eq=False, tag=True):
    """No pod of `carriers` is in a domain with another one of `matched`."""

    codes: Ints
    """int64[node]"""
    domain_count: int
    carriers: Kinds
    matched: Kinds
    what: str = ""

    @property
    def limited(self) -> Kinds:
        """The kinds that it keeps off domains."""
        return self.carriers | self.matched

    @property
    def concerned(self) -> Kinds:
        """The kinds whose pods count."""
        return self.limited

    def _total_of_excluded(self, kind: int, counts: Ints) -> tuple[Ints, int]:
        """Returns int64[domain]: the pods that may not be with one of the kind; and how many of
        these it may be itself."""
        excluded: set[int] = set()
        if kind in self.carriers:
            excluded |= self.matched
        if kind in self.matched:
            excluded |= self.carriers
        return counts[sorted(excluded)].sum(axis=0), int(kind in excluded)

    def room(self, kind: int, counts: Ints) -> Ints:
        """Returns int64[domain]."""
        total, itself = self._total_of_excluded(kind, counts)
        room = np.where(total > 0, 0, 1 if itself else NO_LIMIT)
        room[0] = NO_LIMIT
        return room

    def is_broken(self, counts: Ints) -> bool:
        """Returns whether any domain has pods that exclude each other."""
        for kind in self.limited:
            total, itself = self._total_of_excluded(kind, counts)
            if ((counts[kind] > 0) & (total > itself))[1:].any():
                return True
        return False


class Near(msgspec.Struct, frozen=True, eq=False, tag=True):
    """Pods of `followers` are in domains that are open, or where one of `matched` came before."""

    codes: Ints
    domain_count: int
    followers: Kinds
    matched: Kinds
    is_open: Bools
    may_begin: bool
    what: str = ""

    @property
    def limited(self) -> Kinds:
        """The kinds that it keeps off domains."""
        return self.followers

    @property
    def concerned(self) -> Kinds:
        """The kinds whose pods count."""
        return self.followers | self.matched

    @property
    def leaders(self) -> Kinds:
        """The kinds that open a domain, and need none that is open."""
        return self.matched - self.followers

    @property
    def beginners(self) -> Kinds:
        """The kinds of which one may come first of all."""
        return self.matched & self.followers if self.may_begin else frozenset()

    def room(self, kind: int, counts: Ints) -> Ints:
        """Returns int64[domain]."""
        there = counts[sorted(self.matched)].sum(axis=0) > 0
        able = self.is_open | there
        if kind in self.beginners and not there.any():
            able = np.ones(self.domain_count, np.bool_)
        room = np.where(able, NO_LIMIT, 0)
        room[0] = 0
        return room

    def is_broken(self, counts: Ints) -> bool:
        """Returns whether any follower is where it has nobody to follow."""
        following = counts[sorted(self.followers)].sum(axis=0) > 0
        led = self.is_open | (counts[sorted(self.leaders)].sum(axis=0) > 0)
        alone = following & ~led
        may_be_first = counts[sorted(self.beginners)].sum(axis=0) > 0
        return bool(alone[0] or (alone & ~may_be_first).any() or alone.sum() > 1)


class Spread(msgspec.Struct, frozen=True, eq=False, tag=True):
    """When a pod of `spreading` comes, its domain has at most `skew` more pods of `matched` than
    the one with the fewest."""

    codes: Ints
    domain_count: int
    spreading: Kinds
    matched: Kinds
    placed: Ints
    domains: Bools
    skew: int
    has_least: bool
    what: str = ""

    @property
    def limited(self) -> Kinds:
        """The kinds that it keeps off domains."""
        return self.spreading

    @property
    def concerned(self) -> Kinds:
        """The kinds whose pods count."""
        return self.spreading | self.matched

    def _least(self, total: Ints) -> int:
        return int(total[self.domains].min()) if self.has_least and self.domains.any() else 0

    def room(self, kind: int, counts: Ints) -> Ints:
        """Returns int64[domain]."""
        total = self.placed + counts[sorted(self.matched)].sum(axis=0)
        left = self.skew + self._least(total) - total
        room = np.maximum(left, 0) if kind in self.matched else np.where(left < 0, 0, NO_LIMIT)
        room[0] = 0
        return room

    def is_broken(self, counts: Ints) -> bool:
        """Returns whether any domain has too many that spread: others may come after them."""
        least = self._least(self.placed + counts[sorted(self.matched)].sum(axis=0))
        alike = counts[sorted(self.spreading & self.matched)].sum(axis=0)
        there = counts[sorted(self.spreading)].sum(axis=0) > 0
        too_many = self.placed + alike > least + self.skew
        return bool(there[0] or (there & too_many).any())


class Together(msgspec.Struct, frozen=True, eq=False, tag=True):
    """All pods of these kinds are in one domain."""

    codes: Ints
    domain_count: int
    limited: Kinds
    what: str = ""

    @property
    def concerned(self) -> Kinds:
        """The kinds whose pods count."""
        return self.limited

    def room(self, kind: int, counts: Ints) -> Ints:
        """Returns int64[domain]."""
        there = counts[sorted(self.limited)].sum(axis=0) > 0
        room = np.where(there | (not there.any()), NO_LIMIT, 0)
        room[0] = 0
        return room

    def is_broken(self, counts: Ints) -> bool:
        """Returns whether they are in several domains, or in none."""
        there = counts[sorted(self.limited)].sum(axis=0) > 0
        return bool(there[0] or there.sum() > 1)


PairRule = Apart | Near | Spread | Together


def never_first(rules: Sequence[PairRule], kind_count: int) -> Kinds:
    """Returns the kinds whose pods follow each other in a circle, in which nobody may be first."""
    near = [rule for rule in rules if isinstance(rule, Near) and not rule.is_open.any()]
    able: set[int] = set()
    left = set(range(kind_count)) if near else set()

    def may_come(kind: int) -> bool:
        bound = [rule for rule in near if kind in rule.followers - rule.beginners]
        return not any(able.isdisjoint(rule.matched) for rule in bound)

    while found := {kind for kind in left if may_come(kind)}:
        able |= found
        left -= found
    return frozenset(left)


def pair_rule(rule: TreeRule, kinds: Sequence[str], rows: Ints) -> PairRule | None:
    """Returns the rule in numbers, None where it forbids no placement. kinds: the uid of one pod of
    each kind; rows: int64[node], the row of each node."""
    codes = rule.codes[rows]
    if isinstance(rule, TogetherRule):
        return Together(codes, int(codes.max(initial=0)) + 1, _those(rule.uids, kinds), rule.what)
    matched = _those(rule.matched, kinds)
    if isinstance(rule, ApartRule):
        carriers, count = _those(rule.carriers, kinds), int(codes.max(initial=0)) + 1
        return Apart(codes, count, carriers, matched, rule.what) if carriers and matched else None
    if isinstance(rule, NearRule):
        count, followers = len(rule.is_open), _those(rule.followers, kinds)
        return Near(codes, count, followers, matched, rule.is_open, rule.may_begin, rule.what)
    count, spreading = len(rule.placed), _those(rule.spreading, kinds)
    return Spread(
        codes, count, spreading, matched, rule.placed, rule.domains, rule.skew, rule.has_least,
        rule.what,
    )  # fmt: skip


def _those(uids: Uids, kinds: Sequence[str]) -> Kinds:
    return frozenset(k for k, uid in enumerate(kinds) if uid in uids)
