"""A warm pool and its pods by role: user, placeholder, image puller.

Must not know which decisions are taken about the pods.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import Final

from stower.model.kinds import Node, Pod, WarmPool
from stower.model.kinds.warm_pool import Move, WarmPoolSpec
from stower.model.selectors import LabelSelector
from stower.model.taints import Toleration
from stower.model.times import SECOND_NS, time_ns
from stower.warm.day_profile import ArrivalCounter

# The label of placeholders that we keep ourselves: the name of their pool.
POOL_LABEL = "stower.dev/warm-pool"
Tolerations = tuple[Toleration, ...]

TIME_MAX_NS: Final = 2**62
CLOCK_SKEW_NS: Final = 60 * SECOND_NS  # clocks of schedulers that lead in turn


class Role(Enum):
    """What a pod is in a pool."""

    USER = auto()
    PLACEHOLDER = auto()
    PULLER = auto()


class Pool:
    """One pool, and the uids of its pods in the order in which they were seen."""

    def __init__(self, key: str, spec: WarmPoolSpec, obj: WarmPool | None) -> None:
        self.key = key
        self.namespace, _, self.name = key.rpartition("/")
        self.spec = spec
        self.obj = obj
        self.users: dict[str, Pod] = {}
        self.came_ns: dict[str, int] = {}  # when users were made
        self.last_active_ns: dict[str, int] = {}  # of users of whom it is known
        self.placeholders: dict[str, Pod] = {}
        # Pods that the users' selector finds, and who are no users of this pool.
        self.overlapping: dict[str, None] = {}
        self.pullers: dict[str, dict[str, Pod]] = {}  # by node, then by uid
        self.wanted = spec.placeholders.replicas
        self.label = spec.images.label  # that is set on ready nodes, "" for none
        self.fault = ""  # what of the spec is not done, and why
        self.problem = ""  # why the API makes no placeholders
        # How many of its users, and of its placeholders, have these tolerations.
        self._tolerations: dict[Role, Counter[Tolerations]] = {
            Role.USER: Counter(), Role.PLACEHOLDER: Counter()
        }  # fmt: skip
        # Nodes that are to empty.
        self.draining: tuple[str, ...] = obj.status.draining or () if obj is not None else ()
        self.kept: dict[str, str] = {}  # nodes that cannot be emptied, with the reason
        self.arrivals: ArrivalCounter | None = None  # where the pool wants them counted
        if spec.placeholders.profile_seconds:
            self.arrivals = ArrivalCounter(obj.status.profile if obj is not None else None)
        self.moves: list[Move] = list(obj.status.moves or ()) if obj is not None else []

    @property
    def has_own_placeholders(self) -> bool:
        """Whether its placeholders are made here."""
        return self.spec.placeholders.template is not None

    @property
    def tolerations(self) -> Collection[Tolerations]:
        """Those of its users, each that there are, or else of its placeholders; none where nobody
        is known."""
        users, placeholders = self._tolerations.values()
        return users.keys() or placeholders.keys()

    def _count_tolerations(self, role: Role, pod: Pod, sign: int) -> None:
        counts, those = self._tolerations[role], tuple(pod.spec.tolerations or ())
        counts[those] += sign
        if not counts[those]:
            del counts[those]

    def holds(self, node: Node) -> bool:
        """Whether its users may go to the node."""
        labels = node.metadata.labels or {}
        return all(labels.get(k) == v for k, v in (self.spec.node_selector or {}).items())

    def is_own(self, pod: Pod) -> bool:
        """Whether it is a placeholder that we keep for this pool, whatever its labels say."""
        meta = pod.metadata
        return meta.namespace == self.namespace and (meta.labels or {}).get(POOL_LABEL) == self.name

    def role_of(self, pod: Pod) -> Role | None:
        """What the pod is here."""
        if pod.metadata.namespace != self.namespace:
            return None
        labels, spec = pod.metadata.labels or {}, self.spec
        if self.is_own(pod) or _is_selected(spec.placeholders.selector, labels):
            return Role.PLACEHOLDER
        if _is_selected(spec.users, labels):
            return Role.USER
        return Role.PULLER if _is_selected(spec.images.pullers, labels) else None

    def set_object(self, obj: WarmPool) -> None:
        """The object has changed, and its spec has not."""
        self.obj = obj
        self.moves += [move for move in obj.status.moves or () if move not in self.moves]

    def put(self, pod: Pod, role: Role) -> None:
        """A pod is one of them, or is known as it is now."""
        uid = pod.metadata.uid
        if role is not Role.USER:
            self.put_other(pod)
        if role is Role.PULLER:
            self.pullers.setdefault(pod.spec.node_name, {})[uid] = pod
        elif role is Role.PLACEHOLDER:
            self._replace(self.placeholders, role, uid, pod)
        else:
            self._replace(self.users, role, uid, pod)
            if uid not in self.came_ns:
                self.came_ns[uid] = kept_ns(time_ns(pod.metadata.creation_timestamp) or 0)
            self.last_active_ns.pop(uid, None)
            name = self.spec.packing.last_activity_annotation
            active_ns = time_ns((pod.metadata.annotations or {}).get(name))
            if active_ns is not None:
                self.last_active_ns[uid] = kept_ns(active_ns)

    def _replace(self, known: dict[str, Pod], role: Role, uid: str, pod: Pod | None) -> None:
        before = known.get(uid)
        if before is not None:
            self._count_tolerations(role, before, -1)
        if pod is None:
            known.pop(uid, None)
        else:
            known[uid] = pod
            self._count_tolerations(role, pod, 1)

    def put_other(self, pod: Pod) -> None:
        """A pod of the namespace is no user of this pool."""
        uid = pod.metadata.uid
        if _is_selected(self.spec.users, pod.metadata.labels or {}):
            self.overlapping[uid] = None
        else:
            self.overlapping.pop(uid, None)

    def drop(self, pod: Pod, role: Role) -> None:
        """It is gone."""
        uid = pod.metadata.uid
        self.overlapping.pop(uid, None)
        if role is Role.PULLER:
            for node_name in ("", pod.spec.node_name):
                self.pullers.get(node_name, {}).pop(uid, None)
        elif role is Role.PLACEHOLDER:
            self._replace(self.placeholders, role, uid, None)
        else:
            self._replace(self.users, role, uid, None)
            self.came_ns.pop(uid, None)
            self.last_active_ns.pop(uid, None)

    def pulls_since_ns(self, node: Node) -> int:
        """Since when the node pulls: since it was made, or its newest puller was."""
        here = self.pullers.get(node.metadata.name, {}).values()
        made = (time_ns(pod.metadata.creation_timestamp) or 0 for pod in here)
        return max(time_ns(node.metadata.creation_timestamp) or 0, max(made, default=0))

    def clear(self) -> None:
        """None is known."""
        for counts in self._tolerations.values():
            counts.clear()
        for known in (
            self.users, self.placeholders, self.pullers, self.came_ns, self.overlapping,
            self.last_active_ns,
        ):  # fmt: skip
            known.clear()


def pool_role_of(objects: Iterable[WarmPool], pod: Pod) -> tuple[Pool, Role] | None:
    """Returns the first of these pools that the pod belongs to, and the pod's role in it."""
    for obj in objects:
        pool = Pool(obj.metadata.key, obj.spec, obj)
        role = pool.role_of(pod)
        if role is not None:
            return pool, role
    return None


def kept_ns(time_ns: int) -> int:
    """A time, or the nearest for which an array has room."""
    return min(max(time_ns, -TIME_MAX_NS), TIME_MAX_NS)


def is_recent(move: Move, since_ns: int, now_ns: int) -> bool:
    """Returns whether the move was made after that time. A time too far ahead of the clock is none:
    it would count until then."""
    return since_ns < (time_ns(move.at) or 0) <= now_ns + CLOCK_SKEW_NS


def _is_selected(selector: LabelSelector | None, labels: dict[str, str]) -> bool:
    return selector is not None and selector.matches(labels)
