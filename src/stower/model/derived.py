"""Keeps what is derived from an object for as long as the object is in use."""

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

ENTRIES_MAX: Final = 4096  # then it is emptied: more objects than a step deals with

Source = TypeVar("Source")
Result = TypeVar("Result")


_ALL: Final[list[dict[int, Any]]] = []  # what each Derived keeps


def forget(source: object) -> None:
    """Drops whatever is kept of an object that is in use no more: it may have megabytes."""
    key = id(source)  # an object that is kept has its id for itself
    for known in _ALL:
        if key in known:
            del known[key]


class Derived(Generic[Source, Result]):
    """Computes a result once per object; objects do not change. An object is found by identity, as
    hashing it costs more than most computations; the object is kept, so that no other can have its
    id. Results are read only."""

    def __init__(self, compute: Callable[[Source], Result]) -> None:
        self._compute = compute
        self._known: dict[int, tuple[Source, Result]] = {}
        _ALL.append(self._known)

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
