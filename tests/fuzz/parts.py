"""Parts of the objects that are fuzzed, and pods: what refers to what by a few names.

See objects.py.
"""

# ruff: noqa: E731

import json
import random
from collections.abc import Callable
from typing import Any, Final

from tests.fuzz.mutants import CEL

Document = dict[str, Any]

NAMESPACES: Final = ("a", "b")  # of users who create anything; nobody else's
NODES: Final = ("n0", "n1", "n2")
PODS: Final = tuple(f"p{i}" for i in range(6))
GROUPS: Final = ("g0", "g1", "g2")
COMPOSITES: Final = ("k0", "k1", "k2", "k3")
CLAIMS: Final = ("c0", "c1", "c2")
DEVICE_CLASSES: Final = ("gpu", "nic", "fabric")
VOLUMES: Final = ("v0", "v1")
PVCS: Final = ("d0", "d1")
STORAGE_CLASSES: Final = ("slow", "wait")
VMS: Final = ("m0", "m1")
SCHEDULERS: Final = (*("default-scheduler",) * 6, "second", "second", "other")
ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
KEYS: Final = (ZONE, HOST, "rack", "block")
RESOURCES: Final = ("cpu", "memory", "example.com/gpu", "ephemeral-storage", "hugepages-2Mi")
AMOUNTS: Final = {
    "cpu": ("0", "100m", "1", "1500m", "2"), "memory": ("0", "64Mi", "1Gi", "6Gi"),
    "example.com/gpu": ("0", "1", "2"), "ephemeral-storage": ("1Gi",), "hugepages-2Mi": ("2Mi",),
}  # fmt: skip
DRIVERS: Final = ("gpu.example.com", "nic.example.com")
VM_GROUP: Final = "vm.neon.tech/v1"


