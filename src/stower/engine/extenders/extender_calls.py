"""Calls extenders about one pod at a time, and collects their responses.

A call is a write and its response an event, so that the engine stays pure. While a response is
awaited no other pod is tried, as in upstream; events that come meanwhile count: the node is chosen
among those that are feasible when the last response is there. Must not know HTTP.

Source: kube-scheduler extender.go, schedule_one.go (findNodesThatPassExtenders, prioritizeNodes),
framework/preemption callExtenders.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from stower.engine.context import Context
from stower.engine.extenders.responses import (
    FilterResult,
    HostPriority,
    PreemptionResult,
    UnreadableResponse,
    read_response,
)
from stower.engine.outbox import Answer
from stower.engine.queue.entities import QueuedPod
from stower.framework.extenders import Extender
from stower.framework.reasons import Rejection
from stower.framework.writes import CallExtender
from stower.model.kinds import Pod
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry

# Highest score of an extender for a node; it counts ten times.
SCORE_SCALE: Final = 10
SCORE_MAX: Final = 2**31
# Bounds the sum of all extenders: with the scores of plugins it still fits into 64 bits.
POINTS_MAX: Final = 2**59


class NodeResult(NamedTuple):
    """The combined answers of all extenders: names of the remaining nodes, points by name,
    rejections by name."""

    names: frozenset[str]
    points: dict[str, int]
    refused: dict[str, Rejection]


Victims = dict[str, tuple[list[PodEntry], int]]  # by node: victims, budgets violated


class _Query:
    """The calls about one pod."""

    def __init__(self, queued: QueuedPod, names: list[str]) -> None:
        self.queued = queued
        self.names = names
        self.refused: dict[str, Rejection] = {}
        self.points: dict[str, int] = {}
        self.victims: Victims = {}
        self.todo: list[int] = []  # extenders still to be called, one after another
        self.open: dict[int, tuple[int, str]] = {}  # by id of a call: extender and verb


class ExtenderCalls:
    """The extenders of a configuration, and the query that is under way."""

    def __init__(self, context: Context, extenders: tuple[Extender, ...]) -> None:
        self.extenders = extenders
        self._state = context.state
        self._outbox = context.outbox
        self._query: _Query | None = None
        self._apply_nodes: Callable[[QueuedPod, NodeResult | str], None] = _ignore
        self._apply_victims: Callable[[QueuedPod, Victims | str], None] = _ignore

    @property
    def is_busy(self) -> bool:
        """Whether a response is awaited."""
        return self._query is not None

    def reset(self) -> None:
        """Gives up the query that is under way: its responses are ignored."""
        self._query = None

    def select_interested(self, pod: Pod, verb: str) -> list[int]:
        """Returns the extenders that have the verb and are interested in the pod; ignorable ones
        last."""
        found = [
            i
            for i, extender in enumerate(self.extenders)
            if getattr(extender, f"{verb}_verb") and _is_interested(extender, pod)
        ]
        return sorted(found, key=lambda i: self.extenders[i].ignorable)

    def ask_nodes(
        self,
        queued: QueuedPod,
        names: list[str],
        apply: Callable[[QueuedPod, NodeResult | str], None],
    ) -> None:
        """Calls the extenders for these nodes; `apply` gets the result, or the text of an error."""
        pod = queued.entry.pod
        query = self._query = _Query(queued, names)
        self._apply_nodes = apply
        query.todo = self.select_interested(pod, "filter")
        self._call_next(query, "filter")

    def ask_victims(
        self,
        queued: QueuedPod,
        victims: Victims,
        apply: Callable[[QueuedPod, Victims | str], None],
    ) -> None:
        """Calls the extenders for the victims that may be evicted; `apply` gets these victims, or
        the text of an error."""
        query = self._query = _Query(queued, [])
        query.victims = victims
        self._apply_victims = apply
        query.todo = self.select_interested(queued.entry.pod, "preempt")
        self._call_next(query, "preempt")

    def binder(self, pod: Pod) -> int:
        """Returns the extender that binds the pod, -1 for none."""
        return next(iter(self.select_interested(pod, "bind")), -1)

    def handle_answer(self, answer: Answer) -> None:
        """Takes the response to a call."""
        query = self._query
        if query is None or answer.id not in query.open:
            return  # the query has failed since
        i, verb = query.open.pop(answer.id)
        error = answer.error
        if not error:
            try:
                error = self._take(query, i, verb, answer.body or b"")
            except UnreadableResponse as unreadable:
                error = str(unreadable)
        if error and verb != "prioritize" and not self.extenders[i].ignorable:
            self._finish(query, verb, f'extender "{self.extenders[i].url_prefix}": {error}')
        elif verb == "prioritize":
            if not query.open:
                self._finish(query, verb, "")
        else:
            self._call_next(query, verb)

    # Calls

    def _call_next(self, query: _Query, verb: str) -> None:
        is_any_left = query.names if verb == "filter" else query.victims
        if query.todo and is_any_left:
            self._call(query, query.todo.pop(0), verb)
            return
        others = self.select_interested(query.queued.entry.pod, "prioritize")
        if verb == "filter" and query.names and others:
            for i in others:
                self._call(query, i, "prioritize")
            return
        self._finish(query, verb, "")

    def _call(self, query: _Query, i: int, verb: str) -> None:
        meta, id = query.queued.entry.pod.metadata, self._outbox.next_id()
        query.open[id] = (i, verb)
        victims = {
            name: ([entry.uid for entry in entries], violations)
            for name, (entries, violations) in query.victims.items()
        }
        write = CallExtender(
            id, i, verb, meta.namespace, meta.name, meta.uid, tuple(query.names), victims
        )
        self._outbox.send(write, self)

    def _finish(self, query: _Query, verb: str, error: str) -> None:
        self._query = None
        if verb == "preempt":
            self._apply_victims(query.queued, error or query.victims)
        else:
            result = NodeResult(frozenset(query.names), query.points, query.refused)
            self._apply_nodes(query.queued, error or result)

    # Responses

    def _take(self, query: _Query, i: int, verb: str, body: bytes) -> str:
        if verb == "prioritize":
            self._take_points(
                query, self.extenders[i].weight, read_response(body, tuple[HostPriority, ...])
            )
            return ""
        if verb == "preempt":
            return self._take_victims(query, i, read_response(body, PreemptionResult))
        return self._take_nodes(query, i, read_response(body, FilterResult))

    def _take_nodes(self, query: _Query, i: int, answer: FilterResult) -> str:
        if answer.error:
            return answer.error
        known, names = set(query.names), answer.names(self.extenders[i].node_cache_capable)
        for name in names:
            if name not in known:
                return f'claims a filtered node "{name}" which is not found in the input node list'
        for failed, resolvable in (
            (answer.failednodes, True), (answer.failedandunresolvablenodes, False)
        ):  # fmt: skip
            for name, why in (failed or {}).items():
                query.refused[name] = Rejection((why or "",), resolvable)
        kept = set(names)
        query.names = [name for name in query.names if name in kept]
        return ""

    def _take_points(self, query: _Query, weight: int, answer: tuple[HostPriority, ...]) -> None:
        for host, score in ((entry.host, entry.score) for entry in answer):
            points = max(-SCORE_MAX, min(score, SCORE_MAX)) * weight * SCORE_SCALE
            query.points[host] = query.points.get(host, 0) + points

    def _take_victims(self, query: _Query, i: int, answer: PreemptionResult) -> str:
        if answer.error:
            return answer.error
        left: Victims = {}
        for name, victims in (answer.nodenametometavictims or {}).items():
            row = self._state.row_of(name)
            there = self._state.pods_by_row[row] if row >= 0 else {}
            entries = []
            for pod in victims.pods or ():
                entry = there.get(pod.uid)
                if entry is None:
                    return (
                        f"claims to preempt pod (UID: {pod.uid}) on node: {name}, "
                        "but the pod is not found on that node"
                    )
                entries.append(entry)
            if entries:
                left[name] = (entries, victims.numpdbviolations or 0)
            elif not self.extenders[i].ignorable:
                return f'expected at least one victim pod on node "{name}"'
        query.victims = left
        return ""


def points_of(result: NodeResult, state: ClusterState) -> Ints:
    """Returns int64[row_limit]: the points of each row."""
    points = np.zeros(state.row_limit, np.int64)
    for name, score in result.points.items():
        row = state.row_of(name)
        if row >= 0:
            points[row] = max(-POINTS_MAX, min(score, POINTS_MAX))
    return points


def _ignore(queued: QueuedPod, result: object) -> None:
    """Takes the result of no query."""


def _is_interested(extender: Extender, pod: Pod) -> bool:
    managed = {resource.name for resource in extender.managed_resources}
    if not managed:
        return True
    for container in (*pod.spec.containers, *(pod.spec.init_containers or ())):
        resources = container.resources
        if resources is not None:
            names = {*(resources.requests or ()), *(resources.limits or ())}
            if not managed.isdisjoint(names):
                return True
    return False
