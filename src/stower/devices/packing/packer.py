"""The packer: the state of every node, and every choice of devices there for a request.

The states that a request would leave on a node are computed again only after the node has changed,
so that a decision costs the same on a full cluster as on an empty one.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stower.devices.packing.dgf import Dgf
from stower.devices.packing.fgd import Fgd
from stower.devices.packing.mix import Demand, Mix, Request, Room
from stower.devices.packing.modes import Mode, Rows, Size
from stower.devices.packing.phi import FULL
from stower.devices.packing.states import KIND_SHIFT, SHARE_MASK, State, States
from stower.state.arrays import Bools, Floats, Ints, grow_array

MODES: Final[dict[str, type[Mode]]] = {"dgf": Dgf, "fgd": Fgd}
# Requests of which the options are remembered: 10 MB for each thousand nodes.
REQUESTS_MAX: Final = 256
# States remembered; beyond it all are forgotten when weights are made anew. A long run on the OpenB
# trace sees 100 for each node; half of them cost nothing in time, and 18 kB a node in memory.
STATES_MIN: Final = 40_000
STATES_PER_NODE: Final = 50
OPTIONS_FIRST: Final = 8
# Free memory is rounded down to so many binary digits, by a thirty-second at most, as machines of
# one type differ by some MiB and are one state nevertheless.
MEMORY_BITS: Final = 6
NOTHING: Final = Room(0, 0)
NEVER: Final = -1


class Options:
    """What one request would leave of each row: states by number, -1 for none; and the version of
    the row of which that is true."""

    __slots__ = ("after", "seen")

    def __init__(self, capacity: int) -> None:
        self.seen: Ints = np.full(capacity, NEVER)
        self.after: NDArray[np.int32] = np.full((capacity, OPTIONS_FIRST), NEVER, np.int32)

    def put(self, rows: Ints, versions: Ints, found: Sequence[Sequence[int]]) -> None:
        """What is left of these rows, with as many options as each has."""
        counts = np.array([len(states) for states in found])
        capacity, room = self.after.shape
        if counts.max() > room:
            more = np.full((capacity, counts.max()), NEVER, np.int32)
            more[:, :room] = self.after
            self.after = more
        self.seen[rows] = versions
        self.after[rows] = NEVER
        places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        self.after[np.repeat(rows, counts), places] = [*chain.from_iterable(found)]


class Packer:
    """All nodes by row. `shares` belongs to the caller: for each kind of device the share that each
    ask takes; it may grow both ways, but not change."""

    def __init__(self, mode: str, shares: Sequence[Sequence[int]], capacity: int = 64) -> None:
        self.shares = shares
        self.mix = Mix()
        self._mode = MODES[mode]()
        self._states = States(self._mode, shares)
        self._capacity = capacity
        self.clear()

    def clear(self) -> None:
        """Forget the nodes, and all that was found out about kinds; the mix stays as it is."""
        self._states.clear()
        self._options: dict[Request, Options] = {}
        self._codes: dict[int, tuple[int, ...]] = {}
        self._sizes: dict[int, Size] = {}
        self._rooms: dict[int, Room] = {}  # what is free; _cpu and _memory are the same as arrays
        self._version: Ints = np.zeros(self._capacity, np.int64)
        self._current: Ints = np.zeros(self._capacity, np.int64)
        self._current_seen: Ints = np.full(self._capacity, NEVER)
        self._cpu: Ints = np.zeros(self._capacity, np.int64)
        self._memory: Ints = np.zeros(self._capacity, np.int64)
        self._full: Ints = np.zeros(self._capacity, np.int64)
        self._free: Ints = np.zeros(self._capacity, np.int64)

    # Nodes

    def set_node(
        self, row: int, free: Room, most: Room, devices: Sequence[tuple[int, int]]
    ) -> None:
        """A node as it is: free room of so much, and its devices, each a kind and a free share."""
        if row >= self._capacity:
            self._grow(max(2 * self._capacity, row + 1))
        codes = tuple(sorted((kind << KIND_SHIFT) | free for kind, free in devices))
        self._sizes[row] = Size(len(codes), most)
        if codes == self._codes.get(row) and free == self._rooms[row]:
            return
        self._codes[row] = codes
        self._rooms[row] = free
        self._version[row] += 1
        self._cpu[row], self._memory[row] = free
        self._full[row] = sum(code & SHARE_MASK == FULL for code in codes)
        self._free[row] = sum(code & SHARE_MASK for code in codes)

    def drop_node(self, row: int) -> None:
        """The row has no node, or one without devices of its own."""
        if self._codes.pop(row, None) is not None:
            del self._sizes[row], self._rooms[row]
            self._version[row] += 1
            self._cpu[row] = self._memory[row] = self._full[row] = self._free[row] = 0

    def devices(self, row: int) -> list[tuple[int, int]]:
        """The row's devices: kind and free share, in order of these."""
        return [(code >> KIND_SHIFT, code & SHARE_MASK) for code in self._codes.get(row, ())]

    @property
    def counts_memory(self) -> bool:
        """Whether memory is more than a filter; what has any then is told apart by it."""
        return self._mode.counts_memory

    @property
    def rows(self) -> Rows:
        """The nodes as they are."""
        return Rows(self._cpu, self._memory, self._full, self._free)

    @property
    def largest(self) -> Size:
        """The largest node's."""
        return max(self._sizes.values(), default=Size(0, NOTHING))

    def _grow(self, capacity: int) -> None:
        self._capacity = capacity
        self._version = grow_array(self._version, capacity)
        self._current = grow_array(self._current, capacity)
        self._current_seen = np.concatenate(
            (self._current_seen, np.full(capacity - len(self._current_seen), NEVER))
        )
        self._cpu = grow_array(self._cpu, capacity)
        self._memory = grow_array(self._memory, capacity)
        self._full = grow_array(self._full, capacity)
        self._free = grow_array(self._free, capacity)
        self._options.clear()

    # The mix

    def add_arrivals(self, *requests: Request) -> None:
        """Pods have arrived; now and then, that changes what states are worth."""
        for request in requests:
            self.mix.add(request)
        if self.mix.is_due():
            self.weigh()

    def weigh(self) -> None:
        """Make the weights anew."""
        self._mode.weigh(self.mix, self)
        if len(self._states) > max(STATES_MIN, STATES_PER_NODE * len(self._codes)):
            self._states.clear()
            self._options.clear()
            self._current_seen[:] = NEVER
        else:
            self._states.weigh()

    def available(self, demands: Sequence[Demand]) -> Ints:
        """int64[demands]: thousandths that copies of each alone could take of the cluster."""
        counts: dict[State, int] = {}
        for row, codes in self._codes.items():
            state = self._state(row, NOTHING, codes)
            counts[state] = counts.get(state, 0) + 1
        return self._states.available(demands, counts.items())

    # Choosing

    def gains(self, request: Request, rows: Ints) -> Floats:
        """float64[rows]: what the best way to place the request scores, -inf where there is none.

        More is better; only differences mean something.
        """
        options = self._refresh_options(request, rows)
        worth = self._states.worth()
        after = options.after[rows]
        before = worth[self._current[rows]]
        gains = self._mode.gain(worth[after] - before[:, None])
        gains[after < 0] = -np.inf
        best: Floats = gains.max(1)
        return best

    def gain(self, row: int, taken: Room, kind: int, free: int, share: int) -> float:
        """What it scores to take a share of a device of the row with that much free, and room;
        -inf where it has no such device."""
        codes = [*self._codes.get(row, ())]
        code = (kind << KIND_SHIFT) | free
        if code not in codes or share > free:
            return -np.inf
        self._refresh_current(row)
        codes[codes.index(code)] = code - share
        number = self._states.number(self._state(row, taken, tuple(sorted(codes))))
        worth = self._states.worth()
        difference = worth[number : number + 1] - worth[self._current[row]]
        return float(self._mode.gain(difference)[0])

    def set_aside(self, request: Request) -> Bools | None:
        """bool[rows]: nodes to be used only where there is no other; None where there are none."""
        return self._mode.set_aside(request, self)

    def _refresh_options(self, request: Request, rows: Ints) -> Options:
        options = self._options.get(request)
        if options is None:
            if len(self._options) >= REQUESTS_MAX:
                self._options.clear()
            options = self._options[request] = Options(self._capacity)
        for row in rows[self._current_seen[rows] != self._version[rows]].tolist():
            self._refresh_current(row)
        stale = rows[options.seen[rows] != self._version[rows]]
        if len(stale):
            found = [self._next_states(request, row) for row in stale.tolist()]
            options.put(stale, self._version[stale], found)
        return options

    def _refresh_current(self, row: int) -> None:
        version = int(self._version[row])
        if int(self._current_seen[row]) != version:
            self._current_seen[row] = version
            state = self._state(row, NOTHING, self._codes.get(row, ()))
            self._current[row] = self._states.number(state)

    def _state(self, row: int, taken: Room, codes: tuple[int, ...]) -> State:
        """The row's, were so much taken and these its devices."""
        free = self._rooms.get(row, NOTHING)
        memory = max(free.memory_bytes - taken.memory_bytes, 0)
        fine = max(memory.bit_length() - MEMORY_BITS, 0)
        return max(free.cpu_milli - taken.cpu_milli, 0), memory >> fine << fine, codes

    def _next_states(self, request: Request, row: int) -> list[int]:
        """The states that the request may leave of the row."""
        codes = self._codes.get(row, ())
        cpu, memory, _ = self._state(row, request.room, codes)
        number = self._states.number
        return [number((cpu, memory, left)) for left in self._remaining_codes(request, codes)]

    def _remaining_codes(
        self, request: Request, codes: tuple[int, ...]
    ) -> Iterator[tuple[int, ...]]:
        """The codes that each way leaves: one for each kind and free share of which a single device
        may be taken; where several are, only the way that leaves least over."""
        shares = self.shares
        if len(request.asks) == 1 and request.asks[0][1] == 1:
            ask = request.asks[0][0]
            last = -1
            for i, code in enumerate(codes):
                if code != last:
                    last = code
                    share = shares[code >> KIND_SHIFT][ask]
                    if 0 < share <= code & SHARE_MASK:
                        yield tuple(sorted((*codes[:i], code - share, *codes[i + 1 :])))
            return
        left = [*codes]
        for ask, count in request.asks:
            fitting = []
            for i, code in enumerate(left):
                share = shares[code >> KIND_SHIFT][ask]
                if 0 < share <= code & SHARE_MASK:
                    fitting.append(((code & SHARE_MASK) - share, i, share))
            if len(fitting) < count:
                return
            for _, i, share in sorted(fitting)[:count]:
                left[i] -= share
        yield tuple(sorted(left))
