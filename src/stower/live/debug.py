"""Dumps of a running scheduler as JSON: queue, cache, decisions, and the differences between the
cache and the API. Read-only: no function here changes a decision.

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
from stower.live.cluster_reflectors import LIVE_PODS, NODES, PODS
from stower.live.scheduler import Scheduler
from stower.state.cluster import ClusterState

COMPARISON: Final = "/debug/comparison"
PAGE_SIZE: Final = 500
OBJECTS_MAX: Final = 1_000  # per dump, unless the query names one object
RECHECK_SECONDS: Final = 1.0  # longer than a watch event takes to arrive

Query = Mapping[str, str]


class DebugTarget(Protocol):
    """The owner of an engine: a running scheduler, or a recording that is replayed."""

    decisions: deque[Decision]

    @property
    def engine(self) -> Engine | None:
        """The engine; None until all objects have been listed."""

    @property
    def is_leader(self) -> bool:
        """Whether the engine's decisions count."""


def dump_queue(scheduler: DebugTarget, query: Query) -> dict[str, Any]:
    """Returns the pods in the queue, each with its place and the plugins that rejected it."""
    engine = scheduler.engine
    pods = engine.queue.pods() if engine is not None else []
    counts = engine.queue.counts() if engine is not None else {}
    return {
        "leads": scheduler.is_leader,
        "counts": {place.name.lower(): count for place, count in counts.items()},
        "pods": [_dump_queued_pod(queued, scheduler) for queued in pods[:OBJECTS_MAX]],
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
        "waitsForGroup": engine.queue.tree_waiting_reason(queued.uid),
        "secondsInQueue": round((engine.now_ns - queued.first_added_ns) / 1e9, 3),
    }


def dump_cache(scheduler: DebugTarget, query: Query) -> dict[str, Any]:
    """Returns allocatable and requested resources, nominated pods and pods of each node.

    Query `node`: of this node alone.
    """
    engine = scheduler.engine
    if engine is None:
        return {"nodes": [], "more": 0}
    state, node_name = engine.state, query.get("node", "")
    rows = [state.row_of(node_name)] if node_name else list(state.present_rows())
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
    """Returns the latest decisions, each with the number of nodes that each plugin rejected.

    Query `pod` (namespace/name): only decisions of this pod.
    """
    pod_key = query.get("pod", "")
    return [
        {
            "pod": f"{decision.namespace}/{decision.name}",
            "uid": decision.uid,
            "outcome": decision.outcome.value,
            "atNs": decision.at_ns,
            "attempts": decision.attempts,
            "node": decision.node_name,
            "message": decision.message,
            "refused": _dump_rejections(decision.diagnosis)
            if decision.diagnosis is not None
            else [],
            "scores": dict(decision.scores),
            "victims": decision.victims,
            "nominated": decision.nominated,
            "profile": decision.profile,
            "waitedSeconds": round(decision.waited_ns / 1e9, 6),
            "tookSeconds": round(decision.took_ns / 1e9, 6),
        }
        for decision in scheduler.decisions
        if pod_key in ("", f"{decision.namespace}/{decision.name}")
    ]


def _dump_rejections(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Returns the number of rejected nodes by plugin and reasons, with examples."""
    if diagnosis.pre_filter is not None:
        first = diagnosis.pre_filter
        return [
            {
                "plugin": first.plugin,
                "reasons": first.rejection.reasons,
                "nodes": first.node_count,
                "examples": (),
            }
        ]
    return [
        {
            "plugin": refusal.plugin,
            "reasons": refusal.rejection.reasons,
            "nodes": refusal.node_count,
            "examples": examples,
        }
        for refusal, examples in zip(diagnosis.refused, diagnosis.examples, strict=True)
    ]


def dump_pod(scheduler: DebugTarget, query: Query) -> dict[str, Any]:
    """Returns a pod's place in the queue, what it waits for, and its decisions.

    Query `pod`: namespace/name.
    """
    key, engine = query.get("pod", ""), scheduler.engine
    queued_pods = engine.queue.pods() if engine is not None else []
    queued = next((queued_pod for queued_pod in queued_pods if queued_pod.pod.key == key), None)
    dump = {"pod": key, "decisions": dump_decisions(scheduler, query) if key else []}
    if queued is None:
        return {**dump, "place": "not in the queue"}
    return {**dump, **_dump_queued_pod(queued, scheduler)}


HANDLERS: Final[Mapping[str, Callable[[DebugTarget, Query], Any]]] = {
    "/debug/queue": dump_queue,
    "/debug/cache": dump_cache,
    "/debug/decisions": dump_decisions,
    "/debug/pod": dump_pod,
}


# Comparison of the cache with the API


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


ObjectIndex = dict[str, tuple[str, str]]  # by uid: namespace/name, and the node of a pod


async def compare_cache(scheduler: Scheduler) -> dict[str, Any]:
    """Returns the differences between the cache and the API.

    Compares twice, RECHECK_SECONDS apart, and returns only the differences of both times: a change
    that the watch has not delivered yet is no difference. Raises ComparisonFailed.
    """
    if scheduler.engine is None:
        raise ComparisonFailed("the cache is empty: the objects have not been listed yet")
    differences = await _compare_once(scheduler)
    if any(differences.values()):
        await asyncio.sleep(RECHECK_SECONDS)
        later = await _compare_once(scheduler)
        differences = {
            category: [difference for difference in items if difference in later[category]]
            for category, items in differences.items()
        }
    return {"equal": not any(differences.values()), **differences}


async def _compare_once(scheduler: Scheduler) -> dict[str, list[str]]:
    client = scheduler.client
    api_nodes = await _list_objects(client, NODES, "")
    api_pods = await _list_objects(client, PODS, LIVE_PODS)
    assert scheduler.engine is not None
    state = scheduler.engine.state
    cached_nodes = {state.node_names[row] for row in state.present_rows()}
    cached_pods = {
        uid: (
            entry.pod.key,
            "" if entry.row < 0 or entry.is_assumed else state.node_names[entry.row],
        )
        for uid, entry in state.pods.items()
    }
    ignored_pods = state.other_scheduler_pods
    api_node_names = {name for name, _ in api_nodes.values()}
    return {
        "nodesOnlyInApi": sorted(api_node_names - cached_nodes),
        "nodesOnlyInCache": sorted(cached_nodes - api_node_names),
        "podsOnlyInApi": sorted(
            f"{key} on {node or 'no node'}"
            for uid, (key, node) in api_pods.items()
            if uid not in cached_pods and uid not in ignored_pods
        ),
        "podsOnlyInCache": sorted(
            key for uid, (key, _) in cached_pods.items() if uid not in api_pods
        ),
        "podsElsewhere": sorted(
            f"{key} on {api_pods[uid][1] or 'no node'}, in the cache on {node or 'no node'}"
            for uid, (key, node) in cached_pods.items()
            if uid in api_pods and api_pods[uid][1] != node and not state.pods[uid].is_assumed
        ),
    }


async def _list_objects(client: Client, path: str, selector: str) -> ObjectIndex:
    """Lists all objects of a path, in pages. Raises ComparisonFailed."""
    index: ObjectIndex = {}
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
        for obj in page.items:
            meta = obj.metadata
            name = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
            index[meta.uid] = (name, obj.spec.node_name)
        token = page.metadata.continue_
        if not token:
            return index


class ComparisonFailed(Exception):
    """The cache cannot be compared: there is no engine, or the API gave no list."""
