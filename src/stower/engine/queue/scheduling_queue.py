"""The queue: every pod that waits for a node is in exactly one place.

active        to be tried, in the order of the QueueSort plugin
backoff       to be tried after a delay that doubles with each failure, or before if there is
              nothing else to try (KEP-5142); after an error not before
unschedulable refused; woken by an event that a refusing plugin says might help, or after 5 minutes
gated         kept out by a PreEnqueue plugin
held          in a tree of groups, which is in one of these places for all its pods
in flight     placed, its binding not yet answered

Unschedulable pods of equal shape that were refused by the same plugins form a group: a plugin is
asked once per group whether an event helps, however many pods wait. Where one of the plugins is
about other pods, they must be equal in that as well.

Source: kube-scheduler backend/queue.
"""

from collections.abc import Callable, Iterable
from typing import Final

from stower.engine.limits import Limits
from stower.engine.queue.entities import Likeness, Place, Queued, QueuedPod, QueuedTree, helps
from stower.engine.queue.heap import LazyHeap
from stower.framework.cluster_events import OF_CLAIMS, OWN, Happened
from stower.model.errors import InvariantError

# Where people look for pods.
PLACES: Final = (
    Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED, Place.IN_FLIGHT,
)  # fmt: skip
# Events kept for a pod that is being asked about; where more have happened, it is tried again.
MEANWHILE_MAX: Final = 1_000
FAILED: Final = "ScheduleAttemptFailure"


