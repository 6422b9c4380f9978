"""The binding cycle of a pod that has a node: PreBind, Permit, Bind, and what a failure undoes.

A Bind write of unknown outcome keeps the pod's room and is sent again. Must not know how the node
was chosen.

Source: kube-scheduler schedule_one.go bindingCycle, handleBindingCycleError.
"""

from collections.abc import Iterator
from functools import partial
from heapq import heappop, heappush
from typing import Final, Protocol

from stower.engine.binding.overcommitted_claims import OvercommittedClaims
from stower.engine.binding.permit import Permit
from stower.engine.binding.pre_bind import Parts, PreBind
from stower.engine.context import Context
from stower.engine.cycle.failure_handler import FailureHandler
from stower.engine.due_work import DueWork
from stower.engine.extenders.responses import bind_error
from stower.engine.outbox import Answer
from stower.engine.queue.entities import QueuedPod
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.engine.status_reporter import SCHEDULER_ERROR
from stower.framework.decisions import Outcome
from stower.framework.retries import CONFLICT, UNKNOWN
from stower.framework.writes import Bind, CallExtender, Write
from stower.model.kinds import Pod
from stower.state.pod_entry import PodEntry

EVICTED: Final = "the pod is being evicted"


class Binders(Protocol):
    """Extenders that bind pods; attached where the configuration has any."""

    def binder(self, pod: Pod) -> int:
        """Returns the extender that binds the pod, -1 for none."""

    def binder_is_ignorable(self, pod: Pod) -> bool:
        """Returns whether the pod is bound as usual where that extender fails."""


class EvictionTracker(Protocol):
    """Knows which pods are being evicted."""

    def is_evicting(self, entry: PodEntry) -> bool:
        """Returns whether the pod is being evicted, until the watch shows its deletion."""


