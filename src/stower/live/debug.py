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
PAGE_SIZE: Final = 500
OBJECTS_MAX: Final = 1_000  # of a kind, where nobody asks for one by name
RECHECK_SECONDS: Final = 1.0  # what a watch takes to tell, and more

Query = Mapping[str, str]


class DebugTarget(Protocol):
    """Whoever has an engine and decides: a scheduler, or a recording that is played."""

    decisions: deque[Decision]

    @property
    def engine(self) -> Engine | None:
        """None where nothing is known yet."""

    @property
    def is_leader(self) -> bool:
        """Whether it decides."""


def dump_queue(scheduler: DebugTarget, query: Query) -> dict[str, Any]:
    """Who waits, where and by whom refused."""
    engine = scheduler.engine
    pods = engine.queue.pods() if engine is not None else []
    counts = engine.queue.counts() if engine is not None else {}
    return {
        "leads": scheduler.is_leader,
        "counts": {place.name.lower(): count for place, count in counts.items()},
        "pods": [_dump_queued_pod(one, scheduler) for one in pods[:OBJECTS_MAX]],
        "more": max(0, len(pods) - OBJECTS_MAX),
    }


def _dump_queued_pod(queued: QueuedPod, scheduler: DebugTarget) -> dict[str, Any]:
    engine = scheduler.engine
    assert engine is not None
    place = queued.tree.place if queued.tree is not None else queued.place
    return {
        "pod": queued.pod.key,
        "uid": queued.uid,
        "priority": queued.pod.priority,
        "place": place.name.lower().replace("_", " "),
        "attempts": queued.attempts,
        "refusedBy": sorted(queued.refused_by),
        "awaitsVictims": len(queued.victims),
        "waitsForGroup": engine.queue.waits_for(queued.uid),
        "secondsInQueue": round((engine.now_ns - queued.first_added_ns) / 1e9, 3),
    }


def dump_cache(scheduler: DebugTarget, query: Query) -> dict[str, Any]:
    """What each node has, what of it is taken, and by whom; `node`: of one alone."""
    engine = scheduler.engine
    if engine is None:
        return {"nodes": [], "more": 0}
    state, wanted = engine.state, query.get("node", "")
    rows = [state.row_of(wanted)] if wanted else list(state.present_rows())
    rows = [row for row in rows if row >= 0]
    shown = rows[:OBJECTS_MAX]
    by_row: dict[int, list[str]] = {row: [] for row in shown}
    for entry in state.pods.values():
        if entry.row in by_row:
            by_row[entry.row].append(entry.pod.key + (" (assumed)" if entry.is_assumed else ""))
    return {
        "nodes": [_dump_node(state, row, by_row[row]) for row in shown],
        "more": len(rows) - len(shown),
    }


def _dump_node(state: ClusterState, row: int, pods: list[str]) -> dict[str, Any]:
    columns = state.columns.values()
    return {
        "node": state.node_names[row],
        "allocatable": {
            _resource_key(c.name): int(c.allocatable_cells[row])
            for c in columns
            if c.allocatable_cells[row]
        },
        "requested": {
            _resource_key(c.name): int(c.requested_cells[row])
            for c in columns
            if c.requested_cells[row]
        },
        "nominated": sorted(
            entry.pod.key for entry in state.nominated_pods.get(state.node_names[row], {}).values()
        ),
        "pods": sorted(pods),
    }


def _resource_key(resource: str) -> str:
    return "cpuMilli" if resource == "cpu" else resource


def dump_decisions(scheduler: DebugTarget, query: Query) -> list[dict[str, Any]]:
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
            "refused": _dump_rejections(d.diagnosis) if d.diagnosis is not None else [],
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


def _dump_rejections(diagnosis: Diagnosis) -> list[dict[str, Any]]:
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


def dump_pod(scheduler: DebugTarget, query: Query) -> dict[str, Any]:
    """Where it is in the queue, what it waits for, and what its attempts came to."""
    key, engine = query.get("pod", ""), scheduler.engine
    waiting = engine.queue.pods() if engine is not None else []
    queued = next((q for q in waiting if q.pod.key == key), None)
    found = {"pod": key, "decisions": dump_decisions(scheduler, query) if key else []}
    if queued is None:
        return {**found, "place": "not in the queue"}
    return {**found, **_dump_queued_pod(queued, scheduler)}


HANDLERS: Final[Mapping[str, Callable[[DebugTarget, Query], Any]]] = {
    "/debug/queue": dump_queue,
    "/debug/cache": dump_cache,
    "/debug/decisions": dump_decisions,
    "/debug/pod": dump_pod,
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


ObjectIndex = dict[str, tuple[str, str]]  # by uid: name, and the node that it is on


async def compare_cache(scheduler: Scheduler) -> dict[str, Any]:
    """Where the cache differs from the API, looked at twice: what a watch has not told yet is no
    difference. Raises ComparisonFailed."""
    if scheduler.engine is None:
        raise ComparisonFailed("nothing is known yet")
    found = await _compare_once(scheduler)
    if any(found.values()):
        await asyncio.sleep(RECHECK_SECONDS)
        again = await _compare_once(scheduler)
        found = {what: [one for one in ones if one in again[what]] for what, ones in found.items()}
    return {"equal": not any(found.values()), **found}


async def _compare_once(scheduler: Scheduler) -> dict[str, list[str]]:
    client = scheduler.client
    nodes = await _list_objects(client, NODES, "")
    pods = await _list_objects(client, PODS, LIVE_PODS)
    assert scheduler.engine is not None
    state = scheduler.engine.state
    known_nodes = {state.node_names[row] for row in state.present_rows()}
    known = {
        uid: (
            entry.pod.key,
            "" if entry.row < 0 or entry.is_assumed else state.node_names[entry.row],
        )
        for uid, entry in state.pods.items()
    }
    strangers = state.other_scheduler_pods
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
            if uid in pods and pods[uid][1] != node and not state.pods[uid].is_assumed
        ),
    }


async def _list_objects(client: Client, path: str, selector: str) -> ObjectIndex:
    """All objects of a path. Raises ComparisonFailed."""
    found: ObjectIndex = {}
    token = ""
    while True:
        query = {"limit": str(PAGE_SIZE), "continue": token, "fieldSelector": selector}
        path_and_query = f"{path}?{urlencode({k: v for k, v in query.items() if v})}"
        try:
            answer = await client.request("GET", path_and_query)
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
