"""Reads nodes with all that is reserved on them from the API objects alone, as a scheduler that
starts reads them; for what `stower vms` says and plans."""

from collections.abc import Iterable

from stower.model.kinds import Node, Pod, VirtualMachine
from stower.state.journal import Journal
from stower.vms.approval import raise_reserved
from stower.vms.nodes import InvalidHoldingError, VmNode, node_state
from stower.vms.pods import BadPod, pod_state
from stower.vms.vm_approvals import VmApprovals


def node_table(
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    vms: Iterable[VirtualMachine],
    watermark: float,
    journal: Journal,
) -> dict[str, VmNode]:
    """Returns nodes by name. What cannot be read is left out."""
    approvals, known = VmApprovals(), dict[str, VmNode]()
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
    return known
