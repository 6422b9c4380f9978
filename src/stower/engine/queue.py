"""The queue: every pod that waits for a node is in exactly one place.

active        to be tried, in the order of the QueueSort plugin
backoff       to be tried after a delay that doubles with each failure, or before if there is
              nothing else to try (KEP-5142); after an error not before
unschedulable refused; woken by an event that a refusing plugin says might help, or after 5 minutes
gated         kept out by a PreEnqueue plugin
in flight     placed, its binding not yet answered

Unschedulable pods of equal shape that were refused by the same plugins form a group: a plugin is
asked once per group whether an event helps, however many pods wait. Where one of the plugins is
about other pods, they must be equal in that as well.

Source: kube-scheduler backend/queue.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final

import msgspec

from stower.engine.heap import LazyHeap
from stower.engine.limits import Limits
from stower.framework.changes import OF_CLAIMS, OWN, Happened
from stower.framework.guard import PluginError
from stower.framework.plugin import Scope
from stower.framework.profile import Profile
from stower.model.errors import InvariantError
from stower.model.kinds import Pod
from stower.model.kinds.pod import PodCondition
from stower.state.cluster import PodEntry
from stower.state.devices import claim_keys
from stower.state.shapes import uses_storage


class Place(Enum):
    """Where a queued pod is."""

    ACTIVE = auto()
    BACKOFF = auto()
    ERROR_BACKOFF = auto()
    UNSCHEDULABLE = auto()
    GATED = auto()
    IN_FLIGHT = auto()
    NOWHERE = auto()


class QueuedPod:
    """A pod that waits, and what its earlier attempts came to."""

    __slots__ = (
        "added_ns", "attempts", "bind_tries", "condition", "entry", "error_count", "group",
        "is_preempting", "is_promised", "key", "place", "profile", "refused_by", "tried_ns", "turn",
        "unschedulable_count", "victims", "woken",
    )  # fmt: skip

    def __init__(self, entry: PodEntry, profile: Profile, now_ns: int) -> None:
        self.entry = entry
        self.profile = profile
        self.place = Place.NOWHERE
        self.added_ns = now_ns  # when it entered the queue, or was last tried: its rank
        self.tried_ns = now_ns
        self.attempts = 0
        self.unschedulable_count = 0
        self.error_count = 0
        self.bind_tries = 0  # of which nobody knows what became of them
        self.is_preempting = False  # its victims are being sent away: it is not tried meanwhile
        self.is_promised = False  # we have written a node for it that is not its own yet
        self.victims: set[str] = set()  # that it waits for: until the last is gone, none helps
        self.woken = False  # something has happened meanwhile that might help it
        self.refused_by: frozenset[str] = frozenset()
        self.group: _GroupKey | None = None
        self.turn = 0  # which heap entry is the valid one
        self.key: tuple[int, ...] = ()  # its rank while it is active
        self.condition: PodCondition | None = None  # as last written


# Events kept for a pod that is being asked about; where more have happened, it is tried again.
MEANWHILE_MAX: Final = 1_000

_GroupKey = tuple[str, int, frozenset[str], bytes]
_encode = msgspec.msgpack.Encoder().encode


class Queue:
    """All waiting pods by uid. Time comes in as `now_ns`; nothing here reads a clock."""

    def __init__(
        self, limits: Limits, gate_failed: Callable[[QueuedPod, str], None] = lambda *_: None
    ) -> None:
        """`gate_failed`: told of a pod that waits because a PreEnqueue plugin has failed."""
        self._limits = limits
        self._gate_failed = gate_failed
        self._pods: dict[str, QueuedPod] = {}
        self._active: LazyHeap[QueuedPod] = LazyHeap()
        self._backoff: LazyHeap[QueuedPod] = LazyHeap()
        self._error_backoff: LazyHeap[QueuedPod] = LazyHeap()
        # Unschedulable pods, and some that are gated, by the time at which they are tried again
        # without any event.
        self._flush: LazyHeap[QueuedPod] = LazyHeap()
        self._awaited: dict[str, QueuedPod] = {}  # who waits for a victim, by its uid
        self._groups: dict[_GroupKey, dict[str, QueuedPod]] = {}
        # Of these, by the claims of their pods; and those of which a plugin looks at all claims.
        self._by_claim: dict[str, dict[_GroupKey, None]] = {}
        self._by_any_claim: dict[_GroupKey, None] = {}
        self._claims_of: dict[_GroupKey, list[str]] = {}
        self._changes: dict[tuple[str, frozenset[str]], int] = {}
        # The pod of which extenders are being asked, and what has happened since.
        self._undecided: QueuedPod | None = None
        self._meanwhile: list[Happened] = []
        # Gated pods by profile and plugin, of plugins that wait for more than the pod's own update.
        self._gated: dict[tuple[str, str], dict[str, QueuedPod]] = {}
        self._turn = 0

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> QueuedPod | None:
        """The pod if it is queued or in flight."""
        return self._pods.get(uid)

    def pods(self) -> list[QueuedPod]:
        """All of them, in the order in which they came."""
        return list(self._pods.values())

    def add(self, pod: QueuedPod) -> None:
        """A new pod: to be tried, or gated."""
        if self._pods.setdefault(pod.entry.uid, pod) is not pod:
            raise InvariantError(f"pod {pod.entry.pod.key} is queued twice")
        self._to_active(pod, pod.added_ns)

    def remove(self, uid: str) -> QueuedPod | None:
        """Take a pod out of wherever it is."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self.decided(pod)
            self.await_victims(pod, ())
            self._leave(pod)
        return pod

    def pop(self, now_ns: int) -> QueuedPod | None:
        """The next pod to try, now in flight; None when there is nothing to try."""
        if self._backoff or self._error_backoff or self._flush:
            self._advance(now_ns)
        pod = self._active.pop() or self._backoff.pop()
        if pod is not None:
            pod.place = Place.IN_FLIGHT
            pod.attempts += 1
        return pod

    def decide_later(self, pod: QueuedPod) -> None:
        """The pod in flight takes more than this step: remember what happens until `decided`."""
        if self._undecided is not pod:
            self._undecided, self._meanwhile = pod, []

    def decided(self, pod: QueuedPod) -> None:
        """What happens from now on is no matter of the pod's last attempt."""
        if self._undecided is pod:
            self._undecided, self._meanwhile = None, []

    def park(self, pod: QueuedPod, refused_by: frozenset[str], now_ns: int) -> None:
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
        self._join_group(pod)
        self._next_turn(pod)
        self._flush.push(now_ns + self._limits.unschedulable_max_ns, pod)

    def wait(
        self, pod: QueuedPod, refused_by: frozenset[str], now_ns: int, again_ns: int | None
    ) -> None:
        """A pod that was tried, and waits for others to agree: as `park`, but it counts as no
        failure, and is tried again at `again_ns` at the latest."""
        count = pod.unschedulable_count
        self.park(pod, refused_by, now_ns)
        pod.unschedulable_count = count
        if again_ns is not None:
            self.again(pod, again_ns)

    def again(self, pod: QueuedPod, again_ns: int) -> None:
        """Try an unschedulable pod again then, at the latest."""
        self._next_turn(pod)
        self._flush.withdraw()
        self._flush.push(min(again_ns, pod.tried_ns + self._limits.unschedulable_max_ns), pod)

    def nudge(self, pod: QueuedPod, now_ns: int) -> None:
        """What an unschedulable pod waited for has happened: it is tried at once."""
        if pod.place is Place.UNSCHEDULABLE and not pod.is_preempting:
            self._leave(pod)
            self._to_active(pod, now_ns)

    def _missed(self, pod: QueuedPod) -> bool:
        priority = pod.entry.pod.priority
        return len(self._meanwhile) >= MEANWHILE_MAX or any(
            (h.priority_max is None or priority <= h.priority_max) and helps(pod, h)
            for h in self._meanwhile
        )

    def _note(self, happened: Happened) -> None:
        if len(self._meanwhile) < MEANWHILE_MAX:
            self._meanwhile.append(happened)

    def retry(self, pod: QueuedPod, now_ns: int) -> None:
        """A pod whose attempt failed by no fault of its own: try again after a delay."""
        self.decided(pod)
        pod.error_count += 1
        pod.refused_by = frozenset()
        pod.added_ns = pod.tried_ns = now_ns
        if not self._is_held(pod, now_ns):
            self._to_error_backoff(pod, now_ns)

    def _to_error_backoff(self, pod: QueuedPod, now_ns: int) -> None:
        pod.place = Place.ERROR_BACKOFF
        self._next_turn(pod)
        self._error_backoff.push(now_ns + self.delay_ns(pod.error_count), pod)

    def ungate(self, pod: QueuedPod, failed: bool, now_ns: int) -> None:
        """It has no victims, all are on their way, or (`failed`) some are not: it may be tried
        again."""
        if pod.place is Place.UNSCHEDULABLE and (pod.woken or failed):
            self._wake(pod, now_ns)

    def await_victims(self, pod: QueuedPod, uids: Iterable[str]) -> None:
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
        if self._undecided is not None:
            self._note(happened)
        if self._gated:
            self._knock(happened, now_ns)
        bound = happened.priority_max
        patient = self._after_victim(happened)
        change = happened.change.value
        for key in self._among(of_claim):
            if self._wakes_on(key) & change and helps(
                next(iter(self._groups[key].values())), happened
            ):
                for pod in list(self._groups[key].values()):
                    if pod is not patient and (bound is None or pod.entry.pod.priority <= bound):
                        self._wake(pod, now_ns)

    def _wakes_on(self, group: _GroupKey) -> int:
        """All changes that one of the plugins by which the group was refused wants to know of."""
        key = (group[0], group[2])
        known = self._changes.get(key)
        if known is None:
            pod = next(iter(self._groups[group].values()))
            found = [pod.profile.plugins.get(name) for name in sorted(group[2])]
            known = 0 if found else -1
            for plugin in found:
                known |= plugin.wakes_on.value if plugin is not None else -1
            self._changes[key] = known
        return known

    def _among(self, of_claim: str) -> list[_GroupKey]:
        """The groups to look at."""
        if of_claim:
            return [*{**self._by_claim.get(of_claim, {}), **self._by_any_claim}]
        return list(self._groups)

    def _knock(self, happened: Happened, now_ns: int) -> None:
        """Ask gates again whose plugins say that the event might open them."""
        for (_, name), pods in [*self._gated.items()]:
            for pod in [*pods.values()]:
                plugin, entry = pod.profile.plugins[name], pod.entry
                if plugin.wakes_on & happened.change and plugin.hint_pod(
                    entry.pod, entry.shape, happened
                ):
                    self._to_active(pod, now_ns)

    def _after_victim(self, happened: Happened) -> QueuedPod | None:
        """Who waited for the pod that is gone, and for others still."""
        if not self._awaited or happened.old_pod is None or happened.pod is not None:
            return None
        uid = happened.old_pod.metadata.uid
        pod = self._awaited.pop(uid, None)
        if pod is None:
            return None
        pod.victims.discard(uid)
        return pod if pod.victims else None

    def update(self, pod: QueuedPod, happened: Happened, now_ns: int) -> None:
        """The pod itself changed (its entry already has the new object), or what is said of it."""
        if pod.place is Place.GATED:
            self._to_active(pod, now_ns)
        elif pod is self._undecided:
            self._note(happened)
        elif pod.place is Place.ACTIVE:
            if self._gate(pod) is not None or pod.key != self._rank(pod):
                self._leave(pod)
                self._to_active(pod, now_ns)
        elif pod.place is Place.UNSCHEDULABLE:
            if helps(pod, happened):
                self._wake(pod, now_ns)
            elif pod.group != self._group_of(pod):
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
                self._activate(pod)
        while (due := self._error_backoff.first_key()) is not None and due <= now_ns:
            pod = self._error_backoff.pop()
            if pod is not None:
                self._to_active(pod, now_ns)
        while (due := self._flush.first_key()) is not None and due <= now_ns:
            pod = self._flush.pop()
            if pod is not None and pod.is_preempting:
                pod.woken = True
                self._flush.push(now_ns + self._limits.unschedulable_max_ns, pod)
            elif pod is not None and pod.place is Place.GATED:
                self._out_of_gate(pod)
                self._to_active(pod, now_ns)
            elif pod is not None:
                self._leave_group(pod)
                self._to_backoff_or_active(pod, now_ns)

    def _wake(self, pod: QueuedPod, now_ns: int) -> None:
        if pod.is_preempting:
            pod.woken = True
            return
        self._leave(pod)
        self._to_backoff_or_active(pod, now_ns)

    def _to_backoff_or_active(self, pod: QueuedPod, now_ns: int) -> None:
        due_ns = pod.tried_ns + self.delay_ns(pod.unschedulable_count)
        if due_ns > now_ns:
            self._to_backoff(pod, due_ns, now_ns)
        else:
            self._to_active(pod, now_ns)

    def _to_active(self, pod: QueuedPod, now_ns: int) -> None:
        if self._gated:
            self._leave_gate(pod)
        if not self._is_held(pod, now_ns):
            self._activate(pod)

    def _is_held(self, pod: QueuedPod, now_ns: int) -> bool:
        """Hold the pod back where a gate is closed, or for a while where one has failed."""
        found = self._gate(pod)
        if found is None:
            return False
        gate, error = found
        if error:
            pod.error_count += 1
            self._to_error_backoff(pod, now_ns)
            self._gate_failed(pod, error)
            return True
        pod.place = Place.GATED
        pod.refused_by |= {gate}
        if pod.profile.plugins[gate].wakes_on & ~OWN:
            key = (pod.profile.scheduler_name, gate)
            self._gated.setdefault(key, {})[pod.entry.uid] = pod
            self._next_turn(pod)
            self._flush.push(now_ns + self._limits.unschedulable_max_ns, pod)
        return True

    def _leave_gate(self, pod: QueuedPod) -> None:
        if self._out_of_gate(pod):
            self._next_turn(pod)
            self._flush.withdraw()

    def _out_of_gate(self, pod: QueuedPod) -> bool:
        for key, pods in self._gated.items():
            if pods.pop(pod.entry.uid, None) is not None:
                if not pods:
                    del self._gated[key]
                return True
        return False

    def _activate(self, pod: QueuedPod) -> None:
        pod.place = Place.ACTIVE
        pod.key = self._rank(pod)
        self._next_turn(pod)
        self._active.push(pod.key, pod)

    def _to_backoff(self, pod: QueuedPod, due_ns: int, now_ns: int) -> None:
        if self._is_held(pod, now_ns):
            return
        pod.place = Place.BACKOFF
        self._next_turn(pod)
        self._backoff.push((due_ns, self._rank(pod)), pod)

    def _leave(self, pod: QueuedPod) -> None:
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

    def _gate(self, pod: QueuedPod) -> tuple[str, str] | None:
        """The PreEnqueue plugin that holds the pod back, and how it has failed, or ""."""
        for plugin in pod.profile.pre_enqueue:
            try:
                if plugin.pre_enqueue(pod.entry.pod) is not None:
                    return plugin.name, ""
            except PluginError as error:
                return plugin.name, str(error)
        return None

    def _rank(self, pod: QueuedPod) -> tuple[int, ...]:
        return pod.profile.queue_sort.sort_key(pod.entry.pod, pod.added_ns)

    def _group_of(self, pod: QueuedPod) -> _GroupKey:
        plugins = pod.profile.plugins
        about_pods = any(
            name in plugins and plugins[name].scope is Scope.PODS for name in pod.refused_by
        )
        others = _about_others(pod.entry.pod) if about_pods else b""
        return (pod.profile.scheduler_name, pod.entry.shape.serial, pod.refused_by, others)

    def _join_group(self, pod: QueuedPod) -> None:
        pod.group = self._group_of(pod)
        pods = self._groups.setdefault(pod.group, {})
        if not pods:
            self._index(pod, pod.group)
        pods[pod.entry.uid] = pod

    def _leave_group(self, pod: QueuedPod) -> None:
        if pod.group is not None:
            group = self._groups[pod.group]
            del group[pod.entry.uid]
            if not group:
                del self._groups[pod.group]
                self._unindex(pod.group)
            pod.group = None

    def _index(self, pod: QueuedPod, group: _GroupKey) -> None:
        """A new group: by claims, which all of its pods have in common."""
        plugins = [pod.profile.plugins.get(name) for name in sorted(group[2])]
        looks = [p for p in plugins if p is None or p.wakes_on & OF_CLAIMS]
        if not all(p is not None and p.only_own_claims for p in looks):
            self._by_any_claim[group] = None
        elif looks:
            keys = self._claims_of[group] = claim_keys(pod.entry.pod)
            for key in keys:
                self._by_claim.setdefault(key, {})[group] = None

    def _unindex(self, group: _GroupKey) -> None:
        self._by_any_claim.pop(group, None)
        for key in dict.fromkeys(self._claims_of.pop(group, ())):
            groups = self._by_claim[key]
            del groups[group]
            if not groups:
                del self._by_claim[key]

    def _next_turn(self, pod: QueuedPod) -> None:
        self._turn += 1
        pod.turn = self._turn

    def delay_ns(self, failures: int) -> int:
        """1 s, 2 s, 4 s ... as upstream's calculateBackoffDuration."""
        if failures == 0:
            return 0
        doubled = self._limits.backoff_initial_ns << min(failures - 1, 40)
        return min(doubled, self._limits.backoff_max_ns)


def _about_others(pod: Pod) -> bytes:
    """All by which plugins of scope PODS tell pods of one shape apart."""
    affinity = pod.spec.affinity
    return _encode(
        (
            pod.metadata.namespace,
            sorted((pod.metadata.labels or {}).items()),
            pod.spec.topology_spread_constraints,
            (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else None,
            pod.spec.volumes if uses_storage(pod) else None,
            # Claims that are made for a pod have its name.
            pod.metadata.name if any(v.ephemeral for v in pod.spec.volumes or ()) else None,
            (claim_keys(pod), pod.group_name) if pod.spec.resource_claims else None,
        )
    )


def helps(pod: QueuedPod, happened: Happened) -> bool:
    """Whether one of the plugins that refused the pod says that the event might let it in."""
    if not pod.refused_by:
        return True
    for name in sorted(pod.refused_by):
        plugin = pod.profile.plugins.get(name)
        if plugin is None:
            return True  # an extender: nobody knows what may change its mind
        if plugin.wakes_on & happened.change and plugin.hint_pod(
            pod.entry.pod, pod.entry.shape, happened
        ):
            return True
    return False
