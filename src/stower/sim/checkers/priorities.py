"""Law `priorities`: no pod waits while an equal pod of lower priority gets room that was free."""

from typing import Final

import msgspec

from stower.model.kinds import Pod
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Binds, Checker, Court
from stower.sim.server import Change

# The room was there for so long, and the pod waited for so long: longer than a backoff, the time
# in which a new leader comes, and what a message takes.
WINDOW_NS: Final = 30 * SECOND_NS


class Priorities(Checker):
    """When a pod is bound, no equal one of higher priority has waited while nothing changed there.

    What wants something of other pods is looked at where nothing has changed anywhere; what has
    claims is not, as a claim of its own may hold each of them back.
    """

    law = "priorities"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._binds = Binds()
        self._node_ns: dict[str, int] = {}  # when a node, or what is on it, last changed
        self._any_ns = 0  # when any did

    def on_change(self, change: Change) -> None:
        """A pod gets a node; what else happens there may be what it waited for."""
        _, _, obj = change
        name = obj.spec.node_name if isinstance(obj, Pod) else obj.metadata.name
        pod = self._binds.find_bound_pod(change)
        if pod is not None:
            self._check_pod(pod)
        if name:
            self._node_ns[name] = self._any_ns = self.court.agenda.now_ns

    def _check_pod(self, pod: Pod) -> None:
        if pod.spec.volumes or pod.spec.resource_claims:
            return
        now_ns, server = self.court.agenda.now_ns, self.court.server
        is_about_others = pod.spec.affinity or pod.spec.topology_spread_constraints
        changed_ns = self._any_ns if is_about_others else self._node_ns.get(pod.spec.node_name, 0)
        awake_ns = min(process.awake_since_ns for process in self.court.schedulers)
        since_ns = max(changed_ns, awake_ns)
        if now_ns - since_ns < WINDOW_NS:
            return
        wants = _requirements_key(pod)
        for other in server.pods_on("").values():
            if (
                other.priority > pod.priority
                and now_ns - server.creation_ns(other) >= WINDOW_NS
                and not self._is_decided(other)
                and _requirements_key(other) == wants
            ):
                raise self.violation(
                    f"pod {pod.key} of priority {pod.priority} is bound to {pod.spec.node_name} "
                    f"while the equal pod {other.key} of priority {other.priority} is pending"
                )

    def _is_decided(self, pod: Pod) -> bool:
        """Whether whoever leads has a node for it, and only its binding takes long."""
        engines = (process.engine for process in self.court.schedulers)
        entries = (e.state.pods.get(pod.metadata.uid) for e in engines if e is not None)
        return any(entry is not None and entry.is_assumed for entry in entries)


def _requirements_key(pod: Pod) -> bytes:
    """All that a node must have for it, labels and terms about others included."""
    spec = msgspec.structs.replace(
        pod.spec, node_name="", priority=0, preemption_policy=None, priority_class_name=""
    )
    labels = sorted((pod.metadata.labels or {}).items())
    return msgspec.msgpack.encode((pod.metadata.namespace, labels, spec))
