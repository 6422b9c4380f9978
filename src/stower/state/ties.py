"""Ties between equally good nodes, broken without a generator.

Rendezvous hashing: each (pod, node) pair has a pseudo-random number of its own, and the tied node
with the highest one wins. The choice depends on nothing but the seed, the pod and the names of
the tied nodes: not on the order of rows, nor on how many draws came before. An engine that was
rebuilt from the objects chooses as the one that lived on.
"""

from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stower.state.arrays import Bools

# Above so many ties, one pass over all rows is cheaper than gathering the tied ones.
GATHERED_MAX: Final = 512


def name_hash(name: str) -> int:
    """Returns a 64-bit hash of a node's name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def pod_hash(seed: bytes, uid: str) -> np.uint64:
    """Returns a 64-bit hash of a pod under a seed (at most 64 bytes); odd, for multiplication."""
    digest = blake2b(uid.encode(), digest_size=8, key=seed).digest()
    return np.uint64(int.from_bytes(digest, "little") | 1)


def tie_ranks(hashes: NDArray[np.uint64], pod: np.uint64) -> NDArray[np.uint64]:
    """Returns uint64[rows], the tie rank of rows with these name hashes: the lowest rank wins."""
    return ~(hashes * pod)


def pick(tied: Bools, hashes: NDArray[np.uint64], pod: np.uint64) -> int:
    """Returns the row that wins among the tied rows (`tied`: bool[rows]), by the name hashes of the
    rows.

    Multiply-shift hashing: the product's high bits are what is compared.
    """
    if np.count_nonzero(tied) > GATHERED_MAX:
        return int((hashes * pod * tied).argmax())
    rows = tied.nonzero()[0]
    return int(rows[(hashes[rows] * pod).argmax()])
