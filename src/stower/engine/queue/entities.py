"""Entities of the scheduling queue: pods, and pod group trees, with the results of their attempts.

Must not know which part of the queue holds an entity beyond its Place.

Source: kube-scheduler framework.QueuedPodInfo, QueuedPodGroupInfo.
"""

from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.freed_room import FreedRoom
from stower.framework.plugin import Plugin, Scope
from stower.framework.plugin_guard import PluginError
from stower.framework.profile import Profile
from stower.groups.searches import Searches
from stower.model.derived import Derived
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.pod import PodCondition
from stower.state.devices import claim_keys, extended_claim_owner
from stower.state.groups import GroupKey
from stower.state.pod_entry import PodEntry
from stower.state.shapes import uses_storage
from stower.state.volumes import has_ephemeral_volumes

# The name of kube-scheduler's plugin, which tree conditions and refusals use.
GANG_SCHEDULING: Final = "GangScheduling"
# Pods times nodes: a search of that size takes some 3 ms, and one for victims ten times that.
LARGE_SEARCH: Final = 500
# After so many searches for victims that found that no eviction helps, a tree whose searches are
# large waits longer between its attempts.
FUTILE_MAX: Final = 6
FUTILE_FACTOR: Final = 3


class Place(Enum):
    """The part of the queue that holds an entity."""

    ACTIVE = auto()
    BACKOFF = auto()
    ERROR_BACKOFF = auto()
    UNSCHEDULABLE = auto()
    GATED = auto()
    IN_FLIGHT = auto()
    HELD = auto()
    """A pod that its pod group's tree holds."""
    NOWHERE = auto()


class HintKey(NamedTuple):
    """Equal for entities that every cluster event helps alike: hints are asked once per key.
    `then`: see QueuedPod.may_refuse_then."""

    scheduler_name: str
    shape: int
    refused_by: frozenset[str]
    others: bytes
    then: frozenset[str] = frozenset()


_encode = msgspec.msgpack.Encoder().encode


class QueuedEntity:
    """A pod or the root of a pod group tree in the queue, identified by `uid`."""

    __slots__ = (
        "active_key", "added_ns", "attempts", "error_count", "first_added_ns", "hint_key",
        "is_preempting", "missed_event", "place", "profile", "refused_by", "spares_until_ns",
        "tried_ns", "turn", "uid", "unschedulable_count", "victims",
    )  # fmt: skip

    def __init__(self, uid: str, profile: Profile, now_ns: int) -> None:
        self.uid = uid
        self.profile = profile
        self.place = Place.NOWHERE
        self.added_ns = now_ns  # when it was added to the queue, or last tried: orders equals
        self.tried_ns = now_ns
        self.first_added_ns = now_ns
        self.attempts = 0
        self.unschedulable_count = 0
        self.error_count = 0
        self.is_preempting = False  # while its evictions are unanswered, it is not tried
        self.victims: set[str] = set()  # uids; only the deletion of the last one wakes it
        self.spares_until_ns = 0  # until then it evicts nobody, see preemption/eviction_pauses.py
        self.missed_event = False  # an event that may help came while it could not be woken
        self.refused_by: frozenset[str] = frozenset()
        self.hint_key: HintKey | None = None  # while it is unschedulable
        self.turn = 0  # of its valid heap entry
        self.active_key: tuple[int, ...] = ()  # its QueueSort key while it is active

    def renew(self, profile: Profile) -> None:
        """Starts again in no place of the queue; the results of attempts stay known."""
        self.profile = profile
        self.place = Place.NOWHERE
        self.hint_key = None
        self.missed_event = False

    @property
    def is_costly(self) -> bool:
        """Whether its last attempt was given up for what it cost: it waits for the end of its
        backoff even if nothing else is tried."""
        return False

    @property
    def backoff_factor(self) -> int:
        """By how much its backoff is longer than that of others."""
        return 1

    @property
    def preemptor_uid(self) -> str:
        """The uid that Events of its victims name: of a pod, or of the root group."""
        return self.uid

    @property
    def pod(self) -> Pod:
        """The pod, or for a tree one of its pods: QueueSort plugins compare pods."""
        raise NotImplementedError

    @property
    def priority(self) -> int:
        """The priority that QueueSort and preemption use."""
        return self.pod.priority

    @property
    def claim_keys(self) -> list[str] | None:
        """Keys of the claims whose changes can help it; None where any claim's change can."""
        return None

    def sort_key(self) -> tuple[int, ...]:
        """Returns the QueueSort key: smaller keys are tried first."""
        return self.profile.queue_sort.sort_key(self.pod, self.added_ns)

    def closed_gate(self) -> tuple[str, str] | None:
        """Returns the PreEnqueue plugin that keeps it gated and that plugin's error, or ""."""
        raise NotImplementedError

    def make_hint_key(self) -> HintKey:
        """Returns the key under which it shares queueing hints with equal entities."""
        raise NotImplementedError

    def is_helped_by(self, cluster_event: ClusterEvent) -> bool:
        """Returns whether the hint of a plugin that refused it says that the event may help."""
        raise NotImplementedError


