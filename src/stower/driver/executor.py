"""Executes the outputs of a driver's Controller: calls the methods of the Driver, updates the
ledger, and returns the result as an Event for the Controller.

The ledger is written before devices are allocated and after they are freed, so that a crash between
any two steps loses no device. Must not know the API server: writes go to a function of the caller.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from stower.driver.author import Driver, RefusedError
from stower.driver.checks import allocation_fault
from stower.driver.ledger import Ledger
from stower.driver.messages import (
    AdoptCall,
    AdoptResult,
    AllocateCall,
    AllocateResult,
    DeallocateCall,
    DeallocateResult,
    Event,
    Examination,
    ExaminationResult,
    Output,
)

Call = Examination | AllocateCall | DeallocateCall | AdoptCall


def execute(output: Output, driver: Driver, ledger: Ledger, write: Callable[[Any], Event]) -> Event:
    """Executes an output and returns its result. `write`: sends a write to the API and returns its
    result."""
    if isinstance(output, Call):
        return call(output, driver, ledger)
    return write(output)


def call(
    output: Call, driver: Driver, ledger: Ledger, tell: Callable[[Exception], None] | None = None
) -> Event:
    """Calls the driver and returns the result; an exception becomes a result with an error. `tell`
    receives each exception except RefusedError."""
    try:
        if isinstance(output, Examination):
            return _examine(output, driver)
        if isinstance(output, AllocateCall):
            return _allocate(output, driver, ledger)
        if isinstance(output, AdoptCall):
            ledger.put(output.entries)
            return AdoptResult(output.id)
        driver.deallocate(output.entry)
        ledger.drop([output.entry.uid])
        return DeallocateResult(output.id)
    except Exception as error:
        if tell is not None and not isinstance(error, RefusedError):
            tell(error)
        return failure(output, error)


def failure(output: Call, error: BaseException) -> Event:
    """Returns the result of a call that raised `error`."""
    text = str(error) if isinstance(error, RefusedError) else f"{type(error).__name__}: {error}"
    text = text or type(error).__name__
    if isinstance(output, Examination):
        return ExaminationResult(output.id, error=text)
    if isinstance(output, AdoptCall):
        return AdoptResult(output.id, text)
    return (
        AllocateResult(output.id, error=text)
        if isinstance(output, AllocateCall)
        else DeallocateResult(output.id, text)
    )


def _examine(output: Examination, driver: Driver) -> ExaminationResult:
    found = driver.unsuitable_nodes(output.pod, output.claims, output.nodes)
    return ExaminationResult(output.id, frozenset(found).intersection(output.nodes))


def _allocate(output: AllocateCall, driver: Driver, ledger: Ledger) -> AllocateResult:
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
    except RefusedError:
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
    return AllocateResult(output.id, tuple(entries))
