"""stower down: stop the cluster that `stower up` started."""

import os
import shutil
import signal
import time
from typing import Annotated

import typer

from stower.cli.output import console, failed
from stower.cli.supervisor import CLUSTER, STATE, is_held, read_record
from stower.cli.verbs.up import State

NAME = "down"
EPILOG = """
Examples:

  stower down

  stower down --state ./lab --delete

Stopping a cluster that does not run is no error.
"""
SECONDS_MAX = 60.0
END_SECONDS_MAX = 2.0


def run(
    state: State = STATE,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the directory with all objects too.")
    ] = False,
) -> None:
    """Stop a cluster; its state stays for the next `up`."""
    record = read_record(state)
    if record is not None:
        try:
            os.kill(record.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise failed(f"--state {state}: process {record.pid} is not ours to stop") from None
        until = time.monotonic() + SECONDS_MAX
        while is_held(state):
            if time.monotonic() > until:
                raise failed(f"process {record.pid} has not ended after {SECONDS_MAX:.0f} s")
            time.sleep(0.05)
        _wait_for_end(record.pid)
    elif (state / CLUSTER).exists() and is_held(state):
        raise failed(f"--state {state}: it is starting or stopping; try again in a moment")
    said = "Stopped." if record is not None else f"No cluster runs from {state}."
    if delete and (state / CLUSTER).exists():
        shutil.rmtree(state)
        said += f" {state} is deleted."
    console().print(said)


def _wait_for_end(pid: int) -> None:
    """It has let go of everything; its parent may take its time to notice its end."""
    until = time.monotonic() + END_SECONDS_MAX
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except OSError:
            return
        time.sleep(0.01)
