"""Room that was promised to a pod is not given to one of a lower priority."""

from stower.engine.decisions import Outcome
from stower.framework.events import Event
from stower.framework.writes import Bind, Write
from stower.model.kinds import Node, Pod
from stower.sim.checkers.checker import Checker, lacking
from stower.sim.scheduler import SchedulerProcess


class Promises(Checker):
    """When an engine binds a pod, those that it knows to be promised room on the node still fit,
    unless they did not before.
    """

    law = "promises"

    def stepped(self, process: SchedulerProcess, event: Event, writes: list[Write]) -> None:
        """Look at each pod that is decided for now; one whose bind is sent again has its room."""
        decided = set()
        for decision in reversed(process.decisions):
            if decision.at_ns != process.now_ns:
                break
            if decision.outcome is Outcome.PLACED:
                decided.add(decision.uid)
        for write in writes:
            if isinstance(write, Bind) and write.uid in decided:
                self._look(process, write)

    def _look(self, process: SchedulerProcess, write: Bind) -> None:
        engine, bound = process.engine, process.shown(write.uid)
        node = self.court.server.get(Node, write.node_name)
        if engine is None or bound is None or node is None:
            return
        row = engine.state.row_of(write.node_name)
        there = [
            entry.pod
            for entry in (engine.state.on_row[row].values() if row >= 0 else ())
            if entry.pod.metadata.deletion_timestamp is None
        ]
        before = [pod for pod in there if pod.metadata.uid != write.uid]
        for other in self.court.server.all(Pod).values():
            uid = other.metadata.uid
            shown, known = process.shown(uid), engine.state.pods.get(uid)
            if (
                shown is None
                or known is None
                or known.row >= 0
                or shown.status.nominated_node_name != write.node_name
                or known.nominated_to != write.node_name
                or other.priority <= bound.priority
            ):
                continue
            if not lacking(node, [*before, other]) and lacking(node, [*there, other]):
                raise self.broken(
                    f"{bound.key} of priority {bound.priority} takes the room on "
                    f"{write.node_name} that was promised to {other.key} of priority "
                    f"{other.priority}"
                )
