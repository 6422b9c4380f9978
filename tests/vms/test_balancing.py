"""A cluster at its watermarks comes to rest: VMs move as long as that helps, and then no more."""

import random
from typing import Any

import msgspec
import pytest

from stower.framework.writes import CreateObject
from stower.model.kinds import Pod, VirtualMachineMigration
from stower.vms.pods import pod_state
from tests.builders import make_node
from tests.vms.rig import Rig, vm_pod

LABEL = {"autoscaling.neon.tech/created-by-scheduler": "true"}
TRANSFER_S = 10


class Moving(Rig):
    """A rig whose migrations are carried out: each takes its time."""

    def __init__(self, *nodes: Any, **args: Any) -> None:
        super().__init__(*nodes, **args)
        self.serial = 0
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
        self.under_way.append((self.now_ns / 1e9 + TRANSFER_S, write.name, source, target))

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
            self.sizes[vm] = (size, chance.choice((1, 2, 4)))
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


@pytest.mark.parametrize("seed", range(3))
def test_a_full_cluster_comes_to_rest_and_no_legal_move_is_left(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"n{i}" for i in range(50)]
    rig = Moving(*(make_node(name, cpu="10", memory="100Gi") for name in names))
    pods = [pod for name in names for pod in rig.fill(chance, name, chance.uniform(8.5, 9.5))]
    rig.start(*pods)
    before = {name: sum(cpu for cpu, _ in loads) for name, loads in rig.loads().items()}
    above = [name for name in names if before[name] > 9000]
    assert above, "there is something to do"
    rig.run(600)
    moves = len(rig.moves)
    rig.run(600)
    assert 0 < moves == len(rig.moves), "no more moves"
    assert len({vm for _, vm in rig.moves}) == moves, "no VM twice"
    after = rig.loads()
    used = {name: sum(cpu for cpu, _ in after.get(name, ())) for name in names}
    free = {name: 9000 - used[name] for name in names}
    for name in above:
        smallest = min(cpu for cpu, _ in after[name])
        can_move = any(free[other] >= smallest for other in names if other != name)
        assert used[name] <= 9000 or not can_move, f"{name} could send a VM to another node"
