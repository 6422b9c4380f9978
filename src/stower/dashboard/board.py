"""Computes what pages show of a scheduler, once for all pages: nodes, queue, decisions, rates.

A page gets the whole state when it opens, and changes from then on, as lines of JSON. Nodes are
sent by row; a row is computed again only when the engine's logs name it. While no page is open,
nothing is computed. Must not know HTTP.
"""

import contextlib
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator
from typing import Any, Final

import msgspec

from stower.dashboard.source import Source
from stower.engine.engine import Engine
from stower.engine.queue.entities import QueuedPod
from stower.framework.decisions import Decision
from stower.framework.events import Event
from stower.framework.observer import Observer
from stower.model.kinds import Pod
from stower.plugins.warm_capacity import find_warm_controller
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.vms.amounts import BadAmount
from stower.vms.pods import BadPod, resources_in_use, vm_owner

ZONE: Final = "topology.kubernetes.io/zone"
RACKS: Final = ("topology.kubernetes.io/rack", "rack", "topology.stower.dev/rack")
WAITING_MAX: Final = 500  # pods of the queue that are told of
DECISIONS: Final = 200
ROWS_AT_ONCE: Final = 200  # worked out before somebody else has a turn: some 5 ms
MIB: Final = 1 << 20
# Columns of amounts, as they are told: name, resource, divided by.
AMOUNTS: Final = (("cpu", "cpu", 1), ("memory", "memory", MIB), ("pods", "pods", 1))

SAMPLE_SECONDS: Final = 2.0
SAMPLES: Final = 300  # ten minutes, where something happens all the time

_encode = msgspec.json.Encoder().encode


class Board(Observer):
    """One scheduler's."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Anew, as if nothing had been."""
        self._counts: Counter[str] = Counter()
        self._waits_s: deque[float] = deque(maxlen=2_000)
        self._decided: deque[Decision] = deque(maxlen=DECISIONS)
        self._rows: dict[int, bytes] = {}
        self._is_new = True  # pages know of something else
        self._state: ClusterState | None = None
        self._positions = (0, 0)
        self._number = 0  # decisions so far
        self._told = 0
        self._samples: deque[dict[str, float]] = deque(maxlen=SAMPLES)
        self._sampled: tuple[float, Counter[str]] | None = None
        self._sampled_told = 0.0  # up to then, pages know

    # What it is told

    def on_decision(self, decision: Decision) -> None:
        """See Observer."""
        self._counts[decision.outcome.value] += 1
        self._number += 1
        self._decided.append(decision)

    def on_bind(self, decision: Decision, latency_s: float) -> None:
        """See Observer."""
        self._counts["bound"] += 1
        self._waits_s.append(decision.waited_ns / 1e9 + latency_s)

    def on_step(self, event: Event, duration_s: float) -> None:
        """See Observer."""
        self._counts["events"] += 1

    def sample(self, at_s: float, engine: Engine | None) -> None:
        """How fast it went since the last one, if that is long enough ago. `at_s`: since the
        epoch."""
        if self._sampled is not None and at_s < self._sampled[0] + SAMPLE_SECONDS:
            return
        if self._sampled is not None:
            then_s, counts = self._sampled
            seconds = at_s - then_s
            waits = sorted(self._waits_s)
            waiting = sum(engine.queue.counts().values()) if engine is not None else 0
            rates = {name: (n - counts[name]) / seconds for name, n in self._counts.items()}
            self._samples.append(
                {"at": at_s, "waiting": waiting, **rates, "p50": _part(waits, 0.5),
                 "p99": _part(waits, 0.99)}
            )  # fmt: skip
        self._sampled = at_s, self._counts.copy()

    # What it tells

    def look(self, source: Source) -> Iterator[bytes]:
        """Lines about what has changed since the last look, some rows at a time."""
        engine = source.engine
        if self._is_new:
            self._is_new = False
            yield _line(begin=True)
        if engine is None:
            self._state = None
            standing = {"leads": False, "ready": source.is_ready, **source.get_position()}
            yield _line(standing=standing)
            return
        known = self._rows
        yield from self._changed_rows(engine.state)
        if self._rows is known:  # otherwise it has begun anew meanwhile
            yield self._news(source, engine)

    def whole(self) -> Iterator[bytes]:
        """Lines about everything as of the last look, for a page that knows nothing."""
        yield _line(begin=True)
        rows = list(self._rows.items())
        for at in range(0, len(rows), ROWS_AT_ONCE):
            yield _rows(rows[at : at + ROWS_AT_ONCE])
        # What the next look tells all pages is not told twice.
        told = max(0, len(self._decided) - (self._number - self._told))
        yield _line(
            decisions=[_decision(one) for one in list(self._decided)[:told]],
            history=[one for one in self._samples if one["at"] <= self._sampled_told],
        )

    def _changed_rows(self, state: ClusterState) -> Iterator[bytes]:
        use, node = self._positions
        known = self._rows
        is_new = state is not self._state
        if is_new or state.usage_log.is_overrun(use) or state.node_log.is_overrun(node):
            changed = dict.fromkeys([*known, *state.present_rows()])
        else:
            changed = dict.fromkeys(
                [*state.usage_log.row_list(use), *state.node_log.row_list(node)]
            )
        positions = state.usage_log.position, state.node_log.position
        rows = list(changed)
        for at in range(0, len(rows), ROWS_AT_ONCE):
            some = []
            for row in rows[at : at + ROWS_AT_ONCE]:
                text = _row(state, row)
                if known.get(row, b"null") != text:
                    if text == b"null":
                        known.pop(row, None)
                    else:
                        known[row] = text
                    some.append((row, text))
            yield _rows(some) if some else b""
            if self._rows is not known:
                return  # it has begun anew meanwhile
        self._state, self._positions = state, positions

    def _news(self, source: Source, engine: Engine) -> bytes:
        waiting = engine.queue.pods()
        counts = engine.queue.counts()
        fresh = min(self._number - self._told, len(self._decided))
        self._told = self._number
        samples = [one for one in self._samples if one["at"] > self._sampled_told]
        self._sampled_told = self._samples[-1]["at"] if self._samples else 0.0
        return _line(
            standing={
                "leads": source.is_leader, "ready": source.is_ready,
                "profiles": sorted(engine.profiles), "plugins": _list_score_weights(engine),
                "nowNs": source.now_ns, **source.get_position(),
            },
            queue={place.name.lower().replace("_", " "): n for place, n in counts.items() if n},
            waiting=[
                {
                    "pod": one.pod.key, "priority": one.pod.priority, "attempts": one.attempts,
                    "place": (one.tree or one).place.name.lower().replace("_", " "),
                    "refusedBy": sorted(one.refused_by) or _groups_refusal(one),
                    "seconds": round((source.now_ns - one.first_added_ns) / 1e9, 1),
                }
                for one in waiting[:WAITING_MAX]
            ],
            more=max(0, len(waiting) - WAITING_MAX),
            decisions=[_decision(one) for one in list(self._decided)[len(self._decided) - fresh :]],
            history=samples,
            counts={**self._counts, "inFlight": source.in_flight},
        )  # fmt: skip


