"""The stower command: verbs, one file each in verbs/, listed in VERBS.

A verb is imported when it is asked for: most of a second of each start would go into the others.
"""

import importlib
import os
import sys
from importlib.metadata import version
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from stower.cli.watch import watched
from stower.model.errors import printable

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
WIDTH_MAX: Final = 120  # of help, where the terminal is that wide
INTERRUPTED: Final = 130
# typer keeps its base to itself.
UsageError: Any = typer.BadParameter.__mro__[1]
PLAIN: Final[dict[str, Any]] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}


class Verb(TyperCommand):
    """One verb. Switches may be said as Kubernetes' programs have them: --leader-elect=false."""

    def invoke(self, ctx: Any) -> Any:
        """See click, which takes a reader that went away for an error of ours."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            _give_up(error)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples stay as they are, to be copied; text goes into the width there is."""
        for part in (self.epilog or "").strip("\n").split("\n\n"):
            formatter.write_paragraph()
            if part.startswith(" "):
                formatter.write(f"{part}\n")
            else:
                formatter.write_text(" ".join(part.split()))

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

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Each with all that it does in one sentence."""
        found = [(name, self.get_command(ctx, name)) for name in VERBS]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(WIDTH_MAX)) for name, one in found])

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
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH_MAX},
    **(PLAIN | {"add_completion": True}),
)


def main() -> None:
    """Run the command line. A reader that went away ends it quietly, a full disk with a word."""
    for name in ("stdout", "stderr"):  # whoever has closed them reads nothing, all our life
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    code = 0
    try:
        code = app(standalone_mode=False) or 0
    except UsageError as error:
        _tell_usage(error)
        code = error.exit_code
    except typer.Abort:
        code = INTERRUPTED
    except OSError as error:
        _give_up(error)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    # What is still in the buffer would fail where nobody can say so any more.
    try:
        sys.stdout.flush()
    except OSError as error:
        _give_up(error)
    sys.exit(code)


def _tell_usage(error: Any) -> None:
    """In the way of all other errors, with where to read on."""
    path = error.ctx.command_path if error.ctx is not None else "stower"
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    text = " ".join(error.format_message().split()).replace("Value error, ", "")
    sys.stderr.write(f"stower: error: {printable(text)}\n")
    sys.stderr.write(f"Try: {path} --help\n")


def _give_up(error: OSError) -> NoReturn:
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
