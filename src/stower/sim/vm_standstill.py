"""Generates a scene for some seeds with VMs: two VMs ask while their controller stands still, and
the scheduler is killed between its approvals.

Both are on a node of their own which has room for one of them. Nobody shows on the pods what was
approved, so that a scheduler that starts has to find it out elsewhere. With the faults `refusals`
and `timeouts`, patches fail as well.
"""

import random
from typing import Any

import msgspec

from stower.controllers.vm_agents import LOAD
from stower.model.kinds import Node, VirtualMachine
from stower.sim.script import (
    AddNode,
    AddVm,
    AfterApprovals,
    AnyHappening,
    Crash,
    SetLoad,
    StopController,
)
from stower.vms.pods import AUTOSCALING

SHARE: float = 0.25  # of seeds
KEY = "stower.dev/standstill"
NAMES = ("still-0", "still-1")
IDLE, BUSY = '{"low": 0.1, "high": 0.1}', '{"low": 1.0, "high": 1.0}'
ROUND_MS = 80_000


def draw_standstill(seed: int, active_ms: int, scheduler: str) -> list[AnyHappening]:
    """Returns what happens, nothing for most seeds. `scheduler`: the name of the profile of VMs."""
    chance = random.Random(f"{seed}:standstill")
    if chance.random() >= SHARE:
        return []
    made: list[AnyHappening] = [AddNode(0, _node(chance))]
    made += [AddVm(1_000, _vm(name, scheduler)) for name in NAMES]
    for at_ms in range(15_000, active_ms - ROUND_MS, ROUND_MS):
        made += _round(at_ms + chance.randrange(5_000), chance)
    made += [SetLoad(active_ms, name, "") for name in NAMES]
    return made


def _round(at_ms: int, chance: random.Random) -> list[AnyHappening]:
    """The VMs ask. In half of the rounds their controller stops with the first approval; in the
    others no scheduler leads when they ask, and it stops before the first. Each of some schedulers
    dies after an approval."""
    kills = tuple(Crash(0, chance.choice((0, 1_000)), i) for i in (0, 1))
    times, made = chance.randint(1, 3), list[AnyHappening]()
    if chance.random() < 0.5:
        stop = StopController(0, 60_000, "vm-controller")
        made.append(AfterApprovals(at_ms, (stop, *kills)))
    else:
        # The next one leads when the Lease of this one has ended.
        made += [Crash(at_ms, 0, 0), Crash(at_ms, 0, 1)]
        made.append(StopController(at_ms + 5_000, 60_000, "vm-controller"))
        made.append(AfterApprovals(at_ms + 1, kills, times))
    made += [SetLoad(at_ms + chance.randrange(2), name, BUSY) for name in NAMES]
    made += [SetLoad(at_ms + 70_000, name, IDLE) for name in NAMES]
    return made


def _node(chance: random.Random) -> Node:
    room = {"cpu": chance.choice(("5", "6")), "memory": "16Gi", "pods": "110"}
    body: dict[str, Any] = {
        "metadata": {
            "name": "still",
            "labels": {KEY: "true", "kubernetes.io/os": "linux", "kubernetes.io/hostname": "still"},
        },
        "spec": {"taints": [{"key": KEY, "effect": "NoSchedule"}]},
        "status": {"allocatable": room, "capacity": room},
    }
    return msgspec.convert(body, Node)


def _vm(name: str, scheduler: str) -> VirtualMachine:
    guest = {
        "cpus": {"min": "250m", "max": 4, "use": "500m"},
        "memorySlotSize": "512Mi",
        "memorySlots": {"min": 1, "max": 4, "use": 1},
    }
    spec = {
        "schedulerName": scheduler,
        "guest": guest,
        "restartPolicy": "Always",
        "nodeSelector": {KEY: "true"},
        "tolerations": [{"key": KEY, "operator": "Exists"}],
    }
    meta = {
        "name": name,
        "namespace": "default",
        "uid": f"vm/{name}",
        "labels": {AUTOSCALING: "true"},
        "annotations": {LOAD: IDLE},
    }
    return msgspec.convert({"metadata": meta, "spec": spec}, VirtualMachine)
