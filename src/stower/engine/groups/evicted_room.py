"""What nodes have free once some pods are evicted, in amounts: an upper bound that costs less than
to remove the pods in a trial.

Must not know why they are evicted.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Final

import numpy as np

from stower.framework.dry_run import CapacityConstraint, no_usage
from stower.state.arrays import Ints
from stower.state.devices import Devices, may_use_devices, used_claim_keys
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape

UNKNOWN: Final = 1 << 20  # more devices than a pod has, few enough for the sum of all pods


class EvictedRoom:
    """The amounts that evicted pods leave on their rows."""

    def __init__(self, evicted: Iterable[PodEntry], devices: Devices) -> None:
        self._evicted = list(evicted)
        self._devices = devices
        self._amounts: dict[str, Ints] = {}  # by row, of each constraint

    def constraints(self, rooms: Iterable[CapacityConstraint]) -> list[CapacityConstraint]:
        """Returns the constraints as if the pods were gone, without those of which that is not
        known."""
        return [found for room in rooms if (found := self._constraint(room)) is not None]

    def _constraint(self, room: CapacityConstraint) -> CapacityConstraint | None:
        empty = room.empty
        if room.usage is no_usage:
            if empty is not None:
                return room._replace(free=empty)
            if not room.is_discrete:
                return None
            amounts = self._device_counts  # of single items, devices: who has some leaves some
        else:
            amounts = self._amounts_of(room)

        def free(rows: slice) -> Ints:
            found = room.free(rows)
            here = amounts[rows]
            found = found + np.concatenate((here, np.zeros(len(found) - len(here), np.int64)))
            return found if empty is None else np.minimum(found, empty(rows))

        return room._replace(free=free)

    @cached_property
    def _rows(self) -> Ints:
        return np.fromiter((entry.row for entry in self._evicted), np.intp, len(self._evicted))

    def _by_row(self, amounts: Ints) -> Ints:
        """Returns int64[up to the last row of a pod]: sums of amounts, int64[evicted]."""
        found = np.zeros(int(self._rows.max(initial=-1)) + 1, np.int64)
        np.add.at(found, self._rows, amounts)
        return found

    @cached_property
    def _device_counts(self) -> Ints:
        """How many devices evicted pods leave, by row, whichever these are: no amount is about
        devices that several nodes reach."""
        counts = (self._count_devices(e) if may_use_devices(e) else 0 for e in self._evicted)
        return self._by_row(np.fromiter(counts, np.int64, len(self._evicted)))

    def _count_devices(self, entry: PodEntry) -> int:
        devices, requests = self._devices, entry.shape.extended_requests
        claims = [devices.claim(key) for key in used_claim_keys(entry.pod)]
        extended = devices.extended_resource_claim(entry.uid)
        if extended is not None:  # its allocation may be assumed, and is not in the API yet
            claims.append(devices.claim(extended.metadata.key))
        elif any(column.name in devices.class_by_resource for column, _ in requests):
            return UNKNOWN  # it is being made
        allocations = (claim.status.allocation for claim in claims if claim is not None)
        return sum(len(each.devices.results or ()) for each in allocations if each is not None)

    @cached_property
    def _shapes(self) -> tuple[list[Shape], Ints]:
        """The shapes of the pods, and int64[evicted]: which of them each pod has."""
        numbers: dict[int, int] = {}
        shapes: list[Shape] = []
        of_pod = np.zeros(len(self._evicted), np.intp)
        for i, entry in enumerate(self._evicted):
            shape = entry.shape
            number = numbers.get(shape.serial)
            if number is None:
                number = numbers[shape.serial] = len(shapes)
                shapes.append(shape)
            of_pod[i] = number
        return shapes, of_pod

    def _amounts_of(self, room: CapacityConstraint) -> Ints:
        amounts = self._amounts.get(room.name)
        if amounts is None:
            shapes, of_pod = self._shapes
            usage = np.array([room.usage(shape) for shape in shapes], np.int64)
            amounts = self._amounts[room.name] = self._by_row(usage[of_pod])
        return amounts
