"""Bounds the share of time in which states are built or compared after errors of one namespace.

Each state that is built or compared after an error of a namespace's pod or object costs time in
proportion to the number of objects. Until that time, multiplied by a factor, has passed, the pods
of the namespace are not tried, and new objects of the namespace are not applied: thousands of pods
that provoke errors take no more of the engine than a few, and pods of other namespaces do not wait
for them. The first errors of a namespace delay nobody. Must not know what is built.
"""

from typing import Final

from stower.engine.limits import Limits

# Errors that delay nobody but the pod or object itself.
FREE: Final = 4
# Namespaces that are remembered; the oldest is forgotten first.
NAMESPACES_MAX: Final = 16_384


class RebuildCosts:
    """Costs by namespace. `due_ns`: until when the costs of each namespace last, or have lasted."""

    __slots__ = ("_counts", "_limits", "due_ns")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._counts: dict[str, int] = {}
        self.due_ns: dict[str, int] = {}

    def charge(self, namespace: str, object_count: int, now_ns: int) -> None:
        """Records that a state of so many objects was built or compared. Objects without a
        namespace, which only administrators create, cost nothing."""
        if not namespace:
            return
        limits = self._limits
        count, last_ns = self._counts.pop(namespace, 0), self.due_ns.pop(namespace, 0)
        if now_ns - last_ns > limits.offender_wait_max_ns:
            count = 0
        if len(self._counts) >= NAMESPACES_MAX:
            oldest = next(iter(self._counts))
            del self._counts[oldest], self.due_ns[oldest]
        cost_ns = object_count * 1_000_000_000 // limits.rebuilt_objects_per_second
        self._counts[namespace] = count + 1
        self.due_ns[namespace] = max(last_ns, now_ns) + min(cost_ns, limits.rebuild_cost_max_ns)

    def held_until_ns(self, namespace: str, now_ns: int) -> int:
        """Returns until when nothing of the namespace is tried; 0 if it may be tried now."""
        due_ns = self.due_ns.get(namespace, 0)
        return due_ns if due_ns > now_ns and self._counts[namespace] >= FREE else 0
