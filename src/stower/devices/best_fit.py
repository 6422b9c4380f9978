"""Orders suitable devices by best fit: the device with the least remaining capacity comes first.

Upstream takes the first suitable device. The remaining capacity of a device that is allocated as a
whole is the capacity beyond the request; of a shared device, the capacity that stays free for
others. Equal devices keep their order.
"""

from stower.devices.allocator import Candidate
from stower.devices.capacity import Amount, amount
from stower.devices.requests import Alternative

SCALE = 1_000_000


def best_fit(alternative: Alternative, candidate: Candidate, amounts: dict[str, Amount]) -> int:
    """Sum over the capacities of the millionths that are left over; less is better."""
    left = 0
    for name, capacity in candidate.content.capacity.items():
        whole = capacity.whole.nano
        if whole <= 0:
            continue
        if candidate.content.is_shared:
            used = candidate.taken.get(name, 0) + amounts[name].nano if name in amounts else 0
        else:
            asked = alternative.amounts.get(name)
            used = amount(asked).nano if asked is not None else whole
        left += SCALE * (whole - used) // whole
    return left
