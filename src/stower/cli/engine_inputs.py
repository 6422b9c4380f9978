"""Builds the engine of verbs that predict a scheduler's decisions: from a configuration file, from
a recording, or with kube-scheduler's defaults.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from stower.assembly import build_engine
from stower.cli.cluster_inputs import moment_of
from stower.cli.configuration_files import InputError
from stower.cli.output import bad_input
from stower.cli.plugins import plugins_of
from stower.cli.recordings import rebuild_engine
from stower.cli.scheduler_configuration import (
    read_scheduler_configuration,
    recorded_configuration,
)
from stower.engine.engine import Engine
from stower.engine.explain.probe import observe_new_pods
from stower.engine.status_reporter import POD_SCHEDULED, UNSCHEDULABLE
from stower.framework.configuration import API_VERSION, KIND
from stower.framework.events import Hold, Listed
from stower.framework.plugin import Features
from stower.framework.profile import DEFAULT_SCHEDULER_NAME
from stower.model.errors import InvalidObject
from stower.model.kinds import Pod
from stower.record.lines import Engine as Built
from stower.sim.weights import check_scores, weighted
from stower.sim.workload import Workload

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="KubeSchedulerConfiguration to use; default: that of the recording, or "
        "kube-scheduler's defaults.",
    ),
]


def engine_of(
    config: Path | None,
    built: Built | None = None,
    drivers: bool = True,
    weights: Iterable[str] = (),
    names: Iterable[str] = (),
    ignores_unknown: bool = False,
    tells_unknown: bool = True,
) -> Engine:
    """An engine for the configuration, or as that of a recording was built. `drivers`: whether any
    are there to negotiate with, which is not so in a simulation; `weights`: others of plugins;
    `names`: without a configuration, profiles of these names; `ignores_unknown`: leaves out unknown
    plugins; `tells_unknown`: prints notes about them. Ends the program where that cannot be."""
    try:
        if config is None and built is not None:
            features = msgspec.structs.replace(built.features, drivers=drivers)
            recorded = recorded_configuration(built.configuration, ignores_unknown, tells_unknown)
            other = _apply_weights(recorded, weights)
            changed = msgspec.structs.replace(built, features=features, configuration=other)
            return _set_weights(rebuild_engine(changed), weights)
        document = default_configuration(names)
        if config is not None:
            document = read_scheduler_configuration(str(config), ignores_unknown, tells_unknown)
        document = _apply_weights(document, weights)
        features = Features(drivers=drivers, warm_pools=True)
        engine = build_engine(document, features=features, plugins=plugins_of(document))
        return _set_weights(engine, weights)
    except InputError as error:
        raise bad_input(str(error)) from None
    except InvalidObject as error:
        raise bad_input(f"{config or 'recording'}: {error}") from None


def engine_factory(
    config: Path | None, built: Built | None, ignores_unknown: bool
) -> Callable[[], Engine]:
    """Returns a function that builds equal engines without drivers, as engine_of does. Notes about
    unknown plugins are printed once."""
    is_told = False

    def build() -> Engine:
        nonlocal is_told
        engine = engine_of(
            config,
            built,
            drivers=False,
            ignores_unknown=ignores_unknown,
            tells_unknown=not is_told,
        )
        is_told = True
        return engine

    return build


def informed_engine(
    work: Workload, config: Path | None, ignores_unknown: bool = False
) -> tuple[Engine, list[Pod]]:
    """Returns an engine that knows a cluster and schedules nothing, and the cluster's pods. Without
    a configuration, schedulers that pods show have kube-scheduler's defaults."""
    pods = [*work.placed, *(arrival.pod for arrival in work.arrivals)]
    engine = engine_of(config, names=served_schedulers(pods), ignores_unknown=ignores_unknown)
    list_cluster(engine, work)
    observe_new_pods(engine)
    return engine, pods


def list_cluster(engine: Engine, work: Workload) -> None:
    """Gives an engine all objects of a cluster, without having it schedule pods."""
    pods = (*work.placed, *(arrival.pod for arrival in work.arrivals))
    objects = (*work.related, *work.nodes, *pods)
    now_ns = moment_of(objects)
    engine.state.devices.template_keys = work.template_keys
    engine.step(Hold(True), now_ns)
    engine.step(Listed(objects), now_ns)


def default_configuration(names: Iterable[str]) -> dict[str, Any] | None:
    """Returns a configuration with kube-scheduler's defaults for these schedulers and the default
    one, None where there are no others."""
    if not {*names} - {DEFAULT_SCHEDULER_NAME}:
        return None
    profiles = [{"schedulerName": name} for name in sorted({*names, DEFAULT_SCHEDULER_NAME})]
    return {"apiVersion": API_VERSION, "kind": KIND, "profiles": profiles}


def served_schedulers(pods: Iterable[Pod]) -> set[str]:
    """Returns the schedulers that run, as the pods show it: one has placed or refused a pod."""
    found = set()
    for pod in pods:
        told = pod.condition(POD_SCHEDULED)
        if pod.spec.node_name or (told is not None and told.reason == UNSCHEDULABLE):
            found.add(pod.spec.scheduler_name)
    return found


def _set_weights(engine: Engine, weights: Iterable[str]) -> Engine:
    try:
        check_scores(engine, weights)
    except InvalidObject as error:
        raise bad_input(f"--{error}") from None
    return engine


def _apply_weights(
    document: Mapping[str, Any] | None, weights: Iterable[str]
) -> dict[str, Any] | None:
    try:
        return weighted(document, weights)
    except InvalidObject as error:
        raise bad_input(f"--{error}") from None
