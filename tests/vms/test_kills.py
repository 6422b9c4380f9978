"""Never more is approved than the node has, whoever is behind or dies.

VMs on one node ask for random amounts, the VM controller stands still, the scheduler is killed, and
patches fail or are lost.
"""

import random
from typing import Any

import msgspec
import pytest

from stower.api.patches import PatchError, json_patch
from stower.framework.events import Observed, WatchType, WriteFailed, WriteOk
from stower.model.kinds import Pod, VirtualMachine
from stower.vms.amounts import Resources, read_resources
from stower.vms.pods import resources_in_use
from tests.builders import make_node
from tests.vms.rig import APPROVED, REQUESTED, UNIT, Rig, amount, vm_pod

NODE = Resources(10_000, 40 << 30)
CODES = (409, 422, 500)


class Cluster(Rig):
    """A rig with VirtualMachines: a patch changes the VM, and its controller, if it runs, copies
    the annotations to the pod."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(make_node("n1", cpu="10", memory="40Gi"))
        self.chance = chance
        self.has_controller = True
        self.failing = 0.0
        self.unseen: list[VirtualMachine] = []
        self.lag = 0.0  # how often the watch shows a change later
        self.prompt = 1.0  # how often the controller copies an approval at once

    def vm(self, name: str) -> VirtualMachine:
        """As it is."""
        found = self.objects[f"vm/{name}"]
        assert isinstance(found, VirtualMachine)
        return found

    def show_vm(self, vm: VirtualMachine) -> None:
        """The VM has changed."""
        self.objects[vm.metadata.uid] = vm
        self.check()
        self.unseen.append(vm)
        if self.chance.random() >= self.lag:
            self.look()

    def look(self) -> None:
        """The watch shows what has changed."""
        while self.unseen:
            self.step(Observed(WatchType.MODIFIED, self.unseen.pop(0)))

    def restart(self) -> "Cluster":
        """It is killed, and lists everything anew."""
        self.unseen.clear()
        super().restart()
        return self

    def _patch(self, write: Any) -> None:
        drawn = self.chance.random()
        if drawn < self.failing / 2:
            code = self.chance.choice(CODES)
            self.step(WriteFailed(write.id, code, f"status {code}"))
            return
        is_lost = drawn < self.failing
        vm = self.vm(write.name)
        try:
            after = json_patch(msgspec.to_builtins(vm), write.operations)
        except PatchError:
            self.step(WriteFailed(write.id, 422, "a test failed"))
            return
        if not is_lost or self.chance.random() < 0.5:
            self.show_vm(msgspec.convert(after, VirtualMachine))
        self.step(WriteFailed(write.id, 504, "nobody knows") if is_lost else WriteOk(write.id))
        if self.chance.random() < self.prompt:
            self.copy()

    def ask_for(self, name: str, cpus: float, gib: int) -> None:
        """The agent of a VM requests so much, which the VM controller copies."""
        vm = self.vm(name)
        notes = {**(vm.metadata.annotations or {}), REQUESTED: amount(cpus, gib),
                 UNIT: amount(0.25, 1)}  # fmt: skip
        meta = msgspec.structs.replace(vm.metadata, annotations=notes)
        self.show_vm(msgspec.structs.replace(vm, metadata=meta))
        self.copy(name)

    def copy(self, only: str = "") -> None:
        """The VM controller does its work: pods show what their VMs show."""
        for pod in [obj for obj in self.objects.values() if isinstance(obj, Pod)]:
            if not pod.metadata.name.startswith(only):
                continue
            vm = self.vm(pod.metadata.name.removesuffix("-pod"))
            own, shown = vm.metadata.annotations or {}, dict(pod.metadata.annotations or {})
            wanted = shown | {k: own[k] for k in (REQUESTED, UNIT, APPROVED) if k in own}
            if self.has_controller and wanted != shown:
                meta = msgspec.structs.replace(pod.metadata, annotations=wanted)
                self.put(msgspec.structs.replace(pod, metadata=meta))

    def approved_amounts(self) -> Resources:
        """What all VMs may use together: what is approved for each, and no less than it uses."""
        cpu = memory = 0
        for pod in [obj for obj in self.objects.values() if isinstance(obj, Pod)]:
            vm = self.vm(pod.metadata.name.removesuffix("-pod"))
            text = (vm.metadata.annotations or {}).get(APPROVED)
            use = resources_in_use(pod)
            approved = read_resources(text) if text is not None else use
            cpu, memory = (
                cpu + max(approved.cpu, use.cpu),
                memory + max(approved.memory, use.memory),
            )
        return Resources(cpu, memory)

    def check(self) -> None:
        """No more than the node has."""
        assert not self.approved_amounts().exceeds(NODE), self.approved_amounts()


@pytest.mark.behaviour("S4.22")
@pytest.mark.parametrize("seed", range(60))
def test_never_more_is_approved_than_there_is(seed: int) -> None:
    chance = random.Random(seed)
    rig = Cluster(chance)
    names = [f"vm{i}" for i in range(chance.randint(2, 5))]
    rig.start(*(vm_pod(name, node="n1", use=(1, 2), unit=False) for name in names))
    for _ in range(60):
        deed = chance.random()
        if deed < 0.5:
            size = chance.choice((1, 2, 3, 5, 8)), chance.choice((2, 4, 10, 20))
            rig.ask_for(chance.choice(names), *size)
        elif deed < 0.65:
            rig.restart()
        elif deed < 0.75:
            rig.prompt = chance.choice((0.0, 0.0, 0.5, 1.0))
            rig.has_controller = chance.random() < 0.8
            rig.copy()
        elif deed < 0.85:
            rig.failing = chance.choice((0.0, 0.3, 0.8))
            rig.lag = chance.choice((0.0, 0.5, 1.0))
        else:
            rig.look()
            rig.advance(chance.choice((0.2, 1, 6)))
    rig.failing, rig.has_controller, rig.prompt, rig.lag = 0.0, True, 1.0, 0.0
    rig.look()
    rig.copy()
    for name in names:
        rig.ask_for(name, 1.5, 3)
    rig.advance(60)
    assert {amount(1.5, 3)} == {rig.approved(name) for name in names}, "once it is quiet"


def test_two_vms_ask_while_the_controller_stands_still_and_the_scheduler_dies_between() -> None:
    """12 of 10 CPUs were approved."""
    rig = Cluster(random.Random(0))
    rig.start(*(vm_pod(name, node="n1", use=(1, 2), unit=False) for name in ("a", "b")))
    rig.advance(5)
    rig.prompt = 0.0
    rig.ask_for("a", 6, 2)  # approved on the VM, and the pod does not show it
    rig.restart()
    rig.ask_for("b", 6, 2)
    for _ in range(3):
        rig.restart()
        rig.advance(20)
    rig.prompt = 1.0
    rig.copy()
    rig.advance(20)
    assert [amount(6, 2), amount(4, 2)] == [rig.approved(name) for name in ("a", "b")]
