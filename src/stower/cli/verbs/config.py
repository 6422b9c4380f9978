"""stower config: checks, completes and converts KubeSchedulerConfiguration files."""

from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from stower.assembly import OF_THE_ENGINE, build_profiles
from stower.cli.configuration_files import InputError
from stower.cli.gates import FeatureGates, features_of
from stower.cli.output import Output, bad_input, emit, note
from stower.cli.plugins import plugins_of
from stower.cli.scheduler_configuration import (
    IgnoreUnknownPlugins,
    read_configuration_document,
    unknown_plugin_lines,
    with_known_plugins,
)
from stower.framework.args import faults_of, invalid, raise_faults
from stower.framework.configuration import (
    Configuration,
    configuration_faults,
    parse_configuration,
    plugin_sets,
)
from stower.framework.conversion import convert_configuration
from stower.framework.defaults import with_defaults
from stower.framework.plugin import Features
from stower.model.errors import InvalidObject

NAME = "config"
EPILOG = """
Examples:

  stower config check scheduler.yaml

  stower config defaults                  # all default values

  stower config defaults scheduler.yaml   # the file, completed with default values

  stower config convert old.yaml > new.yaml

  stower config check --ignore-unknown-plugins helm-output.yaml

A FILE is a configuration, or holds one beside other documents, also in a ConfigMap. convert keeps
unknown plugins: --ignore-unknown-plugins only leaves them out of its check.

The exit code of check is 2 if a file is invalid, else 0. Fields without effect in Stower are
reported on standard error.
"""


class Action(StrEnum):
    """What to do."""

    CHECK = "check"
    DEFAULTS = "defaults"
    CONVERT = "convert"


ALL_NODES: Final = "{}: no effect, all nodes are evaluated for every pod"


def run(
    action: Annotated[
        Action,
        typer.Argument(
            help="check: report all errors of files; defaults: print a file, or none, completed "
            "with default values; convert: print a file of an older version as "
            "kubescheduler.config.k8s.io/v1."
        ),
    ],
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="Configuration files; -: stdin.")
    ] = None,
    ignore_unknown_plugins: IgnoreUnknownPlugins = False,
    feature_gates: FeatureGates = "",
    output: Annotated[
        Output, typer.Option("--output", "-o", help="How to print it.")
    ] = Output.TABLE,
) -> None:
    """Check, complete and convert kube-scheduler's configuration files."""
    features = features_of(feature_gates)
    names = files or []
    if action is Action.CHECK:
        if not names:
            raise bad_input("check: want at least one FILE")
        _check(names, features, output, ignore_unknown_plugins)
        return
    if len(names) > 1 or (action is Action.CONVERT and not names):
        raise bad_input(f"{action}: want one FILE")
    document = _read(names[0]) if names else None
    name = names[0] if names else "defaults"
    changed: list[str] = []
    if action is Action.CONVERT:
        try:
            document, changed = convert_configuration(document or {})
        except InvalidObject as error:
            raise bad_input(f"{name}: {error}") from None
    try:
        known, unknown = with_known_plugins(document or {}, ignore_unknown_plugins)
        configuration = _valid_or_raise(known, features)
    except InvalidObject as error:
        raise bad_input(f"{name}: {error}") from None
    if action is Action.CONVERT and ignore_unknown_plugins:
        changed += [
            f"profile {one.profile}: unknown plugins are kept as they are: {', '.join(one.names)}"
            for one in unknown
        ]
    else:
        changed += unknown_plugin_lines(unknown, ignore_unknown_plugins)
    for line in changed:
        note(f"{name}: {line}")
    shown = with_defaults(configuration) if action is Action.DEFAULTS else document
    emit(shown, Output.YAML if output is Output.TABLE else output)


def _check(names: list[str], features: Features, output: Output, ignores_unknown: bool) -> None:
    """Say of each file what it is, or what is wrong with it."""
    found = []
    bad = False
    for name in names:
        try:
            document, unknown = with_known_plugins(_read(name), ignores_unknown)
            configuration = _valid_or_raise(document, features)
        except InvalidObject as error:
            bad = True
            errors = [str(fault) for fault in faults_of(error)]
            found.append({"file": name, "ok": False, "errors": errors, "notes": []})
            continue
        profiles = [p.scheduler_name for p in configuration.profiles]
        notes = unknown_plugin_lines(unknown, ignores_unknown) + _notes(configuration)
        found.append({"file": name, "ok": True, "profiles": profiles, "notes": notes})
    if output is not Output.TABLE:
        emit(found, output)
    for entry in found:
        for line in entry["notes"]:  # type: ignore[attr-defined]
            note(f"{entry['file']}: {line}")
        if output is Output.TABLE and entry["ok"]:
            profiles_text = ", ".join(map(str, entry["profiles"]))  # type: ignore[call-overload]
            typer.echo(f"{entry['file']}: ok, profiles: {profiles_text}")
        elif output is Output.TABLE:
            for line in entry["errors"]:  # type: ignore[attr-defined]
                bad_input(f"{entry['file']}: {line}")
    if bad:
        raise typer.Exit(2)


def _notes(configuration: Configuration) -> list[str]:
    """What the configuration asks for and has no effect here, or not yet."""
    lines = []
    if configuration.percentage_of_nodes_to_score not in (None, 0, 100):
        lines.append(ALL_NODES.format("percentageOfNodesToScore"))
    if configuration.parallelism != 16:
        lines.append("parallelism: no effect, all nodes are evaluated at once")
    for i, profile in enumerate(configuration.profiles):
        if profile.percentage_of_nodes_to_score not in (None, 0, 100):
            lines.append(ALL_NODES.format(f"profiles[{i}].percentageOfNodesToScore"))
        disabled = {
            ref.name
            for plugin_set in plugin_sets(profile.plugins).values()
            for ref in plugin_set.disabled
        }
        lines += [
            f"profiles[{i}]: {name} is part of the engine: disabling it has no effect"
            for name in sorted(disabled & OF_THE_ENGINE)
        ]
    return lines


def _valid_or_raise(document: dict[str, Any] | None, features: Features) -> Configuration:
    from stower.framework.election import read_leader_election
    from stower.live.extenders import ExtenderError, build_tls_context

    configuration = parse_configuration(document)
    faults: list[InvalidObject] = []
    try:
        read_leader_election(configuration.leader_election)
    except InvalidObject as error:
        faults.append(error)
    faults += configuration_faults(configuration)
    for i, extender in enumerate(configuration.extenders):
        try:
            build_tls_context(extender)
        except ExtenderError as error:
            faults.append(invalid(f"extenders[{i}].tlsConfig", "...", str(error)))
    try:
        build_profiles(configuration, features, plugins_of(document))
    except InvalidObject as error:
        known = tuple(fault.path for fault in faults)
        faults += [f for f in faults_of(error) if not (known and f.path.startswith(known))]
    raise_faults(faults)
    return configuration


def _read(name: str) -> dict[str, Any]:
    try:
        return read_configuration_document(name)
    except InputError as error:
        raise bad_input(str(error)) from None
