"""The book: a packer that follows the state of a cluster.

The book counts the pods that have arrived, in the order of their arrival, whenever it is called;
after a restart, the existing pods. It leaves out devices that several nodes reach: an allocation of
such a device would change all these nodes.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from stower.devices.allocator import Candidate
from stower.devices.capacity import Amount
from stower.devices.changed_rows import ChangedRows
from stower.devices.fit_cache import FitCache, Rules
from stower.devices.inventory import Content, Inventory, Views
from stower.devices.packing.mix import Request, Room
from stower.devices.packing.packer import Packer
from stower.devices.packing.shares import Kinds, free_share
from stower.devices.requests import AllocationError, Alternative
from stower.framework.device_gates import DeviceGates
from stower.model.kinds import Pod
from stower.model.kinds.resource_claim import ResourceClaim
from stower.model.resources import CPU, MEMORY
from stower.state.arrays import Bools, Floats, Ints
from stower.state.cluster import ClusterState
from stower.state.device_usage import UNUSED, DeviceUsage, PoolID
from stower.state.devices import Devices, claim_refs
from stower.state.shapes import Shape

# Pods whose claims were not there yet when they came: so many are remembered, and so many of them
# looked at again with each decision.
LATE_MAX: Final = 4_096
LATE_TRIES: Final = 16


class OwnDevices(NamedTuple):
    """The devices that a node has to itself, with their kinds, by pool."""

    views: Views
    pools: tuple[tuple[PoolID, tuple[tuple[str, Content, int], ...]], ...]


class Books:
    """The books over one state's devices."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._books: dict[tuple[str, DeviceGates], Book] = {}

    def book(self, mode: str, gates: DeviceGates) -> "Book":
        """The one of a mode."""
        book = self._books.get((mode, gates))
        if book is None:
            book = self._books[mode, gates] = Book(self._devices, mode, gates)
        return book


