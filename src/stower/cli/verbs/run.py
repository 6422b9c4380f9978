"""stower run: runs the scheduler on any Kubernetes API server."""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from stower.cli.group_making import kinds_of
from stower.cli.logs import set_up
from stower.cli.output import Output, bad_input, console, failure
from stower.cli.recordings import recorder_of
from stower.cli.run_arguments import RunArguments
from stower.cli.scheduler_setup import (
    CYCLES_PER_STEP,
    SchedulerSetup,
    agents_serving_of,
    kubeconfig_of,
    read_setup,
    serving_of,
)
from stower.cli.shadow_report import JudgementPrinter as ShadowTelling
from stower.cli.shadow_report import report
from stower.cli.shutdown import stop_event, wait_for_go
from stower.cli.verb_arguments import with_arguments
from stower.engine.engine import Engine
from stower.framework.observer import Observer
from stower.framework.stopwatch import DISABLED_STOPWATCH, Stopwatch
from stower.live.decision_log import DecisionLog
from stower.live.scheduler import Options
from stower.live.shadow import ShadowComparer
from stower.live.shell import ShellError
from stower.live.shell_runner import KubeconfigFlags, ListenAddresses, RunOptions, ServingOptions
from stower.live.shell_runner import run as run_scheduler
from stower.live.tracing import Tracing, TracingError
from stower.model.kinds import VirtualMachine, VirtualMachineMigration
from stower.model.times import SECOND_NS, duration_ns

if TYPE_CHECKING:
    from stower.controllers.runtime import ControllerManager
    from stower.live.controllers import ServerFacts

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

  stower run --make-groups jobset,leaderworkerset

