"""NegotiatedResources: claims for devices of which only their driver knows where they can be had.

The driver says node by node; the scheduler selects one, and binds the pod when all of its claims
are allocated there. What is said when is in devices/negotiation; here it meets the state.

Source: KEP-3063 (classic dynamic resource allocation), seed 000; upstream's
plugins/dynamicresources of Kubernetes 1.26 to 1.31.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from stower.devices.negotiation.binding import NegotiatedBinding, Turns, full
from stower.devices.negotiation.claims import (
    Party,
    Talk,
    class_names,
    driver_of,
    is_delayed,
    is_leaving,
    is_pending,
    named,
    terms_fault,
)
from stower.devices.negotiation.scheduling import (
    WAITS_FOR_ALLOCATION,
    WAITS_FOR_DEALLOCATION,
    Rules,
    goes_on,
    next_step,
    selects,
)
from stower.devices.negotiation.turns import goes_first
from stower.framework.args import Args, convert_args, invalid, raise_faults
from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.dry_run import DryRun
from stower.framework.negotiation import FeasibleNodes, Wait
from stower.framework.plugin import Features, Plugin, Scope
from stower.framework.reasons import Rejection
from stower.framework.reservation import Reservation
from stower.framework.writes import DeleteObject
from stower.model.kinds import Pod, PodScheduling, ResourceClaim
from stower.model.kinds.resource_claim import RESERVED_FOR_MAX
from stower.model.selectors import NodeSelector
from stower.model.times import SECOND_NS, duration_ns
from stower.plugins.node_affinity import match_term
from stower.plugins.node_allocatable import RejectionCodes
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.devices import claim_refs, distinct_claim_refs
from stower.state.shapes import Shape

DRIVERS_NOT_SIMULATED: Final = "drivers are not simulated"

# A label whose values are shared by so many nodes each tells sorts of nodes apart.
MIN_NODES_PER_VALUE: Final = 4
HASH_MULTIPLIER: Final = 1_000_003


class NegotiatedResourcesArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration.

    `answerTimeout`: for how long the answers of all drivers are waited for; `selectionTimeout`: for
    how long drivers may take to allocate before another node is tried (it doubles with each
    attempt, up to ten minutes); `refreshPeriod`: between rounds of questions once all nodes were
    asked about; `bindingTimeout`: for how long claims may take to be reserved.
    """

    answer_timeout: str = "30s"
    selection_timeout: str = "30s"
    refresh_period: str = "30s"
    binding_timeout: str = "10m0s"


