"""Generates the plain pods of the run of a seed, and the nodes that all parts share.

Sizes: 2 to 12 nodes in up to 3 zones, 3 to 6 templates of 1 to 14 pods each, some of which are
replaced when they end; meanwhile nodes are added, removed, cordoned, labelled and tainted. Pods
have priorities, topology spread constraints, affinity, host ports, volumes and budgets.
"""

import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from stower.model.kinds import Node, PodDisruptionBudget
from stower.model.times import SECOND_NS
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
    TaintNode,
    Template,
)

Json = dict[str, Any]

HOST: Final = "kubernetes.io/hostname"
CORES: Final = (0.1, 0.25, 0.5, 1.0, 1.5)


def draw_plain(
    seed: int, active_ms: int
) -> tuple[list[Node], list[Template], list[AnyHappening], list[AnyHappening]]:
    """Returns the nodes at the start, the templates, the happenings that create nodes, budgets and
    pods, and later changes of nodes."""
    chance = random.Random(f"{seed}:load")
    nodes = [draw_node(i, chance) for i in range(chance.randint(2, 12))]
    happenings: list[AnyHappening] = [AddNode(0, node) for node in nodes]
    templates = []
    for i in range(chance.randint(3, 6)):
        template, pods, budgets = draw_template(i, chance, active_ms)
        templates.append(template)
        happenings += budgets
        happenings += pods
    return nodes, templates, happenings, [*draw_node_changes(nodes, chance, active_ms)]


def draw_node(i: int, chance: random.Random) -> Node:
    """Returns the node of this number."""
    name = f"node-{i}"
    cores = chance.choice((2, 4, 8))
    room = {"cpu": str(cores), "memory": f"{2 * cores}Gi", "pods": str(chance.choice((6, 20)))}
    labels = {HOST: name, ZONE: f"zone-{i % 3}"}
    if chance.random() < 0.1:
        del labels[ZONE]
    document = {"metadata": {"name": name, "uid": f"{name}-0", "labels": labels},
                "status": {"allocatable": room, "capacity": room}}  # fmt: skip
    return msgspec.convert(document, Node)


def draw_template(
    i: int, chance: random.Random, active_ms: int
) -> tuple[Template, list[AnyHappening], list[AnyHappening]]:
    """Returns a template, its pods, and its budget if it has one."""
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


def draw_node_changes(
    nodes: list[Node], chance: random.Random, active_ms: int
) -> Iterator[AnyHappening]:
    """Yields changes of nodes; appends the nodes that are added."""
    names = [node.metadata.name for node in nodes]
    for _ in range(chance.randint(0, 12)):
        at_ms, name = chance.randrange(active_ms), chance.choice(names)
        match chance.randrange(5):
            case 0:
                node = draw_node(len(names), chance)
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
