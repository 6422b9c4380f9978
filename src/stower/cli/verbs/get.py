"""stower get: lists the pending pods of a cluster, by the reason why they have no node."""

import asyncio
import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.kube import Kube, KubeError, kubeconfig_of
from stower.cli.output import (
    Output,
    bad_input,
    console,
    emit,
    failure,
    format_count,
    table,
)
from stower.cli.reason_text import without_preemption
from stower.model.times import age, time_ns

NAME = "get"
WATCHED = True
EPILOG = """
Examples:

  stower get pending

  stower get pending --pods --namespace team-1

  stower get pending --classes --config scheduler.yaml

  stower get pending --output json

With --classes, the whole cluster is read, and each pod has the class of its explanation: never,
blocked, waiting or ready (docs/explanation.md).
"""

VIEWS = ("devices", "groups", "negotiations", "vms", "warm")


def run(
    what: Annotated[
        str, typer.Argument(metavar="pending", help="pending: pods without a node, and why.")
    ],
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Only this namespace; default: all.")
    ] = "",
    pods: Annotated[bool, typer.Option("--pods", help="List each pod, not each reason.")] = False,
    classes: Annotated[
        bool, typer.Option("--classes", help="Read the whole cluster, and classify each pod.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --classes: the configuration.")
    ] = None,
    state: State = STATE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Show pending pods and why they have no node."""
    if what != "pending":
        other = f"{what}: stower {what}" if what in VIEWS else "API objects: kubectl get"
        raise bad_input(f"got {what!r}, want pending (for {other})")
    try:
        waiting = asyncio.run(pending_pods(kubeconfig_of(kubeconfig, state), namespace, context))
    except KubeError as error:
        raise failure(str(error)) from None
    if classes:
        from stower.cli.pending_classes import classify  # loads all that explains pods

        classify(waiting, config, kubeconfig, context, state)
    elif config is not None:
        raise bad_input("--config: is for --classes")
    if output is not Output.TABLE:
        emit(waiting, output)
    elif not waiting:
        console().print("No pod waits for a node.")
    else:
        print_waiting(waiting, pods)


async def pending_pods(
    where: Path | None, namespace: str, context: str = ""
) -> list[dict[str, Any]]:
    """Pods without a node, the longest waiting first."""
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    path = f"/api/v1{inside}/pods?fieldSelector=spec.nodeName%3D,status.phase%3DPending"
    async with Kube.open(where, context) as kube:
        found = await kube.items(path)
    return sorted(map(_describe, found), key=lambda pod: (pod["since"], pod["pod"]))


def _describe(pod: dict[str, Any]) -> dict[str, Any]:
    meta, spec = pod["metadata"], pod["spec"]
    conditions = pod.get("status", {}).get("conditions") or ()
    told: dict[str, Any] = next((c for c in conditions if c["type"] == "PodScheduled"), {})
    gates = [gate["name"] for gate in spec.get("schedulingGates") or ()]
    scheduler = spec.get("schedulerName") or ""
    message = without_preemption(told.get("message") or "")
    why = message or f"not yet attempted by {scheduler}"
    if gates:
        why = f"scheduling gates: {', '.join(gates)}"
    elif "deletionTimestamp" in meta:
        why = "the pod is being deleted"
    return {
        "pod": f"{meta['namespace']}/{meta['name']}",
        "since": meta["creationTimestamp"],
        "priority": spec.get("priority") or 0,
        "scheduler": scheduler,
        "reason": told.get("reason") or "",
        "why": why,
    }


def print_waiting(waiting: list[dict[str, Any]], each: bool) -> None:
    """As a table: each pod, or one line for each reason."""
    now_ns = time.time_ns()
    if each:
        more = ("class",) if any("class" in pod for pod in waiting) else ()
        names = ("pod", "waits", "priority", *more, "why")
        listed = table("Pending pods", *names, right=("priority",))
        for pod in waiting:
            since, classes = age(now_ns, pod["since"]), [pod.get(name, "") for name in more]
            listed.add_row(pod["pod"], since, str(pod["priority"]), *classes, pod["why"])
        console().print(listed)
        return
    groups: dict[str, list[dict[str, Any]]] = {}
    for pod in waiting:
        why = f"{pod['class']}: {pod['why']}" if "class" in pod else pod["why"]
        groups.setdefault(why, []).append(pod)
    title = f"{format_count(len(waiting), 'pod')} {'waits' if len(waiting) == 1 else 'wait'}"
    listed = table(f"{title} for a node", "pods", "longest", "why", "for example", right=("pods",))
    for why, pods in sorted(groups.items(), key=lambda group: -len(group[1])):
        oldest = min(pods, key=lambda pod: time_ns(pod["since"]) or 0)
        since = age(now_ns, oldest["since"])
        listed.add_row(f"{len(pods):,}", since, why, oldest["pod"])
    console().print(listed)