Schedules the pods whose schedulerName is one of the configuration's profiles (without a
configuration: default-scheduler). Stop the cluster's own scheduler first, or rename the profile.
"""
POD_UID = "STOWER_POD_UID"  # set by the manifests
DECISIONS_V = 2  # from which verbosity on decisions are logged


@with_arguments(RunArguments)
def run(given: RunArguments) -> None:
    """Schedule the pods of a cluster until stopped."""
    setup = read_setup(given)
    agents = agents_serving_of(given, setup)
    serving = serving_of(given, setup)
    set_up(given.v, given.logging_format)
    shadow = ShadowComparer(ShadowTelling(given.output, given.v > 0)) if given.dry_run else None
    lasts_s = _seconds(given.for_time, given.dry_run)
    place = KubeconfigFlags(kubeconfig_of(given, setup), given.context)
    options = _options(given, setup, shadow)
    wait_for_go(given.with_parent)
    recorder = recorder_of(
        given.record, given.record_max, setup.document, setup.seed, setup.features, CYCLES_PER_STEP
    )
    observers: list[Observer] = [DecisionLog()] if given.v >= DECISIONS_V else []
    tracing = _tracing(given.otlp_endpoint)
    observers += [tracing] if tracing is not None else []
    around = RunOptions(serving, observers, recorder, agents)
    stopwatch = _stopwatch(given, serving)

    def build() -> Engine:
        return setup.build(stopwatch)

    def on_ready(server: str, ports: ListenAddresses) -> None:
        _print_start(given, server, ports)

    events: list[asyncio.Event] = []  # one for all parts: a signal has one handler

    def stop() -> asyncio.Event:
        if not events:
            events.append(stop_event(given.with_parent))
            if lasts_s is not None:
                asyncio.get_running_loop().call_later(lasts_s, events[0].set)
        return events[0]

    try:
        running = run_scheduler(place, build, options, around, on_ready, stop)
        kinds = kinds_of(given.make_groups)
        engine = asyncio.run(_with_maker(running, place, kinds, stop) if kinds else running)
    except ShellError as error:
        raise failure(str(error)) from None
    finally:
        if recorder is not None:
            recorder.close()
        if tracing is not None:
            tracing.close()
    if shadow is not None and engine is not None:
        if not report(shadow, shadow.judge_pending_pods(engine), given.output):
            raise typer.Exit(1)


async def _with_maker(
    running: Coroutine[Any, Any, Engine | None],
    place: KubeconfigFlags,
    kinds: tuple[str, ...],
    make_stop_event: Callable[[], asyncio.Event],
) -> Engine | None:
    """Runs a scheduler, and what makes groups for pods of these kinds. Raises ShellError."""
    # Imported only here: it takes a tenth of the start, and most schedulers make no groups.
    from stower.controllers.assembly import build_group_makers
    from stower.live.controllers import check_has_groups, run_controllers

    def build(facts: "ServerFacts") -> "ControllerManager":
        check_has_groups(facts.resources)
        return build_group_makers(facts.resources, kinds)

    making = asyncio.create_task(
        run_controllers(place.kubeconfig, place.context, build, lambda _: None, make_stop_event)
    )
    scheduling = asyncio.create_task(running)
    try:
        await asyncio.wait((making, scheduling), return_when=asyncio.FIRST_COMPLETED)
        if making.done() and making.exception() is not None:
            making.result()
        return await scheduling
    finally:
        for task in (making, scheduling):
            task.cancel()
        await asyncio.gather(making, scheduling, return_exceptions=True)


def _options(given: RunArguments, setup: SchedulerSetup, shadow: ShadowComparer | None) -> Options:
    """Returns the options of the scheduler."""
    features = setup.features
    return Options(
        instance=_identity(),
        seed=given.seed,
        in_flight=given.in_flight,
        leader_election=None if given.dry_run else setup.leader_election,
        extenders=setup.configuration.extenders,
        groups=features.groups or features.devices.group_claims,
        vms=setup.has_vms,
        warm=features.warm_pools,
        required_views=(VirtualMachine, VirtualMachineMigration) if setup.has_vms else (),
        shadow=shadow,
    )


def _identity() -> str:
    """Returns the name in Events and in the Lease: that of the pod, as two processes of a container
    never run at once, so that one that is restarted there has its Lease at once; else a new one."""
    return f"{socket.gethostname()}_{os.environ.get(POD_UID) or secrets.token_hex(4)}"


def _stopwatch(given: RunArguments, serving: ServingOptions | None) -> Stopwatch:
    """Returns a stopwatch that runs only where its times are shown."""
    is_timed = serving is not None or given.v >= DECISIONS_V or given.otlp_endpoint
    return Stopwatch(time.perf_counter_ns) if is_timed else DISABLED_STOPWATCH


def _print_start(given: RunArguments, server: str, ports: ListenAddresses) -> None:
    """Prints that the scheduler runs; on standard error where a report goes to standard output."""
    where = f"; dashboard and metrics on {ports.serving}" if ports.serving else ""
    where += f"; autoscaler-agents on {ports.agents}" if ports.agents else ""
    what = "Comparing the decisions on" if given.dry_run else "Scheduling for"
    text = f"{what} {server}{where}. Stop it with Ctrl-C."
    (Console(stderr=True) if given.output is not Output.TABLE else console()).print(
        text, soft_wrap=True, markup=False
    )


def _tracing(endpoint: str) -> Tracing | None:
    """Returns the sender of traces; None: none are sent. Ends the program for a wrong endpoint."""
    if not endpoint:
        return None
    if not endpoint.startswith(("http://", "https://")):
        raise bad_input(f"--otlp-endpoint: got {endpoint!r}, want http:// or https://")
    try:
        return Tracing(endpoint)
    except TracingError as error:
        raise bad_input(f"--otlp-endpoint: {error}") from None


def _seconds(text: str, dry_run: bool) -> float | None:
    """Returns the seconds of --for; None: no limit. Ends the program for a wrong time."""
    if not text:
        return None
    lasts_ns = duration_ns(text)
    if not dry_run or not lasts_ns:
        want = "a duration such as 10m" if dry_run else "--dry-run too"
        raise bad_input(f"--for: got {text!r}, want {want}")
    return lasts_ns / SECOND_NS
