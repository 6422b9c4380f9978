"""The stower command: verbs, one file each in verbs/, listed in VERBS."""

import os
import sys
from typing import Final

import typer

from stower.cli.verbs import apiserver, bench, demo, generate, run, simulate

VERBS: Final = (simulate, demo, generate, bench, run, apiserver)

app = typer.Typer(
    name="stower",
    help="A pod scheduler for mixed Kubernetes clusters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in VERBS:
    app.command(verb.NAME, epilog=verb.EPILOG)(verb.run)


def main() -> None:
    """Run the command line. A reader that went away ends it quietly, a full disk with a word."""
    try:
        app()
    except OSError as error:
        _give_up(error)
    except SystemExit:
        # What is still in the buffer would fail where nobody can say so any more.
        try:
            sys.stdout.flush()
        except OSError as error:
            _give_up(error)
        raise


def _give_up(error: OSError) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        sys.exit(141)  # as a program that died of SIGPIPE
    sys.stderr.write(f"stower: error: {error.strerror or error}\n")
    sys.exit(1)


@app.callback()
def _top() -> None:
    """A pod scheduler for mixed Kubernetes clusters."""


if __name__ == "__main__":
    main()
