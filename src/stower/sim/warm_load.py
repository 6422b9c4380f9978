"""Generates a warm pool for the run of a seed: users, image pulls of nodes, placeholders.

Drawn with a generator of its own, so that older seeds keep their scripts. The other load of the run
goes on beside it.
"""

import random
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from stower.model.kinds import Node, Pod, WarmPool
from stower.sim.script import AddNode, AddPool, AddUser, AnyHappening, Script, SetImages

Json = dict[str, Any]

IMAGE: Final = "hub.example.com/user:1"
USER: Final = {"component": "singleuser-server"}
PLACEHOLDER: Final = {"component": "user-placeholder"}
CONFIGURATION: Final[Json] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"pluginConfig": [{"name": "WarmCapacity", "args": {}}]}],
}


def has_pools(script: Script) -> bool:
    """Whether there is a warm pool."""
    return any(isinstance(happening, AddPool) for happening in script.happenings)


def with_warmth(
    seed: int, happenings: Iterable[AnyHappening], active_ms: int
) -> list[AnyHappening]:
    """All happenings, with a pool, its users, and images on nodes."""
    chance = random.Random(f"{seed}:warm")
    made: list[AnyHappening] = [*happenings]
    made.append(AddPool(0, _pool(chance)))
    for node in [one for one in made if isinstance(one, AddNode)]:
        made.append(_draw_pull(node.node, node.at_ms, chance))
    cpu = chance.choice(("100m", "250m", "500m"))
    at_ms = 0
    for i in range(chance.randint(4, 40)):
        # One by one, or in crowds.
        at_ms += chance.choice((0, 500, 20_000, 60_000))
        lasts_ms = chance.choice((0, 30_000, 120_000, 300_000))
        if at_ms < active_ms:
            made.append(AddUser(at_ms, _user(f"user-{i}", cpu), lasts_ms))
    return made


def _draw_pull(node: Node, from_ms: int, chance: random.Random) -> SetImages:
    """At once, after a while, or late."""
    after_ms = chance.choice((0, 0, 20_000, 60_000, 300_000))
    return SetImages(from_ms + after_ms, node.metadata.name, (IMAGE,))


def _pool(chance: random.Random) -> WarmPool:
    container = {"name": "pause", "image": "pause", "resources": {"requests": {"cpu": "250m"}}}
    template = {
        "metadata": {"labels": PLACEHOLDER},
        "spec": {"schedulerName": "default-scheduler", "priority": -10, "containers": [container]},
    }
    placeholders: Json = {"template": template, "replicas": chance.choice((1, 3, 6, 12))}
    if chance.random() < 0.5:
        placeholders["surge"] = {"holdSeconds": 30}
    if chance.random() < 0.2:
        placeholders["placement"] = "Spread"
    moves: Mapping[str, Any] = {
        "mode": chance.choice(("Drain", "Drain", "Drain", "Newest", "Lifetime")),
        "restSeconds": chance.choice((0, 60)),
        "lifetimeSeconds": 90,
    }
    spec = {
        "users": {"matchLabels": USER},
        "placeholders": placeholders,
        "images": {"names": [IMAGE], "waitSeconds": chance.choice((30, 120, 300)),
                   "label": chance.choice(("", "example.com/warm"))},
        "repositioning": moves,
    }  # fmt: skip
    meta = {"name": "pool", "namespace": "default", "uid": "pool"}
    return msgspec.convert({"metadata": meta, "spec": spec}, WarmPool)


def _user(name: str, cpu: str) -> Pod:
    container = {"name": "main", "image": IMAGE, "resources": {"requests": {"cpu": cpu}}}
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": USER},
        "spec": {"priority": 0, "containers": [container]},
        "status": {"phase": "Pending"},
    }
    return msgspec.convert(document, Pod)
