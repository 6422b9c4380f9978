"""stower simulate: runs the scheduler over files and reports the result."""

import os
from typing import Any

import typer

from stower.cli.fault_runs import check_seeds, read_order, run_order, run_script
from stower.cli.hub_runs import SCENARIOS, read_folder, read_groups, read_rules
from stower.cli.hub_runs import SEEDS as HUB_SEEDS
from stower.cli.hub_runs import Order as HubOrder
from stower.cli.hub_runs import run_order as run_hub
from stower.cli.output import bad_input
from stower.cli.output_files import check_folder
from stower.cli.packing_runs import SEEDS, Order, read_trace
from stower.cli.packing_runs import read_policies as read_trace_policies
from stower.cli.packing_runs import run_order as run_trace
from stower.cli.placement_runs import run_placement
from stower.cli.plot import PlotError, check_plot
from stower.cli.plugins import plugins_of
from stower.cli.policies import read_policies
from stower.cli.simulate_arguments import SimulateArguments
from stower.cli.verb_arguments import with_arguments
from stower.framework.configuration import read_configuration

NAME = "simulate"
WATCHED = True
EPILOG = """
Examples:

  stower simulate cluster.yaml

  kubectl get nodes,pods -A -o json | stower simulate -

  stower simulate openb/ --config spread.yaml --config pack.yaml

  stower simulate openb/ --timed --plot use.svg

  stower simulate cluster/ --by topology.kubernetes.io/zone --match app=web

  stower simulate --faults all --seeds 1000

  stower simulate --faults driver-crashes,timeouts --negotiate --seeds 100
  stower simulate --faults all --groups --seeds 100

  stower simulate --faults all --vms --seeds 100

  stower simulate --faults crashes,cuts --seed 7 --until 24h

  stower simulate --faults all --nodes 1000 --pods 50000 --until 24h

  stower simulate --trace openb openb/ --policy random --policy best-fit

  stower simulate --scenario hub --seeds 3

  stower simulate --scenario hub days/ --policy z2jh --policy stower --plot waits.svg

  stower simulate --trace openb node_list.csv pod_list.csv --seeds 3 --plot gpus.svg -o json

Drivers are not simulated: pods whose devices are negotiated with a driver stay pending.

With --faults the exit code is 1 if a law is broken; the seed and the last steps are printed on
standard error, and a small script that still breaks the law is written, with a recording of the
run.

With --trace, pods share GPUs as devices; the report shows which share of the GPUs each policy has
allocated when the pods so far have requested 90, 100 and 130 % of them, as means over the seeds.
"""


@with_arguments(SimulateArguments)
def run(given: SimulateArguments) -> None:
    """Schedule pods of manifests or of a trace in process, and report the placement.

    Pods that already have a node keep it. Pods of manifests are all pending at the start and are
    scheduled by priority; pods of a trace arrive one by one, with --timed at their own times.
    """
    if given.trace:
        _run_trace(given)
        return
    if given.scenario:
        _run_scenario(given)
        return
    _refuse({"--policy": given.policy}, "needs --trace or --scenario")
    _refuse({"--node-groups": given.node_groups}, "needs --scenario")
    if given.faults is not None or given.script is not None:
        if not _run_faults(given):
            raise typer.Exit(1)
        return
    _refuse(given.many_runs_options(), "needs --faults")
    if not given.inputs:
        raise typer.BadParameter("want INPUT, --faults or --script", param_hint="INPUT")
    all_placed = run_placement(given)
    if given.require_all and not all_placed:
        raise typer.Exit(1)


def _refuse(options: dict[str, object], why: str) -> None:
    """Ends the program for an option that is given and would have no effect."""
    for option, value in options.items():
        if value:
            raise bad_input(f"{option}: {why}")


def _refuse_own_cluster(given: SimulateArguments, why: str) -> None:
    """Ends the program for an option of a placement or of runs with faults."""
    without = {
        "--faults": given.faults is not None, "--script": given.script, "--config": given.config,
    }  # fmt: skip
    _refuse({**given.placement_options(), **given.fault_options(), **without}, why)


def _run_trace(given: SimulateArguments) -> None:
    """Compares packing policies on a trace. Checks everything before a run starts."""
    _refuse_own_cluster(given, "cannot be used with --trace")
    seed, seeds = given.seed, given.seeds or SEEDS
    check_seeds(seed, seeds)
    check_plot(given.plot_file)
    policies = read_trace_policies(given.policy or [])
    order = Order(policies, seed, seeds, given.jobs or os.cpu_count() or 1)
    try:
        trace = read_trace(given.trace, given.inputs or [])
        run_trace(order, trace, given.output, given.plot_file)
    except PlotError as error:
        raise bad_input(str(error)) from None


def _run_scenario(given: SimulateArguments) -> None:
    """Compares policies on days of a hub. Checks everything before a run starts."""
    _refuse_own_cluster(given, "cannot be used with --scenario")
    if given.scenario not in SCENARIOS:
        raise bad_input(f"--scenario: got {given.scenario!r}, want one of {', '.join(SCENARIOS)}")
    seed, seeds = given.seed or 1, given.seeds or HUB_SEEDS
    check_seeds(seed, seeds)
    check_plot(given.plot_file)
    jobs = given.jobs or os.cpu_count() or 1
    rules, groups = read_rules(given.policy or []), read_groups(given.node_groups)
    order = HubOrder(rules, seed, seeds, jobs, given.slots, groups)
    try:
        run_hub(order, read_folder(given.inputs or [], order), given.output, given.plot_file)
    except PlotError as error:
        raise bad_input(str(error)) from None


def _run_faults(given: SimulateArguments) -> bool:
    """Runs simulations with faults, or one script; returns whether every law holds."""
    if given.inputs or (given.faults is not None and given.script is not None):
        raise bad_input("--faults and --script make a cluster: want no INPUT, and one of the two")
    refused = {**given.placement_options(), "--plot": given.plot_file}
    _refuse(refused, "cannot be used with --faults or --script")
    document = _configuration_with_faults(given.config or [])
    if given.script is not None:
        _refuse({**given.many_runs_options(), "--seed": given.seed}, "needs --faults")
        return run_script(given.script, document, given.output)
    check_folder("--failures", given.failures)
    order = read_order(
        given.faults or "",
        given.seed,
        given.seeds or 1,
        given.jobs,
        given.until,
        (given.nodes, given.pods),
        given.negotiate,
        given.groups,
        given.vms,
        given.warm,
        document,
    )
    return run_order(order, given.output, given.failures)


def _configuration_with_faults(paths: list[str]) -> dict[str, Any] | None:
    """Returns the one configuration of runs with faults, which simulate no extenders."""
    if len(paths) > 1:
        raise bad_input(f"--config: got {len(paths)} files, want one for runs with faults")
    ((_, document),) = read_policies(paths)
    if read_configuration(document).extenders or plugins_of(document):
        raise bad_input(
            "--config: runs with faults support no extenders and no third-party plugins"
        )
    return document
