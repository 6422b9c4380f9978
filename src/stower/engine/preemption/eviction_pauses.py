"""How long a pod or a tree evicts nobody after it has evicted in vain, for devices that only
drivers know.

Drivers are asked about nodes with room. Where there is none, room is made before they are asked,
and they may refuse what was made. Kept in memory: after a restart, one more eviction is made.
"""

from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

from stower.framework.plugin import Plugin
from stower.model.kinds import Pod
from stower.model.times import SECOND_NS
from stower.state.cluster import ClusterState

SPARES: Final = "spares other pods for a while: drivers refused the room that was made before"
# Doubled with each eviction; forgotten once the longest has passed without one.
FIRST_NS: Final = 30 * SECOND_NS
LONGEST_NS: Final = 600 * SECOND_NS
KNOWN_MAX: Final = 10_000  # pauses that are remembered; the oldest is forgotten first


class _Pause(NamedTuple):
    until_ns: int
    length_ns: int


class EvictionPauses:
    """By the pod's uid or the tree's root."""

    def __init__(self) -> None:
        self._known: dict[Hashable, _Pause] = {}

    def until_ns(self, key: Hashable) -> int:
        """Returns until when it evicts nobody, 0 where it never had to wait."""
        known = self._known.get(key)
        return known.until_ns if known is not None else 0

    def begin(self, key: Hashable, now_ns: int) -> None:
        """Begins a pause after an eviction, longer than the last one."""
        known = self._known.pop(key, None)
        if known is None or now_ns - known.until_ns > LONGEST_NS:
            known = _Pause(0, 0)
        length_ns = min(max(2 * known.length_ns, FIRST_NS), LONGEST_NS)
        self._known[key] = _Pause(now_ns + length_ns, length_ns)
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]


def have_been_asked(plugins: Iterable[Plugin], pods: Iterable[Pod], state: ClusterState) -> bool:
    """Returns whether drivers have been asked about some of the pods before."""
    asking = [*plugins]
    return any(plugin.asked_rows(pod, state) is not None for pod in pods for plugin in asking)