class Parts:
    """Draws documents from one generator."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def one(self, *values: Any) -> Any:
        """One of these."""
        return self.chance.choice(values)

    def some(self, of: Callable[[], Any], *counts: int) -> list[Any]:
        """A list of as many entries as one of the counts."""
        return [of() for _ in range(self.chance.choice(counts))]

    def maybe(self, probability: float) -> bool:
        """True with this probability."""
        return self.chance.random() < probability

    def fields(self, **given: tuple[float, Callable[[], Any]]) -> Document:
        """Each field with its probability."""
        return {name: of() for name, (p, of) in given.items() if self.maybe(p)}

    # Parts of several kinds

    def labels(self) -> Document:
        """Labels that selectors match."""
        return {key: self.one("x", "y") for key in ("app", "tier") if self.maybe(0.6)}

    def selector(self) -> Document:
        """A label selector, sometimes of everything."""
        found: Document = {}
        if self.maybe(0.6):
            found["matchLabels"] = {"app": self.one("x", "y")}
        if self.maybe(0.4):
            operator = self.one("In", "NotIn", "Exists", "DoesNotExist")
            values = ["x"] if operator in ("In", "NotIn") else None
            found["matchExpressions"] = [{"key": "tier", "operator": operator, "values": values}]
        return found

    def node_selector(self) -> Document:
        """A node selector."""

        def term() -> Document:
            if self.maybe(0.3):
                return {"matchFields": [{"key": "metadata.name", "operator": "In",
                                         "values": [self.one(*NODES)]}]}  # fmt: skip
            operator = self.one("In", "Exists", "Gt")
            values = {"In": ["z0", "1"], "Exists": None, "Gt": ["1"]}[operator]
            key = self.one(*KEYS)
            return {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}

        return {"nodeSelectorTerms": self.some(term, 1, 1, 2)}

    def amounts(self, *names: str) -> Document:
        """A resource list."""
        names = names or ("cpu", *self.chance.sample(RESOURCES, self.one(0, 1, 2)))
        return {name: self.one(*AMOUNTS[name]) for name in names}

    def taint(self) -> Document:
        """A taint of a node or device."""
        return {"key": self.one("t", "u"), "value": "1",
                "effect": self.one("NoSchedule", "NoExecute", "PreferNoSchedule")}  # fmt: skip

    def toleration(self) -> Document:
        """A toleration of these taints, or of all."""
        if self.maybe(0.2):
            return {"operator": "Exists"}
        operator = self.one("Exists", "Equal")
        return {
            "key": self.one("t", "u"),
            "operator": operator,
            "effect": self.one("", "NoSchedule"),
        }

    def cel(self) -> Document:
        """A selector of devices."""
        return {
            "cel": {"expression": self.one(*CEL, *[f'device.driver == "{d}"' for d in DRIVERS])}
        }

    def owner(self, kind: str, name: str, version: str = "v1") -> Document:
        """An owner reference; the uid is the one that the owner's first incarnation has."""
        return {"kind": kind, "name": name, "uid": f"{kind}-{name}-{self.one(0, 0, 1)}",
                "apiVersion": version, "controller": self.maybe(0.8)}  # fmt: skip

    # Pods

    def container(self) -> Document:
        """A container."""
        port = lambda: {"containerPort": 80, "hostPort": self.one(0, 80, 81),
                        "protocol": self.one("TCP", "UDP")}  # fmt: skip
        return {
            "name": self.one("c", "d"), "image": self.one("i", "j:1"),
            "resources": self.fields(
                requests=(0.9, self.amounts), limits=(0.3, self.amounts),
                claims=(0.2, lambda: [{"name": self.one("r0", "r1")}]),
            ),
            **self.fields(ports=(0.15, lambda: self.some(port, 1, 2))),
        }  # fmt: skip

    def affinity_term(self) -> Document:
        """A term about other pods."""
        return {
            "topologyKey": self.one(*KEYS), "labelSelector": self.selector(),
            **self.fields(
                namespaces=(0.2, lambda: [self.one(*NAMESPACES, "elsewhere")]),
                namespaceSelector=(0.3, lambda: self.one({}, self.selector())),
                matchLabelKeys=(0.2, lambda: ["app"]), mismatchLabelKeys=(0.1, lambda: ["tier"]),
            ),
        }  # fmt: skip

    def affinity(self) -> Document:
        """All kinds of affinity."""
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        preferred = "preferredDuringSchedulingIgnoredDuringExecution"
        weighted = lambda: {"weight": self.one(1, 50, 100), "podAffinityTerm": self.affinity_term()}
        pods = lambda: self.fields(**{
            required: (0.5, lambda: self.some(self.affinity_term, 1, 2)),
            preferred: (0.5, lambda: self.some(weighted, 1, 2)),
        })  # fmt: skip
        nodes = lambda: self.fields(**{
            required: (0.5, self.node_selector),
            preferred: (0.5, lambda: [{"weight": self.one(1, 100), "preference":
                                       self.node_selector()["nodeSelectorTerms"][0]}]),
        })  # fmt: skip
        return self.fields(nodeAffinity=(0.4, nodes), podAffinity=(0.4, pods),
                           podAntiAffinity=(0.4, pods))  # fmt: skip

    def spread(self) -> Document:
        """A topology spread constraint."""
        return {
            "maxSkew": self.one(1, 1, 2), "topologyKey": self.one(*KEYS),
            "whenUnsatisfiable": self.one("DoNotSchedule", "ScheduleAnyway"),
            "labelSelector": self.selector(),
            **self.fields(minDomains=(0.2, lambda: self.one(1, 3)),
                          nodeAffinityPolicy=(0.2, lambda: self.one("Honor", "Ignore")),
                          nodeTaintsPolicy=(0.2, lambda: self.one("Honor", "Ignore")),
                          matchLabelKeys=(0.2, lambda: ["app"])),
        }  # fmt: skip

    def pod_claim(self, name: str) -> Document:
        """An entry of a pod's or a group's claims."""
        if self.maybe(0.3):
            return {"name": name, "resourceClaimTemplateName": "t0"}
        return {"name": name, "resourceClaimName": self.one(*CLAIMS)}

    def volume(self) -> Document:
        """A volume of a pod."""
        source = self.one(
            {"persistentVolumeClaim": {"claimName": self.one(*PVCS)}}, {"ephemeral": {}},
            {"csi": {"driver": "csi"}}, {"gcePersistentDisk": {"pdName": "x"}},
            {"image": {"reference": "i"}}, {"rbd": {"monitors": ["m"], "image": "i"}},
        )  # fmt: skip
        return {"name": self.one("v", "w"), **source}

    def pod_spec(self) -> Document:
        """A pod's spec."""
        claims = lambda: [self.pod_claim(f"r{i}") for i in range(self.one(1, 1, 2))]
        aspects: dict[str, Callable[[], Any]] = {
            "initContainers": lambda: [{**self.container(), "restartPolicy": "Always"}],
            "nodeName": lambda: self.one(*NODES), "nodeSelector": lambda: {ZONE: "z0"},
            "preemptionPolicy": lambda: self.one("Never", "PreemptLowerPriority"),
            "affinity": self.affinity, "tolerations": lambda: self.some(self.toleration, 1, 2),
            "topologySpreadConstraints": lambda: self.some(self.spread, 1, 2),
            "schedulingGates": lambda: [{"name": "gate"}], "hostUsers": lambda: False,
            "overhead": self.amounts, "volumes": lambda: self.some(self.volume, 1, 2),
            "resources": lambda: {"requests": self.amounts("cpu", "memory")},
            "resourceClaims": claims,
            "schedulingGroup": lambda: {"podGroupName": self.one(*GROUPS)},
        }  # fmt: skip
        often = ("schedulingGroup", "schedulingGroup", "schedulingGroup", "resourceClaims",
                 "resourceClaims", "affinity", "nodeName")  # fmt: skip
        drawn = [self.one(*aspects, *often) for _ in range(self.one(0, 1, 1, 2, 3))]
        return {
            "containers": self.some(self.container, 1, 1, 2),
            "schedulerName": self.one(*SCHEDULERS),
            **self.fields(priority=(0.6, lambda: self.one(0, 5, 10, 1000))),
            **{name: aspects[name]() for name in dict.fromkeys(drawn)},
        }

    def pod(self, name: str) -> Document:
        """A pod; some run VMs, some are users of a warm pool or its placeholders."""
        found: Document = {"spec": self.pod_spec(), "metadata": {"labels": self.labels()}}
        meta = found["metadata"]
        role = self.chance.random()
        if role < 0.15:
            self._as_vm(found)
        elif role < 0.25:
            meta["labels"] |= {"role": self.one("user", "placeholder")}
        elif role < 0.3:
            meta["labels"] |= {"stower.dev/pod-group": self.one(*GROUPS)}
        if self.maybe(0.2):
            claim = {"name": "r0", "resourceClaimName": self.one(*CLAIMS)}
            found["status"] = self.fields(
                phase=(0.5, lambda: self.one("Pending", "Running", "Succeeded", "Failed")),
                nominatedNodeName=(0.4, lambda: self.one(*NODES)),
                resourceClaimStatuses=(0.5, lambda: [claim]),
                extendedResourceClaimStatus=(
                    0.1, lambda: {"resourceClaimName": self.one(*CLAIMS)},
                ),
                nodeAllocatableResourceClaimStatuses=(
                    0.2, lambda: [{"resourceClaimName": "c0", "containers": ["c"],
                                   "resources": self.amounts("cpu")}],
                ),
                conditions=(0.3, lambda: [{"type": "PodScheduled", "status": "False"}]),
            )  # fmt: skip
        if self.maybe(0.08):
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return found

    def _as_vm(self, found: Document) -> None:
        """A runner pod, in terms of neon's controllers."""
        vm = self.one(*VMS)
        bounds = {"min": "250m", "max": 8, "use": self.one("250m", 1, 2)}
        slots = {"min": 1, "max": 16, "use": self.one(1, 4)}
        amount = lambda: json.dumps(
            {"vCPUs": self.one("250m", 1, 4), "mem": self.one("1Gi", "4Gi")}
        )
        notes = {"vm.neon.tech/resources": json.dumps(
            {"cpus": bounds, "memorySlots": slots, "memorySlotSize": "1Gi"})}  # fmt: skip
        prefix = "internal.autoscaling.neon.tech/resources-"
        notes |= self.fields(**{
            "autoscaling.neon.tech/scaling-unit": (0.7, amount), f"{prefix}requested": (0.6,
                amount),
            f"{prefix}approved": (0.5, amount),
            "vm.neon.tech/overcommit": (0.2, lambda: json.dumps({"cpu": "2", "mem": "1"})),
        })  # fmt: skip
        owners = [self.owner("VirtualMachine", vm, VM_GROUP)]
        if self.maybe(0.4):
            owners.append(self.owner("VirtualMachineMigration", "x0", VM_GROUP))
        labels = {"vm.neon.tech/name": vm, "autoscaling.neon.tech/enabled": "true"}
        labels |= self.fields(**{
            "autoscaling.neon.tech/auto-migration-enabled": (0.6, lambda: "true"),
            "autoscaling.neon.tech/testing-only-always-migrate": (0.2, lambda: "true"),
        })  # fmt: skip
        meta = found["metadata"]
        meta["labels"] |= labels
        meta |= {"annotations": notes, "ownerReferences": owners}
