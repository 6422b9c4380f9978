"""Reads the requests and constraints of a claim into a plan, once for all claims with equal specs.

Source: resource.k8s.io/v1 DeviceClaim; dynamic-resource-allocation allocator
(validateDeviceRequest).
"""

from collections.abc import Mapping
from typing import NamedTuple

from stower.devices.avoided_devices import Avoided, DeviceID
from stower.framework.device_gates import DeviceGates
from stower.model.kinds.device_class import DeviceClass, DeviceSelector
from stower.model.kinds.resource_claim import (
    ALL,
    EXACT_COUNT,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from stower.model.kinds.resource_slice import DeviceTaint, QuantityText
from stower.model.taints import is_tolerated


class AllocationError(Exception):
    """Something is wrong with a claim, its class or a pool, whatever devices are free.

    `claim` is the index of the claim that `text` is about, -1 where it stands for itself.
    `on_node_only`: the node is refused, and no more is said. `here`: it is told where no node will
    do; any other ends the attempt, whatever other nodes have.
    """

    def __init__(
        self, text: str, claim: int = -1, on_node_only: bool = False, here: bool = False
    ) -> None:
        super().__init__(text)
        self.text = text
        self.claim = claim
        self.on_node_only = on_node_only
        self.here = here

    def message(self, keys: tuple[str, ...]) -> str:
        """The text, with the claim's key (namespace/name) before it."""
        return self.text if self.claim < 0 else f"claim {keys[self.claim]}{self.text}"


class Alternative(NamedTuple):
    """A request, or one of its alternatives."""

    name: str  # of the request, or of the alternative in it
    parent: str  # the request's name, where this is one of its alternatives
    class_name: str
    class_selectors: tuple[DeviceSelector, ...]
    selectors: tuple[DeviceSelector, ...]
    takes_all: bool
    number: int
    admin: bool
    tolerations: tuple[DeviceToleration, ...]
    amounts: Mapping[str, QuantityText]

    @property
    def full_name(self) -> str:
        """request, or request/alternative."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Whether a taint does not keep the request from the device."""
        return is_tolerated(self.tolerations, taint)


class Constraint(NamedTuple):
    """An attribute that devices must share, or must not (`distinct`). `requests`: of whom, ()
    for all."""

    attribute: str
    distinct: bool
    requests: frozenset[str]

    def concerns(self, alternative: Alternative) -> bool:
        """Whether the devices of this request have to do with it."""
        if not self.requests:
            return True
        whole = alternative.parent or alternative.name
        return whole in self.requests or alternative.full_name in self.requests


class ClaimPlan(NamedTuple):
    """One claim: for each request its alternatives (one, where there is no choice)."""

    requests: tuple[tuple[Alternative, ...], ...]
    constraints: tuple[Constraint, ...]
    avoided: frozenset[DeviceID] = frozenset()  # devices that it does not get now

    def without(self, avoided: Avoided) -> "ClaimPlan":
        """Returns the plan without what is avoided; a request keeps its alternatives where all of
        them are."""
        requests = [
            tuple(a for a in alternatives if a.full_name not in avoided.alternatives)
            or alternatives
            for alternatives in self.requests
        ]
        return self._replace(requests=tuple(requests), avoided=avoided.devices)


def plan_of(
    claim: ResourceClaim, index: int, classes: Mapping[str, DeviceClass], gates: DeviceGates
) -> ClaimPlan:
    """The claim at this index, checked. AllocationError where it can be given nothing at all."""
    devices = claim.spec.devices
    requests = []
    for request in devices.requests or ():
        alternatives = request.first_available or ()
        if alternatives and not gates.prioritized_list:
            raise AllocationError(
                f", request {request.name}: has subrequests, but the DRAPrioritizedList feature is "
                "disabled",
                index,
            )
        if not gates.consumable:
            _no_amounts(request.exactly, request.name, "request", index)
            for alternative in alternatives:
                _no_amounts(alternative, alternative.name, "subrequest", index)
        if alternatives:
            given = tuple(
                _alternative(sub, sub.name, request.name, index, classes, gates)
                for sub in alternatives
            )
        else:
            exactly = request.exactly or ExactDeviceRequest()
            given = (_alternative(exactly, request.name, "", index, classes, gates),)
        requests.append(given)
    constraints = []
    for number, constraint in enumerate(devices.constraints or ()):
        attribute = constraint.match_attribute or constraint.distinct_attribute
        if attribute is None:
            raise AllocationError(
                f", constraint #{number}: empty constraint (unsupported constraint type?)", index
            )
        of = frozenset(constraint.requests or ())
        constraints.append(Constraint(attribute, constraint.match_attribute is None, of))
    return ClaimPlan(tuple(requests), tuple(constraints))


def _no_amounts(request: ExactDeviceRequest | None, name: str, what: str, index: int) -> None:
    if request is not None and request.capacity is not None:
        raise AllocationError(
            f", {what} {name}: has capacity requests, but the DRAConsumableCapacity feature is "
            "disabled",
            index,
        )


def _alternative(
    request: ExactDeviceRequest,
    name: str,
    parent: str,
    index: int,
    classes: Mapping[str, DeviceClass],
    gates: DeviceGates,
) -> Alternative:
    for number, selector in enumerate(request.selectors or ()):
        if selector.cel is None:
            raise AllocationError(
                f", request {name}, selector #{number}: CEL expression empty (unsupported selector "
                "type?)",
                index,
            )
    if request.admin_access is not None and not gates.admin_access:
        text = f", request {name}: admin access is requested, but the feature is disabled"
        raise AllocationError(text, index)
    class_name = request.device_class_name
    if not class_name:
        text = f", request {name}: missing device class name (unsupported request type?)"
        raise AllocationError(text, index)
    device_class = classes.get(class_name)
    if device_class is None:
        raise AllocationError(
            f", request {name}: could not retrieve device class {class_name}: "
            f'deviceclass.resource.k8s.io "{class_name}" not found',
            index,
        )
    if request.allocation_mode not in (EXACT_COUNT, ALL):
        text = f", request {name}: unsupported count mode {request.allocation_mode}"
        raise AllocationError(text, index)
    amounts = request.capacity.requests if request.capacity is not None else None
    return Alternative(
        name,
        parent,
        class_name,
        device_class.spec.selectors or (),
        request.selectors or (),
        request.allocation_mode == ALL,
        request.count,
        bool(request.admin_access),
        request.tolerations or (),
        amounts or {},
    )
