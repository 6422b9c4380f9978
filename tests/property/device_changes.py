"""A small cluster whose nodes, slices, rules, classes and claims change at random."""

import random
from typing import Any

import msgspec

from stower.devices.inventory import Inventory
from stower.model.kinds import DeviceClass, DeviceTaintRule, Node, ResourceClaim, ResourceSlice
from stower.state.cluster import ClusterState

Json = dict[str, Any]
NODES = tuple(f"n{i}" for i in range(5))
DRIVERS = ("gpu.example.com", "nic.example.com")
POOLS = ("a", "b", "c")
EFFECTS = ("NoSchedule", "None")


class ChangingDevices:
    """Its state, and one change after another."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.state = ClusterState()
        self.known: dict[str, Any] = {}  # what may be dropped, by a key
        for name in NODES:
            self.set_node(name)
        for name in ("gpu", "any"):
            self.set_class(name)
        for _ in range(6):
            self.put_slice()
        self.put_twins()

    def change(self) -> None:
        """One, or some that are only tried."""
        if self.chance.random() < 0.1:
            known = dict(self.known)
            with self.state.trial():
                for _ in range(self.chance.randint(1, 3)):
                    self.change_objects()
            self.known = known
        elif self.chance.random() < 0.15:
            name = self.chance.choice(NODES)
            if self.state.row_of(name) >= 0 and self.chance.random() < 0.5:
                self.state.remove_node(name)
            else:
                self.set_node(name)
        else:
            self.change_objects()

    def change_objects(self) -> None:
        """One thing about devices."""
        chance = self.chance.random()
        if chance < 0.08:
            self.put_twins()
        elif chance < 0.3:
            self.put_slice()
        elif chance < 0.7:
            self.put_claim()
        elif chance < 0.75:
            self.put("rule", self.rule(), DeviceTaintRule)
        elif chance < 0.78:
            self.set_class("gpu")
        else:
            gone = [key for key in sorted(self.known) if not key.startswith("class")]
            if gone:
                self.state.devices.drop(self.known.pop(self.chance.choice(gone)))

    def put(self, kind: str, data: Json, type_: Any) -> None:
        """An object as it is now."""
        obj = msgspec.convert(data, type_)
        self.state.devices.put(obj)
        self.known[f"{kind}/{obj.metadata.name}"] = obj

    def set_node(self, name: str) -> None:
        """A node, in one of two zones."""
        meta = {"name": name, "labels": {"zone": self.chance.choice("xy")}}
        self.state.set_node(msgspec.convert({"metadata": meta}, Node))

    def set_class(self, name: str) -> None:
        """A class, for devices of all models or of one."""
        models = self.chance.choice([["m", "n"], ["m"]])
        driver = DRIVERS[0] if name == "gpu" else DRIVERS[1]
        says = f'"{driver}" in device.attributes && device.attributes["{driver}"].model in {models}'
        expression = says.replace("'", '"') if name == "gpu" else "true"
        selectors = [{"cel": {"expression": expression}}]
        spec = {"selectors": selectors}
        self.put("class", {"metadata": {"name": name}, "spec": spec}, DeviceClass)

    def rule(self) -> Json:
        """One that taints a pool or a device."""
        what = self.chance.choice(
            [{"pool": "a"}, {"pool": "twin-n1"}, {"device": "d0"}, {"driver": DRIVERS[1]}]
        )
        taint = {"key": "ill", "effect": self.chance.choice(EFFECTS)}
        name = f"rule-{self.chance.randint(0, 1)}"
        return {"metadata": {"name": name}, "spec": {"deviceSelector": what, "taint": taint}}

    def put_slice(self) -> None:
        """One of the slices of a pool: at times for other nodes, or of another generation."""
        chance = self.chance
        number = chance.randint(0, 2)
        pool = chance.choice(POOLS)
        driver = DRIVERS[0] if chance.random() < 0.7 else DRIVERS[1]
        newer = chance.random() < 0.15
        spec: Json = {
            "driver": driver,
            "pool": {
                "name": pool,
                "generation": 1 + newer,
                "resourceSliceCount": chance.choice([1, 2, 2, 3]),
            },
        }
        reach = chance.choice(["node", "node", "node", "zone", "all", "each"])
        if reach == "node":
            spec["nodeName"] = chance.choice(NODES)
        elif reach == "zone":
            spec["nodeSelector"] = self.zone()
        elif reach == "all":
            spec["allNodes"] = True
        else:
            spec["perDeviceNodeSelection"] = True
        if chance.random() < 0.25:
            names = chance.choice([["set"], ["set"], ["set", "other"], ["set", "set"]])
            amount = {"units": {"value": str(chance.choice([2, 4]))}}
            spec["sharedCounters"] = [{"name": name, "counters": amount} for name in names]
        else:
            prefix = chance.choice(["d", "d", "e"]) + (str(number) if chance.random() < 0.8 else "")
            spec["devices"] = [
                self.device(f"{prefix}{i}", reach == "each") for i in range(chance.randint(0, 3))
            ]
        name = f"{driver}-{pool}-{number}"
        self.put("slice", {"metadata": {"name": name}, "spec": spec}, ResourceSlice)

    def put_twins(self) -> None:
        """Pools of two nodes each that are alike, or almost: one reaches a device more, or the
        counters of one are fewer."""
        chance = self.chance
        has_counters = chance.random() < 0.7
        devices = [self.device(f"d{i}", False) for i in range(chance.randint(1, 3))]
        for device in devices if not has_counters else ():
            device.pop("consumesCounters", None)
        other = {**devices[0], "name": "other"}
        for name, beside in (("n1", "n2"), ("n3", "n4")):
            pool = {"name": f"twin-{name}", "generation": 1, "resourceSliceCount": 2 + has_counters}
            specs: list[Json] = [
                {"nodeName": name, "devices": devices},
                {"nodeName": beside, "devices": [other] if chance.random() < 0.8 else []},
            ]
            if has_counters:
                units = {"units": {"value": str(chance.choice([2, 2, 1]))}}
                specs.append({"sharedCounters": [{"name": "set", "counters": units}]})
                specs[-1]["nodeName"] = name
            for number in range(3):
                meta = {"name": f"{DRIVERS[0]}-twin-{name}-{number}"}
                if number < len(specs):
                    spec = {"driver": DRIVERS[0], "pool": pool, **specs[number]}
                    self.put("slice", {"metadata": meta, "spec": spec}, ResourceSlice)
                elif f"slice/{meta['name']}" in self.known:
                    self.state.devices.drop(self.known.pop(f"slice/{meta['name']}"))

    def device(self, name: str, says_where: bool) -> Json:
        """Of few kinds, so that many are alike."""
        chance = self.chance
        found: Json = {"name": name, "attributes": {"model": {"string": chance.choice("mmn")}}}
        if chance.random() < 0.3:
            found["capacity"] = {"memory": {"value": "10Gi"}}
            found["allowMultipleAllocations"] = True
        if chance.random() < 0.2:
            counters = {"units": {"value": str(chance.choice([1, 2]))}}
            found["consumesCounters"] = [{"counterSet": "set", "counters": counters}]
        if chance.random() < 0.1:
            found["taints"] = [{"key": "ill", "effect": chance.choice(EFFECTS)}]
        if chance.random() < 0.1:
            found |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["ill"]}
        if says_where:
            found |= chance.choice(
                [{"allNodes": True}, {"nodeName": "n0"}, {"nodeSelector": self.zone()}]
            )
        return found

    def zone(self) -> Json:
        """A selector of the nodes of one zone."""
        expression = {"key": "zone", "operator": "In", "values": [self.chance.choice("xy")]}
        return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}

    def put_claim(self) -> None:
        """One that holds some device, or a share of one, that is or may have been there."""
        chance = self.chance
        slices = [obj for key, obj in sorted(self.known.items()) if key.startswith("slice")]
        devices = [(s.spec, d) for s in slices for d in s.spec.devices or ()]
        results = []
        for spec, device in chance.sample(devices, min(len(devices), chance.randint(0, 2))):
            result = {
                "request": "r", "driver": spec.driver, "pool": spec.pool.name,
                "device": device.name,
            }  # fmt: skip
            if device.allow_multiple_allocations:
                result["shareID"] = str(chance.randint(0, 99))
                result["consumedCapacity"] = {"memory": chance.choice(["2Gi", "5Gi"])}
            results.append(result)
        status = {"allocation": {"devices": {"results": results}}} if results else {}
        meta = {"name": f"held-{chance.randint(0, 5)}", "namespace": "default"}
        self.put("claim", {"metadata": meta, "status": status}, ResourceClaim)


def fresh(state: ClusterState) -> ClusterState:
    """One that has seen nothing but what there is now, and the devices of claims that were
    published before."""
    found = ClusterState()
    inventory = state.devices.extension(Inventory)
    inventory.refresh()
    found.devices.extension(Inventory)._gone.update(inventory._gone)
    for row in state.present_rows():
        found.set_node(state.node_at(row))
    for obj in state.devices.api_objects():
        found.devices.put(obj)
    return found
