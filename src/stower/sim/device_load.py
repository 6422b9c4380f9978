"""Generates devices, claims and device taints for the run of a seed.

Drawn with a generator of its own, so that older seeds keep their scripts. Most nodes have one or
two exclusive GPUs, one GPU shared by capacity, and one offered as a whole or in partitions; a
network card is reachable from all nodes. Devices are tainted now and then.
"""

import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from stower.model.kinds import DeviceClass, Node, ResourceClaim, ResourceSlice
from stower.sim.script import (
    AddClaim,
    AddDeviceClass,
    AddDevices,
    AnyHappening,
    DeletePod,
    Template,
)

Json = dict[str, Any]

DRIVER: Final = "sim.example.com"
CLASS: Final = "sim-device"
EXTENDED: Final = "sim.example.com/gpu"
SHARE_OF_TEMPLATES: Final = 0.35
SHARE_IF_LARGE: Final = 0.1
DELETIONS_MAX: Final = 6
NODES_PER_CARD: Final = 10


def with_devices(
    seed: int,
    nodes: list[Node],
    templates: list[Template],
    active_ms: int,
    is_large: bool = False,
) -> tuple[list[Template], list[AnyHappening]]:
    """Returns the templates, some of which claim devices, and the happenings of devices. Half of
    all seeds have no devices, unless `is_large`: then there is a network card for each
    NODES_PER_CARD nodes, and no claim that all pods of a template share."""
    chance = random.Random(f"{seed}:devices")
    if chance.random() < 0.5 and not is_large:
        return templates, []
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    kind = {"metadata": {"name": CLASS, "uid": CLASS}, "spec": {"selectors": [selector]}}
    whole = {"cel": {"expression": f'"memory" in device.capacity["{DRIVER}"]'}}
    gpus = {"metadata": {"name": "gpus", "uid": "gpus"},
            "spec": {"selectors": [whole], "extendedResourceName": EXTENDED}}  # fmt: skip
    happenings: list[AnyHappening] = [
        AddDeviceClass(0, msgspec.convert(each, DeviceClass)) for each in (kind, gpus)
    ]
    for node in nodes:
        if chance.random() < 0.8:
            happenings += _slices(node.metadata.name, chance, active_ms)
    cards = 1 + len(nodes) // NODES_PER_CARD if is_large else 1
    happenings.append(AddDevices(0, _network(cards)))
    share = SHARE_IF_LARGE if is_large else SHARE_OF_TEMPLATES
    changed = []
    for i, template in enumerate(templates):
        if chance.random() >= share:
            changed.append(template)
        elif chance.random() < 0.25:
            changed.append(_use_extended_resource(template))
        elif chance.random() < 0.2 and not is_large:
            name = f"together-{i}"
            happenings.append(AddClaim(0, _claim(name, draw_claim_spec(chance))))
            entry = {"name": "device", "resourceClaimName": name}
            changed.append(_add_claim(template, entry))
        else:
            entry = {"name": "device", "resourceClaimTemplateName": "device"}
            claiming = _add_claim(template, entry)
            changed.append(msgspec.structs.replace(claiming, claim=draw_claim_spec(chance)))
    for _ in range(chance.randint(0, DELETIONS_MAX)):
        pod = f"{chance.choice(templates).name}-{chance.randint(1, 30)}"
        happenings.append(DeletePod(chance.randrange(active_ms), pod))
    return changed, happenings


def _add_claim(template: Template, entry: Json) -> Template:
    return msgspec.structs.replace(template, spec={**template.spec, "resourceClaims": [entry]})


def _use_extended_resource(template: Template) -> Template:
    """What asks for a GPU as for any other resource of a node."""
    (container,) = template.spec["containers"]
    requests = {**container["resources"]["requests"], EXTENDED: "1"}
    resources = {"requests": requests, "limits": {EXTENDED: "1"}}
    containers = [{**container, "resources": resources}]
    return msgspec.structs.replace(template, spec={**template.spec, "containers": containers})


