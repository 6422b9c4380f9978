"""Reserved CPU and memory of one node, pod by pod, and how much more can be approved.

Only arithmetic: no API, no time. Every change logs its inverse in the journal while a trial is
open.
Source: seed 004; neondatabase/autoscaling pkg/plugin/state/node.go.
"""

from collections.abc import Mapping
from typing import Final

from stower.model.kinds import Node
from stower.model.quantity import QuantityError, quantity_of
from stower.state.journal import Journal
from stower.vms.amounts import CPU_MASK, MEMORY_MASK
from stower.vms.pods import Holding, PodState


class InvalidHoldingError(Exception):
    """What was asked for makes no sense: nothing is granted to this object, and others go on."""


class Use:
    """CPU or memory of one node. `reserved` counts the discounts of overcommitted pods,
    `committed` does not; `migrating`: what of `reserved` leaves with migrations under way."""

    __slots__ = ("committed", "mask", "migrating", "reserved", "total", "watermark")

    def __init__(self, mask: int, total: int, watermark: float) -> None:
        self.mask = mask  # all amounts have so many bits
        self.total = total & mask
        self.watermark = int(float(self.total) * watermark)
        self.reserved = 0
        self.committed = 0
        self.migrating = 0

    @property
    def is_over(self) -> bool:
        """Whether more is reserved than there is."""
        return self.reserved > self.total

    @property
    def excess_over_watermark(self) -> int:
        """How much above the watermark stays even when all migrations have ended."""
        if self.migrating > self.reserved:
            raise InvalidHoldingError(
                "unexpectedly migrating more resources than are reserved: "
                f"{self.migrating} > {self.reserved}"
            )
        return max(self.reserved - self.migrating - self.watermark, 0)

    def count(self, holding: Holding, migrating: bool, sign: int) -> None:
        """Add a pod's (sign 1), or take it away (-1)."""
        used = discounted_amount(holding, self.mask)
        self.reserved = (self.reserved + sign * used) & self.mask
        self.committed = (self.committed + sign * holding.reserved) & self.mask
        if migrating:
            self.migrating = (self.migrating + sign * used) & self.mask

    def granted(self, holding: Holding) -> Holding:
        """The holding with as much as it can have now of what it would like. Less is given at once;
        more in whole steps, up to what is free. Raises InvalidHoldingError."""
        want, have = holding.requested, holding.reserved
        if want <= have:
            return holding._replace(reserved=want)
        free = max(self.total - self.reserved, 0)
        # What is free counts as much more for a pod whose use is discounted.
        room = _quotient(_to_int64(_to_int64(free) * holding.overcommit), 1000) & self.mask
        if not holding.factor:
            raise InvalidHoldingError("cannot reserve more resources: the scaling unit is 0")
        grown = room // holding.factor * holding.factor
        return holding._replace(reserved=have + min(grown, want - have))


def discounted_amount(holding: Holding, mask: int) -> int:
    """What the pod takes of its node. Raises InvalidHoldingError."""
    if holding.overcommit == NO_DISCOUNT and holding.reserved < SMALL:
        return holding.reserved
    if not holding.overcommit:
        raise InvalidHoldingError("overcommit factor must not be 0")
    return _quotient(_to_int64(_to_int64(holding.reserved) * 1000), holding.overcommit) & mask


NO_DISCOUNT: Final = 1000
SMALL: Final = 2**53  # no product of these overflows


def _to_int64(number: int) -> int:
    """As an int64 holds it."""
    return (number + 2**63) % 2**64 - 2**63


def _quotient(number: int, divisor: int) -> int:
    """Rounded towards 0."""
    found = abs(number) // abs(divisor)
    return found if (number < 0) == (divisor < 0) else -found


