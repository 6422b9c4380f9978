"""The ledger: what a driver has taken for which claim. It outlives the driver's process.

An entry is made before devices are taken, and goes after they were given back: what is in no entry
was not taken by this driver.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec


class Entry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Devices of one claim, by its uid. `allocation`: as the claim's status has it; None while they
    are being taken, when nobody knows whether they are."""

    uid: str
    namespace: str
    name: str
    node: str = ""
    allocation: dict[str, Any] | None = None

    @property
    def devices(self) -> list[tuple[str, str, str]]:
        """(request, pool, device) of each that was given, as in Allocation."""
        results = ((self.allocation or {}).get("devices") or {}).get("results") or ()
        return [(one["request"], one["pool"], one["device"]) for one in results]


class Ledger(Protocol):
    """Entries by claim uid."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """All there are, in the order in which they were made."""

    def put(self, entries: Iterable[Entry]) -> None:
        """Keep these: all of them or none, and when this returns, for good. Raises OSError."""

    def drop(self, uids: Iterable[str]) -> None:
        """Forget these, in the same way. Raises OSError."""


class MemoryLedger:
    """A ledger for simulations and tests: it lives as long as whoever holds it."""

    def __init__(self, entries: Mapping[str, Entry] | None = None) -> None:
        self.entries: dict[str, Entry] = dict(entries or {})

    def put(self, entries: Iterable[Entry]) -> None:
        """See Ledger."""
        self.entries.update((entry.uid, entry) for entry in entries)

    def drop(self, uids: Iterable[str]) -> None:
        """See Ledger."""
        for uid in uids:
            self.entries.pop(uid, None)
