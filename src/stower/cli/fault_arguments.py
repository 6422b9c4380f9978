"""Defines the command-line options and arguments of `stower faults`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from stower.cli.output import Output
from stower.cli.scheduler_configuration import IgnoreUnknownPlugins
from stower.sim.load import PARTS

ALL: Final = "all"
NONE: Final = "none"
PLAIN: Final = "plain"
UNTIL: Final = "3m"


@dataclass(frozen=True)
class FaultArguments:
    """The arguments of one `stower faults`."""

    faults: Annotated[
        str | None,
        typer.Argument(
            metavar="FAULTS",
            help="The faults: all (each seed draws some), none, or names such as crashes,cuts. "
            "Default: all.",
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, one run each.")] = 1
    jobs: Annotated[int, typer.Option(min=0, help="Number of processes; 0: one per core.")] = 0
    until: Annotated[
        str, typer.Option(metavar="TIME", help="Virtual time during which events occur.")
    ] = UNTIL
    nodes: Annotated[
        int,
        typer.Option(min=0, max=20_000, help="Number of nodes; 0: 2 to 12, by the seed."),
    ] = 0
    pods: Annotated[
        int,
        typer.Option(
            min=0,
            max=1_000_000,
            help="With --nodes: number of pods, which arrive by day and night.",
        ),
    ] = 0
    only: Annotated[
        str,
        typer.Option(
            metavar="PART,...",
            help=f"Parts of the load beside plain pods: {', '.join(PARTS)}; {PLAIN}: no part.",
        ),
    ] = ALL
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="A KubeSchedulerConfiguration. Default: kube-scheduler's."
        ),
    ] = None
    ignore_unknown_plugins: IgnoreUnknownPlugins = False
    script: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Run this script (docs/simulator.md), written by hand or by a failed run, "
            "instead of seeds.",
        ),
    ] = None
    failures: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Folder for scripts and recordings of failures."),
    ] = Path()
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE

    def seed_options(self) -> dict[str, bool]:
        """Returns the options that a script does not have, each with whether it is given."""
        return {
            "FAULTS": self.faults is not None, "--seed": self.seed != 0, "--seeds": self.seeds > 1,
            "--jobs": self.jobs > 0, "--until": self.until != UNTIL, "--nodes": self.nodes > 0,
            "--pods": self.pods > 0, "--only": self.only != ALL,
            "--failures": self.failures != Path(),
        }  # fmt: skip
