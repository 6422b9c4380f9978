"""Small random clusters with devices, as plain JSON: up to 3 nodes, 6 devices, 4 claims.

Some are tight: a few equal devices, most of them shared, and amounts that nearly fill them.
"""

import random
from typing import Any

Json = dict[str, Any]
DRIVERS = ("gpu.example.com", "nic.example.com")
SLOT = f"{DRIVERS[0]}/slot"  # int or bool
TAGS = f"{DRIVERS[0]}/tags"  # a list, where there are lists
KEYS = ("model", "numa", "resource.kubernetes.io/pcieRoot")
# What a request may choose by: all of them have an answer for every device.
CHOICES = (
    "'model' in {attributes} && {attributes}.model == 'a'",
    "'numa' in {attributes} && {attributes}.numa == 1",
    "!('numa' in {attributes})",
    "'memory' in {capacity} && {capacity}.memory.compareTo(quantity('20Gi')) >= 0",
    "!('cores' in {capacity})",
    "device.allowMultipleAllocations",
)
TAINTS = ("example.com/ill", "example.com/old")


class DeviceWorld:
    """One: nodes, slices, classes, claims to be allocated together, and claims that are."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.chance = chance
        self.is_tight = chance.random() < 0.3
        self.has_lists = chance.random() < 0.2
        self.nodes = [
            {
                "metadata": {
                    "name": f"node-{i}",
                    "labels": {"zone": chance.choice(["a", "b"])},
                }
            }
            for i in range(1 if self.is_tight else chance.choice([1, 1, 2, 3]))
        ]
        self.classes = {
            "any": {"metadata": {"name": "any"}, "spec": {}},
            "gpu": self.of_driver("gpu", DRIVERS[0]),
            "nic": self.of_driver("nic", DRIVERS[1]),
        }
        self.slices: list[Json] = []
        self.alone: set[tuple[str, str, str]] = set()
        self.shares: dict[tuple[str, str, str], list[Json]] = {}
        if self.is_tight:
            self.make_tight()
            return
        left = chance.randint(2, 6)
        while left > 0:
            count = chance.randint(1, left)
            left -= count
            self.pool(f"pool-{len(self.slices)}", count)
        self.slices.sort(key=lambda s: (s["spec"]["driver"], s["metadata"]["name"]))
        for slice_ in self.slices:
            for device in slice_["spec"].get("devices") or ():
                self.use(slice_["spec"], device)
        self.claims = []
        left = chance.choice([1, 1, 2, 2, 3, 3, 4, 5])  # requests
        while left > 0:
            count = chance.randint(1, min(left, 3))
            left -= count
            requests = [self.request(i) for i in range(count)]
            self.claims.append(self.claim_of(len(self.claims), requests))

    def make_tight(self) -> None:
        """Of the devices, only slot and tags may differ."""
        chance = self.chance
        capacity = {"memory": {"value": "10Gi"}}
        if chance.random() < 0.3:
            default = {"requestPolicy": {"default": "1"}}
            capacity["cores"] = {"value": "3"} | default
        odds = chance.choice([1, 1, 0.5, 0])  # that a device is shared
        spec: Json = {
            "driver": DRIVERS[0],
            "pool": {"name": "pool-0", "generation": 1, "resourceSliceCount": 1},
            "allNodes": True,
            "devices": [
                {
                    "name": f"dev-{i}",
                    "allowMultipleAllocations": chance.random() < odds,
                    "capacity": capacity,
                    "attributes": self.marks(),
                }
                for i in range(chance.randint(2, 3) + (not odds))
            ],
        }
        self.slices.append({"metadata": {"name": "pool-0-0"}, "spec": spec})
        asked = []
        for device in spec["devices"]:
            parts = chance.choice([["10Gi"], ["5Gi", "5Gi"], ["7Gi", "3Gi"], ["3Gi", "5Gi", "2Gi"]])
            asked += parts if device["allowMultipleAllocations"] else parts[:1]
        chance.shuffle(asked)
        del asked[6:]
        if chance.random() < 0.2:
            asked[0] = "8Gi"
        self.claims = []
        while asked:
            count = chance.randint(1, len(asked))
            requests = [self.part(i, memory) for i, memory in enumerate(asked[:count])]
            del asked[:count]
            self.claims.append(self.claim_of(len(self.claims), requests))

    def part(self, number: int, memory: str) -> Json:
        """A request for a part of any device."""
        asked = {"memory": memory}
        if self.chance.random() < 0.2:
            asked["cores"] = "1"
        one = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
        return {"name": f"req-{number}", "exactly": one | {"capacity": {"requests": asked}}}

    def marks(self) -> Json:
        """Attributes that constraints are about: values that may look alike, lists of values."""
        chance = self.chance
        marks: Json = {"slot": chance.choice([{"int": 1}, {"int": 1}, {"int": 2}, {"bool": True}])}
        if self.has_lists and chance.random() < 0.8:
            tags = chance.sample(["x", "y", "z"], chance.randint(1, 2))
            marks["tags"] = chance.choice([{"strings": tags}, {"string": tags[0]}])
        return marks

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
        counters = chance.random() < 0.3
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
            sets = [
                {"name": "set", "counters": {"memory": {"value": "40Gi"}, "cores": {"value": "4"}}},
                {"name": "links", "counters": {"links": {"value": "2"}}},
            ]
            slices.append(
                {k: v for k, v in spec.items() if k != "devices"} | {"sharedCounters": sets}
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
        device: Json = {"name": f"dev-{number}", "attributes": attributes | self.marks()}
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
            if chance.random() < 0.3:
                device["capacity"]["cores"] = {"value": chance.choice(["1", "1.5", "4"])}
        elif chance.random() < 0.3:
            device["allowMultipleAllocations"] = True
        if counters:
            device["consumesCounters"] = self.takes()
        if chance.random() < 0.15:
            device["taints"] = [self.taint() for _ in range(chance.choice([1, 1, 2]))]
        if says_where:
            node = chance.choice(self.nodes)["metadata"]["name"]
            device |= chance.choice(
                [
                    {"allNodes": True},
                    {"nodeName": node},
                    {"nodeSelector": _zone("a")},
                    {"nodeSelector": _zone("b")},
                ]
            )
        return device

    def takes(self) -> list[Json]:
        """What it takes of its pool's counters, of one set or both."""
        chance = self.chance
        amounts = {"memory": ["10Gi", "20Gi", "40Gi"], "cores": ["1", "2500m"]}
        names = chance.choice([["memory"], ["memory"], ["memory", "cores"], ["cores"], []])
        take = {name: {"value": chance.choice(amounts[name])} for name in names}
        found = [{"counterSet": "set", "counters": take}] if take else []
        if not take or chance.random() < 0.3:
            found.append({"counterSet": "links", "counters": {"links": {"value": "1"}}})
        return found

    def taint(self) -> Json:
        chance = self.chance
        taint = {
            "key": chance.choice(TAINTS),
            "effect": chance.choice(["NoSchedule", "NoExecute", "None"]),
        }
        return taint | chance.choice([{}, {"value": "very"}])

    def toleration(self) -> Json:
        """By key, by value, by effect, or of all that there is."""
        chance = self.chance
        by = chance.choice(["exists", "exists", "value", "all"])
        effect = chance.choice([{}, {}, {"effect": "NoSchedule"}, {"effect": "NoExecute"}])
        if by == "all":
            return {"operator": "Exists"} | effect
        found = {"key": chance.choice((*TAINTS, TAINTS[0])), "operator": "Exists"}
        if by == "value":
            found |= {"operator": "Equal"} | chance.choice([{}, {"value": "very"}])
        return found | effect

    def use(self, spec: Json, device: Json) -> None:
        chance = self.chance
        id = (spec["driver"], spec["pool"]["name"], device["name"])
        if chance.random() > (0.35 if "consumesCounters" in device else 0.2):
            return
        if not device.get("allowMultipleAllocations"):
            self.alone.add(id)
            return
        amounts = {"memory": ["2Gi", "5Gi"], "cores": ["500m", "1"]}
        taken = {name: chance.choice(amounts[name]) for name in device.get("capacity") or {}}
        self.shares[id] = [taken for _ in range(chance.randint(1, 2))]

    def claim_of(self, number: int, requests: list[Json]) -> Json:
        """With constraints, of all requests or of some."""
        chance = self.chance
        devices: Json = {"requests": requests}
        count = chance.choice([0, 0, 0, 0, 0, 0, 1, 1, 2])
        if count:
            devices["constraints"] = [self.constraint(requests) for _ in range(count)]
        return {
            "metadata": {"name": f"claim-{number}", "namespace": "default", "uid": f"u{number}"},
            "spec": {"devices": devices},
        }

    def constraint(self, requests: list[Json]) -> Json:
        chance = self.chance
        key = chance.choice(KEYS)
        if self.is_tight or chance.random() < 0.3:
            key = TAGS if self.has_lists and chance.random() < 0.5 else SLOT
        elif "/" not in key:
            key = f"{chance.choice(DRIVERS)}/{key}"
        constraint: Json = {chance.choice(["matchAttribute", "distinctAttribute"]): key}
        if chance.random() < 0.5:
            names = [request["name"] for request in requests]
            for request in requests:
                parts = request.get("firstAvailable") or ()
                names += [f"{request['name']}/{part['name']}" for part in parts]
            count = min(chance.randint(1, 3), len(names))
            constraint["requests"] = chance.sample(names, count)
        return constraint

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
        asked: Json = {"deviceClassName": chance.choice(["any", "any", "gpu", "nic"])}
        is_admin = may_be_admin and chance.random() < 0.15
        if chance.random() < (0.4 if is_admin else 0.15):
            asked["allocationMode"] = "All"
        else:
            asked |= {"allocationMode": "ExactCount", "count": chance.choice([1, 1, 1, 1, 2, 3])}
        asked |= self.amounts(["1Gi", "3Gi", "8Gi"], ["300m", "1"], 0.3)
        if chance.random() < 0.3:
            asked["tolerations"] = [self.toleration() for _ in range(chance.choice([1, 1, 2]))]
        if chance.random() < 0.15:
            own = f'["{chance.choice(DRIVERS)}"]'
            names = {"attributes": f"device.attributes{own}", "capacity": f"device.capacity{own}"}
            expression = chance.choice(CHOICES).format(**names)
            asked["selectors"] = [{"cel": {"expression": expression}}]
        if is_admin:
            asked["adminAccess"] = True
        return asked

    def amounts(self, memory: list[str], cores: list[str], odds: float = 0.9) -> Json:
        """Of each capacity, an amount that is asked for, or not."""
        chance = self.chance
        asked = {}
        if chance.random() < odds:
            asked["memory"] = chance.choice(memory)
        if chance.random() < odds / 3:
            asked["cores"] = chance.choice(cores)
        return {"capacity": {"requests": asked}} if asked else {}


def _zone(zone: str) -> Json:
    expression = {"key": "zone", "operator": "In", "values": [zone]}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
