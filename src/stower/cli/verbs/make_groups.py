"""stower make-groups: runs the controllers that create PodGroups for pods with a scheduling gate.

The groups follow Jobs, JobSets, LeaderWorkerSet replicas and labels of pods.
"""

import asyncio
from typing import Annotated

import typer

from stower.cli.cluster_options import Context, Kubeconfig
from stower.cli.configuration_files import InputError
from stower.cli.group_making import kinds_of
from stower.cli.logs import Format, LoggingFormat, Verbosity, set_up
from stower.cli.output import bad_input, console, failure
from stower.cli.shutdown import stop_event
from stower.controllers.assembly import build_group_makers
from stower.controllers.group_makers import GATE
from stower.controllers.runtime import ControllerManager
from stower.live.controllers import ServerFacts, check_has_groups, run_controllers
from stower.live.shell import ShellError
from stower.model.gang_kinds import KINDS

NAME = "make-groups"
EPILOG = f"""
Examples:

  stower make-groups --kubeconfig ~/.kube/config

  kubectl create -f job.yaml   # with schedulingGates: [{{name: {GATE}}}] in its template

Creates a PodGroup for each Job, JobSet, LeaderWorkerSet replica or label whose pods have the
scheduling gate {GATE}, links the pods to the group and removes the gate.
`stower up` runs the same controllers. docs/groups.md lists the labels and annotations.
"""


def run(
    kinds: Annotated[
        str,
        typer.Option(
            metavar="KINDS",
            help="Also for pods without the gate that the scheduler holds (plugin GroupMaking): "
            f"all, or some of {','.join(KINDS)}.",
        ),
    ] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    v: Verbosity = 0,
    logging_format: LoggingFormat = Format.TEXT,
) -> None:
    """Create pod groups for pods with the scheduling gate for it, until stopped."""
    set_up(v, logging_format)
    try:
        gang_kinds = kinds_of(kinds)
    except InputError as error:
        raise bad_input(str(error)) from None

    def build(facts: ServerFacts) -> ControllerManager:
        check_has_groups(facts.resources)
        return build_group_makers(facts.resources, gang_kinds)

    def on_ready(server: str) -> None:
        text = f"Creating groups on {server} for pods with the gate {GATE}. Stop it with Ctrl-C."
        console().print(text, soft_wrap=True)

    try:
        asyncio.run(run_controllers(kubeconfig, context, build, on_ready, stop_event))
    except ShellError as error:
        raise failure(str(error)) from None
