"""Which of a few conditions pods meet, asked once for all pods of equal namespace and labels.

Preemption asks about every pod of every node: with hundreds of conditions that is worth
remembering, and worth counting, so that one attempt cannot take for ever.
"""

from collections.abc import Callable, Sequence
from typing import Final

from stower.model.kinds import Pod
from stower.state.tallies import ClassKey, Tallies, class_key

KNOWN_MAX: Final = 65_536


class Matcher:
    """Some conditions on pods that depend on namespace, labels and whether it is being deleted."""

    def __init__(self, conditions: Sequence[Callable[[Pod], bool]], tallies: Tallies) -> None:
        self._conditions = conditions
        self._tallies = tallies
        self._known: dict[ClassKey, tuple[int, ...]] = {}

    def met_by(self, pod: Pod) -> tuple[int, ...]:
        """The numbers of those that the pod meets. Raises TooManyVisits."""
        key = class_key(pod)
        found = self._known.get(key)
        if found is None:
            self._tallies.matched(len(self._conditions))
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            met = (number for number, meets in enumerate(self._conditions) if meets(pod))
            found = self._known[key] = tuple(met)
        return found
