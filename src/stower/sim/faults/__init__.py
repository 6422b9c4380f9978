"""The faults of a run, one file each, with their ranges. A seed draws its own mix."""

from typing import Final

from stower.sim.faults.clock_jumps import ClockJumps
from stower.sim.faults.controller_crashes import ControllerCrashes
from stower.sim.faults.crashes import Crashes
from stower.sim.faults.cuts import Cuts
from stower.sim.faults.delays import Delays
from stower.sim.faults.driver_crashes import DriverCrashes
from stower.sim.faults.driver_silence import DriverSilence
from stower.sim.faults.duplicates import Duplicates
from stower.sim.faults.expired_revisions import ExpiredRevisions
from stower.sim.faults.fault import Fault
from stower.sim.faults.freezes import Freezes
from stower.sim.faults.node_loss import NodeLoss
from stower.sim.faults.refusals import Refusals
from stower.sim.faults.reorders import Reorders
from stower.sim.faults.throttling import Throttling
from stower.sim.faults.timeouts import Timeouts
from stower.sim.faults.two_schedulers import TwoSchedulers

FAULTS: Final[tuple[type[Fault], ...]] = (
    ControllerCrashes,
    ClockJumps,
    Crashes,
    Cuts,
    Delays,
    DriverCrashes,
    DriverSilence,
    Duplicates,
    ExpiredRevisions,
    Freezes,
    NodeLoss,
    Refusals,
    Reorders,
    Throttling,
    Timeouts,
    TwoSchedulers,
)
FAULT_BY_NAME: Final = {fault.name: fault for fault in FAULTS}
