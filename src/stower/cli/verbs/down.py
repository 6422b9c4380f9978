"""stower down: stops the cluster of `stower up`, and with --delete deletes its files."""

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from stower.cli.cluster_options import State
from stower.cli.output import console, failure
from stower.cli.state_folder import LOCK, STATE, UpError, check_trusted, is_held, stop_holder
from stower.cli.supervisor import (
    CLUSTER,
    LOGS,
    RECORD,
    TOKEN,
    read_record,
)
from stower.pki.files import new_path

NAME = "down"
EPILOG = """
Examples:

  stower down

  stower down --state ./lab --delete

The exit code is 0 as well if no cluster runs.
"""
SECONDS_MAX = 60.0
# Whatever `stower up` makes in its folder.
OWN = (
    CLUSTER, LOGS, LOCK, RECORD, TOKEN, "kubeconfig", "lock", "pki", "stower.db", "stower.db-shm",
    "stower.db-wal",
)  # fmt: skip
END_SECONDS_MAX = 2.0


def run(
    state: State = STATE,
    delete: Annotated[
        bool, typer.Option("--delete", help="Also delete its files, with all objects.")
    ] = False,
) -> None:
    """Stop a cluster; keep its state for the next `stower up`."""
    try:
        check_trusted(state)
        record = read_record(state)
    except UpError as error:
        raise failure(str(error)) from None
    if record is not None:
        try:
            stop_holder(state, record.pid)
        except UpError as error:
            raise failure(str(error)) from None
        except PermissionError:
            raise failure(f"--state {state}: no permission to stop process {record.pid}") from None
        until = time.monotonic() + SECONDS_MAX
        while is_held(state):
            if time.monotonic() > until:
                text = f"process {record.pid} has not ended after {SECONDS_MAX:.0f} s"
                raise failure(f"--state {state}: {text}")
            time.sleep(0.05)
        _wait_for_end(record.pid)
    elif (state / CLUSTER).exists() and is_held(state):
        raise failure(f"--state {state}: the cluster is starting or stopping; try again")
    said = "Stopped." if record is not None else f"No cluster runs from {state}."
    if delete and (state / CLUSTER).exists():
        said += _delete_state(state)
    console().print(said)


def _delete_state(state: Path) -> str:
    """Delete what `stower up` made, and the folder where nothing else is in it."""
    own = [state / name for name in OWN]
    for path in [*own, *map(new_path, own)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    left = sorted(path.name for path in state.iterdir())
    if left:
        return f" Its files are deleted; {state} stays, as it also has {', '.join(left[:3])}."
    with contextlib.suppress(OSError):  # the folder that we are in
        state.rmdir()
    return f" {state} is deleted."


def _wait_for_end(pid: int) -> None:
    """It has let go of everything; its parent may take its time to notice its end."""
    until = time.monotonic() + END_SECONDS_MAX
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except OSError:
            return
        time.sleep(0.01)
