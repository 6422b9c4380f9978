"""Generates a warm pool for the run of a seed: users, image pulls of nodes, placeholders.

The other load of the run goes on beside it.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from stower.model.kinds import Node, Pod, WarmPool
from stower.sim.arrivals import daily
from stower.sim.autoscaler import NodeGroup
from stower.sim.script import (
    AddAutoscaler,
    AddNode,
    AddPool,
    AddUser,
    AnyHappening,
    Script,
    SetImages,
)

Json = dict[str, Any]

IMAGE: Final = "hub.example.com/user:1"
USER: Final = {"component": "singleuser-server"}
PLACEHOLDER: Final = {"component": "user-placeholder"}
OTHER_USER: Final = {"component": "other-server"}
SHARE_WITH_AUTOSCALER: Final = 0.5
SHARE_WITH_TWO_POOLS: Final = 0.3  # on the same nodes
LABEL: Final = "example.com/warm"
PROFILE: Final[Json] = {"pluginConfig": [{"name": "WarmCapacity", "args": {"nodeLabels": [LABEL]}}]}
GROUP: Final = NodeGroup(
    "scaled",
    {"cpu": "8", "memory": "16Gi", "pods": "20"},
    max=4,
    boot_seconds=(20, 60),
    pull_seconds=(0, 60),
)


def has_pools(script: Script) -> bool:
    """Whether there is a warm pool."""
    return any(isinstance(happening, AddPool) for happening in script.happenings)


def with_warmth(
    seed: int,
    happenings: Iterable[AnyHappening],
    active_ms: int,
    users: int | None = None,
    mean_ms: float = 0,
) -> list[AnyHappening]:
    """Returns all happenings, with a pool or two, their users, images on nodes, and in half of the
    seeds an autoscaler. `users`: how many, over the whole run, for `mean_ms` each; 4 to 40 in the
    first minutes unless it is given."""
    chance = random.Random(f"{seed}:warm")
    made: list[AnyHappening] = [*happenings]
    made.append(AddPool(0, _pool(chance, "pool", USER)))
    second = random.Random(f"{seed}:second pool")
    labels = [USER]
    if second.random() < SHARE_WITH_TWO_POOLS:
        made.append(AddPool(0, _pool(second, "pool-b", OTHER_USER)))
        labels.append(OTHER_USER)
    nodes = [one for one in made if isinstance(one, AddNode)]
    for node in nodes:
        pull = _draw_pull(node.node, node.at_ms, chance)
        made.append(msgspec.structs.replace(pull, at_ms=min(pull.at_ms, active_ms)))
    cpu = chance.choice(("100m", "250m", "500m"))
    if users is None:
        made += _draw_users(chance, cpu, active_ms, labels)
    else:
        for i, at_s in enumerate(daily(users, active_ms / 1000, chance)):
            lasts_ms = 1 + int(chance.expovariate(1 / mean_ms))
            made.append(AddUser(int(at_s * 1000), _user(i, cpu, labels), lasts_ms))
    own = random.Random(f"{seed}:autoscaler")
    if own.random() < SHARE_WITH_AUTOSCALER:
        group = msgspec.structs.replace(GROUP, max=max(GROUP.max, len(nodes) // 20))
        made.append(AddAutoscaler(0, (group,), (IMAGE,)))
    return made


def _draw_users(
    chance: random.Random, cpu: str, active_ms: int, labels: Sequence[Mapping[str, str]]
) -> Iterator[AnyHappening]:
    """Yields users that arrive one by one, or in crowds. `labels`: those of each pool's users."""
    at_ms = 0
    for i in range(chance.randint(4, 20)):
        at_ms += chance.choice((0, 500, 20_000, 60_000))
        lasts_ms = chance.choice((0, 30_000, 120_000, 300_000))
        if at_ms < active_ms:
            yield AddUser(at_ms, _user(i, cpu, labels), lasts_ms)


def _draw_pull(node: Node, from_ms: int, chance: random.Random) -> SetImages:
    """At once, after a while, or late."""
    after_ms = chance.choice((0, 0, 20_000, 60_000, 300_000))
    return SetImages(from_ms + after_ms, node.metadata.name, (IMAGE,))


def _pool(chance: random.Random, name: str, users: Mapping[str, str]) -> WarmPool:
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
        "users": {"matchLabels": users},
        "placeholders": placeholders,
        "images": {"names": [IMAGE], "waitSeconds": chance.choice((30, 120, 300)),
                   "label": chance.choice(("", LABEL))},
        "repositioning": moves,
    }  # fmt: skip
    meta = {"name": name, "namespace": "default", "uid": name}
    return msgspec.convert({"metadata": meta, "spec": spec}, WarmPool)


def _user(number: int, cpu: str, labels: Sequence[Mapping[str, str]]) -> Pod:
    """One of the users of these pools, in turn."""
    name, of_pool = f"user-{number}", labels[number % len(labels)]
    container = {"name": "main", "image": IMAGE, "resources": {"requests": {"cpu": cpu}}}
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": of_pool},
        "spec": {"priority": 0, "containers": [container]},
        "status": {"phase": "Pending"},
    }
    return msgspec.convert(document, Pod)
