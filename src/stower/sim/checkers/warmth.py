"""Law `warmth`: users of a warm pool displace placeholders and get nodes with their images.

Placeholders move no more often than their pool allows, and from no node to which another pool moves
its own. Those on nodes that users cannot use do not count.
"""

from collections import deque

from stower.framework.events import Event, WatchType
from stower.framework.writes import CreateObject, DeletePod, Write
from stower.model.kinds import Node, Pod, WarmPool
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Binds, Checker, Court, describe_shortage, on_node
from stower.sim.scheduler import SchedulerProcess
from stower.sim.server import Change
from stower.warm.placeholders import NODE_ANNOTATION
from stower.warm.pools import POOL_LABEL, Pool, Role

MINUTE_NS = 60 * SECOND_NS


class Warmth(Checker):
    """Looks at moves in any minute, through crashes and elections; at where users are bound; and at
    the end at who waits, and at how many placeholders there are."""

    law = "warmth"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._binds = Binds()
        # When placeholders were moved: by the clock of whose engine did it, and by ours.
        self._moves: deque[tuple[str, int, int, int]] = deque()

    def on_step(self, process: SchedulerProcess, event: Event, writes: list[Write]) -> None:
        """Count the placeholders that take the place of others elsewhere."""
        now_ns = self.court.agenda.now_ns
        self._look_at_refuges(writes)
        for write in writes:
            if not isinstance(write, CreateObject) or write.view is not Pod:
                continue
            if NODE_ANNOTATION not in (write.body["metadata"].get("annotations") or {}):
                continue
            self._moves.append((process.name, process.lives, process.now_ns, now_ns))
            while self._moves and self._is_over(self._moves[0], process, now_ns):
                self._moves.popleft()
            most = max((p.spec.repositioning.per_minute for p in self._pools()), default=0)
            if most and len(self._moves) > most:
                raise self.violation(
                    f"{len(self._moves)} placeholder moves in a minute, want at most {most}; the "
                    f"last one creates {write.name}"
                )

    def _look_at_refuges(self, writes: list[Write]) -> None:
        """A move is a deletion, and then what takes the place of the pod."""
        moves, left = [], ""
        for write in writes:
            if isinstance(write, DeletePod):
                pod = self.court.server.get(Pod, f"{write.namespace}/{write.name}")
                left = pod.spec.node_name if pod is not None else ""
            elif isinstance(write, CreateObject) and write.view is Pod:
                meta = write.body["metadata"]
                to = (meta.get("annotations") or {}).get(NODE_ANNOTATION)
                if to and left:
                    moves.append((meta["labels"][POOL_LABEL], left, to))
                left = ""
        drains = {p.metadata.name for p in self._pools() if p.spec.repositioning.mode == "Drain"}
        for pool, left, _ in moves:
            for other, _, to in moves:
                if pool in drains and pool != other and to == left:
                    raise self.violation(
                        f"pool {pool} moves a placeholder away from {left}, to which pool {other} "
                        "moves one at the same time"
                    )

    def _is_over(
        self, move: tuple[str, int, int, int], process: SchedulerProcess, now_ns: int
    ) -> bool:
        name, lives, at_ns, real_ns = move
        if (name, lives) == (process.name, process.lives):
            return process.now_ns - at_ns >= MINUTE_NS
        return now_ns - real_ns >= MINUTE_NS

    def on_change(self, change: Change) -> None:
        """A user gets a node."""
        pod = self._binds.find_bound_pod(change)
        if pod is None or change[1] is WatchType.DELETED:
            return
        for pool in self._pools():
            if Pool(pool.metadata.key, pool.spec, pool).role_of(pod) is not Role.USER:
                continue
            images = pool.spec.images
            node = self.court.server.get(Node, pod.spec.node_name)
            # Engines count from a time that has whole seconds, by clocks that may have jumped.
            clock_ns = max((p.now_ns for p in self.court.schedulers), default=0)
            waited_ns = clock_ns - self.court.server.creation_ns(pod) + SECOND_NS
            if node is None or _has(node, images.names or ()):
                return
            if waited_ns < images.wait_seconds * SECOND_NS:
                raise self.violation(
                    f"user {pod.key} is bound to {pod.spec.node_name} without its images after "
                    f"{waited_ns / 1e9:.0f} s, want a wait of {images.wait_seconds} s"
                )

    def check_end(self) -> None:
        """Nobody waits whom placeholders keep out, and there are as many of these as are wanted."""
        server = self.court.server
        for pool in self._pools():
            known = Pool(pool.metadata.key, pool.spec, pool)
            own = [p for p in server.all(Pod).values() if _label(p) == pool.metadata.name]
            useful = [p for p in own if self._can_be_used(p.spec.node_name)]
            wanted = pool.spec.placeholders.replicas
            if len(own) != wanted or len(useful) != wanted:
                raise self.violation(
                    f"pool {pool.metadata.key} has {len(own)} placeholders, {len(useful)} of them "
                    f"on nodes that users can use or on none; want {wanted}"
                )
            self._check_agreement(pool)
            for user in server.pods_on("").values():
                if known.role_of(user) is not Role.USER or user.is_terminal:
                    continue
                for node in server.all(Node).values():
                    here = on_node(server, node.metadata.name)
                    beside = [p for p in here if known.role_of(p) is not Role.PLACEHOLDER]
                    if self._can_be_used(node.metadata.name) and not describe_shortage(
                        node, [*beside, user]
                    ):
                        raise self.violation(
                            f"user {user.key} is pending, but node {node.metadata.name} has room "
                            "without placeholders"
                        )

    def _check_agreement(self, pool: WarmPool) -> None:
        """What it drains, every other pool drains, as the nodes are the same: or is rid of."""
        for other in self._pools():
            if other.spec.repositioning.mode == "Off" or other is pool:
                continue
            for name in pool.status.draining or ():
                here = self.court.server.pods_on(name).values()
                held = [p.key for p in here if _label(p) == other.metadata.name]
                if held and name not in (other.status.draining or ()):
                    raise self.violation(
                        f"pool {pool.metadata.key} drains node {name}, on which pool "
                        f"{other.metadata.key} keeps {held[0]}"
                    )

    def _can_be_used(self, name: str) -> bool:
        """Whether users may go to the node, or there is none."""
        node = self.court.server.get(Node, name) if name else None
        return node is None or not (node.spec.unschedulable or node.spec.taints)

    def _pools(self) -> list[WarmPool]:
        return [*self.court.server.all(WarmPool).values()]


def _label(pod: Pod) -> str | None:
    return (pod.metadata.labels or {}).get(POOL_LABEL)


def _has(node: Node, names: tuple[str, ...]) -> bool:
    there = {name for image in node.status.images or () for name in image.names or ()}
    return there.issuperset(names)
