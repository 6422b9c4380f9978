"""Small random clusters with devices, as plain JSON: up to 3 nodes, 6 devices, 4 claims."""

import random
from typing import Any

Json = dict[str, Any]
DRIVERS = ("gpu.example.com", "nic.example.com")
KEYS = ("model", "numa", "resource.kubernetes.io/pcieRoot")


class DeviceWorld:
    """One: nodes, slices, classes, claims to be allocated together, and claims that are."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.chance = chance
        self.nodes = [
            {
                "metadata": {
                    "name": f"node-{i}",
                    "labels": {"zone": chance.choice(["a", "b"])},
                }
            }
            for i in range(chance.randint(1, 3))
        ]
        self.classes = {
            "any": {"metadata": {"name": "any"}, "spec": {}},
            "gpu": self.of_driver("gpu", DRIVERS[0]),
            "nic": self.of_driver("nic", DRIVERS[1]),
        }
        self.slices: list[Json] = []
        left = chance.randint(2, 6)
        while left > 0:
            count = chance.randint(1, left)
            left -= count
            self.pool(f"pool-{len(self.slices)}", count)
        self.alone: set[tuple[str, str, str]] = set()
        self.shares: dict[tuple[str, str, str], list[Json]] = {}
        for slice_ in self.slices:
            for device in slice_["spec"].get("devices") or ():
                self.use(slice_["spec"], device)
        self.claims = [self.claim(i) for i in range(chance.choice([1, 1, 1, 2, 2, 3, 4]))]

    def of_driver(self, name: str, driver: str) -> Json:
        expression = f'device.driver == "{driver}"'
        return {
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        }

    def pool(self, name: str, count: int) -> None:
        chance = self.chance
        driver = chance.choice(DRIVERS)
        spec: Json = {"driver": driver, "pool": {"name": name, "generation": 1}}
        reach = chance.choice(["node", "zone", "all", "all", "all", "each"])
        counters = chance.random() < 0.35
        devices = [self.device(i, counters, reach == "each") for i in range(count)]
        spec["devices"] = devices
        if reach == "node":
            spec["nodeName"] = chance.choice(self.nodes)["metadata"]["name"]
        elif reach == "zone":
            spec["nodeSelector"] = _zone(chance.choice(["a", "b"]))
        elif reach == "all":
            spec["allNodes"] = True
        else:
            spec["perDeviceNodeSelection"] = True
        slices = [spec]
        if counters:
            counter_set = {"name": "set", "counters": {"memory": {"value": "40Gi"}}}
            slices.append(
                {k: v for k, v in spec.items() if k != "devices"}
                | {"sharedCounters": [counter_set]}
            )
        for i, part in enumerate(slices):
            part["pool"] = {**part["pool"], "resourceSliceCount": len(slices)}
            self.slices.append({"metadata": {"name": f"{name}-{i}"}, "spec": part})

    def device(self, number: int, counters: bool, says_where: bool) -> Json:
        chance = self.chance
        attributes: Json = {"model": {"string": chance.choice(["a", "b"])}}
        if chance.random() < 0.8:
            attributes["numa"] = {"int": chance.randint(0, 1)}
        if chance.random() < 0.7:
            attributes["resource.kubernetes.io/pcieRoot"] = {"string": chance.choice("xy")}
        device: Json = {"name": f"dev-{number}", "attributes": attributes}
        if chance.random() < 0.7:
            memory: Json = {"value": chance.choice(["10Gi", "20Gi", "40Gi"])}
            if chance.random() < 0.5:
                device["allowMultipleAllocations"] = True
                policy = chance.choice([None, "range", "values", "default"])
                if policy is not None:
                    memory["requestPolicy"] = {"default": "2Gi"}
                if policy == "range":
                    bounds = {"min": "2Gi", "step": chance.choice(["1Gi", "3Gi"])}
                    memory["requestPolicy"]["validRange"] = bounds | chance.choice(
                        [{}, {"max": "8Gi"}]
                    )
                elif policy == "values":
                    memory["requestPolicy"]["validValues"] = ["2Gi", "5Gi", "10Gi"]
            device["capacity"] = {"memory": memory}
        elif chance.random() < 0.3:
            device["allowMultipleAllocations"] = True
        if counters:
            take = {"value": chance.choice(["10Gi", "20Gi", "40Gi"])}
            device["consumesCounters"] = [{"counterSet": "set", "counters": {"memory": take}}]
        if chance.random() < 0.2:
            effect = chance.choice(["NoSchedule", "NoExecute", "None"])
            device["taints"] = [{"key": "example.com/ill", "effect": effect}]
        if says_where:
            device |= chance.choice(
                [{"allNodes": True}, {"nodeName": "node-0"}, {"nodeSelector": _zone("a")}]
            )
        return device

    def use(self, spec: Json, device: Json) -> None:
        chance = self.chance
        id = (spec["driver"], spec["pool"]["name"], device["name"])
        if chance.random() > 0.15:
            return
        if not device.get("allowMultipleAllocations"):
            self.alone.add(id)
            return
        taken = {name: chance.choice(["2Gi", "5Gi"]) for name in device.get("capacity") or {}}
        self.shares[id] = [taken for _ in range(chance.randint(1, 2))]

    def claim(self, number: int) -> Json:
        chance = self.chance
        requests = [self.request(i) for i in range(chance.choice([1, 1, 1, 1, 2, 2, 3]))]
        devices: Json = {"requests": requests}
        if chance.random() < 0.35:
            key = chance.choice(KEYS)
            if "/" not in key:
                key = f"{chance.choice(DRIVERS)}/{key}"
            constraint: Json = {chance.choice(["matchAttribute", "distinctAttribute"]): key}
            if chance.random() < 0.4:
                constraint["requests"] = [chance.choice(requests)["name"]]
            devices["constraints"] = [constraint]
        return {
            "metadata": {"name": f"claim-{number}", "namespace": "default", "uid": f"u{number}"},
            "spec": {"devices": devices},
        }

    def request(self, number: int) -> Json:
        chance = self.chance
        name = f"req-{number}"
        if chance.random() < 0.25:
            count = chance.randint(1, 3)
            return {
                "name": name,
                "firstAvailable": [{"name": f"sub-{i}", **self.asked(False)} for i in range(count)],
            }
        return {"name": name, "exactly": self.asked(True)}

    def asked(self, may_be_admin: bool) -> Json:
        chance = self.chance
        asked: Json = {"deviceClassName": chance.choice(["any", "gpu", "nic"])}
        if chance.random() < 0.12:
            asked["allocationMode"] = "All"
        else:
            asked |= {"allocationMode": "ExactCount", "count": chance.choice([1, 1, 1, 2, 3])}
        if chance.random() < 0.3:
            asked["capacity"] = {"requests": {"memory": chance.choice(["1Gi", "3Gi", "8Gi"])}}
        if chance.random() < 0.3:
            asked["tolerations"] = [{"key": "example.com/ill", "operator": "Exists"}]
        if may_be_admin and chance.random() < 0.08:
            asked["adminAccess"] = True
        return asked


def _zone(zone: str) -> Json:
    expression = {"key": "zone", "operator": "In", "values": [zone]}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
