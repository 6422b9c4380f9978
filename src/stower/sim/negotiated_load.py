"""Generates negotiated devices for the run of a seed: drivers with unlisted devices, and claims.

Drawn with a generator of its own, so that older seeds keep their scripts. One to three drivers have
none to three devices on each node, or some that can be used on any node; pods have one or two
claims, of one or two drivers, of their own or shared; some claims are allocated immediately.
"""

import random
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from stower.model.kinds import Node, ResourceClaim, ResourceClass
from stower.model.kinds.resource_claim import ALLOCATION_MODE, IMMEDIATE
from stower.sim.resource_drivers import EVERYWHERE
from stower.sim.script import (
    ZONE,
    AddClaim,
    AddDriver,
    AddResourceClass,
    AnyHappening,
    DeleteClaim,
    DeletePod,
    Template,
)

Json = dict[str, Any]

SHARE_OF_TEMPLATES: Final = 0.4
SHARE_OF_LICENCES: Final = 0.2
DELETIONS_MAX: Final = 6


def with_negotiation(
    seed: int,
    nodes: Iterable[Node],
    templates: list[Template],
    active_ms: int,
    share: float = SHARE_OF_TEMPLATES,
    has_shared_claims: bool = True,
) -> tuple[list[Template], list[AnyHappening]]:
    """Returns the templates, some of which claim devices of drivers, and the happenings of these.
    `share`: of the templates without other claims; `has_shared_claims`: whether some claims are
    shared by all pods of a template."""
    chance = random.Random(f"{seed}:negotiation")
    happenings: list[AnyHappening] = []
    classes = [f"negotiated-{i}" for i in range(chance.randint(1, 3))]
    names = [node.metadata.name for node in nodes]
    for i, name in enumerate(classes):
        driver = f"{name}.sim.example.com"
        document: Json = {"metadata": {"name": name, "uid": name}, "driverName": driver}
        if chance.random() < 0.2:
            zone = {"key": ZONE, "operator": "In", "values": [f"zone-{i}"]}
            document["suitableNodes"] = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
        happenings.append(AddResourceClass(0, msgspec.convert(document, ResourceClass)))
        devices = {n: chance.choice((0, 1, 1, 2, 3)) for n in names}
        own = random.Random(f"{seed}:licences:{i}")
        if own.random() < SHARE_OF_LICENCES and has_shared_claims:
            devices = {EVERYWHERE: own.choice((1, 2, 4))}
        happenings.append(AddDriver(0, driver, devices))
    changed = []
    for i, template in enumerate(templates):
        is_taken = bool(template.spec.get("resourceClaims"))
        if is_taken or chance.random() >= share:
            changed.append(template)
            continue
        entries, claims = [], {}
        for j in range(chance.choice((1, 1, 2, 2, 2, 3))):
            spec = _make_claim_spec(chance.choice(classes), chance)
            if chance.random() < 0.15 and has_shared_claims:
                name = f"negotiated-{i}-{j}"
                happenings.append(AddClaim(0, _claim(name, spec, chance)))
                if chance.random() < 0.3:
                    happenings.append(DeleteClaim(chance.randrange(active_ms), name))
                entries.append({"name": f"d{j}", "resourceClaimName": name})
            else:
                entries.append({"name": f"d{j}", "resourceClaimTemplateName": f"d{j}"})
                claims[f"d{j}"] = spec
        spec = {**template.spec, "resourceClaims": entries}
        changed.append(msgspec.structs.replace(template, spec=spec, claims=claims))
    for _ in range(chance.randint(0, DELETIONS_MAX)):
        pod = f"{chance.choice(templates).name}-{chance.randint(1, 30)}"
        happenings.append(DeletePod(chance.randrange(active_ms), pod))
    return changed, happenings


def _make_claim_spec(class_name: str, chance: random.Random) -> Json:
    count = chance.choice((1, 1, 1, 2))
    exactly = {"deviceClassName": class_name, "count": count}
    return {"devices": {"requests": [{"name": "device", "exactly": exactly}]}}


def _claim(name: str, spec: Json, chance: random.Random) -> ResourceClaim:
    meta: Json = {"name": name, "namespace": "default", "uid": name}
    if chance.random() < 0.3:
        meta["annotations"] = {ALLOCATION_MODE: IMMEDIATE}
    return msgspec.convert({"metadata": meta, "spec": spec}, ResourceClaim)
