"""What the queue holds: pods, and trees of groups of pods, with what their attempts came to."""

from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from stower.framework.cluster_events import Happened
from stower.framework.plugin import Scope
from stower.framework.plugin_guard import PluginError
from stower.framework.profile import Profile
from stower.model.kinds import Pod
from stower.model.kinds.pod import PodCondition
from stower.state.cluster import PodEntry
from stower.state.devices import claim_keys
from stower.state.groups import GroupKey
from stower.state.shapes import uses_storage


class Place(Enum):
    """Where a queued pod or tree is."""

    ACTIVE = auto()
    BACKOFF = auto()
    ERROR_BACKOFF = auto()
    UNSCHEDULABLE = auto()
    GATED = auto()
    IN_FLIGHT = auto()
    HELD = auto()
    """A pod that waits where the tree of its group does."""
    NOWHERE = auto()


class Likeness(NamedTuple):
    """What entities have in common that an event helps all or none of."""

    scheduler_name: str
    shape: int
    refused_by: frozenset[str]
    others: bytes


_encode = msgspec.msgpack.Encoder().encode


class Queued:
    """An entity that waits. `uid` tells it from all others."""

    __slots__ = (
        "added_ns", "attempts", "came_ns", "error_count", "is_preempting", "key", "likeness",
        "place", "profile", "refused_by", "tried_ns", "turn", "uid", "unschedulable_count",
        "victims", "woken",
    )  # fmt: skip

    def __init__(self, uid: str, profile: Profile, now_ns: int) -> None:
        self.uid = uid
        self.profile = profile
        self.place = Place.NOWHERE
        self.added_ns = now_ns  # when it entered the queue, or was last tried: its rank
        self.tried_ns = now_ns
        self.came_ns = now_ns  # into the queue
        self.attempts = 0
        self.unschedulable_count = 0
        self.error_count = 0
        self.is_preempting = False  # its victims are being sent away: it is not tried meanwhile
        self.victims: set[str] = set()  # that it waits for: until the last is gone, none helps
        self.woken = False  # something has happened meanwhile that might help it
        self.refused_by: frozenset[str] = frozenset()
        self.likeness: Likeness | None = None  # while it is unschedulable
        self.turn = 0  # which heap entry is the valid one
        self.key: tuple[int, ...] = ()  # its rank while it is active

    @property
    def told_as(self) -> str:
        """What its victims are told: the uid of a pod, or of a group."""
        return self.uid

    @property
    def pod(self) -> Pod:
        """The pod, or one that stands for all: QueueSort plugins know of pods only."""
        raise NotImplementedError

    @property
    def priority(self) -> int:
        """Who has a higher one goes first."""
        return self.pod.priority

    @property
    def claim_keys(self) -> list[str] | None:
        """The claims of which a change can matter to it; None where that is not known."""
        return None

    def rank(self) -> tuple[int, ...]:
        """The smaller, the earlier it is tried."""
        return self.profile.queue_sort.sort_key(self.pod, self.added_ns)

    def gate(self) -> tuple[str, str] | None:
        """The PreEnqueue plugin that holds it back, and how it has failed, or ""."""
        raise NotImplementedError

    def alike(self) -> Likeness:
        """Equal for entities that nothing tells apart."""
        raise NotImplementedError

    def is_helped_by(self, happened: Happened) -> bool:
        """Whether one of the plugins that refused it says that the event might let it in."""
        raise NotImplementedError


