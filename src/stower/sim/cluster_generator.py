"""Generates clusters with node pools and workloads like those of real clusters, from one seed.

Output is JSON documents, so that a generated cluster is read in the same way as a real one.
"""

import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from stower.sim.arrivals import Lifetime, Process
from stower.sim.workload import ARRIVES, RUN

Json = dict[str, Any]

GIB: Final = 1024**3

# (name, share of nodes, cores, GiB, GPUs): what cloud providers sell as small, general, large, GPU.
POOLS: Final = (
    ("small", 0.30, 8, 32, 0),
    ("general", 0.45, 32, 128, 0),
    ("large", 0.15, 64, 512, 0),
    ("gpu", 0.10, 48, 384, 8),
)
ZONES: Final = ("zone-a", "zone-b", "zone-c")

# (name, share of pods, milli-CPU, MiB, GPUs, replicas of one template, image MiB): most pods of a
# cluster are small and of few templates, most of its capacity goes to few large ones.
APPS: Final = (
    ("web", 0.40, (100, 1000), (128, 1024), 0, 20, 180),
    ("api", 0.25, (250, 2000), (256, 4096), 0, 10, 320),
    ("batch", 0.20, (1000, 8000), (2048, 32768), 0, 15, 900),
    ("database", 0.05, (4000, 16000), (16384, 131072), 0, 3, 600),
    ("train", 0.06, (4000, 12000), (32768, 98304), 2, 4, 6000),
    ("notebook", 0.04, (500, 4000), (2048, 16384), 0, 25, 2400),
)
DATABASE_CLASS: Final[Json] = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "database"},
    "value": 1000,
}


def cluster(
    nodes: int, pods: int, seed: int = 0, course: "Course | None" = None
) -> Iterator[bytes]:
    """The documents of a cluster: nodes first, then pods in the order in which they come,
    with their PriorityClass before them; with a `course`, pods say when they come and for how long.

    An API server takes them as they are.
    """
    draw = random.Random(seed)
    classes = (DATABASE_CLASS,) if pods else ()
    made = _pods(pods, draw)
    if course is not None:
        made = _assign_times([*made], course, random.Random(f"{seed}:course"))
    for document in (*_nodes(nodes, draw), *classes, *made):
        yield msgspec.json.encode(document)


class Course(msgspec.Struct, frozen=True):
    """When pods come, within how many seconds, and how long they last."""

    process: Process
    until_s: float
    lifetime: Lifetime


def _assign_times(pods: list[Json], course: Course, chance: random.Random) -> Iterator[Json]:
    """The pods with their times, templates mixed."""
    chance.shuffle(pods)
    times = course.process(len(pods), course.until_s, chance)
    for pod, at_s in zip(pods, times, strict=True):
        lasts_s = course.lifetime(chance)
        annotations = {ARRIVES: f"{at_s:.3f}"}
        if lasts_s is not None:
            annotations[RUN] = f"{max(lasts_s, 0.001):.3f}"
        pod["metadata"]["annotations"] = annotations
        yield pod


def _nodes(count: int, draw: random.Random) -> Iterator[Json]:
    names = [pool[0] for pool in POOLS]
    shares = [pool[1] for pool in POOLS]
    chosen = sorted(draw.choices(names, shares, k=count), key=names.index)
    for i, pool_name in enumerate(chosen):
        _, _, cores, memory_gib, gpus = POOLS[names.index(pool_name)]
        room = {"cpu": str(cores), "memory": f"{memory_gib}Gi", "pods": "110"}
        taints = []
        if gpus:
            room["nvidia.com/gpu"] = str(gpus)
            taints.append({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"})
        name = f"{pool_name}-{i:05}"
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": f"node-{i:05}",
                "labels": {
                    "kubernetes.io/hostname": name,
                    "topology.kubernetes.io/zone": ZONES[i % len(ZONES)],
                    "node.kubernetes.io/instance-type": pool_name,
                },
            },
            "spec": {"taints": taints} if taints else {},
            "status": {"capacity": room, "allocatable": room},
        }


def _pods(count: int, draw: random.Random) -> Iterator[Json]:
    made = template = 0
    while made < count:
        app = draw.choices(APPS, [a[1] for a in APPS])[0]
        name, _, cpu, memory, gpus, replicas, _ = app
        template += 1
        spec = _template(name, cpu, memory, gpus, template, draw)
        for _ in range(min(draw.randint(1, 2 * replicas), count - made)):
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{name}-{template}-{made:06}",
                    "namespace": f"team-{template % 7}",
                    "uid": f"pod-{made:06}",
                    "labels": {"app": name, "template": f"{name}-{template}"},
                },
                "spec": spec,
            }
            made += 1


def _template(
    name: str, cpu: tuple[int, int], memory: tuple[int, int], gpus: int, number: int,
    draw: random.Random,
) -> Json:  # fmt: skip
    # Requests are round numbers, as people write them.
    milli = draw.randrange(cpu[0], cpu[1] + 1, 50)
    mebi = draw.randrange(memory[0], memory[1] + 1, 64)
    requests = {"cpu": f"{milli}m", "memory": f"{mebi}Mi"}
    spec: Json = {
        "containers": [
            {
                "name": "main",
                "image": f"registry.example/{name}:{number % 5}",
                "resources": {"requests": requests},
            }
        ],
    }
    if gpus:
        devices = {"nvidia.com/gpu": str(draw.randint(1, 2 * gpus))}
        requests |= devices
        spec["containers"][0]["resources"]["limits"] = devices
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    if name == "database":
        spec["priorityClassName"] = DATABASE_CLASS["metadata"]["name"]
        spec["priority"] = DATABASE_CLASS["value"]
        spec["nodeSelector"] = {"node.kubernetes.io/instance-type": "large"}
    if name == "web" and draw.random() < 0.3:
        spec["affinity"] = {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 50,
                        "preference": {
                            "matchExpressions": [
                                {
                                    "key": "topology.kubernetes.io/zone",
                                    "operator": "In",
                                    "values": [draw.choice(ZONES)],
                                }
                            ]
                        },
                    }
                ]
            }
        }
    return spec
