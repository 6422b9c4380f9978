"""The API for the author of a resource driver: the class `Driver`, which the author subclasses, and
the types of its arguments and results.

Must not know how the driver is run, or the API server.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from stower.driver.ledger import Entry
from stower.model.kinds import Node, Pod, ResourceClaim, ResourceClass


class RefusedError(Exception):
    """Raised by a driver when devices cannot be allocated or freed now. The message appears in
    Events."""


class Allocation(NamedTuple):
    """The allocation of one claim. `devices`: (request, pool, device) of each device; empty where
    an optional device does not exist. `nodes`: the names of the nodes that can reach the devices,
    or labels that these nodes have; None for all nodes."""

    devices: Sequence[tuple[str, str, str]] = ()
    nodes: Collection[str] | Mapping[str, str] | None = None

    def status(self, driver: str) -> dict[str, Any]:
        """Returns the allocation in the format of status.allocation of a ResourceClaim."""
        results = [
            {"request": request, "driver": driver, "pool": pool, "device": device}
            for request, pool, device in self.devices
        ]
        found: dict[str, Any] = {"devices": {"results": results} if results else {}}
        terms: list[dict[str, Any]] = []
        if isinstance(self.nodes, Mapping):
            terms = [
                {
                    "matchExpressions": [
                        {"key": key, "operator": "In", "values": [value]}
                        for key, value in self.nodes.items()
                    ]
                }
            ]
        elif self.nodes is not None:
            terms = [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
                for name in self.nodes
            ]  # one value for a field, as the API has it
        if self.nodes is not None:
            found["nodeSelector"] = {"nodeSelectorTerms": terms}
        return found


class RequestedDevices(msgspec.Struct, frozen=True):
    """Devices that a claim requests: the name of the request (used in the allocation), the class
    and the number of devices."""

    request: str
    class_name: str
    count: int


def requested_devices(claim: ResourceClaim) -> list[RequestedDevices]:
    """Returns the devices that a claim requests, one entry per request; of `firstAvailable` only
    the first alternative. A driver that supports the other alternatives reads
    claim.spec.devices.requests itself."""
    found = []
    for request in claim.spec.devices.requests or ():
        one, name = request.exactly, request.name
        if one is None and request.first_available:
            one = request.first_available[0]
            name = f"{request.name}/{one.name}"
        if one is not None:
            found.append(RequestedDevices(name, one.device_class_name, one.count or 1))
    return found


class Driver:
    """The base class of resource drivers. Its methods are called one at a time, and may be called
    again for the same claims: after a crash, it is unknown whether the last call completed.

    `taken`: the ledger's entries by claim uid. It persists across restarts, so that a driver that
    only counts devices needs no storage of its own. `nodes`, `classes`: the nodes and
    ResourceClasses of the cluster by name, at the time of the call.
    """

    name = ""  # as in ResourceClass.driverName
    taken: Mapping[str, Entry]
    nodes: Mapping[str, Node]
    classes: Mapping[str, ResourceClass]

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Iterable[str]:
        """Returns the nodes, of those given, on which the claims cannot all be allocated together.
        Claims that the ledger has devices for on a node count as allocated there. Some of the nodes
        may have been deleted."""
        raise NotImplementedError

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        """Allocates devices for all of these claims, usable on the node ("": on any node), and
        returns one Allocation per claim. Raises RefusedError if nothing was allocated.

        Returns the same devices again for a claim that already has devices. For claims of a pod
        that waits, `unsuitable_nodes` was called with the pod, the claims and the node before.
        """
        raise NotImplementedError

    def deallocate(self, claim: Entry) -> None:
        """Frees the devices of the claim, if it has any. Raises RefusedError to be called again
        later."""
        raise NotImplementedError
