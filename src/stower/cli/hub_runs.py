"""Runs days of a JupyterHub (`stower hub`) under several placement policies and seeds, in parallel.
Prints waits, node hours, cost and evictions of each policy.
"""

import gzip
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal

import msgspec

from stower.cli.configuration_files import InputError, read_yaml_document
from stower.cli.names import check_names
from stower.cli.output import (
    OnProgress,
    Output,
    bad_input,
    console,
    emit,
    failure,
    format_count,
    note,
    progress,
    table,
)
from stower.cli.own_hub_runs import COUNT_MAX, Goal, find_least
from stower.cli.plot import plot_waits
from stower.cli.workers import quiet
from stower.framework.args import convert, duplicate
from stower.framework.events import Event
from stower.framework.plugin import Features
from stower.framework.writes import Write
from stower.model.errors import InvalidObject
from stower.model.resources import parse_list
from stower.record.recorder import Recorder
from stower.sim.autoscaler import NodeGroup
from stower.sim.hub import HubDay, Outcome
from stower.sim.hub_day import Day, draw_day, read_days
from stower.sim.hub_policies import RULES, Policy, Scenario, setup_of
from stower.sim.own_hub import OwnHub

SEEDS: Final = 20
OWN_SEEDS: Final = 3  # of a hub's own day
TIMEOUT_SECONDS: Final = 300  # after which a hub gives a user up
SOON_SECONDS: Final = 10
ENGINE: Final = "hub"  # in recordings
FILES: Final = (
    "ordinary_users.csv", "lectures_users.csv", "nodes.csv", "lectures_timetable.csv",
)  # fmt: skip


class Case(msgspec.Struct, frozen=True):
    """Days of one kind. `ours`, `theirs`: placeholders of Stower and of the others; `told`: whether
    the timetable is known; `surge_s`: of Stower."""

    name: str
    lectures: bool
    ours: int
    theirs: int
    told: bool = False
    surge_s: int = 0
    late: float = 0.0
    dead: float = 0.0
    hubs: int = 1

    def policy(self, rules: str) -> Policy:
        """One of those that are compared."""
        is_ours = rules == "stower"
        count = self.ours if is_ours else self.theirs
        return Policy(rules, rules, count, self.told, self.surge_s if is_ours else 0)


CASES: Final = (
    Case("ordinary", False, 10, 10),
    Case("ordinary, fewer placeholders", False, 7, 10),
    Case("lectures, announced", True, 5, 5, told=True),
    Case("lectures, unannounced", True, 5, 10, surge_s=300),
    Case("ordinary, 5 % pull late", False, 10, 10, late=0.05),
)


def cases_of(late: float, dead: float, hubs: int) -> tuple[Case, ...]:
    """The cases, or ordinary days on which these shares of nodes get their images half an hour late
    or never, and so many hubs share the nodes."""
    if not late and not dead and hubs == 1:
        return CASES
    shares = ((100 * late, "late"), (100 * dead, "dead"))
    parts = [f"{share:.3g} % {what}" for share, what in shares if share]
    parts += [f"{hubs} hubs"] if hubs > 1 else []
    name = f"ordinary, {', '.join(parts)}"
    return (Case(name, False, 10, 10, late=late, dead=dead, hubs=hubs),)


