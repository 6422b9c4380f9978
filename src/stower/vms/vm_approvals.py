"""Knows which resources are approved on each VirtualMachine, whoever wrote the approval.

The VM's controller copies an approval to the VM's pod. Until then, and as long as that controller
stands still, the pod shows less than was approved. A scheduler that starts reads here what another
one has approved before; so do writes of agents count as soon as they show.
"""

from collections.abc import Iterable

from stower.model.kinds import Pod, VirtualMachine
from stower.vms.amounts import BadAmount, Resources, read_resources
from stower.vms.pods import APPROVED, AUTOSCALING, is_true, vm_owner

NOTHING = Resources()


class VmApprovals:
    """Approved resources by the VM's uid, and the pod that each VM runs in."""

    def __init__(self) -> None:
        self._approved: dict[str, Resources] = {}
        self._pods: dict[str, str] = {}  # uid of the pod by uid of the VM

    def put(self, vm: VirtualMachine, is_deleted: bool) -> str:
        """A VM came, changed or went. Returns the uid of its pod where that makes a difference,
        else "". An approval that cannot be read is none."""
        uid = vm.metadata.uid
        approved = NOTHING if is_deleted else _read(vm)
        if approved == self._approved.get(uid, NOTHING):
            return ""
        if approved == NOTHING:
            del self._approved[uid]
        else:
            self._approved[uid] = approved
        return self._pods.get(uid, "")

    def replace(self, vms: Iterable[VirtualMachine]) -> list[str]:
        """These are all VMs. Returns the uids of the pods for which that makes a difference."""
        listed = {vm.metadata.uid: vm for vm in vms}
        gone = [uid for uid in self._approved if uid not in listed]
        for uid in gone:
            del self._approved[uid]
        found = [self._pods.get(uid, "") for uid in gone]
        found += [self.put(vm, False) for vm in listed.values()]
        return [uid for uid in found if uid]

    def put_pod(self, pod: Pod) -> None:
        """A pod came or changed: the target of a migration is controlled by the VM at its end."""
        owner = vm_owner(pod)
        if owner is not None and owner.controller:
            self._pods[owner.uid] = pod.metadata.uid

    def drop_pod(self, pod: Pod) -> None:
        """A pod is gone."""
        owner = vm_owner(pod)
        if owner is not None and self._pods.get(owner.uid) == pod.metadata.uid:
            del self._pods[owner.uid]

    def of_pod(self, pod: Pod) -> Resources:
        """Returns what is approved for the VM that runs in the pod."""
        owner = vm_owner(pod)
        if owner is None or not owner.controller or not is_true(pod, AUTOSCALING):
            return NOTHING
        return self._approved.get(owner.uid, NOTHING)


def _read(vm: VirtualMachine) -> Resources:
    text = (vm.metadata.annotations or {}).get(APPROVED)
    try:
        return read_resources(text) if text is not None else NOTHING
    except BadAmount:
        return NOTHING
