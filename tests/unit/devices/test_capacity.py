"""What a request takes of a capacity, and what is refused."""

import msgspec
import pytest

from stower.devices.capacity import capacity_of, taken_amount
from stower.model.kinds.resource_slice import DeviceCapacity


@pytest.mark.behaviour("S2.5", "S2.10")
@pytest.mark.parametrize(("value", "text"), [("9", "9"), ("10", "")])
def test_all_of_it_is_taken_only_where_that_is_a_whole_number_of_steps(
    value: str, text: str
) -> None:
    """Of a range without a default, which the API server refuses today."""
    policy = {"validRange": {"min": "1", "step": "2"}}
    capacity = msgspec.convert({"value": value, "requestPolicy": policy}, DeviceCapacity)
    found = taken_amount(capacity_of(capacity), None)
    assert text == (found.text if found is not None else "")
