"""What becomes of an attempt for a pod: assumed, settled with others, refused, failed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from stower.engine.binding.pending_writes import Settling
from stower.engine.binding.permit import Together
from stower.engine.binding.pre_bind import PreBinding
from stower.engine.cycle.scheduling_cycle import Cycle
from stower.engine.groups.group_status import GroupTelling
from stower.engine.groups.tree_queue import Trees
from stower.engine.preemption.displacement import Clearing
from stower.engine.preemption.pod_eviction import Evictions, told, why_told
from stower.engine.queue.entities import Queued, QueuedPod
from stower.engine.queue.scheduling_queue import Queue
from stower.engine.status_reporter import Telling
from stower.framework.decisions import Outcome
from stower.framework.negotiation import Wait
from stower.framework.plugin import Plugin
from stower.framework.post_filter import Remedy
from stower.framework.reasons import Diagnosis, Rejection
from stower.framework.reservation import Reservation
from stower.framework.writes import Write
from stower.groups.units import leaving
from stower.model.kinds import Pod
from stower.state.cluster import ClusterState, PodEntry

NO_BINDER: Final = "no Bind plugin binds the pod"


class Wakes(Protocol):
    """Who tells pods that wait of what has happened."""

    def came(self, pod: Pod) -> None:
        """A pod holds room that did not before."""

    def freed(self, pod: Pod, priority_max: int | None = None) -> None:
        """Room was given back, or (with a bound) a promise."""


class Sparing(Protocol):
    """Extenders that may save victims."""

    def asks_whom_to_spare(self, queued: QueuedPod, diagnosis: Diagnosis) -> bool:
        """Whether they are asked, and what comes of the attempt is known later."""


class Outcomes:
    """Of all attempts of an engine."""

    extended: Sparing

    def __init__(
        self,
        state: ClusterState,
        queue: Queue,
        trees: Trees,
        cycle: Cycle,
        tell: Telling,
        settling: Settling,
        pre_binding: PreBinding,
        together: Together,
        evictions: Evictions,
        tell_groups: GroupTelling,
        wakes: Wakes,
        send: Callable[[Write], None],
        next_id: Callable[[], int],
    ) -> None:
        self.state = state
        self._queue = queue
        self._trees = trees
        self._cycle = cycle
        self._tell = tell
        self._settling = settling
        self._pre_binding = pre_binding
        self._together = together
        self._evictions = evictions
        self._tell_groups = tell_groups
        self._wakes = wakes
        self._send = send
        self._next_id = next_id

    def fail(self, queued: QueuedPod, message: str) -> None:
        """An attempt came to nothing by no fault of the pod's: it is tried again after a delay."""
        if self._trees.takes(queued.pod):
            self._trees.failed(queued, self.state.now_ns)
        else:
            self._queue.retry(queued, self.state.now_ns)
        self._tell.decide(queued, Outcome.ERROR, message=message)
        self._tell.report(queued, "SchedulerError", message)

    def assume(self, queued: QueuedPod, row: int, leaving: Sequence[PodEntry] = ()) -> None:
        """The pod has its node, unless others have to agree first. `leaving`: who gives way."""
        entry = queued.entry
        if queued.profile.settlers and (found := self._cycle.settle(queued.profile, entry, row)):
            self._settle(queued, *found)
            return
        if not is_bound_by_some(queued):
            self.fail(queued, NO_BINDER)
            return
        self.take(queued, row, self._cycle.best_few(), leaving)

    def take(
        self,
        queued: QueuedPod,
        row: int,
        scores: tuple[tuple[str, int], ...] = (),
        leaving: Sequence[PodEntry] = (),
    ) -> None:
        """Count the pod as placed, and have it bound."""
        entry = queued.entry
        parts: list[tuple[Plugin, Reservation]] = []
        for other in leaving:
            note = f"Makes way for pod {entry.pod.key} on node {self.state.names[row]}"
            self._tell.event(other.pod, "Normal", "Preempted", "Preempting", note)
        if leaving:
            parts.append((queued.profile.way_makers[0], Clearing(leaving)))
        for plugin in queued.profile.reservers:
            if not plugin.concerns(entry.shape):
                continue
            part = plugin.reserve(entry.pod, entry.shape, self.state, row)
            if part is not None:
                parts.append((plugin, part))
        node_name = self.state.names[row]
        is_told = entry.nominated_to == node_name and queued.condition is not None
        self.state.assume(entry, row)
        self.state.nominate(entry, "")
        queued.bind_tries = 0
        if self._queue.is_waiting:
            self._wakes.came(entry.pod)
        if parts:
            self._pre_bind(queued, node_name, parts, is_told)
        else:
            self._together.ready(queued, node_name)
        self._tell.decide(queued, Outcome.PLACED, node_name=node_name, scores=scores)
        if parts:
            self._pre_binding.begun(entry.uid)

    def _settle(self, queued: QueuedPod, plugin: Plugin, wait: Wait) -> None:
        """There is a node, but others have to agree with it."""
        self._queue.wait(queued, frozenset((plugin.name,)), self.state.now_ns, wait.again_ns)
        self._settling.begin(queued.entry.uid, wait)
        self._tell.decide(queued, Outcome.UNSCHEDULABLE, message=wait.message)
        promised = queued.entry.nominated_to
        self._tell.report(queued, "Unschedulable", wait.message, wait.nominate)
        self._unpromised(queued.entry, promised)

    def _unpromised(self, entry: PodEntry, node_name: str) -> None:
        """Where the promise of this node is taken back, others may go there."""
        if node_name and entry.nominated_to != node_name:
            self._wakes.freed(entry.pod, priority_max=entry.pod.priority)

    def _pre_bind(
        self,
        queued: QueuedPod,
        node_name: str,
        parts: list[tuple[Plugin, Reservation]],
        is_told: bool,
    ) -> None:
        """Have other objects agree first, and say which node it is to be (KEP-5278), unless that
        was told and is not seen yet."""
        if queued.entry.pod.status.nominated_node_name != node_name:
            if not is_told:
                self._tell.promise(queued.entry, node_name)
            queued.is_promised = True
        for reason, note in self._pre_binding.begin(queued, node_name, parts, self.state.now_ns):
            self._tell.event(queued.entry.pod, "Normal", reason, "Scheduling", note)

    def refuse(self, queued: QueuedPod, extended: Mapping[str, Rejection] | None = None) -> None:
        """No node will do. `extended`: those that only extenders have refused."""
        diagnosis, remedy = self._cycle.fail(queued.profile, queued.entry, extended)
        if not remedy.victims and queued.profile.settlers:
            found = self._cycle.settle(queued.profile, queued.entry, -1)
            if found is not None:
                self._settle_refused(queued, diagnosis, remedy, found[1])
                return
        if not (remedy.victims and self.extended.asks_whom_to_spare(queued, diagnosis)):
            self.refused(queued, diagnosis, remedy)

    def _settle_refused(
        self, queued: QueuedPod, diagnosis: Diagnosis, remedy: Remedy, wait: Wait
    ) -> None:
        """No node will do, and others are told of it."""
        told = wait.message if wait.message not in diagnosis.message() else ""
        remedy = msgspec.structs.replace(
            remedy,
            message=told if wait.message else remedy.message,
            nominate=wait.nominate if remedy.nominate is None else remedy.nominate,
        )
        count = queued.unschedulable_count
        self.refused(queued, diagnosis, remedy)
        self._settling.begin(queued.entry.uid, wait)
        if wait.writes:
            queued.unschedulable_count = count  # something is being done about it
        if wait.again_ns is not None:
            self._queue.again(queued, wait.again_ns)

    def refused(self, queued: QueuedPod, diagnosis: Diagnosis, remedy: Remedy) -> None:
        """No node will do, and this is done about it."""
        message = diagnosis.message(remedy.message)
        promised = queued.entry.nominated_to
        self._queue.park(queued, diagnosis.plugins, self.state.now_ns)
        self._tell.decide(queued, Outcome.UNSCHEDULABLE, "", message, diagnosis, (), remedy)
        self._tell.report(queued, "Unschedulable", message, remedy.nominate)
        self._unpromised(queued.entry, promised)
        for patch in remedy.patches:
            self._send(msgspec.structs.replace(patch, id=self._next_id()))
        if remedy.victims and remedy.nominate:
            self.take_promises(remedy.nominate, queued.entry.pod.priority)
            self.evict(queued, remedy.nominate, remedy.victims)
        if not queued.is_preempting:
            self._queue.ungate(queued, False, self.state.now_ns)

    def evict(self, queued: Queued, where: str, victims: Sequence[PodEntry]) -> None:
        """These leave for a pod or a tree."""
        for which in leaving(self.state.groups, victims):
            self._tell_groups.disrupted(which, why_told(queued))
        bound = [victim for victim in victims if victim.uid not in self._pre_binding]
        for victim in victims:
            if victim.uid in self._pre_binding:
                # Not bound yet: it gives its node up, and nothing has to be deleted.
                self._pre_binding.cancel(victim.uid, "preempted by DefaultPreemption")
                note = told(queued, where) + " (in kube-scheduler memory)."
                self._tell.event(victim.pod, "Normal", "Preempted", "Preempting", note)
        self._queue.await_victims(queued, (victim.uid for victim in bound))
        self._evictions.begin(queued, where, bound)

    def take_promises(self, node_name: str, priority: int) -> None:
        """Pods of lower priority may no longer fit there once the new preemptor is on the node."""
        for _, entry in sorted(self.state.nominated.get(node_name, {}).items()):
            if entry.pod.priority < priority:
                self.state.nominate(entry, "")
                self._tell.promise(entry, "")


def is_bound_by_some(queued: QueuedPod) -> bool:
    """Whether some Bind plugin binds the pod."""
    pod = queued.entry.pod
    return any(plugin.bind(pod) for plugin in queued.profile.binders)
