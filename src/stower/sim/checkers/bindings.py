"""Law `bindings`: a pod is bound at most once, and never moves to another node."""

from stower.framework.events import Event, WatchType
from stower.framework.writes import Bind, Write
from stower.model.kinds import Pod
from stower.sim.checkers.checker import Checker, Court
from stower.sim.scheduler import SchedulerProcess
from stower.sim.server import Change


class Bindings(Checker):
    """The node of a pod stays, and no engine that knows of it binds the pod to another."""

    law = "bindings"
    allows_rivals = True

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._node_of: dict[str, str] = {}

    def on_change(self, change: Change) -> None:
        """Compare with what was."""
        _, kind, pod = change
        if not isinstance(pod, Pod) or kind is WatchType.DELETED:
            return
        was, name = self._node_of.get(pod.metadata.uid), pod.spec.node_name
        if was and was != name:
            raise self.violation(f"pod {pod.key} moved from {was} to {name or 'no node'}")
        if name:
            self._node_of[pod.metadata.uid] = name

    def on_step(self, process: SchedulerProcess, event: Event, writes: list[Write]) -> None:
        """A pod that the engine has been shown on a node is not bound again."""
        for write in writes:
            if isinstance(write, Bind):
                shown = process.get_shown_pod(write.uid)
                if shown is not None and shown.spec.node_name:
                    raise self.violation(
                        f"pod {write.namespace}/{write.name} is on {shown.spec.node_name} and is "
                        f"bound again, to {write.node_name}"
                    )
