"""Says of VMs on nodes above their watermark why they cannot migrate, from the API objects alone.

The scheduler also asks whether a VM's pod fits on a node otherwise (targets.py); here only amounts
count.
"""

from collections.abc import Iterable

from stower.model.kinds import Node, Pod, VirtualMachine
from stower.state.journal import Journal
from stower.vms.approval import raise_reserved
from stower.vms.migrations import candidates
from stower.vms.nodes import InvalidHoldingError, VmNode, node_state
from stower.vms.pods import BadPod, pod_state
from stower.vms.targets import Targets
from stower.vms.vm_approvals import VmApprovals


def find_stuck(
    nodes: Iterable[Node], pods: Iterable[Pod], vms: Iterable[VirtualMachine], watermark: float
) -> dict[str, str]:
    """Returns what VMs lack, by namespace/name, that may migrate and have no node to go to."""
    approvals, journal, known = VmApprovals(), Journal(), dict[str, VmNode]()
    for vm in vms:
        approvals.put(vm, False)
    for node in nodes:
        try:
            known[node.metadata.name] = node_state(node, watermark, {}, journal)
        except InvalidHoldingError:
            continue
    for pod in pods:
        here = known.get(pod.spec.node_name)
        if here is None or pod.is_terminal:
            continue
        counted = approvals.counted(pod)
        try:
            here.add(raise_reserved(pod_state(counted), approvals.of_pod(counted)))
        except (BadPod, InvalidHoldingError):
            continue
    targets = Targets(lambda uid, name: True, lambda key: None)
    return {
        state.vm: targets.lack(state, name, known.values())
        for name, node in known.items()
        if node.is_above_watermark
        for state in candidates(node)
        if not targets.find(state, name, known.values())
    }
