"""The scheduling queue: holds every pod that waits for a node in exactly one place.

active        tried next, in the order of the QueueSort plugin
backoff       tried after a delay that doubles with each failure, or before if nothing is active
              (KEP-5142); never before after an error, or a search that was given up
unschedulable refused; woken by an event that a refusing plugin says may help, or after 5 minutes
gated         kept out by a PreEnqueue plugin
held          a member of a pod group; the tree of groups is in one of these places as a whole
in flight     has a node, and the Binding is not yet answered

Must not know nodes or writes, and reads no clock: time comes in as `now_ns`.

Source: kube-scheduler backend/queue.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from stower.engine.limits import Limits
from stower.engine.queue.entities import (
    Place,
    QueuedEntity,
    QueuedPod,
    QueuedTree,
)
from stower.engine.queue.heap import LazyHeap
from stower.engine.queue.hint_groups import CheckRow, HintFailed, HintGroups, is_helped
from stower.framework.cluster_events import (
    PENDING_POD_CHANGES,
    Change,
    ClusterEvent,
)
from stower.framework.freed_room import FreedRoom
from stower.model.errors import InvariantError
from stower.model.kinds import Pod

# The places that `counts` reports.
PLACES: Final = (
    Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED, Place.IN_FLIGHT,
)  # fmt: skip
# Events kept for an entity whose attempt takes several steps; with more, it is tried again anyway.
EVENTS_IN_FLIGHT_MAX: Final = 1_000
FAILURE: Final = "ScheduleAttemptFailure"
FORCE_ACTIVATE: Final = "ForceActivate"


class TreeHolder(Protocol):
    """Keeps pods that belong to a pod group with their tree; attached where groups are used."""

    def add(self, queued: QueuedPod) -> None:
        """Adds a pod to its tree."""

    def fail(self, queued: QueuedPod) -> None:
        """Returns a pod to its tree, which is tried again after a delay."""

    def forget(self, tree: QueuedTree) -> None:
        """Forgets a tree that has no member left."""


class SchedulingQueue:
    """All queued entities. Pods are found by uid."""

    def __init__(
        self,
        limits: Limits,
        gate_failed: Callable[[QueuedPod, str], None] = lambda queued, error: None,
        hint_failed: HintFailed | None = None,
        check_row: CheckRow | None = None,
    ) -> None:
        """`gate_failed` reports a pod that waits because a PreEnqueue plugin raised an error,
        `hint_failed` an entity whose queueing hint raised one; None: the error is raised.
        `check_row`: see CheckRow; None: all pods may be helped."""
        self._limits = limits
        self._gate_failed = gate_failed
        self._hint_failed = hint_failed
        self._check_row = check_row
        self.trees: TreeHolder | None = None
        self.incoming: dict[tuple[str, str], int] = {}  # moves by place and event, so far
        self._pods: dict[str, QueuedPod] = {}
        self.reset()

    def reset(self) -> None:
        """Forgets all entities: they are in no place, whatever is answered about them later."""
        for pod in self._pods.values():
            for entity in filter(None, (pod, pod.tree)):
                entity.place = Place.NOWHERE
        self._pods = {}
        self._active: LazyHeap[QueuedEntity] = LazyHeap()
        self._backoff: LazyHeap[QueuedEntity] = LazyHeap()
        self._error_backoff: LazyHeap[QueuedEntity] = LazyHeap()
        # Unschedulable entities, and some gated ones, by the time when they are tried again
        # without any event.
        self._flush: LazyHeap[QueuedEntity] = LazyHeap()
        # By the uid of a victim that is to go: those who wait for it, by uid.
        self._preemptors: dict[str, dict[str, QueuedEntity]] = {}
        self._groups = HintGroups(self._hint_failed, self._check_row)
        # The entity whose attempt takes several steps, and the events since it began.
        self._deciding: QueuedEntity | None = None
        self._events_in_flight: list[ClusterEvent] = []
        # Gated pods by profile and plugin, of plugins that wait for more than the pod's own update.
        self._gated: dict[tuple[str, str], dict[str, QueuedEntity]] = {}
        self._turn = 0
        self._event = ""  # the event that moves entities now, as metrics name it

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> QueuedPod | None:
        """Returns the pod if it is queued or in flight."""
        return self._pods.get(uid)

    def tree_waiting_reason(self, uid: str) -> str:
        """Returns what the pod's tree waits for before it can be tried, or ""."""
        pod = self._pods.get(uid)
        return pod.tree.waits_for if pod is not None and pod.tree is not None else ""

    def pods(self) -> list[QueuedPod]:
        """Returns all pods, in the order in which they were added."""
        return list(self._pods.values())

    def counts(self) -> dict[Place, int]:
        """Returns the number of pods per place of PLACES; a held pod counts where its tree is."""
        places = Counter((pod.tree or pod).place for pod in self._pods.values())
        places[Place.BACKOFF] += places[Place.ERROR_BACKOFF]
        return {place: places[place] for place in PLACES}

    # Adding and removing

    def enqueue(self, pod: QueuedPod) -> None:
        """Adds a new pod: alone, or with the tree of its pod group."""
        if self.trees is not None and pod.entry.group_name:
            self.trees.add(pod)
        else:
            self.add(pod)

    def add(self, pod: QueuedPod) -> None:
        """Adds a new pod that is scheduled alone: active or gated."""
        self._event = "PodAdd"
        if self._pods.setdefault(pod.uid, pod) is not pod:
            raise InvariantError(f"pod {pod.pod.key} is queued twice")
        self._to_active(pod, pod.added_ns)

    def hold(self, pod: QueuedPod, tree: QueuedTree) -> None:
        """Adds a pod to a tree, which is queued for it."""
        self._pods.setdefault(pod.uid, pod)
        pod.tree = tree
        pod.place = Place.HELD
        tree.members[pod.uid] = pod

    def release(self, pod: QueuedPod) -> None:
        """Takes a pod out of its tree: it is in flight alone."""
        tree, pod.tree = pod.tree, None
        pod.place = Place.IN_FLIGHT
        if tree is not None:
            tree.members.pop(pod.uid, None)
            tree.gated.pop(pod.uid, None)
            if not tree.members:
                self.remove_tree(tree)

    def add_tree(self, tree: QueuedTree, now_ns: int) -> None:
        """Adds a tree that has members: active or gated."""
        self._event = "PodGroupAdd"
        self._to_active(tree, now_ns)

    def remove_tree(self, tree: QueuedTree) -> None:
        """Removes a tree that has no members left."""
        self.await_victims(tree, ())
        self._leave(tree)
        if self.trees is not None:
            self.trees.forget(tree)

    def retry_tree(self, tree: QueuedTree, now_ns: int) -> None:
        """Retries a tree after a delay: pods of it were to be bound, and were not."""
        self._leave(tree)
        self.retry(tree, now_ns)

    def update_tree(self, tree: QueuedTree, now_ns: int) -> None:
        """Moves a tree whose members, or whose completeness, changed."""
        self._event = "PodGroupUpdate"
        if tree.place is Place.UNSCHEDULABLE and not tree.waits_for:
            self._wake(tree, now_ns, has_changed=True)
        elif tree.place is Place.GATED:
            self._to_active(tree, now_ns)
        elif tree.place in (Place.ACTIVE, Place.BACKOFF) and tree.waits_for:
            self._leave(tree)
            self._to_active(tree, now_ns)

    def remove(self, uid: str) -> QueuedPod | None:
        """Removes a pod from wherever it is, and returns it."""
        pod = self._pods.pop(uid, None)
        if pod is not None and pod.tree is not None:
            self.release(pod)
            pod.place = Place.NOWHERE
        elif pod is not None:
            self.end_decision(pod)
            self.await_victims(pod, ())
            self._leave(pod)
        return pod

    # Attempts and their results

    def pop(self, now_ns: int) -> QueuedEntity | None:
        """Returns the next entity to try, now in flight; None when there is nothing to try."""
        if self._backoff or self._error_backoff or self._flush:
            self._advance(now_ns)
        entity = self._active.pop_first() if self._active else None
        if entity is None and self._backoff:
            entity = self._backoff.pop_first()
        if entity is not None:
            entity.place = Place.IN_FLIGHT
            entity.attempts += 1
        return entity

    def defer_decision(self, entity: QueuedEntity) -> None:
        """Records that the attempt takes more than this step: keeps events until it ends."""
        if self._deciding is not entity:
            self._deciding, self._events_in_flight = entity, []

    def end_decision(self, entity: QueuedEntity) -> None:
        """Stops keeping events for the entity's attempt."""
        if self._deciding is entity:
            self._deciding, self._events_in_flight = None, []

    def park(self, entity: QueuedEntity, refused_by: frozenset[str], now_ns: int) -> None:
        """Makes an entity unschedulable after these plugins refused it.

        An event that came during the attempt is remembered: `finish_preemption` wakes it.
        """
        entity.unschedulable_count += 1
        entity.error_count = 0
        entity.refused_by = refused_by
        entity.missed_event = self._deciding is entity and self._is_helped(entity)
        self.end_decision(entity)
        entity.added_ns = entity.tried_ns = now_ns
        entity.place = Place.UNSCHEDULABLE
        self._event = FAILURE
        self._count("unschedulable")
        self._groups.add(entity)
        self._next_turn(entity)
        self._flush.push(now_ns + self._limits.unschedulable_max_ns, entity)

    def wait(
        self, entity: QueuedEntity, refused_by: frozenset[str], now_ns: int, retry_ns: int | None
    ) -> None:
        """Parks an entity whose node others have to accept: it counts as no failure, and is tried
        again at `retry_ns` at the latest."""
        count = entity.unschedulable_count
        self.park(entity, refused_by, now_ns)
        entity.unschedulable_count = count
        if retry_ns is not None:
            self.retry_at(entity, retry_ns)

    def retry_at(self, entity: QueuedEntity, retry_ns: int) -> None:
        """Has an unschedulable entity tried again at `retry_ns` at the latest."""
        self._next_turn(entity)
        self._flush.withdraw()
        flush_ns = entity.tried_ns + self._limits.unschedulable_max_ns
        self._flush.push(min(retry_ns, flush_ns), entity)

    def activate(self, entity: QueuedEntity, now_ns: int) -> None:
        """Makes an unschedulable entity active at once, without backoff."""
        if entity.place is Place.UNSCHEDULABLE and not entity.is_preempting:
            self._event = FORCE_ACTIVATE
            self._leave(entity)
            self._to_active(entity, now_ns)

    def activate_from_backoff(self, entity: QueuedEntity, now_ns: int, plugin: str) -> None:
        """Makes an entity in backoff, or an unschedulable one that this plugin refused ("": any),
        active at once."""
        if entity.place is Place.BACKOFF:
            self._event = FORCE_ACTIVATE
            self._leave(entity)
            self._to_active(entity, now_ns)
        elif not plugin or plugin in entity.refused_by:
            self.activate(entity, now_ns)

    def _is_helped(self, entity: QueuedEntity) -> bool:
        priority = entity.priority
        return len(self._events_in_flight) >= EVENTS_IN_FLIGHT_MAX or any(
            (h.priority_max is None or priority <= h.priority_max)
            and is_helped(entity, h, self._hint_failed)
            for h in self._events_in_flight
        )

    def _keep_event(self, cluster_event: ClusterEvent) -> None:
        if len(self._events_in_flight) < EVENTS_IN_FLIGHT_MAX:
            self._events_in_flight.append(cluster_event)

    def retry_pod(self, pod: QueuedPod, now_ns: int) -> None:
        """Retries a pod, or its tree, whose attempt ended in an error, after a delay."""
        if self.trees is not None and pod.entry.group_name:
            self.trees.fail(pod)
        else:
            self.retry(pod, now_ns)

    def retry(self, entity: QueuedEntity, now_ns: int) -> None:
        """Retries an entity whose attempt ended in an error after a delay."""
        self.end_decision(entity)
        entity.error_count += 1
        entity.refused_by = frozenset()
        entity.added_ns = entity.tried_ns = now_ns
        self._event = FAILURE
        gate = entity.closed_gate()
        if gate is None:
            self._to_error_backoff(entity, now_ns + self.delay_ns(entity.error_count))
        else:
            self._gate(entity, *gate, now_ns)

    def hold_back(self, entity: QueuedEntity, due_ns: int) -> None:
        """Takes an entity out of its place; it is tried at `due_ns`, and not before."""
        self._leave(entity)
        self._event = FAILURE
        self._to_error_backoff(entity, due_ns)

    def withdraw(self, entity: QueuedEntity) -> None:
        """Takes an entity out of its place; the caller gives it another one."""
        self._leave(entity)

    def take(self, pod: QueuedPod) -> None:
        """Takes a pod out of its place, or out of its tree: it is in flight."""
        if pod.tree is not None:
            self.release(pod)
        else:
            self._leave(pod)
            pod.place = Place.IN_FLIGHT

    def _to_error_backoff(self, entity: QueuedEntity, due_ns: int) -> None:
        entity.place = Place.ERROR_BACKOFF
        self._count("backoff")
        self._next_turn(entity)
        self._error_backoff.push(due_ns, entity)

    # Preemption

    def finish_preemption(self, entity: QueuedEntity, failed: bool, now_ns: int) -> None:
        """Wakes an entity that has no victims, or whose evictions are answered, where an event
        may have helped it meanwhile, or evictions `failed`."""
        if entity.place is Place.UNSCHEDULABLE and (entity.missed_event or failed):
            self._event = "PreemptionDone"
            self._wake(entity, now_ns)

    def await_victims(self, entity: QueuedEntity, uids: Iterable[str]) -> None:
        """Replaces the victims that the entity waits for."""
        for uid in entity.victims:
            waiting = self._preemptors.get(uid, {})
            waiting.pop(entity.uid, None)
            if not waiting:
                self._preemptors.pop(uid, None)
        entity.victims = set(uids)
        for uid in entity.victims:
            self._preemptors.setdefault(uid, {})[entity.uid] = entity

    # Cluster events

    @property
    def is_waiting(self) -> bool:
        """Whether there is any entity that an event may help."""
        return bool(self._groups.by_key or self._gated) or self._deciding is not None

    def on_pod_placement(self, pod: Pod, now_ns: int) -> None:
        """Wakes pods that a pod which now holds room on a node may help."""
        self.wake(ClusterEvent(Change.PLACED_POD_ADDED, pod=pod), now_ns)

    def on_room_release(
        self,
        pod: Pod,
        now_ns: int,
        priority_max: int | None = None,
        excluded: QueuedEntity | None = None,
        freed: FreedRoom | None = None,
    ) -> None:
        """Wakes pods that the room of a pod may help; with a bound, only pods of that priority or
        below: the room was only nominated. `excluded`: not woken, as the attempt that has just
        ended has made the room. `freed`: see ClusterEvent."""
        if self.is_waiting:
            cluster_event = ClusterEvent(
                Change.PLACED_POD_DELETED,
                old_pod=pod,
                row=freed.row if freed is not None else -1,
                freed=freed,
                priority_max=priority_max,
            )
            self.wake(cluster_event, now_ns, excluded=excluded)

    def wake(
        self,
        cluster_event: ClusterEvent,
        now_ns: int,
        claim_key: str = "",
        excluded: QueuedEntity | None = None,
    ) -> None:
        """Moves every unschedulable entity but `excluded` that the event may help to backoff or
        active.

        `claim_key`: the claim that the event is about, where it can help only pods that use it.
        """
        self._event = cluster_event.label
        if self._deciding is not None and self._deciding is not excluded:
            self._keep_event(cluster_event)
        if self._gated:
            self._wake_gated(cluster_event, now_ns)
        bound = cluster_event.priority_max
        left_out = [excluded, *self._on_victim_deletion(cluster_event, now_ns)]
        for group in self._groups.find_helped(cluster_event, claim_key):
            for entity in group:
                if entity in left_out:
                    continue
                if bound is None or entity.priority <= bound:
                    self._wake(entity, now_ns)

    def _wake_gated(self, cluster_event: ClusterEvent, now_ns: int) -> None:
        """Evaluates gates again if a hint of their plugin says that the event may open them."""
        for (_, name), pods in [*self._gated.items()]:
            for pod in [*pods.values()]:
                if isinstance(pod, QueuedPod) and is_helped(
                    pod, cluster_event, self._hint_failed, frozenset((name,))
                ):
                    self._to_active(pod, now_ns)

    def _on_victim_deletion(self, cluster_event: ClusterEvent, now_ns: int) -> list[QueuedEntity]:
        """Wakes preemptors whose last victim was deleted; an earlier deletion may be the one that
        helps. Returns the preemptors that wait for more victims, which nothing wakes."""
        if not self._preemptors or cluster_event.old_pod is None or cluster_event.pod is not None:
            return []
        uid = cluster_event.old_pod.metadata.uid
        waiting = []
        for entity in self._preemptors.pop(uid, {}).values():
            entity.victims.discard(uid)
            if entity.victims:
                waiting.append(entity)
            elif entity.place is Place.UNSCHEDULABLE:
                self._wake(entity, now_ns)
        return waiting

    def update(self, entity: QueuedEntity, cluster_event: ClusterEvent, now_ns: int) -> None:
        """Moves an entity that changed itself; its entry has the new object already."""
        self._event = "PodUpdate"
        if entity.place is Place.GATED:
            self._to_active(entity, now_ns)
        elif entity is self._deciding:
            self._keep_event(cluster_event)
        elif entity.place is Place.ACTIVE:
            if entity.closed_gate() is not None or entity.active_key != entity.sort_key():
                self._leave(entity)
                self._to_active(entity, now_ns)
        elif entity.place is Place.UNSCHEDULABLE:
            if is_helped(entity, cluster_event, self._hint_failed):
                self._wake(entity, now_ns)
            elif entity.hint_key != entity.make_hint_key():
                self._groups.remove(entity)
                self._groups.add(entity)

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which the next entity is due: 0 if an entity can be tried now, None if only
        an event helps."""
        if self._active.first_key() is not None or self._backoff.first_key() is not None:
            return 0
        firsts = (self._error_backoff.first_key(), self._flush.first_key())
        due = [k for k in firsts if k is not None]
        return min(due) if due else None

    # Moves

    def _advance(self, now_ns: int) -> None:
        """Moves entities whose backoff ended, or that were unschedulable for too long."""
        while (key := self._backoff.first_key()) is not None and key[0] <= now_ns:
            entity = self._backoff.pop_first()
            if entity is not None:
                self._event = "BackoffComplete"
                self._activate(entity)
        while (due := self._error_backoff.first_key()) is not None and due <= now_ns:
            entity = self._error_backoff.pop_first()
            if entity is not None:
                self._event = "BackoffComplete"
                self._to_active(entity, now_ns)
        while (due := self._flush.first_key()) is not None and due <= now_ns:
            entity = self._flush.pop_first()
            self._event = "UnschedulableTimeout"
            if entity is not None and entity.is_preempting:
                entity.missed_event = True
                self._flush.push(now_ns + self._limits.unschedulable_max_ns, entity)
            elif entity is not None and entity.place is Place.GATED:
                self._drop_from_gated(entity)
                self._to_active(entity, now_ns)
            elif entity is not None:
                self._groups.remove(entity)
                self._to_backoff_or_active(entity, now_ns)

    def _wake(self, entity: QueuedEntity, now_ns: int, has_changed: bool = False) -> None:
        if entity.is_preempting:
            entity.missed_event = True
            return
        self._leave(entity)
        self._to_backoff_or_active(entity, now_ns, has_changed)

    def _to_backoff_or_active(
        self, entity: QueuedEntity, now_ns: int, has_changed: bool = False
    ) -> None:
        """`has_changed`: the entity itself has, so that its next attempt is another one."""
        delay_ns = self.delay_ns(entity.unschedulable_count) * entity.backoff_factor
        due_ns = entity.tried_ns + delay_ns
        if due_ns > now_ns and entity.is_costly and not has_changed:
            self._to_error_backoff(entity, due_ns)
        elif due_ns > now_ns:
            self._to_backoff(entity, due_ns, now_ns)
        else:
            self._to_active(entity, now_ns)

    def _to_active(self, entity: QueuedEntity, now_ns: int) -> None:
        if self._gated:
            self._leave_gated(entity)
        gate = entity.closed_gate()
        if gate is None:
            self._activate(entity)
        else:
            self._gate(entity, *gate, now_ns)

    def _gate(self, entity: QueuedEntity, gate: str, error: str, now_ns: int) -> None:
        """Gates an entity that a PreEnqueue plugin refuses, or backs it off where one failed."""
        if error and isinstance(entity, QueuedPod):
            entity.error_count += 1
            self._to_error_backoff(entity, now_ns + self.delay_ns(entity.error_count))
            self._gate_failed(entity, error)
            return
        entity.place = Place.GATED
        self._count("gated")
        entity.refused_by |= {gate}
        if (
            isinstance(entity, QueuedPod)
            and entity.profile.plugins[gate].events_to_register & ~PENDING_POD_CHANGES
        ):
            key = (entity.profile.scheduler_name, gate)
            self._gated.setdefault(key, {})[entity.uid] = entity
            self._next_turn(entity)
            self._flush.push(now_ns + self._limits.unschedulable_max_ns, entity)

    def _leave_gated(self, entity: QueuedEntity) -> None:
        if self._drop_from_gated(entity):
            self._next_turn(entity)
            self._flush.withdraw()

    def _drop_from_gated(self, entity: QueuedEntity) -> bool:
        for key, pods in self._gated.items():
            if pods.pop(entity.uid, None) is not None:
                if not pods:
                    del self._gated[key]
                return True
        return False

    def _activate(self, entity: QueuedEntity) -> None:
        entity.place = Place.ACTIVE
        self._count("active")
        entity.active_key = entity.sort_key()
        self._turn = entity.turn = self._turn + 1
        self._active.push(entity.active_key, entity)

    def _to_backoff(self, entity: QueuedEntity, due_ns: int, now_ns: int) -> None:
        gate = entity.closed_gate()
        if gate is not None:
            self._gate(entity, *gate, now_ns)
            return
        entity.place = Place.BACKOFF
        self._count("backoff")
        self._next_turn(entity)
        self._backoff.push((due_ns, entity.sort_key()), entity)

    def _leave(self, entity: QueuedEntity) -> None:
        """Takes an entity out of its place; its heap entry, if any, becomes invalid."""
        self._groups.remove(entity)
        if self._gated:
            self._leave_gated(entity)
        self._next_turn(entity)
        heap = {
            Place.ACTIVE: self._active,
            Place.BACKOFF: self._backoff,
            Place.ERROR_BACKOFF: self._error_backoff,
            Place.UNSCHEDULABLE: self._flush,
        }.get(entity.place)
        entity.place = Place.NOWHERE
        if heap is not None:
            heap.withdraw()

    def _count(self, place: str) -> None:
        key = (place, self._event)
        self.incoming[key] = self.incoming.get(key, 0) + 1

    def _next_turn(self, entity: QueuedEntity) -> None:
        self._turn += 1
        entity.turn = self._turn

    def delay_ns(self, failures: int) -> int:
        """Returns the backoff: 1 s, 2 s, 4 s ... (calculateBackoffDuration)."""
        if failures == 0:
            return 0
        doubled = self._limits.backoff_initial_ns << min(failures - 1, 40)
        return min(doubled, self._limits.backoff_max_ns)
