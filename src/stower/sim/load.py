"""Generates the script of a seed: a small changing cluster with many kinds of pods.

Sizes: 2 to 12 nodes in up to 3 zones, 3 to 8 templates of 1 to 14 pods each, some of which are
replaced when they end; meanwhile nodes are added, removed, cordoned, labelled and tainted. Half of
the seeds have devices (device_load.py).
"""

import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from stower.model.kinds import Node, PodDisruptionBudget
from stower.model.times import SECOND_NS
from stower.sim.arrivals import daily
from stower.sim.device_load import with_devices
from stower.sim.group_load import with_groups
from stower.sim.negotiated_load import with_negotiation
from stower.sim.script import (
    MILLI_NS,
    ZONE,
    AddBudget,
    AddNode,
    AddPod,
    AnyHappening,
    CordonNode,
    LabelNode,
    RemoveNode,
    Script,
    TaintNode,
    Template,
)
from stower.sim.vm_load import with_vms
from stower.sim.warm_load import with_warmth

Json = dict[str, Any]

HOST: Final = "kubernetes.io/hostname"
CORES: Final = (0.1, 0.25, 0.5, 1.0, 1.5)
TEMPLATES: Final = 40  # of a large cluster
FILL: Final = 0.4  # on average; at the peak of a day, nearly twice that


class Size(msgspec.Struct, frozen=True):
    """Of a cluster that is to be as large as this, and no larger: so many nodes, and so many pods
    that come over the time of the run and go again, so that FILL of the cpu is in use."""

    nodes: int
    pods: int


def draw_script(
    seed: int,
    faults: tuple[str, ...],
    active_ns: int,
    size: Size | None = None,
    negotiates: bool = False,
    groups: bool = False,
    vms: bool = False,
    warm: bool = False,
) -> Script:
    """The script of a seed; of the size that it draws, unless one is given. `negotiates`: with
    drivers to agree with; `groups`: with pods that are placed together; `vms`: with VMs;
    `warm`: with a warm pool and its users."""
    chance = random.Random(f"{seed}:load")
    active_ms = active_ns // MILLI_NS
    happenings: list[AnyHappening] = []
    count = chance.randint(2, 12) if size is None else size.nodes
    nodes = [_node(i, chance) for i in range(count)]
    happenings += (AddNode(0, node) for node in nodes)
    templates = []
    for i in range(chance.randint(3, 8) if size is None else TEMPLATES):
        template, pods, more = _template(i, chance, active_ms)
        templates.append(template)
        happenings += more
        happenings += pods if size is None else ()
    if size is not None:
        templates = [msgspec.structs.replace(each, is_replaced=False) for each in templates]
        happenings += _coming_and_going(size, nodes, templates, chance, active_ms)
    else:
        templates, more = with_devices(seed, nodes, templates, active_ms)
        happenings += more
        if negotiates:
            templates, more = with_negotiation(seed, nodes, templates, active_ms)
            happenings += more
        if groups:
            templates, happenings = with_groups(seed, templates, happenings, active_ms)
    happenings += _changes(nodes, chance, active_ms)
    if vms:
        templates, happenings = with_vms(seed, templates, happenings, active_ms)
    if warm:
        happenings = with_warmth(seed, happenings, active_ms)
    happenings.sort(key=lambda happening: happening.at_ms)
    return Script(seed, faults, active_ms, tuple(templates), tuple(happenings))


def _coming_and_going(
    size: Size,
    nodes: list[Node],
    templates: list[Template],
    chance: random.Random,
    active_ms: int,
) -> Iterator[AnyHappening]:
    """Pods at a rate that swings with the time of day, with lifetimes such that the cluster is as
    full as is wanted (Little's law)."""
    have = sum(int(str((node.status.allocatable or {})["cpu"])) for node in nodes)
    want = sum(CORES) / len(CORES)
    mean_ms = active_ms * FILL * have / (want * max(1, size.pods))
    for at_s in daily(size.pods, active_ms / 1000, chance):
        lasts_ms = 1 + int(chance.expovariate(1 / mean_ms))
        template = chance.choice(templates).name
        yield AddPod(int(at_s * 1000), template, chance.choice((0, 0, 0, 10)), lasts_ms)


