"""What nodes have free once some pods are evicted, in amounts: an upper bound that costs less than
to remove the pods in a trial.

Must not know why they are evicted.
"""

from collections.abc import Iterable

import numpy as np

from stower.framework.dry_run import CapacityConstraint, no_usage
from stower.state.arrays import Ints
from stower.state.devices import may_use_devices
from stower.state.pod_entry import PodEntry


class EvictedRoom:
    """The amounts that evicted pods leave on their rows."""

    def __init__(self, evicted: Iterable[PodEntry]) -> None:
        self._evicted = list(evicted)
        self._has_devices = any(map(may_use_devices, self._evicted))
        self._amounts: dict[str, dict[int, int]] = {}  # by constraint and row

    def constraints(self, rooms: Iterable[CapacityConstraint]) -> list[CapacityConstraint]:
        """Returns the constraints as if the pods were gone, without those of which that is not
        known."""
        return [found for room in rooms if (found := self._constraint(room)) is not None]

    def _constraint(self, room: CapacityConstraint) -> CapacityConstraint | None:
        empty = room.empty
        if room.usage is no_usage:
            if empty is not None:
                return room._replace(free=empty)
            # Single items, such as devices: only who has some leaves some.
            return room if room.is_discrete and not self._has_devices else None
        amounts = self._amounts_of(room)

        def free(rows: slice) -> Ints:
            found = room.free(rows)
            first = rows.start or 0
            if amounts:
                found = found.copy()
                for row, amount in amounts.items():
                    if first <= row < rows.stop:
                        found[row - first] += amount
            return found if empty is None else np.minimum(found, empty(rows))

        return room._replace(free=free)

    def _amounts_of(self, room: CapacityConstraint) -> dict[int, int]:
        amounts = self._amounts.get(room.name)
        if amounts is None:
            amounts = self._amounts[room.name] = {}
            by_shape: dict[int, int] = {}
            for entry in self._evicted:
                shape = entry.shape
                amount = by_shape.get(shape.serial)
                if amount is None:
                    amount = by_shape[shape.serial] = room.usage(shape)
                amounts[entry.row] = amounts.get(entry.row, 0) + amount
        return amounts