class Queue:
    """All waiting pods by uid. Time comes in as `now_ns`; nothing here reads a clock."""

    def __init__(
        self, limits: Limits, gate_failed: Callable[[QueuedPod, str], None] = lambda *_: None
    ) -> None:
        """`gate_failed`: told of a pod that waits because a PreEnqueue plugin has failed."""
        self._limits = limits
        self._gate_failed = gate_failed
        self._pods: dict[str, QueuedPod] = {}
        self._active: LazyHeap[Queued] = LazyHeap()
        self._backoff: LazyHeap[Queued] = LazyHeap()
        self._error_backoff: LazyHeap[Queued] = LazyHeap()
        # Unschedulable pods, and some that are gated, by the time at which they are tried again
        # without any event.
        self._flush: LazyHeap[Queued] = LazyHeap()
        self._awaited: dict[str, Queued] = {}  # who waits for a victim, by its uid
        self._groups: dict[Likeness, dict[str, Queued]] = {}
        # Of these, by the claims of their pods; and those of which a plugin looks at all claims.
        self._by_claim: dict[str, dict[Likeness, None]] = {}
        self._by_any_claim: dict[Likeness, None] = {}
        self._claims_of: dict[Likeness, list[str]] = {}
        self._changes: dict[tuple[str, frozenset[str]], int] = {}
        # The pod of which extenders are being asked, and what has happened since.
        self._undecided: Queued | None = None
        self._meanwhile: list[Happened] = []
        # Gated pods by profile and plugin, of plugins that wait for more than the pod's own update.
        self._gated: dict[tuple[str, str], dict[str, Queued]] = {}
        self._turn = 0
        self._event = ""  # what moves pods now, as the metrics name it
        self.incoming: dict[tuple[str, str], int] = {}  # by part of the queue and event, so far
        self.emptied: Callable[[QueuedTree], None] = lambda tree: None

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> QueuedPod | None:
        """The pod if it is queued or in flight."""
        return self._pods.get(uid)

    def missing(self, uid: str) -> str:
        """What the tree of the pod waits for before it is tried, "" where it has none."""
        pod = self._pods.get(uid)
        return pod.tree.missing if pod is not None and pod.tree is not None else ""

    def pods(self) -> list[QueuedPod]:
        """All of them, in the order in which they came."""
        return list(self._pods.values())

    def counts(self) -> dict[Place, int]:
        """How many pods are where, by PLACES: a pod that is held is where its tree is."""
        found = dict.fromkeys(PLACES, 0)
        for pod in self._pods.values():
            place = pod.tree.place if pod.tree is not None else pod.place
            if place is Place.ERROR_BACKOFF:
                place = Place.BACKOFF
            if place in found:
                found[place] += 1
        return found

    def add(self, pod: QueuedPod) -> None:
        """A new pod: to be tried, or gated."""
        self._event = "PodAdd"
        self._know(pod)
        self._to_active(pod, pod.added_ns)

    def hold(self, pod: QueuedPod, tree: QueuedTree) -> None:
        """A pod that waits with a tree."""
        if pod.uid not in self._pods:
            self._know(pod)
        pod.tree = tree
        pod.place = Place.HELD
        tree.members[pod.uid] = pod

    def release(self, pod: QueuedPod) -> None:
        """A pod that has waited with a tree goes on alone: it is in flight."""
        tree, pod.tree = pod.tree, None
        pod.place = Place.IN_FLIGHT
        if tree is not None:
            tree.members.pop(pod.uid, None)
            tree.gated.pop(pod.uid, None)
            if not tree.members:
                self.drop_tree(tree)

    def add_tree(self, tree: QueuedTree, now_ns: int) -> None:
        """A tree: to be tried, or gated. It has members."""
        self._event = "PodGroupAdd"
        self._to_active(tree, now_ns)

    def drop_tree(self, tree: QueuedTree) -> None:
        """None of its pods waits any more, or they wait with another."""
        self.await_victims(tree, ())
        self._leave(tree)
        self.emptied(tree)

    def retry_tree(self, tree: QueuedTree, now_ns: int) -> None:
        """A tree some of whose pods were to be bound, and are not: try again after a delay."""
        self._leave(tree)
        self.retry(tree, now_ns)

    def stir(self, tree: QueuedTree, now_ns: int) -> None:
        """Something about a tree has changed: who is in it, or what it has to wait for."""
        self._event = "PodGroupUpdate"
        if tree.place is Place.UNSCHEDULABLE and not tree.missing:
            self._wake(tree, now_ns)
        elif tree.place is Place.GATED:
            self._to_active(tree, now_ns)
        elif tree.place in (Place.ACTIVE, Place.BACKOFF) and tree.missing:
            self._leave(tree)
            self._to_active(tree, now_ns)

    def _know(self, pod: QueuedPod) -> None:
        if self._pods.setdefault(pod.uid, pod) is not pod:
            raise InvariantError(f"pod {pod.pod.key} is queued twice")

    def remove(self, uid: str) -> QueuedPod | None:
        """Take a pod out of wherever it is."""
        pod = self._pods.pop(uid, None)
        if pod is not None and pod.tree is not None:
            self.release(pod)
            pod.place = Place.NOWHERE
        elif pod is not None:
            self.decided(pod)
            self.await_victims(pod, ())
            self._leave(pod)
        return pod

    def pop(self, now_ns: int) -> Queued | None:
        """The next pod to try, now in flight; None when there is nothing to try."""
        if self._backoff or self._error_backoff or self._flush:
            self._advance(now_ns)
        pod = self._active.pop() or self._backoff.pop()
        if pod is not None:
            pod.place = Place.IN_FLIGHT
            pod.attempts += 1
        return pod

    def decide_later(self, pod: Queued) -> None:
        """The pod in flight takes more than this step: remember what happens until `decided`."""
        if self._undecided is not pod:
            self._undecided, self._meanwhile = pod, []

    def decided(self, pod: Queued) -> None:
        """What happens from now on is no matter of the pod's last attempt."""
        if self._undecided is pod:
            self._undecided, self._meanwhile = None, []

    def park(self, pod: Queued, refused_by: frozenset[str], now_ns: int) -> None:
        """A pod that was tried and refused by these plugins: wait for an event that helps.

        Where one came while it was tried, `ungate` lets it go at once.
        """
        pod.unschedulable_count += 1
        pod.error_count = 0
        pod.refused_by = refused_by
        pod.woken = self._undecided is pod and self._missed(pod)
        self.decided(pod)
        pod.added_ns = pod.tried_ns = now_ns
        pod.place = Place.UNSCHEDULABLE
        self._event = FAILED
        self._count("unschedulable")
        self._join_group(pod)
        self._next_turn(pod)
        self._flush.push(now_ns + self._limits.unschedulable_max_ns, pod)

    def wait(
        self, pod: Queued, refused_by: frozenset[str], now_ns: int, again_ns: int | None
    ) -> None:
        """A pod that was tried, and waits for others to agree: as `park`, but it counts as no
        failure, and is tried again at `again_ns` at the latest."""
        count = pod.unschedulable_count
        self.park(pod, refused_by, now_ns)
        pod.unschedulable_count = count
        if again_ns is not None:
            self.again(pod, again_ns)

    def again(self, pod: Queued, again_ns: int) -> None:
        """Try an unschedulable pod again then, at the latest."""
        self._next_turn(pod)
        self._flush.withdraw()
        self._flush.push(min(again_ns, pod.tried_ns + self._limits.unschedulable_max_ns), pod)

    def nudge(self, pod: Queued, now_ns: int) -> None:
        """What an unschedulable pod waited for has happened: it is tried at once."""
        if pod.place is Place.UNSCHEDULABLE and not pod.is_preempting:
            self._event = "OthersAgreed"
            self._leave(pod)
            self._to_active(pod, now_ns)

    def hurry(self, pod: Queued, now_ns: int) -> None:
        """The same, of one that may have been woken already, and waits out its delay."""
        if pod.place is Place.BACKOFF:
            self._event = "OthersAgreed"
            self._leave(pod)
            self._to_active(pod, now_ns)
        else:
            self.nudge(pod, now_ns)

    def _missed(self, pod: Queued) -> bool:
        priority = pod.priority
        return len(self._meanwhile) >= MEANWHILE_MAX or any(
            (h.priority_max is None or priority <= h.priority_max) and pod.is_helped_by(h)
            for h in self._meanwhile
        )

    def _note(self, happened: Happened) -> None:
        if len(self._meanwhile) < MEANWHILE_MAX:
            self._meanwhile.append(happened)

    def retry(self, pod: Queued, now_ns: int) -> None:
        """A pod whose attempt failed by no fault of its own: try again after a delay."""
        self.decided(pod)
        pod.error_count += 1
        pod.refused_by = frozenset()
        pod.added_ns = pod.tried_ns = now_ns
        self._event = FAILED
        if not self._is_held(pod, now_ns):
            self._to_error_backoff(pod, now_ns)

    def _to_error_backoff(self, pod: Queued, now_ns: int) -> None:
        pod.place = Place.ERROR_BACKOFF
        self._count("backoff")
        self._next_turn(pod)
        self._error_backoff.push(now_ns + self.delay_ns(pod.error_count), pod)

    def ungate(self, pod: Queued, failed: bool, now_ns: int) -> None:
        """It has no victims, all are on their way, or (`failed`) some are not: it may be tried
        again."""
        if pod.place is Place.UNSCHEDULABLE and (pod.woken or failed):
            self._event = "PreemptionDone"
            self._wake(pod, now_ns)

    def await_victims(self, pod: Queued, uids: Iterable[str]) -> None:
        """The pod waits for these to be gone."""
        for uid in pod.victims:
            if self._awaited.get(uid) is pod:
                del self._awaited[uid]
        pod.victims = set(uids)
        for uid in pod.victims:
            self._awaited[uid] = pod

    @property
    def is_waiting(self) -> bool:
        """Whether there is any pod that an event might help."""
        return bool(self._groups or self._gated) or self._undecided is not None

    def wake(self, happened: Happened, now_ns: int, of_claim: str = "") -> None:
        """Move every unschedulable pod that the event might help. `of_claim`: it is about a claim,
        and no pod without it can be helped."""
        self._event = happened.label
        if self._undecided is not None:
            self._note(happened)
        if self._gated:
            self._knock(happened, now_ns)
        bound = happened.priority_max
        patient = self._after_victim(happened, now_ns)
        change = happened.change.value
        for key in self._among(of_claim):
            if self._wakes_on(key) & change and next(iter(self._groups[key].values())).is_helped_by(
                happened
            ):
                for pod in list(self._groups[key].values()):
                    if pod is not patient and (bound is None or pod.priority <= bound):
                        self._wake(pod, now_ns)

    def _wakes_on(self, group: Likeness) -> int:
        """All changes that one of the plugins by which the group was refused wants to know of."""
        key = (group.scheduler_name, group.refused_by)
        known = self._changes.get(key)
        if known is None:
            pod = next(iter(self._groups[group].values()))
            found = [pod.profile.plugins.get(name) for name in sorted(group.refused_by)]
            known = 0 if found else -1
            for plugin in found:
                known |= plugin.wakes_on.value if plugin is not None else -1
            self._changes[key] = known
        return known

    def _among(self, of_claim: str) -> list[Likeness]:
        """The groups to look at."""
        if of_claim:
            return [*{**self._by_claim.get(of_claim, {}), **self._by_any_claim}]
        return list(self._groups)

    def _knock(self, happened: Happened, now_ns: int) -> None:
        """Ask gates again whose plugins say that the event might open them."""
        for (_, name), pods in [*self._gated.items()]:
            for pod in [*pods.values()]:
                if isinstance(pod, QueuedPod) and helps(pod, frozenset((name,)), happened):
                    self._to_active(pod, now_ns)

    def _after_victim(self, happened: Happened, now_ns: int) -> Queued | None:
        """Who waited for the pod that is gone, and for others still. Who has waited for the last
        one is tried: what helps may have gone with one before."""
        if not self._awaited or happened.old_pod is None or happened.pod is not None:
            return None
        uid = happened.old_pod.metadata.uid
        pod = self._awaited.pop(uid, None)
        if pod is None:
            return None
        pod.victims.discard(uid)
        if pod.victims:
            return pod
        if pod.place is Place.UNSCHEDULABLE:
            self._wake(pod, now_ns)
        return None

    def update(self, pod: Queued, happened: Happened, now_ns: int) -> None:
        """The pod itself changed (its entry already has the new object), or what is said of it."""
        self._event = "PodUpdate"
        if pod.place is Place.GATED:
            self._to_active(pod, now_ns)
        elif pod is self._undecided:
            self._note(happened)
        elif pod.place is Place.ACTIVE:
            if pod.gate() is not None or pod.key != pod.rank():
                self._leave(pod)
                self._to_active(pod, now_ns)
        elif pod.place is Place.UNSCHEDULABLE:
            if pod.is_helped_by(happened):
                self._wake(pod, now_ns)
            elif pod.likeness != pod.alike():
                self._leave_group(pod)
                self._join_group(pod)

    @property
    def next_wake_ns(self) -> int | None:
        """When a pod is next due: 0 if one can be tried now, None if only an event can help."""
        if self._active.first_key() is not None or self._backoff.first_key() is not None:
            return 0
        firsts = (self._error_backoff.first_key(), self._flush.first_key())
        due = [k for k in firsts if k is not None]
        return min(due) if due else None

    # Moves

    def _advance(self, now_ns: int) -> None:
        """Backoffs that are over, and pods that have been unschedulable for too long."""
        while (key := self._backoff.first_key()) is not None and key[0] <= now_ns:
            pod = self._backoff.pop()
            if pod is not None:
                self._event = "BackoffComplete"
                self._activate(pod)
        while (due := self._error_backoff.first_key()) is not None and due <= now_ns:
            pod = self._error_backoff.pop()
            if pod is not None:
                self._event = "BackoffComplete"
                self._to_active(pod, now_ns)
        while (due := self._flush.first_key()) is not None and due <= now_ns:
            pod = self._flush.pop()
            self._event = "UnschedulableTimeout"
            if pod is not None and pod.is_preempting:
                pod.woken = True
                self._flush.push(now_ns + self._limits.unschedulable_max_ns, pod)
            elif pod is not None and pod.place is Place.GATED:
                self._out_of_gate(pod)
                self._to_active(pod, now_ns)
            elif pod is not None:
                self._leave_group(pod)
                self._to_backoff_or_active(pod, now_ns)

    def _wake(self, pod: Queued, now_ns: int) -> None:
        if pod.is_preempting:
            pod.woken = True
            return
        self._leave(pod)
        self._to_backoff_or_active(pod, now_ns)

    def _to_backoff_or_active(self, pod: Queued, now_ns: int) -> None:
        due_ns = pod.tried_ns + self.delay_ns(pod.unschedulable_count)
        if due_ns > now_ns:
            self._to_backoff(pod, due_ns, now_ns)
        else:
            self._to_active(pod, now_ns)

    def _to_active(self, pod: Queued, now_ns: int) -> None:
        if self._gated:
            self._leave_gate(pod)
        if not self._is_held(pod, now_ns):
            self._activate(pod)

    def _is_held(self, pod: Queued, now_ns: int) -> bool:
        """Hold the pod back where a gate is closed, or for a while where one has failed."""
        found = pod.gate()
        if found is None:
            return False
        gate, error = found
        if error and isinstance(pod, QueuedPod):
            pod.error_count += 1
            self._to_error_backoff(pod, now_ns)
            self._gate_failed(pod, error)
            return True
        pod.place = Place.GATED
        self._count("gated")
        pod.refused_by |= {gate}
        if isinstance(pod, QueuedPod) and pod.profile.plugins[gate].wakes_on & ~OWN:
            key = (pod.profile.scheduler_name, gate)
            self._gated.setdefault(key, {})[pod.uid] = pod
            self._next_turn(pod)
            self._flush.push(now_ns + self._limits.unschedulable_max_ns, pod)
        return True

    def _leave_gate(self, pod: Queued) -> None:
        if self._out_of_gate(pod):
            self._next_turn(pod)
            self._flush.withdraw()

    def _out_of_gate(self, pod: Queued) -> bool:
        for key, pods in self._gated.items():
            if pods.pop(pod.uid, None) is not None:
                if not pods:
                    del self._gated[key]
                return True
        return False

    def _activate(self, pod: Queued) -> None:
        pod.place = Place.ACTIVE
        self._count("active")
        pod.key = pod.rank()
        self._next_turn(pod)
        self._active.push(pod.key, pod)

    def _to_backoff(self, pod: Queued, due_ns: int, now_ns: int) -> None:
        if self._is_held(pod, now_ns):
            return
        pod.place = Place.BACKOFF
        self._count("backoff")
        self._next_turn(pod)
        self._backoff.push((due_ns, pod.rank()), pod)

    def _leave(self, pod: Queued) -> None:
        """Out of wherever it is; its heap entry, if any, becomes invalid."""
        self._leave_group(pod)
        if self._gated:
            self._leave_gate(pod)
        self._next_turn(pod)
        heap = {
            Place.ACTIVE: self._active,
            Place.BACKOFF: self._backoff,
            Place.ERROR_BACKOFF: self._error_backoff,
            Place.UNSCHEDULABLE: self._flush,
        }.get(pod.place)
        pod.place = Place.NOWHERE
        if heap is not None:
            heap.withdraw()

    def _join_group(self, pod: Queued) -> None:
        pod.likeness = pod.alike()
        pods = self._groups.setdefault(pod.likeness, {})
        if not pods:
            self._index(pod, pod.likeness)
        pods[pod.uid] = pod

    def _leave_group(self, pod: Queued) -> None:
        if pod.likeness is not None:
            group = self._groups[pod.likeness]
            del group[pod.uid]
            if not group:
                del self._groups[pod.likeness]
                self._unindex(pod.likeness)
            pod.likeness = None

    def _index(self, pod: Queued, group: Likeness) -> None:
        """A new group: by claims, which all of its pods have in common."""
        plugins = [pod.profile.plugins.get(name) for name in sorted(group.refused_by)]
        looks = [p for p in plugins if p is None or p.wakes_on & OF_CLAIMS]
        keys = pod.claim_keys
        if keys is None or not all(p is not None and p.only_own_claims for p in looks):
            self._by_any_claim[group] = None
        elif looks:
            self._claims_of[group] = keys
            for key in keys:
                self._by_claim.setdefault(key, {})[group] = None

    def _unindex(self, group: Likeness) -> None:
        self._by_any_claim.pop(group, None)
        for key in dict.fromkeys(self._claims_of.pop(group, ())):
            groups = self._by_claim[key]
            del groups[group]
            if not groups:
                del self._by_claim[key]

    def _count(self, part: str) -> None:
        key = (part, self._event)
        self.incoming[key] = self.incoming.get(key, 0) + 1

    def _next_turn(self, pod: Queued) -> None:
        self._turn += 1
        pod.turn = self._turn

    def delay_ns(self, failures: int) -> int:
        """1 s, 2 s, 4 s ... as upstream's calculateBackoffDuration."""
        if failures == 0:
            return 0
        doubled = self._limits.backoff_initial_ns << min(failures - 1, 40)
        return min(doubled, self._limits.backoff_max_ns)