class QueuedPod(QueuedEntity):
    """A pod in the queue."""

    __slots__ = (
        "bind_tries", "condition", "entry", "has_open_nomination", "may_refuse_then", "told_stages",
        "tree",
    )  # fmt: skip

    def __init__(self, entry: PodEntry, profile: Profile, now_ns: int) -> None:
        super().__init__(entry.uid, profile, now_ns)
        self.entry = entry
        self.bind_tries = 0  # Bind writes with unknown outcome
        self.has_open_nomination = False  # nominatedNodeName was written by PreBind (KEP-5278)
        self.condition: PodCondition | None = None  # the PodScheduled condition last written
        # Of the round of a negotiation, what Events were about.
        self.told_stages: set[tuple[int, str]] = set()
        self.tree: QueuedTree | None = None  # the tree that it is held with
        # Plugins that may refuse it where others are evicted for it: another's end may help there.
        self.may_refuse_then: frozenset[str] = frozenset()

    def renew(self, profile: Profile) -> None:
        """Starts again outside of any tree."""
        super().renew(profile)
        self.tree = None

    @property
    def pod(self) -> Pod:
        """The pod."""
        return self.entry.pod

    @property
    def claim_keys(self) -> list[str]:
        """Keys of the pod's claims."""
        return claim_keys(self.entry.pod)

    def sort_key(self) -> tuple[int, ...]:
        """Returns the QueueSort key; repeated here because each attempt calls it."""
        return self.profile.queue_sort.sort_key(self.entry.pod, self.added_ns)

    @property
    def class_key(self) -> tuple[int, bytes]:
        """A key that is equal for pods that no plugin can distinguish."""
        return self.entry.shape.serial, encode_pod_terms(self.entry.pod)

    def closed_gate(self) -> tuple[str, str] | None:
        """Returns the first PreEnqueue plugin that refuses the pod, and its error or ""."""
        for plugin in self.profile.pre_enqueue:
            try:
                if plugin.pre_enqueue(self.entry.pod) is not None:
                    return plugin.name, ""
            except PluginError as error:
                return plugin.name, str(error)
        return None

    def make_hint_key(self) -> HintKey:
        """Returns the key; pod terms count only where a plugin of scope PODS refused the pod."""
        plugins, then = self.profile.plugins, self.may_refuse_then
        about_pods = any(
            name in plugins and plugins[name].scope is Scope.PODS
            for name in (*self.refused_by, *then)
        )
        others = encode_pod_terms(self.entry.pod) if about_pods else b""
        serial = self.entry.shape.serial
        return HintKey(self.profile.scheduler_name, serial, self.refused_by, others, then)

    def refusing_plugins(self, cluster_event: ClusterEvent) -> frozenset[str]:
        """Returns the plugins that refused the pod, and those that may once others are evicted."""
        if self.may_refuse_then and cluster_event.change & Change.PLACED_POD_DELETED:
            return self.refused_by | self.may_refuse_then
        return self.refused_by

    def is_helped_by(self, cluster_event: ClusterEvent) -> bool:
        """Returns whether the hint of a plugin that refused the pod says that it may help."""
        refusing = self.refusing_plugins(cluster_event)
        concerned = concerned_plugins(self.profile, refusing, cluster_event)
        return may_help(self, concerned, cluster_event)


