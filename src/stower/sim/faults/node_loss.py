"""Fault `node-loss`: nodes are unreachable or deleted."""

from stower.model.kinds import Node
from stower.model.times import SECOND_NS
from stower.sim.faults.fault import Fault


class NodeLoss(Fault):
    """Up to 5 nodes are unreachable for up to 2 min, or deleted."""

    name = "node-loss"

    def plan(self) -> None:
        """Kubelets stop, or their machines are gone."""
        for at_ns in self.moments(5):
            self.stage.agenda.schedule_at(at_ns, self._lose_node)

    def _lose_node(self) -> None:
        names = [*self.stage.server.all(Node)]
        if not names:
            return
        name = self.chance.choice(names)
        if self.chance.random() < 0.3:
            self.stage.kubelets.remove_node(name)
            return
        self.stage.kubelets.stop(name)
        self.stage.agenda.schedule_after(
            self.chance.randint(SECOND_NS, 120 * SECOND_NS),
            lambda: self.stage.kubelets.start(name),
        )
