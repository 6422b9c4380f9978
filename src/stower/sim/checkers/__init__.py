"""The laws of a run with faults, one file each, checked against the API's objects."""

from typing import Final

from stower.sim.checkers.admissions import Admissions
from stower.sim.checkers.approvals import Approvals
from stower.sim.checkers.assumptions import Assumptions
from stower.sim.checkers.attempts import Attempts
from stower.sim.checkers.bindings import Bindings
from stower.sim.checkers.checker import Checker
from stower.sim.checkers.devices import Devices
from stower.sim.checkers.evictions import Evictions
from stower.sim.checkers.futile_allocations import FutileAllocations
from stower.sim.checkers.gangs import Gangs
from stower.sim.checkers.hold_and_wait import HoldAndWait
from stower.sim.checkers.leaks import Leaks
from stower.sim.checkers.machines import Machines
from stower.sim.checkers.migrations import Migrations
from stower.sim.checkers.missed_room import MissedRoom
from stower.sim.checkers.negotiations import Negotiations
from stower.sim.checkers.preemptions import Preemptions
from stower.sim.checkers.priorities import Priorities
from stower.sim.checkers.promises import Promises
from stower.sim.checkers.queue_membership import QueueMembership
from stower.sim.checkers.quiescence import Quiescence
from stower.sim.checkers.reservations import Reservations
from stower.sim.checkers.restart import Restart
from stower.sim.checkers.room import NodeRoom
from stower.sim.checkers.warmth import Warmth

CHECKERS: Final[tuple[type[Checker], ...]] = (
    Admissions,
    Approvals,
    Assumptions,
    Attempts,
    Bindings,
    Devices,
    QueueMembership,
    Evictions,
    FutileAllocations,
    Gangs,
    HoldAndWait,
    Leaks,
    Machines,
    Migrations,
    Negotiations,
    MissedRoom,
    Preemptions,
    Priorities,
    Promises,
    Quiescence,
    Reservations,
    Restart,
    NodeRoom,
    Warmth,
)
