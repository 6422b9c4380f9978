"""stower run: the scheduler, on any Kubernetes API server."""

import asyncio
import logging
import secrets
import socket
from pathlib import Path
from typing import Annotated, Any

import typer

from stower.assembly import build_engine
from stower.cli.gates import FeatureGates, features_of
from stower.cli.inputs import InputError, read_yaml_document
from stower.cli.output import bad_input, console, failed
from stower.cli.plugins import plugins_of
from stower.cli.recordings import RECORD_MAX, Record, RecordMax, recorder_of
from stower.cli.stopping import WithParent, stop_event, wait_for_go
from stower.cli.vm_config import with_vm_config
from stower.framework.configuration import read_configuration
from stower.framework.election import read_terms
from stower.framework.plugin import Features
from stower.live.run import Endpoint, Place
from stower.live.run import run as run_scheduler
from stower.live.scheduler import Options
from stower.live.shell import ShellError
from stower.live.window import IN_FLIGHT
from stower.model.errors import InvalidObject
from stower.plugins.autoscale_enforcer import AutoscaleEnforcer
from stower.vms.config import DEFAULT_PATH

NAME = "run"
EPILOG = """
Examples:

  stower run

  stower run --kubeconfig .stower/kubeconfig --no-leader-elect

  stower run --record stower.ndjson.zst --record-max 4Gi

  stower run --context prod --config scheduler.yaml --port 10259 --token-file token

  stower run --config vms.yaml --agents 127.0.0.1:10299

It places the pods whose schedulerName is one of the configuration's profiles (default-scheduler
where there is none): stop the cluster's own scheduler first, or name a profile of your own.
"""
PORT_MAX = 65_535
CYCLES_PER_STEP = 64  # a step that nothing interrupts takes some milliseconds


def run(
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Kubeconfig; default: KUBECONFIG, ~/.kube/config, or the pod's account."),
    ] = None,
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    config: Annotated[str, typer.Option(metavar="FILE", help="A KubeSchedulerConfiguration.")] = "",
    leader_elect: Annotated[
        bool | None,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Schedule only while holding the Lease; default: as the configuration says, on.",
        ),
    ] = None,
    in_flight: Annotated[
        int, typer.Option(min=1, max=1000, help="Writes in flight at most.")
    ] = IN_FLIGHT,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Serve /healthz, /metrics and /debug/ (for explain) on loopback."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="With --port: the bearer token of /metrics; made where it is missing."),
    ] = None,
    vm_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Of profiles with AutoscaleEnforcer that say nothing of it: neon's JSON; "
            f"default: {DEFAULT_PATH}, if there.",
        ),
    ] = None,
    agents: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve the autoscaler-agents of VMs there, in neon's protocol, which has neither "
            "tokens nor TLS: beyond loopback, let only agents reach it.",
        ),
    ] = "",
    seed: Annotated[int, typer.Option(help="Decides ties between equally good nodes.")] = 0,
    feature_gates: FeatureGates = "",
    record: Record = None,
    record_max: RecordMax = RECORD_MAX,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    with_parent: WithParent = False,
) -> None:
    """Schedule the pods of a cluster until stopped."""
    document = _document(config, vm_config)
    features = features_of(feature_gates, Features(warm_pools=True))
    try:
        configuration = read_configuration(document)
        terms = read_terms(configuration.leader_election)
        if leader_elect is False:
            terms = None
        elif leader_elect and terms is None:
            terms = read_terms({**(configuration.leader_election or {}), "leaderElect": True})
        plugins = plugins_of(document)
        # What is wrong with it is said before anything starts.
        first = build_engine(document, features=features, plugins=plugins)
    except InvalidObject as error:
        raise bad_input(f"{config}: {error}") from None
    if (port is None) != (token_file is None):
        raise bad_input("--port and --token-file: want both or none")
    vms = AutoscaleEnforcer.name in first.state.companions
    address = _address(agents, vms) if agents else None
    telling = None
    if port is not None and token_file is not None:
        from stower.metrics.catalogue import Metrics

        telling = Endpoint(port, _token(token_file), Metrics())
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=level)
    instance = f"{socket.gethostname()}_{secrets.token_hex(4)}"

    def ready(server: str, listens: int | None, answers: int | None) -> None:
        where = "" if listens is None else f"; tells of itself on http://127.0.0.1:{listens}"
        if address is not None:
            where += f"; answers agents on {address[0]}:{answers}"
        console().print(f"Scheduling for {server}{where}. Stop it with Ctrl-C.", soft_wrap=True)

    def build() -> Any:
        return build_engine(
            document,
            seed=seed,
            cycles_per_step_max=CYCLES_PER_STEP,
            features=features,
            plugins=plugins,
        )

    def stop() -> asyncio.Event:
        return stop_event(with_parent)

    groups = features.groups or features.devices.group_claims
    options = Options(instance, seed, in_flight, terms, configuration.extenders, groups, vms)
    place = Place(kubeconfig, context)
    wait_for_go(with_parent)
    recorder = recorder_of(record, record_max, document, seed, features, CYCLES_PER_STEP)
    try:
        asyncio.run(run_scheduler(place, build, options, telling, ready, stop, recorder, address))
    except ShellError as error:
        raise failed(str(error)) from None
    finally:
        if recorder is not None:
            recorder.close()


def _document(config: str, vm_config: Path | None) -> dict[str, Any] | None:
    try:
        return with_vm_config(read_yaml_document(config) if config else None, vm_config)
    except InputError as error:
        raise bad_input(str(error)) from None


def _address(text: str, vms: bool) -> tuple[str, int]:
    """Where agents are served."""
    if not vms:
        raise bad_input(f"--agents {text}: no profile enables {AutoscaleEnforcer.name}")
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise bad_input(f'--agents: got "{text}", want HOST:PORT, such as 127.0.0.1:10299')
    return host.strip("[]"), int(port)


def _token(path: Path) -> str:
    """The token of the file, which is made where it is missing."""
    try:
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(secrets.token_urlsafe(32) + "\n")
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise bad_input(f"--token-file {path}: {error}") from None
    if not token:
        raise bad_input(f"--token-file {path}: it is empty, want a token")
    return token
