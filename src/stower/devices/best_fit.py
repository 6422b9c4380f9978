"""Which device, where several would do: the one of which the least is left over.

Upstream takes the first. A device that is taken whole leaves over what was not asked for; a shared
one, what is left for others. Of equally good ones, the first.
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
