"""No node is overcommitted by the scheduler's own doing."""

from stower.model.kinds import Node
from stower.sim.checkers.checker import Binds, Checker, Court, lacking, on_node
from stower.sim.server import Change


class RoomKept(Checker):
    """When a pod is bound, all that is on its node fits, and no port is taken twice."""

    law = "room"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._binds = Binds()

    def changed(self, change: Change) -> None:
        """Look at each pod that gets a node."""
        pod = self._binds.seen(change)
        if pod is None:
            return
        name = pod.spec.node_name
        node = self.court.server.get(Node, name)
        if node is None:
            return
        pods = on_node(self.court.server, name)
        short = lacking(node, pods)
        if short:
            raise self.broken(f"with {pod.key}, the pods of {name} ask for {short}")
        taken: dict[tuple[str, int], str] = {}
        for other in pods:
            for container in other.spec.containers:
                for port in container.ports or ():
                    if not port.host_port:
                        continue
                    key = (port.protocol or "TCP", port.host_port)
                    if key in taken:
                        raise self.broken(f"{taken[key]} and {other.key} have port {key} of {name}")
                    taken[key] = other.key
