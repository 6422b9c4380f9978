"""Handles watch events of pods: updates the state and the queue, and wakes waiting pods.

Must not know how pods are scheduled.

Source: kube-scheduler eventhandlers.go.
"""

from typing import Protocol

import msgspec

from stower.engine.binding.binding_cycle import BindingCycle
from stower.engine.binding.pending_writes import PendingWrites
from stower.engine.context import Context
from stower.engine.outbox import UNTRACKED
from stower.engine.queue.entities import QueuedPod
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.engine.status_reporter import POD_SCHEDULED
from stower.framework.cluster_events import Change, ClusterEvent, is_scaled_down, pending_pod_change
from stower.framework.freed_room import FreedRoom
from stower.groups.units import group_of, priority_of
from stower.model.errors import InvalidObject
from stower.model.kinds import Pod
from stower.model.kinds.pod import TERMINAL
from stower.state.pod_entry import PodEntry


class MemberObserver(Protocol):
    """Receives changes of pods of groups; attached if groups are used."""

    def on_member_change(self, pod: Pod) -> None:
        """Called when a pod with a node has joined or left its group."""

    def on_pod_change(self, queued: QueuedPod) -> None:
        """Called when a held pod has changed."""


class PodEvents:
    """Applies pods that watches show."""

    def __init__(
        self,
        context: Context,
        queue: SchedulingQueue,
        binding: BindingCycle,
        pending: PendingWrites,
    ) -> None:
        self._context = context
        self._state = context.state
        self._queue = queue
        self._binding = binding
        self._pre_bind = binding.pre_bind
        self._pending = pending
        self.groups: MemberObserver | None = None
        # Queued pods from before the state was rebuilt, by uid: they keep what is known of them.
        self.former: dict[str, QueuedPod] = {}
        # Uids of deleted pods, oldest first: a late event must not bring one back.
        self.deleted_uids: dict[str, None] = {}

    # Events

    def handle_pod(self, pod: Pod) -> None:
        """Applies a pod that came or changed."""
        state = self._state
        uid = pod.metadata.uid
        state.other_scheduler_pods.pop(uid, None)
        key = pod.key
        known = state.uid_by_key.get(key, uid)
        if known != uid:
            self.handle_deletion(known)  # another pod has its name now
        if pod.status.phase in TERMINAL:
            self._remove(uid)
            return
        entry = state.pods.get(uid)
        meta, old = pod.metadata, entry.pod.metadata if entry is not None else None
        if old is not None and (old.name, old.namespace) != (meta.name, meta.namespace):
            # No API server changes a name. What is kept by name is as if this was another pod.
            self._remove(uid)
            entry = None
        try:
            if pod.spec.node_name:
                self._apply_placed(entry, pod)
            elif entry is None:
                self._apply_new(pod)
            else:
                self._apply_waiting(entry, pod)
        except InvalidObject:
            # The API server would not have stored it: it takes no room and gets none.
            self._remove(uid)
        if self._pending.pods:
            self._pending.observe(pod, False)

    def handle_deletion(self, uid: str) -> None:
        """Removes a pod, and remembers that it is deleted."""
        self._remove(uid)
        self.deleted_uids[uid] = None
        if len(self.deleted_uids) > self._context.limits.gone_pods_max:
            del self.deleted_uids[next(iter(self.deleted_uids))]

    def keep_only(self, uids: dict[str, None]) -> None:
        """Removes all pods but these, which a list shows."""
        for uid in [uid for uid in self._state.pods if uid not in uids]:
            self.handle_deletion(uid)
        for uid in uids:
            self.deleted_uids.pop(uid, None)
        self._state.other_scheduler_pods.clear()

    def _apply_new(self, pod: Pod) -> None:
        profile = self._context.profiles.get(pod.spec.scheduler_name)
        if profile is None:
            self._state.other_scheduler_pods[pod.metadata.uid] = pod
            return
        entry = self._state.add_pending(pod)
        if pod.spec.resource_claims:
            self._binding.overcommitted.on_pod(pod)
        if pod.status.nominated_node_name:
            self._state.nominate(entry, pod.status.nominated_node_name)
        queued = self.former.pop(entry.uid, None) if self.former else None
        if queued is None or queued.entry is not entry:
            queued = QueuedPod(entry, profile, self._state.now_ns)
        else:
            queued.renew(profile)
        self._queue.enqueue(queued)

    # Pods with a node

    def _apply_placed(self, entry: PodEntry | None, pod: Pod) -> None:
        self._post_bind(pod)
        if entry is None:
            if self._state.add_placed(pod).group_name:
                self._on_member_change(pod)
            if self._queue.is_waiting:
                self._queue.on_pod_placement(pod, self._state.now_ns)
            return
        old, was_on = entry.pod, entry.row
        self._state.confirm(entry, pod)
        self._pre_bind.drop(entry.uid)
        if self._binding.permit.groups:
            self._binding.reject_group(
                entry.uid, f"pod {pod.key} of the same pod group was bound by another scheduler"
            )
        self._queue.remove(entry.uid)
        self._state.nominate(entry, "")
        self._pending.drop(entry.uid)
        if old.group_name != pod.group_name:
            self._on_member_change(old)
            self._on_member_change(pod)
        now_ns = self._state.now_ns
        if was_on >= 0 and was_on != entry.row:
            self._queue.on_room_release(old, now_ns)  # it was assumed elsewhere
        if not self._queue.is_waiting:
            return
        if was_on != entry.row:
            self._queue.on_pod_placement(pod, now_ns)
            return
        change = Change.NONE
        if is_scaled_down(old, pod):
            change |= Change.PLACED_POD_SCALED_DOWN
        if (old.metadata.labels or {}) != (pod.metadata.labels or {}):
            change |= Change.PLACED_POD_LABELS
        if change:
            self._queue.wake(ClusterEvent(change, old_pod=old, pod=pod), now_ns)

    def _post_bind(self, pod: Pod) -> None:
        """Runs PostBind: deletes what is not needed once the pod has its node."""
        profile = self._context.profiles.get(pod.spec.scheduler_name)
        outbox = self._context.outbox
        if profile is not None and pod.spec.resource_claims:
            if len(pod.status.conditions or ()) > 1:  # more than PodScheduled
                self._context.reporter.remove_outdated_conditions(pod)
        for plugin in profile.post_binders if profile is not None else ():
            for write in plugin.post_bind(pod, self._state):
                numbered = msgspec.structs.replace(write, id=outbox.next_id())
                outbox.send(numbered, UNTRACKED)

    # Pods without a node

    def _apply_waiting(self, entry: PodEntry, pod: Pod) -> None:
        old = entry.pod
        moves = old.group_name != pod.group_name and not entry.is_assumed
        if moves or old.spec.scheduler_name != pod.spec.scheduler_name:
            self._remove(entry.uid)
            self._apply_new(pod)
            return
        queued = self._queue.get(entry.uid)
        self._state.update_pending(entry, pod)
        if pod.spec.resource_claims:
            self._binding.overcommitted.on_pod(pod)
        self._pre_bind.on_pod_change(entry.uid)
        if entry.is_assumed and pod.metadata.deletion_timestamp is not None:
            self._forget(entry, old)
            return
        nominated, was = pod.status.nominated_node_name, old.status.nominated_node_name
        if nominated != was and entry.row < 0:
            self._state.nominate(entry, nominated)
        now_ns = self._state.now_ns
        if queued is not None:
            if pod.condition(POD_SCHEDULED) != old.condition(POD_SCHEDULED):
                queued.condition = None  # from here on, the object has the reported condition
            cluster_event = ClusterEvent(pending_pod_change(old, pod), old_pod=old, pod=pod)
            self._queue.update(queued.tree or queued, cluster_event, now_ns)
            if self.groups is not None:
                self.groups.on_pod_change(queued)
        if was and nominated != was:
            self._queue.on_room_release(old, now_ns, priority_max=old.priority)

    def _forget(self, entry: PodEntry, old: Pod) -> None:
        """Takes back the assumption of a pod in deletion: if its Bind succeeds nevertheless, the
        watch shows it."""
        self._state.forget(entry)
        self._pre_bind.drop(entry.uid)
        self._queue.remove(entry.uid)
        self._queue.on_room_release(old, self._state.now_ns)
        self._on_group_leave(entry)

    # Deleted pods

    def _remove(self, uid: str) -> None:
        """Removes a pod that is deleted, or has ended and holds no room any more."""
        self._state.other_scheduler_pods.pop(uid, None)
        entry = self._state.pods.get(uid)
        if entry is None:
            return
        row, nominated = entry.row, entry.nominated_node_name
        self._pre_bind.drop(uid)
        self._pending.drop(uid)
        self._state.remove_pod(entry)
        self._state.negotiations.forget_pod(entry.key)
        self._queue.remove(uid)
        self._on_group_leave(entry)
        now_ns = self._state.now_ns
        if row >= 0:
            if self._queue.is_waiting:
                freed = self._freed_room(entry, row)
                self._queue.on_room_release(entry.pod, now_ns, freed=freed)
        elif nominated:
            self._queue.on_room_release(entry.pod, now_ns, priority_max=entry.pod.priority)

    def _freed_room(self, entry: PodEntry, row: int) -> FreedRoom | None:
        """Returns the room that a removed pod has left on its row. None where more may have changed
        with it: pods wait for the end of other pods on a node that they are nominated to, claims
        count on the node as long as a pod uses them, and groups may leave as a whole."""
        state = self._state
        if state.node_names[row] in state.nominated_pods or entry.claimed_resources:
            return None
        there = (e for e in (entry, *state.pods_by_row[row].values()) if e.group_name)
        if any(
            group_of(state.groups, e) or priority_of(state.groups, e) != e.pod.priority
            for e in there
        ):
            return None
        return FreedRoom(state, row, entry)

    def _on_group_leave(self, entry: PodEntry) -> None:
        """Gives up the bindings of the other pods of its group that wait for it: the pod may have
        lost the group's label meanwhile."""
        if self.groups is None:
            return
        if entry.pod.group_name:
            self.groups.on_member_change(entry.pod)
        self._binding.reject_group(
            entry.uid, f"pod {entry.pod.key} of the same pod group was deleted or has ended"
        )

    def _on_member_change(self, pod: Pod) -> None:
        if self.groups is not None:
            self.groups.on_member_change(pod)
