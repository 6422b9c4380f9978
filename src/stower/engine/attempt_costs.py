"""Bounds the share of time in which pods of one namespace are tried whose attempts cost a lot.

An attempt looks at all affinity terms of placed pods that select the pod. Users can make that
hundreds of thousands, where others have a few. What attempts of a namespace look at adds up to a
time for which it has to wait, a multiple of the time that they took; that passes as time does.
While more than FREE is left, no pod of the namespace is tried. Work is counted, never timed. Must
not know what the work is.
"""

from typing import Final

# Attempts that look at fewer terms cost nothing: 1 ms. Usual ones look at some dozens.
COUNTED: Final = 1_000
# Terms that the attempts of a namespace may look at in a row: some 20 ms.
FREE: Final = 20_000
# Waited for each: ten times what it takes.
NS_PER_VISIT: Final = 10_000
WAIT_MAX_NS: Final = 60_000_000_000
# Namespaces that are remembered; the oldest is forgotten first.
NAMESPACES_MAX: Final = 1_024


class AttemptCosts:
    """`due_ns`: until when each namespace waits, or has waited, if nothing were free."""

    __slots__ = ("due_ns",)

    def __init__(self) -> None:
        self.due_ns: dict[str, int] = {}

    def charge(self, namespace: str, visits: int, now_ns: int) -> None:
        """Records what an attempt for a pod of the namespace has looked at: more than COUNTED."""
        while len(self.due_ns) >= NAMESPACES_MAX:
            del self.due_ns[next(iter(self.due_ns))]
        last_ns = max(self.due_ns.pop(namespace, 0), now_ns)
        self.due_ns[namespace] = min(last_ns + visits * NS_PER_VISIT, now_ns + WAIT_MAX_NS)

    def held_until_ns(self, namespace: str, now_ns: int) -> int:
        """Returns until when nothing of the namespace is tried; 0 if it may be tried now."""
        due_ns = self.due_ns.get(namespace, 0)
        if due_ns and due_ns <= now_ns:
            del self.due_ns[namespace]
        free_ns = due_ns - FREE * NS_PER_VISIT
        return free_ns if free_ns > now_ns else 0
