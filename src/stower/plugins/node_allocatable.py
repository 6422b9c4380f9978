"""Devices that stand for their node's own CPU, memory or huge pages, or need some (KEP-5517).

What the devices of a pod's claims take of these counts as if the pod asked for it: a node must have
room for both together, the pod's status says how much it is before the pod is bound, and it is in
use on the node from the moment of the decision (state/cluster.py).

Source: kube-scheduler plugins/dynamicresources/nodeallocatabledynamicresources.go, Kubernetes 1.36.
Different from upstream: a claim that was allocated before counts as well (there it takes nothing,
so that a second attempt after a failed binding would fill the node twice), and a device is known by
its driver too.
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

# The claim for extended resources while nobody but the scheduler knows of it.
EXTENDED_CLAIM_NAME: Final = "<extended-resources>"
ZERO: Final = Quantity.of(0)
FIRST_CODE: Final = 16  # beyond the codes of DynamicResources itself
REJECTIONS_MAX: Final = 4_096  # arbitrary: many times what one pod is refused for


class RejectionCodes:
    """Codes of refusals whose texts name claims and resources; the oldest are forgotten."""

    def __init__(self) -> None:
        self._codes: dict[Rejection, int] = {}
        self._next = FIRST_CODE

    def code_of(self, rejection: Rejection) -> int:
        """The code of a refusal, the same as long as it is remembered."""
        code = self._codes.pop(rejection, 0)
        if not code:
            code, self._next = self._next, self._next + 1
            if len(self._codes) >= REJECTIONS_MAX:
                del self._codes[next(iter(self._codes))]
        self._codes[rejection] = code
        return code

    def rejection(self, code: int) -> Rejection:
        """What it means."""
        return next(rejection for rejection, known in self._codes.items() if known == code)


# How much


def node_allocatable_claims(
    pod: Pod, allocations: Mapping[str, AllocationResult], inventory: Inventory
) -> Claimed:
    """What the pod's claims, by name, take of their node: those that take something, by name.

    Raises PluginError where devices do not say enough.
    """
    entries = {ref.entry_name: ref.name for ref in claim_refs(pod)}
    found = []
    for name, allocation in sorted(allocations.items()):
        try:
            resources = _resources(allocation.devices.results or (), inventory)
        except ValueError as error:
            of = f"claim {pod.metadata.namespace}/{name}, {error}"
            raise PluginError(f'running "DynamicResources" filter plugin: {of}') from None
        if resources:
            containers = tuple(
                container.name
                for container in (*(pod.spec.init_containers or ()), *pod.spec.containers)
                if container.resources is not None
                for used in container.resources.claims or ()
                if entries.get(used.name) == name
            )
            found.append(ClaimedResources(name, containers, resources))
    return tuple(found)


def _resources(results: Sequence[DeviceResult], inventory: Inventory) -> ResourceList:
    """The sum over an allocation. A device that is gone matters where others take something.

    Raises ValueError.
    """
    records = [inventory.record((r.driver, r.pool), r.device) for r in results]
    if not any(record is not None and record.content.node_resources for record in records):
        return {}
    total: dict[str, Quantity] = {}
    for result, record in zip(results, records, strict=True):
        at = f"device {result.device}"
        if record is None:
            raise ValueError(f"{at}: device {result.device} not found in pool {result.pool}")
        for name, mapping in sorted(record.content.node_resources.items()):
            if mapping.capacity_key and result.consumed_capacity is None:
                raise ValueError(
                    f"{at}: ConsumedCapacity is nil, but Capacity key '{mapping.capacity_key}' is "
                    f"set in NodeAllocatableResourceMappings for resource {name}"
                )
            taken = _mapped_quantity(mapping, result)
            if taken is not None:
                total[name] = total[name].add(taken) if name in total else taken
    return {name: str(quantity) for name, quantity in total.items()}


def _mapped_quantity(mapping: NodeResourceMapping, result: DeviceResult) -> Quantity | None:
    """Of one device for one resource; None where nothing of the capacity is consumed."""
    factor = mapping.allocation_multiplier
    if not mapping.capacity_key:
        return ZERO if factor is None else quantity_of(factor)
    consumed = (result.consumed_capacity or {}).get(mapping.capacity_key)
    if consumed is None:
        return None
    taken = quantity_of(consumed)
    return taken if factor is None else taken.mul(quantity_of(factor))


# Whether it fits


def node_allocatable_rejection(
    pod: Pod, claimed: Claimed, state: ClusterState, row: int
) -> Rejection | None:
    """Why the pod and its claims cannot have what they take of the row's node."""
    for part in claimed:
        if not part.containers:
            text = "node-allocatable resource claim not referenced by any container within the pod"
            return Rejection((f"claim {part.resource_claim_name}: {text}",))
    if not claimed:
        return None
    total = pod_requests(pod, claimed=claimed)
    own = pod.spec.resources
    if own is not None and own.requests is not None:
        parts = pod_requests(pod, pod_level=False, claimed=claimed)
        for name in sorted(total):
            if name in parts and parts[name].cmp(total[name]) > 0:
                text = "is insufficient to cover the aggregated container and node-allocatable DRA"
                return Rejection((f"pod level request for {name} {text} requests",))
    reasons, resolvable = [], True
    wanted = amounts(total)
    pages = sorted(name for name in wanted if name.startswith(HUGE_PAGES))
    for name in (CPU, MEMORY, EPHEMERAL_STORAGE, *pages):
        amount, column = wanted.get(name, 0), state.column(name)
        if amount and amount > column.allocatable_cells[row] - column.requested_cells[row]:
            reasons.append(f"Insufficient {name}")
            resolvable &= amount <= column.allocatable_cells[row]
    return Rejection(tuple(reasons), resolvable) if reasons else None


