"""Choice between equally good nodes, without a random number generator.

The choice depends on nothing but the seed, the pod's uid and the names of the tied nodes: not on
the order of rows, nor on earlier choices. A scheduler that is restarted chooses as if it had not
been.

Two levels. Nodes are ordered by a hash of their names, and those whose hashes share their leading
bits form a block. The hash of a pod with n tied nodes selects a number k below n: it falls into one
block by the number of tied nodes in each, and in the block it selects a node. So every node has the
same chance, and where the numbers of tied nodes are known, the choice has to look at one block
only.
"""

from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stower.state.arrays import Bools, Ints, grow_array

HASH_BITS: Final = 32  # of a pod's hash
# Maximum number of ties for which selecting among their hashes is faster than reading all rows.
GATHERED_MAX: Final = 64


def name_hash(name: str) -> int:
    """Returns a 64-bit hash, never 0, of a node's name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") or 1


def pod_hash(seed: bytes, uid: str) -> int:
    """Returns a hash of HASH_BITS bits of a pod under a seed (at most 64 bytes)."""
    digest = blake2b(uid.encode(), digest_size=HASH_BITS // 8, key=seed).digest()
    return int.from_bytes(digest, "little")


class TieBreaker:
    """The rows in order of the hashes of their node names. `hashes`: uint64[capacity], 0 for rows
    without a name."""

    __slots__ = ("_count", "_order", "_sorted_hashes", "generation", "hashes")

    def __init__(self, capacity: int) -> None:
        self.hashes: NDArray[np.uint64] = np.zeros(capacity, np.uint64)
        # The first `_count` values: the hashes in order, and their rows. None: to be sorted.
        self._count = 0
        self._order: Ints | None = None
        self._sorted_hashes = self.hashes
        self.generation = 0  # changes with the rows' names

    def set_name(self, row: int, name: str) -> None:
        """Sets the node name of a row; "": none."""
        new = np.uint64(name_hash(name) if name else 0)
        self.generation += 1
        if self._order is not None:
            self._move(self._order, row, new)
        self.hashes[row] = new

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        self.hashes = grow_array(self.hashes, capacity)
        self._order = None

    def pick(self, tied: Bools, pod: int) -> int:
        """Returns one of the tied rows (bool[row_limit], at least one) for a pod's hash."""
        count = int(np.count_nonzero(tied))
        if count == 1:
            return int(tied.argmax())
        number = pod * count >> HASH_BITS
        if count <= GATHERED_MAX:
            rows = tied.nonzero()[0]
            return int(rows[self.hashes[rows].argpartition(number)[number]])
        order = self._order
        if order is None:
            order = self._sort()
        rows = order[: self._count]
        return int(rows[tied[rows].nonzero()[0][number]])

    def pick_among(self, rows: Ints, pod: int) -> int:
        """Returns the one of these rows (at least one) that `pick` does."""
        return self.nth(rows, pod * len(rows) >> HASH_BITS)

    def nth(self, rows: Ints, number: int) -> int:
        """Returns the row of this number (from 0) in the order of the hashes of these rows."""
        return int(rows[self.hashes[rows].argpartition(number)[number]])

    def ordered_rows(self) -> Ints:
        """Returns the rows that have a name, in the order of its hash. Read only."""
        order = self._order
        if order is None:
            order = self._sort()
        return order[: self._count]

    def rank(self, rows: Ints, scores: Ints, pod: int) -> list[int]:
        """Returns the rows by descending score (int64[rows]). Of rows with equal scores, the one
        that `pick` selects comes first; the others follow in the cyclic order of their hashes."""
        by_hash = np.lexsort((self.hashes[rows], -scores))
        _, starts, counts = np.unique(-scores[by_hash], return_index=True, return_counts=True)
        ranks = np.arange(len(rows)) - np.repeat(starts, counts)
        firsts = np.repeat(pod * counts >> HASH_BITS, counts)
        sizes = np.repeat(counts, counts)
        ranks = (ranks - firsts) % sizes
        order = np.lexsort((ranks, -scores[by_hash]))
        result: list[int] = rows[by_hash[order]].tolist()
        return result

    def _sort(self) -> Ints:
        self._count = int(np.count_nonzero(self.hashes))
        # Rows without a name have the hash 0: they go last.
        order = self._order = np.roll(self.hashes.argsort(), self._count)
        self._sorted_hashes = self.hashes[order]
        return order

    def _move(self, order: Ints, row: int, new: np.uint64) -> None:
        """Moves a row to the place of its new hash; costs a copy of the rows behind both places."""
        hashes, count, old = self._sorted_hashes, self._count, self.hashes[row]
        if old:
            i = int(hashes[:count].searchsorted(old))
            while order[i] != row:  # two names may have the same hash
                i += 1
            for array in (hashes, order):
                array[i : count - 1] = array[i + 1 : count]
            count -= 1
        if new:
            i = int(hashes[:count].searchsorted(new))
            for array in (hashes, order):
                array[i + 1 : count + 1] = array[i:count]
            hashes[i], order[i] = new, row
            count += 1
        self._count = count
