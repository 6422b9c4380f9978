"""Reduces a failing script: removes faults and happenings while the same law is broken."""

from collections.abc import Callable
from typing import Final

import msgspec

from stower.sim.script import Script
from stower.sim.trial import Finding, Trial

# Each takes a tenth of a second or so, and a script of 150 happenings needs about 100.
RUNS_MAX: Final = 400

Run = Callable[[Script], Finding]


def shrink(
    script: Script,
    law: str,
    run: Run = lambda script: Trial(script).run(),
    runs_max: int = RUNS_MAX,
) -> Script:
    """Faults are left out one by one, happenings in halves, quarters and so on, as long as the law
    is broken without them. Each part of a run draws from a generator of its own, so that the others
    stay as they were."""
    runs = 0

    def breaks(smaller: Script) -> bool:
        nonlocal runs
        runs += 1
        return runs <= runs_max and run(smaller).law == law

    for name in script.faults:
        faults = tuple(fault for fault in script.faults if fault != name)
        fewer = msgspec.structs.replace(script, faults=faults)
        if breaks(fewer):
            script = fewer
    size = len(script.happenings)
    while size:
        at = 0
        while at < len(script.happenings):
            left = (*script.happenings[:at], *script.happenings[at + size :])
            fewer = msgspec.structs.replace(script, happenings=left)
            if breaks(fewer):
                script = fewer
            else:
                at += size
        size //= 2
    wanted = {
        happening.template for happening in script.happenings if hasattr(happening, "template")
    }
    templates = tuple(template for template in script.templates if template.name in wanted)
    return msgspec.structs.replace(script, templates=templates)
