"""stower up: starts a whole cluster with one command."""

import asyncio
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from stower.api.optional_kinds import SERVE
from stower.apiserver.database import FILE
from stower.apiserver.tables import VERSIONS
from stower.assembly import build_engine
from stower.cli import simulated_clusters
from stower.cli.cluster_options import State
from stower.cli.configuration_files import InputError
from stower.cli.event_ttl import EVENT_TTL, EventTtl, event_ttl_seconds
from stower.cli.group_making import ALL
from stower.cli.large_objects import LARGE_OBJECTS_MAX, LargeObjectsMax, large_objects_bytes
from stower.cli.output import bad_input, console, failure, note
from stower.cli.output_files import check_target
from stower.cli.plugins import plugins_of
from stower.cli.recordings import RECORD_MAX, Record, RecordMax, size_of
from stower.cli.scheduler_configuration import (
    IgnoreUnknownPlugins,
    read_scheduler_configuration,
)
from stower.cli.shutdown import stop_event
from stower.cli.state_folder import STATE, UpError, check_trusted, hold_state
from stower.cli.supervisor import (
    CLUSTER,
    LOGS,
    TOKEN,
    Child,
    Supervisor,
    dashboard_link,
    read_cluster_document,
)
from stower.cli.verb_arguments import with_arguments
from stower.controllers.cluster import Cluster
from stower.model.errors import InvalidObject
from stower.pki.files import open_log, write_file

NAME = "up"
EPILOG = """
Examples:

  stower up

  stower up --nodes 100 --node-cpu 16 --node-memory 64Gi --zones a,b,c --detach

  stower up --cluster cluster.yaml --config scheduler.yaml --state ./lab

  export KUBECONFIG=.stower/kubeconfig; kubectl get nodes

Starts an API server, simulated nodes with controllers, and the scheduler, each in a process of its
own. The state directory keeps all objects: the next `stower up` continues from them.
"""
# As small clusters call theirs; its volumes are on the node of their first pod.
STANDARD = b"""{
  "metadata": {
    "name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}
  },
  "provisioner": "stower.dev/volumes",
  "volumeBindingMode": "WaitForFirstConsumer"
}"""
READY_SECONDS_MAX = 60.0
INTERRUPTED = 130  # as shells have it
DETACH_SECONDS_MAX = 120.0


@dataclass(frozen=True)
class UpArguments:
    """The arguments of one `stower up`."""

    nodes: simulated_clusters.Nodes = None
    node_cpu: simulated_clusters.NodeCpu = simulated_clusters.DEFAULTS[0]
    node_memory: simulated_clusters.NodeMemory = simulated_clusters.DEFAULTS[1]
    node_pods: simulated_clusters.NodePods = simulated_clusters.DEFAULTS[2]
    zones: simulated_clusters.Zones = simulated_clusters.DEFAULTS[3]
    cluster: simulated_clusters.ClusterFile = None
    config: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="A KubeSchedulerConfiguration, or a ConfigMap that holds one."
        ),
    ] = ""
    ignore_unknown_plugins: IgnoreUnknownPlugins = False
    state: State = STATE
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the API server; 0 takes a free one.")
    ] = 6443
    dashboard_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the dashboard; 0 takes a free one.")
    ] = 0
    record: Record = None
    record_max: RecordMax = RECORD_MAX
    kubernetes: Annotated[
        str,
        typer.Option(help="Version of the API to serve. 1.37: 1.36 with trees of pod groups."),
    ] = "1.37"
    audit_log_path: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one line per API request to this file."),
    ] = None
    event_ttl: EventTtl = EVENT_TTL
    large_objects_max: LargeObjectsMax = LARGE_OBJECTS_MAX
    no_storage_class: Annotated[
        bool,
        typer.Option(
            "--no-storage-class",
            help="Create no default StorageClass `standard` in a new state folder.",
        ),
    ] = False
    no_scheduler: Annotated[
        bool,
        typer.Option("--no-scheduler", help="Start no scheduler; use `stower run` or another."),
    ] = False
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background; `stower down` stops it.")
    ] = False


@with_arguments(UpArguments)
def run(given: UpArguments) -> None:
    """Start a cluster: API server, simulated nodes, controllers, scheduler."""
    state = given.state
    try:
        check_trusted(state)
    except UpError as error:
        raise failure(str(error)) from None
    document, described = _describe(given)
    _check(given)
    if given.detach:
        _detach(state)
        return
    scheduling = None if given.no_scheduler else _scheduler_command(given)
    serving = _server_command(given)
    wanted = sum(pool.count for pool in described.pools)
    began = time.monotonic()
    try:
        with hold_state(state):
            try:
                write_file(state / CLUSTER, msgspec.json.encode(document))
            except OSError as error:
                raise UpError(f"--state {state}: {error.strerror}") from None
            is_new = not (state / FILE).exists()
            storage_class = None if given.no_storage_class or not is_new else STANDARD
            asyncio.run(_up(state, serving, scheduling, wanted, began, storage_class))
    except UpError as error:
        raise failure(str(error)) from None


