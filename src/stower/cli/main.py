"""The stower command: verbs, one file each in verbs/, listed in VERBS.

A verb is imported when it is asked for: most of a second of each start would go into the others.
"""

import importlib
import os
import sys
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from stower.cli.watching import watched

VERBS: Final = (
    "up",
    "down",
    "status",
    "top",
    "doctor",
    "load",
    "get",
    "devices",
    "negotiations",
    "groups",
    "make-groups",
    "vms",
    "warm",
    "simulate",
    "sweep",
    "fit",
    "drain-check",
    "explain",
    "replay",
    "what-if",
    "demo",
    "generate",
    "config",
    "bench",
    "run",
    "apiserver",
    "actors",
)
PLAIN: Final[dict[str, Any]] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}


class Verb(TyperCommand):
    """One verb. Switches may be said as Kubernetes' programs have them: --leader-elect=false."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        return super().parse_args(ctx, [self._switched(arg) for arg in args])

    def _switched(self, arg: str) -> str:
        name, _, value = arg.partition("=")
        if value not in ("true", "false"):
            return arg
        for option in self.params:
            if getattr(option, "is_flag", False) and name in option.opts:
                if value == "true":
                    return name
                return option.secondary_opts[0] if option.secondary_opts else arg
        return arg


class Verbs(TyperGroup):
    """The verbs, each from its own module."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, in the order in which they are of use."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One verb."""
        if cmd_name not in VERBS:
            return None
        verb = importlib.import_module(f"stower.cli.verbs.{cmd_name.replace('-', '_')}")
        made = typer.Typer(**PLAIN)
        run = watched(verb.run) if getattr(verb, "WATCHED", False) else verb.run
        made.command(verb.NAME, epilog=verb.EPILOG, cls=Verb)(run)
        return typer.main.get_command(made)


app = typer.Typer(
    name="stower",
    cls=Verbs,
    help="A pod scheduler for mixed Kubernetes clusters.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **(PLAIN | {"add_completion": True}),
)


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


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stower {version('stower')}")
        raise typer.Exit


@app.callback()
def _top(
    shown: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """A pod scheduler for mixed Kubernetes clusters."""


if __name__ == "__main__":
    main()
