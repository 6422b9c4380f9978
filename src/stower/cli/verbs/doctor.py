"""stower doctor: checks whether this machine and a cluster have what a scheduler needs."""

import asyncio
import importlib.util
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
import typer

from stower.cli.cluster_options import Context, Kubeconfig, State
from stower.cli.kube import AGENT, KubeError, NodeHealth, kubeconfig_of
from stower.cli.output import Output, console, emit, table
from stower.cli.state_folder import STATE
from stower.live.access import AccessError, read_access
from stower.live.client import Client, Response
from stower.live.discovery import check_features
from stower.live.shell import ShellError
from stower.live.version import check_version

NAME = "doctor"
WATCHED = True
EPILOG = """
Examples:

  stower doctor                              # this machine and the default cluster

  stower doctor --kubeconfig ~/.kube/config --context prod

  stower doctor -o json | jq '.[] | select(.state == "missing")'

The exit code is 1 if anything that a scheduler needs is missing, else 0.
"""
OK, NOTE, MISSING = "ok", "note", "missing"
PYTHON: Final = (3, 11)
# Extras: module, what it is for.
EXTRAS: Final = {
    "fast": ("aiofastnet", "TLS at half the CPU"),
    "plot": ("matplotlib", "--plot"),
    "parquet": ("pyarrow", "traces and results as Parquet"),
    "otel": ("opentelemetry.sdk", "--otlp-endpoint"),
    "ray": ("ray", "sweeps over several machines"),
}
# What a scheduler must be allowed to do: verb, group, resource, subresource.
RIGHTS: Final = (
    ("list", "", "nodes", ""), ("watch", "", "pods", ""), ("create", "", "pods", "binding"),
    ("patch", "", "pods", "status"), ("delete", "", "pods", ""),
    ("create", "events.k8s.io", "events", ""), ("update", "coordination.k8s.io", "leases", ""),
)  # fmt: skip
REVIEW: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at. `state`: ok, note (fine, and worth knowing) or missing."""

    about: str
    state: str
    text: str


class _Version(msgspec.Struct, frozen=True):
    major: str
    minor: str


class _ReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus


class _Nodes(msgspec.Struct, frozen=True):
    items: list[NodeHealth]


class _Holder(msgspec.Struct, frozen=True):
    holderIdentity: str | None = None
    renewTime: str | None = None


class _Lease(msgspec.Struct, frozen=True):
    spec: _Holder = _Holder()


T = TypeVar("T")


def run(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Check whether this machine and a cluster have what a scheduler needs."""
    found = [*_machine(), *asyncio.run(_cluster(kubeconfig, context, state))]
    if output is not Output.TABLE:
        emit([msgspec.to_builtins(one) for one in found], output)
    else:
        shown = table("", "check", "", "result")
        shown.title = None
        for one in found:
            shown.add_row(one.about, one.state, one.text)
        console().print(shown)
    if any(one.state == MISSING for one in found):
        raise typer.Exit(1)


def _machine() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    fine = sys.version_info >= PYTHON
    text = version if fine else f"{version}, want at least 3.11"
    yield Finding("Python", OK if fine else MISSING, text)
    for extra, (module, purpose) in EXTRAS.items():
        try:
            there = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            there = False
        text = purpose if there else f"{purpose}: pip install 'stower[{extra}]'"
        yield Finding(f"extra {extra}", OK if there else NOTE, text)
    path = shutil.which("kubectl")
    yield Finding("kubectl", OK if path else NOTE, path or "not on PATH; Stower does not need it")


async def _cluster(given: Path | None, context: str, state: Path) -> list[Finding]:
    try:
        access = await read_access(kubeconfig_of(given, state), context)
    except (AccessError, KubeError) as error:
        is_asked_for = given is not None or bool(context) or state != STATE
        text = f"{error}; or start a cluster with `stower up`"
        return [Finding("cluster", MISSING if is_asked_for else NOTE, text)]
    async with Client(access, AGENT) as client:
        return [finding async for finding in _check_cluster(client)]


async def _check_cluster(client: Client) -> AsyncIterator[Finding]:
    try:
        await check_version(client)
    except ShellError as error:
        yield Finding("cluster", MISSING, str(error))
        return
    version = _read(await client.get_with_retry("/version"), _Version)
    assert version is not None  # it was looked at just now
    about = f"{client.access.server}, Kubernetes {version.major}.{version.minor}"
    yield Finding("cluster", OK, about)
    features = await check_features(client, ())
    for name in features.served:
        yield Finding(name, OK, "served")
    for name in features.missing:
        yield Finding(name, NOTE, "not served: the scheduler runs without it")
    for fault in features.problems:
        yield Finding("definitions", MISSING, fault)
    for verb, group, resource, part in RIGHTS:
        what = f"{verb} {resource}{'/' if part else ''}{part}"
        yield await _right(client, what, verb, group, resource, part)
    yield await _nodes(client)
    yield await _leader(client)


async def _right(
    client: Client, what: str, verb: str, group: str, resource: str, part: str
) -> Finding:
    asked = {"verb": verb, "group": group, "resource": resource, "subresource": part}
    body = {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }  # fmt: skip
    answer = await client.request("POST", REVIEW, msgspec.json.encode(body))
    review = _read(answer, _Review)
    if review is None:
        return Finding(f"right to {what}", NOTE, f"cannot be checked: {answer.message}")
    if review.status.allowed:
        return Finding(f"right to {what}", OK, "granted")
    text = "not granted: run kubectl apply -k deploy/scheduler"
    return Finding(f"right to {what}", MISSING, text)


async def _nodes(client: Client) -> Finding:
    answer = await client.get_with_retry("/api/v1/nodes?limit=500")
    nodes = _read(answer, _Nodes)
    if nodes is None:
        return Finding("nodes", MISSING, answer.message)
    ready, count = sum(node.is_ready for node in nodes.items), len(nodes.items)
    text = f"{ready:,} of the first {count:,} ready" if count else "the cluster has no nodes"
    return Finding("nodes", OK if 0 < count == ready else NOTE, text)


async def _leader(client: Client) -> Finding:
    lease = _read(await client.get_with_retry(LEASE), _Lease)
    name = "Lease kube-system/kube-scheduler"
    if lease is None or not lease.spec.holderIdentity:
        return Finding(name, OK, "no holder")
    held = f"held by {lease.spec.holderIdentity}, renewed {lease.spec.renewTime}"
    return Finding(name, NOTE, f"{held}: a second scheduler needs a Lease of another name")


def _read(answer: Response, type: type[T]) -> T | None:
    """What a server says; None where it refuses, or that is no such thing."""
    if not 200 <= answer.status < 300:
        return None
    try:
        return msgspec.json.decode(answer.body, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
