"""The search: what it goes back for, and what it must not take for the same."""

from typing import Any

import pytest

from tests.device_builders import device, device_slice, request, resource_claim
from tests.device_search import SLOT, counted, counted_pool, found, held, in_slot


def at(name: str, slot: int, **fields: Any) -> dict[str, Any]:
    """A device in a slot."""
    return device(name, attributes={"slot": {"int": slot}}, **fields)


def alternatives(name: str, *asked: dict[str, Any]) -> dict[str, Any]:
    """A request that any of these would do for."""
    given = [{"name": f"{i}", **each["exactly"]} for i, each in enumerate(asked)]
    return {"name": name, "firstAvailable": given}


@pytest.mark.behaviour("S2.33")
def test_it_matters_which_device_a_constraint_has_seen() -> None:
    """After a1 and b1 nothing is left for r3; after b1 and a1, the same devices, b2 is."""
    three = device_slice("n1", at("a1", 1), at("b1", 2), at("b2", 2))
    wanted = resource_claim(
        "c1", *map(request, ("r1", "r2", "r3")),
        constraints=[{"requests": ["r1", "r3"], "matchAttribute": SLOT}],
    )  # fmt: skip
    assert ["b1", "a1", "b2"] == found(three, wanted)


def test_it_matters_which_of_the_claims_has_a_device() -> None:
    """No claim has a device twice, so r3 gets `y` only where c0 has it."""
    admin = request("r3", adminAccess=True, **in_slot(2))
    claims = resource_claim("c0", request("r1")), resource_claim("c1", request("r2"), admin)
    assert ["y", "x", "y"] == found(device_slice("n1", at("x", 1), at("y", 2)), *claims)


@pytest.mark.behaviour("S2.1", "S2.19")
def test_equal_devices_that_are_shared_are_not_alike_any_more() -> None:
    """The last request fits only if the second goes to B, which was like A before the first."""
    shared = (device(name, "10Gi", shared=True) for name in "AB")
    asked = [request(f"r{i}", memory=f"{count}Gi") for i, count in enumerate((5, 3, 5, 7))]
    assert ["A", "B", "A", "B"] == found(device_slice("n1", *shared), resource_claim("c1", *asked))


@pytest.mark.behaviour("S2.33")
def test_a_claim_has_32_devices_at_most() -> None:
    """An alternative that would be one too many is passed over."""
    many = device_slice("n1", *(device(f"d{i}") for i in range(40)))
    asked = alternatives("r", request(count=33), request(count=32))
    assert 32 == len(found(many, resource_claim("c1", asked)) or ())


@pytest.mark.behaviour("S2.33")
def test_the_limit_counts_the_devices_of_each_claim_by_itself() -> None:
    """First tried: one device for c0 and two for c1, which leaves no room for 31 more in c1. The
    other way round the same devices are taken, and there is."""
    whole = {"shared": True, "memory": "1Gi"}
    one, pair = at("one", 1, **whole), (at("x", 2, **whole), at("y", 2, **whole))
    others = (at(f"d{i:02}", 3, **whole) for i in range(31))
    single, double = request("s", **in_slot(1)), request("d", count=2, **in_slot(2))
    claims = (
        resource_claim("c0", alternatives("r", single, double)),
        resource_claim("c1", alternatives("r", double, single), request(count=31, **in_slot(3))),
    )
    given = found(device_slice("n1", one, *pair, *others), *claims)
    assert ["x", "y", "one"] == (given or [])[:3]
    assert 34 == len(given or ())


@pytest.mark.behaviour("S2.22")
def test_nothing_more_is_drawn_from_a_pool_that_is_overdrawn() -> None:
    """Not of another counter either: what the driver says does not agree with what is in use."""
    devices = (counted("a", "8Gi"), counted("b", "1", counter="cores"))
    one = request("r", **in_slot(2))
    devices[1]["attributes"] = {"slot": {"int": 2}}
    devices[0]["attributes"] = {"slot": {"int": 1}}
    enough = counted_pool("p", *devices, memory="8Gi", cores="4")
    less = counted_pool("p", *devices, memory="4Gi", cores="4")
    wanted = resource_claim("c1", one)
    assert ["b"] == found(*enough, held("c0", "p", "a"), wanted)
    assert ["b"] == found(*less, wanted)
    assert None is found(*less, held("c0", "p", "a"), wanted)


@pytest.mark.behaviour("S2.22", "S2.23")
def test_devices_that_take_of_different_pools_are_not_alike() -> None:
    """The whole of p is needed for the second request, so the first goes to q."""
    whole = counted("whole", "8Gi", attributes={"slot": {"int": 9}})
    slot: Any = {"attributes": {"slot": {"int": 1}}}
    first = counted_pool("p", counted("half-p", "4Gi", **slot), whole, memory="8Gi")
    second = counted_pool("q", counted("half-q", "4Gi", **slot), memory="8Gi")
    wanted = resource_claim("c1", request("r1", **in_slot(1)), request("r2", **in_slot(9)))
    assert ["half-q", "whole"] == found(*first, *second, wanted)
