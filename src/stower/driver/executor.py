"""Carry out what a controller says: the driver's methods and its ledger, in the order that a crash
at any point can stand."""

from collections.abc import Callable
from typing import Any

import msgspec

from stower.driver.author import Driver, Refused
from stower.driver.checks import allocation_fault
from stower.driver.ledger import Ledger
from stower.driver.messages import (
    Adopted,
    Adopting,
    Event,
    Examination,
    Examined,
    Freed,
    Freeing,
    Output,
    Taken,
    Taking,
)

Call = Examination | Taking | Freeing | Adopting


def carry_out(
    output: Output, driver: Driver, ledger: Ledger, write: Callable[[Any], Event]
) -> Event:
    """Do it; the answer. `write`: how to write to the API."""
    if isinstance(output, Call):
        return call(output, driver, ledger)
    return write(output)


def call(
    output: Call, driver: Driver, ledger: Ledger, tell: Callable[[Exception], None] | None = None
) -> Event:
    """Call the driver. What goes wrong within it is an answer, too; `tell` is told of it, where it
    is no refusal."""
    try:
        if isinstance(output, Examination):
            return _examined(output, driver)
        if isinstance(output, Taking):
            return _taken(output, driver, ledger)
        if isinstance(output, Adopting):
            ledger.put(output.entries)
            return Adopted(output.id)
        driver.deallocate(output.entry)
        ledger.drop([output.entry.uid])
        return Freed(output.id)
    except Exception as error:
        if tell is not None and not isinstance(error, Refused):
            tell(error)
        return failure(output, error)


def failure(output: Call, error: BaseException) -> Event:
    """The answer that says what went wrong."""
    text = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
    text = text or type(error).__name__
    if isinstance(output, Examination):
        return Examined(output.id, error=text)
    if isinstance(output, Adopting):
        return Adopted(output.id, text)
    return Taken(output.id, error=text) if isinstance(output, Taking) else Freed(output.id, text)


def _examined(output: Examination, driver: Driver) -> Examined:
    found = driver.unsuitable_nodes(output.pod, output.claims, output.nodes)
    return Examined(output.id, frozenset(found).intersection(output.nodes))


def _taken(output: Taking, driver: Driver, ledger: Ledger) -> Taken:
    """First it is noted that devices may be taken; a refusal takes the note back, and one that was
    made before a crash: of what has no allocation there, nobody was told."""
    known = ledger.entries
    fresh = [entry for entry in output.entries if entry.uid not in known]
    doubtful = [known[e.uid] for e in output.entries if e.uid in known]
    doubtful = [entry for entry in doubtful if entry.allocation is None]
    ledger.put(fresh)
    try:
        given = driver.allocate(output.claims, output.node)
    except Refused:
        for entry in doubtful:
            driver.deallocate(entry)
        ledger.drop([entry.uid for entry in (*fresh, *doubtful)])
        raise
    if len(given) != len(output.claims):
        raise ValueError(
            f"got {len(given)} allocations, want {len(output.claims)}, one for each claim"
        )
    nodes = getattr(driver, "nodes", {})
    for claim, allocation in zip(output.claims, given, strict=True):
        fault = allocation_fault(claim, allocation, output.node, nodes)
        if fault:
            raise ValueError(fault)
    entries = [
        msgspec.structs.replace(entry, allocation=allocation.status(driver.name))
        for entry, allocation in zip(output.entries, given, strict=True)
    ]
    ledger.put(entries)
    return Taken(output.id, tuple(entries))
