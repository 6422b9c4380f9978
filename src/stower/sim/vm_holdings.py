"""Computes what VMs hold of their nodes from the API's objects: what their pods show, and what was
approved on the VM and does not show on the pod yet."""

from stower.model.kinds import Pod, VirtualMachine
from stower.sim.server import Server
from stower.vms.amounts import read_resources
from stower.vms.ledger import amounts_of
from stower.vms.pods import (
    APPROVED,
    AUTOSCALING,
    PodState,
    as_ordinary,
    is_true,
    pod_state,
    vm_owner,
)


def reserved_state(server: Server, pod: Pod) -> PodState:
    """Returns the state of a pod with at least what its VM shows as approved, whoever wrote it.

    The target of a migration has what it shows: the VM runs elsewhere. Raises BadPod.
    """
    owner = vm_owner(pod)
    if owner is None or not server.all(VirtualMachine):
        return pod_state(pod)
    vm = server.get(VirtualMachine, f"{pod.metadata.namespace}/{owner.name}")
    if vm is None or vm.metadata.uid != owner.uid:
        return pod_state(as_ordinary(pod))
    state = pod_state(pod)
    if not owner.controller or not is_true(pod, AUTOSCALING):
        return state
    text = (vm.metadata.annotations or {}).get(APPROVED)
    if text is None:
        return state
    approved = read_resources(text)
    return state._replace(
        cpu=state.cpu._replace(reserved=max(state.cpu.reserved, approved.cpu)),
        memory=state.memory._replace(reserved=max(state.memory.reserved, approved.memory)),
    )


def reserved_amounts(server: Server, node_name: str) -> tuple[int, int]:
    """Returns the milli-CPU and bytes that all pods of a node that have not ended hold of it."""
    cpu = memory = 0
    for pod in server.pods_on(node_name).values():
        if not pod.is_terminal:
            amounts = amounts_of(reserved_state(server, pod)) or (0, 0)
            cpu, memory = cpu + amounts[0], memory + amounts[1]
    return cpu, memory