class NegotiatedResources(Plugin):
    """Refuse nodes that a driver, the class or an allocation rules out; agree on one with the
    drivers; bind when all claims are allocated and reserved."""

    name = "NegotiatedResources"
    scope = Scope.PODS
    is_own_claims_only = True
    events_to_register = (
        Change.NODE_ADDED | Change.NODE_LABELS | Change.NODE_DELETED | Change.NEGOTIATION_CHANGED
        | Change.RESOURCE_CLAIM_ADDED | Change.RESOURCE_CLAIM_UPDATED
        | Change.RESOURCE_CLAIM_DELETED | Change.OWN_CLAIMS_MADE | Change.RESOURCE_CLASS_CHANGED
    )  # fmt: skip

    def __init__(
        self,
        rules: Rules,
        binding_timeout_ns: int,
        is_enabled: bool = True,
        has_drivers: bool = True,
    ) -> None:
        """`drivers`: whether there are any. Where not, nobody is asked, and what cannot be known is
        not waited for with promises and timeouts."""
        self._has_drivers = has_drivers
        self.rules = rules
        self._binding_timeout_ns = binding_timeout_ns
        self._is_enabled = is_enabled
        self._rejection_codes = RejectionCodes()
        self._turns = Turns()

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "NegotiatedResources":
        """NegotiatedResourcesArgs."""
        read = convert_args(args, NegotiatedResourcesArgs, path)
        lasts, faults = [], []
        for field, text in (
            ("answerTimeout", read.answer_timeout),
            ("selectionTimeout", read.selection_timeout),
            ("refreshPeriod", read.refresh_period),
            ("bindingTimeout", read.binding_timeout),
        ):
            lasts_ns = duration_ns(text)
            if lasts_ns is None and not text.startswith("-"):
                faults.append(invalid(f"{path}.{field}", text, 'must be a duration such as "10s"'))
            elif lasts_ns is None or lasts_ns < SECOND_NS:
                faults.append(invalid(f"{path}.{field}", text, "must be at least 1 second"))
            lasts.append(lasts_ns or 0)
        raise_faults(faults)
        rules = Rules(lasts[0], lasts[1], lasts[2])
        return cls(rules, lasts[3], features.dynamic_resource_allocation, features.drivers)

    def is_relevant(self, shape: Shape) -> bool:
        """Pods with claims."""
        return self._is_enabled and shape.has_claims

    # What is known

    def negotiation(self, pod: Pod, state: ClusterState) -> Talk:
        """The pod's negotiation, as the API has it."""
        classes, parties, missing = state.negotiations.classes, [], False
        for ref in distinct_claim_refs(pod):
            claim = state.devices.api_claim(f"{pod.metadata.namespace}/{ref.name}")
            missing |= claim is None and ref.name != ""
            driver = driver_of(claim, classes) if claim is not None else ""
            if claim is not None and driver:
                parties.append(Party(ref.entry_name, driver, claim))
        return Talk(pod, tuple(parties), state.negotiations.pod_scheduling(pod.key), missing)

    # PreFilter and Filter

    def pre_filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Rejection | None:
        """Refuse the pod while a claim is to go, is allocated without it, or can take no more."""
        negotiation = self.negotiation(pod, state)
        if not negotiation.parties:
            return None
        leaving = [p for p in negotiation.parties if is_leaving(p.claim)]
        if leaving:
            return Rejection((f"{WAITS_FOR_DEALLOCATION}: {named(leaving)}",))
        for party in negotiation.parties:
            users = party.claim.status.reserved_for or ()
            is_full = len(users) >= RESERVED_FOR_MAX
            if is_full and not party.claim.is_reserved_for(pod.metadata.uid):
                return Rejection((full(party),))
            fault = (
                "" if party.is_allocated else terms_fault(party.claim, state.negotiations.classes)
            )
            if fault:
                return Rejection((fault,))
        immediate = [
            p for p in negotiation.parties if not p.is_allocated and not is_delayed(p.claim)
        ]
        if immediate:
            return Rejection((f"{WAITS_FOR_ALLOCATION}: {named(immediate)}",))
        return None

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """int64[row_limit]: what is in the way of each row."""
        negotiation = self.negotiation(pod, state)
        if not negotiation.parties:
            return None
        limit = state.row_limit
        codes = np.zeros(limit, np.int64)
        for party in negotiation.parties:
            if party.is_allocated:
                why = f"node(s) that {party.key} of {party.driver} does not reach"
                codes[~_available_rows(party.claim, state)] = self._rejection_codes.code_of(
                    Rejection((why,))
                )
        for name, selector in self._suitable_nodes(negotiation, state):
            why = f"node(s) excluded by resource class {name}"
            codes[~_matching_rows(selector, state)] = self._rejection_codes.code_of(
                Rejection((why,))
            )
        for name, party in negotiation.refused_by().items():
            row = state.row_of(name)
            if 0 <= row < limit:
                why = f"node(s) on which {party.driver} cannot allocate {party.key}"
                codes[row] = self._rejection_codes.code_of(Rejection((why,)))
        return codes

    def _suitable_nodes(
        self, negotiation: Talk, state: ClusterState
    ) -> Iterable[tuple[str, NodeSelector]]:
        """What classes say of nodes, for claims that are not allocated yet."""
        for party in negotiation.pending:
            for name in class_names(party.claim):
                found = state.negotiations.classes.get(name)
                if found is not None and found.suitable_nodes is not None:
                    yield name, found.suitable_nodes

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """Nobody's eviction makes a driver change its mind, as far as we know."""
        return self._rejection_codes.rejection(code)

    def dry_runs(self, pod: Pod, shape: Shape, state: ClusterState) -> DryRun | None:  # type: ignore[override]
        """Whoever leaves, negotiated devices stay where they are."""
        return None

    def details(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[str]:
        """Who refuses the node, and where claims are instead."""
        negotiation, name = self.negotiation(pod, state), state.node_names[row]
        for party in negotiation.parties:
            answer = negotiation.answer(party)
            if is_pending(party.claim) and answer and name in (answer.unsuitable_nodes or ()):
                yield f"{party.driver}: unsuitable for {party.key} (round {answer.observed_round})"
            elif party.is_allocated and not _available_rows(party.claim, state)[row]:
                yield f"{party.key} is allocated by {party.driver} on another node"

    # Agreement

    def negotiate(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible_nodes: FeasibleNodes
    ) -> Wait | None:
        """One step of the negotiation; None where the pod may be bound, or has none."""
        negotiation = self.negotiation(pod, state)
        if not negotiation.parties:
            return None
        fault = any(
            not p.is_allocated and terms_fault(p.claim, state.negotiations.classes)
            for p in negotiation.parties
        )
        around = _NegotiationContext(self, negotiation, state)
        ranked = _RankedNodes(feasible_nodes, state)
        state.negotiations.set_pending_selection(pod.key, False)
        step = None if fault else next_step(negotiation, around, ranked, self.rules)
        if step is None:
            return None
        if not self._has_drivers:
            return Wait(
                f"{step.message}; {DRIVERS_NOT_SIMULATED}"
                if ranked and step.message
                else DRIVERS_NOT_SIMULATED
            )
        if selects(step):
            state.negotiations.set_pending_selection(pod.key, True)
        writes = (step.write,) if step.write is not None else ()
        return Wait(
            step.message, writes, step.nominate, step.again_ns, goes_on(step),
            (PodScheduling, step.behind) if step.behind else None,
        )  # fmt: skip

    def reserve(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Reservation | None:
        """All claims reserved, none of them on its way out."""
        negotiation, node_name = self.negotiation(pod, state), state.node_names[row]
        if not negotiation.parties:
            return None

        def reaches(claim: ResourceClaim) -> bool:
            found = state.row_of(node_name)
            return found >= 0 and bool(_available_rows(claim, state)[found])

        return NegotiatedBinding(negotiation, reaches, self._binding_timeout_ns, self._turns)

    def post_bind(self, pod: Pod, state: ClusterState) -> Sequence[DeleteObject]:
        """What was said about the pod is not needed any more (S9)."""
        seen = state.negotiations.pod_scheduling(pod.key)
        if seen is None or seen.owner_uid != pod.metadata.uid or not seen.spec.round:
            return ()
        meta = seen.metadata
        return (DeleteObject(0, PodScheduling, meta.namespace, meta.name, meta.uid),)

    # Hints

    def hint_pod(self, pod: Pod, shape: Shape, event: ClusterEvent) -> bool:
        """Claims of its own, and what is said about it."""
        old, new = event.old_object, event.object
        obj = new or old
        if isinstance(obj, ResourceClaim):
            same = obj.metadata.namespace == pod.metadata.namespace
            if not same or all(ref.name != obj.metadata.name for ref in claim_refs(pod)):
                return False
            return not (isinstance(old, ResourceClaim) and new and _is_unchanged(old, obj))
        if isinstance(obj, PodScheduling):
            # What the scheduler has written itself is no news.
            return new is None or not isinstance(old, PodScheduling) or old.status != obj.status
        return True


class _NegotiationContext:
    """What is around one negotiation: the state, as devices/negotiation asks for it."""

    def __init__(self, plugin: NegotiatedResources, negotiation: Talk, state: ClusterState) -> None:
        self.now_ns = state.now_ns
        self._plugin = plugin
        self._negotiation = negotiation
        self._state = state

    def reaches(self, claim: ResourceClaim, node_name: str) -> bool:
        row = self._state.row_of(node_name)
        return row >= 0 and bool(_available_rows(claim, self._state)[row])

    def meet(self, claims: Sequence[ResourceClaim]) -> bool:
        state = self._state
        found = state.present[state.all_rows].copy()
        for claim in claims:
            found &= _available_rows(claim, state)
        return bool(found.any())

    def is_there(self, node_name: str) -> bool:
        row = self._state.row_of(node_name)
        return row >= 0 and bool(self._state.present[row])

    def is_unbound(self, uid: str) -> bool:
        entry = self._state.pods.get(uid)
        if entry is None:
            return uid in self._state.other_scheduler_pods
        return entry.row < 0 or entry.is_assumed

    def goes_first(self, negotiation: Talk, by_rank: bool) -> str:
        return goes_first(negotiation, self._other_negotiations(negotiation), by_rank)

    def _other_negotiations(self, negotiation: Talk) -> Iterable[tuple[Talk, bool]]:
        """Pods without a node that have failed before, and whether it is their turn. It ends when
        drivers have not allocated for so long: one that is down holds up nobody else's pods."""
        known = self._state.negotiations
        for key in known.retries:
            said = known.pod_scheduling(key)
            entry = self._state.pods.get(said.owner_uid) if said is not None else None
            if entry is None or entry.row >= 0 or key == negotiation.pod.key:
                continue
            other = self._plugin.negotiation(entry.pod, self._state)
            is_leaving = entry.pod.metadata.deletion_timestamp is not None
            if not (is_leaving or other.missing):
                yield other, key in known.pending_selections or self._has_recent_selection(other)

    def _has_recent_selection(self, negotiation: Talk) -> bool:
        """Whether a node is selected, and that is no longer ago than drivers usually need."""
        spec = negotiation.scheduling.spec if negotiation.scheduling is not None else None
        if spec is None or not spec.selected_node:
            return False
        state = (spec.selected_node, spec.attempt)
        since_ns = self._state.negotiations.first_requested_ns(
            negotiation.pod.key, "selected", state, self.now_ns
        )
        return self.now_ns < since_ns + self._plugin.rules.selection_ns

    def since_ns(self, what: str, state: object) -> int:
        known = self._state.negotiations
        return known.first_requested_ns(self._negotiation.pod.key, what, state, self.now_ns)

    def spread(self, names: Sequence[str]) -> list[str]:
        """Round robin over sorts of nodes, those with fewest first, each in the order given."""
        rows = np.array([self._state.row_of(name) for name in names], np.int64)
        known = np.where(rows >= 0, _node_signatures(self._state)[rows], -1)
        _, sort, count = np.unique(known, return_inverse=True, return_counts=True)
        by_sort = np.argsort(sort, kind="stable")
        begins = np.cumsum(count) - count
        turn = np.empty(len(rows), np.int64)
        turn[by_sort] = np.arange(len(rows)) - begins[sort[by_sort]]
        return [names[i] for i in np.lexsort((sort, count[sort], turn)).tolist()]


class _RankedNodes:
    """The nodes that would do, the best first: sorted and named when somebody asks."""

    def __init__(self, found: FeasibleNodes, state: ClusterState) -> None:
        self._found = found
        self._state = state

    def __bool__(self) -> bool:
        return self._found.has_rows

    def __len__(self) -> int:
        return self._found.count

    def names(self) -> list[str]:
        """All of them."""
        names = self._state.node_names
        return [names[row] for row in self._found.ranked_rows()]

    def among(self, names: Sequence[str]) -> list[str]:
        """Those that are among these."""
        state = self._state
        rows = np.array([state.row_of(name) for name in names], np.int64)
        return [state.node_names[row] for row in self._found.ranked_rows(rows[rows >= 0])]


def _node_signatures(state: ClusterState) -> Ints:
    """int64[row_limit]: equal for nodes that are alike in their labels and in what they have, but
    for what is each node's own."""
    rows, limit = state.all_rows, state.row_limit
    found = np.zeros(limit, np.int64)
    for _, column in sorted(state.labels.columns.items()):
        if len(column.code_of) * MIN_NODES_PER_VALUE <= state.node_count:
            found = found * HASH_MULTIPLIER + column.codes[rows]
    for _, amounts in sorted(state.columns.items()):
        found = found * HASH_MULTIPLIER + amounts.allocatable[rows]
    return found


def _is_unchanged(old: ResourceClaim, new: ResourceClaim) -> bool:
    """Whether nothing has changed that this plugin looks at."""
    before, after = old.metadata, new.metadata
    return (
        old.status == new.status
        and (before.uid, before.deletion_timestamp) == (after.uid, after.deletion_timestamp)
        and before.annotations == after.annotations
    )


def _matching_rows(selector: NodeSelector, state: ClusterState) -> Bools:
    """bool[row_limit]: the nodes that a selector means."""
    found = np.zeros(state.row_limit, np.bool_)
    for term in selector.node_selector_terms or ():
        if not term.is_empty:
            found |= match_term(term, state, state.all_rows, state.row_limit)
    return found


def _available_rows(claim: ResourceClaim, state: ClusterState) -> Bools:
    """bool[row_limit]: where an allocated claim can be used."""
    allocation = claim.status.allocation
    if allocation is None or allocation.node_selector is None:
        return np.ones(state.row_limit, np.bool_)
    return _matching_rows(allocation.node_selector, state)
