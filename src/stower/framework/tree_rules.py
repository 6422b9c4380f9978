"""Rules between pods that a plugin enforces, as conditions on where all pods of a pod group tree
are: on how many of them each domain of a topology key has.

A plugin says which pods a rule is about, by uid; the search (groups/pair_rules.py) counts these. A
rule may allow more than the plugin does, which is asked about each placement, but (all but
TogetherRule) never less.

Every rule has `codes`: int64[row_limit], the domain of each row (index of a node in the state's
arrays), 0 for rows in none; and `what`: its name in messages.
"""

from typing import NamedTuple

from stower.state.arrays import Bools, Ints

Uids = frozenset[str]


class ApartRule(NamedTuple):
    """No domain has a pod of `carriers` and another one of `matched`."""

    codes: Ints
    carriers: Uids
    matched: Uids
    what: str


class NearRule(NamedTuple):
    """A pod of `followers` is in a domain with another one of `matched`, and came later.

    is_open: bool[domain], where a placed pod matches; may_begin: whether one pod of both sorts may
    be where none is yet, as the first of all."""

    codes: Ints
    followers: Uids
    matched: Uids
    is_open: Bools
    may_begin: bool
    what: str


class SpreadRule(NamedTuple):
    """When a pod of `spreading` comes, its domain has at most `skew` more pods that match than the
    one that has the fewest.

    matched: those of the tree that match; placed: int64[domain], how many others do; domains:
    bool[domain], where the fewest are looked for; has_least: else the fewest are none (minDomains).
    """

    codes: Ints
    spreading: Uids
    matched: Uids
    placed: Ints
    domains: Bools
    skew: int
    has_least: bool
    what: str


class TogetherRule(NamedTuple):
    """All pods of `uids` are in one domain. A guess at what the plugin will choose: it may forbid
    placements that the plugin would accept."""

    codes: Ints
    uids: Uids
    what: str


TreeRule = ApartRule | NearRule | SpreadRule | TogetherRule
