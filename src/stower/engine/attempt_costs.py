"""Bounds the share of time in which pods of one namespace are tried whose attempts cost a lot.

An attempt looks at all affinity terms of placed pods that select the pod. Users can make that
hundreds of thousands, where others have a few: until such an attempt's time, multiplied by a
factor, has passed, no pod of the namespace is tried. Work is counted, never timed. Must not know
what the work is.
"""

from typing import Final

# Terms that an attempt may look at for nothing: some 20 ms. Usual attempts look at some dozens.
FREE: Final = 20_000
# Waited for each: ten times what it takes.
NS_PER_VISIT: Final = 10_000
WAIT_MAX_NS: Final = 60_000_000_000
# Namespaces that are remembered; the oldest is forgotten first.
NAMESPACES_MAX: Final = 1_024


class AttemptCosts:
    """`due_ns`: until when each namespace waits, or has waited."""

    __slots__ = ("due_ns",)

    def __init__(self) -> None:
        self.due_ns: dict[str, int] = {}

    def charge(self, namespace: str, visits: int, now_ns: int) -> None:
        """Records what an attempt for a pod of the namespace has looked at: more than FREE."""
        while len(self.due_ns) >= NAMESPACES_MAX:
            del self.due_ns[next(iter(self.due_ns))]
        self.due_ns.pop(namespace, None)
        self.due_ns[namespace] = now_ns + min(visits * NS_PER_VISIT, WAIT_MAX_NS)

    def held_until_ns(self, namespace: str, now_ns: int) -> int:
        """Returns until when nothing of the namespace is tried; 0 if it may be tried now."""
        due_ns = self.due_ns.get(namespace, 0)
        if due_ns and due_ns <= now_ns:
            del self.due_ns[namespace]
        return due_ns if due_ns > now_ns else 0
