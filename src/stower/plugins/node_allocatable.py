"""Devices that consume their node's own CPU, memory or huge pages, or stand for them (KEP-5517).

What the devices of a pod's claims consume counts as if the pod requested it. A node must have room
for both together, the pod's status states the amounts before the pod is bound, and the amounts are
in use on the node from the decision on (state/cluster.py).

Source: kube-scheduler plugins/dynamicresources/nodeallocatabledynamicresources.go, Kubernetes 1.36.
Differs from kube-scheduler: a claim that was allocated before counts as well (kube-scheduler counts
nothing for it, so that a second attempt after a failed binding would fill the node twice), and a
device is identified by its driver too.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from stower.devices.inventory import Inventory
from stower.framework.plugin_guard import PluginError
from stower.framework.reasons import Rejection
from stower.framework.writes import PatchPodStatus, Write
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.pod import ClaimedResources, ResourceList
from stower.model.kinds.resource_claim import AllocationResult, DeviceResult
from stower.model.kinds.resource_slice import NodeResourceMapping
from stower.model.quantity import Quantity, quantity_of
from stower.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGE_PAGES,
    MEMORY,
    Claimed,
    amounts,
    pod_requests,
)
from stower.plugins.claim_binding import ClaimBinding
from stower.plugins.pod_status_patch import PodStatusPatch
from stower.state.cluster import ClusterState
from stower.state.devices import claim_refs

# Name of the claim for extended resources until the claim is created.
EXTENDED_CLAIM_NAME: Final = "<extended-resources>"
ZERO: Final = Quantity.of(0)
FIRST_CODE: Final = 16  # beyond the codes of DynamicResources itself
REJECTIONS_MAX: Final = 4_096  # arbitrary: many times the rejections of one pod


class RejectionCodes:
    """Codes for rejections that name claims and resources; forgets the least recently used."""

    def __init__(self) -> None:
        self._codes: dict[Rejection, int] = {}
        self._next = FIRST_CODE

    def code_of(self, rejection: Rejection) -> int:
        """Returns the code of a rejection, the same as long as the code is remembered."""
        code = self._codes.pop(rejection, 0)
        if not code:
            code, self._next = self._next, self._next + 1
            if len(self._codes) >= REJECTIONS_MAX:
                del self._codes[next(iter(self._codes))]
        self._codes[rejection] = code
        return code

    def rejection(self, code: int) -> Rejection:
        """Returns the rejection that has the code."""
        return next(rejection for rejection, value in self._codes.items() if value == code)


# Amounts


def node_allocatable_claims(
    pod: Pod, allocations: Mapping[str, AllocationResult], inventory: Inventory
) -> Claimed:
    """Returns what the pod's claims consume of their node, sorted by claim name.

    Claims that consume nothing are left out. `allocations`: by claim name. Raises PluginError if
    data of devices are missing.
    """
    entries = {ref.entry_name: ref.name for ref in claim_refs(pod)}
    result = []
    for name, allocation in sorted(allocations.items()):
        try:
            resources = _resources(allocation.devices.results or (), inventory)
        except ValueError as error:
            text = f"claim {pod.metadata.namespace}/{name}, {error}"
            raise PluginError(f'running "DynamicResources" filter plugin: {text}') from None
        if resources:
            containers = tuple(
                container.name
                for container in (*(pod.spec.init_containers or ()), *pod.spec.containers)
                if container.resources is not None
                for reference in container.resources.claims or ()
                if entries.get(reference.name) == name
            )
            result.append(ClaimedResources(name, containers, resources))
    return tuple(result)


def _resources(results: Sequence[DeviceResult], inventory: Inventory) -> ResourceList:
    """Returns the sum over an allocation. A missing device is an error if others consume something.
    Raises ValueError."""
    records = [inventory.record((r.driver, r.pool), r.device) for r in results]
    if not any(record is not None and record.content.node_resources for record in records):
        return {}
    total: dict[str, Quantity] = {}
    for result, record in zip(results, records, strict=True):
        prefix = f"device {result.device}"
        if record is None:
            raise ValueError(f"{prefix}: device {result.device} not found in pool {result.pool}")
        for name, mapping in sorted(record.content.node_resources.items()):
            if mapping.capacity_key and result.consumed_capacity is None:
                raise ValueError(
                    f"{prefix}: ConsumedCapacity is nil, but Capacity key '{mapping.capacity_key}' "
                    f"is set in NodeAllocatableResourceMappings for resource {name}"
                )
            quantity = _mapped_quantity(mapping, result)
            if quantity is not None:
                total[name] = total[name].add(quantity) if name in total else quantity
    return {name: str(amount) for name, amount in total.items()}


def _mapped_quantity(mapping: NodeResourceMapping, result: DeviceResult) -> Quantity | None:
    """Returns what one device consumes of one resource, or None if nothing."""
    factor = mapping.allocation_multiplier
    if not mapping.capacity_key:
        return ZERO if factor is None else quantity_of(factor)
    consumed = (result.consumed_capacity or {}).get(mapping.capacity_key)
    if consumed is None:
        return None
    quantity = quantity_of(consumed)
    return quantity if factor is None else quantity.mul(quantity_of(factor))


# Filter


def node_allocatable_rejection(
    pod: Pod, claimed: Claimed, state: ClusterState, row: int
) -> Rejection | None:
    """Returns why the row's node cannot provide what the pod and its claims consume, or None."""
    for part in claimed:
        if not part.containers:
            text = "node-allocatable resource claim not referenced by any container within the pod"
            return Rejection((f"claim {part.resource_claim_name}: {text}",))
    if not claimed:
        return None
    total = pod_requests(pod, claimed=claimed)
    pod_level = pod.spec.resources
    if pod_level is not None and pod_level.requests is not None:
        aggregate = pod_requests(pod, pod_level=False, claimed=claimed)
        for name in sorted(total):
            if name in aggregate and aggregate[name].cmp(total[name]) > 0:
                text = "is insufficient to cover the aggregated container and node-allocatable DRA"
                return Rejection((f"pod level request for {name} {text} requests",))
    reasons, resolvable = [], True
    needed = amounts(total)
    pages = sorted(name for name in needed if name.startswith(HUGE_PAGES))
    for name in (CPU, MEMORY, EPHEMERAL_STORAGE, *pages):
        amount, column = needed.get(name, 0), state.column(name)
        if amount and amount > column.allocatable_cells[row] - column.requested_cells[row]:
            reasons.append(f"Insufficient {name}")
            resolvable &= amount <= column.allocatable_cells[row]
    return Rejection(tuple(reasons), resolvable) if reasons else None


