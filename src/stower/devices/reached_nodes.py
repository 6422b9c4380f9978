"""The nodes to which the devices of an allocated claim matter."""

from __future__ import annotations

from stower.devices.inventory import Inventory
from stower.model.kinds import ResourceClaim
from stower.state.cluster import ClusterState


def reached_nodes(claim: ResourceClaim, state: ClusterState) -> set[str] | None:
    """Returns the names of the nodes to which the devices of an allocated claim matter, None where
    these are not known. None of the devices of classic drivers matter: no slice has them."""
    inventory = state.devices.extension(Inventory)
    names: set[str] = set()
    inventory.refresh()
    for result in claim.results:
        nodes = inventory.nodes_of((result.driver, result.pool))
        if nodes is None:
            return None
        names.update(nodes)
    return names


def only_row(names: set[str] | None, state: ClusterState) -> int:
    """Returns the row of the only node among `reached_nodes`, -1 where these may be several."""
    if names is None or len(names) != 1 or state.devices.extension(Inventory).takes_of_node():
        return -1
    return state.row_of(min(names))
