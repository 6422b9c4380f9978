"""stower load: creates the objects of manifests or of a trace on a cluster."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.configuration_files import InputError
from stower.cli.inputs import RawObject, raw_objects
from stower.cli.kube import Kube, KubeError, kubeconfig_of
from stower.cli.object_loader import Loader, LoadResult, discover
from stower.cli.output import Output, bad_input, console, emit, failure, note, progress

NAME = "load"
EPILOG = """
Examples:

  stower load pods.yaml --rate 50

  stower generate --nodes 0 --pods 2000 | stower load -

  stower load openb/ --speed 10000

  stower load team/ --kubeconfig ~/.kube/config --namespace lab

Objects that already exist are left unchanged. The exit code is 1 if an object cannot be created.
"""


def run(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Manifests (YAML, JSON, lists, .gz, .zst), folders of them, - for stdin, "
            "or an OpenB trace folder or its CSV files.",
        ),
    ],
    rate: Annotated[
        float, typer.Option(min=0, help="Pods per second; 0: as fast as the server allows.")
    ] = 0.0,
    speed: Annotated[
        float,
        typer.Option(min=0, help="Follow a trace's times, this many times faster; pods end too."),
    ] = 0.0,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of objects without one.")
    ] = "default",
    state: State = STATE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    output: Annotated[
        Output, typer.Option("--output", "-o", help="Output format of the result.")
    ] = Output.TABLE,
) -> None:
    """Create objects from files at a fixed rate."""
    try:
        objects = list(raw_objects(inputs))
        if not objects:
            raise bad_input(f"{', '.join(inputs)}: no objects")
        where = kubeconfig_of(kubeconfig, state)
        server, result = asyncio.run(_load(objects, where, context, namespace, rate, speed))
    except InputError as error:
        raise bad_input(str(error)) from None
    except KubeError as error:
        raise failure(str(error)) from None
    for message in result.messages:
        note(message)
    if output is not Output.TABLE:
        emit(result, output)
    else:
        per_s = result.done_count / result.seconds if result.seconds else 0.0
        parts = [f"{result.created:,} created"]
        if result.already_there:
            parts.append(f"{result.already_there:,} already existed")
        if result.failed:
            parts.append(f"{result.failed:,} failed")
        took = f"in {result.seconds:.1f} s ({per_s:,.0f}/s)"
        console().print(f"{', '.join(parts)} {took} on {server}.", soft_wrap=True)
    if result.failed:
        raise typer.Exit(1)


async def _load(
    objects: list[RawObject],
    where: Path | None,
    context: str,
    namespace: str,
    rate: float,
    speed: float,
) -> tuple[str, LoadResult]:
    async with Kube.open(where, context) as kube:
        loader = Loader(kube, namespace, await discover(kube))
        with progress("load") as update:

            def on_progress(done: int) -> None:
                if update is not None:
                    update(done, len(objects))

            await loader.run(objects, rate, speed, on_progress)
        return kube.server, loader.result
