"""The script of a run, as data: drawn from a seed, written by hand, or reduced from a failure.

The same script gives the same run, step by step. Times are in milliseconds of virtual time.
"""

from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from stower.controllers.vm_agents import LOAD
from stower.model.defaults import with_claim_defaults, with_node_defaults
from stower.model.kinds import (
    CompositePodGroup,
    DeviceClass,
    Node,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    ResourceClaim,
    ResourceClass,
    ResourceSlice,
    VirtualMachine,
    VirtualMachineMigration,
    WarmPool,
)
from stower.model.numbers import Int32
from stower.model.taints import Taint
from stower.model.times import SECOND_NS, time_text
from stower.sim.agenda import Agenda
from stower.sim.autoscaler import NodeGroup
from stower.sim.claims import Claims
from stower.sim.controller_process import ControllerProcess
from stower.sim.node_autoscaling import NodeAutoscaling
from stower.sim.nodes import Kubelets
from stower.sim.resource_drivers import Negotiators
from stower.sim.scheduler import SchedulerProcess
from stower.sim.server import Server
from stower.sim.storage_driver import Driver
from stower.sim.workload_controller import Controller

MILLI_NS = SECOND_NS // 1000
ZONE = "topology.kubernetes.io/zone"
# As many pods as a run may be asked for, and some more.
HAPPENINGS_MAX = 2_000_000


class Stage(Protocol):
    """Where it happens."""

    agenda: Agenda
    server: Server
    kubelets: Kubelets
    controller: Controller
    claims: Claims
    driver: Driver
    negotiators: Negotiators
    actors: list[ControllerProcess]
    autoscaling: NodeAutoscaling
    schedulers: list[SchedulerProcess]

    def add_scheduler(self, profile: str = "") -> SchedulerProcess:
        """One more candidate for leadership; with a profile of that name and a Lease of its own,
        unless that is ""."""


