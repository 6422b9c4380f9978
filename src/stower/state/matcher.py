"""Which of a few conditions pods meet: of placed pods the tallies know it, for all that are alike.

Preemption asks about every pod of every node. What tallies have found out is kept with them, so
that an attempt which may take no longer is followed by one that gets further.
"""

from collections.abc import Callable, Sequence

from stower.model.kinds import Pod
from stower.state.tallies import ClassKey, Tallies, Tally, class_key

Test = Callable[[Pod], bool]


class Matcher:
    """Some conditions on a pod's namespace and labels; good for one attempt."""

    def __init__(self, conditions: Sequence[tuple[Tally | None, Test]], tallies: Tallies) -> None:
        """Each with the tally that counts those who meet it, where there is one."""
        self._conditions = conditions
        self._tallies = tallies
        self._known: dict[ClassKey, tuple[int, ...]] = {}

    def met_by(self, pod: Pod) -> tuple[int, ...]:
        """The numbers of those that the pod meets. Raises TooManyVisits."""
        key = class_key(pod)
        found = self._known.get(key)
        if found is None:
            counted = self._tallies.counting(pod)
            met = []
            for number, (tally, test) in enumerate(self._conditions):
                if counted is not None and tally is not None:
                    if tally in counted:
                        met.append(number)
                    continue
                self._tallies.matched(1)
                if test(pod):
                    met.append(number)
            found = self._known[key] = tuple(met)
        return found