class QueuedTree(QueuedEntity):
    """The unscheduled pods of one pod group tree, which are tried together."""

    __slots__ = (
        "awaits_more", "exhausted_count", "futile_count", "gated", "half_bound_ns", "members",
        "outlasts", "pairs_searched", "retry_ns", "root", "root_uid", "searches", "waits_for",
    )  # fmt: skip

    def __init__(self, root: GroupKey, profile: Profile, now_ns: int) -> None:
        kind = "CompositePodGroup" if root.is_composite else "PodGroup"
        super().__init__(f"{kind} {root.key}", profile, now_ns)
        self.root = root
        self.root_uid = ""  # of the root object, set by the first attempt
        self.members: dict[str, QueuedPod] = {}
        self.gated: dict[str, QueuedPod] = {}  # members that a PreEnqueue plugin keeps gated
        self.waits_for = ""  # why it cannot be tried yet: a missing object or pod
        self.half_bound_ns: int | None = None  # when it was first seen to be partially bound
        self.retry_ns = 0  # when it is tried again without any event
        self.exhausted_count = 0  # attempts in a row whose search budget ran out
        self.searches = Searches()
        self.pairs_searched = 0  # by the last attempt: its pods times the nodes
        # Searches that found that no eviction helps, since the last other answer about victims.
        self.futile_count = 0
        # While its placement waits for answers: whether an event is not the last of these.
        self.awaits_more: Callable[[ClusterEvent], bool] | None = None
        # Where its refusal is known to be lasting: whether it is despite the room of a pod.
        self.outlasts: Callable[[FreedRoom], bool] | None = None

    def renew(self, profile: Profile) -> None:
        """Starts again without members."""
        super().renew(profile)
        self.members, self.gated, self.waits_for = {}, {}, ""
        self.awaits_more = self.outlasts = None

    @property
    def pod(self) -> Pod:
        """The first member's pod."""
        return next(iter(self.members.values())).entry.pod

    @property
    def is_costly(self) -> bool:
        """Whether its last search ran out of budget, or was a large one."""
        return self.exhausted_count > 0 or self.pairs_searched >= LARGE_SEARCH

    @property
    def backoff_factor(self) -> int:
        """By how much its backoff is longer than that of others."""
        return FUTILE_FACTOR if self.futile_count > FUTILE_MAX and self.is_costly else 1

    @property
    def preemptor_uid(self) -> str:
        """The uid of the root group."""
        return self.root_uid

    def closed_gate(self) -> tuple[str, str] | None:
        """Returns GangScheduling while the tree is not complete."""
        return (GANG_SCHEDULING, "") if self.waits_for else None

    def make_hint_key(self) -> HintKey:
        """Returns a key of its own: no two trees share hints."""
        return HintKey(self.profile.scheduler_name, -1, self.refused_by, self.uid.encode())

    def is_helped_by(self, cluster_event: ClusterEvent) -> bool:
        """Returns whether the event may help one of its distinct members. Of the answers that the
        tree waits for, only the last one does: no next step follows from the others."""
        if self.awaits_more is not None and self.awaits_more(cluster_event):
            return False
        freed = cluster_event.freed
        if freed is not None:
            if self.outlasts is not None and self.outlasts(freed):
                return False
            # One more pod may fit there, even if one did before.
            cluster_event = msgspec.structs.replace(cluster_event, freed=None)
        concerned = concerned_plugins(self.profile, self.refused_by, cluster_event)
        return any(may_help(member, concerned, cluster_event) for member in self.distinct_members())

    def ungated_members(self) -> list[QueuedPod]:
        """Returns the members that no PreEnqueue plugin keeps gated."""
        return [member for uid, member in self.members.items() if uid not in self.gated]

    def distinct_members(self) -> Iterator[QueuedPod]:
        """Yields one ungated member for each class of equal pods."""
        seen = set()
        for member in self.ungated_members():
            if member.class_key not in seen:
                seen.add(member.class_key)
                yield member


def encode_pod_terms(
    pod: Pod, claims: list[object] | None = None, volume_claims: list[object] | None = None
) -> bytes:
    """Encodes everything by which plugins of scope PODS distinguish pods of one shape.

    `claims`, where given, replaces the names of the pod's claims; `volume_claims` replaces those of
    the claims of its ephemeral volumes.
    """
    if claims is None and volume_claims is None:
        return _TERMS.of(pod)
    return _find_terms(pod, claims, volume_claims)


def _find_terms(
    pod: Pod, claims: list[object] | None = None, volume_claims: list[object] | None = None
) -> bytes:
    affinity = pod.spec.affinity
    return _encode(
        (
            pod.metadata.namespace,
            sorted((pod.metadata.labels or {}).items()),
            pod.spec.topology_spread_constraints,
            (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else None,
            pod.spec.volumes if uses_storage(pod) else None,
            # Claims of ephemeral volumes are named after the pod.
            volume_claims or (pod.metadata.name if has_ephemeral_volumes(pod) else None),
            (claims or claim_keys(pod), pod.group_name) if pod.spec.resource_claims else None,
        )
    )


_TERMS: Final = Derived(_find_terms)


def concerned_plugins(
    profile: Profile, refused_by: frozenset[str], cluster_event: ClusterEvent
) -> tuple[Plugin, ...] | None:
    """Returns the plugins that refused and register for the event; None where nobody can say that
    the event does not help."""
    if not refused_by:
        return None
    found = []
    change = cluster_event.change.value
    for name in sorted(refused_by):
        plugin = profile.plugins.get(name)
        if plugin is None:
            return None  # an extender: any event may change its answer
        if plugin.events_to_register.value & change:
            found.append(plugin)
    return tuple(found)


def may_help(
    queued: QueuedPod, concerned: tuple[Plugin, ...] | None, cluster_event: ClusterEvent
) -> bool:
    """Returns whether the hint of one of these plugins says that the event may help the pod."""
    if concerned is None:
        return True
    pod, shape = queued.entry.pod, queued.entry.shape
    return any(plugin.hint_pod(pod, shape, cluster_event) for plugin in concerned)


def is_help_on_one_row(queued: QueuedPod, cluster_event: ClusterEvent) -> bool:
    """Returns whether an event that may help the pod can do so on the row of the event only."""
    refusing = queued.refusing_plugins(cluster_event)
    concerned = concerned_plugins(queued.profile, refusing, cluster_event)
    pod, shape = queued.entry.pod, queued.entry.shape
    claim = cluster_event.old_object
    if isinstance(claim, ResourceClaim) and (
        claim.metadata.key in queued.claim_keys or extended_claim_owner(claim) == queued.uid
    ):
        return False  # its own: it is not bound to a node any more
    return concerned is not None and all(
        cluster_event.change in plugin.changes_of_one_row
        or not plugin.hint_pod(pod, shape, cluster_event)
        for plugin in concerned
    )
