"""Which of a few conditions pods meet: of placed pods the tallies know it, for all that are alike.

Preemption asks about every pod of every node. What tallies have found out is kept with them, so
that an attempt which may take no longer is followed by one that gets further.
"""

from collections.abc import Callable, Sequence

from stower.model.kinds import Pod
from stower.state.tallies import ClassKey, Tallies, Tally, class_key, meets


class Matcher:
    """Some conditions on a pod's namespace and labels; good for one attempt."""

    def __init__(
        self, conditions: Sequence[Tally | Callable[[Pod], bool]], tallies: Tallies
    ) -> None:
        """Each as the tally of those who meet it, being deleted or not, or as a question."""
        self._conditions = conditions
        self._tallies = tallies
        self._cache: dict[ClassKey, tuple[int, ...]] = {}

    def matching_conditions(self, pod: Pod) -> tuple[int, ...]:
        """The numbers of those that the pod meets. Raises TooManyVisits."""
        key = class_key(pod)
        found = self._cache.get(key)
        if found is None:
            counted = self._tallies.tallies_of(pod)
            met = (n for n, of in enumerate(self._conditions) if self._is_met(of, pod, counted))
            found = self._cache[key] = tuple(met)
        return found

    def _is_met(
        self, condition: Tally | Callable[[Pod], bool], pod: Pod, counted: set[Tally] | None
    ) -> bool:
        if isinstance(condition, Tally) and counted is not None:
            return condition in counted
        self._tallies.charge_matches(1)
        if isinstance(condition, Tally):
            return meets(pod, condition.conditions)
        return condition(pod)
