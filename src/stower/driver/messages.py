"""What a controller is told, and what it has done: calls of the driver, and their answers by id."""

import msgspec

from stower.driver.ledger import Entry
from stower.driver.rules import NOTHING
from stower.framework.events import Listed, Observed, Tick, WriteFailed, WriteOk
from stower.framework.writes import CreateEvent, PatchObject
from stower.model.kinds import Pod, ResourceClaim


class Examination(msgspec.Struct, frozen=True):
    """Call Driver.unsuitable_nodes; answered by Examined."""

    id: int
    pod: Pod
    claims: tuple[ResourceClaim, ...]
    nodes: tuple[str, ...]


class Taking(msgspec.Struct, frozen=True):
    """Note `entries` in the ledger, call Driver.allocate, note what it gave; answered by Taken."""

    id: int
    claims: tuple[ResourceClaim, ...]
    node: str
    entries: tuple[Entry, ...]


class Freeing(msgspec.Struct, frozen=True):
    """Call Driver.deallocate, forget the entry; answered by Freed."""

    id: int
    entry: Entry


class Adopting(msgspec.Struct, frozen=True):
    """Note `entries` in the ledger, which the API has and the ledger has not; answered by
    Adopted."""

    id: int
    entries: tuple[Entry, ...]


class Examined(msgspec.Struct, frozen=True):
    """The nodes that will not do, or why that is not known."""

    id: int
    refused: frozenset[str] = NOTHING
    error: str = ""


class Taken(msgspec.Struct, frozen=True):
    """The entries as they are in the ledger now, or why nothing was taken."""

    id: int
    entries: tuple[Entry, ...] = ()
    error: str = ""


class Freed(msgspec.Struct, frozen=True):
    """It was given back, or why not."""

    id: int
    error: str = ""


class Adopted(msgspec.Struct, frozen=True):
    """They were noted, or why not."""

    id: int
    error: str = ""


Event = Observed | Listed | WriteOk | WriteFailed | Tick | Examined | Taken | Freed | Adopted
Output = PatchObject | CreateEvent | Examination | Taking | Freeing | Adopting