def _node(i: int, chance: random.Random) -> Node:
    name = f"node-{i}"
    cores = chance.choice((2, 4, 8))
    room = {"cpu": str(cores), "memory": f"{2 * cores}Gi", "pods": str(chance.choice((6, 20)))}
    labels = {HOST: name, ZONE: f"zone-{i % 3}"}
    if chance.random() < 0.1:
        del labels[ZONE]
    document = {"metadata": {"name": name, "uid": f"{name}-0", "labels": labels},
                "status": {"allocatable": room, "capacity": room}}  # fmt: skip
    return msgspec.convert(document, Node)


def _template(
    i: int, chance: random.Random, active_ms: int
) -> tuple[Template, list[AnyHappening], list[AnyHappening]]:
    """A template, the pods of it that come, and its budget, if there is one."""
    name = f"app-{i}"
    spec = _spec(i, name, chance)
    mixed = chance.random() < 0.5
    priorities = (0, 10, 100) if mixed else (chance.choice((0, 0, 0, 10, 100)),)
    ends, count = chance.random() < 0.5, chance.randint(1, 14)
    template = Template(name, spec, chance.random() < 0.6)
    budgets: list[AnyHappening] = []
    if chance.random() < 0.3:
        budgets.append(AddBudget(0, _budget(name, chance)))
    in_a_burst, first_ms = chance.random() < 0.5, chance.randrange(active_ms // 2)
    pods: list[AnyHappening] = [
        AddPod(
            first_ms if in_a_burst else chance.randrange(active_ms),
            name,
            chance.choice(priorities),
            chance.randint(5, 200) * SECOND_NS // MILLI_NS if ends else 0,
        )
        for _ in range(count)
    ]
    return template, pods, budgets


def _spec(i: int, name: str, chance: random.Random) -> Json:
    selector = {"matchLabels": {"app": name}}
    requests = {"cpu": f"{int(1000 * chance.choice(CORES))}m",
                "memory": f"{chance.choice((64, 256, 1024))}Mi"}  # fmt: skip
    container: Json = {"name": "main", "image": name, "resources": {"requests": requests}}
    spec: Json = {"containers": [container]}
    match chance.randrange(10):
        case 0:
            term = {"topologyKey": HOST, "labelSelector": selector}
            spec["affinity"] = {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [term]}}  # fmt: skip
        case 1:
            term = {"topologyKey": ZONE, "labelSelector": selector}
            spec["affinity"] = {"podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [term]}}  # fmt: skip
        case 2 | 3:
            spec["topologySpreadConstraints"] = [
                {"maxSkew": chance.choice((1, 2)), "topologyKey": chance.choice((ZONE, HOST)),
                 "whenUnsatisfiable": chance.choice(("DoNotSchedule", "ScheduleAnyway")),
                 "labelSelector": selector}]  # fmt: skip
        case 4:
            container["ports"] = [{"containerPort": 80, "hostPort": 8000 + i, "protocol": "TCP"}]
        case 5:
            spec["nodeSelector"] = {ZONE: f"zone-{chance.randrange(3)}"}
        case 6:
            spec["tolerations"] = [{"key": "kept", "operator": "Exists"}]
        case 7:
            spec["preemptionPolicy"] = "Never"
        case 8:
            spec["volumes"] = [{"name": "data", "ephemeral": {}}]
    return spec


def _budget(name: str, chance: random.Random) -> PodDisruptionBudget:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"selector": {"matchLabels": {"app": name}}},
            "status": {"disruptionsAllowed": chance.randint(0, 2)},
        },
        PodDisruptionBudget,
    )


def _changes(nodes: list[Node], chance: random.Random, active_ms: int) -> Iterator[AnyHappening]:
    """What happens to nodes."""
    names = [node.metadata.name for node in nodes]
    for _ in range(chance.randint(0, 12)):
        at_ms, name = chance.randrange(active_ms), chance.choice(names)
        match chance.randrange(5):
            case 0:
                node = _node(len(names), chance)
                names.append(node.metadata.name)
                yield AddNode(at_ms, node)
            case 1:
                yield RemoveNode(at_ms, name)
            case 2:
                yield CordonNode(at_ms, name)
            case 3:
                yield TaintNode(at_ms, name)
            case 4:
                yield LabelNode(at_ms, name, {ZONE: f"zone-{chance.randrange(3)}"})
