"""DynamicResources: allocates the devices that a pod's ResourceClaims request, all of them or none.

Source: kube-scheduler plugins/dynamicresources, Kubernetes 1.36; KEP-4381 and the KEPs that extend
it. Differs from kube-scheduler: the search for devices is complete, and limited by steps instead of
time; pods of lower priority are preempted for their devices.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from stower.devices.allocator import StepsExhaustedError
from stower.devices.avoided_devices import AvoidedDevices
from stower.devices.binding_conditions import awaited_text
from stower.devices.claim_sharing import ClaimSharing
from stower.devices.fit_cache import FITS, GAVE_UP, INVALID_POOLS, NO_DEVICES, FitCache, Rules
from stower.devices.inventory import Inventory
from stower.devices.negotiation.claims import driver_of
from stower.devices.random_order import with_random_order
from stower.devices.requests import AllocationError
from stower.devices.results import allocation_of
from stower.devices.shortages import Shortage
from stower.framework.cluster_events import RESOURCE_CLAIM_CHANGES, Change, ClusterEvent
from stower.framework.dry_run import CapacityConstraint, DryRun, TreePods, TrialRun
from stower.framework.fixes import Fix
from stower.framework.plugin import MAX_NODE_SCORE, Features, Plugin, Scope
from stower.framework.plugin_guard import PluginError
from stower.framework.post_filter import PostFilterResult, PreemptionEvaluator
from stower.framework.reasons import Rejection
from stower.framework.reservation import CompositeReservation, Reservation
from stower.framework.tree_rules import TreeRule
from stower.framework.writes import patch_of
from stower.model.kinds import Pod, PodGroup, ResourceClaim
from stower.model.kinds.resource_claim import (
    FIRST_AVAILABLE_MAX,
    AllocationResult,
    ConsumerReference,
)
from stower.model.resources import Claimed
from stower.model.times import SECOND_NS
from stower.plugins.claim_binding import ClaimBinding, ClaimDecision
from stower.plugins.claim_consumers import claim_consumer, owner_fault
from stower.plugins.claim_faults import claim_fault, filter_error
from stower.plugins.claim_hints import is_schedulable_after_change
from stower.plugins.claim_reach import available_rows, avoid_unready
from stower.plugins.claim_shortages import eviction_fixes, request_shortages
from stower.plugins.claims_together import ClaimsTogether
from stower.plugins.device_amounts import device_amounts
from stower.plugins.dynamic_resources_args import read_args
from stower.plugins.extended_binding import ExtendedClaimBinding, deletion_writes
from stower.plugins.extended_claims import (
    RequestMappings,
    device_backed_resources,
    extended_codes,
    has_device_backed_resources,
    make_extended_claim,
    rows_missing_resource,
)
from stower.plugins.fragmentation import Fragmentation
from stower.plugins.group_claims import unreserve_group_claim
from stower.plugins.negotiated_resources import NegotiatedResources
from stower.plugins.node_affinity import NodeAffinity, required_rows
from stower.plugins.node_allocatable import (
    EXTENDED_CLAIM_NAME,
    FIRST_CODE,
    NodeAllocatableReservation,
    RejectionCodes,
    node_allocatable_claims,
    node_allocatable_rejection,
    shared_claim_rejections,
)
from stower.plugins.share_ids import share_ids
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.devices import claim_refs, distinct_claim_refs, may_use_devices
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape

# Codes beyond those of devices/fit_cache.py. A row has one code: MISSING_RESOURCE overrides the
# codes of the cache, and these override NOT_AVAILABLE.
NOT_AVAILABLE: Final = 4
STALE_EXTENDED_CLAIM: Final = 5
MISSING_RESOURCE: Final = 6
REASONS: Final = {
    NO_DEVICES: "cannot allocate all claims",
    INVALID_POOLS: "invalid resource pools were encountered",
    GAVE_UP: "gave up allocating devices: search budget exhausted",
    NOT_AVAILABLE: "resourceclaim not available on the node",
    STALE_EXTENDED_CLAIM: "cannot schedule extended resource claim",
    MISSING_RESOURCE: "cannot fit resource",
}

_ExtendedAllocation = tuple[ResourceClaim, AllocationResult, RequestMappings]


class DynamicResources(Plugin):
    """Rejects nodes without devices for the pod's claims; allocates them on the chosen node."""

    name = "DynamicResources"
    scope = Scope.PODS
    is_own_claims_only = True
    events_to_register = (
        Change.NODE_ADDED | Change.NODE_LABELS | Change.NODE_ALLOCATABLE
        | RESOURCE_CLAIM_CHANGES | Change.DEVICE_CLASS_CHANGED | Change.DEVICES_CHANGED
        | Change.OWN_CLAIMS_MADE | Change.POD_GROUP_CHANGED | Change.PLACED_POD_DELETED
    )  # fmt: skip
    changes_of_one_row = Change.RESOURCE_CLAIM_UPDATED | Change.RESOURCE_CLAIM_DELETED

    def __init__(
        self,
        rules: Rules,
        binding_timeout_ns: int = 600 * SECOND_NS,
        is_enabled: bool = True,
        has_device_order: bool = True,
        fragmentation: Fragmentation | None = None,
        has_negotiated_resources: bool = False,
        has_node_affinity: bool = False,
    ) -> None:
        """`has_device_order`: the profile sets `deviceOrder`. `has_negotiated_resources`: the
        profile enables NegotiatedResources, for claims that drivers allocate.
        `has_node_affinity`: NodeAffinity refuses nodes by itself."""
        self._has_node_affinity = has_node_affinity
        self._has_negotiated_resources = has_negotiated_resources
        self._rules = rules
        self._has_device_order = has_device_order
        self._fragmentation = fragmentation
        self._binding_timeout_ns = binding_timeout_ns
        self._is_enabled = is_enabled
        self._rejection_codes = RejectionCodes()
        if rules.gates.node_allocatable:
            self.events_to_register |= Change.PLACED_POD_SCALED_DOWN
        if has_negotiated_resources:
            # A ResourceClass may assign a claim to a driver, so that this plugin skips the claim.
            self.events_to_register |= Change.RESOURCE_CLASS_CHANGED

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "DynamicResources":
        """Reads DynamicResourcesArgs: filterTimeout, bindingTimeout and deviceOrder."""
        rules, timeout_ns, has_device_order = read_args(args, path, features)
        return cls(rules, timeout_ns, features.dynamic_resource_allocation, has_device_order)

    def with_profile_plugins(
        self, plugins: Mapping[str, Plugin], filters: frozenset[str]
    ) -> "DynamicResources":
        """Returns a copy for the profile: Fragmentation orders devices unless `deviceOrder` is set,
        and NegotiatedResources handles the claims of drivers."""
        entry = plugins.get(Fragmentation.name)
        order = entry if isinstance(entry, Fragmentation) and not self._has_device_order else None
        has_drivers, timeout_ns = NegotiatedResources.name in plugins, self._binding_timeout_ns
        return type(self)(
            self._rules, timeout_ns, self._is_enabled, self._has_device_order, order, has_drivers,
            NodeAffinity.name in filters,
        )  # fmt: skip

    # The pod's claims

    def is_relevant(self, shape: Shape) -> bool:
        """Returns whether the pod has claims, or extended resources that devices may back."""
        gate = self._rules.gates.extended_resources
        return self._is_enabled and (shape.has_claims or (gate and bool(shape.extended_requests)))

    def _has_extended(self, shape: Shape, state: ClusterState) -> bool:
        """Returns whether devices may back an extended resource of the pod."""
        return self._rules.gates.extended_resources and has_device_backed_resources(shape, state)

    def pre_enqueue(self, pod: Pod) -> Rejection | None:
        """Rejects a pod until the claims of its templates have been created."""
        if not self._is_enabled or not pod.spec.resource_claims:
            return None
        if any(ref.name is None for ref in claim_refs(pod)):
            return Rejection((f'pod "{pod.key}": ResourceClaim not created yet',))
        return None

    def claims(self, pod: Pod, state: ClusterState) -> list[ResourceClaim] | str:
        """Returns the pod's claims as in the API, or why they are unusable; in a trial, those of
        displaced pods without allocation. Skips drivers' claims."""
        claims = []
        namespace = pod.metadata.namespace
        for ref in distinct_claim_refs(pod):
            if ref.name is None:
                return f'pod "{pod.key}": ResourceClaim not created yet'
            if not ref.name:
                continue
            key = f"{namespace}/{ref.name}"
            claim = state.devices.allocatable_claim(key)
            if state.devices.is_sharing:
                claim = state.devices.extension(ClaimSharing).pending(key) or claim
            if claim is None:
                return f'resourceclaim "{ref.name}" not found'
            if self._has_negotiated_resources and driver_of(claim, state.negotiations.classes):
                continue  # NegotiatedResources handles the claim
            if claim.metadata.deletion_timestamp is not None:
                return f'resourceclaim "{ref.name}" is being deleted'
            if ref.is_generated:
                fault = owner_fault(claim, pod, self._rules.gates.group_claims)
                if fault:
                    return fault
            claims.append(claim)
        return claims

    def _group(self, pod: Pod, state: ClusterState) -> PodGroup | str | None:
        """Returns the pod group with which the pod may share claims, or why it is unknown."""
        if not (self._rules.gates.group_claims and pod.group_name):
            return None
        group = state.groups.pod_groups.get(f"{pod.metadata.namespace}/{pod.group_name}")
        return group or f'podgroup.scheduling.k8s.io "{pod.group_name}" not found'

    def pre_filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Rejection | None:
        """Rejects the pod while a claim is missing, invalid, full, or allocated by others."""
        claims = self.claims(pod, state)
        fault = claims if isinstance(claims, str) else ""
        if not fault:
            group = self._group(pod, state)
            fault = group if isinstance(group, str) else ""
        for claim in claims if isinstance(claims, list) else ():
            fault = fault or claim_fault(claim, pod, state, self._rules.gates)
        return Rejection((fault,)) if fault else None

    def group_constraints(
        self, pod: Pod, shape: Shape, state: ClusterState, tree: TreePods
    ) -> tuple[CapacityConstraint, ...]:
        """Returns the devices that the pod's own unallocated claims and extended resources take."""
        claims = self.claims(pod, state)
        usable = claims if isinstance(claims, list) else []
        own = [
            c for c in usable if c.status.allocation is None and c.metadata.key not in tree.shared
        ]
        return device_amounts(pod, shape, own, state, self._rules)

    def tree_rules(self, pods: Sequence[PodEntry], state: ClusterState) -> Iterable[TreeRule]:
        """Returns that pods which share a claim are where one allocation of it can be used."""
        relevant = [entry for entry in pods if self.is_relevant(entry.shape)]
        return ClaimsTogether(self, state).rules(relevant) if len(relevant) > 1 else ()

    # Filter

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Rejects nodes that lack devices for the pod's claims: int64[row_limit], a code each."""
        claims = self.claims(pod, state)
        has_extended = self._has_extended(shape, state)
        if isinstance(claims, str) or not (claims or has_extended):
            return None
        limit = state.row_limit
        if has_extended and state.devices.extended_resource_claim(pod.metadata.uid) is not None:
            # The claim belongs to an attempt that failed, and must be deleted first.
            return np.full(limit, STALE_EXTENDED_CLAIM)
        codes = np.zeros(limit, np.int64)
        sought = self._sought_rows(shape, state)
        open_claims = []
        for claim in claims:
            if claim.status.allocation is None:
                open_claims.append(claim)
            else:
                codes[~self.available_rows(claim, state)] = NOT_AVAILABLE
        if has_extended:
            unallocated_codes = extended_codes(
                pod, shape, open_claims, state, sought, self.unallocated_codes
            )
            codes = np.where(unallocated_codes != FITS, unallocated_codes, codes)
            codes[rows_missing_resource(shape, state)] = MISSING_RESOURCE
        elif open_claims:
            unallocated_codes = self.unallocated_codes(open_claims, state, sought)[:limit]
            if sought is not None:
                unallocated_codes = np.where(sought, unallocated_codes, FITS)
            codes = np.where(unallocated_codes != FITS, unallocated_codes, codes)
        if self._has_node_allocatable_devices(state):
            here = state.present[:limit] if sought is None else state.present[:limit] & sought
            for row in np.flatnonzero((codes == FITS) & here).tolist():
                codes[row] = self._node_allocatable_code(pod, shape, state, row)
            for row, rejection in shared_claim_rejections(pod, claims, state).items():
                if codes[row] != MISSING_RESOURCE and here[row]:
                    codes[row] = self._rejection_codes.code_of(rejection)
        return codes

    def _sought_rows(self, shape: Shape, state: ClusterState) -> Bools | None:
        """Returns bool[row_limit]: the nodes that NodeAffinity leaves to the pod; None for all. On
        others nothing is searched, and nothing is said about them."""
        if not self._has_node_affinity or not (shape.node_selector or shape.node_affinity):
            return None
        return required_rows(shape, state)

    def _has_node_allocatable_devices(self, state: ClusterState) -> bool:
        """Returns whether devices may consume allocatable resources of their nodes (KEP-5517)."""
        return (
            self._rules.gates.node_allocatable
            and state.devices.extension(Inventory).takes_of_node()
        )

    def _node_allocatable_code(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> int:
        """Returns FITS if the row's node has what its devices consume of allocatable resources."""
        try:
            rejection = node_allocatable_rejection(
                pod, self._node_allocatable_claims(pod, shape, state, row), state, row
            )
        except StepsExhaustedError:
            return GAVE_UP
        return FITS if rejection is None else self._rejection_codes.code_of(rejection)

    def _node_allocatable_claims(
        self, pod: Pod, shape: Shape, state: ClusterState, row: int
    ) -> Claimed:
        """Returns what the pod's claims would consume of the row's node itself (KEP-5517)."""
        claims = self.claims(pod, state)
        if isinstance(claims, str) or not self._has_node_allocatable_devices(state):
            return ()
        has_allocation = any(claim.status.allocation is not None for claim in claims)
        views = state.devices.extension(FitCache).views(state, row, self._rules)
        if not has_allocation and not any(view.takes_of_node for view in views):
            return ()
        allocated, extended_allocation = self._allocations(pod, shape, state, row)
        allocations = {claim.metadata.name: allocation for claim, allocation in allocated}
        if extended_allocation is not None:
            allocations[EXTENDED_CLAIM_NAME] = extended_allocation[1]
        return node_allocatable_claims(pod, allocations, state.devices.extension(Inventory))

    def unallocated_codes(
        self, claims: list[ResourceClaim], state: ClusterState, sought: Bools | None = None
    ) -> Ints:
        """Returns int64[capacity]: a code per row, of `sought` rows alone where these are given.
        Raises PluginError if claims are invalid."""
        try:
            cache = state.devices.extension(FitCache)
            return cache.column(claims, state, self._rules, sought).codes
        except AllocationError as error:
            raise filter_error(error, claims) from None

    def available_rows(self, claim: ResourceClaim, state: ClusterState) -> Bools:
        """Returns bool[row_limit]: nodes on which an allocated claim can be used."""
        gates = self._rules.gates
        return available_rows(claim, state, self._binding_timeout_ns if gates.binding else None)

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """Returns the reason: unresolvable as in kube-scheduler, yet evictions may free devices."""
        if code >= FIRST_CODE:
            return self._rejection_codes.rejection(code)
        return Rejection((REASONS[code],), evictable=code in (NO_DEVICES, GAVE_UP))

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Returns dry runs in which removed pods free their devices, and added ones take theirs;
        None where all claims have admin access: these need no free devices."""
        claims = self.claims(pod, state)
        if isinstance(claims, str):
            return None
        open_claims = [claim for claim in claims if claim.status.allocation is None]
        if open_claims and all(claim.spec.is_admin for claim in open_claims):
            return None
        has_node_mappings = self._has_node_allocatable_devices(state)
        needs_any = bool(open_claims) or self._has_extended(shape, state) or has_node_mappings
        if not needs_any or state.devices.extended_resource_claim(pod.metadata.uid) is not None:
            return None
        fits = state.devices.extension(FitCache)

        def filter_code(row: int) -> int:
            claims = self.claims(pod, state)  # as the trial leaves them
            if isinstance(claims, str):
                return NO_DEVICES
            allocated = (claim for claim in claims if claim.status.allocation is not None)
            if not all(self.available_rows(claim, state)[row] for claim in allocated):
                return NOT_AVAILABLE
            unallocated, _ = self._unallocated_claims(claims, pod, shape, state, row)
            code = FITS
            if unallocated:
                try:
                    code = fits.code(fits.plans(unallocated, self._rules), state, row, self._rules)
                except AllocationError:
                    return NO_DEVICES
            if code != FITS or not has_node_mappings:
                return code
            rejection = shared_claim_rejections(pod, claims, state).get(row)
            return (
                self._rejection_codes.code_of(rejection)
                if rejection
                else self._node_allocatable_code(pod, shape, state, row)
            )

        concerns = None if has_node_mappings else may_use_devices
        codes = self.filter_pod(pod, shape, state)
        return lambda row: TrialRun(state, row, filter_code, concerns, self._take_devices, codes)

    def _take_devices(self, entry: PodEntry, state: ClusterState, row: int) -> None:
        """Supposes that a pod has its devices on the row, if it can have all of them there."""
        with suppress(AllocationError, PluginError):
            codes = self.filter_pod(entry.pod, entry.shape, state)
            is_possible = codes is None or codes[row] == FITS
            if is_possible and (part := self.reserve(entry.pod, entry.shape, state, row)):
                part.assume(state)

    def _shortages(
        self, pod: Pod, shape: Shape, state: ClusterState, row: int
    ) -> Iterator[tuple[str, Shortage]]:
        """Yields the devices for each unallocated request, with the key of its claim."""
        if not isinstance(claims := self.claims(pod, state), str):
            unallocated, _ = self._unallocated_claims(claims, pod, shape, state, row)
            yield from request_shortages(unallocated, state, row, self._rules)

    def details(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[str]:
        """Yields how many devices satisfy each request, and why the others do not."""
        return (
            line
            for key, shortage in self._shortages(pod, shape, state, row)
            for line in shortage.lines(key)
        )

    def awaited(self, pod: Pod, state: ClusterState) -> str:
        """Returns the conditions that devices of the pod's claims have to meet first."""
        claims = self.claims(pod, state) if self._rules.gates.binding else []
        texts = map(awaited_text, claims if isinstance(claims, list) else ())
        return ", ".join(text for text in texts if text)

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Suggests evicting the pods that use a device."""
        return eviction_fixes(self._shortages(pod, shape, state, row), state)

    # Score

    def has_scores(self, pod: Pod, state: ClusterState) -> bool:
        """Returns whether some request has prioritized alternatives."""
        claims = self.claims(pod, state)
        return self._rules.gates.prioritized_list and any(
            request.first_available
            for claim in (claims if isinstance(claims, list) else ())
            for request in claim.spec.devices.requests or ()
        )

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """Scores earlier alternatives higher (KEP-4816): int64[row_limit], 0 to 100."""
        if not self.has_scores(pod, state):
            return None
        raw = np.zeros(state.row_limit, np.int64)
        for row in np.flatnonzero(feasible).tolist():
            raw[row] = self.raw_score(pod, shape, state, row)
        highest = int(raw.max()) if len(raw) else 0
        return raw * MAX_NODE_SCORE // highest if highest else raw

    def raw_score(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> int:
        """Returns the sum over requests: 8 for a first alternative, 7 for a second, ..."""
        score = 0
        for claim, allocation in self._allocations(pod, shape, state, row)[0]:
            allocated_requests = {result.request for result in allocation.devices.results or ()}
            for request in claim.spec.devices.requests or ():
                for position, alternative in enumerate(request.first_available or ()):
                    if f"{request.name}/{alternative.name}" in allocated_requests:
                        score += FIRST_AVAILABLE_MAX - position
        return score

    def _extended_claim(
        self, pod: Pod, shape: Shape, state: ClusterState, row: int
    ) -> tuple[ResourceClaim, RequestMappings] | None:
        """Returns the claim for the extended resources that the row's node lacks, or None."""
        gate = self._rules.gates.extended_resources
        names = device_backed_resources(shape, state, row) if gate else ()
        return make_extended_claim(pod, names, state.devices.class_by_resource) if names else None

    def _unallocated_claims(
        self, claims: list[ResourceClaim], pod: Pod, shape: Shape, state: ClusterState, row: int
    ) -> tuple[list[ResourceClaim], tuple[ResourceClaim, RequestMappings] | None]:
        """Returns the claims to allocate on the row, the claim for extended resources last; and
        that claim with its mappings, or None."""
        extended = self._extended_claim(pod, shape, state, row)
        unallocated = [claim for claim in claims if claim.status.allocation is None]
        return (unallocated if extended is None else [*unallocated, extended[0]]), extended

    def _allocations(
        self, pod: Pod, shape: Shape, state: ClusterState, row: int
    ) -> tuple[list[tuple[ResourceClaim, AllocationResult]], _ExtendedAllocation | None]:
        """Returns the pod's claims with their allocations, or those that they would get on the row;
        and the same for the claim for extended resources."""
        claims = self.claims(pod, state)
        if isinstance(claims, str):
            return [], None
        unallocated, extended = self._unallocated_claims(claims, pod, shape, state, row)
        results = iter(self.allocate(unallocated, shape, state, row))
        allocated = [(claim, claim.status.allocation or next(results)) for claim in claims]
        return allocated, None if extended is None else (extended[0], next(results), extended[1])

    def allocate(
        self, claims: Sequence[ResourceClaim], shape: Shape, state: ClusterState, row: int
    ) -> list[AllocationResult]:
        """Returns an allocation on the row for each claim. Raises PluginError if there is none."""
        if not claims:
            return []
        fits = state.devices.extension(FitCache)
        plans = fits.plans(claims, self._rules)
        if self._fragmentation is None:
            result = fits.allocate(plans, state, row, with_random_order(self._rules, claims))
        else:
            device_order = self._fragmentation.device_order(shape, state, row)
            result = fits.allocate_preferred(plans, state, row, self._rules, device_order)
        if result is None:
            raise PluginError("claim allocation not found for node")
        return [
            allocation_of(
                claim, plan, devices, state.devices.classes, state.node_names[row],
                self._rules.gates, share_ids(claim),
            )
            for claim, plan, devices in zip(claims, plans, result)
        ]  # fmt: skip

    # Reserve

    def reserve(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Reservation | None:
        """Allocates the pod's claims on the row and reserves them for the pod."""
        gates, timeout_ns = self._rules.gates, self._binding_timeout_ns
        claims, extended = self._allocations(pod, shape, state, row)
        consumers = self._consumers(pod, state)
        decisions = []
        for claim, allocation in claims:
            new_allocation = None if claim.status.allocation is not None else allocation
            decision = ClaimDecision(claim, new_allocation, consumers[claim.metadata.name])
            if state.devices.is_sharing:
                decision = decision.as_shared(state.devices.extension(ClaimSharing), allocation)
            decisions.append(decision)
        name = state.node_names[row]
        parts: list[Reservation] = []
        if decisions:
            parts.append(ClaimBinding(pod, name, tuple(decisions), timeout_ns, gates, state.now_ns))
        if extended is not None:
            parts.append(ExtendedClaimBinding(pod, name, *extended, timeout_ns, gates))
        if gates.node_allocatable:
            claimed = self._node_allocatable_claims(pod, shape, state, row)
            if claimed or pod.status.node_allocatable_resource_claim_statuses:
                parts.append(NodeAllocatableReservation(pod, claimed, timeout_ns))
        if len(parts) > 1:
            return CompositeReservation(parts)
        return parts[0] if parts else None

    def _consumers(self, pod: Pod, state: ClusterState) -> dict[str, ConsumerReference]:
        """Returns the consumer of each of the pod's claims, by claim name."""
        group = self._group(pod, state)
        group = None if isinstance(group, str) else group
        return {
            ref.name: claim_consumer(pod, entry, group)
            for ref, entry in zip(claim_refs(pod), pod.spec.resource_claims or (), strict=True)
            if ref.name
        }

    # PostFilter

    def post_filter(self, evaluator: PreemptionEvaluator) -> PostFilterResult:
        """Gives back an allocation that excludes nodes: with other devices the pod may fit.

        Deallocates a claim that no other pod uses; else deletes the claim for extended resources
        that an earlier attempt has left; else removes the pod group's reservation of a claim.
        """
        pod, state = evaluator.pod, evaluator.state
        if not self._is_enabled:
            return PostFilterResult("plugin disabled")
        claims = self.claims(pod, state)
        has_extended = self._has_extended(evaluator.shape, state)
        has_no_claims = isinstance(claims, list) and not claims and not has_extended
        if has_no_claims or isinstance(claims, str) or self._is_rejected_by_pre_filter(pod, state):
            return PostFilterResult("no new claims to deallocate")
        for claim in claims:
            if claim.status.allocation is None:
                continue
            rows = state.present_rows()
            if self.available_rows(claim, state)[rows].all():
                continue
            users = {consumer.uid for consumer in claim.status.reserved_for or ()}
            if users <= {pod.metadata.uid}:
                patch = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
                write = patch_of(claim, patch, "status")
                state.devices.revoke(claim)
                avoid_unready(claim, state, self._rules.gates, self._binding_timeout_ns)
                return PostFilterResult("deallocation of ResourceClaim completed", patches=(write,))
        leftover = state.devices.extended_resource_claim(pod.metadata.uid) if has_extended else None
        if leftover is not None:
            return PostFilterResult(
                "deletion of ResourceClaim completed", patches=tuple(deletion_writes(leftover))
            )
        if isinstance(group := self._group(pod, state), PodGroup):
            removal = unreserve_group_claim(pod, group, state)
            if removal is not None:
                return PostFilterResult("ResourceClaim unreserved for PodGroup", patches=(removal,))
        avoided = state.devices.extension(AvoidedDevices)
        retry_ns = avoided.next_ns(claims, state.now_ns)
        return PostFilterResult("still not schedulable", retry_at_ns=retry_ns)

    def _is_rejected_by_pre_filter(self, pod: Pod, state: ClusterState) -> bool:
        """Returns whether PreFilter rejects the pod."""
        claims = self.claims(pod, state)
        if isinstance(claims, str) or isinstance(self._group(pod, state), str):
            return True
        return any(claim_fault(claim, pod, state, self._rules.gates) for claim in claims)

    def hint_pod(self, pod: Pod, shape: Shape, event: ClusterEvent) -> bool:
        """Requeues the pod for events about its claims or their devices."""
        return is_schedulable_after_change(pod, event, self._rules.gates.node_allocatable)
