"""VirtualMachineMigration controller: creates the target pod, transfers the VM, switches ownership.

Owner references show the role of a pod: during a migration the migration controls the target pod,
and is an owner of the source pod beside the VM; afterwards the VM controls the target pod, and no
object controls the source pod. No VM runs: the transfer takes the VM's memory divided by the
bandwidth of the migration.

Source: neondatabase/autoscaling pkg/neonvm/controllers/vmmigration_controller.go. Differs from it:
the completion timeout is enforced, and after a failure at any stage the VM runs on in the source
pod and the target pod is deleted.
"""

from collections.abc import Iterable
from typing import Final

from stower.controllers import vm_pods
from stower.controllers.objects import (
    Object,
    ObjectStore,
    age,
    created_ns,
    is_ending,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from stower.controllers.pods import condition, hash_of
from stower.controllers.runtime import OwnerController, ReconcileResult
from stower.controllers.virtual_machines import MOVING, conditions, write_status
from stower.model.quantity import parse_quantity
from stower.model.times import SECOND_NS, time_ns

FINALIZER: Final = "vm.neon.tech/finalizer"
# On a VM: which share of its migrations fails in the transfer, as 0.25; for tests.
FAILS: Final = "stower.dev/migrations-fail"
TIMEOUT_SECONDS: Final = 3600
BANDWIDTH: Final = "1Gi"
TRANSFER_NS_LEAST: Final = SECOND_NS
TURN: Final = "Progressing"  # the condition of a VM that says it
ENDED: Final = ("Succeeded", "Failed")
AGAIN_NS: Final = SECOND_NS


class VmMigrationController(OwnerController):
    """One migration is one key."""

    name = "neonvm-migration-controller"
    kinds = ("virtualmachinemigrations", "virtualmachines", "pods")
    own = "virtualmachinemigrations"

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The migration, or those of a VM, or of a pod's VM."""
        if kind == self.own:
            return (key_of(obj),)
        name = name_of(obj)
        if kind == "pods":
            name = (obj["metadata"].get("labels") or {}).get(vm_pods.NAME) or ""
            if not name:
                return ()
        found = seen.list_namespace(self.own, namespace_of(obj))
        return tuple(key_of(one) for one in found if vm_name(one) == name)

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """One step at a time: each write is seen before the next."""
        if not vm_name(obj):
            return  # of a server that takes it: it is of no VM
        vm = seen.get("virtualmachines", vm_pods.key_in(obj, vm_name(obj)))
        finalizers = obj["metadata"].get("finalizers") or []
        if is_ending(obj):
            if FINALIZER in finalizers and self._is_undone(seen, obj, vm, todo):
                rest = [one for one in finalizers if one != FINALIZER]
                todo.replace_metadata(self.own, obj, finalizers=rest)
            return
        if FINALIZER not in finalizers:
            todo.replace_metadata(self.own, obj, finalizers=[*finalizers, FINALIZER])
            return
        status = obj.get("status") or {}
        phase = status.get("phase") or ""
        if vm is None:
            if phase not in ENDED:
                self._fail(obj, f"VM ({obj['spec']['vmName']}) not found", todo)
            return
        owner = vm_pods.reference("VirtualMachine", vm, controls=True)
        if not any(r["uid"] == owner["uid"] for r in obj["metadata"].get("ownerReferences") or ()):
            todo.replace_metadata(self.own, obj, ownerReferences=[owner])
            return
        if not status.get("targetPodName"):
            write_status(self.own, obj, {"targetPodName": _target_name(vm, obj)}, todo)
            return
        match phase:
            case "":
                self._prepare(seen, obj, vm, todo)
            case "Pending":
                self._await_target(seen, obj, vm, todo)
            case "Running":
                self._transfer(seen, obj, vm, todo)
            case "Succeeded":
                self._clear_source(seen, obj, vm, todo)
            case "Failed":
                self._is_undone(seen, obj, vm, todo)

    def _prepare(
        self, seen: ObjectStore, migration: Object, vm: Object, todo: ReconcileResult
    ) -> None:
        """A VM that moves does not change its size meanwhile. It says whose turn it is, as two that
        are asked for at a time may not see each other."""
        phase = (vm.get("status") or {}).get("phase")
        if phase == "PreMigrating" and _has_turn(migration, vm):
            write_status(self.own, migration, {"phase": "Pending"}, todo)
        elif _waits_for_another(seen, migration, vm) or phase not in ("Running", "PreMigrating"):
            todo.requeue_at(todo.now_ns + AGAIN_NS)
        else:
            turn = conditions(vm, TURN, "True", _begins(migration), todo.now_ns)
            write_status("virtualmachines", vm, {"phase": "PreMigrating", "conditions": turn}, todo)

    def _await_target(
        self, seen: ObjectStore, migration: Object, vm: Object, todo: ReconcileResult
    ) -> None:
        status, of_vm = migration["status"], vm.get("status") or {}
        source = seen.get("pods", vm_pods.key_in(vm, of_vm.get("podName") or "-"))
        if source is None or of_vm.get("phase") not in MOVING:
            self._fail(migration, f"VM ({name_of(vm)}) is no longer running", todo)
            return
        due_ns = _due_ns(migration)
        if todo.now_ns >= due_ns:
            self._fail(
                migration,
                "Migration did not complete within its completionTimeout of "
                f"{migration['spec'].get('completionTimeout') or TIMEOUT_SECONDS} s",
                todo,
            )
            return
        todo.requeue_at(due_ns)
        name = status["targetPodName"]
        target = seen.get("pods", vm_pods.key_in(migration, name))
        if target is None:
            owners = [
                vm_pods.reference("VirtualMachineMigration", migration, controls=True),
                vm_pods.reference("VirtualMachine", vm, controls=False),
            ]
            pod = vm_pods.runner(vm, name, owners)
            if migration["spec"].get("preventMigrationToSameHost", True):
                pod = vm_pods.avoid_own_nodes(pod, name_of(vm))
            todo.create("pods", pod)
            return
        patch = vm_pods.metadata_patch(vm, target)
        if patch is not None:
            todo.patch("pods", target, patch)
            return
        owners = source["metadata"].get("ownerReferences") or []
        if not any(r["uid"] == uid_of(migration) for r in owners):
            own = vm_pods.reference("VirtualMachineMigration", migration, controls=False)
            todo.replace_metadata("pods", source, ownerReferences=[*owners, own])
            return
        runs, when_ns = vm_pods.runner_phase(target, todo.now_ns)
        if when_ns is not None:
            todo.requeue_at(when_ns)
        if runs == vm_pods.SUCCEEDED:
            self._fail(migration, f"Target Pod ({name}) completed suddenly", todo)
        elif runs == vm_pods.FAILED:
            self._fail(migration, f"Target Pod ({name}) failed", todo)
        elif runs == vm_pods.RUNNING and of_vm["phase"] == "PreMigrating":
            write_status("virtualmachines", vm, {"phase": "Migrating"}, todo)
        elif runs == vm_pods.RUNNING:
            text = f"Migration was started to target runner ({name})"
            begun = {
                "phase": "Running",
                "sourcePodName": name_of(source),
                "sourcePodIP": of_vm.get("podIP"),
                "sourceNode": source["spec"].get("nodeName"),
                "targetPodIP": (target.get("status") or {}).get("podIP"),
                "targetNode": target["spec"].get("nodeName"),
                "info": {"status": "active"},
                "conditions": conditions(migration, "Available", "True", text, todo.now_ns),
            }
            write_status(self.own, migration, begun, todo)

    def _transfer(
        self, seen: ObjectStore, migration: Object, vm: Object, todo: ReconcileResult
    ) -> None:
        status, of_vm = migration["status"], vm.get("status") or {}
        name, source_name = status["targetPodName"], status.get("sourcePodName") or "-"
        target = seen.get("pods", vm_pods.key_in(migration, name))
        source = seen.get("pods", vm_pods.key_in(migration, source_name))
        if of_vm.get("podName") == name:
            self._hand_over(migration, vm, target, source, todo)
            return
        if target is None or vm_pods.runner_phase(target, todo.now_ns)[0] != vm_pods.RUNNING:
            self._fail(migration, f"Target Pod ({name}) disappeared", todo)
            return
        runs = vm_pods.runner_phase(source, todo.now_ns)[0] if source is not None else ""
        if of_vm.get("phase") != "Migrating" or runs != vm_pods.RUNNING:
            self._fail(migration, f"VM ({name_of(vm)}) is no longer running", todo)
            return
        begun = condition(migration, "Available") or {}
        took_ns = todo.now_ns - (time_ns(begun.get("lastTransitionTime")) or 0)
        needs_ns = _transfer_ns(migration, vm)
        if took_ns < needs_ns:
            todo.requeue_at(todo.now_ns + needs_ns - took_ns)
        elif _fails(migration, vm):
            self._fail(migration, f"Transfer to target Pod ({name}) failed", todo)
        else:
            place = {
                "node": target["spec"].get("nodeName"),
                "podIP": (target.get("status") or {}).get("podIP"),
            }
            moved = {"podName": name, "phase": "Running", **place}
            write_status("virtualmachines", vm, moved, todo)

    def _hand_over(
        self, migration: Object, vm: Object, target: Object | None, source: Object | None,
        todo: ReconcileResult,
    ) -> None:  # fmt: skip
        """The VM runs in the target: it controls that pod now, and nobody the source."""
        of_vm = vm_pods.reference("VirtualMachine", vm, controls=True)
        owners = {"target": [of_vm], "source": [
            vm_pods.reference("VirtualMachineMigration", migration, controls=False),
            vm_pods.reference("VirtualMachine", vm, controls=False),
        ]}  # fmt: skip
        for role, pod in (("target", target), ("source", source)):
            if pod is not None and _ties(pod["metadata"]) != _ties(
                {"ownerReferences": owners[role]}
            ):
                todo.replace_metadata("pods", pod, ownerReferences=owners[role])
                return
        write_status(
            self.own, migration, {"phase": "Succeeded", "info": {"status": "completed"}}, todo
        )

    def _clear_source(
        self, seen: ObjectStore, migration: Object, vm: Object, todo: ReconcileResult
    ) -> None:
        if migration["status"].get("sourcePodName") and self._is_source_deleted(
            seen, migration, todo
        ):
            write_status(self.own, migration, {"sourcePodName": None, "sourcePodIP": None}, todo)

    @staticmethod
    def _is_source_deleted(seen: ObjectStore, migration: Object, todo: ReconcileResult) -> bool:
        """Returns whether the source is gone or ends; if not, deletes it."""
        name = migration["status"].get("sourcePodName") or "-"
        source = seen.get("pods", vm_pods.key_in(migration, name))
        if source is None or is_ending(source) or not _owns(migration, source):
            return True
        todo.delete("pods", source)
        return False

    def _is_undone(
        self, seen: ObjectStore, migration: Object, vm: Object | None, todo: ReconcileResult
    ) -> bool:
        """Returns whether the pod is gone that the VM does not run in: the source of a migration
        that succeeded, else the target; and the source, too, where the VM has left it before the
        target was lost."""
        status = migration.get("status") or {}
        left = seen.get("pods", vm_pods.key_in(migration, status.get("sourcePodName") or "-"))
        if status.get("phase") == "Succeeded":
            return self._is_source_deleted(seen, migration, todo)
        if left is not None and not _has_controller(left):
            if not self._is_source_deleted(seen, migration, todo):
                return False
        name = status.get("targetPodName") or "-"
        target = seen.get("pods", vm_pods.key_in(migration, name))
        of_vm = (vm or {}).get("status") or {}
        if of_vm.get("podName") == name:
            return True  # it came to its end, which nobody has told yet
        if target is not None and not is_ending(target) and _controls(migration, target):
            todo.delete("pods", target)
            return False
        source = seen.get("pods", vm_pods.key_in(migration, of_vm.get("podName") or "-"))
        began = source is not None and _owns(migration, source)
        if source is not None and began:
            rest = [
                r for r in source["metadata"]["ownerReferences"] if r["uid"] != uid_of(migration)
            ]
            todo.replace_metadata("pods", source, ownerReferences=rest)
            return False
        if vm is not None and of_vm.get("phase") in MOVING:
            if not any(_has_turn(one, vm) for one in _list_others(seen, migration, vm)):
                write_status("virtualmachines", vm, {"phase": "Running"}, todo)
                return False
        return True

    def _fail(self, migration: Object, why: str, todo: ReconcileResult) -> None:
        made = conditions(migration, "Degraded", "True", why, todo.now_ns)
        status = {"phase": "Failed", "conditions": made, "info": {"status": "failed"}}
        write_status(self.own, migration, status, todo)


def vm_name(migration: Object) -> str:
    """The VM that moves."""
    return str((migration.get("spec") or {}).get("vmName") or "")


def _ties(metadata: Object) -> list[tuple[str, bool]]:
    """Who owns it, and who controls it."""
    return [(r["uid"], bool(r.get("controller"))) for r in metadata.get("ownerReferences") or ()]


def _target_name(vm: Object, migration: Object) -> str:
    suffix = hash_of([uid_of(migration), "target"])[: vm_pods.SUFFIX_LENGTH]
    return f"{name_of(vm)}-{suffix}"


def _owns(migration: Object, pod: Object) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(r["uid"] == uid_of(migration) for r in owners)


def _controls(migration: Object, pod: Object) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(r["uid"] == uid_of(migration) and r.get("controller") for r in owners)


def _has_controller(pod: Object) -> bool:
    return any(r.get("controller") for r in pod["metadata"].get("ownerReferences") or ())


def _list_others(seen: ObjectStore, migration: Object, vm: Object) -> Iterable[Object]:
    """Other migrations of the VM that have not ended, nor been deleted before they began.

    One that is deleted on its way goes on being one of them until all of it is undone.
    """
    for one in seen.list_namespace(VmMigrationController.own, namespace_of(migration)):
        is_of_vm = vm_name(one) == name_of(vm) and uid_of(one) != uid_of(migration)
        if is_of_vm and _phase(one) not in ENDED and (_phase(one) or not is_ending(one)):
            yield one


def _phase(migration: Object) -> str:
    return str((migration.get("status") or {}).get("phase") or "")


def _waits_for_another(seen: ObjectStore, migration: Object, vm: Object) -> bool:
    """A VM moves once at a time, in the order in which that was asked for."""
    others = _list_others(seen, migration, vm)
    return any(_phase(one) or _has_turn(one, vm) or age(one) < age(migration) for one in others)


def _begins(migration: Object) -> str:
    """What the VM says of whose turn it is."""
    return f"Migration {name_of(migration)} ({uid_of(migration)}) begins"


def _has_turn(migration: Object, vm: Object) -> bool:
    return (condition(vm, TURN) or {}).get("message") == _begins(migration)


def _due_ns(migration: Object) -> int:
    """When it has taken too long."""
    seconds = migration["spec"].get("completionTimeout") or TIMEOUT_SECONDS
    return created_ns(migration) + seconds * SECOND_NS


def _transfer_ns(migration: Object, vm: Object) -> int:
    """All memory once; what changes meanwhile goes beside it."""
    memory = vm_pods.size_of(vm["spec"]["guest"]).memory
    rate = parse_quantity(str(migration["spec"].get("maxBandwidth", BANDWIDTH))).value()
    return max(TRANSFER_NS_LEAST, memory * SECOND_NS // max(rate, 1))


def _fails(migration: Object, vm: Object) -> bool:
    """Whether this one is of the share that fails: always the same."""
    text = (vm["metadata"].get("annotations") or {}).get(FAILS, "0")
    try:
        share = float(text)
    except ValueError:
        return False
    return vm_pods.chance_of(uid_of(migration), FAILS) % 1000 < share * 1000
