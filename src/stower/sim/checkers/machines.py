"""Law `machines`: each VM runs in one pod, or is in exactly one migration, and leaves no pod."""

from stower.model.kinds import Pod, VirtualMachine, VirtualMachineMigration
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker, Court
from stower.vms.migrations import ENDED
from stower.vms.pods import migration_owner, vm_owner

# Its controller may be down for a minute, and then has something to do.
RESTORED_NS = 120 * SECOND_NS


class Machines(Checker):
    """Looks at who controls the pods of a VM; what is not in order for long is broken."""

    law = "machines"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._since_ns: dict[str, int] = {}  # by what is the matter

    def check(self) -> None:
        """All VMs."""
        now_ns, found = self.court.agenda.now_ns, {}
        pods = self._pods_by_vm()
        for vm in self.court.server.all(VirtualMachine).values():
            moves = self._list_migrations(vm)
            if len(moves) > 1:
                raise self.violation(
                    f"VM {vm.metadata.key} has {len(moves)} migrations under way, want at most 1"
                )
            for text in self._faults(vm, len(moves), pods.get(vm.metadata.uid, [])):
                found[text] = self._since_ns.get(text, now_ns)
                if now_ns - found[text] > RESTORED_NS:
                    raise self.violation(f"VM {vm.metadata.key} {text}")
        self._since_ns = found

    def _list_migrations(self, vm: VirtualMachine) -> list[VirtualMachineMigration]:
        """Its migrations that have begun, and not ended."""
        return [
            one
            for one in self.court.server.all(VirtualMachineMigration).values()
            if one.spec.vm_name == vm.metadata.name and one.status.phase not in ("", *ENDED)
        ]

    def _pods_by_vm(self) -> dict[str, list[Pod]]:
        """The pods that are not being deleted, by the uid of their VM: one pass for all VMs."""
        found: dict[str, list[Pod]] = {}
        for pod in self.court.server.all(Pod).values():
            owner = vm_owner(pod)
            if owner is not None and pod.metadata.deletion_timestamp is None:
                found.setdefault(owner.uid, []).append(pod)
        return found

    def _faults(self, vm: VirtualMachine, moves: int, pods: list[Pod]) -> list[str]:
        server = self.court.server
        own, targets, left = [], [], []
        for pod in pods:
            owner, migration = vm_owner(pod), migration_owner(pod)
            if owner is not None and owner.controller:
                own.append(pod.metadata.name)
            elif migration is not None and migration.controller:
                targets.append(pod.metadata.name)
            elif migration is None:
                left.append(pod.metadata.name)
        faults = []
        if left:
            faults.append(f"has left the pods {', '.join(left)}, which nobody deletes")
        if len(own) > 1:
            faults.append(f"runs in several pods: {', '.join(own)}")
        if len(targets) > moves:
            faults.append(f"has the target pods {', '.join(targets)}, but {moves} migrations")
        phase, name = vm.status.get("phase"), vm.status.get("podName")
        if phase in ("Migrating", "PreMigrating") and not moves:
            waiting = [m for m in server.all(VirtualMachineMigration).values()
                       if m.spec.vm_name == vm.metadata.name and not m.status.phase]  # fmt: skip
            if not waiting:
                faults.append(f"is {phase} without a migration")
        if phase == "Running" and server.get(Pod, f"{vm.metadata.namespace}/{name}") is None:
            faults.append(f"runs in pod {name}, which does not exist")
        return faults

    def check_end(self) -> None:
        """Whoever moved at the end has come to an end."""
        pods = self._pods_by_vm()
        for vm in self.court.server.all(VirtualMachine).values():
            moves = len(self._list_migrations(vm))
            faults = [
                text
                for text in self._faults(vm, moves, pods.get(vm.metadata.uid, []))
                if "migration" in text
            ]
            if faults:
                raise self.violation(f"VM {vm.metadata.key} {faults[0]}")