def _describe(given: UpArguments) -> tuple[dict[str, Any], Cluster]:
    """Returns the document of the cluster and the cluster that it describes.

    Options that describe the nodes, or --cluster, replace the document of an earlier start. Ends
    the program for wrong options, and for options that the earlier document overrides.
    """
    options = (given.node_cpu, given.node_memory, given.node_pods, given.zones)
    known_path = given.state / CLUSTER
    try:
        is_new = given.nodes is not None or given.cluster is not None
        known = None if is_new else read_cluster_document(given.state)
    except UpError as error:
        raise failure(str(error)) from None
    if known is None:
        return simulated_clusters.describe(given.nodes, *options, given.cluster)
    described = simulated_clusters.check_cluster(known, str(known_path))
    is_default = options == simulated_clusters.DEFAULTS
    if not is_default and not simulated_clusters.is_same_cluster(known, *options):
        raise bad_input(
            f"{known_path} already describes the nodes: --node-cpu, --node-memory, --node-pods and "
            "--zones have no effect; give --nodes too, to replace the description"
        )
    return known, described


def _check(given: UpArguments) -> None:
    """Ends the program for whatever one of the processes would refuse, before any starts."""
    if given.kubernetes not in VERSIONS:
        raise bad_input(f"--kubernetes: got {given.kubernetes!r}, want {' or '.join(VERSIONS)}")
    if given.detach and str(given.cluster) == "-":
        raise bad_input("--cluster -: with --detach there is no standard input; give a file")
    event_ttl_seconds(given.event_ttl)
    large_objects_bytes(given.large_objects_max)
    for_scheduler = given.config or given.record is not None or given.dashboard_port
    if given.no_scheduler and for_scheduler:
        text = "cannot be used with --config, --record or --dashboard-port"
        raise bad_input(f"--no-scheduler: {text}")
    check_target("--record", given.record)
    check_target("--audit-log-path", given.audit_log_path)
    size_of(given.record_max)
    if not given.config:
        return
    try:
        document = read_scheduler_configuration(given.config, given.ignore_unknown_plugins)
        build_engine(document, plugins=plugins_of(document))
    except InputError as error:
        raise bad_input(f"--config {error}") from None
    except InvalidObject as error:
        raise bad_input(f"--config {given.config}: {error}") from None


def _scheduler_command(given: UpArguments) -> list[str]:
    """Returns the command line of the scheduler."""
    state = given.state
    made = ["run", "--kubeconfig", str((state / "kubeconfig").resolve()), "--no-leader-elect"]
    made += ["--hold-for-groups", ALL]
    made += ["--port", str(given.dashboard_port), "--token-file", str((state / TOKEN).resolve())]
    if given.config:
        made += ["--config", str(Path(given.config).resolve())]
        made += ["--ignore-unknown-plugins"] if given.ignore_unknown_plugins else []
    if given.record is not None:
        made += ["--record", str(given.record.resolve()), "--record-max", given.record_max]
    return made


def _server_command(given: UpArguments) -> list[str]:
    """Returns the command line of the API server."""
    made = ["apiserver", "--state", str(given.state.resolve()), "--port", str(given.port)]
    made += ["--admission", "ServiceAccount,TaintNodesByCondition"]
    made += ["--runtime-config", ",".join(f"{key}=true" for key in SERVE)]
    made += ["--kubernetes", given.kubernetes, "--event-ttl", given.event_ttl]
    made += ["--large-objects-max", given.large_objects_max]
    if given.audit_log_path is not None:
        made += ["--audit-log-path", str(given.audit_log_path.resolve())]
    return made


async def _up(
    state: Path,
    serving: list[str],
    scheduling: list[str] | None,
    wanted: int,
    began: float,
    storage_class: bytes | None,
) -> None:
    stop = stop_event()
    kubeconfig = (state / "kubeconfig").resolve()
    logs = state / LOGS
    actors = ["actors", "--kubeconfig", str(kubeconfig)]
    actors += ["--cluster", str((state / CLUSTER).resolve()), "--make-groups", ALL]
    others = [Child("actors", actors, logs / "actors.log")]
    if scheduling is not None:
        others.insert(0, Child("scheduler", scheduling, logs / "scheduler.log"))
    server = Child("server", serving, logs / "server.log")
    supervisor = Supervisor(state, server, others, kubeconfig, tell=note)
    starting = asyncio.create_task(_start(supervisor, wanted, storage_class))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await supervisor.stop()
        note("stopped before the cluster was up")
        raise typer.Exit(INTERRUPTED)
    nodes = starting.result()
    _welcome(state, supervisor, nodes, time.monotonic() - began)
    await supervisor.keep(stop)
    console().print("Stopped.")


