"""VirtualMachine controller: keeps a runner pod for each VM and reports the size of the VM.

No VM runs: a change of the size in the spec takes effect in the status after one second. A runner
pod that has ended or is deleted is replaced.
Source: neondatabase/autoscaling pkg/neonvm/controllers/vm_controller.go.
"""

from collections.abc import Iterable
from typing import Any, Final

from stower.controllers import vm_pods
from stower.controllers.objects import Object, ObjectStore, is_ending, key_of, name_of, namespace_of
from stower.controllers.pods import condition
from stower.controllers.runtime import OwnerController, ReconcileResult
from stower.model.times import SECOND_NS, time_text
from stower.vms.amounts import cpu_value, memory_value

FINALIZER: Final = "vm.neon.tech/finalizer"
SCALING: Final = "Scaling"
MOVING: Final = ("PreMigrating", "Migrating")
SCALING_MODE: Final = "QmpScaling"
SCALES_NS: Final = SECOND_NS
# Its pod is gone, or is about to be.
CLEARED: Final[Object] = dict.fromkeys(("podName", "podIP", "node", "cpus", "memorySize"))


class VirtualMachineController(OwnerController):
    """One VM is one key."""

    name = "neonvm-controller"
    kinds = ("virtualmachines", "pods")
    own = "virtualmachines"

    def __init__(self) -> None:
        self._since: dict[str, tuple[Any, int]] = {}  # by key: to what size, and since when

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The VM, or that of a pod: by its label, as the target of a migration has another
        controller."""
        if kind == self.own:
            return (key_of(obj),)
        name = (obj["metadata"].get("labels") or {}).get(vm_pods.NAME)
        return (f"{namespace_of(obj)}/{name}",) if name else ()

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """One step at a time: each write is seen before the next."""
        finalizers = obj["metadata"].get("finalizers") or []
        if is_ending(obj):
            if FINALIZER in finalizers:
                rest = [one for one in finalizers if one != FINALIZER]
                todo.replace_metadata(self.own, obj, finalizers=rest)
            return
        if FINALIZER not in finalizers:
            todo.replace_metadata(self.own, obj, finalizers=[*finalizers, FINALIZER])
            return
        if not (obj.get("spec") or {}).get("guest"):
            return  # of a server that takes it: nobody knows what it is to be
        if not obj["spec"].get("cpuScalingMode"):
            todo.patch(self.own, obj, {"spec": {"cpuScalingMode": SCALING_MODE}})
            return
        status = obj.get("status") or {}
        match status.get("phase") or "":
            case "":
                self._say(obj, {"phase": "Pending"}, todo)
            case "Pending" if not status.get("podName"):
                name = vm_pods.pod_name(obj, status.get("restartCount") or 0)
                self._say(obj, {"podName": name}, todo)
            case "Succeeded" | "Failed":
                self._begin_again(seen, obj, status, todo)
            case _:
                self._run(seen, obj, status, todo)

    def _run(self, seen: ObjectStore, vm: Object, status: Object, todo: ReconcileResult) -> None:
        name, phase = status.get("podName") or "", status["phase"]
        pod = seen.get("pods", vm_pods.key_in(vm, name))
        if pod is None and phase == "Pending":
            owner = vm_pods.reference("VirtualMachine", vm, controls=True)
            todo.create("pods", vm_pods.runner(vm, name, [owner]))
            return
        if pod is None:
            text = f"Pod ({name}) for VirtualMachine ({name_of(vm)}) not found"
            self._say(vm, {"phase": "Failed"}, todo, "Degraded", text)
            return
        patch = vm_pods.metadata_patch(vm, pod)
        if patch is not None:
            todo.patch("pods", pod, patch)
        runs, when_ns = vm_pods.runner_phase(pod, todo.now_ns)
        if when_ns is not None:
            todo.requeue_at(when_ns)
        what = f"Pod ({name}) for VirtualMachine ({name_of(vm)})"
        if runs == vm_pods.SUCCEEDED:
            self._say(vm, {"phase": "Succeeded"}, todo, "Available", f"{what} succeeded", "False")
        elif runs == vm_pods.FAILED:
            self._say(vm, {"phase": "Failed"}, todo, "Degraded", f"{what} failed")
        elif runs == vm_pods.RUNNING and phase == "Pending":
            made = f"{what} created successfully"
            self._say(vm, {"phase": "Running", **_place(pod)}, todo, "Available", made)
        elif runs == vm_pods.RUNNING and phase not in MOVING:
            self._resize(vm, pod, status, todo)

    def _resize(self, vm: Object, pod: Object, status: Object, todo: ReconcileResult) -> None:
        """What is plugged becomes what the spec says, which takes a while."""
        want = vm_pods.size_of(vm["spec"]["guest"])
        has: Object = {
            "cpus": cpu_value(want.cpu), "memorySize": str(memory_value(want.memory)),
        }  # fmt: skip
        place = _place(pod)
        is_first = status.get("cpus") is None
        if is_first or all(status.get(name) == value for name, value in has.items()):
            new = {**place, **has, "phase": "Running"}
            if any(status.get(name) != value for name, value in new.items()):
                self._say(vm, new, todo)
        elif status["phase"] != SCALING:
            self._say(vm, {**place, "phase": SCALING}, todo)
            todo.requeue_at(todo.now_ns + SCALES_NS)
        elif self._has_scaled(vm, want, todo):
            self._say(vm, {**place, **has, "phase": "Running"}, todo)

    def _has_scaled(self, vm: Object, want: Any, todo: ReconcileResult) -> bool:
        """Whether it has had the time. After a restart it takes it again."""
        key = key_of(vm)
        known, since_ns = self._since.setdefault(key, (want, todo.now_ns))
        if known != want:
            since_ns = todo.now_ns
            self._since[key] = (want, since_ns)
        if todo.now_ns < since_ns + SCALES_NS:
            todo.requeue_at(since_ns + SCALES_NS)
            return False
        del self._since[key]
        return True

    def _begin_again(
        self, seen: ObjectStore, vm: Object, status: Object, todo: ReconcileResult
    ) -> None:
        """The pod goes, and lets go of the VM; then there is another, if one is wanted."""
        pod = seen.get("pods", vm_pods.key_in(vm, status.get("podName") or "-"))
        if pod is not None and not is_ending(pod):
            todo.delete("pods", pod)
            return
        if pod is not None and pod["metadata"].get("ownerReferences"):
            todo.replace_metadata("pods", pod, ownerReferences=[])
            return
        policy, phase = vm["spec"].get("restartPolicy", "Always"), status["phase"]
        if policy == "Always" or (policy == "OnFailure" and phase == "Failed"):
            again = (status.get("restartCount") or 0) + 1
            self._say(vm, {**CLEARED, "phase": "Pending", "restartCount": again}, todo)
        elif any(status.get(name) is not None for name in CLEARED):
            self._say(vm, CLEARED, todo)

    def _say(
        self,
        vm: Object,
        status: Object,
        todo: ReconcileResult,
        type: str = "",
        message: str = "",
        truth: str = "True",
    ) -> None:
        """Write fields of the status; `type`: a condition that they come with."""
        made = dict(status)
        if type:
            made["conditions"] = conditions(vm, type, truth, message, todo.now_ns)
        write_status(self.own, vm, made, todo)


def write_status(kind: str, obj: Object, status: Object, todo: ReconcileResult) -> None:
    """Write fields of the status of an object, which must be as it was seen: migrations and VMs
    are told of by more than one."""
    meta = {"resourceVersion": obj["metadata"]["resourceVersion"]}
    todo.patch(kind, obj, {"metadata": meta, "status": status}, "status")


def conditions(obj: Object, type: str, truth: str, message: str, now_ns: int) -> list[Object]:
    """All conditions of an object, one of them as it is now."""
    known = condition(obj, type)
    same = known is not None and known["status"] == truth
    since = known["lastTransitionTime"] if known is not None and same else time_text(now_ns)
    others = [c for c in (obj.get("status") or {}).get("conditions") or () if c["type"] != type]
    new = {"type": type, "status": truth, "reason": "Reconciling", "message": message,
           "lastTransitionTime": since}  # fmt: skip
    return [*others, new]


def _place(pod: Object) -> Object:
    """Where it runs."""
    place = {"node": pod["spec"].get("nodeName"), "podIP": (pod.get("status") or {}).get("podIP")}
    return {name: value for name, value in place.items() if value}
