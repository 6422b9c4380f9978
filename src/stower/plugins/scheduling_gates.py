"""SchedulingGates: keeps pods with scheduling gates out of the active queue (KEP-3521).

Source: kube-scheduler plugins/schedulinggates.
"""

from stower.framework.cluster_events import Change
from stower.framework.plugin import Plugin
from stower.framework.reasons import Rejection
from stower.model.kinds import Pod


class SchedulingGates(Plugin):
    """Gates pods that have spec.schedulingGates."""

    name = "SchedulingGates"
    events_to_register = Change.OWN_GATES_REMOVED

    def pre_enqueue(self, pod: Pod) -> Rejection | None:
        """Rejects a pod that has gates; the text lists them as Go prints a slice."""
        gates = pod.spec.scheduling_gates
        if not gates:
            return None
        names = " ".join(gate.name for gate in gates)
        return Rejection((f"waiting for scheduling gates: [{names}]",))
