"""stower run: the scheduler, on any Kubernetes API server."""

import asyncio
import secrets
import socket
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from stower.assembly import build_engine
from stower.cli import serving_options
from stower.cli.election_options import (
    LeaderElect,
    LeaseDuration,
    RenewDeadline,
    ResourceName,
    ResourceNamespace,
    RetryPeriod,
    terms_of,
)
from stower.cli.gates import FeatureGates, features_of
from stower.cli.inputs import InputError, read_yaml_document
from stower.cli.logs import Format, LoggingFormat, Verbosity, set_up
from stower.cli.output import Output, bad_input, console, failed
from stower.cli.plugins import plugins_of
from stower.cli.recordings import RECORD_MAX, Record, RecordMax, recorder_of
from stower.cli.shadow_report import Telling as ShadowTelling
from stower.cli.shadow_report import report
from stower.cli.shutdown import WithParent, stop_event, wait_for_go
from stower.cli.vm_config import with_vm_config
from stower.framework.configuration import read_configuration
from stower.framework.observer import Observer
from stower.framework.plugin import Features
from stower.framework.stopwatch import DISABLED_STOPWATCH, Stopwatch
from stower.live.decision_log import DecisionLog
from stower.live.scheduler import Options
from stower.live.shadow import ShadowComparer
from stower.live.shell import ShellError
from stower.live.shell_runner import KubeconfigFlags, ListenAddresses, RunOptions
from stower.live.shell_runner import run as run_scheduler
from stower.live.tracing import Tracing, TracingError
from stower.live.window import IN_FLIGHT
from stower.model.errors import InvalidObject
from stower.model.kinds import VirtualMachineMigration
from stower.model.times import SECOND_NS, duration_ns
from stower.plugins.autoscale_enforcer import AutoscaleEnforcer
from stower.record.lines import FORMAT
from stower.record.lines import Engine as Built
from stower.vms.config import DEFAULT_PATH

NAME = "run"
EPILOG = """
Examples:

  stower run

  stower run --kubeconfig .stower/kubeconfig --no-leader-elect

  stower run --record stower.ndjson.zst --record-max 4Gi

  stower run --context prod --config scheduler.yaml --port 10259 --token-file token --v 2

  stower run --bind-address 0.0.0.0 --secure-port 10259 --tls-cert-file tls.crt \
--tls-private-key-file tls.key --logging-format json

  stower run --config vms.yaml --agents 127.0.0.1:10299

  stower run --dry-run --config scheduler.yaml --for 10m -o json

It places the pods whose schedulerName is one of the configuration's profiles (default-scheduler
where there is none): stop the cluster's own scheduler first, or name a profile of your own.
"""
PORT_MAX = 65_535
DECISIONS_V = 2  # from which verbosity on decisions are logged
CYCLES_PER_STEP = 64  # a step that nothing interrupts takes some milliseconds