class NodeGroups(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A file of them."""

    api_version: Literal["stower.dev/v1"]
    kind: Literal["NodeGroups"]
    node_groups: tuple[NodeGroup, ...]


class Order(msgspec.Struct, frozen=True):
    """What to run."""

    rules: tuple[str, ...]
    first_seed: int
    seeds: int
    jobs: int
    slots: int
    groups: tuple[NodeGroup, ...] = ()
    cases: tuple[Case, ...] = CASES
    own: OwnHub | None = None
    goal: Goal | None = None  # the smallest number of placeholders is looked for


Days = tuple[dict[int, Day], dict[int, Day]]  # ordinary ones and days with lectures, by seed


def own_order(
    order: Order, own: OwnHub, counts: Sequence[int], has_rules: bool, goal: Goal | None
) -> Order:
    """What to run of a hub's own day. `counts`: of placeholders; `has_rules`: whether it was said
    which policies."""
    first = order.cases[0]
    cases = tuple(
        Case(placeholders_text(n), False, n, n, late=first.late, dead=first.dead)
        for n in dict.fromkeys(counts)
    )
    if goal is not None:
        if has_rules and order.rules != ("stower",):
            raise bad_input("--policy: --find looks for a number of placeholders of stower")
        rules: tuple[str, ...] = ("stower",)
    else:
        rules = order.rules if has_rules else ("z2jh", "stower")
    return msgspec.structs.replace(order, rules=rules, cases=cases, own=own, goal=goal)


def read_groups(path: Path | None) -> tuple[NodeGroup, ...]:
    """The node groups of a file; none, where there is none. Ends the program where it is wrong."""
    if path is None:
        return ()
    try:
        document = read_yaml_document(str(path))
        found = convert(document, NodeGroups, "").node_groups
        for i, group in enumerate(found):
            if group.name in [other.name for other in found[:i]]:
                raise duplicate(f"nodeGroups[{i}].name", group.name)
            field = f"nodeGroups[{i}].allocatable"
            for resource, quantity in parse_list(group.allocatable, field).items():
                if quantity.sign < 0:
                    at = f"{field}.{resource}"
                    raise InvalidObject(at, group.allocatable[resource], "a quantity of at least 0")
            if group.min > group.max:
                raise InvalidObject(f"nodeGroups[{i}].min", group.min, f"at most max: {group.max}")
        if not found:
            raise InvalidObject("nodeGroups", [], "at least one")
    except InputError as error:
        raise bad_input(str(error)) from None
    except InvalidObject as error:
        raise bad_input(f"{path}: {error}") from None
    return found


def read_rules(names: Sequence[str]) -> tuple[str, ...]:
    """The policies to run; all, where none is named. Ends the program for an unknown."""
    check_names("--policy", names, RULES, "one of")
    return tuple(rule for rule in RULES if rule in names) if names else RULES


def read_folder(inputs: Sequence[str], order: Order) -> Days:
    """Ordinary days and days with lectures, by seed; drawn, where there is no INPUT. Ends the
    program where they cannot be used."""
    seeds = range(order.first_seed, order.first_seed + order.seeds)
    if not inputs:
        return {s: draw_day(s, False) for s in seeds}, {s: draw_day(s, True) for s in seeds}
    wanted = f"want one folder with {', '.join(FILES)} (or .gz)"
    if len(inputs) > 1 or not os.path.isdir(inputs[0]):
        raise bad_input(f"DAYS: got {' '.join(inputs)!r}, {wanted}")
    try:
        ordinary, lectures, nodes, timetable = ([*_lines(inputs[0], name)] for name in FILES)
        days = read_days(ordinary, nodes), read_days(lectures, nodes, timetable)
    except FileNotFoundError as error:
        raise bad_input(f"{error.filename}: there is no such file; {wanted}") from None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise bad_input(f"{inputs[0]}: {error}") from None
    except InvalidObject as error:
        raise bad_input(f"{inputs[0]}: {error}") from None
    for seed in seeds:
        if any(seed not in of_kind for of_kind in days):
            known = ", ".join(str(one) for one in days[0] if one in days[1]) or "none"
            raise bad_input(f"--seed, --seeds: {inputs[0]} has no seed {seed}; it has {known}")
    return days


def _lines(folder: str, name: str) -> Iterator[str]:
    packed = Path(folder, f"{name}.gz")
    if packed.is_file():
        with gzip.open(packed, "rt") as file:
            yield from file
    else:
        with Path(folder, name).open() as file:
            yield from file


def run_order(
    order: Order,
    days: Days,
    output: Output,
    plot_file: Path | None,
    recorder: Recorder | None = None,
) -> None:
    """Run all cases under all policies and seeds, and say what came of them. `recorder`: of the one
    run that there is of Stower."""
    with progress("hub") as update:
        found = _outcomes(order, order.cases, days, update, recorder)
    rows = _rows(order, order.cases, found)
    _report(order, rows, found, output, plot_file, {})


def find_placeholders(
    order: Order,
    days: Days,
    output: Output,
    plot_file: Path | None,
) -> None:
    """Look for the smallest number of placeholders that meets the goal, and say what it costs. Ends
    the program where there is none."""
    asked, goal = order.cases[0], order.goal
    assert goal is not None
    # One for each user and each node that may be without images is as good as any more.
    most = min(COUNT_MAX, 2 * max(len(d.users) for d in days[asked.lectures].values()) + 1)
    cases: dict[int, Case] = {}
    found: Outcomes = {}
    with progress("hub") as update:

        def meets(count: int) -> bool:
            case = cases[count] = msgspec.structs.replace(
                asked, name=placeholders_text(count), ours=count, theirs=count
            )
            note(f"trying {case.name}")
            found.update(_outcomes(order, (case,), days, update))
            waits = [w for run in found[case.name, "stower"] for w in run.waits_s]
            return _percent_within(waits, goal.seconds) >= goal.percent

        least, _ = find_least(asked.ours, most, meets)
    tried = [case for _, case in sorted(cases.items())]
    rows = _rows(order, tried, found)
    said = {"goal": str(goal), "found": least}
    _report(
        msgspec.structs.replace(order, cases=tuple(tried)), rows, found, output, plot_file, said
    )
    if least is None:
        raise failure(
            f"--goal: {most:,} placeholders do not meet {goal}, and no more would help: the first "
            "users may come before a node is ready"
        )
    if output is Output.TABLE:
        row = next(row for row in rows if row["case"] == placeholders_text(least))
        verb = "meets" if least == 1 else "meet"
        do_not = "does not" if least == 2 else "do not"
        console().print(
            f"{placeholders_text(least)} {verb} {goal}, {placeholders_text(least - 1)} {do_not}: "
            f"{row['nodeHours']:,.1f} node hours, cost {row['cost']:,.1f}"
            if least
            else f"No placeholder is needed for {goal}: {row['nodeHours']:,.1f} node hours",
            soft_wrap=True,
        )


def placeholders_text(count: int) -> str:
    """So many placeholders."""
    return format_count(count, "placeholder")


Outcomes = dict[tuple[str, str], list[Outcome]]


def _outcomes(
    order: Order,
    cases: Sequence[Case],
    days: Days,
    update: OnProgress | None,
    recorder: Recorder | None = None,
) -> Outcomes:
    """By case and policy, those of all seeds."""
    seeds = range(order.first_seed, order.first_seed + order.seeds)
    tasks = [
        (case, rules, order, days[case.lectures][seed])
        for case in cases
        for rules in order.rules
        for seed in seeds
    ]
    found: Outcomes = {}
    for name, outcome in _runs(tasks, order.jobs, update, recorder):
        found.setdefault((name, outcome.policy), []).append(outcome)
    for outcomes in found.values():
        outcomes.sort(key=lambda one: one.seed)
    return found


def _rows(order: Order, cases: Sequence[Case], found: Outcomes) -> list[dict[str, Any]]:
    return [
        _figures(case, rules, found[case.name, rules], found.get((case.name, "z2jh")))
        for case in cases
        for rules in order.rules
    ]


def _report(
    order: Order,
    rows: list[dict[str, Any]],
    found: Outcomes,
    output: Output,
    plot_file: Path | None,
    more: dict[str, Any],
) -> None:
    """Says what came of the runs. Ends the program where a law was broken."""
    if plot_file is not None:
        waits = {key: [w for one in outcomes for w in one.waits_s]
                 for key, outcomes in found.items()}  # fmt: skip
        plot_waits(waits, plot_file)
    if output is Output.TABLE:
        _print(rows, order)
    else:
        last = order.first_seed + order.seeds - 1
        seeds = [order.first_seed, last]
        emit({**more, "slots": order.slots, "seeds": seeds, "cases": rows}, output)
    broken = [f"{r['case']}, {r['policy']}, {told}" for r in rows for told in r["broken"]]
    if broken:
        raise failure("a law is broken: " + "; ".join(broken))


Task = tuple[Case, str, Order, Day]


def _runs(
    tasks: list[Task], jobs: int, update: OnProgress | None, recorder: Recorder | None
) -> Iterator[tuple[str, Outcome]]:
    jobs = min(jobs, len(tasks))
    if jobs == 1 or recorder is not None:
        for done, task in enumerate(tasks):
            if update is not None:
                update(done, len(tasks))
            yield _run_one(task, recorder if task[1] == "stower" else None)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, quiet) as pool:
        for done, outcome in enumerate(pool.imap_unordered(_run_one, tasks)):
            if update is not None:
                update(done, len(tasks))
            yield outcome


def _run_one(task: Task, recorder: Recorder | None = None) -> tuple[str, Outcome]:
    case, rules, order, day = task
    scenario = Scenario(
        case.name, order.slots, case.late, case.dead, groups=order.groups, hubs=case.hubs,
        own=order.own,
    )  # fmt: skip
    if recorder is None:
        return case.name, HubDay(day, scenario, case.policy(rules)).run()
    recorder.record_engine(ENGINE)

    def tell(at_ns: int, event: Event, writes: Sequence[Write]) -> None:
        recorder.record_step(ENGINE, at_ns, event, writes)

    return case.name, HubDay(day, scenario, case.policy(rules), tell=tell).run()


def engine_inputs(order: Order, day: Day) -> tuple[Mapping[str, Any] | None, Features]:
    """What the engine of the first case is built from."""
    case = order.cases[0]
    scenario = Scenario(case.name, order.slots, groups=order.groups, hubs=case.hubs, own=order.own)
    setup = setup_of(scenario, case.policy("stower"), day)
    return setup.configuration, Features(warm_pools=bool(setup.pools))


def _figures(
    case: Case, rules: str, runs: list[Outcome], others: list[Outcome] | None
) -> dict[str, Any]:
    """Means over seeds, waits of all users together; against z2jh's on the same days."""
    waits = sorted(wait for run in runs for wait in run.waits_s)
    ratio = wait_ratio = None
    if others is not None:
        pairs = zip(runs, others, strict=True)
        ratio = round(fmean(a.node_hours / b.node_hours for a, b in pairs), 4)
        theirs = fmean(wait for run in others for wait in run.waits_s)
        wait_ratio = round(fmean(waits) / theirs, 4) if theirs else None
    hours = sum(run.hours for run in runs)
    return {
        "case": case.name,
        "policy": rules,
        "placeholders": case.policy(rules).placeholders,
        "users": len(waits),
        "within10sPercent": round(_percent_within(waits, SOON_SECONDS), 3),
        "worstSeedPercent": round(min(_percent_within(r.waits_s, SOON_SECONDS) for r in runs), 3),
        "within300sPercent": round(_percent_within(waits, TIMEOUT_SECONDS), 3),
        "meanWaitSeconds": round(fmean(waits), 2),
        "waitSeconds": {f"p{p}": round(_quantile(waits, p), 1) for p in (50, 95, 99)},
        "p99OfSeedsSeconds": round(fmean(_quantile(sorted(r.waits_s), 99) for r in runs), 1),
        "warmPercent": round(100 - 100 * sum(r.cold for r in runs) / max(1, len(waits)), 3),
        "nodeHours": round(fmean(run.node_hours for run in runs), 2),
        "nodeHoursToZ2jh": ratio,
        "cost": round(fmean(run.cost for run in runs), 2),
        "meanWaitToZ2jh": wait_ratio,
        "evictionsPerHour": round(sum(run.evicted for run in runs) / hours, 2),
        "movesPerHour": round(sum(run.moved for run in runs) / hours, 2),
        "loweringsPerHour": round(sum(run.lowered for run in runs) / hours, 2),
        "ordersFailed": sum(run.orders_failed for run in runs),
        "movesInAMinuteMax": max(run.moves_in_a_minute for run in runs),
        "broken": [f"seed {run.seed} {run.broken}" for run in runs if run.broken],
    }


def _percent_within(waits: Sequence[float], seconds: float) -> float:
    return 100 * sum(wait <= seconds for wait in waits) / max(1, len(waits))


def _quantile(waits: Sequence[float], percent: int) -> float:
    return waits[min(len(waits) - 1, len(waits) * percent // 100)] if waits else 0.0


def _print(rows: list[dict[str, Any]], order: Order) -> None:
    columns = (
        "N", "<=10 s %", "worst", "<=300 s %", "mean s", "p50/p95/p99 s", "warm %", "node-h",
        "of z2jh", "cost", "evicted+moved+lowered/h",
    )  # fmt: skip
    what = "A hub's own day" if order.own else f"Days of a hub, {order.slots} slots per node"
    title = f"{what}, {format_count(order.seeds, 'seed')}"
    out = table(title, "case", "policy", *columns, right=columns)
    last = ""
    for row in rows:
        waits, ratio = row["waitSeconds"], row["nodeHoursToZ2jh"]
        churn = (row[f"{what}PerHour"] for what in ("evictions", "moves", "lowerings"))
        out.add_row(
            row["case"] if row["case"] != last else "",
            row["policy"],
            str(row["placeholders"]),
            f"{row['within10sPercent']:.2f}",
            f"{row['worstSeedPercent']:.2f}",
            f"{row['within300sPercent']:.2f}",
            f"{row['meanWaitSeconds']:.1f}",
            "/".join(f"{waits[p]:.0f}" for p in ("p50", "p95", "p99")),
            f"{row['warmPercent']:.1f}",
            f"{row['nodeHours']:.1f}",
            f"{ratio:.3f}" if ratio is not None else "",
            f"{row['cost']:.1f}",
            "+".join(f"{number:.1f}" for number in churn),
        )
        last = row["case"]
    console().print(out)
    failed_orders = sum(row["ordersFailed"] for row in rows)
    if failed_orders:
        console().print(f"{failed_orders:,} node orders failed: the provider was out of nodes.")