class QueuedPod(Queued):
    """A pod that waits."""

    __slots__ = ("bind_tries", "condition", "entry", "is_promised", "tree")

    def __init__(self, entry: PodEntry, profile: Profile, now_ns: int) -> None:
        super().__init__(entry.uid, profile, now_ns)
        self.entry = entry
        self.bind_tries = 0  # of which nobody knows what became of them
        self.is_promised = False  # we have written a node for it that is not its own yet
        self.condition: PodCondition | None = None  # as last written
        self.tree: QueuedTree | None = None  # with which it waits

    @property
    def pod(self) -> Pod:
        """See Queued."""
        return self.entry.pod

    @property
    def claim_keys(self) -> list[str] | None:
        """See Queued."""
        return claim_keys(self.entry.pod)

    def rank(self) -> tuple[int, ...]:
        """See Queued. Asked once for each attempt: without a detour."""
        return self.profile.queue_sort.sort_key(self.entry.pod, self.added_ns)

    @property
    def sort(self) -> tuple[int, bytes]:
        """Equal for pods that no plugin tells apart."""
        return self.entry.shape.serial, about_others(self.entry.pod)

    def gate(self) -> tuple[str, str] | None:
        """See Queued."""
        for plugin in self.profile.pre_enqueue:
            try:
                if plugin.pre_enqueue(self.entry.pod) is not None:
                    return plugin.name, ""
            except PluginError as error:
                return plugin.name, str(error)
        return None

    def alike(self) -> Likeness:
        """See Queued."""
        plugins = self.profile.plugins
        about_pods = any(
            name in plugins and plugins[name].scope is Scope.PODS for name in self.refused_by
        )
        others = about_others(self.entry.pod) if about_pods else b""
        serial = self.entry.shape.serial
        return Likeness(self.profile.scheduler_name, serial, self.refused_by, others)

    def is_helped_by(self, happened: Happened) -> bool:
        """See Queued."""
        return helps(self, self.refused_by, happened)


class QueuedTree(Queued):
    """All pods of a tree of groups that have no node yet, which are tried together."""

    __slots__ = (
        "again_ns", "gated", "given_up", "half_bound_ns", "members", "missing", "root", "root_uid",
    )  # fmt: skip

    def __init__(self, root: GroupKey, profile: Profile, now_ns: int) -> None:
        kind = "CompositePodGroup" if root.is_composite else "PodGroup"
        super().__init__(f"{kind} {root.key}", profile, now_ns)
        self.root = root
        self.root_uid = ""  # of its object, once it was tried
        self.members: dict[str, QueuedPod] = {}
        self.gated: dict[str, QueuedPod] = {}  # members that a gate of their own holds back
        self.missing = ""  # what has to appear before it is tried
        self.half_bound_ns: int | None = None  # since when it is seen to be
        self.again_ns = 0  # when it is to be tried again, whatever happens
        self.given_up = 0  # attempts since the last one that had an answer

    @property
    def pod(self) -> Pod:
        """See Queued."""
        return next(iter(self.members.values())).entry.pod

    def gate(self) -> tuple[str, str] | None:
        """See Queued. The one gate of a tree is that it is not complete."""
        return (GANG_SCHEDULING, "") if self.missing else None

    def alike(self) -> Likeness:
        """See Queued."""
        return Likeness(self.profile.scheduler_name, -1, self.refused_by, self.uid.encode())

    def is_helped_by(self, happened: Happened) -> bool:
        """See Queued."""
        return any(helps(member, self.refused_by, happened) for member in self.kinds())

    @property
    def told_as(self) -> str:
        """See Queued."""
        return self.root_uid

    def open(self) -> list[QueuedPod]:
        """Members that may be tried."""
        return [member for uid, member in self.members.items() if uid not in self.gated]

    def kinds(self) -> Iterator[QueuedPod]:
        """One of each sort of pod."""
        seen = set()
        for member in self.open():
            if member.sort not in seen:
                seen.add(member.sort)
                yield member


# As in kube-scheduler's configuration.
GANG_SCHEDULING = "GangScheduling"


def about_others(pod: Pod, claims: list[object] | None = None) -> bytes:
    """All by which plugins of scope PODS tell pods of one shape apart. `claims`: what stands for
    the pod's claims, where not their names."""
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
            (claims or claim_keys(pod), pod.group_name) if pod.spec.resource_claims else None,
        )
    )


def helps(queued: QueuedPod, refused_by: frozenset[str], happened: Happened) -> bool:
    """Whether one of these plugins says that the event might let the pod in."""
    if not refused_by:
        return True
    for name in sorted(refused_by):
        plugin = queued.profile.plugins.get(name)
        if plugin is None:
            return True  # an extender: nobody knows what may change its mind
        if plugin.wakes_on & happened.change and plugin.hint_pod(
            queued.entry.pod, queued.entry.shape, happened
        ):
            return True
    return False
