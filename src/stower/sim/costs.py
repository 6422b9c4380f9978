"""Node hours of a workload, and prices of nodes."""

from typing import Annotated, Any, Final, Literal

import msgspec

from stower.framework.events import WatchType
from stower.model.errors import InvalidObject
from stower.model.kinds import Node
from stower.model.resources import MEMORY, node_room
from stower.sim.workload import Workload

HOUR_NS: Final = 3_600_000_000_000
Price = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class LabelPrice(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The price of nodes with this label and value, for an hour."""

    key: str
    value: str
    price_per_hour: Price


class Prices(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Prices of nodes for an hour, in any currency: of the first label that a node has, else of
    what it can allocate (`resources`: a CPU, a GiB of memory or storage, one of anything else)."""

    api_version: Literal["stower.dev/v1"]
    kind: Literal["Prices"]
    labels: tuple[LabelPrice, ...] = ()
    resources: dict[str, Price] = {}

    def of(self, node: Node) -> float:
        """Returns the price of a node. Raises InvalidObject where nothing of it has a price."""
        own = node.metadata.labels or {}
        for label in self.labels:
            if own.get(label.key) == label.value:
                return label.price_per_hour
        room = node_room(node.status.allocatable)
        known = [name for name in self.resources if room.get(name)]
        if not known:
            want = "a label or a resource that the node has"
            raise InvalidObject(f"prices of node {node.metadata.name}", [*self.resources], want)
        return sum(self.resources[name] * room[name] / _unit(name) for name in known)


def read_prices(document: dict[str, Any]) -> Prices:
    """Returns the prices of a document. Raises InvalidObject."""
    try:
        return msgspec.convert(document, Prices)
    except msgspec.ValidationError as error:
        raise InvalidObject("prices", str(error), "apiVersion, kind, labels, resources") from None


def node_hours(workload: Workload, end_ns: int) -> list[tuple[Node, float]]:
    """Returns each node with the hours for which it is there: of a recording from beginning to end,
    else one."""
    if not workload.is_history:
        return [(node, 1.0) for node in workload.nodes]
    since = {node.metadata.name: (node, 0) for node in workload.nodes}
    found: list[tuple[Node, float]] = []
    for change in workload.happened:
        node = change.object
        if not isinstance(node, Node):
            continue
        name = node.metadata.name
        if change.type is WatchType.DELETED and name in since:
            known, begun_ns = since.pop(name)
            found.append((known, (change.at_ns - begun_ns) / HOUR_NS))
        elif change.type is not WatchType.DELETED:
            since.setdefault(name, (node, change.at_ns))
    found += [(node, (end_ns - begun_ns) / HOUR_NS) for node, begun_ns in since.values()]
    return found


def _unit(name: str) -> int:
    if name == "cpu":
        return 1_000
    return 2**30 if name == MEMORY or name.endswith("storage") else 1