class VmNode:
    """One node with its pods, VMs and others."""

    __slots__ = ("_changed", "_journal", "cpu", "labels", "memory", "migratable", "name", "pods")

    def __init__(
        self,
        name: str,
        cpu: Use,
        memory: Use,
        labels: Mapping[str, str],
        journal: Journal,
        changed: dict[str, None] | None = None,
    ) -> None:
        """`changed`: where the names of nodes are put down that have changed."""
        self._changed = {} if changed is None else changed
        self.name = name
        self.cpu = cpu
        self.memory = memory
        self.labels = dict(labels)  # those that metrics have
        self.pods: dict[str, PodState] = {}  # by uid
        self.migratable: dict[str, None] = {}
        self._journal = journal

    @property
    def is_over(self) -> bool:
        """Whether more is reserved than there is."""
        return self.cpu.is_over or self.memory.is_over

    @property
    def is_above_watermark(self) -> bool:
        """Whether more has to leave than does."""
        return self.cpu.excess_over_watermark > 0 or self.memory.excess_over_watermark > 0

    def add(self, pod: PodState) -> None:
        """A pod is here now."""
        if pod.uid in self.pods:
            raise InvalidHoldingError("cannot add Pod that already exists")
        # Both are known to be countable before one is counted.
        discounted_amount(pod.cpu, CPU_MASK), discounted_amount(pod.memory, MEMORY_MASK)
        self.cpu.count(pod.cpu, pod.migrating, 1)
        self.memory.count(pod.memory, pod.migrating, 1)
        self.pods[pod.uid] = pod
        self._changed[self.name] = None
        if pod.migratable:
            self.migratable[pod.uid] = None
        if self._journal.is_recording:
            self._journal.log(self._undo_add, pod.uid)

    def remove(self, uid: str) -> bool:
        """It is here no more. False where it never was."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return False
        self.migratable.pop(uid, None)
        self._changed[self.name] = None
        self.cpu.count(pod.cpu, pod.migrating, -1)
        self.memory.count(pod.memory, pod.migrating, -1)
        if self._journal.is_recording:
            self._journal.log(self.add, pod)
        return True

    def _undo_add(self, uid: str) -> None:
        self.remove(uid)

    def update(self, pod: PodState) -> bool:
        """It has changed. Whether that makes a difference. Raises InvalidHoldingError."""
        old = self.pods.get(pod.uid)
        if old is None:
            raise InvalidHoldingError("cannot update Pod that doesn't exist in the node state")
        if (old.namespace, old.name) != (pod.namespace, pod.name):
            was, now = f"{old.namespace}/{old.name}", f"{pod.namespace}/{pod.name}"
            raise InvalidHoldingError(f"Pod name changed from {was} to {now}")
        if pod.migrating and not pod.migratable:
            raise InvalidHoldingError("new pod state is migrating but not migratable")
        if old == pod:
            return False
        discounted_amount(pod.cpu, CPU_MASK), discounted_amount(pod.memory, MEMORY_MASK)
        self.remove(pod.uid)
        self.add(pod)
        return True

    def granted(self, pod: PodState) -> PodState:
        """The pod as it would be with all that it can have now. Raises InvalidHoldingError."""
        return pod._replace(cpu=self.cpu.granted(pod.cpu), memory=self.memory.granted(pod.memory))

    def resize(self, new: "VmNode") -> bool:
        """The node itself has changed. Whether that makes a difference."""
        before = (self.cpu.total, self.memory.total, self.cpu.watermark, self.memory.watermark)
        after = (new.cpu.total, new.memory.total, new.cpu.watermark, new.memory.watermark)
        if before == after and self.labels == new.labels:
            return False
        self._resize((*after, new.labels))
        return True

    def _resize(self, to: tuple[int, int, int, int, dict[str, str]]) -> None:
        if self._journal.is_recording:
            was = (self.cpu.total, self.memory.total, self.cpu.watermark, self.memory.watermark)
            self._journal.log(self._resize, (*was, self.labels))
        self.cpu.total, self.memory.total, self.cpu.watermark, self.memory.watermark, labels = to
        self.labels = dict(labels)
        self._changed[self.name] = None


def node_state(
    node: Node,
    watermark: float,
    labels: Mapping[str, str],
    journal: Journal,
    changed: dict[str, None] | None = None,
) -> VmNode:
    """An empty node. labels: metric label by node label. Raises InvalidHoldingError."""
    room = node.status.allocatable or {}
    try:
        cpu = quantity_of(room.get("cpu", "0")).milli_value()
        memory = quantity_of(room.get("memory", "0")).value()
    except QuantityError as error:
        raise InvalidHoldingError(f"node {node.metadata.name}: {error}") from error
    own = node.metadata.labels or {}
    return VmNode(
        node.metadata.name,
        Use(CPU_MASK, cpu, watermark),
        Use(MEMORY_MASK, memory, watermark),
        {label: own.get(label, "") for label in labels.values()},
        journal,
        changed,
    )
