"""stower explain: shows why a pod has its node or none, or a group of pods its place, and the
smallest change to schedule it."""

import http.client
import time
import urllib.error
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlencode

import msgspec
import typer

from stower.cli.cluster_inputs import Inputs, cluster_of
from stower.cli.cluster_options import (
    STATE,
    Context,
    Kubeconfig,
    SchedulerPort,
    SchedulerToken,
    State,
)
from stower.cli.engine_inputs import Config, engine_of, informed_engine, served_schedulers
from stower.cli.explanation_output import ExplainedPod, KnownPod
from stower.cli.explanation_printer import print_explanation, print_group
from stower.cli.output import (
    Output,
    bad_input,
    console,
    emit,
    failure,
    format_count,
    note,
    progress,
)
from stower.cli.reason_text import without_preemption
from stower.cli.replayed_engine import recording_of, replayed_engine
from stower.cli.scheduler_client import open_url, token_for
from stower.cli.scheduler_configuration import IgnoreUnknownPlugins
from stower.devices.negotiation.overview import Negotiation, Objects, overview
from stower.engine.engine import Engine
from stower.engine.explain.explanation import Explanation
from stower.engine.explain.probe import explain_pod, explain_tree
from stower.framework.profile import DEFAULT_SCHEDULER_NAME
from stower.model.errors import closest, printable
from stower.model.kinds import Pod, PodScheduling
from stower.sim.workload import Workload

NAME = "explain"
WATCHED = True
EPILOG = """
Examples:

  stower explain pod default/web-1

  stower explain pod web-1 dumps/ --config scheduler.yaml --after-others

  stower explain pod web-1 stower.ndjson.zst --at 93.5

  stower explain pod web-1 --port 10259 --token-file token

  stower explain group default/train

A group is explained with its whole tree; name a kind for one of two groups of a name: podgroup,
compositepodgroup.

Every change has been verified on a copy of the cluster state: it lets the pod run, or lets the
negotiation of its devices continue. The answers of drivers are not predicted. A recording is
explained at its end, or --at SECONDS after its beginning. A pod is explained as if it were next;
with --after-others, as `stower simulate` finds it. With --port, the output includes the
queue and the last attempts of a running scheduler (stower run --port). The exit code is 2 if there
is no such pod or group.
"""
GROUP_KINDS: Final = {
    "group": "", "groups": "", "podgroup": "PodGroup", "podgroups": "PodGroup",
    "compositepodgroup": "CompositePodGroup", "compositepodgroups": "CompositePodGroup",
}  # fmt: skip


SECONDS_MAX = 10.0


