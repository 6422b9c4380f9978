"""The companion for warm capacity: tracks pools, keeps and moves placeholders, writes the status.

Acts every PERIOD_NS, from API objects alone. Only missing placeholders are created at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import numpy as np

from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.companion import EntityFailed, Metric, TrialScheduler, raise_error
from stower.framework.writes import DeletePod, Write
from stower.model.kinds import ApiObject, Node, Pod, WarmPool
from stower.model.times import SECOND_NS, time_ns
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.warm.figures import Figures
from stower.warm.headroom import CLOSED, PULLS, USABLE, NodeState, free_slots
from stower.warm.moves import NO_PLAN, Part, Plan
from stower.warm.node_labels import NodeLabeler, labels_of
from stower.warm.node_reports import pull_text
from stower.warm.nodes import CODES, PoolNodes
from stower.warm.placeholders import NODE_ANNOTATION, PlaceholderManager
from stower.warm.pool_status import pool_status
from stower.warm.pools import POOL_LABEL, Pool, Role, is_recent
from stower.warm.readiness import is_maintained
from stower.warm.registry import PoolRegistry
from stower.warm.repositioning import MINUTE_NS, Repositioner, part_of
from stower.warm.sharing import Sharing, placeholders_on, users_on
from stower.warm.status import StatusWriter
from stower.warm.target import count_wanted

PERIOD_NS: Final = 10 * SECOND_NS
CLOSED_CODES: Final = [CODES[state] for state in CLOSED]
NOT_SENT: Final = 500  # the status of writes that an error has kept from being sent
# The status follows users and new pools so much later: most users have a node before.
TOLD_AFTER_NS: Final = SECOND_NS
# Who is seen to wait so long after it was made has become a user by its labels.
BECOMES_NS: Final = 2 * SECOND_NS


class WarmCapacity:
    """See Companion."""

    def __init__(
        self, state: ClusterState, pools: Iterable[Pool] = (), node_labels: Sequence[str] = ()
    ) -> None:
        """`pools`: those of the configuration; others come as objects, which may set these
        labels on nodes."""
        self.state = state
        self.entity_failed: EntityFailed = raise_error  # see EntityGuard
        self.pools: dict[str, Pool] = {pool.key: pool for pool in pools}
        self._registry = PoolRegistry(self.pools.values(), node_labels)
        self._nodes: dict[str, PoolNodes] = {}  # by pool
        self._known: dict[str, tuple[Pool, Role]] = {}  # by uid, whose pod it is
        self._in_namespace = _by_namespace(self.pools)
        self._round_ns: int | None = None  # when the next round is due
        self._is_held = False  # no round begins
        # Users without a node: when they go elsewhere, and anywhere.
        self._waiting: dict[str, tuple[int, int]] = {}
        self._tell_ns: int | None = None  # when the status follows users who came or went
        self._untold: dict[str, None] = {}  # the pools of these users, by key
        self._is_short = False  # a placeholder of our own may be missing
        self._happened: list[ClusterEvent] = []
        self._is_turn = False  # of users who wait for images
        self._has_room_come = False  # for whoever waits
        self._become: dict[str, None] = {}  # uids of pods that wait and are users by now
        self._looked_ns = 0
        self._former: list[Pool] = []  # that are no more: what was moved for them counts a while
        self._has_decided = False
        self.figures = Figures()
        self._sharing = Sharing()
        self.keeping = PlaceholderManager(state)
        self.told = StatusWriter()
        self._labeler = NodeLabeler(state, self.told)
        self.repositioner: Repositioner | None = None

    def attach(self, trial_scheduler: TrialScheduler) -> None:
        """See Companion."""
        self.repositioner = Repositioner(self.state, trial_scheduler)

    # Events

    def on_object(self, obj: ApiObject, is_deleted: bool, now_ns: int) -> None:
        """See Companion."""
        if isinstance(obj, WarmPool):
            self._pool(obj, is_deleted, now_ns)
        elif not self.pools:
            return
        elif isinstance(obj, Pod):
            self._observe_pod(obj, is_deleted or obj.is_terminal, now_ns)
            if self._tell_ns is None and self._untold:
                self._tell_ns = now_ns + TOLD_AFTER_NS
        elif isinstance(obj, Node):
            self._check_readiness(obj.metadata.name, self._nodes.values())
        self._schedule_round(now_ns)

    def on_list(self, objects: Iterable[ApiObject], now_ns: int) -> None:
        """See Companion."""
        known = list(objects)
        self._registry.replace(obj for obj in known if isinstance(obj, WarmPool))
        self._choose_pools(self._registry.namespaces, {})
        self.keeping.forget()
        self._waiting.clear()
        self._known.clear()
        self._nodes.clear()
        for pool in self.pools.values():
            pool.clear()
        self._begin((obj for obj in known if isinstance(obj, Pod)), now_ns)
        self._schedule_round(now_ns)

    def _pool(self, obj: WarmPool, gone: bool, now_ns: int) -> None:
        namespace = obj.metadata.namespace
        self._registry.put(obj, gone)
        others = {key: pool for key, pool in self.pools.items() if pool.namespace != namespace}
        if not self._choose_pools([namespace], others):
            return
        # Of pools that go on, only their pods may be others'; the rest stays as it is.
        pods = [e.pod for e in self.state.pods.values() if e.pod.metadata.namespace == namespace]
        for uid, (pool, _) in [*self._known.items()]:
            if self.pools.get(pool.key) is not pool:
                del self._known[uid]
                self._waiting.pop(uid, None)
        self._begin(pods, now_ns)
        soon_ns = now_ns + TOLD_AFTER_NS  # for whoever made or changed it to see
        self._round_ns = min(self._round_ns or soon_ns, soon_ns)

    def _choose_pools(self, namespaces: Iterable[str], others: Mapping[str, Pool]) -> bool:
        """Finds the pools of these namespaces anew, beside the others. Returns whether they are
        other pools than before."""
        before = self.pools
        found = dict(others)
        for namespace in namespaces:
            found |= self._registry.pools(namespace, before)
        new = [pool for key, pool in found.items() if before.get(key) is not pool]
        if not new and len(found) == len(before):
            return False
        for pool in new:  # what was moved just now may not be shown yet
            former = (old for old in (before.get(pool.key), *self._former) if old is not None)
            for old in former:
                if old.key == pool.key:
                    pool.moves += [move for move in old.moves if move not in pool.moves]
            if pool.key in before:
                pool.draining = before[pool.key].draining
        self.pools = dict(sorted(found.items()))
        self._in_namespace = _by_namespace(self.pools)
        self._retire_pools(before)
        return True

    def _retire_pools(self, before: Mapping[str, Pool]) -> None:
        """What pools had said that are no more, or say it no more."""
        labels = {label: None for pool in before.values() for label in labels_of(pool)}
        kept = {label for pool in self.pools.values() for label in labels_of(pool)}
        self.told.forget(label for label in labels if label not in kept)
        self._former += [pool for key, pool in before.items() if self.pools.get(key) is not pool]

    def _begin(self, pods: Iterable[Pod], now_ns: int) -> None:
        """The pools are others than before: whose of these pods is whose is found anew."""
        by_age = sorted(pods, key=_age_order) if self.pools else ()
        for pod in by_age:
            self._observe_pod(pod, pod.is_terminal, now_ns)
        nodes, self._nodes = self._nodes, {}
        for key, pool in self.pools.items():
            known = nodes.get(key)
            if known is None or known.pool is not pool:
                known = PoolNodes(pool, self.state, known)
            self._nodes[key] = known
        self._is_turn = True
        self._happened.append(ClusterEvent(Change.WARMTH_CHANGED))

    def _check_readiness(self, name: str, nodes: Iterable[PoolNodes]) -> None:
        """A node may be ready for users who wait."""
        for one in nodes:
            if one.refresh_node(name):
                self._is_turn = True
                self._happened.append(ClusterEvent(Change.WARMTH_CHANGED))
                if one.pulled_since_ns:
                    self.figures.record_pull(self.state.now_ns - one.pulled_since_ns)

    def _observe_pod(self, pod: Pod, gone: bool, now_ns: int) -> None:
        uid = pod.metadata.uid
        found = None if gone else self.role_of(pod)
        known = self._known.pop(uid, None)
        if known is not None and known != found:
            self._remove_pod(pod, *known)
        if found is None:
            return
        pool, role = self._known[uid] = found
        former = pool.placeholders.get(uid)
        pool.put(pod, role)
        for other in self._in_namespace[pool.namespace]:
            if other is not pool:
                other.put_other(pod)
        if role is Role.USER and pool.arrivals is not None:
            pool.arrivals.count(uid, pool.came_ns[uid], now_ns)
        if role is Role.PULLER:
            self._check_puller_node(pod, pool)
        elif role is Role.PLACEHOLDER:
            self.keeping.confirm(pod)
            if pod.spec.node_name and not (former is not None and former.spec.node_name):
                row, nodes = self.state.row_of(pod.spec.node_name), self._nodes.get(pool.key)
                is_ready = nodes is not None and row >= 0 and bool(nodes.ready[row])
                self._has_room_come |= is_ready  # it may make way for whoever waits
        elif not pod.spec.node_name:
            made_ns = time_ns(pod.metadata.creation_timestamp)
            since_ns = now_ns if made_ns is None else made_ns
            first_ns = since_ns + pool.spec.images.wait_seconds * SECOND_NS
            # A node may be added for it then, and its images are due after so long.
            more_ns = pool.spec.placeholders.stuck_after_seconds * SECOND_NS
            if uid not in self._waiting:
                self._untold[pool.key] = None
                if now_ns - since_ns > BECOMES_NS:
                    self._become[uid] = None
            self._waiting[uid] = first_ns, first_ns + more_ns
        elif self._waiting.pop(uid, None) is not None:
            self._untold[pool.key] = None
            self.figures.record_user(pod, now_ns)
            row, nodes = self.state.row_of(pod.spec.node_name), self._nodes.get(pool.key)
            self.figures.cold += nodes is not None and row >= 0 and not nodes.ready[row]

    def _remove_pod(self, pod: Pod, pool: Pool, role: Role) -> None:
        """A pod is gone, or is of the pool no more."""
        pool.drop(pod, role)
        for other in self._in_namespace.get(pool.namespace, ()):
            other.overlapping.pop(pod.metadata.uid, None)
        if self._waiting.pop(pod.metadata.uid, None) is not None:
            self._untold[pool.key] = None
        if role is Role.USER:
            self._is_turn = True
        elif role is Role.PULLER:
            self._check_puller_node(pod, pool)
        else:
            self._is_short |= pool.has_own_placeholders
            self.figures.displaced += not self.keeping.has_deleted(pod)

    def _check_puller_node(self, pod: Pod, pool: Pool) -> None:
        nodes = self._nodes.get(pool.key)
        if nodes is not None and pod.spec.node_name:
            self._check_readiness(pod.spec.node_name, (nodes,))

    def role_of(self, pod: Pod) -> tuple[Pool, Role] | None:
        """The pool that the pod is of, the first by name, and what it is there. Whom we keep for
        one is of that one."""
        name = (pod.metadata.labels or {}).get(POOL_LABEL)
        own = self.pools.get(f"{pod.metadata.namespace}/{name}") if name else None
        if own is not None:
            return own, Role.PLACEHOLDER
        for pool in self._in_namespace.get(pod.metadata.namespace, ()):
            role = pool.role_of(pod)
            if role is not None:
                return pool, role
        return None

    # What plugins ask

    def nodes_of(self, pool: Pool) -> PoolNodes:
        """The pool's nodes as they are now."""
        return self._nodes[pool.key]

    def admitted_rows(self, pool: Pool, pod: Pod) -> Bools:
        """bool[row_limit]: nodes of the pool on which the pod may start: those that are ready, and
        once it has waited for too long, the others too: `lateness` says which comes first."""
        nodes, limit = self.nodes_of(pool), self.state.row_limit
        ready = nodes.ready[:limit].copy()
        if pool.spec.images.of_users:
            for image in self.state.shapes.intern(pod).images:
                there = np.zeros(len(ready), np.bool_)
                holders, _ = self.state.images.rows_and_size(image)
                there[holders[holders < len(there)]] = True
                ready &= there
        if not is_maintained(pool, pod):
            return nodes.holds[:limit]
        goes_elsewhere, goes_anywhere = self._has_waited(pod)
        if pool.spec.images.then == "Wait" or not goes_elsewhere:
            return ready
        # On a node that pulls it may wait for ever: it goes there while there is none that is
        # ready, and anywhere when even a node that was added for it should be ready.
        usable = nodes.usable[:limit]
        if goes_anywhere or not usable.any():
            return nodes.holds[:limit]
        return ready if (ready & usable).any() else usable

    def open_rows(self, pool: Pool) -> Bools:
        """bool[row_limit]: nodes of the pool to which its users may go, now or ever: those that are
        neither cordoned for them nor lost, and have no taints that they do not tolerate."""
        nodes, limit = self.nodes_of(pool), self.state.row_limit
        found: Bools = nodes.holds[:limit] & ~np.isin(nodes.codes[:limit], CLOSED_CODES)
        return found

    def lateness(self, pool: Pool, rows: Ints) -> Ints:
        """int64[rows]: 0 where the images are, then 1, 2, ... in the order in which nodes are
        expected to have them."""
        nodes = self.nodes_of(pool)
        if not (nodes.holds & ~nodes.ready).any():
            return np.zeros(len(rows), np.int64)
        waits = [row for row in nodes.rows_by_age if not nodes.ready[row]]
        order = self.figures.sort_by_readiness(waits, nodes.pulls_since_ns, self.state.now_ns)
        late = np.zeros(len(nodes.holds), np.int64)
        late[order] = np.arange(1, len(order) + 1)
        found: Ints = late[rows]
        return found

    def describe_node(self, pool: Pool, row: int) -> str:
        """What the node is for users of the pool, for people."""
        nodes, now_ns = self.nodes_of(pool), self.state.now_ns
        state = nodes.state_of(row)
        if state not in PULLS:
            return str(state or "outside the pool")
        since_ns, expected_ns = int(nodes.pulls_since_ns[row]), self.figures.expected_pull_ns
        here = pool.pullers.get(self.state.node_names[row], {}).values()
        by = ", ".join(sorted(pod.key for pod in here)) or "its kubelet"
        return f"{state} by {by} {pull_text(since_ns, now_ns, expected_ns)}".rstrip()

    def _has_waited(self, pod: Pod) -> tuple[bool, bool]:
        """Whether it goes elsewhere, and anywhere."""
        due_ns = self._waiting.get(pod.metadata.uid)
        now_ns = self.state.now_ns
        return (False, False) if due_ns is None else (now_ns >= due_ns[0], now_ns >= due_ns[1])

    def sharing(self, pool: Pool) -> tuple[Pool, ...]:
        """The pools that share nodes with this one, directly or through others, and itself."""
        return self._sharing.groups(self.pools, self._nodes)[pool.key]

    def users_on(self, pool: Pool) -> Ints:
        """int64[capacity]: users by row, of all pools that share nodes with this one. Read only."""
        return users_on(self.state, self.sharing(pool))

    def placeholders_on(self, pool: Pool) -> Ints:
        """int64[row_limit]: placeholders by row, of all pools that share nodes with this one."""
        return placeholders_on(self.state, self.sharing(pool))

    def select_displaceable(self, pool: Pool, pod: Pod) -> list[PodEntry]:
        """Returns placeholders where the pod may go, in the order in which they are deleted; those
        of other pools only where their priority is lower."""
        admitted = self.admitted_rows(pool, pod)
        pods = self.state.pods
        found = [
            entry
            for other in self.pools.values()
            for uid in other.placeholders
            if (entry := pods.get(uid)) is not None and entry.row >= 0 and admitted[entry.row]
            and (other is pool or entry.pod.priority < pod.priority)
        ]  # fmt: skip
        found.sort(key=_start_order, reverse=True)
        return found

    def promised_node(self, pool: Pool, pod: Pod) -> str:
        """The node that a placeholder was moved to, "" for none."""
        to = (pod.metadata.annotations or {}).get(NODE_ANNOTATION, "")
        return to or next((m.to for m in reversed(pool.moves) if m.pod == pod.key), "")

    def entries(self, pool: Pool) -> list[PodEntry]:
        """Its placeholders, as the state has them, those that started last first."""
        pods = self.state.pods
        found = [entry for uid in pool.placeholders if (entry := pods.get(uid)) is not None]
        found.sort(key=_start_order, reverse=True)
        return found

    # What it does

    @property
    def _has_work(self) -> bool:
        """Whether there are pools, or something is left to do for pools that are no more."""
        return bool(self.pools or self._former or self.told.has_stale_labels)

    def _schedule_round(self, now_ns: int) -> None:
        if not self._has_work:
            self._round_ns = None
        elif self._round_ns is None:
            self._round_ns = -(-now_ns // PERIOD_NS) * PERIOD_NS

    def run(self, now_ns: int, next_id: Callable[[], int], is_held: bool) -> list[Write]:
        """See Companion."""
        if not self._has_work:
            return []
        dues = chain.from_iterable(self._waiting.values())
        if any(self._looked_ns < due_ns <= now_ns for due_ns in dues):
            self._is_turn = True
            self._happened.append(ClusterEvent(Change.WARMTH_CHANGED))
        self._looked_ns = now_ns
        if (is_held or not self._has_decided) and self.repositioner is not None:
            self.repositioner.not_before_ns = now_ns + MINUTE_NS
        self._has_decided, self._is_held = not is_held, is_held
        if is_held:
            return []
        writes: list[Write] = []
        if self._round_ns is not None and now_ns >= self._round_ns:
            self._round_ns = now_ns // PERIOD_NS * PERIOD_NS + PERIOD_NS
            self._former = [p for p in self._former if _has_moved(p, now_ns)]
            for pool in self.pools.values():
                writes += self._guarded(pool, lambda p, id: self._keep(p, now_ns, id), next_id)
            drains = self._plan_drains()
            for pool in self.pools.values():
                writes += self._guarded(
                    pool, lambda p, id: self._move(p, drains[p.key], now_ns, id), next_id
                )
            writes += self._labeler.write(self.pools, self._nodes, next_id)
            self._schedule_round(now_ns)
            self._is_short, self._tell_ns = False, None
            self._untold.clear()
            return writes
        if self._is_short:
            for pool in self.pools.values():
                writes += self._guarded(pool, self._create_missing, next_id)
            self._is_short = False
        if self._tell_ns is not None and now_ns >= self._tell_ns:
            self._tell_ns = None
            for pool in [pool for key, pool in self.pools.items() if key in self._untold]:
                writes += self._guarded(pool, lambda p, id: self._tell(p, now_ns, id), next_id)
            self._untold.clear()
        return writes

    def _guarded(
        self,
        pool: Pool,
        deal: Callable[[Pool, Callable[[], int]], list[Write]],
        next_id: Callable[[], int],
    ) -> list[Write]:
        """Returns the writes for one pool. None where an error is raised: those that were made get
        failed answers, and the next round is the next try."""
        ids: list[int] = []

        def counted() -> int:
            ids.append(next_id())
            return ids[-1]

        try:
            return deal(pool, counted)
        except Exception as error:
            self.entity_failed(pool.obj or pool.key, error)
            for id in ids:
                self.on_answer(id, NOT_SENT, "internal error: not sent", self.state.now_ns)
            return []

    def _keep(self, pool: Pool, now_ns: int, next_id: Callable[[], int]) -> list[Write]:
        """As many placeholders as are wanted."""
        nodes, entries = self.nodes_of(pool), self.entries(pool)
        if nodes.look():  # whoever has waited for long may go elsewhere
            self._is_turn = True
            self._happened.append(ClusterEvent(Change.WARMTH_CHANGED))
        pool.wanted = self._count_wanted(pool, now_ns)
        writes = self._create_missing(pool, next_id)
        if not writes:
            writes = self.keeping.adjust(pool, entries, self.users_on(pool), nodes, next_id)
        self.figures.lowered += sum(isinstance(write, DeletePod) for write in writes)
        return writes

    def _move(
        self, pool: Pool, drain: Plan, now_ns: int, next_id: Callable[[], int]
    ) -> list[Write]:
        """Placeholders that are to go elsewhere; and the status."""
        writes: list[Write] = []
        if self.repositioner is not None:
            plan, pools = self._plan(pool, drain), (*self.pools.values(), *self._former)
            writes += self.repositioner.make_moves(pool, plan, now_ns, pools, self.keeping, next_id)
            self.figures.moved += sum(isinstance(write, DeletePod) for write in writes)
        return writes + self._tell(pool, now_ns, next_id)

    def _plan_drains(self) -> dict[str, Plan]:
        """By pool, the plan that it has in common with the pools that share nodes with it."""
        found = dict.fromkeys(self.pools, NO_PLAN)
        if self.repositioner is not None:
            groups = self._sharing.groups(self.pools, self._nodes)
            for group in {id(one): one for one in groups.values()}.values():
                parts, users = map(self._part, group), self.users_on(group[0])
                plan = self.repositioner.plan_drains(parts, users, self.entity_failed)
                found |= {pool.key: plan for pool in group}
        return found

    def _part(self, pool: Pool) -> Part:
        return part_of(pool, self.nodes_of(pool), self.entries(pool), self.keeping)

    def _plan(self, pool: Pool, drain: Plan) -> Plan:
        assert self.repositioner is not None
        found = self.repositioner.plan(self._part(pool), drain)
        pool.kept = {**found.kept}
        return found

    def _create_missing(self, pool: Pool, next_id: Callable[[], int]) -> list[Write]:
        """As many placeholders as are missing on nodes that users can use; and where these have no
        room for them, as many as stuck nodes have: an autoscaler, who does not see images, adds no
        node while pods that wait would fit there."""
        if not pool.has_own_placeholders:
            return []
        entries = self.entries(pool)
        useful = self.keeping.count_useful(pool, entries, self.nodes_of(pool))
        missing = pool.wanted - useful
        if missing <= 0:
            return []
        nodes, like, fill = self.nodes_of(pool), entries[0] if entries else None, 0
        if like is not None:
            free = free_slots(self.state, like)
            if free[nodes.rows_that_are(*USABLE)].sum() < missing:
                fill = int(free[nodes.rows_that_are(NodeState.STUCK)].sum())
        return self.keeping.create(pool, useful, missing, fill, next_id)

    def _tell(self, pool: Pool, now_ns: int, next_id: Callable[[], int]) -> list[Write]:
        """Writes the pool's status, where it is another."""
        entries, sharing = self.entries(pool), self.sharing(pool)
        status = pool_status(pool, self.nodes_of(pool), entries, self.state, sharing)
        return self.told.status(pool, status, now_ns, next_id)

    def plan_of(self, pool: Pool) -> Plan:
        """Which nodes are to empty now, and what would move, were there no limits."""
        return self._plan(pool, self._plan_drains()[pool.key])

    def wanted_count(self, pool: Pool) -> int:
        """How many placeholders are wanted now."""
        return self._count_wanted(pool, self.state.now_ns)

    def _count_wanted(self, pool: Pool, now_ns: int) -> int:
        if not pool.has_own_placeholders:
            return len(pool.placeholders)
        spec, profiled = pool.spec.placeholders, 0
        if pool.arrivals is not None:
            pool.arrivals.advance(now_ns)
            profiled = pool.arrivals.reserve(now_ns, spec.profile_seconds)
        return count_wanted(spec, pool.users, pool.came_ns, now_ns, profiled)

    # What is asked of every companion

    def take_cluster_events(self) -> list[ClusterEvent]:
        """See Companion."""
        found, self._happened = self._happened, []
        return found

    def take_pods_to_activate(self) -> list[tuple[str, str]]:
        """See Companion: users come first who came first."""
        become, self._become = self._become, {}
        if not (self._is_turn or self._has_room_come):
            return [(uid, "") for uid in become]
        by_anybody = self._has_room_come
        self._is_turn = self._has_room_come = False
        uids = sorted(self._waiting, key=lambda uid: (self._arrival_ns(uid), uid))
        return [(uid, "" if by_anybody or uid in become else "ImageReadiness") for uid in uids]

    def _arrival_ns(self, uid: str) -> int:
        return next((p.came_ns[uid] for p in self.pools.values() if uid in p.came_ns), 0)

    def on_answer(self, id: int, code: int, message: str, now_ns: int) -> None:
        """See Companion. What was refused is tried again with the next round."""
        if self.told.handle_answer(id, code, message, now_ns):
            self._schedule_round(now_ns)  # a label may be left, though no pool is
        else:
            self.keeping.handle_answer(id, code, message)

    @property
    def next_wake_ns(self) -> int | None:
        """See Companion."""
        due = [d for dues in self._waiting.values() for d in dues if d > self._looked_ns]
        if not self._is_held:
            due += [one for one in (self._round_ns, self._tell_ns) if one is not None]
        return min(due, default=None)

    def take_log_lines(self) -> list[tuple[str, str, str]]:
        """See Companion."""
        own, self._registry.notes = self._registry.notes, []
        return own + self.keeping.notes() + self.told.notes()

    def metrics(self) -> list[Metric]:
        """See Companion."""
        pools = self.pools.values()
        return self.figures.metrics(self.state, pools, self._nodes, self.sharing)

    @property
    def is_idle(self) -> bool:
        """See Companion."""
        return not (self.keeping.is_open or self.told.is_open)

    def on_request(self, id: int, method: str, body: bytes, now_ns: int) -> bool:
        """Nobody asks it."""
        return False


def _age_order(pod: Pod) -> tuple[str, str]:
    """Arrivals are counted in this order, whatever the list's."""
    return pod.metadata.creation_timestamp or "", pod.key


def _by_namespace(pools: Mapping[str, Pool]) -> dict[str, list[Pool]]:
    found: dict[str, list[Pool]] = {}
    for pool in pools.values():
        found.setdefault(pool.namespace, []).append(pool)
    return found


def _has_moved(pool: Pool, now_ns: int) -> bool:
    """Returns whether placeholders of the pool were moved within the last minute."""
    return any(is_recent(move, now_ns - MINUTE_NS, now_ns) for move in pool.moves)


def _start_order(entry: PodEntry) -> tuple[str, str]:
    """When it started, or was made; reversed, who came last comes first."""
    pod = entry.pod
    return pod.status.start_time or pod.metadata.creation_timestamp or "", pod.key
