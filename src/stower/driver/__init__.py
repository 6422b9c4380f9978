"""A framework for resource drivers that negotiate with the scheduler (KEP-3063): drivers of devices
that cannot be published as ResourceSlices, because they are created on demand.

The author of a driver subclasses `Driver` (author), whose methods allocate and free devices.
`Controller` (controller) does all work with the API objects: it answers in PodScheduling which
nodes are unsuitable for a pod, and writes allocations to ResourceClaims. `Ledger` (ledger) records
the devices that are allocated for each claim, across restarts.

Pure, as the engine is: must not know files, sockets, clocks or threads. stower.live.driver runs it
on an API server.
"""

from stower.driver.author import (
    Allocation,
    Driver,
    RefusedError,
    RequestedDevices,
    requested_devices,
)
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
    "RefusedError",
    "RequestedDevices",
    "claim_keys",
    "requested_devices",
]
