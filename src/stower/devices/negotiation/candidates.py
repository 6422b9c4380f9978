"""Chooses the nodes about which drivers are asked for a pod, and says what that is chosen from:
the rules, the cluster state around one negotiation and the nodes that would do for the pod.

Must not know what is asked for, nor which step follows. Source: KEP-3063; seed 000 (S1, the caps).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from stower.devices.negotiation.claims import Party, PodNegotiation
from stower.model.kinds import PodScheduling, ResourceClaim
from stower.model.kinds.pod_scheduling import NODES_MAX
from stower.model.times import SECOND_NS


class Rules(NamedTuple):
    """How long to wait; and rules that can be left out, to show what they are good for."""

    answer_ns: int = 30 * SECOND_NS  # for the answers of drivers where there are several claims
    selection_ns: int = 30 * SECOND_NS  # for drivers to allocate; doubles with each attempt
    refresh_ns: int = 30 * SECOND_NS  # between rounds, once all nodes were asked about
    turn_ns: int = 10 * SECOND_NS  # for pods of higher rank to go first
    nodes_max: int = NODES_MAX
    without: frozenset[str] = frozenset()


class Surroundings(Protocol):
    """The cluster state that the rules read for one negotiation."""

    now_ns: int

    def is_available_on(self, claim: ResourceClaim, node_name: str) -> bool:
        """Returns whether an allocated claim can be used on the node."""

    def has_common_node(self, claims: Sequence[ResourceClaim]) -> bool:
        """Returns whether all of these allocated claims can be used on one node."""

    def has_node(self, node_name: str) -> bool:
        """Returns whether the node exists."""

    def is_unbound(self, uid: str) -> bool:
        """Returns whether the pod exists and has no node; an unknown pod counts as bound."""

    def preceding_pod(self, negotiation: PodNegotiation, by_rank: bool) -> str:
        """Returns the pod (namespace/name) whose selection comes before this one (S5), "" for none.

        `by_rank`: pods of higher rank also come before this one.
        """

    def first_seen_ns(self, what: str, state: object, is_new: bool = False) -> int:
        """Returns the time at which `what` of this negotiation was first seen with this state.
        `is_new`: it was not in this state before, and is now."""

    def add_failure(self, party: Party, seen: PodScheduling, is_late: bool = False) -> bool:
        """Records that a driver has refused the selected node, or has not allocated there in time.
        Returns whether the node has failed before."""

    def late_count(self, but_ns: int = -1) -> int:
        """Returns how often a selection for the pod was late, without the one of this time; each
        time, `round` has grown."""

    def refused_until_ns(self, node_name: str) -> int:
        """Returns from when on the node may be selected again, 0 where it may be now."""

    def interleave(self, names: Sequence[str]) -> list[str]:
        """Returns the nodes, round robin over their kinds: each prefix has nodes of each kind."""


class RankedNodes(Protocol):
    """The nodes that would do for a pod, the best first."""

    def __bool__(self) -> bool: ...

    def __len__(self) -> int: ...

    def names(self) -> list[str]:
        """All of them."""

    def in_domain(self) -> list[str]:
        """Those in the topology domain that was chosen for the pod's tree; all where it has no
        topology."""

    def select(self, names: Sequence[str]) -> list[str]:
        """Those that are among these."""


def candidates(
    negotiation: PodNegotiation, around: Surroundings, ranked: Sequence[str], nodes_max: int
) -> list[str]:
    """At most `nodes_max`, the best first. At first the best of each sort of node; where there are
    more, a part of all nodes in each later round, in an order that does not depend on what was said
    so far: nobody remembers all who have refused."""
    if len(ranked) <= nodes_max:
        return list(ranked)
    seen = negotiation.scheduling
    order = around.interleave(ranked)
    if seen is not None:
        whole = around.interleave(all_nodes(negotiation, around, ranked))
        start = (asked_rounds(seen, around) - 1) * nodes_max % len(whole)
        left = {*ranked}.difference(seen.spec.potential_nodes or ())
        order = [name for name in (*whole[start:], *whole[:start]) if name in left]
    chosen = {*order[:nodes_max]}
    return [name for name in ranked if name in chosen]


def asked_rounds(seen: PodScheduling, around: Surroundings) -> int:
    """Returns the rounds that were about other nodes than the round before."""
    return max(1, seen.spec.round - around.late_count())


def candidates_of_tree(
    negotiation: PodNegotiation,
    around: Surroundings,
    ranked: RankedNodes,
    rules: Rules,
    node: str,
) -> list[str]:
    """At most `nodes_max`: the node of the placement, then nodes of the last round that nobody has
    refused, as the tree's other pods may need others, and new ones; nodes of the topology domain of
    the placement before others. Where drivers refuse many nodes, the pods of a tree would otherwise
    never have nodes in one domain that all of them know to be suitable."""
    names = ranked.names()
    if len(names) <= rules.nodes_max:
        return names if node in names else [node, *names[: rules.nodes_max - 1]]
    near = ranked.in_domain()
    seen = negotiation.scheduling
    asked = {*((seen.spec.potential_nodes if seen is not None else None) or ())}
    share = new_nodes_of_tree(rules)
    known = [name for name in near if name in asked][: rules.nodes_max - share - 1]
    chosen = dict.fromkeys([node, *known])
    near = [name for name in near if name not in chosen]
    if len(near) > rules.nodes_max - len(chosen):
        near = candidates(negotiation, around, near, share)
    chosen |= dict.fromkeys(near)
    others = [name for name in names if name not in chosen]
    left = rules.nodes_max - len(chosen)
    return [*chosen, *(candidates(negotiation, around, others, left) if left else ())]


def new_nodes_of_tree(rules: Rules) -> int:
    """Returns about how many new nodes a round asks for a pod of a tree: the other half are those
    that nobody has refused."""
    return -(-rules.nodes_max // 2)


def all_nodes(
    negotiation: PodNegotiation, around: Surroundings, ranked: Sequence[str]
) -> list[str]:
    """Those that would do for the scheduler, as far as that is known, by name."""
    seen = negotiation.scheduling
    asked = (seen.spec.potential_nodes if seen is not None else None) or ()
    refused = [name for name in (*asked, *negotiation.refusals_by_node()) if around.has_node(name)]
    return sorted({*ranked, *refused})
