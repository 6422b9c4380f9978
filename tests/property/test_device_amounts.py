"""Amounts of devices are exact, down to the smallest that a quantity can say."""

from fractions import Fraction
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stower.devices.capacity import capacity_of, taken_amount
from stower.devices.overview import overview
from stower.model.kinds.resource_slice import DeviceCapacity
from stower.state.device_usage import UNUSED
from stower.state.devices import devices_of
from tests.device_builders import GPU, device, device_slice, resource_claim

# How quantities are written: a number of so much each.
UNITS = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
         "k": Fraction(1000), "Ki": Fraction(1024)}  # fmt: skip
texts = st.tuples(st.integers(1, 10**7), st.sampled_from([*UNITS])).map(lambda t: f"{t[0]}{t[1]}")


def exact(text: str) -> Fraction:
    """The number that a quantity says."""
    digits = text.rstrip("numkKi")
    return Fraction(digits) * UNITS[text[len(digits) :]]


def holding(i: int, amount: str) -> Any:
    """A claim that has a share."""
    share = f"{i:08}-1111-1111-1111-111111111111"
    result = {"request": "r", "driver": GPU, "pool": "n1", "device": "d", "shareID": share,
              "consumedCapacity": {"memory": amount}}  # fmt: skip
    return resource_claim(f"c{i}", status={"allocation": {"devices": {"results": [result]}}})


@given(st.lists(texts, max_size=6), texts)
def test_sums_are_exact(amounts: list[str], whole: str) -> None:
    claims = [holding(i, amount) for i, amount in enumerate(amounts)]
    devices = devices_of([device_slice("n1", device("d", memory=whole, shared=True)), *claims])
    usage = devices.usage((GPU, "n1")).get("d", UNUSED)
    taken = sum(map(exact, amounts), Fraction(0))
    assert taken == Fraction(dict(usage.consumed_capacity).get("memory", 0), 10**9)
    found = overview(devices, [])
    assert found is not None
    assert exact(whole) - taken == exact_signed(found.devices[0].capacity["memory"].left)
    assert found.devices[0].overcommitted == (taken > exact(whole))


def exact_signed(text: str) -> Fraction:
    """As `exact`; an amount in another notation may be negative."""
    for suffix, unit in (("Mi", 1024**2), ("Gi", 1024**3), ("M", 10**6), ("G", 10**9)):
        if text.endswith(suffix):
            return Fraction(text.removesuffix(suffix)) * unit
    sign = -1 if text.startswith("-") else 1
    return sign * exact(text.removeprefix("-"))


@given(texts, texts, texts, texts)
def test_what_a_policy_takes_is_exact(whole: str, least: str, step: str, asked: str) -> None:
    """The least, or as many steps more as are needed."""
    bounds = {"min": least, "step": step}
    capacity = {"value": whole, "requestPolicy": {"default": least, "validRange": bounds}}
    found = taken_amount(capacity_of(msgspec.convert(capacity, DeviceCapacity)), asked)
    assert found is not None
    steps = max(0, -((exact(least) - exact(asked)) // exact(step)))
    assert exact(least) + steps * exact(step) == Fraction(found.nano, 10**9)
    assert Fraction(found.nano, 10**9) == exact_signed(found.text)
