"""Decides on which nodes the claims of a pod are met, by claims and slices alone.

Tries every way (device_model.py), so only small worlds are searched. Claims that are negotiated
with drivers are not modelled: what fits there is what the driver answers.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from stower.devices.negotiation.claims import driver_of
from stower.model.kinds import (
    DeviceClass,
    DeviceTaintRule,
    Node,
    Pod,
    ResourceClaim,
    ResourceClass,
    ResourceSlice,
)
from stower.model.selectors import node_selector_matches
from stower.sim.device_model import Id, World
from stower.sim.server import Server

WAYS_MAX: Final = 2_000
CONSUMERS_MAX: Final = 256  # of one claim (resource.k8s.io)
Json = dict[str, Any]


def device_predicate(server: Server, pod: Pod) -> Callable[[Node], bool] | None:
    """Returns whether a node meets all claims of the pod; None where no node does, or where the
    claims are not modelled."""
    claims = list(_claims(server, pod))
    if None in claims or server.all(DeviceTaintRule):
        return None
    known = [claim for claim in claims if claim is not None]
    for claim in known:
        reserved = claim.status.reserved_for or ()
        if (
            driver_of(claim, server.all(ResourceClass))
            or claim.metadata.deletion_timestamp is not None
        ):
            return None
        if len(reserved) >= CONSUMERS_MAX and not claim.is_reserved_for(pod.metadata.uid):
            return None
        allocation = claim.status.allocation
        if allocation is None and reserved:
            return None
        if allocation is not None:
            if any(r.binding_conditions for r in allocation.devices.results or ()):
                return None
    new = [msgspec.to_builtins(c) for c in known if c.status.allocation is None]
    device_classes = server.all(DeviceClass)
    names = [r["deviceClassName"] for claim in new for r in _requests(claim)]
    if any(name not in device_classes for name in names):
        return None

    devices = _Devices(server) if new else None

    def is_met(node: Node) -> bool:
        return _reaches(known, node) and (devices is None or devices.are_available(node, new))

    return is_met


def has_negotiated_claims(server: Server, pod: Pod) -> bool:
    """Returns whether a claim of the pod is allocated by a driver that is asked for it."""
    if not pod.spec.resource_claims:
        return False
    classes = server.all(ResourceClass)
    return any(claim is not None and driver_of(claim, classes) for claim in _claims(server, pod))


def _claims(server: Server, pod: Pod) -> Iterator[ResourceClaim | None]:
    """The claims of a pod; None for one that was not made yet, or is another pod's."""
    made = {s.name: s.resource_claim_name for s in pod.status.resource_claim_statuses or ()}
    for entry in pod.spec.resource_claims or ():
        is_made = entry.resource_claim_name is None
        if is_made and entry.name not in made:
            yield None
            continue
        name = made[entry.name] if is_made else entry.resource_claim_name
        if not name:
            continue  # none was needed
        claim = server.get(ResourceClaim, f"{pod.metadata.namespace}/{name}")
        if claim is not None and is_made and claim.metadata.controller_uid != pod.metadata.uid:
            claim = None
        yield claim


def _requests(claim: Json) -> Iterator[Json]:
    for request in claim["spec"]["devices"].get("requests") or ():
        yield from request.get("firstAvailable") or (request["exactly"],)


def _reaches(claims: list[ResourceClaim], node: Node) -> bool:
    """Whether what is allocated already can be used on the node."""
    for claim in claims:
        allocation = claim.status.allocation
        selector = allocation.node_selector if allocation is not None else None
        labels = node.metadata.labels or {}
        if selector is not None and not node_selector_matches(selector, labels, node.metadata.name):
            return False
    return True


class _Devices:
    """All devices and their use, at one moment."""

    def __init__(self, server: Server) -> None:
        self._by_node: dict[str, list[Json]] = {}  # slices; "" for those of no certain node
        for one in _whole_pools(server.all(ResourceSlice)):
            self._by_node.setdefault(one.spec.node_name or "", []).append(msgspec.to_builtins(one))
        self._classes = {n: msgspec.to_builtins(one) for n, one in server.all(DeviceClass).items()}
        self._alone: set[Id] = set()
        self._shares: dict[Id, list[Json]] = {}
        shared = {
            (s["spec"]["driver"], s["spec"]["pool"]["name"], device["name"])
            for slices in self._by_node.values()
            for s in slices
            for device in s["spec"].get("devices") or ()
            if device.get("allowMultipleAllocations")
        }
        for claim in server.all(ResourceClaim).values():
            allocation = claim.status.allocation
            for result in (allocation.devices.results or ()) if allocation is not None else ():
                id = (result.driver, result.pool, result.device)
                if result.admin_access:
                    continue
                if id in shared:
                    self._shares.setdefault(id, []).append(result.consumed_capacity or {})
                else:
                    self._alone.add(id)

    def are_available(self, node: Node, claims: list[Json]) -> bool:
        """Returns whether some devices that the node reaches meet all the claims."""
        slices = [*self._by_node.get(node.metadata.name, ()), *self._by_node.get("", ())]
        found = World(msgspec.to_builtins(node), slices, self._classes, self._alone, self._shares)
        slots = [(n, r) for n, c in enumerate(claims) for r in c["spec"]["devices"]["requests"]]
        return any(
            not found.fault(claims, gifts) for gifts in islice(found.ways(slots, set()), WAYS_MAX)
        )


def _whole_pools(slices: Mapping[str, ResourceSlice]) -> Iterator[ResourceSlice]:
    """The slices of the newest generation of each pool of which all slices are there."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for one in slices.values():
        pools.setdefault((one.spec.driver, one.spec.pool.name), []).append(one)
    for found in pools.values():
        newest = max(one.spec.pool.generation for one in found)
        current = [one for one in found if one.spec.pool.generation == newest]
        if len(current) == current[0].spec.pool.resource_slice_count:
            yield from current
