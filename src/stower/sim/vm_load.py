"""Generates VMs for the run of a seed: they are created, scaled with their load, migrated, deleted.

Drawn with a generator of its own, so that older seeds keep their scripts. All pods of the run are
placed by the profile that counts VMs: a pod placed by another profile could take resources that are
approved for a VM.
"""

import random
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from stower.controllers.vm_agents import LOAD
from stower.controllers.vm_migrations import FAILS
from stower.model.kinds import VirtualMachine, VirtualMachineMigration
from stower.sim.script import (
    AddMigration,
    AddNode,
    AddVm,
    AnyHappening,
    DeleteVm,
    Script,
    SetLoad,
    Template,
)
from stower.sim.warm_load import CONFIGURATION as WARM
from stower.sim.warm_load import has_pools
from stower.vms.pods import AUTO_MIGRATION, AUTOSCALING

Json = dict[str, Any]

SCHEDULER: Final = "autoscale-scheduler"
OS: Final = "kubernetes.io/os"
# Two migrations at a time from a node, three in all: with so few VMs, that is seldom enough.
CONFIGURATION: Final[Json] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {"schedulerName": "default-scheduler"},
        {
            "schedulerName": SCHEDULER,
            "plugins": {"multiPoint": {"enabled": [{"name": "AutoscaleEnforcer"}]}},
            "pluginConfig": [
                {
                    "name": "AutoscaleEnforcer",
                    "args": {"migrationsPerNodeMax": 2, "migrationsMax": 3},
                }
            ],
        },
    ],
}


def configuration_for(
    script: Script, configuration: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """The configuration of a run: one that schedules VMs, or knows warm pools, where there are some
    and nothing else is said."""
    if configuration is None and has_vms(script):
        return CONFIGURATION
    if configuration is None and has_pools(script):
        return WARM
    return configuration


def has_vms(script: Script) -> bool:
    """Whether VMs come."""
    return any(isinstance(happening, AddVm) for happening in script.happenings)


def with_vms(
    seed: int, templates: list[Template], happenings: list[AnyHappening], active_ms: int
) -> tuple[list[Template], list[AnyHappening]]:
    """The templates, for the profile that counts VMs, and all happenings, VMs included."""
    chance = random.Random(f"{seed}:vms")
    ours = [msgspec.structs.replace(t, spec={**t.spec, "schedulerName": SCHEDULER})
            for t in templates]  # fmt: skip
    made: list[AnyHappening] = [_runs_linux(one) for one in happenings]
    for i in range(chance.randint(2, 8)):
        name = f"vm-{i}"
        made.append(AddVm(chance.randrange(active_ms // 2), _vm(name, chance)))
        for _ in range(chance.choice((0, 0, 1, 2))):
            made.append(SetLoad(chance.randrange(active_ms), name, _load(chance)))
        if chance.random() < 0.3:
            made += _moves(name, chance, active_ms)
        if chance.random() < 0.1:
            made.append(DeleteVm(chance.randrange(active_ms), name))
        made.append(SetLoad(active_ms, name, ""))
    return ours, made


def _moves(vm: str, chance: random.Random, active_ms: int) -> list[AnyHappening]:
    """Somebody wants it moved, twice in a row."""
    at_ms = chance.randrange(active_ms // 2, active_ms)
    made: list[AnyHappening] = []
    for i in range(2):
        meta = {"name": f"{vm}-by-hand-{i}", "namespace": "default"}
        body = {"metadata": meta, "spec": {"vmName": vm}}
        migration = msgspec.convert(body, VirtualMachineMigration)
        made.append(AddMigration(at_ms + chance.randrange(5_000), migration))
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


def _load(chance: random.Random) -> str:
    low = chance.choice((0.0, 0.1, 0.4))
    high = min(1.0, low + chance.choice((0.2, 0.6, 1.0)))
    period_s = chance.choice((40, 90, 300))
    return msgspec.json.encode({"low": low, "high": high, "periodSeconds": period_s}).decode()


def _vm(name: str, chance: random.Random) -> VirtualMachine:
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
    notes = {LOAD: _load(chance)}
    if chance.random() < 0.3:
        notes[FAILS] = "0.5"
    meta = {"name": name, "namespace": "default", "uid": f"vm/{name}", "labels": labels,
            "annotations": notes}  # fmt: skip
    return msgspec.convert({"metadata": meta, "spec": spec}, VirtualMachine)
