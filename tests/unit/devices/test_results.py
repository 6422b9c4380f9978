"""What is written of an allocation."""

from typing import Any

import pytest

from stower.devices.requests import plan_of
from stower.devices.results import allocation_of
from stower.framework.device_gates import DeviceGates
from stower.model.kinds import ResourceSlice
from stower.model.kinds.resource_claim import AllocationResult
from tests.builders import make_node
from tests.device_builders import device, device_class, device_slice, resource_claim
from tests.device_search import search


def allocated(*slices: ResourceSlice, gates: DeviceGates | None = None) -> AllocationResult:
    """What is written of one device, on node n1 in zone a."""
    claim, classes, gates = resource_claim(), {"gpu": device_class()}, gates or DeviceGates()
    node = make_node("n1", labels={"zone": "a"})
    (given,) = search(*slices, claim, node=node, gates=gates) or ((),)
    plan = plan_of(claim, 0, classes, gates)
    return allocation_of(claim, plan, given, classes, "n1", gates, str)


def nodes(allocation: AllocationResult) -> list[Any]:
    """Each term of the node selector: key and values of what it asks for."""
    terms = allocation.node_selector.node_selector_terms if allocation.node_selector else None
    asked = [(*(t.match_fields or ()), *(t.match_expressions or ())) for t in terms or ()]
    return [[(r.key, *(r.values or ())) for r in requirements] for requirements in asked]


@pytest.mark.behaviour("S2.36")
@pytest.mark.parametrize(("binds", "expected"), [(True, [[("metadata.name", "n1")]]), (False, [])])
def test_a_device_that_binds_to_its_node_is_for_that_node_alone(
    binds: bool, expected: list[Any]
) -> None:
    """Though all nodes could have reached it."""
    pool = device_slice("", device("a", bindsToNode=binds), pool="p")
    assert expected == nodes(allocated(pool))


def test_of_a_slice_with_two_terms_the_first_counts() -> None:
    """The API server allows one term only; upstream looks at no other."""
    zones = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"
    ]
    pool = device_slice(
        "", device("a"), pool="p", allNodes=None, nodeSelector={"nodeSelectorTerms": zones}
    )
    assert [[("zone", "a")]] == nodes(allocated(pool))


@pytest.mark.behaviour("S2.36")
@pytest.mark.parametrize("binding", [True, False])
def test_conditions_are_written_only_where_they_are_looked_at(binding: bool) -> None:
    """An empty list of conditions is still a list."""
    needs: Any = {"bindingConditions": [], "bindingFailureConditions": ["a.b/failed"]}
    found = allocated(device_slice("n1", device("a", **needs)), gates=DeviceGates(binding=binding))
    (result,) = found.devices.results or ()
    expected = ((), ("a.b/failed",)) if binding else (None, None)
    assert expected == (result.binding_conditions, result.binding_failure_conditions)
