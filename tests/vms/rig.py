"""An engine that schedules VMs, and as much of a cluster around it as that takes: writes are
carried out, what is written to a VM comes to its pod."""

from collections.abc import Mapping
from typing import Any

import msgspec

from stower.api.patches import PatchError, json_patch
from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.framework.events import (
    AgentAsked,
    Event,
    Listed,
    Observed,
    Tick,
    WatchType,
    WriteFailed,
    WriteOk,
)
from stower.framework.writes import (
    AgentAnswer,
    Bind,
    CreateObject,
    DeleteObject,
    JsonPatchObject,
    Write,
)
from stower.model.kinds import Node, Pod, VirtualMachine, VirtualMachineMigration
from stower.model.times import SECOND_NS
from stower.vms.controller import VmScheduling
from stower.vms.enforcer import Enforcer
from stower.vms.pods import vm_owner
from tests.builders import make_node, make_pod

SCHEDULER = "autoscale-scheduler"
REQUESTED = "internal.autoscaling.neon.tech/resources-requested"
APPROVED = "internal.autoscaling.neon.tech/resources-approved"
UNIT = "autoscaling.neon.tech/scaling-unit"
RESOURCES = "vm.neon.tech/resources"
AUTOSCALING = "autoscaling.neon.tech/enabled"
MOVES = "autoscaling.neon.tech/auto-migration-enabled"
START_NS = 1_000 * SECOND_NS


def amount(cpu: float | int | str, memory: int) -> str:
    """CPUs and GiB, as annotations have them."""
    milli = cpu if isinstance(cpu, str) else f"{round(cpu * 1000)}m"
    value = int(milli[:-1]) // 1000 if milli.endswith("000m") else milli
    return msgspec.json.encode({"vCPUs": value, "mem": f"{memory}Gi"}).decode()


def vm_pod(
    name: str = "vm1",
    *,
    node: str = "",
    use: tuple[float, int] = (1, 2),
    requested: tuple[float, int] | None = None,
    approved: tuple[float, int] | None = None,
    unit: bool = True,
    scaled: bool = True,
    moves: bool = False,
    created: int = 0,
    migration: str = "",
    controlled: bool = False,
    annotations: Mapping[str, str] | None = None,
    **fields: Any,
) -> Pod:
    """The runner pod of a VM. use, requested, approved: CPUs and GiB; created: minutes; migration:
    one that owns it, controlled or not."""
    bounds = {"min": "250m", "max": 64}
    notes = {
        RESOURCES: msgspec.json.encode(
            {
                "cpus": {**bounds, "use": f"{round(use[0] * 1000)}m"},
                "memorySlots": {"min": 1, "max": 128, "use": use[1]},
                "memorySlotSize": "1Gi",
            }
        ).decode()
    }
    if scaled and unit:
        notes[UNIT] = amount(0.25, 1)
    for key, value in ((REQUESTED, requested), (APPROVED, approved)):
        if value is not None:
            notes[key] = amount(*value)
    labels = {"vm.neon.tech/name": name}
    labels |= {AUTOSCALING: "true"} if scaled else {}
    labels |= {MOVES: "true"} if moves else {}
    own = {"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "name": name,
           "uid": f"vm/{name}", "controller": not controlled}  # fmt: skip
    owners = [own]
    if migration:
        kind = {"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration"}
        owners.append({**kind, "name": migration, "uid": f"m/{migration}",
                       "controller": controlled})  # fmt: skip
    fields = {"schedulerName": SCHEDULER, "cpu": "100m", "memory": "128Mi", **fields}
    pod = make_pod(f"{name}-pod", node=node, labels=labels, **fields)
    meta: Any = msgspec.to_builtins(pod.metadata)
    meta |= {
        "annotations": notes | dict(annotations or {}),
        "ownerReferences": owners,
        "creationTimestamp": f"2026-01-01T00:{created:02}:00Z",
    }
    return msgspec.structs.replace(pod, metadata=msgspec.convert(meta, type(pod.metadata)))


