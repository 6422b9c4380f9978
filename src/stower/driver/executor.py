"""Executes the outputs of a driver's Controller: calls the methods of the Driver, updates the
ledger, and returns the result as an Event for the Controller.

The ledger is written before devices are allocated and after they are freed, so that a crash between
any two steps loses no device. Must not know the API server: writes go to a function of the caller.
"""

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
    """Executes an output and returns its result. `write`: sends a write to the API and returns its
    result."""
    if isinstance(output, Call):
        return call(output, driver, ledger)
    return write(output)


def call(
    output: Call, driver: Driver, ledger: Ledger, tell: Callable[[Exception], None] | None = None
) -> Event:
    """Calls the driver and returns the result; an exception becomes a result with an error. `tell`
    receives each exception except Refused."""
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
    """Returns the result of a call that raised `error`."""
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
    """Allocates devices. The entries are stored before the call of the driver. If the driver
    refuses, these entries are dropped; so are entries without an allocation that an earlier process
    stored before it crashed, after the driver has freed them: their allocation was never written to
    the API."""
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
