"""Objects of every kind that scheduling reads, which refer to each other by a few names.

`make_document` draws an object as an API server would admit it. `distort` changes some of its
fields to values that an older or laxer API might hand out: numbers at the ends of their range,
empty names, unknown words, entries twice, fields that are gone. The result has the right types, so
that it decodes. (mutants.py has documents that need not decode.)
"""

# ruff: noqa: E731

import copy
import random
from collections.abc import Callable
from typing import Any, Final

from stower.model.kinds import KINDS, Kind
from tests.fuzz.parts import (
    CLAIMS,
    COMPOSITES,
    DEVICE_CLASSES,
    DRIVERS,
    GROUPS,
    HOST,
    KEYS,
    NAMESPACES,
    NODES,
    PODS,
    PVCS,
    STORAGE_CLASSES,
    VMS,
    VOLUMES,
    ZONE,
    Document,
    Parts,
)

ODD_INTS: Final = (0, -1, 1, 2, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 10**9)
ODD_TEXTS: Final = (
    "", "Bogus", "a", "p0", "g0", "k0", "n0", "c0", "*", "0", "-1", "a" * 70, "1e30", "1n",
    "9223372036854775807", "true", "\u00e9", "2026-01-01T00:00:00Z",
)  # fmt: skip


class Maker(Parts):
    """Draws documents of all kinds from one generator."""

    # Nodes and what selects

    def node(self, name: str) -> Document:
        """A node with domains at four levels."""
        room = {"cpu": self.one("2", "4"), "memory": self.one("8Gi", "16Gi"),
                "pods": self.one("3", "110"), "example.com/gpu": self.one("0", "2"),
                "ephemeral-storage": "10Gi", "hugepages-2Mi": self.one("0", "8Mi")}  # fmt: skip
        labels = {HOST: name, ZONE: self.one("z0", "z1"), "rack": self.one("0", "1", "2"),
                  "block": self.one("b0", "b1")}  # fmt: skip
        for key in KEYS:
            if self.maybe(0.1):
                del labels[key]
        return {
            "metadata": {"labels": labels},
            "spec": self.fields(unschedulable=(0.1, lambda: True),
                                taints=(0.15, lambda: self.some(self.taint, 1, 2))),
            "status": {"allocatable": room, "capacity": room, **self.fields(
                images=(0.3, lambda: [{"names": ["i", "j:1"], "sizeBytes": 10**8}]),
                declaredFeatures=(0.2, lambda: ["X"]))},
        }  # fmt: skip

    def budget(self, _: str) -> Document:
        """A budget."""
        status = {"disruptionsAllowed": self.one(0, 0, 1), "disruptedPods": self.one(
            None, {self.one(*PODS): "2026-01-01T00:00:00Z"})}  # fmt: skip
        return {"spec": {"selector": self.selector()}, "status": status}

    def selecting(self, _: str) -> Document:
        """A service or controller."""
        return {"spec": {"selector": self.one(self.labels(), None)}}

    def set_of_pods(self, _: str) -> Document:
        """A ReplicaSet or StatefulSet."""
        return {"spec": {"selector": self.selector()}}

    def priority_class(self, _: str) -> Document:
        """A priority class."""
        return {"value": self.one(0, 1000)}

    def namespace(self, _: str) -> Document:
        """A namespace, which namespaceSelectors select."""
        return {"metadata": {"labels": self.labels()}}

    # Groups

    def _group(self, policy: Document) -> Document:
        topology = lambda: {
            "topology": [{"key": k} for k in self.chance.sample(KEYS, self.one(1, 1, 2))]
        }
        notes = self.fields(**{"stower.dev/preferred-topology": (0.3, lambda: self.one(*KEYS))})
        labels = self.fields(**{"stower.dev/parent-group": (0.1, lambda: self.one(*COMPOSITES))})
        spec = {"schedulingPolicy": policy, "workloadRef": {"workloadName": "w"}, **self.fields(
            parentCompositePodGroupName=(0.4, lambda: self.one("k0", *COMPOSITES)),
            schedulingConstraints=(0.4, topology),
            disruptionMode=(0.4, lambda: self.one("PodGroup", "Pod", {"all": {}}, {"single": {}})),
            priority=(0.5, lambda: self.one(0, 5, 2000)),
            preemptionPolicy=(0.1, lambda: "Never"),
        )}  # fmt: skip
        return {"metadata": {"annotations": notes, "labels": labels}, "spec": spec}

    def group(self, _: str) -> Document:
        """A group of pods."""
        least = self.one(1, 1, 2, 3)
        found = self._group(self.one({"basic": {}}, {"gang": {"minCount": least}},
                                     {"gang": {"minCount": least}}))  # fmt: skip
        if self.maybe(0.25):
            found["spec"]["resourceClaims"] = [self.pod_claim("s0")]
            entry = {"name": "s0", "resourceClaimName": self.one(*CLAIMS)}
            found["status"] = self.fields(resourceClaimStatuses=(0.7, lambda: [entry]))
        return found

    def composite(self, _: str) -> Document:
        """A group of groups; chance makes cycles."""
        least = self.one(1, 1, 2)
        return self._group(self.one({"basic": {}}, {"gang": {"minGroupCount": least}}))

    # Devices

    def request(self, name: str) -> Document:
        """A request for devices."""

        def exactly() -> Document:
            return {
                "deviceClassName": self.one("gpu", "gpu", *DEVICE_CLASSES),
                "allocationMode": self.one("ExactCount", "ExactCount", "All"),
                "count": self.one(1, 1, 2),
                **self.fields(
                    selectors=(0.15, lambda: self.some(self.cel, 1, 2)),
                    adminAccess=(0.1, lambda: True),
                    tolerations=(0.2, lambda: [self.toleration()]),
                    capacity=(0.3, lambda: {"requests": {"memory": self.one("1Gi", "3")}}),
                ),
            }  # fmt: skip

        if self.maybe(0.2):
            return {"name": name, "firstAvailable": [{**exactly(), "name": f"s{i}"}
                                                     for i in range(2)]}  # fmt: skip
        return {"name": name, "exactly": exactly()}

    def claim(self, name: str) -> Document:
        """A claim, perhaps allocated, reserved, or made for a pod."""
        devices: Document = {"requests": [self.request(f"q{i}") for i in range(self.one(1, 1, 2))]}
        if self.maybe(0.2):
            kind = self.one("matchAttribute", "distinctAttribute")
            devices["constraints"] = [
                {kind: "gpu.example.com/model", "requests": self.one(None, ["q0"])}
            ]
        found: Document = {"spec": {"devices": devices}, "metadata": {}}
        meta = found["metadata"]
        if self.maybe(0.1):
            owner = self.owner("Pod", self.one(*PODS))
            meta |= {"ownerReferences": [owner],
                     "annotations": {"resource.kubernetes.io/pod-claim-name": "r0"}}  # fmt: skip
        if self.maybe(0.1):
            meta["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
        if self.maybe(0.15):
            meta["annotations"] = {"stower.dev/allocation-mode": "Immediate"}
        if self.maybe(0.3):
            meta["finalizers"] = ["resource.kubernetes.io/delete-protection"]
        if self.maybe(0.1):
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if self.maybe(0.3):
            found["status"] = self.fields(
                allocation=(0.8, self.allocation),
                reservedFor=(0.6, lambda: [{"resource": self.one("pods", "podgroups"),
                                            "name": self.one(*PODS, *GROUPS),
                                            "uid": f"Pod-{self.one(*PODS)}-0"}]),
            )  # fmt: skip
        return found

    def allocation(self) -> Document:
        """Devices that were given."""
        result = lambda: {"request": self.one("q0", "q1"), "driver": self.one(*DRIVERS),
                          "pool": self.one("s0", "s1", "pool0", "pool1"),
                              "device": self.one("x0", "x1"),
                          **self.fields(
                              shareID=(0.2, lambda: "s"),
                              adminAccess=(0.1, lambda: True),
                              bindingConditions=(0.2, lambda: ["ready"]),
                              consumedCapacity=(0.2, lambda: {"memory": "1Gi"}))}  # fmt: skip
        return {"devices": {"results": self.some(result, 1, 2)},
                **self.fields(nodeSelector=(0.5, self.node_selector),
                              allocationTimestamp=(0.3,
                                  lambda: "2026-01-01T00:00:00Z"))}  # fmt: skip

    def device(self, name: str) -> Document:
        """A device."""
        policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
        memory = {"value": self.one("4Gi", "4"), "requestPolicy": self.one(None, policy)}
        counter = {"counterSet": "s", "counters": {"m": {"value": self.one("1", "2")}}}
        mapping = {"capacityKey": "memory", "allocationMultiplier": self.one("1", "2")}
        attribute = self.one({"string": "a"}, {"int": 1}, {"bool": True}, {"version": "1.0.0"},
                             {"strings": ["a", "b"]})  # fmt: skip
        return {"name": name, **self.fields(
            attributes=(0.6, lambda: {"model": attribute}),
            capacity=(0.5, lambda: {"memory": memory}),
            consumesCounters=(0.3, lambda: [counter]), taints=(0.15, lambda: [self.taint()]),
            allowMultipleAllocations=(0.3, lambda: True), bindsToNode=(0.1, lambda: True),
            bindingConditions=(0.1, lambda: ["ready"]),
            bindingFailureConditions=(0.1, lambda: ["broken"]),
            nodeAllocatableResourceMappings=(0.2, lambda: {"memory": mapping, "cpu": {
                "allocationMultiplier": "1"}}),
            nodeName=(0.05, lambda: self.one(*NODES)),
        )}  # fmt: skip

    def slice(self, name: str) -> Document:
        """A slice with counters or devices."""
        where = self.one({"nodeName": self.one(*NODES)}, {"nodeName": self.one(*NODES)},
                         {"allNodes": True}, {"nodeSelector": self.node_selector()},
                         {"perDeviceNodeSelection": True})  # fmt: skip
        pool = {"name": self.one(name, name, "pool0", "pool1"), "generation": self.one(*(1,) * 5,
            2),
                "resourceSliceCount": self.one(*(1,) * 5, 2)}  # fmt: skip
        counters = [{"name": "s", "counters": {"m": {"value": self.one("2", "4")}}}]
        return {"spec": {"driver": self.one(*DRIVERS), "pool": pool, **where, **self.fields(
            devices=(0.9, lambda: [self.device(f"x{i}") for i in range(self.one(1, 2, 3))]),
            sharedCounters=(0.4, lambda: counters),
        )}}  # fmt: skip

    def device_class(self, _: str) -> Document:
        """A class of devices."""
        return {"spec": self.fields(
            selectors=(0.15, lambda: self.some(self.cel, 1, 2)),
            extendedResourceName=(0.4, lambda: "example.com/gpu"),
        )}  # fmt: skip

    def taint_rule(self, _: str) -> Document:
        """A taint of devices."""
        selector = self.fields(driver=(0.5, lambda: self.one(*DRIVERS)),
                               pool=(0.5, lambda: "pool0"), device=(0.3, lambda: "x0"))  # fmt: skip
        return {"spec": {"deviceSelector": selector, "taint": self.taint()}}

    def resource_class(self, _: str) -> Document:
        """A class whose devices are negotiated."""
        return {"driverName": self.one("fabric.example.com", *DRIVERS),
                **self.fields(suitableNodes=(0.4, self.node_selector))}  # fmt: skip

    def pod_scheduling(self, name: str) -> Document:
        """A negotiation about the pod of that name."""
        entry = lambda: {"name": self.one("r0", "r1"),
            "claimUID": f"ResourceClaim-{self.one(*CLAIMS)}-0",
                         "unsuitableNodes": self.some(lambda: self.one(*NODES), 0, 1, 2),
                         "observedRound": self.one(0, 1, 2)}  # fmt: skip
        return {
            "metadata": {"ownerReferences": [self.owner("Pod", name)]},
            "spec": self.fields(
                selectedNode=(0.4, lambda: self.one(*NODES)), round=(0.6, lambda: self.one(1, 2)),
                potentialNodes=(0.6, lambda: self.some(lambda: self.one(*NODES), 1, 2, 3)),
                attempt=(0.2, lambda: 1),
            ),
            "status": self.fields(resourceClaims=(0.6, lambda: self.some(entry, 1, 2))),
        }  # fmt: skip

    # Volumes

    def pvc(self, name: str) -> Document:
        """A claim for a volume."""
        notes = self.fields(**{
            "pv.kubernetes.io/bind-completed": (0.4, lambda: "yes"),
            "volume.kubernetes.io/selected-node": (0.3, lambda: self.one(*NODES)),
        })  # fmt: skip
        return {"metadata": {"annotations": notes}, "spec": {
            "accessModes": [self.one("ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany")],
            "resources": {"requests": {"storage": self.one("1Gi", "5Gi")}},
            **self.fields(storageClassName=(0.8, lambda: self.one(*STORAGE_CLASSES)),
                          volumeName=(0.5, lambda: self.one(*VOLUMES)),
                          selector=(0.1, self.selector)),
        }, "status": {"phase": self.one("Pending", "Bound", "Lost")}}  # fmt: skip

    def pv(self, _: str) -> Document:
        """A volume."""
        ref = {"namespace": self.one(*NAMESPACES), "name": self.one(*PVCS),
               "uid": f"PersistentVolumeClaim-{self.one(*PVCS)}-0"}  # fmt: skip
        return {"metadata": {"labels": self.labels()}, "spec": {
            "capacity": {"storage": self.one("1Gi", "10Gi")},
            "accessModes": [self.one("ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany")],
            **self.fields(
                storageClassName=(0.8, lambda: self.one(*STORAGE_CLASSES)),
                claimRef=(0.5, lambda: ref), csi=(0.5, lambda: {"driver": "csi",
                    "volumeHandle": "h"}),
                nodeAffinity=(0.5, lambda: {"required": self.node_selector()}),
            ),
        }, "status": {"phase": self.one("Available", "Bound")}}  # fmt: skip

    def storage_class(self, _: str) -> Document:
        """A class of volumes."""
        topology = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z0"]}]}]
        return {
            "provisioner": self.one("csi", "kubernetes.io/no-provisioner"),
            "volumeBindingMode": self.one("Immediate", "WaitForFirstConsumer"),
            **self.fields(allowedTopologies=(0.3, lambda: topology)),
        }

    def csi_node(self, _: str) -> Document:
        """The drivers of a node."""
        return {"spec": {"drivers": [{"name": "csi", "allocatable": {"count": self.one(0, 1, 5)}}]}}

    def csi_driver(self, _: str) -> Document:
        """A driver."""
        return {"spec": {"storageCapacity": self.maybe(0.5)}}

    def csi_capacity(self, _: str) -> Document:
        """How much a driver has."""
        return {"storageClassName": self.one(*STORAGE_CLASSES), "capacity": self.one("1Gi",
            "100Gi"),
                **self.fields(nodeTopology=(0.7, self.selector),
                              maximumVolumeSize=(0.3, lambda: "2Gi"))}  # fmt: skip

    def attachment(self, _: str) -> Document:
        """A volume on a node."""
        return {"spec": {"attacher": "csi", "nodeName": self.one(*NODES),
                         "source": {"persistentVolumeName": self.one(*VOLUMES)}}}  # fmt: skip

    # VMs and pools

    def vm(self, _: str) -> Document:
        """A VM."""
        return {"spec": {"guest": {}}, "status": {"podName": self.one(*PODS)}}

    def migration(self, _: str) -> Document:
        """A move of a VM."""
        phase = self.one("", "Pending", "Running", "Succeeded", "Failed")
        return {"spec": {"vmName": self.one(*VMS)},
                "status": {"phase": phase, "targetPodName": self.one("", *PODS)}}  # fmt: skip

    def pool(self, _: str) -> Document:
        """A warm pool whose users and placeholders are pods of pod()."""
        template = {"metadata": {"labels": {"role": "placeholder"}},
                    "spec": {**self.pod_spec(), "priority": -10}}  # fmt: skip
        for name in ("nodeName", "schedulingGroup"):
            template["spec"].pop(name, None)
        placeholders: Document = {
            "selector": {"matchLabels": {"role": "placeholder"}}, **self.fields(
                template=(0.7, lambda: template), replicas=(0.7, lambda: self.one(1, 2)),
                percentOfUsers=(0.2, lambda: 100), readinessSeconds=(0.2, lambda: 60),
                replicasMax=(0.3, lambda: 3), placement=(0.3, lambda: "Spread"),
                surge=(0.2, lambda: {"holdSeconds": 10}),
                lectures=(0.2, lambda: [{"start": self.one("00:00", "2026-01-01T00:00:00Z"),
                                         "enrolment": 2}]),
            )}  # fmt: skip
        images = self.fields(names=(0.3, lambda: ["i"]), ofUsers=(0.3, lambda: True),
                             pullers=(0.2, self.selector), label=(0.3, lambda: "example.com/warm"),
                             waitSeconds=(0.3, lambda: 5),
                             then=(0.3, lambda: self.one("Soonest", "Wait")))  # fmt: skip
        moves = [{"pod": self.one(*PODS), "at": "1970-01-01T00:00:01Z", "to": self.one(*NODES),
                  "fromNode": self.one(*NODES)}]  # fmt: skip
        return {"spec": {
            "users": {"matchLabels": {"role": "user"}}, "placeholders": placeholders,
            "images": images, **self.fields(
                nodeSelector=(0.2, lambda: {"block": "b0"}),
                repositioning=(0.5, lambda: {"mode": self.one("Drain", "Newest", "Lifetime", "Off"),
                                             "lifetimeSeconds": 5, "restSeconds": 1}),
            )}, "status": self.fields(moves=(0.3, lambda: moves), expected=(0.2,
                lambda: "x"))}  # fmt: skip


# By kind: the function that draws it, and the names that its objects have.
MAKERS: Final[dict[str, tuple[Callable[[Maker, str], Document], tuple[str, ...]]]] = {
    "Pod": (Maker.pod, PODS), "Node": (Maker.node, NODES), "PodGroup": (Maker.group, GROUPS),
    "CompositePodGroup": (Maker.composite, COMPOSITES), "ResourceClaim": (Maker.claim, CLAIMS),
    "ResourceSlice": (Maker.slice, ("s0", "s1", "s2")), "DeviceClass": (Maker.device_class,
        DEVICE_CLASSES),
    "DeviceTaintRule": (Maker.taint_rule, ("r0",)), "ResourceClass": (Maker.resource_class,
        ("fabric", "fabric", "gpu")),
    "PodScheduling": (Maker.pod_scheduling, PODS), "PodDisruptionBudget": (Maker.budget, ("b0",
        "b1")),
    "WarmPool": (Maker.pool, ("w0", "w1")), "VirtualMachine": (Maker.vm, VMS),
    "VirtualMachineMigration": (Maker.migration, ("x0", "x1")), "Namespace": (Maker.namespace,
        NAMESPACES),
    "PersistentVolumeClaim": (Maker.pvc, PVCS), "PersistentVolume": (Maker.pv, VOLUMES),
    "StorageClass": (Maker.storage_class, STORAGE_CLASSES), "CSINode": (Maker.csi_node, NODES),
    "CSIDriver": (Maker.csi_driver, ("csi",)), "CSIStorageCapacity": (Maker.csi_capacity, ("y0",)),
    "VolumeAttachment": (Maker.attachment, ("a0",)), "PriorityClass": (Maker.priority_class,
        ("high",)),
    "Service": (Maker.selecting, ("svc",)), "ReplicationController": (Maker.selecting, ("rc",)),
    "ReplicaSet": (Maker.set_of_pods, ("rs",)), "StatefulSet": (Maker.set_of_pods, ("sts",)),
}  # fmt: skip
# Kinds that a scene has with all their names, in the order of their creation; pods come last.
SCENES: Final = (
    ("PodDisruptionBudget", "Namespace"), ("PodGroup", "CompositePodGroup"),
    ("CompositePodGroup", "PodGroup", "WarmPool"),
    ("DeviceClass", "ResourceSlice", "ResourceClaim"),
    ("DeviceClass", "ResourceSlice", "ResourceClass", "ResourceClaim"),
    ("PodGroup", "CompositePodGroup", "DeviceClass", "ResourceSlice", "ResourceClaim"),
    ("StorageClass", "PersistentVolume", "PersistentVolumeClaim", "CSINode"),
    ("WarmPool", "PodDisruptionBudget"), ("VirtualMachine", "VirtualMachineMigration"),
    ("ResourceClass", "ResourceClaim", "PodScheduling"),
)  # fmt: skip
# How often each kind is drawn, where not once.
WEIGHTS: Final = {"Pod": 12, "Node": 4, "PodGroup": 5, "CompositePodGroup": 4, "ResourceClaim": 4,
                  "ResourceSlice": 3, "DeviceClass": 2, "PodScheduling": 2, "WarmPool": 3,
                  "VirtualMachineMigration": 2, "PersistentVolumeClaim": 2,
                  "PersistentVolume": 2}  # fmt: skip
DRAWN: Final = tuple(kind for kind in KINDS for _ in range(WEIGHTS.get(kind.name, 1)))


def key_of(kind: Kind, number: int) -> tuple[str, str]:
    """Namespace and name of the object that a number stands for, of those that a kind may have."""
    names = MAKERS[kind.name][1]
    name = names[number % len(names)]
    return (NAMESPACES[number // len(names) % 4 == 3] if kind.namespaced else "", name)


def make_document(kind: Kind, number: int, variant: int, oddity: int) -> Document:
    """An object of the kind. `number`: see key_of; `variant`: what is in it; `oddity`: which fields
    have odd values, 0 for none, and more the greater it is."""
    namespace, name = key_of(kind, number)
    chance = random.Random(f"{kind.name} {number} {variant}")
    document = MAKERS[kind.name][0](Maker(chance), name)
    if oddity:
        document = distort(document, random.Random(variant + oddity), oddity)
    return document | {"apiVersion": kind.api_version, "kind": kind.name} | {
        "metadata": {**document.get("metadata", {}), "name": name, "namespace": namespace}
    }  # fmt: skip


def distort(document: Document, chance: random.Random, count: int) -> Document:
    """A copy in which so many fields have other values of the same type, or are gone."""
    document = copy.deepcopy(document)
    for _ in range(count):
        places = [*_places(document)]
        if not places:
            break
        holder, key = chance.choice(places)
        holder[key] = _odd(holder[key], chance)
        if holder[key] is None:
            del holder[key]
    return document


def _places(value: Any) -> list[tuple[Any, Any]]:
    found = []
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        found.append((value, key))
        if isinstance(inner, dict | list):
            found += _places(inner)
    return found


def _odd(value: Any, chance: random.Random) -> Any:
    """Another value of the same type, or None for none at all."""
    if chance.random() < 0.25:
        return None
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice(ODD_INTS)
    if isinstance(value, str):
        return chance.choice(ODD_TEXTS)
    if isinstance(value, list) and value:
        return chance.choice(([], [*value, copy.deepcopy(value[0])], value * 40, value[::-1]))
    if isinstance(value, dict) and value:
        first = next(iter(value))
        return chance.choice(({}, {**value, "": copy.deepcopy(value[first])}))
    return value
