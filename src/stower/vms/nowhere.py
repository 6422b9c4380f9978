"""Says of VMs on nodes above their watermark why they cannot migrate.

The scheduler also asks whether a VM's pod fits on a node otherwise (targets.py); here only amounts
count.
"""

from collections.abc import Mapping

from stower.vms.migrations import candidates
from stower.vms.nodes import VmNode
from stower.vms.targets import Targets


def find_stuck(known: Mapping[str, VmNode]) -> dict[str, str]:
    """Returns what VMs lack, by namespace/name, that may migrate and have no node to go to."""
    targets = Targets(lambda uid, name: True, lambda key: None)
    return {
        state.vm: targets.lack(state, name, known.values())
        for name, node in known.items()
        if node.is_above_watermark
        for state in candidates(node)
        if not targets.find(state, name, known.values())
    }
