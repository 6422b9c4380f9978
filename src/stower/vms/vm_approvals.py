"""Knows the VirtualMachines, and which resources are approved on each, whoever wrote the approval.

A pod counts as that of a VM while the VM exists: whoever may create pods, and no VMs, could name
any as its owner, and take the room of whole nodes by annotations. Where no VM is known at all, as
in files without VMs, pods are taken at their word.

The VM's controller copies an approval to the VM's pod. Until then, and as long as that controller
stands still, the pod shows less than was approved. A scheduler that starts reads here what another
one has approved before; so do writes of agents count as soon as they show.
"""

from collections.abc import Iterable

from stower.model.kinds import Pod, VirtualMachine
from stower.vms.amounts import BadAmount, Resources, read_resources
from stower.vms.pods import APPROVED, AUTOSCALING, as_ordinary, is_true, vm_owner

NOTHING = Resources()


class VmApprovals:
    """Approved resources by the VM's uid, and the pod that each VM runs in."""

    def __init__(self) -> None:
        self._known: set[str] = set()  # uids of all VMs
        self._approved: dict[str, Resources] = {}
        self._pods: dict[str, str] = {}  # uid of the pod by uid of the VM

    def put(self, vm: VirtualMachine, is_deleted: bool) -> list[str]:
        """A VM came, changed or went. Returns the uids of pods for which that makes a difference.
        An approval that cannot be read is none."""
        uid, had_any = vm.metadata.uid, bool(self._known)
        before = self._approved.pop(uid, NOTHING), uid in self._known
        self._known.discard(uid)
        approved = NOTHING
        if not is_deleted:
            self._known.add(uid)
            approved = _read(vm)
            if approved != NOTHING:
                self._approved[uid] = approved
        if had_any != bool(self._known):
            return [*self._pods.values()]
        is_other = before != (approved, not is_deleted)
        return [self._pods[uid]] if is_other and uid in self._pods else []

    def replace(self, vms: Iterable[VirtualMachine]) -> list[str]:
        """These are all VMs. Returns the uids of the pods for which that makes a difference."""
        listed = {vm.metadata.uid: vm for vm in vms}
        found: dict[str, None] = {}
        for vm in listed.values():
            found |= dict.fromkeys(self.put(vm, False))
        for uid in self._known - listed.keys():
            self._known.discard(uid)
            self._approved.pop(uid, None)
            found |= dict.fromkeys(self._pods.values() if not self._known else ())
            found |= dict.fromkeys([self._pods[uid]] if uid in self._pods else ())
        return [*found]

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

    def counted(self, pod: Pod) -> Pod:
        """The pod as it counts: that of a VM that does not exist is one like any other."""
        owner = vm_owner(pod)
        is_known = owner is None or owner.uid in self._known or not self._known
        return pod if is_known else as_ordinary(pod)

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
