"""Matcher: finds which of several conditions on labels a pod meets.

Preemption matches every pod on every node. For placed pods the result comes from the tallies, which
keep it for all pods with equal namespace and labels. The tallies also keep the results of an
attempt that exceeds its limit of visits, so that the next attempt gets further.
"""

from collections.abc import Callable, Sequence

from stower.model.kinds import Pod
from stower.state.tallies import ClassKey, Tallies, Tally, class_key, meets


class Matcher:
    """A list of conditions on a pod's namespace and labels. Valid for one scheduling attempt."""

    def __init__(
        self, conditions: Sequence[Tally | Callable[[Pod], bool]], tallies: Tallies
    ) -> None:
        """`conditions`: each is a predicate, or a tally that counts the pods that meet the
        condition, also those that are being deleted."""
        self._conditions = conditions
        self._tallies = tallies
        self._cache: dict[ClassKey, tuple[int, ...]] = {}

    def matching_conditions(self, pod: Pod) -> tuple[int, ...]:
        """Returns the indices of the conditions that the pod meets. Raises TooManyVisits."""
        key = class_key(pod)
        found = self._cache.get(key)
        if found is None:
            tallies = self._tallies.tallies_of(pod)
            met = (
                n
                for n, condition in enumerate(self._conditions)
                if self._is_met(condition, pod, tallies)
            )
            found = self._cache[key] = tuple(met)
        return found

    def _is_met(
        self, condition: Tally | Callable[[Pod], bool], pod: Pod, tallies: set[Tally] | None
    ) -> bool:
        if isinstance(condition, Tally) and tallies is not None:
            return condition in tallies
        self._tallies.charge_matches(1)
        if isinstance(condition, Tally):
            return meets(pod, condition.conditions)
        return condition(pod)
