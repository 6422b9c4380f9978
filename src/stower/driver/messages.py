"""Events and outputs of a driver's Controller, matched by id.

An output is a write to the API or a call of the driver: Examination, AllocateCall,
DeallocateCall, AdoptCall. The result of a call comes back as the event with the same id:
ExaminationResult, AllocateResult, DeallocateResult, AdoptResult.
"""

import msgspec

from stower.driver.ledger import Entry
from stower.driver.rules import NOTHING
from stower.framework.events import Listed, Observed, Tick, WriteFailed, WriteOk
from stower.framework.writes import CreateEvent, PatchObject
from stower.model.kinds import Pod, ResourceClaim


class Examination(msgspec.Struct, frozen=True):
    """Requests a call of Driver.unsuitable_nodes; answered by ExaminationResult."""

    id: int
    pod: Pod
    claims: tuple[ResourceClaim, ...]
    nodes: tuple[str, ...]


class AllocateCall(msgspec.Struct, frozen=True):
    """Requests an allocation: store `entries` in the ledger, call Driver.allocate, store the
    allocations; answered by AllocateResult."""

    id: int
    claims: tuple[ResourceClaim, ...]
    node: str
    entries: tuple[Entry, ...]


class DeallocateCall(msgspec.Struct, frozen=True):
    """Requests a call of Driver.deallocate, and that the entry is dropped then; answered by
    DeallocateResult."""

    id: int
    entry: Entry


class AdoptCall(msgspec.Struct, frozen=True):
    """Requests that `entries`, allocations that the API has and the ledger lacks, are stored in the
    ledger; answered by AdoptResult."""

    id: int
    entries: tuple[Entry, ...]


class ExaminationResult(msgspec.Struct, frozen=True):
    """The result of an Examination: the unsuitable nodes, or an error."""

    id: int
    refused: frozenset[str] = NOTHING
    error: str = ""


class AllocateResult(msgspec.Struct, frozen=True):
    """The result of an AllocateCall: the entries that are in the ledger now, or why nothing was
    allocated."""

    id: int
    entries: tuple[Entry, ...] = ()
    error: str = ""


class DeallocateResult(msgspec.Struct, frozen=True):
    """The result of a DeallocateCall; `error` is "" if the devices were freed."""

    id: int
    error: str = ""


class AdoptResult(msgspec.Struct, frozen=True):
    """The result of an AdoptCall; `error` is "" if the entries were stored."""

    id: int
    error: str = ""


Event = (
    Observed
    | Listed
    | WriteOk
    | WriteFailed
    | Tick
    | ExaminationResult
    | AllocateResult
    | DeallocateResult
    | AdoptResult
)
Output = PatchObject | CreateEvent | Examination | AllocateCall | DeallocateCall | AdoptCall
