"""What `stower doctor` looks at in a cluster: what is served, what an account may do, the Lease.

Each check is about one account, and its advice is about what is missing for that account. Nothing
is written.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from stower.cli.kube import NodeHealth
from stower.framework.election import LeaderElectionConfig
from stower.live.client import Client
from stower.live.cluster_reflectors import OPTIONAL_VIEWS, background_kinds
from stower.live.discovery import FEATURES, check_features, get_served_resources
from stower.live.leader import lease_path
from stower.live.rights import Right, group_of, is_permitted
from stower.live.shell import ShellError
from stower.live.version import check_version
from stower.model.kinds import KIND_BY_VIEW, Node, Pod
from stower.model.times import SECOND_NS, time_ns

KUBE: Final = LeaderElectionConfig()  # as kube-scheduler has it
OK, NOTE, MISSING = "ok", "note", "missing"
SELF: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ROLE: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles/stower-scheduler"
OWN_ACCOUNT: Final = "system:serviceaccount:stower-system:stower"
LEASES: Final = "coordination.k8s.io"
# What every scheduler writes.
WRITES: Final = (
    Right("create", "", "pods", "binding"), Right("patch", "", "pods", "status"),
    Right("delete", "", "pods"), Right("create", "events.k8s.io", "events"),
)  # fmt: skip


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at. `state`: ok, note (fine, and worth knowing) or missing."""

    about: str
    state: str
    text: str


class Wanted(NamedTuple):
    """What a scheduler with a configuration needs. `election` None: no leader election;
    `required`: views of optional kinds that the configuration relies on; `account`: whose rights
    are asked for, "" for those of the kubeconfig."""

    election: LeaderElectionConfig | None = KUBE
    required: tuple[type[Any], ...] = ()
    account: str = ""


class _Version(msgspec.Struct, frozen=True):
    major: str
    minor: str


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""


class _SelfStatus(msgspec.Struct, frozen=True, rename="camel"):
    user_info: _UserInfo = _UserInfo()


class _Self(msgspec.Struct, frozen=True):
    status: _SelfStatus


class _Nodes(msgspec.Struct, frozen=True):
    items: list[NodeHealth]


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class _Lease(msgspec.Struct, frozen=True):
    spec: _LeaseSpec = _LeaseSpec()


async def check_cluster(client: Client, wanted: Wanted, now_ns: int) -> AsyncIterator[Finding]:
    """Yields what there is to say of a cluster. Raises AccessError."""
    try:
        await check_version(client)
    except ShellError as error:
        yield Finding("cluster", MISSING, str(error))
        return
    version = (await client.get_with_retry("/version")).read(_Version)
    assert version is not None  # it was looked at just now
    about = f"{client.access.server}, Kubernetes {version.major}.{version.minor}"
    yield Finding("cluster", OK, about)
    account = wanted.account or await _own_account(client)
    yield Finding("account", OK if account else NOTE, account or "the server does not tell")
    served = await get_served_resources(client)
    features = await check_features(client, served, wanted.required)
    for name in features.served:
        yield Finding(name, OK, "served")
    for name in features.missing:
        yield Finding(name, NOTE, "not served: the scheduler runs without it")
    for fault in features.problems:
        yield Finding("definitions", MISSING, fault)
    async for finding in _rights(client, wanted, account, served):
        yield finding
    yield await _nodes(client)
    yield await _leader(client, wanted.election, now_ns)


async def _own_account(client: Client) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.request("POST", SELF, msgspec.json.encode(body))
    found = answer.read(_Self)
    return found.status.user_info.username if found is not None else ""


async def _rights(
    client: Client, wanted: Wanted, account: str, served: frozenset[tuple[str, str]] | None
) -> AsyncIterator[Finding]:
    """Yields what the account may do: what every scheduler needs, then what optional kinds need."""
    kinds = background_kinds(groups=True, vms=True, warm=True)
    always = [KIND_BY_VIEW[view] for view in (Node, Pod)]
    always += [kind for kind in kinds if kind.view not in OPTIONAL_VIEWS]
    reads = [
        Right(verb, group_of(kind.api_version), kind.plural)
        for kind in always
        for verb in ("list", "watch")
    ]
    needed = [*reads, *WRITES, *_lease_rights(wanted.election)]
    answers = await _ask(client, wanted, needed)
    unknown = [right for right, answer in zip(needed, answers, strict=True) if answer is None]
    if unknown:
        yield Finding("rights", NOTE, "cannot be checked: the server refuses reviews of them")
        return
    lacking = [right for right, answer in zip(needed, answers, strict=True) if answer is False]
    advice = await _advice(client, account, len(lacking) == len(needed)) if lacking else ""
    missing_reads = [right for right in lacking if right in reads]
    text = f"granted for {len(always)} kinds" if not missing_reads else _lacks(missing_reads)
    yield _right("right to read", text, advice if missing_reads else "")
    for right in needed[len(reads) :]:
        is_missing = right in lacking
        text = "not granted" if is_missing else "granted"
        yield _right(f"right to {_text(right)}", text, advice if is_missing else "")
    for feature in FEATURES:
        found = [KIND_BY_VIEW[view] for view in feature.views]
        versions = [(version, kind) for kind in found for version in (kind.api_version, *kind.also)]
        rights = [
            Right(verb, group_of(version), kind.plural)
            for version, kind in versions
            for verb in ("list", "watch")
            if served is not None and (version, kind.plural) in served
        ]
        denied = [
            right
            for right, answer in zip(rights, await _ask(client, wanted, rights), strict=True)
            if answer is False
        ]
        if denied:
            is_required = any(view in wanted.required for view in feature.views)
            more = f": kubectl apply -k {feature.rights}" if feature.rights else ""
            text = f"{_lacks(denied)}: the scheduler runs without them{more}"
            yield Finding(f"right to {feature.name}", MISSING if is_required else NOTE, text)


