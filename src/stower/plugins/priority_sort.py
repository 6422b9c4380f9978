"""PrioritySort: tries pods of higher priority first, then pods that entered the queue earlier.

Source: kube-scheduler plugins/queuesort.
"""

from stower.framework.plugin import Plugin
from stower.model.kinds import Pod


class PrioritySort(Plugin):
    """Orders the queue by priority, then by the time of entering it."""

    name = "PrioritySort"

    def sort_key(self, pod: Pod, added_ns: int) -> tuple[int, ...]:
        """Returns (-priority, time of entering the queue in ns)."""
        return (-(pod.spec.priority or 0), added_ns)
