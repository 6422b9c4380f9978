"""What a run with faults is about: a small cluster of many kinds of pods, drawn from a seed.

Sizes: 2 to 12 nodes in up to 3 zones, 3 to 8 templates of 1 to 14 pods each, of which some are
replaced when they end; meanwhile nodes come, go, and are closed, labelled and tainted.
"""

import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from stower.framework.events import WatchType
from stower.model.kinds import Node, Pod, PodDisruptionBudget
from stower.model.taints import Taint
from stower.model.times import SECOND_NS
from stower.sim.agenda import Agenda
from stower.sim.nodes import Kubelets
from stower.sim.server import Change, Server

Json = dict[str, Any]

ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
REPLACE_NS: Final = (SECOND_NS // 10, 5 * SECOND_NS)


class Template(msgspec.Struct):
    """Pods that are alike."""

    name: str
    spec: Json
    pods: int
    lasts_s: tuple[int, int] | None  # None: for ever
    is_replaced: bool
    priorities: tuple[int, ...]


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


def _template(i: int, chance: random.Random) -> Template:
    name = f"app-{i}"
    selector = {"matchLabels": {"app": name}}
    requests = {"cpu": f"{chance.choice((100, 250, 500, 1000, 1500))}m",
                "memory": f"{chance.choice((64, 256, 1024))}Mi"}  # fmt: skip
    container: Json = {"name": "main", "image": name, "resources": {"requests": requests}}
    spec: Json = {"containers": [container]}
    mixed = chance.random() < 0.5
    priorities = (0, 10, 100) if mixed else (chance.choice((0, 0, 0, 10, 100)),)
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
    lasts = (5, 200) if chance.random() < 0.5 else None
    pods, is_replaced = chance.randint(1, 14), chance.random() < 0.6
    return Template(name, spec, pods, lasts, is_replaced, priorities)


class Load:
    """The cluster, and what happens to it whatever else goes wrong."""

    def __init__(
        self,
        agenda: Agenda,
        server: Server,
        kubelets: Kubelets,
        chance: random.Random,
        active_ns: int,
    ) -> None:
        """`active_ns`: until when there is something new."""
        self._active_ns = active_ns
        self._agenda = agenda
        self._server = server
        self._kubelets = kubelets
        self._chance = chance
        self._made = 0
        self._nodes = chance.randint(2, 12)
        self.templates = {
            t.name: t for t in (_template(i, chance) for i in range(chance.randint(3, 8)))
        }
        server.tell.append(self._happened)

    def plan(self) -> None:
        """The nodes there are, and everything that is to come."""
        chance = self._chance
        for i in range(self._nodes):
            self._server.put(_node(i, chance))
        for template in self.templates.values():
            if chance.random() < 0.3:
                self._server.put(_budget(template, chance))
            in_a_burst = chance.random() < 0.5
            first_ns = chance.randrange(self._active_ns // 2)
            for _ in range(template.pods):
                at_ns = first_ns if in_a_burst else chance.randrange(self._active_ns)
                self._agenda.at(at_ns, lambda t=template: self.make_pod(t))  # type: ignore[misc]
        for _ in range(chance.randint(0, 12)):
            change = chance.choice((self._come, self._go, self._close, self._label, self._keep))
            self._agenda.at(chance.randrange(self._active_ns), change)

    def make_pod(self, template: Template) -> None:
        """One more of them."""
        self._made += 1
        name = f"{template.name}-{self._made}"
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{self._made}",
                    "labels": {"app": template.name}}  # fmt: skip
        spec = {**template.spec, "priority": self._chance.choice(template.priorities)}
        document = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        pod = msgspec.convert(document, Pod)
        if template.lasts_s is not None:
            lasts_ns = self._chance.randint(*template.lasts_s) * SECOND_NS
            self._kubelets.lifetime_ns[pod.metadata.uid] = lasts_ns
        self._server.put(pod)

    def _happened(self, change: Change) -> None:
        """A pod that is gone is replaced, as its controller would."""
        _, kind, obj = change
        if kind is not WatchType.DELETED or not isinstance(obj, Pod):
            return
        template = self.templates[(obj.metadata.labels or {})["app"]]
        if template.is_replaced and self._agenda.now_ns < self._active_ns:
            self._agenda.after(self._chance.randint(*REPLACE_NS), lambda: self.make_pod(template))

    # What happens to nodes

    def _one(self) -> Node | None:
        nodes = [*self._server.all(Node).values()]
        return self._chance.choice(nodes) if nodes else None

    def _come(self) -> None:
        self._server.put(_node(self._nodes, self._chance))
        self._nodes += 1

    def _go(self) -> None:
        node = self._one()
        if node is not None:
            self._kubelets.remove_node(node.metadata.name)

    def _close(self) -> None:
        self._change(lambda node: msgspec.structs.replace(
            node, spec=msgspec.structs.replace(
                node.spec, unschedulable=not node.spec.unschedulable)))  # fmt: skip

    def _keep(self) -> None:
        taints = (Taint("kept", "", "NoSchedule"),)
        self._change(lambda node: msgspec.structs.replace(
            node, spec=msgspec.structs.replace(
                node.spec, taints=() if node.spec.taints else taints)))  # fmt: skip

    def _label(self) -> None:
        zone = f"zone-{self._chance.randrange(3)}"
        self._change(lambda node: msgspec.structs.replace(
            node, metadata=msgspec.structs.replace(
                node.metadata, labels={**(node.metadata.labels or {}), ZONE: zone})))  # fmt: skip

    def _change(self, do: Callable[[Node], Node]) -> None:
        node = self._one()
        if node is not None:
            self._server.put(do(node))


def _budget(template: Template, chance: random.Random) -> PodDisruptionBudget:
    return msgspec.convert(
        {
            "metadata": {"name": template.name, "namespace": "default", "uid": template.name},
            "spec": {"selector": {"matchLabels": {"app": template.name}}},
            "status": {"disruptionsAllowed": chance.randint(0, 2)},
        },
        PodDisruptionBudget,
    )
