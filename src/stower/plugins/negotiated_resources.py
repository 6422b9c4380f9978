"""NegotiatedResources: schedules pods with claims that resource drivers allocate (classic DRA).

Only a driver knows where its devices are available. Drivers report unsuitable nodes; the scheduler
selects a node, and binds the pod when all its claims are allocated there. The protocol is in
devices/negotiation; this plugin connects the protocol with the cluster state.

Source: KEP-3063 (classic dynamic resource allocation), seed 000; kube-scheduler
plugins/dynamicresources of Kubernetes 1.26 to 1.31.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from stower.devices.negotiation.binding import NegotiatedBinding, Turns, full_reason
from stower.devices.negotiation.candidates import Rules
from stower.devices.negotiation.claims import (
    Party,
    PodNegotiation,
    class_names,
    driver_of,
    is_delayed,
    is_leaving,
    is_pending,
    party_names,
    terms_fault,
)
from stower.devices.negotiation.known_negotiations import KnownNegotiations
from stower.devices.negotiation.refusals import Refusals
from stower.devices.negotiation.scheduling import next_step
from stower.devices.negotiation.steps import (
    WAITS_FOR_ALLOCATION,
    WAITS_FOR_DEALLOCATION,
    has_next_step,
    is_selection,
)
from stower.devices.negotiation.trees import awaits_more_answers, is_answer
from stower.devices.negotiation.turns import preceding_pod
from stower.framework.args import Args, convert_args, invalid, raise_faults
from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.dry_run import CapacityConstraint, DryRun, TreePods
from stower.framework.negotiation import FeasibleNodes, Wait
from stower.framework.plugin import Features, Plugin, Scope
from stower.framework.reasons import Rejection
from stower.framework.reservation import Reservation
from stower.framework.writes import DeleteObject
from stower.model.kinds import Pod, PodScheduling, ResourceClaim
from stower.model.kinds.resource_claim import RESERVED_FOR_MAX
from stower.model.selectors import NodeSelector
from stower.model.times import SECOND_NS, duration_ns
from stower.plugins.negotiated_trees import (
    assume_devices,
    begin_attempt,
    constraints_of,
    known_of,
    rank_of_tree,
    rows_without_devices,
    stall,
    turn_of,
)
from stower.plugins.node_affinity import match_term
from stower.plugins.node_allocatable import RejectionCodes
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.devices import claim_refs, distinct_claim_refs
from stower.state.shapes import Shape

NOT_SELECTED: Final = "node(s) other than the selected one"
DRIVERS_NOT_SIMULATED: Final = "drivers are not simulated"

# A label distinguishes kinds of nodes if on average at least this many nodes share a value.
MIN_NODES_PER_VALUE: Final = 4
HASH_MULTIPLIER: Final = 1_000_003


class NegotiatedResourcesArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration.

    `answerTimeout`: how long to wait for the answers of all drivers. `selectionTimeout`: how long
    drivers may take to allocate before another node is tried; doubles with each attempt, up to ten
    minutes. `refreshPeriod`: the time between rounds of questions once drivers were asked about all
    nodes. `bindingTimeout`: how long the reservation of the claims may take.
    """

    answer_timeout: str = "30s"
    selection_timeout: str = "30s"
    refresh_period: str = "30s"
    binding_timeout: str = "10m0s"


