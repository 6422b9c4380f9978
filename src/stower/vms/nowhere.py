"""Says of VMs on nodes above their watermark why they cannot migrate.

The scheduler also asks whether a VM's pod fits on a node otherwise (targets.py); here only amounts
count.
"""

from collections.abc import Mapping

from stower.vms.migrations import candidates
from stower.vms.nodes import VmNode
from stower.vms.targets import TargetSearch, rooms_of


def find_stuck(known: Mapping[str, VmNode]) -> dict[str, str]:
    """Returns what VMs lack, by namespace/name, that may migrate and have no node to go to."""
    search = TargetSearch(rooms_of(known.values()), lambda uid, name: True)
    return {
        state.vm: search.lack(state, name)
        for name, node in known.items()
        if node.is_above_watermark
        for state in candidates(node)
        if not search.find(state, name)
    }
