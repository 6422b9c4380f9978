"""Type and helper that all benchmark drivers share: timed work, garbage collection."""

import gc

import msgspec


class Times(msgspec.Struct):
    """Timed pieces of work, in ns, and for how many pods they stand in all."""

    pieces_ns: list[int]
    pods: int


def settle_memory() -> None:
    """As a shell does after its first list: what is there stays there."""
    gc.collect()
    gc.freeze()
