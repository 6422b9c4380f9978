"""Builds the runner pods of VMs, copies labels and annotations to them, and reads their phase.

Builds only the parts of the pod's spec that matter to scheduling; nothing is emulated in the pod.
Source: neondatabase/autoscaling pkg/neonvm/controllers/vm_controller.go.
"""

from typing import Any, Final

import msgspec

from stower.controllers.objects import Object, key_of, name_of, namespace_of, uid_of
from stower.controllers.pods import hash_of, phase
from stower.model.quantity import parse_quantity
from stower.model.times import SECOND_NS, time_ns
from stower.vms.amounts import Resources, cpu_value, memory_value
from stower.vms.pods import OVERCOMMIT, RESOURCES, VERSION

NAME: Final = "vm.neon.tech/name"
USAGE: Final = "vm.neon.tech/usage"
RUNNER: Final = "neonvm-runner"
RUNNER_IMAGE: Final = "neonvm/runner:stower"
HOST: Final = "kubernetes.io/hostname"
NOT_COPIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# Set on the pod by networks, and theirs.
FOREIGN: Final = tuple(f"k8s.v1.cni.cncf.io/{n}" for n in ("networks", "network-status"))
LOST_SECONDS: Final = 30  # on a node that is lost: the default of five minutes is too long
# A pod that is told to end has failed for its VM after so long.
ENDING_NS: Final = 5 * SECOND_NS
SUFFIX_LENGTH: Final = 5

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"


def pod_name(owner: Object, turn: int = 0) -> str:
    """The name of a runner pod: the same however often it is asked for."""
    return f"{name_of(owner)}-{hash_of([uid_of(owner), turn])[:SUFFIX_LENGTH]}"


def size_of(guest: Object) -> Resources:
    """What a VM is to use now: milli-CPU and bytes."""
    slots, each = guest_part(guest, "memorySlots")["use"], guest.get("memorySlotSize", "1Gi")
    cpus = guest_part(guest, "cpus")["use"]
    return Resources(_milli(cpus), slots * parse_quantity(str(each)).value())


def guest_part(guest: Object, name: str) -> Object:
    """`cpus` or `memorySlots`: min, max and use, 0 where that is not said."""
    return {"min": 0, "max": 0, "use": 0, **(guest.get(name) or {})}


def _milli(amount: Any) -> int:
    return parse_quantity(str(amount)).milli_value()


def labels_of(vm: Object) -> dict[str, str]:
    """Those that its pods have, and no others."""
    own = vm["metadata"].get("labels") or {}
    return {**own, "app.kubernetes.io/name": "NeonVM", NAME: name_of(vm)}


def annotations_of(vm: Object) -> dict[str, str]:
    """The same of annotations."""
    own = dict(vm["metadata"].get("annotations") or {})
    own.pop(NOT_COPIED, None)
    guest = vm["spec"]["guest"]
    use = size_of(guest)
    cpus, slots = guest_part(guest, "cpus"), guest_part(guest, "memorySlots")
    bounds = {name: cpu_value(_milli(cpus[name])) for name in ("min", "max", "use")}
    each = str(guest.get("memorySlotSize", "1Gi"))
    own["kubectl.kubernetes.io/default-container"] = RUNNER
    own[USAGE] = _text({"cpu": str(cpu_value(use.cpu)), "memory": str(memory_value(use.memory))})
    own[RESOURCES] = _text({"cpus": bounds, "memorySlots": slots, "memorySlotSize": each})
    overcommit = vm["spec"].get("overcommit")
    if overcommit is not None:
        own[OVERCOMMIT] = _text({name: str(value) for name, value in overcommit.items()})
    return own


def _text(value: Object) -> str:
    return msgspec.json.encode(value).decode()


