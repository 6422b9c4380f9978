"""Reads the configuration and the options of `stower run`, and builds its engines."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stower.assembly import build_engine
from stower.cli import serving_options
from stower.cli.configuration_files import InputError
from stower.cli.election_options import merge_leader_election
from stower.cli.gates import features_of
from stower.cli.group_making import kinds_of, with_group_making
from stower.cli.output import bad_input
from stower.cli.plugins import plugins_of
from stower.cli.run_arguments import RunArguments
from stower.cli.scheduler_configuration import read_scheduler_configuration
from stower.cli.vm_config import with_vm_config
from stower.engine.engine import Engine
from stower.framework.configuration import Configuration, read_configuration
from stower.framework.election import LeaderElectionConfig
from stower.framework.plugin import Features, Plugin
from stower.framework.stopwatch import Stopwatch
from stower.live.shell_runner import AgentServingOptions, ServingOptions
from stower.model.errors import InvalidObject
from stower.plugins.autoscale_enforcer import AutoscaleEnforcer
from stower.record.lines import FORMAT
from stower.record.lines import Engine as Built

PORT_MAX: Final = 65_535
CYCLES_PER_STEP: Final = 64  # a step that nothing interrupts takes some milliseconds


@dataclass(frozen=True)
class SchedulerSetup:
    """The configuration of a scheduler, checked.

    `document` is the KubeSchedulerConfiguration as it was read; None: the default one.
    `leader_election` None: no leader election. `has_vms`: whether a profile enables
    AutoscaleEnforcer.
    """

    document: dict[str, Any] | None
    configuration: Configuration
    leader_election: LeaderElectionConfig | None
    features: Features
    plugins: tuple[type[Plugin], ...]
    seed: int
    has_vms: bool

    def build(self, stopwatch: Stopwatch) -> Engine:
        """Returns a new engine, whose plugins the stopwatch times."""
        return build_engine(
            self.document,
            seed=self.seed,
            cycles_per_step_max=CYCLES_PER_STEP,
            features=self.features,
            plugins=self.plugins,
            stopwatch=stopwatch,
        )


def read_setup(given: RunArguments) -> SchedulerSetup:
    """Reads the configuration and builds an engine from it once, so that errors show at once.

    Ends the program where the options or the configuration are wrong.
    """
    try:
        document = None
        if given.config:
            ignores_unknown = given.ignore_unknown_plugins
            document = read_scheduler_configuration(given.config, ignores_unknown)
        document = with_vm_config(document, given.vm_config)
        held = kinds_of(given.make_groups or given.hold_for_groups)
        document = with_group_making(document, held)
    except InputError as error:
        raise bad_input(str(error)) from None
    features = features_of(given.feature_gates, Features(warm_pools=True))
    try:
        configuration = read_configuration(document)
        leader_election = merge_leader_election(
            configuration.leader_election, given.leader_elect, given.leader_elect_lease_duration,
            given.leader_elect_renew_deadline, given.leader_elect_retry_period,
            given.leader_elect_resource_name, given.leader_elect_resource_namespace,
        )  # fmt: skip
        plugins = plugins_of(document)
        engine = build_engine(document, features=features, plugins=plugins)
    except InvalidObject as error:
        text = f"{given.config}: {error}" if given.config else str(error)
        raise bad_input(text) from None
    has_vms = AutoscaleEnforcer.name in engine.state.companions
    return SchedulerSetup(
        document, configuration, leader_election, features, plugins, given.seed, has_vms
    )


def kubeconfig_of(given: RunArguments, setup: SchedulerSetup) -> Path | None:
    """Returns the kubeconfig of --kubeconfig or, without the option, of the configuration."""
    if given.kubeconfig:
        return given.kubeconfig
    client = (setup.document or {}).get("clientConnection") or {}
    path = client.get("kubeconfig") if isinstance(client, dict) else None
    return Path(path) if isinstance(path, str) and path else None


def agents_serving_of(given: RunArguments, setup: SchedulerSetup) -> AgentServingOptions | None:
    """Returns how autoscaler-agents are served; None: nowhere.

    Ends the program for a wrong address, for one that everybody could reach, or where no profile
    enables AutoscaleEnforcer.
    """
    text, token_file, is_plain = given.agents, given.agents_token_file, given.agents_plain
    if not text:
        if token_file is not None or is_plain:
            name = "--agents-plain" if is_plain else "--agents-token-file"
            raise bad_input(f"{name}: want --agents too: without it no agents are served")
        return None
    if not setup.has_vms:
        raise bad_input(f"--agents {text}: no profile enables {AutoscaleEnforcer.name}")
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise bad_input(f"--agents: got {text!r}, want HOST:PORT, such as 127.0.0.1:10299")
    host = host.strip("[]")
    is_open = not _is_loopback(host) and not is_plain
    if is_open and token_file is None:
        raise bad_input(
            f"--agents {text}: beyond loopback, want --agents-token-file, or --agents-plain if "
            "nobody but agents can reach the address"
        )
    if token_file is not None and is_plain:
        raise bad_input("--agents-plain: cannot be used with --agents-token-file")
    token = serving_options.token_of(token_file) if token_file is not None else ""
    certificate, key = _certificate_of(given)
    has_tls = is_open or certificate is not None
    return AgentServingOptions(host, int(port), token, has_tls, certificate, key)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serving_of(given: RunArguments, setup: SchedulerSetup) -> ServingOptions | None:
    """Returns how the scheduler serves its own endpoints; None: it serves none.

    Ends the program where the options make no sense together.
    """
    built = Built("", FORMAT, setup.seed, CYCLES_PER_STEP, setup.features, setup.document)
    is_of_agents = given.port is None and bool(given.agents)
    certificate, key = (None, None) if is_of_agents else _certificate_of(given)
    return serving_options.build_serving_options(
        given.port, given.bind_address, given.token_file, certificate, key, built
    )


def _certificate_of(given: RunArguments) -> tuple[Path | None, Path | None]:
    """Returns the files of certificate and key. Ends the program for one without the other."""
    certificate, key = given.tls_cert_file, given.tls_private_key_file
    if (certificate is None) != (key is None):
        raise bad_input("--tls-cert-file and --tls-private-key-file: want both or none")
    return certificate, key
