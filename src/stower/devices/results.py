"""Builds the `status.allocation` of a claim from the chosen devices: device results, configuration,
and the node selector of the nodes where the allocation can be used.

Source: dynamic-resource-allocation allocator (the end of Allocate, createNodeSelector).
"""

from collections.abc import Callable, Mapping, Sequence

from stower.devices.allocator import AllocatedDevice
from stower.devices.requests import Alternative, ClaimPlan
from stower.framework.device_gates import DeviceGates
from stower.model.kinds.device_class import DeviceClass
from stower.model.kinds.resource_claim import (
    AllocatedConfig,
    AllocatedDevices,
    AllocationResult,
    DeviceResult,
    ResourceClaim,
)
from stower.model.kinds.resource_slice import QuantityText
from stower.model.selectors import (
    IN,
    NODE_NAME_FIELD,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
)


def allocation_of(
    claim: ResourceClaim,
    plan: ClaimPlan,
    given: Sequence[AllocatedDevice],
    classes: Mapping[str, DeviceClass],
    node_name: str,
    gates: DeviceGates,
    share_id: Callable[[int], str],
) -> AllocationResult:
    """The claim's `status.allocation`. `share_id(i)`: a UUID for the i-th device, where it is
    shared."""
    results = tuple(_result(one, gates, share_id, at) for at, one in enumerate(given))
    config = _config(claim, plan, given, classes)
    return AllocationResult(
        AllocatedDevices(results, config or None), _node_selector(given, node_name)
    )


def _result(
    given: AllocatedDevice, gates: DeviceGates, share_id: Callable[[int], str], at: int
) -> DeviceResult:
    alternative, record, taken = given
    content = record.content
    consumed: dict[str, QuantityText] | None = (
        None if not taken else {name: part.text for name, part in taken.items()}
    )
    return DeviceResult(
        request=alternative.full_name,
        driver=record.pool[0],
        pool=record.pool[1],
        device=record.name,
        admin_access=True if alternative.admin else None,
        tolerations=alternative.tolerations or None,
        binding_conditions=content.binding_conditions if gates.binding else None,
        binding_failure_conditions=content.binding_failure_conditions if gates.binding else None,
        share_id=None if taken is None else share_id(at),
        consumed_capacity=consumed or None,
    )


def _chosen_alternatives(plan: ClaimPlan, given: Sequence[AllocatedDevice]) -> list[Alternative]:
    """Of each request, the alternative that was met; the first where none needed a device."""
    met = {one.alternative.full_name for one in given}
    return [
        next((a for a in alternatives if a.full_name in met), alternatives[0])
        for alternatives in plan.requests
    ]


def _config(
    claim: ResourceClaim,
    plan: ClaimPlan,
    given: Sequence[AllocatedDevice],
    classes: Mapping[str, DeviceClass],
) -> tuple[AllocatedConfig, ...]:
    """Each class's parameters once, for all its requests; then the claim's that still apply."""
    chosen = _chosen_alternatives(plan, given)
    requests_of: dict[str, list[str]] = {}
    for alternative in chosen:
        requests_of.setdefault(alternative.class_name, []).append(alternative.full_name)
    found = [
        AllocatedConfig("FromClass", tuple(requests), config.opaque)
        for class_name, requests in requests_of.items()
        for config in classes[class_name].spec.config or ()
    ]
    for config in claim.spec.devices.config or ():
        if not config.requests:
            found.append(AllocatedConfig("FromClaim", config.requests, config.opaque))
            continue
        for alternative in chosen:
            names = (alternative.parent or alternative.name, alternative.full_name)
            if any(name in config.requests for name in names):
                found.append(AllocatedConfig("FromClaim", config.requests, config.opaque))
    return tuple(found)


def _node_selector(given: Sequence[AllocatedDevice], node_name: str) -> NodeSelector | None:
    """Which nodes can use all of the devices: this one alone, as soon as one device is tied to a
    node; else those that all selectors choose; None where all can."""
    fields: list[Requirement] = []
    labels: list[Requirement] = []
    for one in given:
        spec = one.record.slice.spec
        if spec.per_device_node_selection:
            nodes = one.record.nodes
            name, selector = (nodes.name, nodes.selector) if nodes is not None else (None, None)
        else:
            name, selector = spec.node_name, spec.node_selector
        if name is not None or one.record.content.binds_to_node:
            only = Requirement(NODE_NAME_FIELD, IN, (node_name,))
            return NodeSelector((NodeSelectorTerm(match_fields=(only,)),))
        for term in (selector.node_selector_terms or ())[:1] if selector is not None else ():
            _add(fields, term.match_fields or ())
            _add(labels, term.match_expressions or ())
    if not fields and not labels:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(labels) or None, tuple(fields) or None),))


def _add(known: list[Requirement], more: Sequence[Requirement]) -> None:
    for requirement in more:
        values = set(requirement.values or ())
        if not any(
            (old.key, old.operator) == (requirement.key, requirement.operator)
            and set(old.values or ()) == values
            for old in known
        ):
            known.append(requirement)
