"""Generates pods of a user who makes up names: of resources, labels, topology keys, images.

No other object has such a name. A pod comes and is deleted within seconds, placed or not, so that
at the end of a run nothing is left of them (law `leaks`).
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from stower.model.kinds import Pod
from stower.sim.script import AddUser, AnyHappening, DeletePod

Json = dict[str, Any]

SHARE_OF_SEEDS: Final = 0.4
NAMES: Final = 40  # of a pod, of one kind
IMAGES: Final = 10
Draw = Callable[[str], Iterator[str]]


def draw_made_up(seed: int, active_ms: int) -> list[AnyHappening]:
    """Returns the pods of the seed and their deletions, nothing for most seeds."""
    chance = random.Random(f"{seed}:made-up")
    if chance.random() >= SHARE_OF_SEEDS:
        return []
    happenings: list[AnyHappening] = []
    for i in range(chance.randint(20, 40)):
        pod = _pod(f"made-up-{i}", chance)
        at_ms = chance.randrange(active_ms * 9 // 10)
        deleted_ms = at_ms + chance.randint(1, active_ms // 10)
        happenings += [AddUser(at_ms, pod), DeletePod(deleted_ms, pod.metadata.name)]
    return happenings


def _pod(name: str, chance: random.Random) -> Pod:
    def draw(what: str) -> Iterator[str]:
        return (f"{what}-{chance.randrange(10**9)}.example.com/x" for _ in range(NAMES))

    meta: Json = {"name": name, "namespace": "default", "uid": name}
    images = [image.replace("/", ":", 1) for image in draw("image")][:IMAGES]
    containers: list[Json] = [
        {"name": f"c{i}", "image": image, "resources": {"requests": {"cpu": "10m"}}}
        for i, image in enumerate(images)
    ]
    spec: Json = {"containers": containers, "priority": 0}
    match chance.randrange(7):
        case 0:
            containers[0]["resources"]["requests"] |= dict.fromkeys(draw("resource"), "1")
        case 1:
            spec["nodeSelector"] = dict.fromkeys(draw("label"), "1")
        case 2:
            term = chance.choice((_term, _term_of_all))
            terms = [term(key) for key in draw("own")]
            spec["affinity"] = {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            }
        case 3:
            weighted = [{"weight": 1, "podAffinityTerm": _term(key)} for key in draw("liked")]
            spec["affinity"] = {
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
            }
        case 4:
            when = chance.choice(("ScheduleAnyway", "DoNotSchedule"))
            spec["topologySpreadConstraints"] = [
                {**_term(key), "maxSkew": 1, "whenUnsatisfiable": when} for key in draw("spread")
            ]
        case 5:
            meta["labels"] = dict.fromkeys(draw("mark"), "1")
            spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in draw("taint")]
        case 6:
            spec["volumes"] = [
                {"name": f"v{i}", "persistentVolumeClaim": {"claimName": key.partition(".")[0]}}
                for i, key in enumerate(draw("volume"))
            ]
    document = {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}
    return msgspec.convert(document, Pod)


def _term_of_all(key: str) -> Json:
    """A term whose selector others have, too, and whose topology key nobody has."""
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"made-up": "1"}}}


def _term(key: str) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {key: "1"}}}