def metadata_patch(vm: Object, pod: Object) -> Object | None:
    """What makes the labels and annotations of a pod those of its VM; None where they are."""
    wanted = {"labels": labels_of(vm), "annotations": annotations_of(vm)}
    patch: Object = {}
    for field, those in wanted.items():
        have = pod["metadata"].get(field) or {}
        changed: dict[str, str | None] = {k: v for k, v in those.items() if have.get(k) != v}
        for name in have:
            if name not in those and name not in FOREIGN:
                changed[name] = None
        if changed:
            patch[field] = changed
    return {"metadata": patch} if patch else None


def reference(kind: str, owner: Object, controls: bool) -> Object:
    """An owner reference to a VM or a migration."""
    made = {"apiVersion": VERSION, "kind": kind, "name": name_of(owner), "uid": uid_of(owner)}
    return {**made, "controller": True, "blockOwnerDeletion": True} if controls else made


def runner(vm: Object, name: str, owners: list[Object]) -> Object:
    """A pod for the VM to run in."""
    spec = vm["spec"]
    guest = spec["guest"]
    lost = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute",
         "tolerationSeconds": LOST_SECONDS}
        for what in ("not-ready", "unreachable")
    ]  # fmt: skip
    root = guest.get("rootDisk") or {}
    container: Object = {
        "name": RUNNER,
        "image": spec.get("runnerImage") or RUNNER_IMAGE,
        "ports": [{"containerPort": port["port"]} for port in guest.get("ports") or ()],
        "resources": spec.get("podResources") or {},
    }
    made: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": spec.get("terminationGracePeriodSeconds", 5),
        "automountServiceAccountToken": False,
        "tolerations": [*(spec.get("tolerations") or ()), *lost],
        "affinity": _affinity(spec),
        "containers": [container],
    }
    for field in ("nodeSelector", "schedulerName", "serviceAccountName", "imagePullSecrets"):
        if spec.get(field):
            made[field] = spec[field]
    if root.get("image"):
        made["initContainers"] = [{"name": "init", "image": root["image"]}]
    meta = {
        "name": name, "namespace": namespace_of(vm), "labels": labels_of(vm),
        "annotations": annotations_of(vm), "ownerReferences": owners,
    }  # fmt: skip
    return {"metadata": meta, "spec": made}


def _affinity(spec: Object) -> Object:
    needs = [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]
    if spec.get("targetArchitecture"):
        values = [spec["targetArchitecture"]]
        needs.append({"key": "kubernetes.io/arch", "operator": "In", "values": values})
    affinity = dict(spec.get("affinity") or {})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = (of_nodes.get(field) or {}).get("nodeSelectorTerms") or []
    of_nodes[field] = {"nodeSelectorTerms": [*terms, {"matchExpressions": needs}]}
    return {**affinity, "nodeAffinity": of_nodes}


def avoid_own_nodes(pod: Object, vm_name: str) -> Object:
    """The pod, to be on another node than the VM's other pods."""
    term = {"labelSelector": {"matchLabels": {NAME: vm_name}}, "topologyKey": HOST}
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = pod["spec"]["affinity"]
    against = affinity.get("podAntiAffinity") or {}
    against = {**against, field: [*(against.get(field) or ()), term]}
    spec = {**pod["spec"], "affinity": {**affinity, "podAntiAffinity": against}}
    return {**pod, "spec": spec}


def runner_phase(pod: Object, now_ns: int) -> tuple[str, int | None]:
    """How the VM in it is; and when that may be otherwise though nothing happens."""
    told = time_ns(pod["metadata"].get("deletionTimestamp"))
    if told is not None:
        if told + ENDING_NS <= now_ns:
            return FAILED, None
        return phase(pod), told + ENDING_NS
    return phase(pod), None


def key_in(obj: Object, name: str) -> str:
    """The key of another object in the namespace of one."""
    return key_of({"metadata": {"name": name, "namespace": namespace_of(obj)}})


def chance_of(*of: Any) -> int:
    """A large number that is always the same for the same."""
    return sum(ord(letter) * 31**i for i, letter in enumerate(hash_of([*of])))
