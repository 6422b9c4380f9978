"""Warm capacity as a whole: knows pools, keeps placeholders, empties nodes, tells how it stands.

What it does, it does every PERIOD_NS of the clock, from objects alone; only the number of its own
placeholders is made up for at once.
"""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from stower.framework.changes import Change, Happened
from stower.framework.companion import Metric, Placing
from stower.framework.writes import DeletePod, Write
from stower.model.kinds import ApiObject, Node, Pod, WarmPool
from stower.model.kinds.warm_pool import WarmPoolStatus
from stower.model.resources import PODS
from stower.model.times import SECOND_NS, time_ns
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState, PodEntry
from stower.state.shapes import Shape
from stower.warm.figures import Figures
from stower.warm.keeping import NODE_ANNOTATION, Keeping
from stower.warm.moves import Plan
from stower.warm.nodes import PoolNodes
from stower.warm.pools import Pool, Role
from stower.warm.readiness import is_maintained
from stower.warm.repositioning import Repositioner
from stower.warm.status import Told
from stower.warm.target import wanted

PERIOD_NS: Final = 10 * SECOND_NS


class WarmCapacity:
    """See Companion."""

    def __init__(self, state: ClusterState, pools: Iterable[Pool] = ()) -> None:
        """`pools`: those of the configuration; others come as objects."""
        self.state = state
        self.pools: dict[str, Pool] = {pool.key: pool for pool in pools}
        self._own = dict(self.pools)
        self._nodes: dict[str, PoolNodes] = {}  # by pool
        self._known: dict[str, tuple[Pool, Role]] = {}  # by uid, whose pod it is
        self._round_ns: int | None = None  # when the next round is due
        self._waiting: dict[str, int] = {}  # users without a node: when they go elsewhere
        self._is_short = False  # a placeholder of our own may be missing
        self._happened: list[Happened] = []
        self._is_turn = False  # of users who wait
        self._looked_ns = 0
        self._made_way: dict[str, int] = {}  # rows of placeholders, by uid, as a trial begins
        self.figures = Figures()
        self.keeping = Keeping(state)
        self.told = Told()
        self.repositioner: Repositioner | None = None

    def join(self, placing: Placing) -> None:
        """See Companion."""
        self.repositioner = Repositioner(self.state, placing)

    # What it is told

    def observed(self, obj: ApiObject, gone: bool, now_ns: int) -> None:
        """See Companion."""
        if isinstance(obj, WarmPool):
            self._pool(obj, gone, now_ns)
        elif not self.pools:
            return
        elif isinstance(obj, Pod):
            self._pod(obj, gone or obj.is_terminal, now_ns)
        elif isinstance(obj, Node):
            self._look_at(obj.metadata.name, self._nodes.values())
        self._wake(now_ns)

    def listed(self, objects: Iterable[ApiObject], now_ns: int) -> None:
        """See Companion."""
        known = list(objects)
        old, self.pools = self.pools, dict(self._own)
        for obj in known:
            if isinstance(obj, WarmPool):
                self.pools[obj.metadata.key] = _adopted(obj, old.get(obj.metadata.key))
        self.keeping.forget()
        self._begin((obj for obj in known if isinstance(obj, Pod)), now_ns)
        self._wake(now_ns)

    def _pool(self, obj: WarmPool, gone: bool, now_ns: int) -> None:
        key = obj.metadata.key
        old = self.pools.get(key)
        if not gone and old is not None and old.obj is not None and old.spec == obj.spec:
            old.show(obj)
            return
        if not gone:
            self.pools[key] = _adopted(obj, old)
        elif key in self._own:
            self.pools[key] = self._own[key]
        else:
            self.pools.pop(key, None)
        self._begin([entry.pod for entry in self.state.pods.values()], now_ns)

    def _begin(self, pods: Iterable[Pod], now_ns: int) -> None:
        """The pools are others than before: whose pod is whose is found anew."""
        self.pools = dict(sorted(self.pools.items()))
        self._waiting.clear()
        self._known.clear()
        for pool in self.pools.values():
            pool.clear()
        for pod in pods if self.pools else ():
            self._pod(pod, pod.is_terminal, now_ns)
        self._nodes = {key: PoolNodes(pool, self.state) for key, pool in self.pools.items()}
        self._is_turn = True
        self._happened.append(Happened(Change.WARMTH_CHANGED))

    def _look_at(self, name: str, nodes: Iterable[PoolNodes]) -> None:
        """A node may be ready for users who wait."""
        for one in nodes:
            if one.look(name):
                self._is_turn = True
                self._happened.append(Happened(Change.WARMTH_CHANGED))
                self.figures.node_ready(self.state, name)

    def _pod(self, pod: Pod, gone: bool, now_ns: int) -> None:
        uid = pod.metadata.uid
        found = None if gone else self.role_of(pod)
        known = self._known.pop(uid, None)
        if known is not None and known != found:
            self._left(pod, *known)
        if found is None:
            return
        pool, role = self._known[uid] = found
        pool.put(pod, role)
        if role is Role.PULLER:
            self._pulls(pod, pool)
        elif role is Role.PLACEHOLDER:
            self.keeping.saw(pod)
        elif not pod.spec.node_name:
            made_ns = time_ns(pod.metadata.creation_timestamp)
            since_ns = now_ns if made_ns is None else made_ns
            self._waiting[uid] = since_ns + pool.spec.images.wait_seconds * SECOND_NS
        elif self._waiting.pop(uid, None) is not None:
            self.figures.user_placed(pod, now_ns)

    def _left(self, pod: Pod, pool: Pool, role: Role) -> None:
        """A pod is gone, or is of the pool no more."""
        pool.drop(pod, role)
        self._waiting.pop(pod.metadata.uid, None)
        if role is Role.USER:
            self._is_turn = True
        elif role is Role.PULLER:
            self._pulls(pod, pool)
        else:
            self._is_short |= pool.keeps_its_own

    def _pulls(self, pod: Pod, pool: Pool) -> None:
        nodes = self._nodes.get(pool.key)
        if nodes is not None and pod.spec.node_name:
            self._look_at(pod.spec.node_name, (nodes,))

    def role_of(self, pod: Pod) -> tuple[Pool, Role] | None:
        """The pool that the pod is of, the first by name, and what it is there."""
        for pool in self.pools.values():
            role = pool.role_of(pod)
            if role is not None:
                return pool, role
        return None

    # What plugins ask

    def nodes_of(self, pool: Pool) -> PoolNodes:
        """The pool's nodes as they are now."""
        return self._nodes[pool.key]

    def admitted(self, pool: Pool, pod: Pod) -> Bools:
        """bool[row_limit]: nodes of the pool on which the pod may start: those that are ready, and
        once it has waited for too long, the one that will be so first."""
        nodes, limit = self.nodes_of(pool), self.state.row_limit
        ready = nodes.ready[:limit].copy()
        if pool.spec.images.of_users:
            for image in self.state.shapes.intern(pod).images:
                there = np.zeros(len(ready), np.bool_)
                holders, _ = self.state.images.holders(image)
                there[holders[holders < len(there)]] = True
                ready &= there
        if not is_maintained(pool, pod):
            return nodes.holds[:limit]
        if pool.spec.images.then == "Wait" or self._is_patient(pool, pod):
            return ready
        late = [row for row in nodes.oldest_first if not ready[row]]
        if late:
            ready[self.figures.soonest(late, nodes.born_ns, self.state.now_ns)] = True
        return ready

    def _is_patient(self, pool: Pool, pod: Pod) -> bool:
        due_ns = self._waiting.get(pod.metadata.uid)
        return due_ns is None or self.state.now_ns < due_ns

    def users_on(self, pool: Pool) -> Ints:
        """int64[capacity]: users by row. Read only."""
        key = (frozenset((pool.namespace,)), pool.spec.users)
        return self.state.tally(key).counts

    def placeholders_on(self, pool: Pool) -> Ints:
        """int64[row_limit]: placeholders by row, those as well that are supposed to make way."""
        counts = np.zeros(self.state.row_limit, np.int64)
        pods = self.state.pods
        for entry in (pods[uid] for uid in pool.placeholders if uid in pods):
            row = entry.row if entry.row >= 0 else self._made_way.get(entry.uid, -1)
            if row >= 0:
                counts[row] += 1
        return counts

    def is_full_beside(self, pool: Pool, shape: Shape) -> Bools:
        """bool[row_limit]: where such a pod does not fit beside those that are to make way."""
        limit = self.state.row_limit
        full = np.zeros(limit, np.bool_)
        held_by: dict[int, list[Shape]] = {}
        for uid, row in self._made_way.items():
            entry = self.state.pods.get(uid)
            if entry is not None and entry.row < 0:
                held_by.setdefault(row, []).append(entry.shape)
        for row, shapes in held_by.items():
            for column, amount in (*shape.requests, (self.state.column(PODS), 1)):
                held = sum(a for one in shapes for c, a in one.use if c is column)
                full[row] |= column.used[row] + amount + held > column.alloc[row]
        return full

    def make_way(self, pool: Pool, pod: Pod) -> list[PodEntry]:
        """Its placeholders where the pod may go, in the order in which they leave; where they are
        is remembered."""
        admitted = self.admitted(pool, pod)
        pods = self.state.pods
        found = [
            entry
            for uid in pool.placeholders
            if (entry := pods.get(uid)) is not None and entry.row >= 0 and admitted[entry.row]
        ]
        found.sort(key=_latest_first, reverse=True)
        self._made_way = {entry.uid: entry.row for entry in found}
        return found

    def promised_to(self, pool: Pool, pod: Pod) -> str:
        """The node that a placeholder was moved to, "" for none."""
        to = (pod.metadata.annotations or {}).get(NODE_ANNOTATION, "")
        return to or next((m.to for m in reversed(pool.moves) if m.pod == pod.key), "")

    def entries(self, pool: Pool) -> list[PodEntry]:
        """Its placeholders, as the state has them, those that started last first."""
        pods = self.state.pods
        found = [entry for uid in pool.placeholders if (entry := pods.get(uid)) is not None]
        found.sort(key=_latest_first, reverse=True)
        return found

    # What it does

    def _wake(self, now_ns: int) -> None:
        if not self.pools:
            self._round_ns = None
        elif self._round_ns is None:
            self._round_ns = -(-now_ns // PERIOD_NS) * PERIOD_NS

    def run(self, now_ns: int, next_id: Callable[[], int], is_held: bool) -> list[Write]:
        """See Companion."""
        if not self.pools:
            return []
        if any(self._looked_ns < due_ns <= now_ns for due_ns in self._waiting.values()):
            self._is_turn = True
            self._happened.append(Happened(Change.WARMTH_CHANGED))
        self._looked_ns = now_ns
        if is_held:
            return []
        writes: list[Write] = []
        if self._round_ns is not None and now_ns >= self._round_ns:
            self._round_ns = now_ns // PERIOD_NS * PERIOD_NS + PERIOD_NS
            for pool in self.pools.values():
                writes += self._round(pool, now_ns, next_id)
        elif self._is_short:
            for pool in self.pools.values():
                writes += self.keeping.made_up_for(pool, next_id)
        self._is_short = False
        return writes

    def _round(self, pool: Pool, now_ns: int, next_id: Callable[[], int]) -> list[Write]:
        nodes, entries = self.nodes_of(pool), self.entries(pool)
        users = self.users_on(pool)
        pool.wanted = self._wanted(pool, nodes, users, entries, now_ns)
        writes = self.keeping.adjusted(pool, entries, users, next_id)
        self.figures.lowered += sum(isinstance(write, DeletePod) for write in writes)
        if self.repositioner is not None:
            plan = self.plan_of(pool)
            moves = self.repositioner.moved(pool, plan, now_ns, self.keeping, next_id)
            self.figures.moved += sum(isinstance(write, DeletePod) for write in moves)
            writes += moves
        writes += self.told.labels(pool, self.state, nodes.oldest_first, nodes.ready, next_id)
        writes += self.told.status(pool, self._status(pool, nodes, entries), next_id)
        return writes

    def plan_of(self, pool: Pool) -> Plan:
        """Which nodes are to empty now, and what would move, were there no limits."""
        assert self.repositioner is not None
        oldest_first = self.nodes_of(pool).oldest_first
        return self.repositioner.plan(pool, oldest_first, self.users_on(pool), self.entries(pool))

    def wanted_of(self, pool: Pool) -> int:
        """How many placeholders are wanted now."""
        nodes, entries = self.nodes_of(pool), self.entries(pool)
        return self._wanted(pool, nodes, self.users_on(pool), entries, self.state.now_ns)

    def _wanted(
        self, pool: Pool, nodes: PoolNodes, users: Ints, entries: list[PodEntry], now_ns: int
    ) -> int:
        spec = pool.spec.placeholders
        if not pool.keeps_its_own:
            return len(pool.placeholders)
        stuck = 0
        late_ns = now_ns - spec.stuck_after_seconds * SECOND_NS
        shape = next((entry.shape for entry in entries), None)
        for row in nodes.oldest_first:
            if shape is not None and not nodes.ready[row] and nodes.born_ns[row] < late_ns:
                slots = min(
                    (int(column.allocatable[row]) // amount for column, amount in shape.requests),
                    default=0,
                )
                stuck += max(0, slots - int(users[row]))
        return wanted(spec, pool.users, pool.came_ns, stuck, now_ns)

    def _status(self, pool: Pool, nodes: PoolNodes, entries: list[PodEntry]) -> WarmPoolStatus:
        placed = sum(entry.row >= 0 for entry in entries)
        pods = self.state.pods
        waiting = sum(uid in pods and pods[uid].row < 0 for uid in pool.users)
        pending = len(entries) - placed
        expected = ""
        if pending or waiting:
            expected = f"scale-up for {waiting} users and {pending} placeholders"
        elif pool.draining:
            expected = f"scale-down of {', '.join(pool.draining)}"
        return WarmPoolStatus(
            nodes=len(nodes.oldest_first), ready_nodes=int(nodes.ready.sum()),
            users=len(pool.users) - waiting, waiting_users=waiting, wanted=pool.wanted,
            placed=placed, pending=pending, expected=expected,
            draining=pool.draining or None, moves=tuple(pool.moves) or None,
        )  # fmt: skip

    # What is asked of every companion

    def happened(self) -> list[Happened]:
        """See Companion."""
        found, self._happened = self._happened, []
        return found

    def in_turn(self) -> list[str]:
        """See Companion: users come first who came first."""
        if not self._is_turn:
            return []
        self._is_turn = False
        return sorted(self._waiting, key=lambda uid: (self._came_ns(uid), uid))

    def _came_ns(self, uid: str) -> int:
        return next((p.came_ns[uid] for p in self.pools.values() if uid in p.came_ns), 0)

    def answered(self, id: int, code: int, message: str, now_ns: int) -> bool:
        """See Companion. What was refused is tried again with the next round."""
        return self.keeping.answered(id, code, message) or self.told.answered(id)

    @property
    def next_wake_ns(self) -> int | None:
        """See Companion."""
        due = [due_ns for due_ns in self._waiting.values() if due_ns > self._looked_ns]
        if self._round_ns is not None:
            due.append(self._round_ns)
        return min(due, default=None)

    def notes(self) -> list[tuple[str, str, str]]:
        """See Companion."""
        return self.keeping.notes()

    def metrics(self) -> list[Metric]:
        """See Companion."""
        return self.figures.metrics(self.pools.values())

    @property
    def is_settled(self) -> bool:
        """See Companion."""
        return not (self.keeping.is_open or self.told.is_open)

    def asked(self, id: int, method: str, body: bytes, now_ns: int) -> bool:
        """Nobody asks it."""
        return False


def _adopted(obj: WarmPool, old: Pool | None) -> Pool:
    """What was moved just now may not be shown yet."""
    pool = Pool(obj.metadata.key, obj.spec, obj)
    if old is not None:
        pool.moves += [move for move in old.moves if move not in pool.moves]
        pool.draining = old.draining
    return pool


def _latest_first(entry: PodEntry) -> tuple[str, str]:
    """When it started, or was made; reversed, who came last comes first."""
    pod = entry.pod
    return pod.status.start_time or pod.metadata.creation_timestamp or "", pod.key