def virtual_machine(
    name: str, *, approved: tuple[float, int] | None = None, uid: str = ""
) -> VirtualMachine:
    """A VM for which so many CPUs and GiB are approved."""
    notes = {APPROVED: amount(*approved)} if approved is not None else {}
    meta = {"name": name, "namespace": "default", "uid": uid or f"vm/{name}", "annotations": notes}
    return msgspec.convert({"metadata": meta}, VirtualMachine)


def changed(pod: Pod, **annotations: str | None) -> Pod:
    """The pod with annotations set, by the names of the constants above; None takes one away."""
    names = {"requested": REQUESTED, "approved": APPROVED, "unit": UNIT, "resources": RESOURCES}
    notes = dict(pod.metadata.annotations or {})
    for name, value in annotations.items():
        if value is None:
            notes.pop(names[name], None)
        else:
            notes[names[name]] = value
    meta = msgspec.structs.replace(pod.metadata, annotations=notes)
    return msgspec.structs.replace(pod, metadata=meta)


def configuration(**args: Any) -> dict[str, Any]:
    """Of a scheduler that has VMs; args: of the plugin."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {"schedulerName": "default-scheduler"},
            {
                "schedulerName": SCHEDULER,
                "plugins": {"multiPoint": {"enabled": [{"name": "AutoscaleEnforcer"}]}},
                "pluginConfig": [{"name": "AutoscaleEnforcer", "args": args}],
            },
        ],
    }


class Rig:
    """See the module. Writes are carried out as they come, unless `fails` has codes for the next
    ones to VMs, or `holds` says that they are to wait; `copies`: what is written shows on pods.
    Pods that name a VM come after it, unless `has_vms` says that there is none."""

    def __init__(self, *nodes: Node, seed: int = 0, **args: Any) -> None:
        self.args = args
        self.seed = seed
        self.now_ns = START_NS
        self.objects: dict[str, Node | Pod | VirtualMachine | VirtualMachineMigration] = {
            node.metadata.uid: node for node in nodes or (make_node("n1"),)
        }
        self.fails: list[int] = []
        self.holds = False
        self.copies = True
        self.has_vms = True
        self.held: list[Write] = []
        self.writes: list[Write] = []
        self.answers: list[AgentAnswer] = []
        self.notes: list[tuple[str, str, str]] = []
        self.engine = self._built()

    def _built(self) -> Engine:
        return build_engine(configuration(**self.args), seed=self.seed)

    @property
    def scheduling(self) -> VmScheduling:
        """The companion."""
        found: VmScheduling = self.engine.state.companions["AutoscaleEnforcer"]
        return found

    @property
    def enforcer(self) -> Enforcer:
        """What it knows."""
        return self.scheduling.enforcer

    # Events

    def start(self, *pods: Pod) -> "Rig":
        """All that there is is listed."""
        self.objects |= {pod.metadata.uid: pod for pod in pods}
        for pod in [obj for obj in self.objects.values() if isinstance(obj, Pod)]:
            self._missing_vm(pod)
        self.step(Listed(tuple(self.objects.values())))
        return self.settle()

    def restart(self) -> "Rig":
        """It is killed, and started again."""
        self.engine = self._built()
        self.held.clear()
        return self.start()

    def put(self, obj: Node | Pod | VirtualMachine | VirtualMachineMigration) -> "Rig":
        """An object comes or changes."""
        vm = self._missing_vm(obj) if isinstance(obj, Pod) else None
        if vm is not None:
            self.step(Observed(WatchType.ADDED, vm))
        known = obj.metadata.uid in self.objects
        self.objects[obj.metadata.uid] = obj
        self.step(Observed(WatchType.MODIFIED if known else WatchType.ADDED, obj))
        return self.settle()

    def _missing_vm(self, pod: Pod) -> VirtualMachine | None:
        """Makes the VM that the pod names, where there is none."""
        owner = vm_owner(pod)
        if owner is None or owner.uid in self.objects or not self.has_vms:
            return None
        vm = virtual_machine(owner.name, uid=owner.uid)
        self.objects[owner.uid] = vm
        return vm

    def drop(self, uid: str) -> "Rig":
        """An object is gone."""
        self.step(Observed(WatchType.DELETED, self.objects.pop(uid)))
        return self.settle()

    def advance(self, seconds: float) -> "Rig":
        """Time passes; whatever is due meanwhile happens at its time."""
        end_ns = self.now_ns + round(seconds * SECOND_NS)
        while (due_ns := self.engine.next_wake_ns) is not None and due_ns <= end_ns:
            self.now_ns = max(self.now_ns, due_ns)
            self.step(Tick())
        self.now_ns = end_ns
        return self

    def settle(self) -> "Rig":
        """What is due now happens."""
        return self.advance(0)

    def step(self, event: Event) -> None:
        """One step, and what its writes do."""
        writes = self.engine.step(event, self.now_ns)
        self.notes += self.engine.notes()
        self.writes += writes
        for write in writes:
            if isinstance(write, AgentAnswer):
                self.answers.append(write)
            elif isinstance(write, JsonPatchObject) and self.holds:
                self.held.append(write)
            else:
                self.carry_out(write)

    def carry_out(self, write: Any) -> None:
        """Do it, and answer."""
        if isinstance(write, JsonPatchObject):
            self._patch(write)
            return
        self.step(WriteOk(write.id))
        if isinstance(write, Bind):
            pod = self.pod(write.uid)
            spec = msgspec.structs.replace(pod.spec, node_name=write.node_name)
            self.put(msgspec.structs.replace(pod, spec=spec))
        elif isinstance(write, CreateObject):
            meta = {**write.body["metadata"], "uid": f"m/{write.name}"}
            made = msgspec.convert({**write.body, "metadata": meta}, VirtualMachineMigration)
            self.put(made)
        elif isinstance(write, DeleteObject):
            self.drop(write.uid)

    def _patch(self, write: JsonPatchObject) -> None:
        code = self.fails.pop(0) if self.fails else 0
        pod = self.pod(write.uid)
        after = pod
        try:
            if not code:
                after = msgspec.convert(json_patch(msgspec.to_builtins(pod), write.operations), Pod)
        except PatchError:
            code = 422
        if code:
            self.step(WriteFailed(write.id, code, f"status {code}"))
            return
        self.step(WriteOk(write.id))
        if self.copies:
            self.put(after)

    def ask(self, body: bytes, method: str = "POST") -> AgentAnswer | None:
        """An agent asks; the answer, if there is one yet."""
        id = len(self.answers) + 1
        self.step(AgentAsked(id, method, body))
        self.settle()
        return next((answer for answer in self.answers if answer.id == id), None)

    # What there is

    def pod(self, uid: str) -> Pod:
        """As it is."""
        found = self.objects[uid]
        assert isinstance(found, Pod)
        return found

    def approved(self, name: str = "vm1") -> str | None:
        """What the pod of a VM says."""
        return (self.pod(f"uid-of-default-{name}-pod").metadata.annotations or {}).get(APPROVED)

    def patches(self) -> list[JsonPatchObject]:
        """What was written to VMs since this was asked last."""
        found = [write for write in self.writes if isinstance(write, JsonPatchObject)]
        self.writes.clear()
        return found

    def migrations(self) -> list[str]:
        """Names of the migrations that were made since this was asked last."""
        found = [write.name for write in self.writes if isinstance(write, CreateObject)]
        self.writes.clear()
        return found

    def reserved(self, node: str = "n1") -> tuple[int, int]:
        """Milli-CPU and bytes."""
        known = self.enforcer.nodes[node].node
        return known.cpu.reserved, known.memory.reserved
