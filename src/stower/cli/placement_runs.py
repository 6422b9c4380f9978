"""Places the pods of INPUT on its nodes, once under each policy, and reports the placements."""

from pathlib import Path
from typing import Any

import msgspec

from stower.cli.configuration_files import InputError
from stower.cli.engine_inputs import default_configuration, served_schedulers
from stower.cli.gates import features_of
from stower.cli.inputs import LoadedWorkload, describe_inputs, load
from stower.cli.output import Output, bad_input, emit, failure, note, progress
from stower.cli.output_files import check_target
from stower.cli.placed_objects import placed_documents
from stower.cli.placement_reports import print_reports, summary
from stower.cli.plot import PlotError, check_plot, plot
from stower.cli.plugins import plugins_of
from stower.cli.policies import read_policies
from stower.cli.recordings import recorder_of
from stower.cli.scheduler_configuration import recorded_configuration
from stower.cli.seeds import check_seeds
from stower.cli.simulate_arguments import SimulateArguments
from stower.model.errors import InvalidObject
from stower.model.kinds import Pod
from stower.model.selectors import parse_selector
from stower.sim.simulation import Options, Placements, Report, simulate


def run_placement(given: SimulateArguments) -> bool:
    """Runs the simulations and prints their reports; returns whether no pod stays pending.

    Checks every option before a simulation starts. Ends the program for wrong input.
    """
    inputs, config = given.inputs or [], given.config or []
    options = _options(given)
    policies = read_policies(config, given.ignore_unknown_plugins)
    if given.record is not None and len(policies) > 1:
        raise bad_input(f"--record: got {len(policies)} configurations, want one per recording")
    check_plot(given.plot_file)
    check_target("--record", given.record)
    check_target("--objects", given.objects)
    try:
        loaded = load(inputs)
        if loaded.built is not None and not config:
            ignores_unknown = given.ignore_unknown_plugins
            recorded = recorded_configuration(loaded.built.configuration, ignores_unknown)
            policies = [("recorded", recorded)]
        if loaded.built is not None and given.objects is not None:
            raise bad_input("--objects: a recording does not contain complete objects")
        if not config and loaded.built is None:
            policies = [("default", default_configuration(served_schedulers(_pods_of(loaded))))]
        reports = [_simulate(given, options, loaded, *policy) for policy in policies]
        if given.plot_file is not None:
            plot(reports, given.plot_file)
    except (InputError, PlotError) as error:
        raise bad_input(str(error)) from None
    except InvalidObject as error:  # only of a recording: others are checked before
        raise bad_input(f"recording: {error}") from None
    placements = reports[-1].placements
    if given.objects is not None and placements is not None:
        _write_objects(loaded, placements, given.objects)
    for text in describe_inputs(loaded):
        note(text)
    if given.output is Output.TABLE:
        print_reports(reports)
    else:
        emit({"reports": [summary(r) for r in reports], "skipped": loaded.skipped}, given.output)
    return not any(report.pending for report in reports)


def _pods_of(loaded: LoadedWorkload) -> list[Pod]:
    return [*loaded.workload.placed, *(arrival.pod for arrival in loaded.workload.arrivals)]


def _options(given: SimulateArguments) -> Options:
    if given.match and not given.by:
        raise bad_input("--match SELECTOR needs --by KEY: it selects the pods to count per value")
    try:
        selector = parse_selector(given.match) if given.match else None
    except ValueError as error:
        raise bad_input(f"--match: {error}") from None
    check_seeds(given.seed)
    features = msgspec.structs.replace(features_of(given.feature_gates), drivers=False)
    return Options(
        seed=given.seed, timed=given.timed, by=given.by, match=selector, features=features,
        has_placements=given.objects is not None,
    )  # fmt: skip


def _simulate(
    given: SimulateArguments,
    options: Options,
    loaded: LoadedWorkload,
    name: str,
    document: dict[str, Any] | None,
) -> Report:
    """Runs one simulation, with a recording if --record asks for it."""
    recorder = recorder_of(given.record, given.record_max, document, given.seed, options.features)
    with progress(f"simulate {name}") as update:
        with_plugins = msgspec.structs.replace(options, plugins=plugins_of(document))
        report = simulate(loaded.workload, name, document, with_plugins, update, recorder)
    if recorder is not None:
        recorder.close()
        if recorder.cut:
            raise failure(f"--record {given.record}: the recording is incomplete: {recorder.cut}")
    return report


def _write_objects(loaded: LoadedWorkload, placements: Placements, path: Path) -> None:
    try:
        with path.open("wb") as file:
            file.writelines(d + b"\n" for d in placed_documents(loaded, placements))
    except OSError as error:
        raise bad_input(f"--objects {path}: {error.strerror}") from None
