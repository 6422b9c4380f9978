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
from stower.devices.negotiation.scheduling import next_step
from stower.devices.negotiation.steps import (
    WAITS_FOR_ALLOCATION,
    WAITS_FOR_DEALLOCATION,
    has_next_step,
    is_selection,
)
from stower.devices.negotiation.trees import awaits_more_answers, is_answer
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
from stower.plugins.negotiation_surroundings import (
    NegotiationSurroundings,
    RankedFeasibleNodes,
    available_rows,
    matching_rows,
)
from stower.plugins.node_allocatable import RejectionCodes
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.devices import claim_refs, distinct_claim_refs
from stower.state.shapes import Shape

NOT_SELECTED: Final = "node(s) other than the selected one"
DRIVERS_NOT_SIMULATED: Final = "drivers are not simulated"
HOLDERS_MAX: Final = 8  # claims, and pods of a claim, that are named


class NegotiatedResourcesArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration.

    `answerTimeout`: how long to wait for the answers of all drivers. `selectionTimeout`: how long
    drivers may take to allocate before another node is tried; doubles each time that the pod has
    waited for so long in vain, up to ten minutes. `refreshPeriod`: the time between rounds of
    questions once drivers were asked about all nodes. `bindingTimeout`: how long the reservation of
    the claims may take.
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
                yield Rejection((reason,)), ~available_rows(party.claim, state)
        for name, selector in self._suitable_nodes(negotiation, state):
            reason = f"node(s) excluded by resource class {name}"
            yield Rejection((reason,)), ~matching_rows(selector, state)
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
                yield from _holders(party, state, row)
            elif party.is_allocated and not available_rows(party.claim, state)[row]:
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
        context = NegotiationSurroundings(negotiation, state, self.rules, self.negotiation)
        ranked = RankedFeasibleNodes(feasible_nodes, state)
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
        if turn is not None and (step.is_stalled or step.is_late):
            stall(negotiation, state, step.is_late)
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
            return current_row >= 0 and bool(available_rows(claim, state)[current_row])

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


def _holders(party: Party, state: ClusterState, row: int) -> Iterator[str]:
    """Yields one line of who has devices of the claim's driver that the node can use, if any."""
    found = []
    for claim in state.devices.api_claims():
        key, users = claim.metadata.key, claim.status.reserved_for or ()
        if key == party.key or claim.status.allocation is None:
            continue
        if driver_of(claim, state.negotiations.classes) != party.driver:
            continue
        if available_rows(claim, state)[row]:
            names = ", ".join(user.name for user in users[:HOLDERS_MAX]) or "no pod"
            found.append(f"{key} for {names}")
    if found:
        more = f" and {len(found) - HOLDERS_MAX} more" if len(found) > HOLDERS_MAX else ""
        yield f"  its devices are allocated to {'; '.join(sorted(found)[:HOLDERS_MAX])}{more}"


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