def _slices(node: str, chance: random.Random, active_ms: int) -> Iterator[AddDevices]:
    """What the driver of a node publishes, in two slices; and later perhaps a taint."""
    whole, shared = chance.randint(1, 2), chance.random() < 0.7
    devices: list[Json] = [
        {"name": f"gpu-{i}", "attributes": {"model": {"string": chance.choice(("old", "new"))}},
         "capacity": {"memory": {"value": "16Gi"}}}
        for i in range(whole)
    ]  # fmt: skip
    if shared:
        policy = {"default": "250", "validRange": {"min": "50", "max": "1k", "step": "50"}}
        devices.append(
            {"name": "shared", "allowMultipleAllocations": True,
             "attributes": {"model": {"string": "shared"}},
             "capacity": {"milli": {"value": "1k", "requestPolicy": policy}}}
        )  # fmt: skip
    parts = {"whole": 8, "left": 5, "right": 3}
    devices += (
        {"name": name, "attributes": {"model": {"string": "part"}},
         "allowMultipleAllocations": name == "left",
         "capacity": {"milli": {"value": "1k"}},
         "consumesCounters": [
             {"counterSet": "card", "counters": {"cores": {"value": str(cores)}}}]}
        for name, cores in parts.items()
    )  # fmt: skip
    counters = [{"name": "card", "counters": {"cores": {"value": "8"}}}]
    yield AddDevices(0, _slice(node, "counters", 1, {"sharedCounters": counters}))
    yield AddDevices(0, _slice(node, "devices", 1, {"devices": devices}))
    if chance.random() < 0.3:
        taint = {"key": "sick", "effect": chance.choice(("None", "NoSchedule"))}
        chance.choice(devices)["taints"] = [taint]
        at_ms = chance.randrange(active_ms)
        yield AddDevices(at_ms, _slice(node, "counters", 2, {"sharedCounters": counters}))
        yield AddDevices(at_ms + 1, _slice(node, "devices", 2, {"devices": devices}))


def _slice(node: str, part: str, generation: int, more: Json) -> ResourceSlice:
    pool = {"name": node, "generation": generation, "resourceSliceCount": 2}
    name = f"{node}-{part}"
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, **more}
    return msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": spec}, ResourceSlice)


def _network(cards: int) -> ResourceSlice:
    policy = {"default": "1M", "validRange": {"min": "1M"}}
    card = {"allowMultipleAllocations": True, "attributes": {"model": {"string": "network"}},
            "capacity": {"bandwidth": {"value": "100M", "requestPolicy": policy}}}  # fmt: skip
    devices = [{"name": f"card-{i}" if i else "card", **card} for i in range(cards)]
    pool = {"name": "network", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "allNodes": True, "pool": pool, "devices": devices}
    meta = {"name": "network", "uid": "network"}
    return msgspec.convert({"metadata": meta, "spec": spec}, ResourceSlice)


def _claim(name: str, spec: Json) -> ResourceClaim:
    meta = {"name": name, "namespace": "default", "uid": name}
    return msgspec.convert({"metadata": meta, "spec": spec}, ResourceClaim)


def _of(model: str, **more: Any) -> Json:
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].model == "{model}"'}}
    return {"deviceClassName": CLASS, "selectors": [selector], **more}


def draw_claim_spec(chance: random.Random) -> Json:
    """What a claim asks for."""
    milli = {"requests": {"milli": str(chance.choice((100, 130, 500, 900)))}}
    old, new = ({"name": "device", "exactly": _of(model)} for model in ("old", "new"))
    requests: list[Json]
    constraints: list[Json] = []
    match chance.randrange(8):
        case 0 | 1:
            requests = [chance.choice((old, new))]
        case 2:
            either = {"deviceClassName": CLASS, "count": 2, "selectors": [
                {"cel": {"expression": f'"memory" in device.capacity["{DRIVER}"]'}}]}  # fmt: skip
            requests = [{"name": "device", "exactly": either}]
            kind = chance.choice(("matchAttribute", "distinctAttribute"))
            constraints = [{"requests": ["device"], kind: f"{DRIVER}/model"}]
        case 3 | 4:
            requests = [{"name": "device", "exactly": _of("shared", capacity=milli)}]
        case 5:
            whole = {"name": "whole", **_of("new")}
            share = {"name": "share", **_of("shared", capacity=milli)}
            requests = [{"name": "device", "firstAvailable": [whole, share]}]
        case 6:
            requests = [{"name": "device", "exactly": _of("part")}]
        case _:
            asked = {"requests": {"bandwidth": f"{chance.choice((5, 20, 60))}M"}}
            requests = [{"name": "device", "exactly": _of("network", capacity=asked)}]
    return {"devices": {"requests": requests, "constraints": constraints}}
