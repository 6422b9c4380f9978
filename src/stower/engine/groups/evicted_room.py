"""What nodes have free once some pods are evicted, in amounts: an upper bound that costs less than
to remove the pods in a trial.

Must not know why they are evicted.
"""

from collections.abc import Sequence

import numpy as np

from stower.framework.dry_run import CapacityConstraint, no_usage
from stower.state.arrays import Ints
from stower.state.pod_entry import PodEntry


class EvictedRoom:
    """The amounts that evicted pods leave on their rows."""

    def __init__(self, evicted: Sequence[PodEntry], row_limit: int) -> None:
        self._evicted = evicted
        self._row_limit = row_limit
        self._amounts: dict[str, Ints] = {}  # by constraint, int64[row_limit]

    def constraint(self, room: CapacityConstraint) -> CapacityConstraint | None:
        """Returns the constraint as if the pods were gone, None where that is not known."""
        empty = room.empty
        if room.usage is no_usage:
            return None if empty is None else room._replace(free=empty)
        amounts = self._amounts_of(room)

        def free(rows: slice) -> Ints:
            found = room.free(rows) + amounts[rows]
            return found if empty is None else np.minimum(found, empty(rows))

        return room._replace(free=free)

    def _amounts_of(self, room: CapacityConstraint) -> Ints:
        amounts = self._amounts.get(room.name)
        if amounts is None:
            amounts = self._amounts[room.name] = np.zeros(self._row_limit, np.int64)
            by_shape: dict[int, int] = {}
            for entry in self._evicted:
                shape = entry.shape
                amount = by_shape.get(shape.serial)
                if amount is None:
                    amount = by_shape[shape.serial] = room.usage(shape)
                amounts[entry.row] += amount
        return amounts
