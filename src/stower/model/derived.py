"""Keeps what is derived from an object for as long as the object is in use."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

ENTRIES_MAX: Final = 4096  # then it is emptied: more objects than a step deals with

Source = TypeVar("Source")
Result = TypeVar("Result")


class Derived(Generic[Source, Result]):
    """Computes a result once per object; objects do not change. An object is found by identity, as
    hashing it costs more than most computations; the object is kept, so that no other can have its
    id. Results are read only."""

    def __init__(self, compute: Callable[[Source], Result]) -> None:
        self._compute = compute
        self._known: dict[int, tuple[Source, Result]] = {}

    def of(self, source: Source) -> Result:
        """Returns the result for the object."""
        known = self._known.get(id(source))
        if known is not None:
            return known[1]
        if len(self._known) >= ENTRIES_MAX:
            self._known.clear()
        result = self._compute(source)
        self._known[id(source)] = source, result
        return result