class Book:
    """One mode's packer, and how far it has followed."""

    def __init__(self, devices: Devices, mode: str, gates: DeviceGates) -> None:
        self._devices = devices
        self._mode = mode
        self._rules = Rules(gates, 1, None)
        self._fits = devices.extension(FitCache)
        self._inventory = devices.extension(Inventory)
        self._arrived = 0
        self._late: dict[str, None] = {}  # uids, the longest first
        self._start_over()

    def _start_over(self) -> None:
        self._kinds = Kinds(self._rules.gates)
        self._packer = Packer(self._mode, self._kinds.shares)
        self._own: dict[int, OwnDevices] = {}
        self._weighed = self._kinds.version
        self._all_rows()

    def _all_rows(self) -> None:
        """Look at all of them again."""
        self._changed = ChangedRows(self._devices, own=True)
        self._use_position = 0

    # What is asked

    def gains(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> tuple[Ints, Floats, Bools] | None:
        """The feasible rows, what the pod scores there (-inf: nobody knows), and whether to use
        them only where there is no other. None for a pod of which nobody knows what it asks for."""
        self.learn(state)
        request = self._request(pod, shape, not state.journal.is_in_trial)
        if request is None:
            return None
        self._refresh_changed(state)
        rows = np.flatnonzero(feasible)
        gains = self._packer.gains(request, rows)
        aside = self._packer.set_aside(request)
        spared = np.zeros(len(rows), np.bool_) if aside is None else aside[rows]
        return rows, gains, spared

    def prefer(
        self, shape: Shape, state: ClusterState, row: int
    ) -> Callable[[Alternative, Candidate, dict[str, Amount]], Any]:
        """How the allocator should rank the devices of a row for a pod of this shape: by what is
        scored by taking each of them."""
        self._refresh_changed(state)
        room = self._room(shape)
        gates = self._rules.gates
        ranks: dict[tuple[int, int, int], float] = {}

        def rank(alternative: Alternative, candidate: Candidate, _: dict[str, Amount]) -> float:
            ask = self._kinds.known_number(alternative)
            if ask < 0:
                return 0.0
            taken = tuple(candidate.taken.items())
            alone = int(candidate.in_use) + len(candidate.claims)
            free = free_share(candidate.content, DeviceUsage(alone, candidate.shares, taken), gates)
            kind = self._kinds.kind(candidate.content)
            key = (kind, free, self._kinds.shares[kind][ask])
            if key not in ranks:
                # What nothing is known of comes last.
                ranks[key] = -self._packer.gain(row, room, *key)
            return ranks[key]

        return rank

    # Pods

    def learn(self, state: ClusterState) -> None:
        """Count the pods that have come since, unless in a trial (see Plugin.learn)."""
        if state.journal.is_in_trial:
            return
        new = state.added_pod_count - self._arrived
        uids: list[str]
        if new > len(state.added_pods) and not self._arrived:
            uids = [*state.pods]
        else:
            uids = [*dict.fromkeys(islice(reversed(state.added_pods), new))][::-1]
        for uid in uids:
            self._late.pop(uid, None)
        late = [*islice(self._late, LATE_TRIES)]
        for uid in late:
            del self._late[uid]
        self._arrived = state.added_pod_count
        if self._kinds.is_full:
            self._start_over()
        requests = []
        for uid in (*late, *uids):
            entry = state.pods.get(uid)
            if entry is None:
                continue
            request = self._request(entry.pod, entry.shape)
            if request is None:
                if len(self._late) >= LATE_MAX:
                    del self._late[next(iter(self._late))]
                self._late[uid] = None
            else:
                requests.append(request)
        if requests:
            self._refresh_changed(state)
            self._packer.add_arrivals(*requests)

    def _request(self, pod: Pod, shape: Shape, may_be_new: bool = True) -> Request | None:
        """What the pod asks for, None while that is not known, or where nobody has asked for it
        before and it is must not."""
        room = self._room(shape)
        if not shape.has_claims:
            return Request(room, ())
        claims = self._claims(pod)
        if claims is None:
            return None
        try:
            plans = self._fits.plans(claims, self._rules)
        except AllocationError:
            return None
        counts: dict[int, int] = {}
        for plan in plans:
            for alternatives in plan.requests:
                first = alternatives[0]
                if first.admin:
                    continue
                if not may_be_new and self._kinds.known_number(first) < 0:
                    return None
                number, told_apart = self._kinds.number(first)
                if told_apart:
                    self._packer.clear()
                    self._own.clear()
                    self._all_rows()
                counts[number] = counts.get(number, 0) + first.number
        return Request(room, tuple(sorted(counts.items())))

    def _room(self, shape: Shape) -> Room:
        """The room that the pod asks for."""
        asked = {column.name: amount for column, amount in shape.requests}
        memory = asked.get(MEMORY, 0) if self._packer.counts_memory else 0
        return Room(asked.get(CPU, 0), memory)

    def _claims(self, pod: Pod) -> list[ResourceClaim] | None:
        found = []
        for ref in claim_refs(pod):
            if ref.name is None:
                return None
            if not ref.name:
                continue
            claim = self._devices.api_claim(f"{pod.metadata.namespace}/{ref.name}")
            if claim is None:
                return None
            found.append(claim)
        return found

    # Nodes

    def _refresh_changed(self, state: ClusterState) -> None:
        """Look at the nodes on which something has changed."""
        changed = self._changed.take_rows(state)
        if changed is None or state.usage_log.is_overrun(self._use_position):
            rows = dict.fromkeys(range(state.row_limit))
        else:
            rows = dict.fromkeys((*state.usage_log.row_list(self._use_position), *changed))
        self._use_position = state.usage_log.position
        cpu = state.column(CPU)
        memory = state.column(MEMORY) if self._packer.counts_memory else None
        for row in rows:
            devices = [*self._devices_of(row, state)] if state.present[row] else []
            if devices:
                most = Room(
                    cpu.allocatable_cells[row], memory.allocatable_cells[row] if memory else 0
                )
                used = Room(cpu.requested_cells[row], memory.requested_cells[row] if memory else 0)
                free = Room(*(a - b for a, b in zip(most, used)))
                self._packer.set_node(row, free, most, devices)
            else:
                self._packer.drop_node(row)
        if self._weighed != self._kinds.version:
            self._weighed = self._kinds.version
            self._packer.weigh()  # nobody has said yet what such devices are worth

    def _devices_of(self, row: int, state: ClusterState) -> Iterator[tuple[int, int]]:
        """Kind and free share of each."""
        views = self._fits.views(state, row, self._rules)
        own = self._own.get(row)
        if own is None or own.views is not views:
            own = self._own[row] = OwnDevices(views, tuple(self._pools(views)))
        for pool, devices in own.pools:
            used = self._devices.usage(pool)
            for name, content, kind in devices:
                use = used.get(name, UNUSED)
                yield kind, free_share(content, use, self._rules.gates)

    def _pools(self, views: Views) -> Iterator[tuple[PoolID, tuple[tuple[str, Content, int], ...]]]:
        for view in views:
            # Nor is it known of partitions what is left of them: that depends on the others.
            if self._inventory.nodes_of(view.pool.id) is not None and not view.pool.counters:
                yield (
                    view.pool.id,
                    tuple(
                        (record.name, record.content, self._kinds.kind(record.content))
                        for record in view.records
                    ),
                )
