"""What the author of a driver writes."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from stower.driver.ledger import Entry
from stower.model.kinds import Node, Pod, ResourceClaim, ResourceClass


class Refused(Exception):
    """Nothing can be allocated there, now; the text says why, for whoever reads Events."""


class Allocation(NamedTuple):
    """What one claim is given. `devices`: (request, pool, device) of each, of which there may be
    none (an optional device that is not there); `nodes`: the nodes that reach them, or the labels
    of these nodes; None for all nodes."""

    devices: Sequence[tuple[str, str, str]] = ()
    nodes: Collection[str] | Mapping[str, str] | None = None

    def status(self, driver: str) -> dict[str, Any]:
        """As status.allocation of a claim has it."""
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


class Wanted(msgspec.Struct, frozen=True):
    """Devices that a claim asks for: under which request an allocation names them, of which class,
    and how many."""

    request: str
    class_name: str
    count: int


def wanted(claim: ResourceClaim) -> list[Wanted]:
    """What a claim asks for, request by request; of alternatives the first. A driver that serves
    others of them looks at claim.spec.devices.requests itself."""
    found = []
    for request in claim.spec.devices.requests or ():
        one, name = request.exactly, request.name
        if one is None and request.first_available:
            one = request.first_available[0]
            name = f"{request.name}/{one.name}"
        if one is not None:
            found.append(Wanted(name, one.device_class_name, one.count or 1))
    return found


class Driver:
    """A driver. Its methods are called one at a time, and may be called again for the same claims:
    after a crash, nobody knows how far the last call has come.

    `taken`: what was taken so far, by claim uid. It is kept for the driver across restarts, so that
    one that only counts needs no memory of its own. `nodes`, `classes`: the nodes and
    ResourceClasses of the cluster by name, as they were when the method was called.
    """

    name = ""  # as in ResourceClass.driverName
    taken: Mapping[str, Entry]
    nodes: Mapping[str, Node]
    classes: Mapping[str, ResourceClass]

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Iterable[str]:
        """The nodes among these on which the claims cannot all be allocated together: of claims for
        which something was taken there before, as good as allocated. Some may be gone by now."""
        raise NotImplementedError

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        """Take devices for all of these claims, so that they can be used on the node ("": on any):
        one allocation for each claim. Raises Refused, having taken nothing.

        For a claim for which devices were taken before, the same. For a claim that waits for a pod,
        `unsuitable_nodes` was asked about pod, claims and node before.
        """
        raise NotImplementedError

    def deallocate(self, claim: Entry) -> None:
        """Give back what was taken for the claim, if anything was. Raises Refused: try later."""
        raise NotImplementedError
