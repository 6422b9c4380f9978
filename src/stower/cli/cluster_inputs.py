"""Loads the cluster that a verb looks at: from an API server, or from INPUT (files, dumps,
recordings, traces). Ends the program with an error if the cluster cannot be read.

Builds no engine: engine_inputs.py does, for verbs that need one.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from stower.cli.cluster_options import STATE
from stower.cli.configuration_files import InputError
from stower.cli.inputs import ClusterError, LoadedWorkload, describe_inputs, load, load_cluster
from stower.cli.kube import KubeError, kubeconfig_of
from stower.cli.output import bad_input, failure, note, progress
from stower.model.times import SECOND_NS, time_ns

Inputs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[INPUT]",
        help="The cluster: a kubeconfig, manifests or `kubectl get -o json` dumps, folders of "
        "them, - for stdin, a recording, a trace. Default: kubectl's cluster, or that of "
        "`stower up`.",
    ),
]


AHEAD_NS_MAX = 366 * 86_400 * SECOND_NS  # of clocks
ALL = "all"  # in place of a name


def requested_name(which: str, inputs: list[str] | None, verb: str) -> str:
    """The name that is asked for, "" for all. Ends the program where it is rather an input."""
    if inputs is None and (which == "-" or os.path.exists(which)):
        what = "stdin" if which == "-" else "a file or folder"
        raise bad_input(f"{which} is {what}, not a name: want stower {verb} {ALL} {which}")
    return "" if which == ALL else which


def cluster_of(
    inputs: list[str] | None,
    kubeconfig: Path | None,
    context: str,
    state: Path = STATE,
    at_end: bool = True,
    nodeless: bool = False,
) -> LoadedWorkload:
    """The cluster that is asked about; `nodeless`: a part of one will do. Ends the program where
    there is none."""
    if inputs and (kubeconfig is not None or context or state != STATE):
        raise bad_input("--kubeconfig, --context and --state cannot be combined with INPUT")
    try:
        with progress("reading"):
            if inputs:
                loaded = load(inputs, at_end, nodeless=nodeless)
            else:
                loaded = load_cluster(kubeconfig_of(kubeconfig, state), context)
    except (ClusterError, KubeError) as error:
        raise failure(str(error)) from None
    except InputError as error:
        raise bad_input(str(error)) from None
    for text in describe_inputs(loaded):
        note(text)
    return loaded


def moment_of(objects: Iterable[Any]) -> int:
    """When a cluster that was read is asked about, in ns since the epoch: now, or when its newest
    object was made, where that is later by this machine's clock."""
    made = (time_ns(obj.metadata.creation_timestamp) or 0 for obj in objects)
    now_ns = time.time_ns()
    # A time that is years ahead is a mistake, and no clock's.
    return max(now_ns, max((at for at in made if at <= now_ns + AHEAD_NS_MAX), default=0))
