"""The cluster state as the rules of a negotiation read it (devices/negotiation)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from stower.devices.negotiation.candidates import Rules
from stower.devices.negotiation.claims import Party, PodNegotiation, finalizer_of
from stower.devices.negotiation.refusals import Refusals
from stower.devices.negotiation.turns import preceding_pod
from stower.framework.negotiation import FeasibleNodes
from stower.model.kinds import Pod, PodScheduling, ResourceClaim
from stower.model.selectors import NodeSelector
from stower.plugins.node_affinity import match_term
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState

# A label distinguishes kinds of nodes if on average at least this many nodes share a value.
MIN_NODES_PER_VALUE: Final = 4
HASH_MULTIPLIER: Final = 1_000_003


class NegotiationSurroundings:
    """The cluster state, as devices/negotiation reads it for one negotiation (Surroundings)."""

    def __init__(
        self,
        negotiation: PodNegotiation,
        state: ClusterState,
        rules: Rules,
        read: Callable[[Pod, ClusterState], PodNegotiation],
    ) -> None:
        """`read`: reads the negotiation of any pod."""
        self.now_ns = state.now_ns
        self._rules = rules
        self._read = read
        self._negotiation = negotiation
        self._state = state

    def is_available_on(self, claim: ResourceClaim, node_name: str) -> bool:
        """See Surroundings."""
        row = self._state.row_of(node_name)
        return row >= 0 and bool(available_rows(claim, self._state)[row])

    def has_common_node(self, claims: Sequence[ResourceClaim]) -> bool:
        """See Surroundings."""
        state = self._state
        is_available = state.present[state.all_rows].copy()
        for claim in claims:
            is_available &= available_rows(claim, state)
        return bool(is_available.any())

    def has_node(self, node_name: str) -> bool:
        """See Surroundings."""
        row = self._state.row_of(node_name)
        return row >= 0 and bool(self._state.present[row])

    def is_unbound(self, uid: str) -> bool:
        """See Surroundings."""
        entry = self._state.pods.get(uid)
        if entry is None:
            return uid in self._state.other_scheduler_pods
        return entry.row < 0 or entry.is_assumed

    def preceding_pod(self, negotiation: PodNegotiation, by_rank: bool) -> str:
        """See Surroundings."""
        return preceding_pod(negotiation, self._other_negotiations(negotiation), by_rank)

    def _other_negotiations(
        self, negotiation: PodNegotiation
    ) -> Iterable[tuple[PodNegotiation, bool]]:
        """Yields pods without a node that have failed before, and whether it is their turn. A turn
        lasts as long as drivers usually need: a driver that is down does not block others' pods."""
        store = self._state.negotiations
        refusals = store.extension(Refusals)
        for key in store.retries:
            record = store.pod_scheduling(key)
            entry = self._state.pods.get(record.owner_uid) if record is not None else None
            if entry is None or entry.row >= 0 or key == negotiation.pod.key:
                continue
            other = self._read(entry.pod, self._state)
            is_leaving = entry.pod.metadata.deletion_timestamp is not None
            if not (is_leaving or other.missing):
                # One that nobody allocated for in time takes no turns: others can go on meanwhile.
                is_late = refusals.late_count(entry.uid) > 0
                is_selected = key in store.pending_selections or self._has_recent_selection(other)
                yield other, is_selected and not is_late

    def _has_recent_selection(self, negotiation: PodNegotiation) -> bool:
        """Returns whether a node is selected, and no longer than drivers usually need."""
        spec = negotiation.scheduling.spec if negotiation.scheduling is not None else None
        if spec is None or not spec.selected_node:
            return False
        selection = (spec.selected_node, spec.attempt)
        since_ns = self._state.negotiations.first_requested_ns(
            negotiation.pod.key, "selected", selection, self.now_ns
        )
        return self.now_ns < since_ns + self._rules.selection_ns

    def first_seen_ns(self, what: str, state: object, is_new: bool = False) -> int:
        """See Surroundings."""
        store = self._state.negotiations
        key = self._negotiation.pod.key
        return store.first_requested_ns(key, what, state, self.now_ns, is_new)

    def add_failure(self, party: Party, seen: PodScheduling, is_late: bool = False) -> bool:
        """See Surroundings."""
        state, uid = self._state, self._negotiation.pod.metadata.uid
        if state.journal.is_in_trial:
            return False
        node, attempt = seen.spec.selected_node, seen.spec.attempt
        return state.negotiations.extension(Refusals).add(
            uid, node, party.driver, self.first_seen_ns("selected", (node, attempt)), self.now_ns,
            self._last_change(party.driver), is_late,
        )  # fmt: skip

    def _last_change(self, driver: str) -> int:
        return self._state.devices.allocation_order.last_change(finalizer_of(driver))

    def refused_until_ns(self, node_name: str) -> int:
        """See Surroundings."""
        refusals = self._state.negotiations.extension(Refusals)
        found = refusals.get(self._negotiation.pod.metadata.uid, node_name)
        if found is None or self._last_change(found.driver) != found.change:
            return 0
        return found.until_ns

    def late_count(self, but_ns: int = -1) -> int:
        """See Surroundings."""
        refusals = self._state.negotiations.extension(Refusals)
        return refusals.late_count(self._negotiation.pod.metadata.uid, but_ns)

    def interleave(self, names: Sequence[str]) -> list[str]:
        """Returns the nodes round robin over their kinds: the kind with the fewest nodes first, and
        within a kind in the given order."""
        rows = np.array([self._state.row_of(name) for name in names], np.int64)
        signatures = np.where(rows >= 0, _node_signatures(self._state)[rows], -1)
        _, kind, count = np.unique(signatures, return_inverse=True, return_counts=True)
        by_kind = np.argsort(kind, kind="stable")
        starts = np.cumsum(count) - count
        round_number = np.empty(len(rows), np.int64)
        round_number[by_kind] = np.arange(len(rows)) - starts[kind[by_kind]]
        return [names[i] for i in np.lexsort((kind, count[kind], round_number)).tolist()]


