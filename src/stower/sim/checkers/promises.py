"""Law `promises`: room reserved for a nominated pod is not given to a pod of lower priority."""

from stower.framework.decisions import Outcome
from stower.framework.events import Event
from stower.framework.writes import Bind, PatchPodStatus, Write
from stower.model.kinds import Node
from stower.sim.checkers.checker import Checker, Court, describe_shortage
from stower.sim.scheduler import SchedulerProcess


class Promises(Checker):
    """When an engine binds a pod, those that it knows to be promised room on the node still fit,
    unless they did not before.
    """

    law = "promises"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._promised: dict[tuple[str, int], dict[str, str]] = {}  # the last leader's: node by uid

    def on_step(self, process: SchedulerProcess, event: Event, writes: list[Write]) -> None:
        """Look at each pod that is decided for now; one whose bind is sent again has its room."""
        decided = set()
        for decision in reversed(process.decisions):
            if decision.at_ns != process.now_ns:
                break
            if decision.outcome is Outcome.PLACED:
                decided.add(decision.uid)
        key = (process.name, process.lives)
        before = self._promised.get(key, {})
        binds = [write for write in writes if isinstance(write, Bind) and write.uid in decided]
        held = dict(before)
        for write in writes:
            if isinstance(write, PatchPodStatus) and write.nominated_node_name == "":
                held.pop(write.uid, None)  # taken back; what it is promised after that comes later
            elif isinstance(write, Bind) and binds and write is binds[0]:
                del binds[0]
                # Those that are decided after it were not there yet.
                self._check_promise(process, write, held, {later.uid for later in binds})
        if process.engine is not None:
            # What is promised in a step is known to the decisions of the next.
            promised = process.engine.state.nominated_pods
            self._promised = {key: {uid: n for n, pods in promised.items() for uid in pods}}

    def _check_promise(
        self,
        process: SchedulerProcess,
        write: Bind,
        promised: dict[str, str],
        later: set[str],
    ) -> None:
        engine, bound = process.engine, process.get_shown_pod(write.uid)
        node = self.court.server.get(Node, write.node_name)
        if engine is None or bound is None or node is None:
            return
        row = engine.state.row_of(write.node_name)
        there = [
            entry.pod
            for entry in (engine.state.pods_by_row[row].values() if row >= 0 else ())
            if entry.pod.metadata.deletion_timestamp is None and entry.uid not in later
        ]
        before = [pod for pod in there if pod.metadata.uid != write.uid]
        for uid, known in engine.state.nominated_pods.get(write.node_name, {}).items():
            other = process.get_shown_pod(uid)
            if (
                other is None
                or known.row >= 0
                or other.status.nominated_node_name != write.node_name
                or promised.get(uid) != write.node_name
                or other.priority <= bound.priority
            ):
                continue
            if not describe_shortage(node, [*before, other]) and describe_shortage(
                node, [*there, other]
            ):
                raise self.violation(
                    f"pod {bound.key} of priority {bound.priority} is bound to room on "
                    f"{write.node_name} that was reserved for the nominated pod {other.key} of "
                    f"priority {other.priority}"
                )