class Happening(
    msgspec.Struct,
    frozen=True,
    tag_field="do",
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Something at some time; each kind says what."""

    at_ms: int

    def apply(self, stage: Stage) -> None:
        """Do it."""
        raise NotImplementedError


class AddNode(Happening, frozen=True, tag="add-node"):
    """A node comes, or another takes the place of the one of its name."""

    node: Node

    def apply(self, stage: Stage) -> None:
        """It is there at once."""
        stage.server.put(with_node_defaults(self.node, uid=f"node/{self.node.metadata.name}"))


class AddBudget(Happening, frozen=True, tag="add-budget"):
    """A disruption budget comes."""

    budget: PodDisruptionBudget

    def apply(self, stage: Stage) -> None:
        """It is there at once."""
        stage.server.put(self.budget)


Identified = TypeVar(
    "Identified", ResourceSlice, DeviceClass, ResourceClass, PodGroup, CompositePodGroup,
    VirtualMachine, VirtualMachineMigration, WarmPool,
)  # fmt: skip


def _assign_uid(obj: Identified, uid: str) -> Identified:
    meta = msgspec.structs.replace(obj.metadata, uid=obj.metadata.uid or uid)
    return msgspec.structs.replace(obj, metadata=meta)


class AddDevices(Happening, frozen=True, tag="add-devices"):
    """A driver publishes a slice, or another in the place of the one of its name."""

    slice: ResourceSlice

    def apply(self, stage: Stage) -> None:
        """It is there at once."""
        stage.server.put(_assign_uid(self.slice, f"slice/{self.slice.metadata.name}"))


class AddDeviceClass(Happening, frozen=True, tag="add-device-class", rename="camel"):
    """A class of devices comes."""

    device_class: DeviceClass

    def apply(self, stage: Stage) -> None:
        """It is there at once."""
        uid = f"class/{self.device_class.metadata.name}"
        stage.server.put(_assign_uid(self.device_class, uid))


class AddResourceClass(Happening, frozen=True, tag="add-resource-class", rename="camel"):
    """A class of devices comes that are negotiated."""

    resource_class: ResourceClass

    def apply(self, stage: Stage) -> None:
        """It is there at once."""
        uid = f"resource-class/{self.resource_class.metadata.name}"
        stage.server.put(_assign_uid(self.resource_class, uid))


class AddGroup(Happening, frozen=True, tag="add-group"):
    """A group of pods comes, or another in the place of the one of its name."""

    group: PodGroup

    def apply(self, stage: Stage) -> None:
        """It is there at once."""
        stage.server.put(_assign_uid(self.group, f"group/{self.group.metadata.name}"))


class AddComposite(Happening, frozen=True, tag="add-composite"):
    """A group of groups comes, or another in the place of the one of its name."""

    group: CompositePodGroup

    def apply(self, stage: Stage) -> None:
        """It is there at once."""
        stage.server.put(_assign_uid(self.group, f"composite/{self.group.metadata.name}"))


class AddDriver(Happening, frozen=True, tag="add-driver"):
    """A driver begins to negotiate, that has so many devices on each node."""

    driver: str
    devices: dict[str, int]

    def apply(self, stage: Stage) -> None:
        """Nothing, where there is one of that name."""
        if self.driver not in stage.negotiators.processes:
            stage.negotiators.add(self.driver, self.devices)


class DeleteClaim(Happening, frozen=True, tag="delete-claim"):
    """Somebody deletes a claim, by its name."""

    claim: str

    def apply(self, stage: Stage) -> None:
        """Nothing, where there is no such claim."""
        found = stage.server.get(ResourceClaim, f"default/{self.claim}")
        if found is not None:
            stage.server.delete(found)


class AddClaim(Happening, frozen=True, tag="add-claim"):
    """A claim for devices comes that pods use by its name, one or many of them."""

    claim: ResourceClaim

    def apply(self, stage: Stage) -> None:
        """It is there at once."""
        uid = f"claim/{self.claim.metadata.name}"
        stage.server.put(with_claim_defaults(self.claim, uid))


class AddPod(Happening, frozen=True, tag="add-pod", rename="camel", omit_defaults=True):
    """One pod more of a template. `lasts_ms`: once it runs; 0 for ever."""

    template: str
    priority: Int32 = 0
    lasts_ms: int = 0

    def apply(self, stage: Stage) -> None:
        """Its controller makes it."""
        stage.controller.scale_up(self.template, self.priority, self.lasts_ms * MILLI_NS)


class _OnNode(Happening, frozen=True, rename="camel", omit_defaults=True):
    node: str

    def apply(self, stage: Stage) -> None:
        """Nothing, where there is no such node."""
        found = stage.server.get(Node, self.node)
        if found is not None:
            self.change(stage, found)

    def change(self, stage: Stage, node: Node) -> None:
        """Do it to the node."""
        raise NotImplementedError


class RemoveNode(_OnNode, frozen=True, tag="remove-node"):
    """A node is gone, and all that is on it."""

    def change(self, stage: Stage, node: Node) -> None:
        """At once."""
        stage.kubelets.remove_node(self.node)


class CordonNode(_OnNode, frozen=True, tag="cordon-node"):
    """A node is cordoned, or uncordoned where it was."""

    def change(self, stage: Stage, node: Node) -> None:
        """Write it."""
        spec = msgspec.structs.replace(node.spec, unschedulable=not node.spec.unschedulable)
        stage.server.put(msgspec.structs.replace(node, spec=spec))


class TaintNode(_OnNode, frozen=True, tag="taint-node"):
    """A node gets the taint `kept:NoSchedule` and no other, or loses all."""

    def change(self, stage: Stage, node: Node) -> None:
        """Write it."""
        taints = () if node.spec.taints else (Taint("kept", "", "NoSchedule"),)
        spec = msgspec.structs.replace(node.spec, taints=taints)
        stage.server.put(msgspec.structs.replace(node, spec=spec))


class LabelNode(_OnNode, frozen=True, tag="label-node", rename="camel", omit_defaults=True):
    """A node gets labels."""

    labels: dict[str, str]

    def change(self, stage: Stage, node: Node) -> None:
        """Write it."""
        labels = {**(node.metadata.labels or {}), **self.labels}
        meta = msgspec.structs.replace(node.metadata, labels=labels)
        stage.server.put(msgspec.structs.replace(node, metadata=meta))


class StopNode(_OnNode, frozen=True, tag="stop-node", rename="camel", omit_defaults=True):
    """A kubelet is down for so long."""

    for_ms: int

    def change(self, stage: Stage, node: Node) -> None:
        """The node is tainted meanwhile."""
        stage.kubelets.stop(self.node)
        stage.agenda.schedule_after(self.for_ms * MILLI_NS, lambda: stage.kubelets.start(self.node))


class DeletePod(Happening, frozen=True, tag="delete-pod", rename="camel", omit_defaults=True):
    """Somebody deletes a pod, by its name."""

    pod: str

    def apply(self, stage: Stage) -> None:
        """Nothing, where there is no such pod."""
        found = stage.server.get(Pod, f"default/{self.pod}")
        if found is not None:
            stage.server.delete_pod(found)


class Crash(Happening, frozen=True, tag="crash", rename="camel", omit_defaults=True):
    """A scheduler dies, and is started again after so long."""

    for_ms: int
    scheduler: int = 0

    def apply(self, stage: Stage) -> None:
        """Nothing, where there are fewer schedulers."""
        if self.scheduler < len(stage.schedulers):
            stage.schedulers[self.scheduler].crash(self.for_ms * MILLI_NS)


class StopController(
    Happening, frozen=True, tag="stop-controller", rename="camel", omit_defaults=True
):
    """A process of controllers stands still for so long, "vm-controller" or "vm-agent": it is
    started anew then."""

    for_ms: int
    controller: str

    def apply(self, stage: Stage) -> None:
        """Nothing, where no such process runs."""
        for process in stage.actors:
            if process.name == self.controller:
                process.stop()
                stage.agenda.schedule_after(self.for_ms * MILLI_NS, process.start)


class AfterApprovals(
    Happening, frozen=True, tag="after-approvals", rename="camel", omit_defaults=True
):
    """From now on, these happen as soon as a scheduler has approved anything for a VM, so many
    times; their own times count from then."""

    then: tuple[StopController | Crash, ...]
    times: int = 1

    def apply(self, stage: Stage) -> None:
        """Look at what schedulers write to VMs."""
        left = [self.times]

        def look(change: Any) -> None:
            if left[0] and stage.server.is_scheduler_writing and type(change[2]) is VirtualMachine:
                left[0] -= 1
                for one in self.then:
                    stage.agenda.schedule_after(one.at_ms * MILLI_NS, partial(one.apply, stage))

        stage.server.tell.append(look)


class StartScheduler(Happening, frozen=True, tag="start-scheduler"):
    """A scheduler of others starts, with one profile and a Lease of its own."""

    profile: str

    def apply(self, stage: Stage) -> None:
        """It campaigns at once."""
        stage.add_scheduler(self.profile).start()


class Freeze(Happening, frozen=True, tag="freeze", rename="camel", omit_defaults=True):
    """A scheduler stands still for so long."""

    for_ms: int
    scheduler: int = 0

    def apply(self, stage: Stage) -> None:
        """Nothing, where there are fewer schedulers."""
        if self.scheduler < len(stage.schedulers):
            stage.schedulers[self.scheduler].freeze(self.for_ms * MILLI_NS)


class AddVm(Happening, frozen=True, tag="add-vm"):
    """A VM comes, or another takes the place of the one of its name."""

    vm: VirtualMachine

    def apply(self, stage: Stage) -> None:
        """It is there at once; its controller does the rest."""
        stage.server.put(_assign_uid(self.vm, f"vm/{self.vm.metadata.name}"))


class AddMigration(Happening, frozen=True, tag="add-migration"):
    """Somebody has a VM moved."""

    migration: VirtualMachineMigration

    def apply(self, stage: Stage) -> None:
        """It is there at once."""
        uid = f"migration/{self.migration.metadata.name}"
        stage.server.put(_assign_uid(self.migration, uid))


class AddPool(Happening, frozen=True, tag="add-pool"):
    """A warm pool comes, or another in the place of the one of its name."""

    pool: WarmPool

    def apply(self, stage: Stage) -> None:
        """It is there at once."""
        stage.server.put(_assign_uid(self.pool, f"pool/{self.pool.metadata.name}"))


class AddAutoscaler(Happening, frozen=True, tag="add-autoscaler"):
    """A cluster autoscaler starts. `images`: those that its nodes pull."""

    groups: tuple[NodeGroup, ...]
    images: tuple[str, ...] = ()

    def apply(self, stage: Stage) -> None:
        """Nothing, where there is one."""
        stage.autoscaling.start(self.groups, self.images)


class AddUser(Happening, frozen=True, tag="add-user", rename="camel", omit_defaults=True):
    """Somebody's pod comes, and is not replaced. `lasts_ms`: once it runs; 0 for ever."""

    user: Pod
    lasts_ms: int = 0

    def apply(self, stage: Stage) -> None:
        """It is there at once, and says since when."""
        at = time_text(stage.agenda.now_ns)
        meta = msgspec.structs.replace(self.user.metadata, creation_timestamp=at)
        if self.lasts_ms:
            stage.kubelets.lifetime_ns[meta.uid] = self.lasts_ms * MILLI_NS
        stage.server.put(msgspec.structs.replace(self.user, metadata=meta))


class SetImages(_OnNode, frozen=True, tag="set-images", rename="camel", omit_defaults=True):
    """A node has these images, and no others."""

    images: tuple[str, ...]

    def change(self, stage: Stage, node: Node) -> None:
        """Write it."""
        listed = {"images": [{"names": [name], "sizeBytes": 1 << 30} for name in self.images]}
        images = msgspec.convert(listed, type(node.status)).images
        status = msgspec.structs.replace(node.status, images=images)
        stage.server.put(msgspec.structs.replace(node, status=status))


class _OnVm(Happening, frozen=True, rename="camel", omit_defaults=True):
    vm: str

    def apply(self, stage: Stage) -> None:
        """Nothing, where there is no such VM."""
        found = stage.server.get(VirtualMachine, f"default/{self.vm}")
        if found is not None:
            self.change(stage, found)

    def change(self, stage: Stage, vm: VirtualMachine) -> None:
        """Do it to the VM."""
        raise NotImplementedError


class SetLoad(_OnVm, frozen=True, tag="set-load", rename="camel", omit_defaults=True):
    """The load of a VM changes (stower.controllers.vm_agents); "" for none: it stays as it is."""

    load: str

    def change(self, stage: Stage, vm: VirtualMachine) -> None:
        """Write it."""
        notes = {k: v for k, v in (vm.metadata.annotations or {}).items() if k != LOAD}
        if self.load:
            notes[LOAD] = self.load
        meta = msgspec.structs.replace(vm.metadata, annotations=notes)
        stage.server.put(msgspec.structs.replace(vm, metadata=meta))


class DeleteVm(_OnVm, frozen=True, tag="delete-vm", rename="camel", omit_defaults=True):
    """Somebody deletes a VM, by its name."""

    def change(self, stage: Stage, vm: VirtualMachine) -> None:
        """Its controller lets go of it."""
        stage.server.delete(vm)


AnyHappening = (
    AddNode | AddBudget | AddDevices | AddDeviceClass | AddResourceClass | AddDriver | AddClaim
    | AddGroup | AddComposite | AddPod | RemoveNode | CordonNode | TaintNode | LabelNode | StopNode
    | DeletePod | DeleteClaim | Crash | Freeze | AddVm | SetLoad | DeleteVm
    | AddMigration | AddPool | AddUser | SetImages | AddAutoscaler | StartScheduler
    | StopController | AfterApprovals
)  # fmt: skip


class Template(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Pods that are alike. `is_replaced`: one that is gone is made anew, like the one it was.
    `claim`: the spec of the ResourceClaim that is made for each entry of a pod's resourceClaims;
    `claims`: by entry, where they differ. `gives_up_ms`: after so long without a node, a pod is
    deleted; 0 for never."""

    name: str
    spec: dict[str, Any]
    is_replaced: bool = False
    claim: dict[str, Any] | None = None
    claims: dict[str, dict[str, Any]] | None = None
    gives_up_ms: int = 0


class Script(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A whole run. After `active_ms` nothing goes wrong any more, and nothing is replaced."""

    seed: int
    faults: tuple[str, ...]
    active_ms: int
    templates: tuple[Template, ...]
    happenings: tuple[AnyHappening, ...]
    api_version: Literal["stower.dev/v1"] = "stower.dev/v1"
    kind: Literal["Script"] = "Script"
