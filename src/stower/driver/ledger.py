"""The ledger of a resource driver: records the devices that are allocated for each claim. It
outlives the driver's process.

An entry is stored before devices are allocated, and is dropped after they were freed. Devices
without an entry were not allocated by this driver. Must not know how entries are stored;
stower.live.ledger stores them in a file.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec


class Entry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The devices of one claim, by the claim's uid. `allocation`: as in the claim's status; None
    during the allocation, when it is unknown whether devices are allocated."""

    uid: str
    namespace: str
    name: str
    node: str = ""
    allocation: dict[str, Any] | None = None

    @property
    def devices(self) -> list[tuple[str, str, str]]:
        """(request, pool, device) of each allocated device, as in Allocation."""
        results = ((self.allocation or {}).get("devices") or {}).get("results") or ()
        return [(one["request"], one["pool"], one["device"]) for one in results]


class Ledger(Protocol):
    """Entries by claim uid, in storage."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """All entries by claim uid, in the order in which they were stored."""

    def put(self, entries: Iterable[Entry]) -> None:
        """Stores these entries: all of them or none. They are durable when this returns. Raises
        OSError."""

    def drop(self, uids: Iterable[str]) -> None:
        """Drops the entries with these uids, as atomically and durably as `put`. Raises OSError."""


class MemoryLedger:
    """A ledger in memory, for simulations and tests."""

    def __init__(self, entries: Mapping[str, Entry] | None = None) -> None:
        self.entries: dict[str, Entry] = dict(entries or {})

    def put(self, entries: Iterable[Entry]) -> None:
        """Stores entries; see Ledger."""
        self.entries.update((entry.uid, entry) for entry in entries)

    def drop(self, uids: Iterable[str]) -> None:
        """Drops entries; see Ledger."""
        for uid in uids:
            self.entries.pop(uid, None)
