"""The devices that a pod of a group would take, as amounts that a search can compare.

Must not know which devices a pod gets.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from stower.devices.fit_cache import Rules
from stower.devices.stock import Stock
from stower.framework.dry_run import CapacityConstraint
from stower.model.kinds import Pod, ResourceClaim
from stower.plugins.extended_claims import device_backed_rows, make_extended_claim
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

UNLIMITED: Final = 1 << 40  # more devices than a node has


def device_amounts(
    pod: Pod, shape: Shape, own: Sequence[ResourceClaim], state: ClusterState, rules: Rules
) -> tuple[CapacityConstraint, ...]:
    """Returns the amounts for the pod's own claims, and on the rows on which devices back extended
    resources of the pod, the amounts for both together."""
    stock = state.devices.extension(Stock)
    found = {each.name: each for each in stock.capacity_constraints(own, state, rules)}
    if not shape.extended_requests or not rules.gates.extended_resources:
        return tuple(found.values())
    for rows, names in device_backed_rows(shape, state):
        if not names:
            continue
        extended = make_extended_claim(pod, names, state.devices.class_by_resource)[0]
        for each in stock.capacity_constraints([*own, extended], state, rules):
            if rows.all():
                found[each.name] = each
                continue
            name = f"{each.name} for {', '.join(names)}"
            found[name] = each._replace(name=name, free=_only_on(rows, each.free))
    return tuple(found.values())


def _only_on(rows: Bools, free: Callable[[slice], Ints]) -> Callable[[slice], Ints]:
    """Returns amounts that are unlimited on all other rows."""

    def amounts(wanted: slice) -> Ints:
        return np.where(rows[wanted], free(wanted), UNLIMITED)

    return amounts