class RankedFeasibleNodes:
    """The feasible nodes, best first. They are sorted and named only on demand."""

    def __init__(self, feasible: FeasibleNodes, state: ClusterState) -> None:
        self._feasible = feasible
        self._state = state

    def __bool__(self) -> bool:
        return self._feasible.has_rows

    def __len__(self) -> int:
        return self._feasible.count

    def names(self) -> list[str]:
        """Returns the names of all feasible nodes, best first."""
        names = self._state.node_names
        return [names[row] for row in self._feasible.ranked_rows()]

    def in_domain(self) -> list[str]:
        """Returns the feasible nodes in the topology domain of the pod's tree, best first; all
        where the tree has no topology."""
        rows = self._feasible.domain_rows()
        if rows is None:
            return self.names()
        names = self._state.node_names
        return [names[row] for row in self._feasible.ranked_rows(np.flatnonzero(rows))]

    def select(self, names: Sequence[str]) -> list[str]:
        """Returns the feasible nodes among these, best first."""
        state = self._state
        rows = np.array([state.row_of(name) for name in names], np.int64)
        return [state.node_names[row] for row in self._feasible.ranked_rows(rows[rows >= 0])]


def available_rows(claim: ResourceClaim, state: ClusterState) -> Bools:
    """Returns bool[row_limit]: nodes on which an allocated claim can be used."""
    allocation = claim.status.allocation
    if allocation is None or allocation.node_selector is None:
        return np.ones(state.row_limit, np.bool_)
    return matching_rows(allocation.node_selector, state)


def matching_rows(selector: NodeSelector, state: ClusterState) -> Bools:
    """Returns bool[row_limit]: nodes that match the selector."""
    result = np.zeros(state.row_limit, np.bool_)
    for term in selector.node_selector_terms or ():
        if not term.is_empty:
            result |= match_term(term, state, state.all_rows, state.row_limit)
    return result


def _node_signatures(state: ClusterState) -> Ints:
    """Returns int64[row_limit]: equal for nodes with the same labels and allocatable amounts,
    except for labels that few nodes share."""
    rows, limit = state.all_rows, state.row_limit
    signatures = np.zeros(limit, np.int64)
    for _, column in sorted(state.labels.columns.items()):
        if len(column.code_of) * MIN_NODES_PER_VALUE <= state.node_count:
            signatures = signatures * HASH_MULTIPLIER + column.codes[rows]
    for _, amounts in sorted(state.columns.items()):
        signatures = signatures * HASH_MULTIPLIER + amounts.allocatable[rows]
    return signatures
