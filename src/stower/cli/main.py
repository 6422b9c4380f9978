"""The entry point of `stower`: runs the verbs, one file each in verbs/, listed in VERBS.

The module of a verb is imported when the verb runs or its own help is shown. The help and the
completion of `stower` itself import no verb: the imports would take most of a second.
"""

import importlib
import os
import sys
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from stower.model.errors import closest, printable

# The verbs in the order in which help lists them, each with the first line of its own help, so that
# lists of verbs import none of them. tests/unit/cli/test_main.py compares the texts.
VERBS: Final = {
    "up": "Start a cluster: API server, simulated nodes, controllers, scheduler.",
    "down": "Stop a cluster; keep its state for the next `stower up`.",
    "status": "Show cluster processes, ready nodes and pod phases.",
    "top": "Show nodes, queue, rates and decisions of a running scheduler, live.",
    "doctor": "Check whether this machine and a cluster have what a scheduler needs.",
    "load": "Create objects from files at a fixed rate.",
    "get": "Show pending pods and why they have no node.",
    "devices": "Show devices, the claims that hold them, and the remaining capacity.",
    "negotiations": "Show pods whose devices are negotiated with drivers, and what each side waits "
    "for.",
    "groups": "Show pod groups as trees, with their placement and what they wait for.",
    "make-groups": "Create pod groups for pods with the scheduling gate for it, until stopped.",
    "vms": "Show VMs with their used, requested and approved sizes, and their migrations.",
    "warm": "Show warm pools: users, placeholders and free slots by node, and what is planned.",
    "simulate": "Schedule pods of manifests or of a trace in process, and report the placement.",
    "faults": "Run the scheduler on simulated clusters with faults, and check laws at every step.",
    "pack": "Compare which share of the GPUs of a trace packing policies allocate.",
    "hub": "Compare waits and node hours of placement policies on simulated days of a JupyterHub.",
    "sweep": "Simulate workloads under configurations with many seeds, and compare the results.",
    "fit": "Show how many copies of a pod fit, or how many nodes a load needs.",
    "rebalance": "Propose few moves that let pods that wait run, or that empty nodes.",
    "drain-check": "Show where the pods of a node would go after a drain, and which fit nowhere.",
    "explain": "Show why a pod or group is placed or not, and the smallest change to schedule it.",
    "replay": "Replay a recording and compare the writes, or show it in the dashboard (--port).",
    "what-if": "Show what would change with other nodes, objects or another configuration.",
    "demo": "Run workloads, a drain and a scheduler crash on a simulated cluster, and delete it.",
    "generate": "Write nodes and pods as JSON lines: four node pools in three zones, six kinds "
    "of app.",
    "config": "Check, complete and convert kube-scheduler's configuration files.",
    "bench": "Run benchmarks and print the best run of each.",
    "run": "Schedule the pods of a cluster until stopped.",
    "apiserver": "Serve the Kubernetes API from a directory, for one machine.",
    "actors": "Simulate kubelets and controllers until stopped.",
}
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
            _exit_on_write_error(error)

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
        return super().parse_args(ctx, [self._parse_switch(arg) for arg in args])

    def _parse_switch(self, arg: str) -> str:
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
    """The verbs of VERBS, each of which is imported from its own module when it is run."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names of the verbs, in the order of VERBS."""
        return list(VERBS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes each verb with the whole first line of its help."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns the verb as lists show it (name and help), without its module; None: no verb."""
        return TyperCommand(cmd_name, help=VERBS[cmd_name]) if cmd_name in VERBS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the name, the verb and its arguments. Imports the verb that is run."""
        if args and args[0] not in VERBS and (close := closest(args[0], VERBS)):
            ctx.fail(f"No such command {args[0]!r}; did you mean {close}?")
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_verb(name) if name is not None and command is not None else None, rest


def load_verb(name: str) -> Any:
    """Returns the command of a verb of VERBS. Imports the verb's module."""
    verb = importlib.import_module(f"stower.cli.verbs.{name.replace('-', '_')}")
    run = verb.run
    if getattr(verb, "WATCHED", False):
        from stower.cli.watch import add_watch

        run = add_watch(run)
    made = typer.Typer(**PLAIN)
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
        _print_usage_error(error)
        code = error.exit_code
    except typer.Abort:
        code = INTERRUPTED
    except OSError as error:
        _exit_on_write_error(error)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    # What is still in the buffer would fail where nobody can say so any more.
    try:
        sys.stdout.flush()
    except OSError as error:
        _exit_on_write_error(error)
    sys.exit(code)


def _print_usage_error(error: Any) -> None:
    """In the way of all other errors, with where to read on."""
    path = error.ctx.command_path if error.ctx is not None else "stower"
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    text = " ".join(error.format_message().split()).replace("Value error, ", "")
    sys.stderr.write(f"stower: error: {printable(text)}\n")
    sys.stderr.write(f"Try: {path} --help\n")


def _exit_on_write_error(error: OSError) -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        sys.exit(141)  # as a program that died of SIGPIPE
    sys.stderr.write(f"stower: error: {error.strerror or error}\n")
    sys.exit(1)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # 0.06 s

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
