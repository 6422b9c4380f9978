"""Drivers: who allocates devices that nobody can list in advance, and agrees with the scheduler on
where. An author writes a `Driver`; everything that goes over the API is the `Controller`'s.

Pure, as the engine is; stower.live.driver runs it on an API server.
"""

from stower.driver.author import Allocation, Driver, Refused, Wanted, wanted
from stower.driver.controller import Controller
from stower.driver.ledger import Entry, Ledger, MemoryLedger
from stower.state.devices import claim_keys

__all__ = [
    "Allocation",
    "Controller",
    "Driver",
    "Entry",
    "Ledger",
    "MemoryLedger",
    "Refused",
    "Wanted",
    "claim_keys",
    "wanted",
]