class BindingCycle:
    """The binding cycles of all pods."""

    def __init__(self, context: Context, queue: SchedulingQueue, failures: FailureHandler) -> None:
        self._context = context
        self._state = context.state
        self._queue = queue
        self._reporter = context.reporter
        self._failures = failures
        self.permit = Permit()
        self.pre_bind = PreBind(context, self)
        self.overcommitted = OvercommittedClaims(context, queue)
        context.reporter.pod_writes = self
        self.binders: Binders | None = None
        self.evictions: EvictionTracker | None = None
        self._binding: dict[int, tuple[QueuedPod, str]] = {}  # unanswered Binds, with their node
        self.retries: list[tuple[int, int, QueuedPod, str]] = []  # Binds to send again: due, order
        # Assumed pods whose Bind has an unknown outcome: until when their room is kept.
        self.assumed_deadlines: dict[str, int] = {}

    @property
    def is_open(self) -> bool:
        """Whether the outcome of some Bind is not known, or a write of PreBind is not answered."""
        return (
            bool(self._binding or self.retries or self.assumed_deadlines)
            or bool(self.overcommitted.open)
            or self.pre_bind.is_writing
        )

    def due_times(self) -> list[int]:
        """Returns the times when something is due without any event."""
        due = [due_ns for due_ns, _, _, _ in self.retries[:1]] + [*self.assumed_deadlines.values()][
            :1
        ]
        wakes_ns = (self.pre_bind.next_wake_ns, self.overcommitted.next_wake_ns)
        return [*due, *(ns for ns in wakes_ns if ns is not None)]

    def due_work(self) -> Iterator[DueWork]:
        """Sends Binds again, expires assumed pods and reservations, and gives claims back."""
        if self.retries:
            yield from self._due_retries()
        if self.assumed_deadlines:
            yield from self._due_expirations()
        if self.pre_bind.waiting:
            yield from self.pre_bind.due_work(self._state.now_ns)
        if self.overcommitted.open:
            yield from self.overcommitted.due_work()

    def on_pod_change(self, uid: str) -> None:
        """Goes on with a pod whose status patch was answered."""
        self.pre_bind.on_pod_change(uid)
        entry = self._state.pods.get(uid) if self.overcommitted.open else None
        if entry is not None:
            self.overcommitted.on_pod(entry.pod)

    # From PreBind to Bind

    def start(
        self, queued: QueuedPod, node_name: str, parts: Parts, has_reported_node: bool
    ) -> None:
        """Starts PreBind of an assumed pod, and writes its node as nominatedNodeName (KEP-5278),
        unless that was written and is not seen yet."""
        if queued.entry.pod.status.nominated_node_name != node_name:
            if not has_reported_node:
                self._reporter.nominate(queued.entry, node_name)
            queued.has_open_nomination = True
        events = self.pre_bind.begin(queued, node_name, parts, self._state.now_ns)
        for reason, note in events:
            self._reporter.event(queued.entry.pod, "Normal", reason, "Scheduling", note)

    def on_pre_bind(self, queued: QueuedPod, node_name: str) -> None:
        """Goes on with a pod whose PreBind is over; one that is being evicted gives up its node."""
        if self.evictions is not None and self.evictions.is_evicting(queued.entry):
            self.fail(queued, EVICTED)
        else:
            self.finish(queued, node_name)

    def finish(self, queued: QueuedPod, node_name: str) -> None:
        """Binds the pod, together with its group where it has one, as soon as all can be bound."""
        if queued.uid not in self.permit.groups:
            self.bind(queued, node_name)
            return
        for ready, name in self.permit.allow(queued, node_name):
            if self.evictions is not None and self.evictions.is_evicting(ready.entry):
                self.fail(ready, EVICTED)
            else:
                self.bind(ready, name)

    def bind(self, queued: QueuedPod, node_name: str, by_extender: bool = True) -> None:
        """Sends the Bind write; `by_extender`: has the extender that binds the pod do it."""
        pod, outbox = queued.entry.pod, self._context.outbox
        meta = pod.metadata
        id = outbox.next_id()
        binder = -1
        if by_extender and self.binders is not None:
            binder = self.binders.binder(pod)
        write: Write
        if binder >= 0:
            names = (meta.namespace, meta.name, meta.uid)
            write = CallExtender(id, binder, "bind", *names, (node_name,))
        else:
            version = self.pre_bind.bind_version(meta.uid) if self.pre_bind.done else ""
            write = Bind(id, meta.namespace, meta.name, meta.uid, node_name, version)
        outbox.send(write, self)
        self._binding[id] = (queued, node_name)  # once it was sent: each of these is answered

    # Answers

    def handle_answer(self, answer: Answer) -> None:
        """Takes the answer to a Bind write, or of an extender that binds."""
        queued, node_name = self._binding.pop(answer.id)
        if answer.code:
            self._on_bind_failure(queued, node_name, answer)
            return
        error = answer.error or (bind_error(answer.body) if answer.body is not None else "")
        if error:
            self._on_extender_failure(queued, node_name, error)
        else:
            self._on_bind(queued, node_name)

    def _on_bind(self, queued: QueuedPod, node_name: str) -> None:
        # The pod is bound, even if it is deleted by now. The entry stays assumed until the watch
        # shows the binding.
        entry = queued.entry
        if entry.row >= 0 and self._queue.get(entry.uid) is queued:
            self._queue.remove(entry.uid)
        note = f"Successfully assigned {entry.pod.key} to {node_name}"
        self._reporter.event(entry.pod, "Normal", "Scheduled", "Binding", note)

    def _on_bind_failure(self, queued: QueuedPod, node_name: str, answer: Answer) -> None:
        if self._queue.get(queued.entry.uid) is not queued:
            return
        entry = queued.entry
        if not entry.is_assumed:
            return  # forgotten since: the pod waits in the queue again
        message = f'running Bind plugin "DefaultBinder": {answer.message}'
        if answer.code == UNKNOWN:
            queued.bind_tries += 1
            due_ns = self._state.now_ns + self._queue.delay_ns(queued.bind_tries)
            heappush(self.retries, (due_ns, answer.id, queued, node_name))
            if queued.bind_tries == self._context.limits.bind_tries_silent:
                self._reporter.decide(queued, Outcome.ERROR, message=message)
                self._reporter.report(queued, SCHEDULER_ERROR, message)
            return
        if answer.code == CONFLICT and queued.bind_tries:
            # An earlier try may have bound the pod: the watch will show its node or its deletion.
            # Until then the pod keeps its room.
            self.start_expiration(entry)
            return
        if answer.code == CONFLICT and self.pre_bind.renew(entry.uid):
            return
        self.fail(queued, message)

    def _on_extender_failure(self, queued: QueuedPod, node_name: str, error: str) -> None:
        if self._queue.get(queued.entry.uid) is not queued or not queued.entry.is_assumed:
            return
        if self.binders is not None and self.binders.binder_is_ignorable(queued.entry.pod):
            self.bind(queued, node_name, by_extender=False)
        else:
            self.fail(queued, error)

    # After an internal error

    def drop_unassumed(self) -> None:
        """Gives up what belongs to pods that are not assumed any more: they are deleted, have
        their node, or the attempt that had assumed them has failed."""
        pods = self._state.pods
        uids = [*self.pre_bind.waiting, *self.pre_bind.done, *self.permit.waiting_pods()]
        for uid in dict.fromkeys(uids):
            entry = pods.get(uid)
            if entry is None or not entry.is_assumed:
                self.pre_bind.drop(uid)
                self.reject_group(uid, "another pod of the same pod group cannot be bound")
        for uid in [*self.assumed_deadlines]:
            if uid not in pods or not pods[uid].is_assumed:
                del self.assumed_deadlines[uid]

    # Unknown outcomes

    def unfinished_uids(self) -> set[str]:
        """Returns the uids of assumed pods whose Bind is to be answered, sent, or sent again."""
        uids = {queued.entry.uid for queued, _ in self._binding.values()}
        uids |= {queued.entry.uid for _, _, queued, _ in self.retries}
        return uids | {*self.pre_bind.waiting, *self.permit.allowed_pods()}

    def start_expiration(self, entry: PodEntry) -> None:
        """Sets the deadline after which an assumed pod whose Bind may be lost is forgotten."""
        self.assumed_deadlines.setdefault(
            entry.uid, self._state.now_ns + self._context.limits.assumed_pod_ttl_ns
        )

    def _due_retries(self) -> Iterator[DueWork]:
        while self.retries and self.retries[0][0] <= self._state.now_ns:
            _, order, queued, node_name = heappop(self.retries)

            def postpone(
                due_ns: int, order: int = order, queued: QueuedPod = queued, name: str = node_name
            ) -> None:
                heappush(self.retries, (due_ns, order, queued, name))

            yield DueWork(queued.uid, partial(self._send_again, queued, node_name), postpone)

    def _send_again(self, queued: QueuedPod, node_name: str) -> None:
        entry = queued.entry
        if self._queue.get(entry.uid) is not queued or not entry.is_assumed:
            return
        if self.evictions is not None and self.evictions.is_evicting(entry):
            self.start_expiration(entry)  # the watch will show the deletion
        else:
            self.bind(queued, node_name)

    def _due_expirations(self) -> Iterator[DueWork]:
        while self.assumed_deadlines:
            uid, due_ns = next(iter(self.assumed_deadlines.items()))
            if due_ns > self._state.now_ns:
                return
            del self.assumed_deadlines[uid]
            postpone = partial(self._postpone_expiration, uid)
            yield DueWork(uid, partial(self._expire_assumed, uid), postpone)

    def _postpone_expiration(self, uid: str, due_ns: int) -> None:
        due = [*self.assumed_deadlines.items(), (uid, due_ns)]
        self.assumed_deadlines = dict(sorted(due, key=lambda item: item[1]))

    def _expire_assumed(self, uid: str) -> None:
        """Requeues a pod that no watch has shown on its node in time: else its room would stay
        taken for ever."""
        entry = self._state.pods.get(uid)
        if entry is not None and entry.is_assumed and uid not in self.unfinished_uids():
            self._expire(entry)

    def _expire(self, entry: PodEntry) -> None:
        now_ns = self._state.now_ns
        self._state.forget(entry)
        self._queue.remove(entry.uid)
        self._queue.on_room_release(entry.pod, now_ns)
        profile = self._context.profiles[entry.pod.spec.scheduler_name]
        self._queue.enqueue(QueuedPod(entry, profile, now_ns))

    # Failures

    def fail(self, queued: QueuedPod, message: str) -> None:
        """Takes back the assumption of a pod that cannot be bound (Unreserve), retries it, and
        releases the other pods of its group."""
        entry = queued.entry
        self.assumed_deadlines.pop(entry.uid, None)
        self.pre_bind.undo(entry.uid)
        self._state.forget(entry)
        if self.overcommitted.open:
            self.overcommitted.on_pod(entry.pod)
        self._queue.on_room_release(entry.pod, self._state.now_ns)
        self._failures.fail(queued, message)
        self.reject_group(
            entry.uid, f"pod {entry.pod.key} of the same pod group cannot be bound: {message}"
        )

    def reject_group(self, uid: str, why: str) -> None:
        """Gives up the bindings of the other pods of the pod's group, where they wait for it."""
        for other in self.permit.reject(uid):
            self.cancel(other, why)

    def cancel(self, queued: QueuedPod, why: str) -> None:
        """Gives up the binding of an assumed pod that is not being bound yet."""
        if queued.uid in self.pre_bind:
            self.pre_bind.cancel(queued.uid, why)
        elif queued.entry.is_assumed:
            self.fail(queued, why)
