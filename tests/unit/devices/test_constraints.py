"""Which values of an attribute are the same."""

from typing import Any

import pytest

from stower.devices.constraints import values_of
from stower.model.kinds.resource_slice import DeviceAttribute
from tests.device_builders import device, device_slice, request, resource_claim
from tests.device_search import SLOT, found


@pytest.mark.behaviour("S2.20")
@pytest.mark.parametrize(
    ("one", "other"),
    [({"int": 1}, {"bool": True}), ({"string": "1.0.0"}, {"version": "1.0.0"})],
)
def test_values_of_different_types_are_different(one: Any, other: Any) -> None:
    """However alike they look."""
    devices = [device(f"d{i}", attributes={"slot": each}) for i, each in enumerate((one, other))]
    pool, pair = device_slice("n1", *devices), request(count=2)
    distinct = resource_claim("c1", pair, constraints=[{"distinctAttribute": SLOT}])
    match = resource_claim("c1", pair, constraints=[{"matchAttribute": SLOT}])
    assert (["d0", "d1"], None) == (found(pool, distinct), found(pool, match))


@pytest.mark.parametrize(("lists", "kind"), [(False, "string"), (True, "int")])
def test_of_an_attribute_with_two_values_the_one_counts_that_upstream_sees_first(
    lists: bool, kind: str
) -> None:
    """The API server refuses such attributes."""
    both = DeviceAttribute(int_value=1, string_value="a", bool_value=True, version_value="1.0.0")
    values = values_of(both, lists)
    assert kind == (values[0] if values is not None else "")