def _groups_refusal(one: QueuedPod) -> list[str]:
    """Its group as a whole has been tried, and no pod of it was looked at alone."""
    return ["pod group"] if one.tree is not None and one.tree.attempts else []


def _part(ordered: list[float], part: float) -> float:
    return ordered[int(len(ordered) * part)] if ordered else 0.0


def _list_score_weights(engine: Engine) -> dict[str, int]:
    """Plugins that score, with their weights; of all profiles, the first that has one."""
    found: dict[str, int] = {}
    for profile in engine.profiles.values():
        for plugin, weight in profile.scores:
            found.setdefault(plugin.name, weight)
    return found


def _line(**fields: Any) -> bytes:
    return _encode(fields)


def _rows(rows: list[tuple[int, bytes]]) -> bytes:
    return b'{"rows":{' + b",".join(b'"%d":%s' % row for row in rows) + b"}}"


def _row(state: ClusterState, row: int) -> bytes:
    """A node: its place, what it has, what of it is taken, and its pods; null where it is gone."""
    node = state.nodes[row] if row < len(state.nodes) else None
    if node is None:
        return b"null"
    labels = node.metadata.labels or {}
    columns = {column.name: column for column in state.columns.values()}
    amounts = {}
    for name, resource, by in AMOUNTS:
        if (column := columns.get(resource)) is not None:
            amounts[name] = [
                int(column.requested_cells[row]) // by,
                int(column.allocatable_cells[row]) // by,
            ]
    users = _users(state)
    amounts.setdefault("pods", [len(state.pods_by_row[row]), 0])
    devices = {
        column.name: [int(column.requested_cells[row]), int(column.allocatable_cells[row])]
        for column in columns.values()
        if "/" in column.name and column.allocatable_cells[row]
    }
    return _encode(
        {
            "name": node.metadata.name,
            "zone": labels.get(ZONE, ""),
            "rack": next((labels[key] for key in RACKS if key in labels), ""),
            "off": node.spec.unschedulable
            or any(taint.effect == "NoExecute" for taint in node.spec.taints or ()),
            "amounts": amounts | devices,
            "pods": sorted(
                [entry.pod.key, kind_of(entry.pod, users), *_get_requests(entry), entry.is_assumed]
                for entry in state.pods_by_row[row].values()
            ),
        }
    )  # fmt: skip


def _get_requests(entry: PodEntry) -> tuple[int, int]:
    """CPU in milli, memory in MiB; of a VM what it has, as its pod asks for next to nothing."""
    if vm_owner(entry.pod) is not None:
        with contextlib.suppress(BadPod, BadAmount):
            use = resources_in_use(entry.pod)
            return use.cpu, use.memory // MIB
    asked = {column.name: amount for column, amount in entry.shape.requests}
    return int(asked.get("cpu", 0)), int(asked.get("memory", 0)) // MIB


def _users(state: ClusterState) -> list[Container[str]]:
    """Of warm pools, by uid."""
    warm = find_warm_controller(state)
    return [pool.users for pool in warm.pools.values()] if warm is not None else []


def kind_of(pod: Pod, users: Iterable[Container[str]]) -> str:
    """How a pod is drawn."""
    if any(pod.metadata.uid in some for some in users):
        return "user"
    if vm_owner(pod) is not None:
        return "vm"
    if pod.group_name:
        return "gang"
    if pod.priority < 0:
        return "placeholder"
    return "devices" if pod.spec.resource_claims else "pod"


def _decision(one: Decision) -> dict[str, Any]:
    return {
        "pod": f"{one.namespace}/{one.name}", "outcome": one.outcome.value, "node": one.node_name,
        "message": one.message, "attempts": one.attempts, "atNs": one.at_ns,
        "victims": len(one.victims),
    }  # fmt: skip
