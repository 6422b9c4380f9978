"""Defines the command-line options of `stower run`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from stower.cli import serving_options
from stower.cli.election_options import (
    LeaderElect,
    LeaseDuration,
    RenewDeadline,
    ResourceName,
    ResourceNamespace,
    RetryPeriod,
)
from stower.cli.gates import FeatureGates
from stower.cli.logs import Format, LoggingFormat, Verbosity
from stower.cli.output import Output
from stower.cli.recordings import RECORD_MAX, Record, RecordMax
from stower.cli.scheduler_configuration import IgnoreUnknownPlugins
from stower.cli.shutdown import WithParent
from stower.live.window import IN_FLIGHT
from stower.model.gang_kinds import KINDS
from stower.vms.config import DEFAULT_PATH


@dataclass(frozen=True)
class RunArguments:
    """The arguments of one `stower run`."""

    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Kubeconfig; default: KUBECONFIG, ~/.kube/config, or the service account of the "
            "pod."
        ),
    ] = None
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = ""
    config: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="A KubeSchedulerConfiguration, or a ConfigMap that holds one."
        ),
    ] = ""
    ignore_unknown_plugins: IgnoreUnknownPlugins = False
    leader_elect: LeaderElect = None
    leader_elect_lease_duration: LeaseDuration = ""
    leader_elect_renew_deadline: RenewDeadline = ""
    leader_elect_retry_period: RetryPeriod = ""
    leader_elect_resource_name: ResourceName = ""
    leader_elect_resource_namespace: ResourceNamespace = ""
    in_flight: Annotated[int, typer.Option(min=1, max=1000, help="Maximum writes in flight.")] = (
        IN_FLIGHT
    )
    port: serving_options.Port = None
    bind_address: serving_options.BindAddress = serving_options.LOOPBACK
    token_file: serving_options.TokenFile = None
    tls_cert_file: serving_options.TlsCertFile = None
    tls_private_key_file: serving_options.TlsKeyFile = None
    make_groups: Annotated[
        str,
        typer.Option(
            metavar="KINDS",
            help="Make pod groups for pods of these kinds: all, or some of "
            f"{','.join(KINDS)}. Their templates need no change.",
        ),
    ] = ""
    hold_for_groups: Annotated[
        str,
        typer.Option(hidden=True, help="As --make-groups, where another process makes them."),
    ] = ""
    vm_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="neon's JSON, for profiles that enable AutoscaleEnforcer without arguments; "
            f"default: {DEFAULT_PATH}, if it exists.",
        ),
    ] = None
    agents: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve the autoscaler-agents of VMs on this address, in neon's protocol. Beyond "
            "loopback, it needs --agents-token-file, and is served over TLS.",
        ),
    ] = ""
    agents_token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of the bearer token that authorizes agents, created if missing.",
        ),
    ] = None
    agents_plain: Annotated[
        bool,
        typer.Option(
            "--agents-plain",
            help="Serve agents beyond loopback without token and TLS, as neon's agents have "
            "neither: whoever reaches the port can resize VMs, so restrict who does.",
        ),
    ] = False
    seed: Annotated[int, typer.Option(help="Decides ties between equally good nodes.")] = 0
    feature_gates: FeatureGates = ""
    record: Record = None
    record_max: RecordMax = RECORD_MAX
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Write nothing: compare each decision of another scheduler with the decision of "
            "this one, and report at the end how far both agree.",
        ),
    ] = False
    for_time: Annotated[
        str,
        typer.Option("--for", metavar="TIME", help="With --dry-run: stop after TIME, such as 10m."),
    ] = ""
    output: Annotated[
        Output, typer.Option("--output", "-o", help="With --dry-run: how to print the report.")
    ] = Output.TABLE
    otlp_endpoint: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Send a trace of each pod, from its arrival to its binding, to this endpoint, as "
            "http://127.0.0.1:4318/v1/traces (needs the extra otel).",
        ),
    ] = ""
    v: Verbosity = 0
    logging_format: LoggingFormat = Format.TEXT
    with_parent: WithParent = False