class NegotiatedResources(Plugin):
    """Rejects nodes that a driver, a class or an allocation excludes; negotiates a node with the
    drivers; delays the binding until all claims are allocated and reserved."""

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
        """`has_drivers`: whether drivers exist. Without drivers (simulation) the pod waits, and the
        plugin writes nothing, nominates no node and sets no timeout."""
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
        """Reads NegotiatedResourcesArgs."""
        parsed = convert_args(args, NegotiatedResourcesArgs, path)
        durations, faults = [], []
        for field, text in (
            ("answerTimeout", parsed.answer_timeout),
            ("selectionTimeout", parsed.selection_timeout),
            ("refreshPeriod", parsed.refresh_period),
            ("bindingTimeout", parsed.binding_timeout),
        ):
            parsed_ns = duration_ns(text)
            if parsed_ns is None and not text.startswith("-"):
                faults.append(invalid(f"{path}.{field}", text, 'must be a duration such as "10s"'))
            elif parsed_ns is None or parsed_ns < SECOND_NS:
                faults.append(invalid(f"{path}.{field}", text, "must be at least 1 second"))
            durations.append(parsed_ns or 0)
        raise_faults(faults)
        rules = Rules(durations[0], durations[1], durations[2])
        return cls(rules, durations[3], features.dynamic_resource_allocation, features.drivers)

    def is_relevant(self, shape: Shape) -> bool:
        """Returns whether the pod has claims."""
        return self._is_enabled and shape.has_claims

    # Negotiation state

    def negotiation(self, pod: Pod, state: ClusterState) -> PodNegotiation:
        """Returns the pod's negotiation as the API has it."""
        known = state.devices.extension(KnownNegotiations)
        found = known.at(state).get(pod.metadata.uid)
        if found is None or found.negotiation.pod is not pod:
            found = known.add(pod, self._read(pod, state), state)
        return found.negotiation

    def _read(self, pod: Pod, state: ClusterState) -> PodNegotiation:
        classes, parties, is_missing = state.negotiations.classes, [], False
        for ref in distinct_claim_refs(pod):
            claim = state.devices.api_claim(f"{pod.metadata.namespace}/{ref.name}")
            is_missing |= claim is None and ref.name != ""
            driver = driver_of(claim, classes) if claim is not None else ""
            if claim is not None and driver:
                parties.append(Party(ref.entry_name, driver, claim))
        return PodNegotiation(
            pod, tuple(parties), state.negotiations.pod_scheduling(pod.key), is_missing,
            rank_of_tree(pod, state) if parties and pod.group_name else None,
        )  # fmt: skip

    # PreFilter and Filter

    def pre_filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Rejection | None:
        """Rejects the pod while a claim is being deallocated, waits for immediate allocation, has
        the maximum number of consumers, or requests classes of different drivers."""
        negotiation = self.negotiation(pod, state)
        if not negotiation.parties:
            return None
        leaving = [p for p in negotiation.parties if is_leaving(p.claim)]
        if leaving:
            return Rejection((f"{WAITS_FOR_DEALLOCATION}: {party_names(leaving)}",))
        for party in negotiation.parties:
            users = party.claim.status.reserved_for or ()
            is_full = len(users) >= RESERVED_FOR_MAX
            if is_full and not party.claim.is_reserved_for(pod.metadata.uid):
                return Rejection((full_reason(party),))
            fault = (
                "" if party.is_allocated else terms_fault(party.claim, state.negotiations.classes)
            )
            if fault:
                return Rejection((fault,))
        immediate = [
            p for p in negotiation.parties if not p.is_allocated and not is_delayed(p.claim)
        ]
        if immediate:
            return Rejection((f"{WAITS_FOR_ALLOCATION}: {party_names(immediate)}",))
        return None

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Rejects nodes that an allocation, a class or a driver excludes: int64[row_limit]."""
        negotiation = self.negotiation(pod, state)
        if not negotiation.parties:
            return None
        known = state.devices.extension(KnownNegotiations).at(state)[pod.metadata.uid]
        if known.refused is None:
            known.refused = [*self._find_refused(negotiation, state)]
        codes = np.zeros(state.row_limit, np.int64)
        for rejection, rows in known.refused:
            codes[rows] = self._rejection_codes.code_of(rejection)
        if negotiation.tree is not None:
            self._reject_for_tree(negotiation, state, codes)
        return codes

    def _find_refused(
        self, negotiation: PodNegotiation, state: ClusterState
    ) -> Iterator[tuple[Rejection, Bools | list[int]]]:
        """Yields rejections with their rows; the last one of a row counts."""
        for party in negotiation.parties:
            if party.is_allocated:
                reason = f"node(s) on which {party.key} of {party.driver} is not available"
                yield Rejection((reason,)), ~_available_rows(party.claim, state)
        for name, selector in self._suitable_nodes(negotiation, state):
            reason = f"node(s) excluded by resource class {name}"
            yield Rejection((reason,)), ~_matching_rows(selector, state)
        refused: dict[str, list[int]] = {}
        for name, party in negotiation.refusals_by_node().items():
            row = state.row_of(name)
            if row >= 0:
                reason = f"node(s) on which {party.driver} cannot allocate {party.key}"
                refused.setdefault(reason, []).append(row)
        yield from ((Rejection((reason,)), rows) for reason, rows in refused.items())

    def _reject_for_tree(
        self, negotiation: PodNegotiation, state: ClusterState, codes: Ints
    ) -> None:
        """Rejects nodes on which the pod's tree can have no more devices, and all but the selected
        node, so that the placement of the tree keeps it."""
        known, said = known_of(negotiation, state), negotiation.scheduling
        if known is None:
            return
        for driver, rows in rows_without_devices(negotiation, known, state):
            codes[rows] = self._device_code(driver)
        selected = said.spec.selected_node if said is not None and negotiation.is_ours else ""
        if selected and negotiation.pending and selected not in negotiation.refusals_by_node():
            row = state.row_of(selected)
            if row >= 0:
                code = codes[row]
                codes[codes == 0] = self._rejection_codes.code_of(Rejection((NOT_SELECTED,)))
                codes[row] = code

    def _device_code(self, driver: str) -> int:
        reason = f"node(s) on which {driver} had no more devices for the group"
        return self._rejection_codes.code_of(Rejection((reason,)))

    def group_constraints(
        self, pod: Pod, shape: Shape, state: ClusterState, tree: TreePods
    ) -> tuple[CapacityConstraint, ...]:
        """Returns the numbers of devices that drivers have shown to the pod's tree."""
        negotiation = self.negotiation(pod, state)
        known = known_of(negotiation, state)
        if known is None or not known.capacity:
            return ()
        return constraints_of(negotiation, known, state, self._device_code("a driver"))

    def _suitable_nodes(
        self, negotiation: PodNegotiation, state: ClusterState
    ) -> Iterable[tuple[str, NodeSelector]]:
        """Yields the node selectors of the classes of unallocated claims, with the class names."""
        for party in negotiation.pending:
            for name in class_names(party.claim):
                resource_class = state.negotiations.classes.get(name)
                if resource_class is not None and resource_class.suitable_nodes is not None:
                    yield name, resource_class.suitable_nodes

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """Returns the rejection. No eviction is known to change a driver's answer."""
        return self._rejection_codes.rejection(code)

    def dry_runs(self, pod: Pod, shape: Shape, state: ClusterState) -> DryRun | None:  # type: ignore[override]
        """Returns None: evictions do not move negotiated devices."""
        return None

    def details(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[str]:
        """Yields the drivers that call the node unsuitable, and claims allocated elsewhere."""
        negotiation, name = self.negotiation(pod, state), state.node_names[row]
        for party in negotiation.parties:
            answer = negotiation.answer(party)
            if is_pending(party.claim) and answer and name in (answer.unsuitable_nodes or ()):
                yield f"{party.driver}: unsuitable for {party.key} (round {answer.observed_round})"
            elif party.is_allocated and not _available_rows(party.claim, state)[row]:
                yield f"{party.key} is allocated by {party.driver} on another node"

    # Negotiation

    def begin_tree_attempt(
        self, pods: Sequence[Pod], state: ClusterState, can_be_placed: bool
    ) -> bool:
        """Updates what is known about the devices that the pods of a tree can have. Returns whether
        the pods are giving back devices."""
        negotiations = [self.negotiation(pod, state) for pod in pods]
        return begin_attempt([n for n in negotiations if n.parties], state, can_be_placed)

    def asked_rows(self, pod: Pod, state: ClusterState) -> Bools | None:
        """Returns the nodes of the last round of questions, and those that were refused before."""
        negotiation = self.negotiation(pod, state)
        seen = negotiation.scheduling
        if seen is None or not negotiation.is_ours or not negotiation.pending:
            return None
        found = np.zeros(state.row_limit, np.bool_)
        for name in (*(seen.spec.potential_nodes or ()), *negotiation.refusals_by_node()):
            row = state.row_of(name)
            if 0 <= row < state.row_limit:
                found[row] = True
        return found

    def awaits_more(self, pods: Sequence[Pod], state: ClusterState, event: ClusterEvent) -> bool:
        """Returns whether drivers still have to answer about some of the pods, after an answer
        about one of them. A node that is refused after it was selected, and a claim that goes away,
        have to be dealt with at once."""
        answer = event.object
        return is_answer(event.old_object, answer) and awaits_more_answers(
            [self.negotiation(pod, state) for pod in pods], answer
        )

    def negotiate(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible_nodes: FeasibleNodes
    ) -> Wait | None:
        """Takes one step of the negotiation; returns None if the pod may be bound or has none."""
        negotiation = self.negotiation(pod, state)
        if not negotiation.parties:
            return None
        has_fault = any(
            not p.is_allocated and terms_fault(p.claim, state.negotiations.classes)
            for p in negotiation.parties
        )
        context = _NegotiationContext(self, negotiation, state)
        ranked = _RankedNodes(feasible_nodes, state)
        state.negotiations.set_pending_selection(pod.key, False)
        turn = turn_of(negotiation, feasible_nodes, state)
        step = None if has_fault else next_step(negotiation, context, ranked, self.rules, turn)
        if step is None:
            return None
        if not self._has_drivers:
            return Wait(
                f"{step.message}; {DRIVERS_NOT_SIMULATED}"
                if ranked and step.message
                else DRIVERS_NOT_SIMULATED
            )
        if is_selection(step):
            state.negotiations.set_pending_selection(pod.key, True)
            known = known_of(negotiation, state) if turn is not None else None
            if known is not None and not state.journal.is_in_trial:
                known.begin(negotiation)
        writes = (step.write,) if step.write is not None else ()
        if step.is_stalled and turn is not None:
            stall(negotiation, state)
        return Wait(
            step.message, writes, step.nominate, step.again_ns, has_next_step(step),
            (PodScheduling, step.behind) if step.behind else None, step.is_ready, step.is_stalled,
            (negotiation.round, step.message.partition(":")[0]),
        )  # fmt: skip

    def reserve(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Reservation | None:
        """Reserves all claims for the pod, if none of them is being deallocated."""
        negotiation, node_name = self.negotiation(pod, state), state.node_names[row]
        if not negotiation.parties:
            return None

        def is_available(claim: ResourceClaim) -> bool:
            current_row = state.row_of(node_name)
            return current_row >= 0 and bool(_available_rows(claim, state)[current_row])

        def assume(current: ClusterState) -> None:
            assume_devices(negotiation, node_name, current)

        return NegotiatedBinding(
            negotiation, is_available, self._binding_timeout_ns, self._turns, assume
        )

    def post_bind(self, pod: Pod, state: ClusterState) -> Sequence[DeleteObject]:
        """Deletes the pod's PodScheduling, which is no longer needed (S9)."""
        record = state.negotiations.pod_scheduling(pod.key)
        if record is None or record.owner_uid != pod.metadata.uid or not record.spec.round:
            return ()
        meta = record.metadata
        return (DeleteObject(0, PodScheduling, meta.namespace, meta.name, meta.uid),)

    # Hints

    def hint_pod(self, pod: Pod, shape: Shape, event: ClusterEvent) -> bool:
        """Requeues the pod for changes of its claims, and of drivers' answers about it."""
        old, new = event.old_object, event.object
        obj = new or old
        if isinstance(obj, ResourceClaim):
            is_in_namespace = obj.metadata.namespace == pod.metadata.namespace
            if not is_in_namespace or all(ref.name != obj.metadata.name for ref in claim_refs(pod)):
                # A pod of a tree may get devices that others have given back.
                return bool(pod.group_name) and _has_freed_devices(old, new)
            return not (isinstance(old, ResourceClaim) and new and _is_unchanged(old, obj))
        if isinstance(obj, PodScheduling):
            # The scheduler itself writes the spec; only drivers write the status.
            return new is None or not isinstance(old, PodScheduling) or old.status != obj.status
        return True


class _NegotiationContext:
    """The cluster state, as devices/negotiation reads it for one negotiation (Surroundings)."""

    def __init__(
        self, plugin: NegotiatedResources, negotiation: PodNegotiation, state: ClusterState
    ) -> None:
        self.now_ns = state.now_ns
        self._plugin = plugin
        self._negotiation = negotiation
        self._state = state

    def is_available_on(self, claim: ResourceClaim, node_name: str) -> bool:
        """See Surroundings."""
        row = self._state.row_of(node_name)
        return row >= 0 and bool(_available_rows(claim, self._state)[row])

    def has_common_node(self, claims: Sequence[ResourceClaim]) -> bool:
        """See Surroundings."""
        state = self._state
        is_available = state.present[state.all_rows].copy()
        for claim in claims:
            is_available &= _available_rows(claim, state)
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
        for key in store.retries:
            record = store.pod_scheduling(key)
            entry = self._state.pods.get(record.owner_uid) if record is not None else None
            if entry is None or entry.row >= 0 or key == negotiation.pod.key:
                continue
            other = self._plugin.negotiation(entry.pod, self._state)
            is_leaving = entry.pod.metadata.deletion_timestamp is not None
            if not (is_leaving or other.missing):
                yield other, key in store.pending_selections or self._has_recent_selection(other)

    def _has_recent_selection(self, negotiation: PodNegotiation) -> bool:
        """Returns whether a node is selected, and no longer than drivers usually need."""
        spec = negotiation.scheduling.spec if negotiation.scheduling is not None else None
        if spec is None or not spec.selected_node:
            return False
        selection = (spec.selected_node, spec.attempt)
        since_ns = self._state.negotiations.first_requested_ns(
            negotiation.pod.key, "selected", selection, self.now_ns
        )
        return self.now_ns < since_ns + self._plugin.rules.selection_ns

    def first_seen_ns(self, what: str, state: object, is_new: bool = False) -> int:
        """See Surroundings."""
        store = self._state.negotiations
        key = self._negotiation.pod.key
        return store.first_requested_ns(key, what, state, self.now_ns, is_new)

    def add_refusal(self, party: Party, seen: PodScheduling) -> None:
        """See Surroundings."""
        state, pod = self._state, self._negotiation.pod
        if state.journal.is_in_trial:
            return
        own = {each.key for each in self._negotiation.parties}
        order, classes = state.devices.allocation_order, state.negotiations.classes
        places = (
            order.place(claim.metadata.key)
            for claim in state.devices.api_claims()
            if claim.metadata.key not in own and driver_of(claim, classes) == party.driver
        )
        node, attempt = seen.spec.selected_node, seen.spec.attempt
        state.negotiations.extension(Refusals).add(
            pod.metadata.uid, node, self.first_seen_ns("selected", (node, attempt)), self.now_ns,
            max(places, default=0), order.newest,
        )  # fmt: skip

    def refused_until_ns(self, node_name: str) -> int:
        """See Surroundings."""
        refusals = self._state.negotiations.extension(Refusals)
        return refusals.until_ns(self._negotiation.pod.metadata.uid, node_name)

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


class _RankedNodes:
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


def _has_freed_devices(old: object, new: object) -> bool:
    """Returns whether an allocated claim is deleted, or is not allocated any more."""
    if not isinstance(old, ResourceClaim) or old.status.allocation is None:
        return False
    return not isinstance(new, ResourceClaim) or new.status.allocation is None


def _is_unchanged(old: ResourceClaim, new: ResourceClaim) -> bool:
    """Returns whether nothing that this plugin reads has changed."""
    old_meta, new_meta = old.metadata, new.metadata
    return (
        old.status == new.status
        and (old_meta.uid, old_meta.deletion_timestamp)
        == (new_meta.uid, new_meta.deletion_timestamp)
        and old_meta.annotations == new_meta.annotations
    )


def _matching_rows(selector: NodeSelector, state: ClusterState) -> Bools:
    """Returns bool[row_limit]: nodes that match the selector."""
    result = np.zeros(state.row_limit, np.bool_)
    for term in selector.node_selector_terms or ():
        if not term.is_empty:
            result |= match_term(term, state, state.all_rows, state.row_limit)
    return result


def _available_rows(claim: ResourceClaim, state: ClusterState) -> Bools:
    """Returns bool[row_limit]: nodes on which an allocated claim can be used."""
    allocation = claim.status.allocation
    if allocation is None or allocation.node_selector is None:
        return np.ones(state.row_limit, np.bool_)
    return _matching_rows(allocation.node_selector, state)
