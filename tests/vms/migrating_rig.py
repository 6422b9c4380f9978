"""A rig that carries out migrations of VMs, each in its time."""

import random
from typing import Any

import msgspec

from stower.framework.writes import CreateObject
from stower.model.kinds import Pod, VirtualMachineMigration
from stower.vms.pods import pod_state
from tests.vms.rig import Rig, vm_pod

LABEL = {"autoscaling.neon.tech/created-by-scheduler": "true"}
SIZES_GIB = (1, 2, 4)


class Moving(Rig):
    """A rig whose migrations are carried out: each takes its time."""

    def __init__(self, *nodes: Any, **args: Any) -> None:
        super().__init__(*nodes, **args)
        self.serial = 0
        self.sizes_gib = SIZES_GIB
        self.start_s = 6.0
        self.under_way: list[tuple[float, str, str, str]] = []  # end, migration, source, target
        self.moves: list[tuple[float, str]] = []
        self.sizes: dict[str, tuple[float, int]] = {}  # CPUs and GiB by VM

    def run(self, seconds: int) -> None:
        """Time passes, and VMs migrate."""
        for _ in range(seconds):
            self.advance(1)
            for write in [w for w in self.writes if isinstance(w, CreateObject)]:
                self._begin(write)
            self.writes.clear()
            for one in [one for one in self.under_way if one[0] <= self.now_ns / 1e9]:
                self._end(*one)

    def _begin(self, write: CreateObject) -> None:
        vm, source = write.body["spec"]["vmName"], write.name.removeprefix("schedplugin-")
        self.serial += 1
        self._put_migration(write.name, vm, "Pending")
        self.put(self._runner(vm, self._node(source), migration=write.name, name=source))
        target = f"{vm}-{self.serial}"
        self.put(self._runner(vm, "", migration=write.name, controlled=True, name=target))
        takes_s = self.start_s + self.sizes[vm][1]  # 1 GiB in a second
        self.under_way.append((self.now_ns / 1e9 + takes_s, write.name, source, target))

    def _end(self, end_s: float, name: str, source: str, target: str) -> None:
        node, vm = self._node(target), target.rpartition("-")[0]
        if not node:
            return  # it waits for a node
        self.under_way.remove((end_s, name, source, target))
        self.moves.append((self.now_ns / 1e9, vm))
        self.put(self._runner(vm, node, name=target))
        self.drop(f"uid-of-default-{source}")
        self._put_migration(name, vm, "Succeeded")

    def _put_migration(self, name: str, vm: str, phase: str) -> None:
        meta = {"name": name, "namespace": "default", "uid": f"m/{name}", "labels": LABEL}
        body = {"metadata": meta, "spec": {"vmName": vm}, "status": {"phase": phase}}
        self.put(msgspec.convert(body, VirtualMachineMigration))

    def _runner(self, vm: str, node: str, name: str, **fields: Any) -> Pod:
        made = vm_pod(vm, node=node, use=self.sizes[vm], scaled=False, moves=True, **fields)
        meta = msgspec.structs.replace(made.metadata, name=name, uid=f"uid-of-default-{name}")
        return msgspec.structs.replace(made, metadata=meta)

    def _node(self, pod: str) -> str:
        return self.pod(f"uid-of-default-{pod}").spec.node_name

    def fill(self, chance: random.Random, node: str, cpus: float) -> list[Pod]:
        """VMs of random sizes, of so many CPUs together."""
        pods = []
        while cpus >= 0.25:
            size = min(cpus, chance.choice((0.25, 0.5, 0.5, 1, 1, 2, 3)))
            vm = f"{node}x{len(pods)}"
            self.sizes[vm] = (size, chance.choice(self.sizes_gib))
            pods.append(self._runner(vm, node, name=f"{vm}-0"))
            cpus -= size
        return pods

    def loads(self) -> dict[str, list[tuple[int, int]]]:
        """Milli-CPU and bytes of the VMs on each node."""
        found: dict[str, list[tuple[int, int]]] = {}
        for obj in self.objects.values():
            if isinstance(obj, Pod):
                state = pod_state(obj)
                amounts = (state.cpu.reserved, state.memory.reserved)
                found.setdefault(obj.spec.node_name, []).append(amounts)
        return found
