"""What a running scheduler has in mind, as JSON: queue, cache, decisions, and how the cache
compares with the API. Read-only; nothing here changes what is decided.

Source: kube-scheduler backend/cache/debugger.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import msgspec

from stower.engine.engine import Engine
from stower.engine.queue.entities import QueuedPod
from stower.framework.decisions import Decision
from stower.framework.reasons import Diagnosis
from stower.live.access import AccessError
from stower.live.client import Client
from stower.live.scheduler import LIVE_PODS, NODES, PODS, Scheduler
from stower.state.cluster import ClusterState

COMPARISON: Final = "/debug/comparison"
PAGE: Final = 500
SHOWN_MAX: Final = 1_000  # of a kind, where nobody asks for one by name
AGAIN_SECONDS: Final = 1.0  # what a watch takes to tell, and more

Query = Mapping[str, str]


class Deciding(Protocol):
    """Whoever has an engine and decides: a scheduler, or a recording that is played."""

    decisions: deque[Decision]

    @property
    def engine(self) -> Engine | None:
        """None where nothing is known yet."""

    @property
    def leads(self) -> bool:
        """Whether it decides."""


def queue(scheduler: Deciding, query: Query) -> dict[str, Any]:
    """Who waits, where and by whom refused."""
    engine = scheduler.engine
    pods = engine.queue.pods() if engine is not None else []
    counts = engine.queue.counts() if engine is not None else {}
    return {
        "leads": scheduler.leads,
        "counts": {place.name.lower(): count for place, count in counts.items()},
        "pods": [_queued(one, scheduler) for one in pods[:SHOWN_MAX]],
        "more": max(0, len(pods) - SHOWN_MAX),
    }


def _queued(one: QueuedPod, scheduler: Deciding) -> dict[str, Any]:
    engine = scheduler.engine
    assert engine is not None
    place = one.tree.place if one.tree is not None else one.place
    return {
        "pod": one.pod.key,
        "uid": one.uid,
        "priority": one.pod.priority,
        "place": place.name.lower().replace("_", " "),
        "attempts": one.attempts,
        "refusedBy": sorted(one.refused_by),
        "awaitsVictims": len(one.victims),
        "waitsForGroup": engine.queue.waits_for(one.uid),
        "secondsInQueue": round((engine.now_ns - one.first_added_ns) / 1e9, 3),
    }


def cache(scheduler: Deciding, query: Query) -> dict[str, Any]:
    """What each node has, what of it is taken, and by whom; `node`: of one alone."""
    engine = scheduler.engine
    if engine is None:
        return {"nodes": [], "more": 0}
    state, wanted = engine.state, query.get("node", "")
    rows = [state.row_of(wanted)] if wanted else list(state.present_rows())
    rows = [row for row in rows if row >= 0]
    shown = rows[:SHOWN_MAX]
    by_row: dict[int, list[str]] = {row: [] for row in shown}
    for entry in state.pods.values():
        if entry.row in by_row:
            by_row[entry.row].append(entry.pod.key + (" (assumed)" if entry.assumed else ""))
    return {
        "nodes": [_node(state, row, by_row[row]) for row in shown],
        "more": len(rows) - len(shown),
    }


def _node(state: ClusterState, row: int, pods: list[str]) -> dict[str, Any]:
    columns = state.columns.values()
    return {
        "node": state.names[row],
        "allocatable": {_unit(c.name): int(c.alloc[row]) for c in columns if c.alloc[row]},
        "requested": {_unit(c.name): int(c.used[row]) for c in columns if c.used[row]},
        "nominated": sorted(
            entry.pod.key for entry in state.nominated.get(state.names[row], {}).values()
        ),
        "pods": sorted(pods),
    }


def _unit(resource: str) -> str:
    return "cpuMilli" if resource == "cpu" else resource


def decisions(scheduler: Deciding, query: Query) -> list[dict[str, Any]]:
    """Those that are still known, of one pod or of all, with who refused how many nodes."""
    pod = query.get("pod", "")
    return [
        {
            "pod": f"{d.namespace}/{d.name}",
            "uid": d.uid,
            "outcome": d.outcome.value,
            "atNs": d.at_ns,
            "attempts": d.attempts,
            "node": d.node_name,
            "message": d.message,
            "refused": _refused(d.diagnosis) if d.diagnosis is not None else [],
            "scores": dict(d.scores),
            "victims": d.victims,
            "nominated": d.nominated,
            "profile": d.profile,
            "waitedSeconds": round(d.waited_ns / 1e9, 6),
            "tookSeconds": round(d.took_ns / 1e9, 6),
        }
        for d in scheduler.decisions
        if pod in ("", f"{d.namespace}/{d.name}")
    ]


def _refused(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """By plugin and reason: how many nodes, and some of them."""
    if diagnosis.pre_filter is not None:
        first = diagnosis.pre_filter
        return [{"plugin": first.plugin, "reasons": first.rejection.reasons,
                 "nodes": first.node_count, "examples": ()}]  # fmt: skip
    return [
        {"plugin": r.plugin, "reasons": r.rejection.reasons, "nodes": r.node_count,
         "examples": examples}
        for r, examples in zip(diagnosis.refused, diagnosis.examples, strict=True)
    ]  # fmt: skip


def pod(scheduler: Deciding, query: Query) -> dict[str, Any]:
    """Where it is in the queue, what it waits for, and what its attempts came to."""
    key, engine = query.get("pod", ""), scheduler.engine
    waiting = engine.queue.pods() if engine is not None else []
    queued = next((q for q in waiting if q.pod.key == key), None)
    found = {"pod": key, "decisions": decisions(scheduler, query) if key else []}
    if queued is None:
        return {**found, "place": "not in the queue"}
    return {**found, **_queued(queued, scheduler)}


PAGES: Final[Mapping[str, Callable[[Deciding, Query], Any]]] = {
    "/debug/queue": queue,
    "/debug/cache": cache,
    "/debug/decisions": decisions,
    "/debug/pod": pod,
}


# The cache beside the API


class _Meta(msgspec.Struct):
    uid: str
    name: str
    namespace: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _ListMeta(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    items: list[_Object]
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


Found = dict[str, tuple[str, str]]  # by uid: name, and the node that it is on


async def comparison(scheduler: Scheduler) -> dict[str, Any]:
    """Where the cache differs from the API, looked at twice: what a watch has not told yet is no
    difference. Raises ComparisonFailed."""
    if scheduler.engine is None:
        raise ComparisonFailed("nothing is known yet")
    found = await _differences(scheduler)
    if any(found.values()):
        await asyncio.sleep(AGAIN_SECONDS)
        again = await _differences(scheduler)
        found = {what: [one for one in ones if one in again[what]] for what, ones in found.items()}
    return {"equal": not any(found.values()), **found}


async def _differences(scheduler: Scheduler) -> dict[str, list[str]]:
    client = scheduler.client
    nodes = await _listed(client, NODES, "")
    pods = await _listed(client, PODS, LIVE_PODS)
    assert scheduler.engine is not None
    state = scheduler.engine.state
    known_nodes = {state.names[row] for row in state.present_rows()}
    known = {
        uid: (entry.pod.key, "" if entry.row < 0 or entry.assumed else state.names[entry.row])
        for uid, entry in state.pods.items()
    }
    strangers = state.strangers
    names = {name for name, _ in nodes.values()}
    return {
        "nodesOnlyInApi": sorted(names - known_nodes),
        "nodesOnlyInCache": sorted(known_nodes - names),
        "podsOnlyInApi": sorted(
            f"{key} on {node or 'no node'}"
            for uid, (key, node) in pods.items()
            if uid not in known and uid not in strangers
        ),
        "podsOnlyInCache": sorted(key for uid, (key, _) in known.items() if uid not in pods),
        "podsElsewhere": sorted(
            f"{key} on {pods[uid][1] or 'no node'}, in the cache on {node or 'no node'}"
            for uid, (key, node) in known.items()
            if uid in pods and pods[uid][1] != node and not state.pods[uid].assumed
        ),
    }


async def _listed(client: Client, path: str, selector: str) -> Found:
    """All objects of a path. Raises ComparisonFailed."""
    found: Found = {}
    token = ""
    while True:
        query = {"limit": str(PAGE), "continue": token, "fieldSelector": selector}
        path_and_query = f"{path}?{urlencode({k: v for k, v in query.items() if v})}"
        try:
            answer = await client.ask("GET", path_and_query)
            if answer.status != 200:
                raise ComparisonFailed(f"{path}: {answer.status} {answer.message}")
            page = msgspec.json.decode(answer.body, type=_List)
        except (AccessError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ComparisonFailed(f"{path}: {error}") from None
        for one in page.items:
            meta = one.metadata
            name = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
            found[meta.uid] = (name, one.spec.node_name)
        token = page.metadata.continue_
        if not token:
            return found


class ComparisonFailed(Exception):
    """The API does not say what there is."""