async def _start(supervisor: Supervisor, wanted: int, storage_class: bytes | None) -> int:
    """Starts everything, creates the class, waits until pods can be created; returns the number of
    ready nodes."""
    starting = asyncio.create_task(supervisor.start())
    # Importing the client takes a while, in which the others start.
    try:
        kube_module = await asyncio.to_thread(importlib.import_module, "stower.cli.kube")
        await starting
    except BaseException:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        raise
    try:
        async with (
            kube_module.Kube.open(supervisor.kubeconfig) as kube,
            asyncio.timeout(READY_SECONDS_MAX),
        ):
            supervisor.is_at(kube.server)
            if storage_class is not None:
                await kube.ask("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class)
            while True:
                nodes: int = await kube.count("/api/v1/nodes")
                path = "/api/v1/namespaces/default/serviceaccounts/default"
                if nodes >= wanted and await kube.exists(path):
                    break
                await asyncio.sleep(0.05)
    except TimeoutError:
        await supervisor.stop()
        text = (
            f"the cluster is not up after {READY_SECONDS_MAX:.0f} s: want {wanted} nodes and the "
            f"default service account; see {supervisor.state / LOGS}"
        )
        raise UpError(text) from None
    except kube_module.KubeError as error:
        await supervisor.stop()
        raise UpError(str(error)) from None
    except BaseException:
        await supervisor.stop()
        raise
    supervisor.record()
    return nodes


def _welcome(state: Path, supervisor: Supervisor, nodes: int, took_s: float) -> None:
    out = console()
    out.print(f"A cluster of {nodes:,} nodes is up on {supervisor.url} ({took_s:.1f} s).\n")
    if supervisor.dashboard:
        link = dashboard_link(state, supervisor.dashboard)
        out.print(f"Dashboard: {link}\n", soft_wrap=True)
    out.print("Next, in another terminal:\n")
    out.print("  stower load FILE; stower get pending; stower explain pod NAME; stower top")
    out.print(f"  export KUBECONFIG={supervisor.kubeconfig}", soft_wrap=True)
    out.print("  kubectl get nodes")
    out.print("  kubectl create deployment web --image=nginx --replicas=3")
    out.print("  kubectl get pods -o wide\n")
    where = "" if state == STATE else f" --state {state}"
    logs = f"Logs are in {state / LOGS}. Stop it with Ctrl-C or `stower down{where}`."
    out.print(logs, soft_wrap=True)  # `up --detach` looks for these words in the log


def _detach(state: Path) -> None:
    """Runs the same command in the background; returns once the cluster is up."""
    arguments = [a for a in sys.argv[1:] if a not in ("--detach", "-d")]
    try:
        with hold_state(state):  # a log of one that runs is not ours to begin anew
            (state / LOGS).mkdir(mode=0o700, parents=True, exist_ok=True)
            path = state / LOGS / "up.log"
            path.unlink(missing_ok=True)
        log = open_log(path)  # it will hold the dashboard's token
    except UpError as error:
        raise failure(str(error)) from None
    except OSError as error:
        raise failure(f"--state {state}: {error.strerror}") from None
    with log:
        process = subprocess.Popen(
            [sys.executable, "-m", "stower.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    _wait(process, lambda: _is_announced(path), state)
    text = path.read_text(errors="replace")
    text = text.replace("Ctrl-C or ", "").replace("Next, in another terminal:", "Next:")
    console().print(text.rstrip(), soft_wrap=True)


def _is_announced(path: Path) -> bool:
    return "Stop it with" in path.read_text(errors="replace")


def _wait(process: "subprocess.Popen[bytes]", ready: Callable[[], bool], state: Path) -> None:
    until = time.monotonic() + DETACH_SECONDS_MAX
    while not ready():
        if process.poll() is not None:
            lines = (state / LOGS / "up.log").read_text(errors="replace").strip().splitlines()
            line = lines[-1] if lines else "the process ended without a message"
            sys.stderr.write(f"stower: error: {line.removeprefix('stower: error: ')}\n")
            raise typer.Exit(process.returncode or 1)
        if time.monotonic() > until:
            process.terminate()
            raise failure(f"not up after {DETACH_SECONDS_MAX:.0f} s; see {state / LOGS}")
        time.sleep(0.05)
