"""One scheduling attempt for a pod: runs the cycle and applies the result.

A pod is assumed and its binding cycle begins; or the pod waits until other components accept its
node; or it is refused, and preempts if that helps; or the attempt fails. Must not know watch
events.

Source: kube-scheduler schedule_one.go.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from stower.engine.attempt_errors import ATTEMPT_ERRORS
from stower.engine.binding.binding_cycle import BindingCycle
from stower.engine.binding.pending_writes import PendingWrites
from stower.engine.binding.pre_bind import Parts
from stower.engine.context import Context
from stower.engine.cycle.failure_handler import FailureHandler
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.outbox import UNTRACKED
from stower.engine.preemption.displacement import DisplacedPods, Displacement
from stower.engine.preemption.eviction_pauses import SPARES, begin_pause
from stower.engine.preemption.pod_eviction import PodEviction
from stower.engine.queue.entities import QueuedPod
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.engine.status_reporter import UNSCHEDULABLE
from stower.framework.cluster_events import Change
from stower.framework.decisions import Outcome
from stower.framework.negotiation import Wait
from stower.framework.plugin import Plugin
from stower.framework.post_filter import PostFilterResult
from stower.framework.reasons import Diagnosis, Rejection
from stower.model.kinds.pod import PREEMPT_NEVER
from stower.state.pod_entry import PodEntry

NO_BINDER: Final = "no Bind plugin binds the pod"


class Extenders(Protocol):
    """Extenders that choose among nodes and victims; attached where there are any."""

    def ask_nodes(self, queued: QueuedPod) -> bool:
        """Calls extenders for the feasible nodes. Returns False if no extender is interested."""

    def ask_victims(self, queued: QueuedPod, diagnosis: Diagnosis) -> bool:
        """Calls extenders to accept or reduce the victims. Returns False if no extender is
        interested."""


class PodAttempts:
    """Runs attempts for pods that are scheduled alone, and applies results for all pods."""

    def __init__(
        self,
        context: Context,
        queue: SchedulingQueue,
        cycle: SchedulingCycle,
        failures: FailureHandler,
        binding: BindingCycle,
        eviction: PodEviction,
        pending: PendingWrites,
    ) -> None:
        self.state = context.state
        self._context = context
        self._outbox = context.outbox
        self._reporter = context.reporter
        self._queue = queue
        self._cycle = cycle
        self._failures = failures
        self._binding = binding
        self._eviction = eviction
        self._pending = pending
        self.displacement = Displacement(context.state, cycle)
        self.extenders: Extenders | None = None

    def run(self, queued: QueuedPod) -> None:
        """Tries to place a pod."""
        if queued.entry.pod.metadata.deletion_timestamp is not None:
            self.skip_deleted(queued)
            return
        if queued.uid in self._pending.pods:
            self._pending.retry_when_seen(queued.uid)
            self._queue.wait(queued, queued.refused_by, self.state.now_ns, None)
            return
        try:
            if self.extenders is not None:
                self._context.is_applying = True  # a call that has begun
                if self.extenders.ask_nodes(queued):
                    return
                self._context.is_applying = False
            displaced: Sequence[PodEntry] = ()
            if queued.profile.displacing_plugins:
                row, displaced = self.displacement.choose(queued.profile, queued.entry)
            else:
                row = self._cycle.choose(queued.profile, queued.entry)
            if row >= 0:
                self.assume(queued, row, displaced)
            else:
                self.refuse(queued)
        except ATTEMPT_ERRORS as error:  # only this pod's attempt fails
            self._failures.fail(queued, str(error))

    def skip_deleted(self, queued: QueuedPod) -> None:
        """Drops a pod that is being deleted from the queue."""
        pod = queued.entry.pod
        self._queue.remove(queued.entry.uid)
        note = f"skip schedule deleting pod: {pod.key}"
        self._reporter.event(pod, "Warning", "FailedScheduling", "Scheduling", note)

    def fail(self, queued: QueuedPod, message: str) -> None:
        """Ends an attempt in an error."""
        self._failures.fail(queued, message)

    # A node was found

    def assume(self, queued: QueuedPod, row: int, displaced: Sequence[PodEntry] = ()) -> None:
        """Assumes the pod on the row, unless others have to accept it first. `displaced`: pods to
        delete there."""
        profile, entry = queued.profile, queued.entry
        if profile.plugins_for(entry.shape).negotiating:
            found = self._cycle.negotiate(profile, entry, row)
            if found is not None:
                self._wait(queued, *found)
                return
        if not has_binder(queued):
            self.fail(queued, NO_BINDER)
            return
        scores = self._cycle.best_nodes() if self._cycle.keeps_details else ()
        self.place(queued, row, scores, displaced)

    def place(
        self,
        queued: QueuedPod,
        row: int,
        scores: tuple[tuple[str, int], ...] = (),
        displaced: Sequence[PodEntry] = (),
    ) -> None:
        """Counts the pod as placed (Reserve), and starts its binding cycle."""
        self._context.is_applying = True
        entry = queued.entry
        parts: Parts = []
        plugins = queued.profile.plugins_for(entry.shape).reserve
        if plugins or displaced:
            parts = self._reserve(queued, row, plugins, displaced)
        node_name = self.state.node_names[row]
        has_reported_node = entry.nominated_node_name == node_name and queued.condition is not None
        self.state.assume(entry, row)
        if entry.nominated_node_name:
            self.state.nominate(entry, "")
        queued.bind_tries = 0
        if self._queue.is_waiting:
            self._queue.on_pod_placement(entry.pod, self.state.now_ns)
        if parts:
            self._binding.start(queued, node_name, parts, has_reported_node)
        else:
            self._binding.finish(queued, node_name)
        self._reporter.decide(queued, Outcome.PLACED, node_name=node_name, scores=scores)
        if parts:
            self._binding.pre_bind.check_pod(entry.uid)

    def _reserve(
        self,
        queued: QueuedPod,
        row: int,
        plugins: Sequence[Plugin],
        displaced: Sequence[PodEntry],
    ) -> Parts:
        """Runs Reserve; returns the conditions that must hold before the binding, by plugin."""
        entry, parts = queued.entry, Parts()
        for other in displaced:
            note = f"Displaced by pod {entry.pod.key} on node {self.state.node_names[row]}"
            self._reporter.event(other.pod, "Normal", "Preempted", "Preempting", note)
        if displaced:
            parts.append((queued.profile.displacing_plugins[0], DisplacedPods(displaced)))
        for plugin in plugins:
            part = plugin.reserve(entry.pod, entry.shape, self.state, row)
            if part is not None:
                parts.append((plugin, part))
        return parts

    def _wait(self, queued: QueuedPod, plugin: Plugin, wait: Wait) -> None:
        """Keeps a pod waiting until other components have accepted its node."""
        self._context.is_applying = True
        self._queue.wait(queued, frozenset((plugin.name,)), self.state.now_ns, wait.retry_at_ns)
        self._pending.begin(queued.entry.uid, wait)
        self._reporter.decide(queued, Outcome.UNSCHEDULABLE, message=wait.message)
        nominated = queued.entry.nominated_node_name
        self._reporter.report_wait(queued, wait)
        self._wake_if_withdrawn(queued, nominated)

    def _wake_if_withdrawn(self, queued: QueuedPod, node_name: str) -> None:
        """Wakes other pods that may use the nominated room, where the nomination was taken back."""
        entry = queued.entry
        if node_name and entry.nominated_node_name != node_name:
            now_ns, priority = self.state.now_ns, entry.pod.priority
            self._queue.on_room_release(entry.pod, now_ns, priority, queued)

    # No node was found

    def refuse(self, queued: QueuedPod, extended: Mapping[str, Rejection] | None = None) -> None:
        """Refuses a pod that fits on no node. `extended`: nodes that only extenders refused."""
        diagnosis, post_filter_result = self._cycle.fail(
            queued.profile, queued.entry, extended, queued.victims
        )
        if queued.profile.negotiating_plugins and post_filter_result.victims:
            post_filter_result = self._spare(queued, post_filter_result)
        if not post_filter_result.victims and queued.profile.negotiating_plugins:
            found = self._cycle.negotiate(queued.profile, queued.entry, -1)
            if found is not None:
                self._refuse_and_wait(queued, diagnosis, post_filter_result, *found)
                return
        if post_filter_result.victims and self.extenders is not None:
            if self.extenders.ask_victims(queued, diagnosis):
                return
        self.apply_refusal(queued, diagnosis, post_filter_result)
        if post_filter_result.message == SPARES:
            self._queue.retry_at(queued, queued.spares_until_ns)
        elif post_filter_result.retry_at_ns is not None:
            self._queue.retry_at(queued, post_filter_result.retry_at_ns)

    def _spare(self, queued: QueuedPod, found: PostFilterResult) -> PostFilterResult:
        """Returns the result, without victims while the pod has to spare others; an eviction begins
        such a pause where drivers have been asked about the pod before."""
        if queued.spares_until_ns > self.state.now_ns:
            return msgspec.structs.replace(
                found, victims=(), nominated_node_name="", message=SPARES
            )
        begin_pause(self.state, queued, (queued.entry.pod,))
        return found

    def _refuse_and_wait(
        self,
        queued: QueuedPod,
        diagnosis: Diagnosis,
        post_filter_result: PostFilterResult,
        plugin: Plugin,
        wait: Wait,
    ) -> None:
        """Refuses a pod, with the message and the nominated node of a negotiation (`wait`), whose
        events wake it as well, whoever has refused the nodes."""
        waking = diagnosis.plugins | {plugin.name}
        diagnosis = msgspec.structs.replace(diagnosis, plugins=waking)
        message = wait.message if wait.message not in diagnosis.message() else ""
        spares = post_filter_result.message == SPARES
        post_filter_result = msgspec.structs.replace(
            post_filter_result,
            message=message if wait.message else post_filter_result.message,
            nominated_node_name=wait.nominated_node_name
            if post_filter_result.nominated_node_name is None
            else post_filter_result.nominated_node_name,
        )
        count = queued.unschedulable_count
        stage = wait.stage
        if stage is not None:  # who refused nodes is news
            stage = (stage[0], " ".join((stage[1], *sorted(diagnosis.plugins))))
        self.apply_refusal(queued, diagnosis, post_filter_result, stage)
        self._pending.begin(queued.entry.uid, wait)
        if wait.writes:
            queued.unschedulable_count = count  # something is being done about it
        retries = [] if wait.retry_at_ns is None else [wait.retry_at_ns]
        if spares:
            retries.append(queued.spares_until_ns)
        elif post_filter_result.retry_at_ns is not None:
            retries.append(post_filter_result.retry_at_ns)
        if retries:
            self._queue.retry_at(queued, min(retries))

    def apply_refusal(
        self,
        queued: QueuedPod,
        diagnosis: Diagnosis,
        post_filter_result: PostFilterResult,
        stage: tuple[int, str] | None = None,
    ) -> None:
        """Parks the pod, reports the diagnosis, and carries out the PostFilter result. `stage`: of
        the pod's negotiation."""
        self._context.is_applying = True
        message = diagnosis.message(post_filter_result.message)
        nominated = queued.entry.nominated_node_name
        self._queue.park(queued, self._refusing_plugins(queued, diagnosis), self.state.now_ns)
        self._reporter.decide(
            queued, Outcome.UNSCHEDULABLE, "", message, diagnosis, (), post_filter_result
        )
        self._reporter.report(
            queued, UNSCHEDULABLE, message, post_filter_result.nominated_node_name, stage
        )
        self._wake_if_withdrawn(queued, nominated)
        for patch in post_filter_result.patches:
            id = self._outbox.next_id()
            self._outbox.send(msgspec.structs.replace(patch, id=id), UNTRACKED)
        if post_filter_result.victims and post_filter_result.nominated_node_name:
            self._eviction.withdraw_nominations(
                post_filter_result.nominated_node_name, queued.entry.pod.priority
            )
            self._eviction.evict(
                queued, post_filter_result.nominated_node_name, post_filter_result.victims
            )
        if not queued.is_preempting:
            self._queue.finish_preemption(queued, False, self.state.now_ns)

    def _refusing_plugins(self, queued: QueuedPod, diagnosis: Diagnosis) -> frozenset[str]:
        """Returns the plugins whose hints wake the pod: those that refused it, and where it lacks
        room that others hold, those that say whom it displaces. Sets those that may refuse it once
        others are evicted."""
        profile, pod, shape = queued.profile, queued.entry.pod, queued.entry.shape
        queued.may_refuse_then = frozenset()
        known = (profile.plugins.get(name) for name in diagnosis.plugins)
        room = Change.PLACED_POD_DELETED
        if not any(plugin is not None and room in plugin.changes_of_one_row for plugin in known):
            return diagnosis.plugins
        may_evict = pod.priority > self.state.pod_table.lowest_priority
        if may_evict and pod.spec.preemption_policy != PREEMPT_NEVER:
            queued.may_refuse_then = frozenset(
                p.name
                for p in profile.filters
                if p.events_to_register & room
                and p.is_relevant(shape)
                and p.is_relevant_to_pod(pod, self.state)
            )
        return diagnosis.plugins.union(
            p.name for p in profile.displacing_plugins if p.has_scores(pod, self.state)
        )


def has_binder(queued: QueuedPod) -> bool:
    """Returns whether some Bind plugin binds the pod."""
    pod = queued.entry.pod
    for plugin in queued.profile.binders:  # noqa: SIM110 a generator costs two more calls
        if plugin.bind(pod):
            return True
    return False
