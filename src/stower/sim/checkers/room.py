"""Law `room`: the scheduler overcommits no node and binds no host port twice."""

from stower.model.kinds import Node
from stower.sim.checkers.checker import Binds, Checker, Court, describe_shortage, on_node
from stower.sim.server import Change


class NodeRoom(Checker):
    """When a pod is bound, all that is on its node fits, and no port is taken twice."""

    law = "room"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._binds = Binds()

    def on_change(self, change: Change) -> None:
        """Look at each pod that gets a node."""
        pod = self._binds.find_bound_pod(change)
        if pod is None:
            return
        name = pod.spec.node_name
        node = self.court.server.get(Node, name)
        if node is None:
            return
        pods = on_node(self.court.server, name)
        short = describe_shortage(node, pods)
        if short:
            raise self.violation(f"with pod {pod.key}, the pods on node {name} request {short}")
        taken: dict[tuple[str, int], str] = {}
        for other in pods:
            for container in other.spec.containers:
                for port in container.ports or ():
                    if not port.host_port:
                        continue
                    key = (port.protocol or "TCP", port.host_port)
                    if key in taken:
                        raise self.violation(
                            f"pods {taken[key]} and {other.key} have the same host port {key} on "
                            f"node {name}"
                        )
                    taken[key] = other.key
