"""Sums the CPU and memory of all pods on each row, for filters and scores.

Counts the pods that the cluster state has on the row, including assumed pods, each with at least
what is known to be reserved for it. Follows trials, so that filters can be run as if pods had left.
"""

from collections.abc import Callable

import numpy as np

from stower.model.kinds import Pod
from stower.state.arrays import Ints, grow_array
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.vms.amounts import CPU_MASK, MEMORY_MASK
from stower.vms.nodes import InvalidHoldingError, discounted_amount
from stower.vms.notes import ERROR, Notes
from stower.vms.pods import BadPod, PodState, pod_state

Amounts = tuple[int, int]  # milli-CPU and bytes, discounted
# Beyond all that a row can have, and far from where sums of 64 bits end.
AMOUNT_MAX = 1 << 50


class Ledger:
    """int64[capacity] each: `cpu` in thousandths, `memory` in bytes."""

    def __init__(
        self,
        state: ClusterState,
        held: Callable[[str, str], PodState | None],
        notes: Notes,
        counted: Callable[[Pod], Pod],
    ) -> None:
        """held: what is known of a pod on a node; counted: a pod as it counts otherwise."""
        self._view = counted
        self.cpu: Ints = np.zeros(state.capacity, np.int64)
        self.memory: Ints = np.zeros(state.capacity, np.int64)
        self._state = state
        self._held = held
        self._notes = notes
        self.shrunk: dict[str, None] = {}  # uids of pods that hold less than before
        self._counted: dict[str, Amounts] = {}  # by the uid of pods that are placed

    def add_pod(self, entry: PodEntry, row: int) -> None:
        """See PlacementListener."""
        amounts = self._counted[entry.uid] = self._amounts(entry, row)
        self.cpu[row] += amounts[0]
        self.memory[row] += amounts[1]

    def remove_pod(self, entry: PodEntry, row: int) -> None:
        """See PlacementListener."""
        cpu, memory = self._counted.pop(entry.uid)
        self.cpu[row] -= cpu
        self.memory[row] -= memory

    def update_pod(self, entry: PodEntry) -> None:
        """See PlacementListener; or more is known of it."""
        before = self._counted.get(entry.uid)
        if before is not None:
            row = entry.row
            self.remove_pod(entry, row)
            self.add_pod(entry, row)
            now = self._counted[entry.uid]
            if now[0] < before[0] or now[1] < before[1]:
                self.shrunk[entry.uid] = None

    def amounts_on(self, entry: PodEntry, row: int) -> Amounts:
        """What a pod holds of a row, or would hold."""
        counted = self._counted.get(entry.uid) if entry.row == row else None
        return self._amounts(entry, row) if counted is None else counted

    def grow(self, capacity: int) -> None:
        """See PlacementListener."""
        self.cpu = grow_array(self.cpu, capacity)
        self.memory = grow_array(self.memory, capacity)

    def _amounts(self, entry: PodEntry, row: int) -> Amounts:
        known = self._held(entry.uid, self._state.node_names[row])
        found = amounts_of(known if known is not None else self._view(entry.pod))
        if found is None:
            text = "Ignoring extra Pod in Filter stage because extracting custom state failed"
            self._notes.add(ERROR, text, entry.pod.key)
        return found or (0, 0)


class RowRoom:
    """A DryRun: whether a row has room for these amounts."""

    def __init__(self, ledger: Ledger, row: int, need: Amounts, allocatable: Amounts) -> None:
        self._ledger = ledger
        self._row = row
        self._cpu = allocatable[0] - int(ledger.cpu[row]) - need[0]
        self._memory = allocatable[1] - int(ledger.memory[row]) - need[1]

    def add(self, entry: PodEntry) -> None:
        """See DryRun."""
        self._count(entry, -1)

    def remove(self, entry: PodEntry) -> None:
        """See DryRun."""
        self._count(entry, 1)

    def code(self) -> int:
        """See DryRun: 1 where the row lacks CPU or memory."""
        return int(self._cpu < 0 or self._memory < 0)

    def _count(self, entry: PodEntry, sign: int) -> None:
        cpu, memory = self._ledger.amounts_on(entry, self._row)
        self._cpu += sign * cpu
        self._memory += sign * memory


def amounts_of(pod: Pod | PodState) -> Amounts | None:
    """What a pod takes of a node; None where it does not say so."""
    try:
        state = pod_state(pod) if isinstance(pod, Pod) else pod
        return (
            min(discounted_amount(state.cpu, CPU_MASK), AMOUNT_MAX),
            min(discounted_amount(state.memory, MEMORY_MASK), AMOUNT_MAX),
        )
    except (BadPod, InvalidHoldingError):
        return None
