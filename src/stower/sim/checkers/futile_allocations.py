"""Law `futile-allocations`: drivers do not allocate for a claim again and again in vain."""

from collections import deque
from typing import Final

from stower.framework.events import WatchType
from stower.model.kinds import Pod, ResourceClaim
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker, Court, count_recent
from stower.sim.server import Change

HOUR_NS: Final = 3_600 * SECOND_NS
# Attempts of a refused group: four at once as long as each shows that a node has fewer devices than
# expected, then after 30 s, doubling to 10 minutes.
FUTILE_MAX: Final = 16


class _Use:
    """One claim: the pods that its allocation was for, and when its allocations ended in vain."""

    __slots__ = ("ended_ns", "is_allocated", "users")

    def __init__(self) -> None:
        self.is_allocated = False
        self.users: set[str] = set()
        self.ended_ns: deque[int] = deque()


class FutileAllocations(Checker):
    """Counts the allocations of each claim that end before a pod with the claim has a node.

    An allocation that ends because the claim is deleted does not count. Whether anything has
    changed between two allocations does not matter: other pods with claims at the driver wait
    meanwhile.
    """

    law = "futile-allocations"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._uses: dict[str, _Use] = {}  # by the claim's uid
        self._bound: set[str] = set()  # uids of pods

    def on_change(self, change: Change) -> None:
        """Counts allocations that end."""
        _, kind, obj = change
        if isinstance(obj, Pod) and obj.spec.node_name:
            self._bound.add(obj.metadata.uid)
        elif isinstance(obj, ResourceClaim) and kind is WatchType.DELETED:
            self._uses.pop(obj.metadata.uid, None)
        elif isinstance(obj, ResourceClaim):
            self._on_claim(obj)

    def _on_claim(self, claim: ResourceClaim) -> None:
        meta, is_allocated = claim.metadata, claim.status.allocation is not None
        use = self._uses.get(meta.uid)
        if use is None:
            if not is_allocated:
                return
            use = self._uses[meta.uid] = _Use()
        was_allocated, use.is_allocated = use.is_allocated, is_allocated
        if is_allocated:
            use.users.update(user.uid for user in claim.status.reserved_for or ())
        elif was_allocated:
            is_futile = meta.deletion_timestamp is None and self._bound.isdisjoint(use.users)
            use.users.clear()
            if is_futile:
                self._count(claim, use.ended_ns)

    def _count(self, claim: ResourceClaim, ended_ns: deque[int]) -> None:
        now_ns = self.court.agenda.now_ns
        if count_recent(ended_ns, now_ns, HOUR_NS) > FUTILE_MAX:
            raise self.violation(
                f"claim {claim.metadata.key} was allocated {len(ended_ns)} times within "
                f"{(now_ns - ended_ns[0]) // SECOND_NS} s without a pod that was bound with it, "
                f"want at most {FUTILE_MAX} an hour"
            )
