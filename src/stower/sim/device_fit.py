"""Decides on which nodes the claims of a pod are met, by claims and slices alone.

Tries every way (device_model.py), so only small worlds are searched. Claims that are negotiated
with drivers are not modelled: what fits there is what the driver answers.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from stower.devices.negotiation.claims import driver_of
from stower.model.derived import Derived
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

# The devices of a pool that are in use: the shares that are taken; none of one taken as a whole.
Use = dict[str, list[Mapping[str, str]]]

# Objects as plain JSON; read only.
_CLAIMS: Final[Derived[ResourceClaim, Json]] = Derived(msgspec.to_builtins)
_CLASSES: Final[Derived[DeviceClass, Json]] = Derived(msgspec.to_builtins)
_SLICES: Final[Derived[ResourceSlice, Json]] = Derived(msgspec.to_builtins)


class DeviceFits:
    """Which nodes meet which claims. What was found for a node stands for as long as its labels,
    the devices that it reaches, the classes and what is allocated there stay the same."""

    def __init__(self) -> None:
        self._found: dict[str, _Found] = {}  # by node

    def predicate(self, devices: "Devices", pod: Pod) -> Callable[[Node], bool] | None:
        """Returns whether a node meets all claims of the pod; None where no node does, or where
        the claims are not modelled."""
        server = devices.server
        claims = list(_claims(server, pod))
        if None in claims or server.all(DeviceTaintRule):
            return None
        known = [claim for claim in claims if claim is not None]
        if not all(_is_modelled(claim, server, pod) for claim in known):
            return None
        new = [_CLAIMS.of(c) for c in known if c.status.allocation is None]
        names = [r["deviceClassName"] for claim in new for r in _requests(claim)]
        if any(name not in devices.classes for name in names):
            return None
        wanted = msgspec.json.encode([claim["spec"] for claim in new])

        def is_met(node: Node) -> bool:
            if not _reaches(known, node):
                return False
            if not new:
                return True
            found = self._of(devices, node)
            if wanted not in found.answers:
                found.answers[wanted] = devices.are_available(node, new)
            return found.answers[wanted]

        return is_met

    def _of(self, devices: "Devices", node: Node) -> "_Found":
        name = node.metadata.name
        slices = devices.slices_of(node)
        pools = {(one.spec.driver, one.spec.pool.name): None for one in slices}
        known = _Found(
            node.metadata.labels or {},
            [*slices, *devices.classes.values()],
            [devices.use.get(pool) for pool in pools],
        )
        found = self._found.get(name)
        if found is None or not found.is_like(known):
            found = self._found[name] = known
        return found


class _Found:
    """What was found for a node, and what it depends on."""

    def __init__(
        self, labels: Mapping[str, str], objects: list[object], use: list[Use | None]
    ) -> None:
        self._labels, self._objects, self._use = labels, objects, use
        self.answers: dict[bytes, bool] = {}  # by what the claims want

    def is_like(self, other: "_Found") -> bool:
        """Returns whether both depend on the same; objects are compared by identity."""
        return (
            len(self._objects) == len(other._objects)
            and all(map(operator.is_, self._objects, other._objects))
            and self._labels == other._labels
            and self._use == other._use
        )


def _is_modelled(claim: ResourceClaim, server: Server, pod: Pod) -> bool:
    """Returns whether the claim is one of those that the model knows, and the pod may use it."""
    reserved, allocation = claim.status.reserved_for or (), claim.status.allocation
    if driver_of(claim, server.all(ResourceClass)) or claim.metadata.deletion_timestamp is not None:
        return False
    if len(reserved) >= CONSUMERS_MAX and not claim.is_reserved_for(pod.metadata.uid):
        return False
    if allocation is None:
        return not reserved
    return not any(r.binding_conditions for r in allocation.devices.results or ())


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


class Devices:
    """All devices and their use, at one moment."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.classes = {n: _CLASSES.of(one) for n, one in server.all(DeviceClass).items()}
        self.use: dict[tuple[str, str], Use] = {}
        self._by_node: dict[str, list[ResourceSlice]] = {}  # "" for those of no certain node
        for one in _whole_pools(server.all(ResourceSlice)):
            self._by_node.setdefault(one.spec.node_name or "", []).append(one)
        self._alone: set[Id] = set()
        self._shares: dict[Id, list[Json]] = {}
        shared = {
            (one.spec.driver, one.spec.pool.name, device.name)
            for slices in self._by_node.values()
            for one in slices
            for device in one.spec.devices or ()
            if device.allow_multiple_allocations
        }
        for claim in server.all(ResourceClaim).values():
            for result in claim.results:
                id = (result.driver, result.pool, result.device)
                if result.admin_access:
                    continue
                shares = self.use.setdefault(id[:2], {}).setdefault(result.device, [])
                if id in shared:
                    shares.append(result.consumed_capacity or {})
                    self._shares.setdefault(id, []).append(result.consumed_capacity or {})
                else:
                    self._alone.add(id)

    def slices_of(self, node: Node) -> list[ResourceSlice]:
        """Returns the slices of the node, and those of no certain node."""
        return [*self._by_node.get(node.metadata.name, ()), *self._by_node.get("", ())]

    def are_available(self, node: Node, claims: list[Json]) -> bool:
        """Returns whether some devices that the node reaches meet all the claims."""
        slices = [_SLICES.of(one) for one in self.slices_of(node)]
        plain = {"metadata": {"name": node.metadata.name, "labels": node.metadata.labels}}
        found = World(plain, slices, self.classes, self._alone, self._shares)
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
