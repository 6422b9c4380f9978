"""Generates pod groups for the run of a seed: gangs, some in trees of composite groups.

Drawn with a generator of its own, so that older seeds keep their scripts. Each chosen template is
one PodGroup; some groups share a composite group, in at most two levels; some must be in one zone
or on one node. All groups of a tree have one priority.
"""

import random
from typing import Any, Final

import msgspec

from stower.model.kinds import CompositePodGroup, PodGroup
from stower.sim.arrivals import daily
from stower.sim.script import ZONE, AddComposite, AddGroup, AddPod, AnyHappening, Template

Json = dict[str, Any]

HOST: Final = "kubernetes.io/hostname"
SHARE_OF_TEMPLATES: Final = 0.5
JOB_PODS: Final = (2, 8)
KEYS: Final = ("", "", ZONE, ZONE, HOST)


def with_groups(
    seed: int, templates: list[Template], happenings: list[AnyHappening], active_ms: int
) -> tuple[list[Template], list[AnyHappening]]:
    """The templates, some of which are groups, and all happenings, these included."""
    chance = random.Random(f"{seed}:groups")
    chosen = [t for t in templates if chance.random() < SHARE_OF_TEMPLATES]
    trees: list[list[Template]] = []
    while chosen:
        size = chance.choice((1, 1, 2, 3))
        trees.append(chosen[:size])
        chosen = chosen[size:]
    made: list[AnyHappening] = []
    priorities: dict[str, int] = {}
    for i, leaves in enumerate(trees):
        priority = chance.choice((0, 0, 10, 100))
        parents = [""]
        if len(leaves) > 1 or chance.random() < 0.2:
            levels = chance.choice((1, 1, 2))
            parents = [f"tree-{i}-{level}" for level in range(levels)]
            for level, name in enumerate(parents):
                parent = parents[level - 1] if level else ""
                least = min(chance.randint(1, len(leaves)), 1 if level < levels - 1 else 9)
                made.append(_composite(name, parent, least, priority, chance, active_ms))
        for leaf in leaves:
            priorities[leaf.name] = priority
            count = sum(isinstance(h, AddPod) and h.template == leaf.name for h in happenings)
            least = chance.randint(1, max(count, 1))
            made.append(_group(leaf.name, parents[-1], least, priority, chance, active_ms))
    grouped = [
        msgspec.structs.replace(t, spec={**t.spec, "schedulingGroup": {"podGroupName": t.name}})
        if t.name in priorities
        else t
        for t in templates
    ]
    changed = [
        msgspec.structs.replace(h, priority=priorities.get(h.template, h.priority))
        if isinstance(h, AddPod)
        else h
        for h in happenings
    ]
    return grouped, [*changed, *made]


def draw_jobs(
    seed: int, models: list[Template], pods: int, mean_ms: float, active_ms: int
) -> tuple[list[Template], list[AnyHappening]]:
    """Returns templates and happenings of jobs with so many pods in all. A job is one or two pod
    groups under a composite group; its pods are like those of one of the models, arrive at once
    and end."""
    chance = random.Random(f"{seed}:jobs")
    templates: list[Template] = []
    happenings: list[AnyHappening] = []
    sizes: list[int] = []
    while sum(sizes) < pods:
        sizes.append(min(chance.randint(*JOB_PODS), pods - sum(sizes)))
    for i, at_s in enumerate(daily(len(sizes), active_ms / 1000, chance)):
        at_ms, lasts_ms = int(at_s * 1000), 1 + int(chance.expovariate(1 / mean_ms))
        priority = chance.choice((0, 0, 10, 100))
        counts = [sizes[i]] if chance.random() < 0.6 else [sizes[i] // 2, sizes[i] - sizes[i] // 2]
        counts = [count for count in counts if count]
        parent = f"tree-job-{i}" if len(counts) > 1 else ""
        if parent:
            made = _composite(parent, "", len(counts), priority, chance, active_ms)
            happenings.append(msgspec.structs.replace(made, at_ms=at_ms))
        for j, count in enumerate(counts):
            name, model = f"job-{i}-{j}", chance.choice(models)
            group = _group(name, parent, chance.randint(1, count), priority, chance, active_ms)
            happenings.append(msgspec.structs.replace(group, at_ms=at_ms))
            spec = {**model.spec, "schedulingGroup": {"podGroupName": name}}
            templates.append(msgspec.structs.replace(model, name=name, spec=spec))
            happenings += [AddPod(at_ms, name, priority, lasts_ms)] * count
    return templates, happenings


def _meta(name: str, kind: str) -> Json:
    return {"name": name, "namespace": "default", "uid": f"{kind}/{name}"}


def _spec(parent: str, priority: int, chance: random.Random) -> Json:
    key = chance.choice(KEYS)
    constraints = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    above = {"parentCompositePodGroupName": parent} if parent else {}
    return {**constraints, **above, "priority": priority}


def _draw_time_ms(chance: random.Random, active_ms: int) -> int:
    """Before its pods, or at any time."""
    return 0 if chance.random() < 0.7 else chance.randrange(active_ms // 2)


def _group(
    name: str, parent: str, least: int, priority: int, chance: random.Random, active_ms: int
) -> AddGroup:
    policy: Json = {"gang": {"minCount": least}} if chance.random() < 0.8 else {"basic": {}}
    spec = {**_spec(parent, priority, chance), "schedulingPolicy": policy}
    document = {"metadata": _meta(name, "group"), "spec": spec}
    return AddGroup(_draw_time_ms(chance, active_ms), msgspec.convert(document, PodGroup))


def _composite(
    name: str, parent: str, least: int, priority: int, chance: random.Random, active_ms: int
) -> AddComposite:
    policy = {"gang": {"minGroupCount": least}}
    spec = {**_spec(parent, priority, chance), "schedulingPolicy": policy}
    document = {"metadata": _meta(name, "composite"), "spec": spec}
    return AddComposite(
        _draw_time_ms(chance, active_ms), msgspec.convert(document, CompositePodGroup)
    )