async def _ask(client: Client, wanted: Wanted, rights: Sequence[Right]) -> list[bool | None]:
    asked = (is_permitted(client, right, wanted.account) for right in rights)
    return await asyncio.gather(*asked)


def _right(about: str, text: str, advice: str) -> Finding:
    return Finding(about, MISSING, f"{text}: {advice}") if advice else Finding(about, OK, text)


def _lacks(rights: Iterable[Right]) -> str:
    verbs: dict[str, list[str]] = {}
    for right in rights:
        name = f"{right.resource}.{right.group}" if right.group else right.resource
        verbs.setdefault(name, []).append(right.verb)
    named = (f"{name} ({', '.join(some)})" for name, some in verbs.items())
    return f"not granted: {', '.join(named)}"


def _text(right: Right) -> str:
    part = f"/{right.subresource}" if right.subresource else ""
    name = f" {right.name}" if right.name else ""
    where = f" in {right.namespace}" if right.namespace else ""
    return f"{right.verb} {right.resource}{part}{name}{where}"


def _lease_rights(election: LeaderElectionConfig | None) -> list[Right]:
    if election is None:
        return []
    of = {"namespace": election.namespace, "name": election.name}
    some = [Right(verb, LEASES, "leases", **of) for verb in ("get", "update")]
    return [*some, Right("create", LEASES, "leases", namespace=election.namespace)]


async def _advice(client: Client, account: str, has_nothing: bool) -> str:
    """How the account gets what it lacks. What the manifests made already is not advised."""
    whom = account or "this account"
    if not has_nothing:
        return f"the roles of {whom} do not have it: check their version, and --config"
    if account == OWN_ACCOUNT:
        return "kubectl apply -k deploy/scheduler"
    if (await client.request("GET", ROLE)).status == 200:
        return (
            f"{whom} has not the roles of the manifests; the scheduler's own account is asked "
            f"about with --account {OWN_ACCOUNT}"
        )
    return f"kubectl apply -k deploy/scheduler makes the account and its roles; {whom} has none"


async def _nodes(client: Client) -> Finding:
    answer = await client.get_with_retry("/api/v1/nodes?limit=500")
    nodes = answer.read(_Nodes)
    if nodes is None:
        return Finding("nodes", MISSING, answer.message)
    ready, count = sum(node.is_ready for node in nodes.items), len(nodes.items)
    text = f"{ready:,} of the first {count:,} ready" if count else "the cluster has no nodes"
    return Finding("nodes", OK if 0 < count == ready else NOTE, text)


async def _leader(client: Client, election: LeaderElectionConfig | None, now_ns: int) -> Finding:
    if election is None:
        text = "switched off: only one scheduler may run with this configuration"
        return Finding("leader election", NOTE, text)
    about = f"Lease {election.namespace}/{election.name}"
    answer = await client.get_with_retry(lease_path(election))
    lease = answer.read(_Lease)
    if lease is None and answer.status not in (200, 404):
        return Finding(about, NOTE, f"cannot be read: {answer.message}")
    if lease is None or not lease.spec.holder_identity:
        return Finding(about, OK, "no holder: who starts now leads")
    spec = lease.spec
    renewed_ns = time_ns(spec.renew_time)
    ago_s = (now_ns - renewed_ns) // SECOND_NS if renewed_ns is not None else None
    held = f"held by {spec.holder_identity}, renewed {spec.renew_time or 'never'}"
    if ago_s is None or ago_s > (spec.lease_duration_seconds or 15):
        return Finding(about, OK, f"{held}: expired, who starts now leads")
    text = f"{held}: who starts now stands by until it ends"
    if (election.namespace, election.name) == (KUBE.namespace, KUBE.name):
        text += "; beside it, name another in leaderElection.resourceName (--config)"
    return Finding(about, NOTE, text)
