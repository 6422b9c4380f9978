"""stower hub: compares placement policies on days of a JupyterHub, made-up ones or a hub's own."""

import os
from pathlib import Path

from stower.cli.hub_arguments import HubArguments
from stower.cli.hub_runs import (
    OWN_SEEDS,
    SEEDS,
    Days,
    Order,
    cases_of,
    engine_inputs,
    find_placeholders,
    own_order,
    read_folder,
    read_groups,
    read_rules,
    run_order,
)
from stower.cli.output import bad_input
from stower.cli.own_hub_inputs import read_own_days, read_own_hub
from stower.cli.own_hub_runs import read_find
from stower.cli.plot import PlotError, check_plot
from stower.cli.recordings import recorder_of
from stower.cli.seeds import check_seeds
from stower.cli.verb_arguments import with_arguments
from stower.record.recorder import Recorder

NAME = "hub"
WATCHED = True
EPILOG = """
Examples:

  stower hub --seeds 3

  stower hub days/ --policy z2jh --policy stower --plot waits.svg

  stower hub --policy stower --dead 10%

  stower hub --policy stower --hubs 2

  stower hub --node-groups examples/warm/nodes.yaml --slots 20 -o json

  stower hub activity.csv --pool pool.yaml --config scheduler.yaml --node-groups nodes.yaml

  stower hub event.log --pool pool.yaml --find placeholders --goal "99.5% in 10s"

Users start servers and leave, placeholders keep room warm, and an autoscaler adds and removes
nodes. Ordinary days and days with lectures are run under each policy, each with the same users.
A folder of days has ordinary_users.csv, lectures_users.csv, nodes.csv and lectures_timetable.csv
(or .gz).

With --pool it is a hub's own day: a CSV table with the columns arrival and end (seconds, or RFC
3339 times; also last_activity, cpu and memory), JupyterHub's event log, the JSON of its GET
/hub/api/users, or a recording of `stower run --record`. Users are like --user, or like the pool's
placeholders; the pool's own number of placeholders is taken where --placeholders gives none.

The exit code is 1 if a law is broken.
"""


@with_arguments(HubArguments)
def run(given: HubArguments) -> None:
    """Compare waits and node hours of placement policies on simulated days of a JupyterHub."""
    seeds = given.seeds
    if seeds is None:
        seeds = 1 if given.record is not None else SEEDS if given.pool is None else OWN_SEEDS
    check_seeds(given.seed, seeds)
    check_plot(given.plot_file)
    rules, groups = read_rules(given.policy or []), read_groups(given.node_groups)
    cases = cases_of(_share("--late", given.late), _share("--dead", given.dead), given.hubs)
    jobs = given.jobs or os.cpu_count() or 1
    order = Order(rules, given.seed, seeds, jobs, given.slots, groups, cases)
    if given.pool is None:
        _refuse_own(given)
        found: Days = read_folder(given.days or [], order)
    else:
        order, found = _read_own(given, given.pool, order)
    try:
        if order.goal is not None:
            find_placeholders(order, found, given.output, given.plot_file)
        else:
            _run(given, order, found)
    except PlotError as error:
        raise bad_input(str(error)) from None


def _read_own(given: HubArguments, pool: Path, order: Order) -> tuple[Order, Days]:
    """What to run of a hub's own day, and the day. Ends the program where they are none."""
    if given.hubs > 1:
        raise bad_input("--hubs: cannot be used with --pool")
    goal = read_find(given.find, given.goal)
    if goal is not None and given.record is not None:
        raise bad_input("--record: cannot be used with --find")
    if goal is not None and len(given.placeholders or ()) > 1:
        raise bad_input("--placeholders: --find begins with one number: give one")
    ignores_unknown = given.ignore_unknown_plugins
    own = read_own_hub(pool, given.user, given.config, ignores_unknown, order.groups, given.slots)
    counts = given.placeholders or [own.pool.spec.placeholders.replicas]
    order = own_order(order, own, counts, bool(given.policy), goal)
    seeds = range(order.first_seed, order.first_seed + order.seeds)
    return order, (read_own_days(given.days or [], own, seeds), {})


def _run(given: HubArguments, order: Order, found: Days) -> None:
    recorder = _recorder(given.record, given.record_max, order, found)
    try:
        run_order(order, found, given.output, given.plot_file, recorder)
    finally:
        if recorder is not None:
            recorder.close()


def _refuse_own(given: HubArguments) -> None:
    """Ends the program for an option of a hub's own days."""
    options = {"--user": given.user, "--config": given.config, "--find": given.find,
               "--placeholders": given.placeholders}  # fmt: skip
    for name, value in options.items():
        if value:
            raise bad_input(f"{name}: is for a hub's own days: want --pool as well")


def _recorder(path: Path | None, size: str, order: Order, found: Days) -> Recorder | None:
    """Who records the one run of Stower. Ends the program where there are several."""
    if path is None:
        return None
    if order.rules.count("stower") * len(order.cases) * order.seeds != 1:
        raise bad_input("--record: want one run of stower: one seed and one case (as with --pool)")
    day = found[order.cases[0].lectures][order.first_seed]
    configuration, features = engine_inputs(order, day)
    return recorder_of(path, size, configuration, day.seed, features)


def _share(option: str, text: str) -> float:
    """A share of `10%` or `10`, 0 where it is not given. Ends the program for what is none."""
    if not text:
        return 0.0
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise bad_input(f"{option}: got {text!r}, want a percentage such as 10%")
    return percent / 100
