"""Generates VMs for the run of a seed: they are created, scaled with their load, migrated, deleted.

The profile of VMs schedules all pods of the run, or a share: then other pods of the same nodes are
scheduled by the default profile.
"""

import random
from typing import Any, Final

import msgspec

from stower.controllers.vm_agents import LOAD
from stower.controllers.vm_migrations import FAILS
from stower.model.kinds import VirtualMachine, VirtualMachineMigration
from stower.sim.script import (
    AddComposite,
    AddGroup,
    AddMigration,
    AddNode,
    AddVm,
    AnyHappening,
    DeleteVm,
    Script,
    SetLoad,
    Template,
)
from stower.sim.vm_standstill import draw_standstill
from stower.vms.pods import AUTO_MIGRATION, AUTOSCALING

Json = dict[str, Any]

SCHEDULER: Final = "autoscale-scheduler"
OS: Final = "kubernetes.io/os"
# The share of templates that the profile of VMs schedules, where there are two profiles.
SHARE_OF_PROFILE: Final = 0.5
# Of the swings of loads: in small clusters, and where the run lasts for a day.
PERIODS_S: Final = (40, 90, 300)
LONG_PERIODS_S: Final = (1_800, 3_600, 14_400)
# Two migrations at a time from a node, three in all: with so few VMs, that is seldom enough.
PROFILE: Final[Json] = {
    "schedulerName": SCHEDULER,
    "plugins": {"multiPoint": {"enabled": [{"name": "AutoscaleEnforcer"}]}},
    "pluginConfig": [
        {"name": "AutoscaleEnforcer", "args": {"migrationsPerNodeMax": 2, "migrationsMax": 3}}
    ],
}


def has_vms(script: Script) -> bool:
    """Whether VMs come, or pods that the profile of VMs schedules."""
    return any(isinstance(happening, AddVm) for happening in script.happenings) or any(
        template.spec.get("schedulerName") == SCHEDULER for template in script.templates
    )


def with_vms(
    seed: int,
    templates: list[Template],
    happenings: list[AnyHappening],
    active_ms: int,
    share: float = 1.0,
    count: int | None = None,
) -> tuple[list[Template], list[AnyHappening]]:
    """Returns the templates, a share of which the profile of VMs schedules (a tree of groups as a
    whole), and all happenings, those of so many VMs included; 2 to 4 unless it is given."""
    chance = random.Random(f"{seed}:vms")
    parents = _parents(happenings)
    ours = [
        msgspec.structs.replace(t, spec={**t.spec, "schedulerName": SCHEDULER})
        if share >= 1 or _draw_share(seed, t.name, parents) < share
        else t
        for t in templates
    ]
    made: list[AnyHappening] = [_runs_linux(one) for one in happenings]
    drawn = chance.randint(2, 4)
    periods_s = PERIODS_S if count is None else LONG_PERIODS_S
    for i in range(drawn if count is None else count):
        name = f"vm-{i}"
        made.append(AddVm(chance.randrange(active_ms // 2), _vm(name, chance, periods_s)))
        for _ in range(chance.choice((0, 0, 1, 2))):
            made.append(SetLoad(chance.randrange(active_ms), name, _load(chance, periods_s)))
        if chance.random() < 0.3:
            made += _moves(name, chance, active_ms)
        if chance.random() < 0.1:
            made.append(DeleteVm(chance.randrange(active_ms), name))
        made.append(SetLoad(active_ms, name, ""))
    if count is None:
        made += draw_standstill(seed, active_ms, SCHEDULER)
    return ours, made


def _parents(happenings: list[AnyHappening]) -> dict[str, str]:
    """Returns the parent of each pod group and composite group, by name; names are unique."""
    parents = {}
    for one in happenings:
        if isinstance(one, AddGroup | AddComposite):
            parents[one.group.metadata.name] = one.group.spec.parent_composite_pod_group_name
    return parents


def _draw_share(seed: int, name: str, parents: dict[str, str]) -> float:
    """Returns a number from 0 to 1, the same for all groups of a tree."""
    while parents.get(name):
        name = parents[name]
    return random.Random(f"{seed}:profile:{name}").random()


def _moves(vm: str, chance: random.Random, active_ms: int) -> list[AnyHappening]:
    """Somebody wants it moved, twice in a row."""
    at_ms = chance.randrange(active_ms // 2, active_ms)
    made: list[AnyHappening] = []
    for i in range(2):
        meta = {"name": f"{vm}-by-hand-{i}", "namespace": "default"}
        body = {"metadata": meta, "spec": {"vmName": vm}}
        migration = msgspec.convert(body, VirtualMachineMigration)
        made.append(AddMigration(min(at_ms + chance.randrange(5_000), active_ms), migration))
    return made


def _runs_linux(happening: AnyHappening) -> AnyHappening:
    if not isinstance(happening, AddNode):
        return happening
    meta = happening.node.metadata
    labels = {**(meta.labels or {}), OS: "linux"}
    node = msgspec.structs.replace(
        happening.node, metadata=msgspec.structs.replace(meta, labels=labels)
    )
    return msgspec.structs.replace(happening, node=node)


def _load(chance: random.Random, periods_s: tuple[int, ...]) -> str:
    low = chance.choice((0.0, 0.1, 0.4))
    high = min(1.0, low + chance.choice((0.2, 0.6, 1.0)))
    period_s = chance.choice(periods_s)
    return msgspec.json.encode({"low": low, "high": high, "periodSeconds": period_s}).decode()


def _vm(name: str, chance: random.Random, periods_s: tuple[int, ...]) -> VirtualMachine:
    labels = {}
    if chance.random() < 0.85:
        labels[AUTOSCALING] = "true"
    if chance.random() < 0.6:
        labels[AUTO_MIGRATION] = "true"
    cpus, slots = chance.choice((1, 2, 4)), chance.choice((2, 4, 8))
    least = min(chance.choice((1, 1, 2)), slots)
    guest = {
        "cpus": {"min": "250m", "max": cpus, "use": chance.choice(("250m", "500m", cpus))},
        "memorySlotSize": "512Mi",
        "memorySlots": {"min": least, "max": slots, "use": chance.randint(least, slots)},
    }
    spec: Json = {"schedulerName": SCHEDULER, "guest": guest, "restartPolicy": "Always"}
    if chance.random() < 0.2:
        spec["overcommit"] = {"cpu": "2"}
    notes = {LOAD: _load(chance, periods_s)}
    if chance.random() < 0.3:
        notes[FAILS] = "0.5"
    meta = {"name": name, "namespace": "default", "uid": f"vm/{name}", "labels": labels,
            "annotations": notes}  # fmt: skip
    return msgspec.convert({"metadata": meta, "spec": spec}, VirtualMachine)