def shared_claim_rejections(
    pod: Pod, claims: Sequence[ResourceClaim], state: ClusterState
) -> dict[int, Rejection]:
    """Returns by row which allocated claim already consumes resources for another pod there."""
    result: dict[int, Rejection] = {}
    for claim in claims:
        name = claim.metadata.name
        users: dict[int, list[str]] = {}
        if claim.status.allocation is not None:
            for uid, entry in sorted(state.devices.users(claim.metadata.key).items()):
                if any(part.resource_claim_name == name for part in entry.claimed_resources):
                    users.setdefault(entry.row, []).append(uid)
        for row, uids in users.items():
            if len(uids) > 1:
                text = f"node allocatable resource claim {name} shared by multiple pods"
            elif uids != [pod.metadata.uid]:
                text = f"node allocatable resource claim {name} is already used by another pod"
            else:
                continue
            result.setdefault(row, Rejection((text,)))
    return result


# Reserve


class NodeAllocatableReservation:
    """Writes what a pod's claims consume of its node to the pod's status; see
    framework.reservation.Reservation."""

    timeout_message = ClaimBinding.timeout_message
    awaited_objects: tuple[tuple[type, str, str], ...] = ()
    retry_at_ns = None

    def __init__(self, pod: Pod, claimed: Claimed, timeout_ns: int) -> None:
        """`claimed`: empty to clear the amounts of an earlier attempt in the status."""
        self.timeout_ns = timeout_ns
        self._pod = pod
        self._claimed = claimed
        self._status_patch = PodStatusPatch(self._patch(claimed))
        self._is_released = False

    def _patch(self, claimed: Claimed) -> PatchPodStatus:
        meta = self._pod.metadata
        return PatchPodStatus(0, meta.namespace, meta.name, meta.uid, claimed=claimed)

    def assume(self, state: ClusterState) -> None:
        """Assumes the amounts to be in use on the node."""
        state.assume_claimed_resources(state.pods[self._pod.metadata.uid], self._claimed)

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Returns the patch of the pod's status."""
        return [] if self._is_released else self._status_patch.writes(next_id)

    def on_answer(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """See PodStatusPatch."""
        return self._status_patch.handle_answer(state, code, version)

    def failure_reason(self, state: ClusterState) -> str:
        """Returns "": the decision stays valid."""
        return ""

    def is_done(self, state: ClusterState) -> bool:
        """Returns whether the pod's status has the amounts."""
        return self._status_patch.is_done

    def waiting_event(self) -> tuple[str, str]:
        """Returns no Event."""
        return "", ""

    def forget(self, state: ClusterState) -> None:
        """Stops writing. The state forgets the amounts with the pod's placement."""
        self._is_released = True

    def unreserve(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Clears the amounts in the pod's status if they were written."""
        if not (self._claimed and self._status_patch.is_sent):
            return []
        return [msgspec.structs.replace(self._patch(()), id=next_id())]