def run(
    kind: Annotated[str, typer.Argument(metavar="pod|group", help="Kind of the object.")],
    name: Annotated[str, typer.Argument(metavar="[NAMESPACE/]NAME", help="Name of the object.")],
    inputs: Inputs = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of a NAME without one.")
    ] = "default",
    config: Config = None,
    ignore_unknown_plugins: IgnoreUnknownPlugins = False,
    at: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Time in a recording."),
    ] = None,
    after_others: Annotated[
        bool, typer.Option("--after-others", help="Place the other pods that wait first.")
    ] = False,
    port: SchedulerPort = None,
    token_file: SchedulerToken = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Show why a pod or group is placed or not, and the smallest change to schedule it."""
    if kind not in ("pod", "pods", "po", *GROUP_KINDS):
        raise bad_input(f"got {kind!r}, want pod or group")
    if kind in GROUP_KINDS and port is not None:
        raise bad_input("--port: a running scheduler is asked about pods only")
    key = name if "/" in name else f"{namespace}/{name}"
    token = token_for(port, token_file)
    known = _known(port, token, key) if port is not None else None
    recording = recording_of(inputs)
    if recording is not None:
        if config is not None or after_others:
            option = "--config" if config is not None else "--after-others"
            raise bad_input(f"{option}: a recording is explained as it was; use stower what-if")
        engine = replayed_engine(recording, at, ignore_unknown_plugins)
        pods = [entry.pod for entry in engine.state.pods.values()]
    elif at is not None:
        raise bad_input("--at: want a recording as INPUT")
    else:
        work = cluster_of(inputs, kubeconfig, context, state).workload
        engine, pods = _engine(work, config, ignore_unknown_plugins, after_others)
    if kind in GROUP_KINDS:
        _show_group(engine, GROUP_KINDS[kind], key, output)
        return
    pod = _find_pod(key, pods)
    with progress("explain"):
        found = _explain(engine, pod)
        negotiation = _negotiation(engine, key, None if at is not None else time.time_ns())
    if config is None and recording is None:
        _note_defaults(pod, engine)
    if not (recording is not None or after_others or pod.spec.node_name):
        _note_others(key, pods)
    if engine.extenders is not None:
        note(f"{engine.extenders.count} extenders of the configuration were not called")
    if output is Output.TABLE:
        print_explanation(found, negotiation)
        if known is not None:
            _print_known(known)
    else:
        fields = {name: getattr(found, name) for name in found.__struct_fields__}
        more = negotiation or msgspec.UNSET, msgspec.UNSET if known is None else known
        emit(ExplainedPod(**fields, negotiation=more[0], scheduler=more[1]), output)


def _find_pod(key: str, pods: Sequence[Pod]) -> Pod:
    """The pod of that key. Ends the program where there is none."""
    for pod in pods:
        if pod.key == key:
            return pod
    inside, _, short = key.rpartition("/")
    close = closest(short, [p.metadata.name for p in pods if p.metadata.namespace == inside])
    hint = f"; did you mean {close}?" if close else ""
    raise bad_input(f"there is no pod {key}, or it has ended{hint}")


def _note_defaults(pod: Pod, engine: Engine) -> None:
    name = pod.spec.scheduler_name
    if name in engine.profiles and name != DEFAULT_SCHEDULER_NAME:
        note(
            f"no configuration of {name} is given: kube-scheduler's defaults "
            "are used; give the configuration with --config"
        )


def _note_others(key: str, pods: Sequence[Pod]) -> None:
    others = sum(not (pod.spec.node_name or pod.key == key) for pod in pods)
    if others:
        verb = "waits" if others == 1 else "wait"
        note(
            f"{format_count(others, 'other pod')} {verb}, too: {key} is explained as if it were "
            "next; --after-others places the others first"
        )


def _engine(
    work: Workload, config: Path | None, ignores_unknown: bool, after_others: bool
) -> tuple[Engine, list[Pod]]:
    """The engine that knows the cluster, and its pods; `after_others`: once all pods that can have
    a node have it, as in `stower simulate`."""
    if not after_others:
        return informed_engine(work, config, ignores_unknown)
    from stower.sim.simulation import run_at_once  # takes a while to import
    from stower.sim.trial_world import TrialWorld

    pods = [*work.placed, *(arrival.pod for arrival in work.arrivals)]
    engine = engine_of(config, names=served_schedulers(pods), ignores_unknown=ignores_unknown)
    trial = TrialWorld(engine)
    with progress("explain"):
        run_at_once(trial.world, work, trial.last)
    engine.state.devices.template_keys = work.template_keys
    return engine, [*trial.world.pods.values()]


def _show_group(engine: Engine, kind: str, key: str, output: Output) -> None:
    with progress("explain"):
        found = explain_tree(engine, kind, key)
    if found is None:
        raise bad_input(f"there is no group {key}")
    if output is Output.TABLE:
        print_group(found)
    else:
        emit(msgspec.to_builtins(found), output)


def _explain(engine: Engine, pod: Pod) -> Explanation:
    """Returns the explanation of a pod; prints the traceback where the engine fails on it."""
    found = explain_pod(engine, pod)
    for _, text, about in engine.errors.take_log_lines():
        note(f"{text.rstrip()} ({about})")
    return found


def _negotiation(engine: Engine, key: str, now_ns: int | None) -> Negotiation | None:
    """Who waits for whom, if the pod's devices are negotiated."""
    state = engine.state
    pods = (entry.pod for entry in state.pods.values())
    objects = Objects(
        (pod for pod in pods if pod.spec.resource_claims or pod.key == key),
        state.devices.api_claims(),
        state.negotiations.classes.values(),
        (obj for obj in state.negotiations.api_objects() if isinstance(obj, PodScheduling)),
        (node for row in state.present_rows() if (node := state.nodes[row]) is not None),
        now_ns,
    )
    found = overview(objects, key)
    return next((n for n in found.negotiations if n.pod == key), None) if found else None


def _known(port: int, token: str, key: str) -> KnownPod:
    """What a running scheduler says of the pod."""
    url = f"http://127.0.0.1:{port}/debug/pod?{urlencode({'pod': key})}"
    try:
        with open_url(url, token, SECONDS_MAX) as answer:
            return msgspec.json.decode(answer.read(2**24), type=KnownPod)
    except urllib.error.HTTPError as error:
        raise failure(f"port {port}: {error.code} {error.reason}") from None
    except (OSError, ValueError, http.client.HTTPException, msgspec.MsgspecError):
        raise failure(f"port {port}: no valid response of a scheduler") from None


def _print_known(known: KnownPod) -> None:
    out = console()
    out.print("")
    where = f"Queue of the running scheduler: {known.place}"
    out.print(printable(f"{where}; attempts: {known.attempts}."))
    for tried in known.decisions[-3:]:
        text = tried.node or without_preemption(tried.message)
        out.print(printable(f"  {tried.outcome}: {text}"), soft_wrap=True)
        if tried.victims:
            text = f"    evicts {', '.join(tried.victims)} from {tried.nominated}"
            out.print(printable(text), soft_wrap=True)
        for node, score in tried.scores.items():
            out.print(printable(f"    {node} scored {score}"))
