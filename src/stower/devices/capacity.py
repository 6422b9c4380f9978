"""Computes the amount of a device's capacity that a request consumes, by the request policy.

Amounts are whole numbers of nano-units, so that fractions of a unit are exact, also in the step of
a range.

Source: KEP-5075 (Consumable Capacity); dynamic-resource-allocation consumable_capacity.go.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from stower.model.kinds.resource_slice import DeviceCapacity, QuantityText
from stower.model.quantity import Format, Quantity, quantity_of

NANO: Final = -9
UNIT: Final = 10**9


class Amount(NamedTuple):
    """An amount in nano-units, and as it is written."""

    nano: int
    text: str


@lru_cache(maxsize=65536)
def amount(text: QuantityText) -> Amount:
    """A quantity of an API object, which the API server has checked."""
    quantity = quantity_of(text)
    return Amount(quantity.round_up(NANO), str(quantity))


class Capacity(NamedTuple):
    """A capacity of a device, and its request policy. With neither values nor a range, any part of
    it may be taken."""

    whole: Amount
    default: Amount | None = None
    values: tuple[Amount, ...] = ()
    least: Amount | None = None
    most: int | None = None
    step: int | None = None


def capacity_of(capacity: DeviceCapacity) -> Capacity:
    """The capacity as numbers."""
    policy = capacity.request_policy
    whole = amount(capacity.value)
    if policy is None:
        return Capacity(whole)
    bounds = policy.valid_range
    return Capacity(
        whole,
        None if policy.default is None else amount(policy.default),
        tuple(amount(value) for value in policy.valid_values or ()),
        None if bounds is None or bounds.min is None else amount(bounds.min),
        None if bounds is None or bounds.max is None else amount(bounds.max).nano,
        None if bounds is None or bounds.step is None else amount(bounds.step).nano,
    )


def taken_amount(capacity: Capacity, requested: QuantityText | None) -> Amount | None:
    """What a request takes, None where the policy allows no such amount.

    Nothing asked for takes the default, or all of it where there is none.
    """
    if requested is None:
        return _allowed_amount(capacity, capacity.default or capacity.whole)
    wanted = amount(requested)
    if capacity.least is not None:
        wanted = _rounded(capacity.least, capacity.step, wanted)
    elif capacity.values:
        wanted = next((v for v in capacity.values if wanted.nano <= v.nano), wanted)
    return _allowed_amount(capacity, wanted)


def _rounded(least: Amount, step: int | None, wanted: Amount) -> Amount:
    """Up to the least, or to the least and a whole number of steps."""
    if wanted.nano <= least.nano:
        return least
    if not step or (wanted.nano - least.nano) % step == 0:
        return wanted
    steps = -((least.nano - wanted.nano) // step)
    nano = least.nano + steps * step
    whole, rest = divmod(nano, UNIT)
    quantity = Quantity(nano, NANO, Format.DECIMAL_SI) if rest else None
    return Amount(nano, str(quantity or Quantity.of(whole, Format.BINARY_SI)))


def _allowed_amount(capacity: Capacity, wanted: Amount) -> Amount | None:
    if wanted.nano < 0:
        return None  # which no API server refuses: it would give others more than there is
    if capacity.default is not None and wanted.nano == capacity.default.nano:
        return wanted
    if capacity.values:
        return wanted if any(value.nano == wanted.nano for value in capacity.values) else None
    if capacity.most is not None and wanted.nano > capacity.most:
        return None
    if capacity.step and capacity.least is not None:
        return wanted if (wanted.nano - capacity.least.nano) % capacity.step == 0 else None
    return wanted


def taken_amounts(
    capacities: Mapping[str, Capacity], requests: Mapping[str, QuantityText]
) -> dict[str, Amount] | None:
    """What a request takes of each capacity of a device; None where it cannot have it: it asks for
    a capacity that the device does not have, or for an amount that is not allowed."""
    if any(name not in capacities for name in requests):
        return None
    found = {}
    for name, capacity in capacities.items():
        part = taken_amount(capacity, requests.get(name))
        if part is None:
            return None
        found[name] = part
    return found