def run(
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Kubeconfig; default: KUBECONFIG, ~/.kube/config, or the pod's account."),
    ] = None,
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    config: Annotated[str, typer.Option(metavar="FILE", help="A KubeSchedulerConfiguration.")] = "",
    leader_elect: LeaderElect = None,
    leader_elect_lease_duration: LeaseDuration = "",
    leader_elect_renew_deadline: RenewDeadline = "",
    leader_elect_retry_period: RetryPeriod = "",
    leader_elect_resource_name: ResourceName = "",
    leader_elect_resource_namespace: ResourceNamespace = "",
    in_flight: Annotated[
        int, typer.Option(min=1, max=1000, help="Writes in flight at most.")
    ] = IN_FLIGHT,
    port: serving_options.Port = None,
    bind_address: serving_options.BindAddress = serving_options.LOOPBACK,
    token_file: serving_options.TokenFile = None,
    tls_cert_file: serving_options.TlsCertFile = None,
    tls_private_key_file: serving_options.TlsKeyFile = None,
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
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Write nothing: say of each decision of another scheduler what this one would "
            "have done, and at the end how far both agree.",
        ),
    ] = False,
    for_time: Annotated[
        str, typer.Option("--for", metavar="TIME", help="With --dry-run: stop after it, as 10m.")
    ] = "",
    output: Annotated[
        Output, typer.Option("--output", "-o", help="With --dry-run: how to print the report.")
    ] = Output.TABLE,
    otlp_endpoint: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Send a trace of each pod there, from its arrival to its binding (extra otel), as "
            "http://127.0.0.1:4318/v1/traces.",
        ),
    ] = "",
    v: Verbosity = 0,
    logging_format: LoggingFormat = Format.TEXT,
    with_parent: WithParent = False,
) -> None:
    """Schedule the pods of a cluster until stopped."""
    document = _document(config, vm_config)
    kubeconfig = kubeconfig or _own_kubeconfig(document)
    features = features_of(feature_gates, Features(warm_pools=True))
    try:
        configuration = read_configuration(document)
        terms = terms_of(
            configuration.leader_election, leader_elect, leader_elect_lease_duration,
            leader_elect_renew_deadline, leader_elect_retry_period, leader_elect_resource_name,
            leader_elect_resource_namespace,
        )  # fmt: skip
        plugins = plugins_of(document)
        # What is wrong with it is said before anything starts.
        first = build_engine(document, features=features, plugins=plugins)
    except InvalidObject as error:
        raise bad_input(f"{config}: {error}" if config else str(error)) from None
    vms = AutoscaleEnforcer.name in first.state.companions
    address = _address(agents, vms) if agents else None
    telling = serving_options.telling_of(
        port, bind_address, token_file, tls_cert_file, tls_private_key_file,
        Built("", FORMAT, seed, CYCLES_PER_STEP, features, document),
    )  # fmt: skip
    set_up(v, logging_format)
    instance = f"{socket.gethostname()}_{secrets.token_hex(4)}"
    is_timed = telling is not None or v >= DECISIONS_V or otlp_endpoint
    stopwatch = Stopwatch(time.perf_counter_ns) if is_timed else DISABLED_STOPWATCH

    def ready(server: str, ports: ListenAddresses) -> None:
        where = f"; tells of itself on {ports.serving}" if ports.serving else ""
        where += f"; answers agents on {ports.agents}" if ports.agents else ""
        what = "Watching what is decided on" if dry_run else "Scheduling for"
        text = f"{what} {server}{where}. Stop it with Ctrl-C."
        (Console(stderr=True) if output is not Output.TABLE else console()).print(
            text, soft_wrap=True, markup=False
        )

    def build() -> Any:
        return build_engine(
            document,
            seed=seed,
            cycles_per_step_max=CYCLES_PER_STEP,
            features=features,
            plugins=plugins,
            stopwatch=stopwatch,
        )

    def stop() -> asyncio.Event:
        event = stop_event(with_parent)
        if lasts_s is not None:
            asyncio.get_running_loop().call_later(lasts_s, event.set)
        return event

    shadow = ShadowComparer(ShadowTelling(output, v > 0)) if dry_run else None
    lasts_s = _seconds(for_time, dry_run)
    groups = features.groups or features.devices.group_claims
    options = Options(
        instance, seed, in_flight, None if dry_run else terms, configuration.extenders, groups,
        vms, features.warm_pools, shadow,
    )  # fmt: skip
    place = KubeconfigFlags(kubeconfig, context)
    wait_for_go(with_parent)
    recorder = recorder_of(record, record_max, document, seed, features, CYCLES_PER_STEP)
    observers: list[Observer] = [DecisionLog()] if v >= DECISIONS_V else []
    tracing = _tracing(otlp_endpoint)
    observers += [tracing] if tracing is not None else []
    relies_on = (VirtualMachineMigration,) if vms else ()
    around = RunOptions(telling, observers, recorder, address, relies_on)
    try:
        engine = asyncio.run(run_scheduler(place, build, options, around, ready, stop))
    except ShellError as error:
        raise failed(str(error)) from None
    finally:
        if recorder is not None:
            recorder.close()
        if tracing is not None:
            tracing.close()
    if shadow is not None and engine is not None:
        if not report(shadow, shadow.judge_pending_pods(engine), output):
            raise typer.Exit(1)


def _tracing(endpoint: str) -> Tracing | None:
    """Who sends traces. Ends the program where that cannot be."""
    if not endpoint:
        return None
    if not endpoint.startswith(("http://", "https://")):
        raise bad_input(f"--otlp-endpoint: got {endpoint!r}, want http:// or https://")
    try:
        return Tracing(endpoint)
    except TracingError as error:
        raise bad_input(f"--otlp-endpoint: {error}") from None


def _seconds(text: str, dry_run: bool) -> float | None:
    """What --for says. Ends the program where it makes no sense."""
    if not text:
        return None
    lasts_ns = duration_ns(text)
    if not dry_run or not lasts_ns:
        want = "a time such as 10m" if dry_run else "--dry-run too"
        raise bad_input(f"--for: got {text!r}, want {want}")
    return lasts_ns / SECOND_NS


def _document(config: str, vm_config: Path | None) -> dict[str, Any] | None:
    try:
        return with_vm_config(read_yaml_document(config) if config else None, vm_config)
    except InputError as error:
        raise bad_input(str(error)) from None


def _own_kubeconfig(document: dict[str, Any] | None) -> Path | None:
    """The one that the configuration names; --kubeconfig goes before it."""
    client = (document or {}).get("clientConnection") or {}
    path = client.get("kubeconfig") if isinstance(client, dict) else None
    return Path(path) if isinstance(path, str) and path else None


def _address(text: str, vms: bool) -> tuple[str, int]:
    """Where agents are served."""
    if not vms:
        raise bad_input(f"--agents {text}: no profile enables {AutoscaleEnforcer.name}")
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise bad_input(f'--agents: got "{text}", want HOST:PORT, such as 127.0.0.1:10299')
    return host.strip("[]"), int(port)