def shared_claim_rejections(
    pod: Pod, claims: Sequence[ResourceClaim], state: ClusterState
) -> dict[int, Rejection]:
    """By row: which of the allocated claims some other pod there takes of the node by."""
    found: dict[int, Rejection] = {}
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
            found.setdefault(row, Rejection((text,)))
    return found


# Coming true


class NodeAllocatableReservation:
    """What one pod's claims take of its node; see framework.reserve.Reservation."""

    timeout_message = ClaimBinding.timeout_message
    awaited_objects: tuple[tuple[type, str, str], ...] = ()
    retry_at_ns = None

    def __init__(self, pod: Pod, claimed: Claimed, timeout_ns: int) -> None:
        """`claimed` may be empty, where the status says something else still."""
        self.timeout_ns = timeout_ns
        self._pod = pod
        self._claimed = claimed
        self._status_patch = PodStatusPatch(self._patch(claimed))
        self._is_released = False

    def _patch(self, claimed: Claimed) -> PatchPodStatus:
        meta = self._pod.metadata
        return PatchPodStatus(0, meta.namespace, meta.name, meta.uid, claimed=claimed)

    def assume(self, state: ClusterState) -> None:
        """It is in use."""
        state.assume_claimed_resources(state.pods[self._pod.metadata.uid], self._claimed)

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """The pod's status."""
        return [] if self._is_released else self._status_patch.writes(next_id)

    def on_answer(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """See PodTold."""
        return self._status_patch.answered(code)

    def failure_reason(self, state: ClusterState) -> str:
        """It was decided, and stays so."""
        return ""

    def is_done(self, state: ClusterState) -> bool:
        """The pod says it."""
        return self._status_patch.is_done

    def waiting_event(self) -> tuple[str, str]:
        """Nobody is told."""
        return "", ""

    def forget(self, state: ClusterState) -> None:
        """The state forgets it together with the pod's place."""
        self._is_released = True

    def unreserve(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """The status says nothing of it any more."""
        if not (self._claimed and self._status_patch.is_sent):
            return []
        return [msgspec.structs.replace(self._patch(()), id=next_id())]
