"""A failing run made smaller: the fewest faults with which the same law is broken."""

import msgspec

from stower.sim.trial import Finding, Trial


def shrunk(finding: Finding, active_ns: int) -> Finding:
    """One fault after another is left out, as long as the law is broken without it. Each part of a
    run draws from a generator of its own, so the others stay as they were."""
    faults = list(finding.faults)
    for name in finding.faults:
        fewer = [fault for fault in faults if fault != name]
        found = Trial(finding.seed, fewer, active_ns=active_ns).run()
        if found.law == finding.law:
            faults, finding = fewer, found
    return msgspec.structs.replace(finding, faults=tuple(faults))
