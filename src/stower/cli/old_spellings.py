"""Runs `stower simulate` with the options of runs that are verbs of their own now, and names those.

--faults and --script are `stower faults`, --trace is `stower pack`, --scenario is `stower hub`.
"""

import dataclasses
import importlib
import inspect
import shlex
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from stower.cli.output import bad_input, note
from stower.cli.simulate_arguments import SimulateArguments

Values = dict[str, Any]  # of a verb's parameters, by their names
ARGUMENTS: Final = ("faults", "inputs", "days")  # the parameters that are no options


def run_old_spelling(given: SimulateArguments) -> bool:
    """Runs the verb that old options ask for; returns False if no such option is given.

    Ends the program for options that do not go together, as it did under the old spelling.
    """
    if given.scenario != "hub":
        _refuse(given.hub_options(), "is an option of stower hub")
    if given.trace:
        option, verb, values = "--trace", "pack", _pack_values(given)
    elif given.scenario:
        option, verb, values = "--scenario", "hub", _hub_values(given)
    elif given.faults is not None or given.script is not None:
        option = "--script" if given.faults is None else "--faults"
        verb, values = "faults", _fault_values(given)
    else:
        _refuse({"--policy": given.policy}, "is an option of stower pack and stower hub")
        _refuse({"--node-groups": given.node_groups}, "is an option of stower hub")
        _refuse({"--csv": given.csv}, "is an option of stower pack")
        _refuse(given.many_runs_options(), "is an option of stower faults")
        return False
    run = importlib.import_module(f"stower.cli.verbs.{verb}").run
    values = _without_defaults(run, values)
    note(f"simulate {option} is now: {shlex.join(['stower', verb, *_words(values)])}")
    run(**values)
    return True


def _pack_values(given: SimulateArguments) -> Values:
    _refuse_own_cluster(given, "cannot be used with --trace")
    if given.trace != "openb":
        raise bad_input(f"--trace: got {given.trace!r}, want openb; see stower pack --help")
    return {
        "inputs": given.inputs, "policy": given.policy, "seed": given.seed, "seeds": given.seeds,
        "jobs": given.jobs, "plot_file": given.plot_file, "output": given.output,
        "csv": given.csv,
    }  # fmt: skip


def _hub_values(given: SimulateArguments) -> Values:
    _refuse({"--csv": given.csv}, "is an option of stower pack")
    if given.scenario != "hub":
        raise bad_input(f"--scenario: got {given.scenario!r}, want hub; see stower hub --help")
    configs = given.config or []
    if len(configs) > 1:
        raise bad_input("--config: want one with --scenario hub")
    own = dataclasses.replace(given, config=None, record=None)
    _refuse_own_cluster(own, "cannot be used with --scenario")
    return {
        "pool": given.pool, "user": given.user, "config": Path(configs[0]) if configs else None,
        "placeholders": given.placeholders, "find": given.find, "goal": given.goal,
        "late": given.late, "dead": given.dead, "hubs": given.hubs, "record": given.record,
        "record_max": given.record_max,
        "days": given.inputs, "policy": given.policy, "seed": given.seed or 1,
        "seeds": given.seeds, "slots": given.slots, "node_groups": given.node_groups,
        "jobs": given.jobs, "plot_file": given.plot_file, "output": given.output,
    }  # fmt: skip


def _fault_values(given: SimulateArguments) -> Values:
    _refuse({"--csv": given.csv}, "is an option of stower pack")
    _refuse({"--policy": given.policy}, "is an option of stower pack and stower hub")
    _refuse({"--node-groups": given.node_groups}, "is an option of stower hub")
    if given.inputs or (given.faults is not None and given.script is not None):
        raise bad_input("--faults and --script make a cluster: want no INPUT, and one of the two")
    refused = {**given.placement_options(), "--plot": given.plot_file}
    _refuse(refused, "cannot be used with --faults or --script")
    common = {"config": given.config, "output": given.output}
    if given.script is not None:
        _refuse({**given.many_runs_options(), "--seed": given.seed}, "needs --faults")
        return {"script": given.script, **common}
    return {
        "faults": given.faults or "none", "only": _parts(given), "seed": given.seed,
        "seeds": given.seeds, "jobs": given.jobs, "until": given.until, "nodes": given.nodes,
        "pods": given.pods, "failures": given.failures, **common,
    }  # fmt: skip


def _parts(given: SimulateArguments) -> str:
    """Returns the parts of the load for --only: clusters of a given size had no devices."""
    chosen = {
        "devices": not given.nodes, "negotiation": given.negotiate, "groups": given.groups,
        "vms": given.vms, "warm": given.warm,
    }  # fmt: skip
    return ",".join(part for part, is_chosen in chosen.items() if is_chosen) or "plain"


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Ends the program for an option that is given and would have no effect."""
    for option, value in options.items():
        if value:
            raise bad_input(f"{option}: {why}")


def _refuse_own_cluster(given: SimulateArguments, why: str) -> None:
    """Ends the program for an option of a placement or of runs with faults."""
    without = {
        "--faults": given.faults is not None, "--script": given.script, "--config": given.config,
    }  # fmt: skip
    _refuse({**given.placement_options(), **given.part_options(), **without}, why)


def _without_defaults(run: Any, values: Values) -> Values:
    """Returns the values that are given and differ from the defaults of the verb."""
    defaults = inspect.signature(run).parameters
    return {
        name: value
        for name, value in values.items()
        if value not in (None, [], defaults[name].default)
    }


def _words(values: Values) -> Iterator[str]:
    """Yields the words of the command line that gives a verb these values."""
    words: list[str] = []
    arguments: list[str] = []
    for name, value in values.items():
        texts = [each.value if isinstance(each, Enum) else str(each) for each in _as_list(value)]
        if name in ARGUMENTS:
            arguments += texts
        else:
            option = "--" + name.removesuffix("_file").replace("_", "-")
            words += [word for text in texts for word in (option, text)]
    yield from arguments
    yield from words


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
