"""stower faults: runs the scheduler on simulated clusters with faults, and checks laws."""

import typer

from stower.cli.fault_arguments import FaultArguments
from stower.cli.fault_runs import read_configuration_for_runs, read_order, run_order, run_script
from stower.cli.output import bad_input
from stower.cli.output_files import check_folder
from stower.cli.verb_arguments import with_arguments
from stower.sim.faults import FAULT_BY_NAME

NAME = "faults"
WATCHED = True
EPILOG = f"""
Examples:

  stower faults --seeds 100

  stower faults crashes,cuts --seed 7 --until 24h

  stower faults --only groups,vms --seeds 100

  stower faults none --only plain --nodes 1000 --pods 50000 --until 24h

  stower faults --script stower-17-room.script.json

Each seed draws a small cluster, its load and its faults: plain pods, devices, drivers that
negotiate, trees of pod groups, VMs and a warm pool, which share the nodes. --only restricts the
load to some parts. With --nodes and --pods the cluster has that size.

The faults are {", ".join(FAULT_BY_NAME)} (docs/simulator.md).

The exit code is 1 if a law is broken, 2 if the arguments make no sense, 130 after Ctrl-C. The seed
and the last steps are printed on standard error, and a small script that still breaks the law is
written to the folder of --failures, with a recording of the run. A law that is broken in a way that
is known is told and counted, and the run goes on (docs/simulator.md).
"""


@with_arguments(FaultArguments)
def run(given: FaultArguments) -> None:
    """Run the scheduler on simulated clusters with faults, and check laws at every step."""
    configuration = read_configuration_for_runs(given.config or [], given.ignore_unknown_plugins)
    if given.script is not None:
        for option, is_given in given.seed_options().items():
            if is_given:
                raise bad_input(f"{option}: cannot be used with --script, which says what happens")
        is_lawful = run_script(given.script, configuration, given.output)
    else:
        order = read_order(given, configuration)
        check_folder("--failures", given.failures)
        is_lawful = run_order(order, given.output, given.failures)
    if not is_lawful:
        raise typer.Exit(1)
