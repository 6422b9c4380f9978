"""Events and outputs of a driver's Controller, matched by id.

An output is a write to the API or a call of the driver: Examination, Taking, Freeing, Adopting. The
result of a call comes back as the event with the same id: Examined, Taken, Freed, Adopted.
"""

import msgspec

from stower.driver.ledger import Entry
from stower.driver.rules import NOTHING
from stower.framework.events import Listed, Observed, Tick, WriteFailed, WriteOk
from stower.framework.writes import CreateEvent, PatchObject
from stower.model.kinds import Pod, ResourceClaim


class Examination(msgspec.Struct, frozen=True):
    """Requests a call of Driver.unsuitable_nodes; answered by Examined."""

    id: int
    pod: Pod
    claims: tuple[ResourceClaim, ...]
    nodes: tuple[str, ...]


class Taking(msgspec.Struct, frozen=True):
    """Requests an allocation: store `entries` in the ledger, call Driver.allocate, store the
    allocations; answered by Taken."""

    id: int
    claims: tuple[ResourceClaim, ...]
    node: str
    entries: tuple[Entry, ...]


class Freeing(msgspec.Struct, frozen=True):
    """Requests a call of Driver.deallocate, and that the entry is dropped then; answered by
    Freed."""

    id: int
    entry: Entry


class Adopting(msgspec.Struct, frozen=True):
    """Requests that `entries`, allocations that the API has and the ledger lacks, are stored in the
    ledger; answered by Adopted."""

    id: int
    entries: tuple[Entry, ...]


class Examined(msgspec.Struct, frozen=True):
    """The result of an Examination: the unsuitable nodes, or an error."""

    id: int
    refused: frozenset[str] = NOTHING
    error: str = ""


class Taken(msgspec.Struct, frozen=True):
    """The result of a Taking: the entries that are in the ledger now, or why nothing was
    allocated."""

    id: int
    entries: tuple[Entry, ...] = ()
    error: str = ""


class Freed(msgspec.Struct, frozen=True):
    """The result of a Freeing; `error` is "" if the devices were freed."""

    id: int
    error: str = ""


class Adopted(msgspec.Struct, frozen=True):
    """The result of an Adopting; `error` is "" if the entries were stored."""

    id: int
    error: str = ""


Event = Observed | Listed | WriteOk | WriteFailed | Tick | Examined | Taken | Freed | Adopted
Output = PatchObject | CreateEvent | Examination | Taking | Freeing | Adopting
