"""Extenders: others that are asked which nodes will do, and how well, before a pod is placed.

A question is a write and its answer an event, so that the engine stays pure; while one is open no
other pod is tried, as upstream has it. What was decided meanwhile by events counts: the node is
chosen among those that fit when the last answer is there.

Source: kube-scheduler extender.go, schedule_one.go (findNodesThatPassExtenders, prioritizeNodes),
framework/preemption callExtenders.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from stower.engine.extenders.responses import (
    BindingResult,
    FilterResult,
    HostPriority,
    PreemptionResult,
    Unreadable,
    read,
)
from stower.engine.queue.entities import QueuedPod
from stower.framework.events import ExtenderAnswered
from stower.framework.extenders import Extender
from stower.framework.reasons import Rejection
from stower.framework.writes import CallExtender, Write
from stower.model.kinds import Pod
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState, PodEntry

# Highest score of an extender for a node; it counts ten times as much as it says.
SCORE_SCALE: Final = 10
SCORE_MAX: Final = 2**31
# However many say however much: with the scores of plugins it is still a number of 64 bits.
POINTS_MAX: Final = 2**59


class Opinion(NamedTuple):
    """What all extenders make of the nodes: those left, points, and why others were refused."""

    names: frozenset[str]
    points: dict[str, int]
    refused: dict[str, Rejection]


Victims = dict[str, tuple[list[PodEntry], int]]  # by node: who leaves, budgets broken


class _Talk:
    """What goes on about one pod."""

    def __init__(self, queued: QueuedPod, names: list[str]) -> None:
        self.queued = queued
        self.names = names
        self.refused: dict[str, Rejection] = {}
        self.points: dict[str, int] = {}
        self.victims: Victims = {}
        self.todo: list[int] = []  # extenders still to be asked, one after another
        self.open: dict[int, tuple[int, str]] = {}  # questions: extender and verb


class Extending:
    """One talk at a time."""

    def __init__(
        self,
        extenders: tuple[Extender, ...],
        state: ClusterState,
        write: Callable[[Write], None],
        next_id: Callable[[], int],
    ) -> None:
        self.extenders = extenders
        self._state = state
        self._write = write
        self._next_id = next_id
        self._talk: _Talk | None = None
        self._judged: Callable[[QueuedPod, Opinion | str], None] = _nobody
        self._spared: Callable[[QueuedPod, Victims | str], None] = _nobody

    @property
    def is_busy(self) -> bool:
        """Whether an answer is awaited."""
        return self._talk is not None

    def interested(self, pod: Pod, verb: str) -> list[int]:
        """The extenders whose business the pod is, and that have this verb: ignorable ones last."""
        found = [
            i
            for i, extender in enumerate(self.extenders)
            if getattr(extender, f"{verb}_verb") and _is_concerned(extender, pod)
        ]
        return sorted(found, key=lambda i: self.extenders[i].ignorable)

    def judge(
        self,
        queued: QueuedPod,
        names: list[str],
        judged: Callable[[QueuedPod, Opinion | str], None],
    ) -> None:
        """Ask about these nodes; `judged` gets the opinion, or what went wrong."""
        pod = queued.entry.pod
        talk = self._talk = _Talk(queued, names)
        self._judged = judged
        talk.todo = self.interested(pod, "filter")
        self._ask_next(talk, "filter")

    def spare(
        self,
        queued: QueuedPod,
        victims: Victims,
        spared: Callable[[QueuedPod, Victims | str], None],
    ) -> None:
        """Ask who of these may be evicted; `spared` gets what is left, or what went wrong."""
        talk = self._talk = _Talk(queued, [])
        talk.victims = victims
        self._spared = spared
        talk.todo = self.interested(queued.entry.pod, "preempt")
        self._ask_next(talk, "preempt")

    def binder(self, pod: Pod) -> int:
        """The extender that binds the pod, -1 for none."""
        return next(iter(self.interested(pod, "bind")), -1)

    def answered(self, event: ExtenderAnswered) -> bool:
        """An answer came. Whether it was awaited."""
        talk = self._talk
        if talk is None or event.id not in talk.open:
            return False
        i, verb = talk.open.pop(event.id)
        error = event.error
        if not error:
            try:
                error = self._take(talk, i, verb, event.body)
            except Unreadable as odd:
                error = str(odd)
        if error and verb != "prioritize" and not self.extenders[i].ignorable:
            self._end(talk, verb, f'extender "{self.extenders[i].url_prefix}": {error}')
        elif verb == "prioritize":
            if not talk.open:
                self._end(talk, verb, "")
        else:
            self._ask_next(talk, verb)
        return True

    # Questions

    def _ask_next(self, talk: _Talk, verb: str) -> None:
        anything_left = talk.names if verb == "filter" else talk.victims
        if talk.todo and anything_left:
            self._ask(talk, talk.todo.pop(0), verb)
            return
        others = self.interested(talk.queued.entry.pod, "prioritize")
        if verb == "filter" and talk.names and others:
            for i in others:
                self._ask(talk, i, "prioritize")
            return
        self._end(talk, verb, "")

    def _ask(self, talk: _Talk, i: int, verb: str) -> None:
        meta, id = talk.queued.entry.pod.metadata, self._next_id()
        talk.open[id] = (i, verb)
        victims = {
            name: ([entry.uid for entry in entries], violations)
            for name, (entries, violations) in talk.victims.items()
        }
        self._write(
            CallExtender(
                id, i, verb, meta.namespace, meta.name, meta.uid, tuple(talk.names), victims
            )
        )

    def _end(self, talk: _Talk, verb: str, error: str) -> None:
        self._talk = None
        if verb == "preempt":
            self._spared(talk.queued, error or talk.victims)
        else:
            opinion = Opinion(frozenset(talk.names), talk.points, talk.refused)
            self._judged(talk.queued, error or opinion)

    # Answers

    def _take(self, talk: _Talk, i: int, verb: str, body: bytes) -> str:
        if verb == "prioritize":
            self._take_points(talk, self.extenders[i].weight, read(body, tuple[HostPriority, ...]))
            return ""
        if verb == "preempt":
            return self._take_victims(talk, i, read(body, PreemptionResult))
        return self._take_nodes(talk, i, read(body, FilterResult))

    def _take_nodes(self, talk: _Talk, i: int, answer: FilterResult) -> str:
        if answer.error:
            return answer.error
        known, names = set(talk.names), answer.names(self.extenders[i].node_cache_capable)
        for name in names:
            if name not in known:
                return f'claims a filtered node "{name}" which is not found in the input node list'
        for failed, resolvable in (
            (answer.failednodes, True), (answer.failedandunresolvablenodes, False)
        ):  # fmt: skip
            for name, why in (failed or {}).items():
                talk.refused[name] = Rejection((why or "",), resolvable)
        kept = set(names)
        talk.names = [name for name in talk.names if name in kept]
        return ""

    def _take_points(self, talk: _Talk, weight: int, answer: tuple[HostPriority, ...]) -> None:
        for host, score in ((entry.host, entry.score) for entry in answer):
            points = max(-SCORE_MAX, min(score, SCORE_MAX)) * weight * SCORE_SCALE
            talk.points[host] = talk.points.get(host, 0) + points

    def _take_victims(self, talk: _Talk, i: int, answer: PreemptionResult) -> str:
        if answer.error:
            return answer.error
        left: Victims = {}
        for name, victims in (answer.nodenametometavictims or {}).items():
            row = self._state.row_of(name)
            there = self._state.on_row[row] if row >= 0 else {}
            entries = []
            for pod in victims.pods or ():
                entry = there.get(pod.uid)
                if entry is None:
                    return f"claims to preempt a pod that is not found on node {name}"
                entries.append(entry)
            if entries:
                left[name] = (entries, victims.numpdbviolations or 0)
            elif not self.extenders[i].ignorable:
                return f'expected at least one victim pod on node "{name}"'
        talk.victims = left
        return ""


def bind_error(body: bytes) -> str:
    """What an extender that binds has to complain about, or ""."""
    try:
        return read(body or b"{}", BindingResult).error or ""
    except Unreadable as odd:
        return str(odd)


def points_of(opinion: Opinion, state: ClusterState) -> Ints:
    """int64[row_limit]: the points of each row."""
    points = np.zeros(state.row_limit, np.int64)
    for name, score in opinion.points.items():
        row = state.row_of(name)
        if row >= 0:
            points[row] = max(-POINTS_MAX, min(score, POINTS_MAX))
    return points


def _nobody(queued: QueuedPod, answer: object) -> None:
    """Nobody has asked yet."""


def _is_concerned(extender: Extender, pod: Pod) -> bool:
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
