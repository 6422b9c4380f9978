"""stower devices: shows DRA devices, the claims that hold them, and their remaining capacity."""

from typing import Annotated

import typer

from stower.cli.cluster_inputs import ALL, Inputs, cluster_of, requested_name
from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.output import Output, bad_input, console, emit, lines, table
from stower.cli.plot import Plot, check_plot, draw
from stower.cli.view_plots import plot_devices
from stower.devices.overview import DeviceState, Holder, Overview, PoolState, overview
from stower.state.devices import devices_of

NAME = "devices"
WATCHED = True
EPILOG = """
Examples:

  stower devices

  stower devices node-1

  stower devices gpu.example.com/pool-a dumps/ --output json

  kubectl get nodes,resourceslices,resourceclaims -A -o json | stower devices all -

POOL is the name of a pool, or DRIVER/POOL; `all` selects all devices. The exit code is 2 if there
is no such node or pool.
"""


def run(
    which: Annotated[
        str, typer.Argument(metavar="[NODE|POOL]", help="Only the devices of a node or a pool.")
    ] = ALL,
    inputs: Inputs = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    plot_file: Plot = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Show devices, the claims that hold them, and the remaining capacity."""
    check_plot(plot_file)
    name = requested_name(which, inputs, NAME)
    workload = cluster_of(inputs, kubeconfig, context, state, nodeless=True).workload
    found = overview(devices_of(workload.related), workload.nodes, name)
    if found is None:
        raise bad_input(f"got {which!r}, want a node or a pool of devices")
    if plot_file is not None:
        draw(lambda path: plot_devices(found, path), plot_file)
    if output is Output.TABLE:
        _print(found)
    else:
        emit(found, output)


def _print(found: Overview) -> None:
    out = console()
    if not found.devices:
        out.print("There are no devices.")
        return
    shown = table("Devices", "node", "pool", "device", "held by", "left", "note")
    for device in found.devices:
        shown.add_row(
            device.nodes,
            f"{device.driver}/{device.pool}",
            device.device,
            lines(map(_holder, device.holders)),
            lines(_describe_remaining(device)),
            lines(_notes(device)),
        )
    out.print(shown)
    pools = [pool for pool in found.pools if pool.counters or pool.fault]
    if pools:
        shown = table("Pools", "pool", "generation", "slices", "counters left", "note")
        for pool in pools:
            shown.add_row(
                f"{pool.driver}/{pool.pool}", f"{pool.generation}",
                f"{pool.slices} of {pool.slices_wanted}", lines(_counters(pool)), pool.fault,
            )  # fmt: skip
        out.print(shown)


def _holder(holder: Holder) -> str:
    amounts = ", ".join(f"{amount} {name}" for name, amount in holder.amounts.items())
    pods = f" for {', '.join(holder.pods)}" if holder.pods else ""
    admin = " (admin)" if holder.admin else ""
    return f"{holder.claim}{f': {amounts}' if amounts else ''}{pods}{admin}"


def _describe_remaining(device: DeviceState) -> list[str]:
    if not device.capacity and not device.shared:
        return [] if device.holders else ["all"]
    return [f"{room.left} of {room.total} {name}" for name, room in device.capacity.items()]


def _notes(device: DeviceState) -> list[str]:
    shared = ["shared"] if device.shared else []
    blocked = [device.blocked] if device.blocked else []
    more = ["overcommitted"] if device.overcommitted else []
    more += [f"waits for {holder.waits}" for holder in device.holders if holder.waits]
    return [*shared, *device.taints, *blocked, *more]


def _counters(pool: PoolState) -> list[str]:
    return [f"{room.left} of {room.total} {name}" for name, room in pool.counters.items()]
