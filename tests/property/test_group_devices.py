"""Gangs whose pods claim devices: they are placed exactly where trying everything finds a way."""

import random
from functools import cache
from typing import Any

import pytest

from stower.assembly import build_engine
from stower.framework.events import Listed, WriteOk
from stower.framework.writes import PatchObject, PatchPodStatus, Solve
from tests.builders import make_node
from tests.device_builders import (
    GPU,
    claiming,
    device,
    device_class,
    device_slice,
    request,
    resource_claim,
)
from tests.group_builders import make_group

Node = tuple[int, int]  # devices of model x, and of model y
Ask = tuple[str, int]  # a model or any, and how many


def exists(nodes: tuple[Node, ...], asks: tuple[Ask, ...]) -> bool:
    """Every way to deal the pods out to the nodes."""

    @cache
    def rest(i: int, taken: tuple[tuple[int, int, int], ...]) -> bool:
        if i == len(asks):
            return True
        model, count = asks[i]
        for k, (x, y) in enumerate(nodes):
            used = [*taken[k]]
            used["xyany".index(model[0])] += count
            if used[0] <= x and used[1] <= y and sum(used) <= x + y:
                if rest(i + 1, (*taken[:k], (used[0], used[1], used[2]), *taken[k + 1 :])):
                    return True
        return False

    return rest(0, ((0, 0, 0),) * len(nodes))


def answer(nodes: tuple[Node, ...], asks: tuple[Ask, ...], chance: random.Random) -> Any:
    """Whether all claims are allocated; what the pods are told, where not."""
    objects: list[Any] = [device_class("any")]
    for model in "xy":
        expression = f'device.attributes["{GPU}"].model == "{model}"'
        objects.append(device_class(model, expression))
    for i, (x, y) in enumerate(nodes):
        models = ["x"] * x + ["y"] * y
        chance.shuffle(models)
        found = [
            device(f"g{k}", attributes={"model": {"string": model}})
            for k, model in enumerate(models)
        ]
        objects += [make_node(f"n{i}", cpu="100", pods="100"), device_slice(f"n{i}", *found)]
    objects.append(make_group("g", len(asks)))
    member = {"schedulingGroup": {"podGroupName": "g"}}
    for i, (model, count) in enumerate(asks):
        objects.append(resource_claim(f"c{i}", request(class_name=model, count=count)))
        objects.append(claiming(f"p{i}", f"c{i}", cpu="1", **member))
    engine = build_engine()
    writes = engine.step(Listed(tuple(objects)), 0)
    for write in writes:  # those that come of it follow
        if isinstance(write, Solve):
            writes += engine.step(WriteOk(write.id), 0)
    claims = {w.name for w in writes if isinstance(w, PatchObject) and w.name.startswith("c")}
    told = [w.condition for w in writes if isinstance(w, PatchPodStatus)]
    return len(claims) == len(asks), [c.message for c in told if c is not None][:1]


def drawn(seed: int) -> tuple[tuple[Node, ...], tuple[Ask, ...], random.Random]:
    """As many pods as there may just be devices for."""
    chance = random.Random(seed)
    nodes = tuple(
        (chance.randint(0, 4), chance.randint(0, 4)) for _ in range(chance.choice((2, 3)))
    )
    models = chance.choice((("any",), ("x", "y", "any")))
    total, spare = sum(map(sum, nodes)), chance.choice((0, 0, 1))
    asks: list[Ask] = [(chance.choice(models), 1)]
    while sum(count for _, count in asks) < total - spare and len(asks) < 9:
        asks.append((chance.choice(models), chance.choice((1, 1, 2, 3))))
    return nodes, tuple(asks), chance


def check(seed: int) -> None:
    nodes, asks, chance = drawn(seed)
    found, told = answer(nodes, asks, chance)
    assert (exists(nodes, asks), []) == (found, told if found else []), (nodes, asks, told)
    assert found or "gave up" not in told[0]


@pytest.mark.behaviour("S3.13")
@pytest.mark.parametrize("first", range(0, 150, 50))
def test_a_gang_gets_its_devices_exactly_where_it_can(first: int) -> None:
    for seed in range(first, first + 50):
        check(seed)


@pytest.mark.more
def test_a_gang_gets_its_devices_exactly_where_it_can_more() -> None:
    for seed in range(150, 2_000):
        check(seed)
