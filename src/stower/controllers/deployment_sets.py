"""Reads and builds the ReplicaSets of a Deployment: revisions, sizes, and shares when it scales.

Source: pkg/controller/deployment/util/deployment_util.go.
"""

from typing import Final

from stower.controllers.objects import Object, age, name_of, namespace_of
from stower.controllers.pods import (
    TEMPLATE_HASH,
    absolute,
    hash_of,
    min_ready_s,
    reference_to,
    replicas,
)

REVISION: Final = "deployment.kubernetes.io/revision"
HISTORY: Final = "deployment.kubernetes.io/revision-history"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"
NOT_COPIED: Final = frozenset((
    "kubectl.kubernetes.io/last-applied-configuration", REVISION, HISTORY, DESIRED, MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
))  # fmt: skip
HISTORY_LENGTH_MAX: Final = 2_000  # characters (maxRevHistoryLengthInChars)
NAME_LENGTH_MAX: Final = 253
NUMBER_MAX: Final = 2**63 - 1


def get_count(obj: Object, field: str) -> int:
    """A number of the status."""
    return int((obj.get("status") or {}).get(field) or 0)


def number_of(obj: Object, annotation: str) -> int:
    """A number in an annotation, which has 64 bits, or 0."""
    text = str((obj["metadata"].get("annotations") or {}).get(annotation) or "")
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else 0
    return number if number <= NUMBER_MAX else 0


def is_rolling(obj: Object) -> bool:
    """The Deployment replaces pods step by step."""
    return bool((obj["spec"].get("strategy") or {}).get("type") != "Recreate")


def bounds(obj: Object) -> tuple[int, int]:
    """How many more, and how many fewer, there may be meanwhile (ResolveFenceposts)."""
    wanted = replicas(obj)
    rolling = (obj["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    if not is_rolling(obj):
        return 0, 0
    surge = absolute(rolling.get("maxSurge", "25%"), wanted, True)
    unavailable = absolute(rolling.get("maxUnavailable", "25%"), wanted, False)
    if not surge and not unavailable:
        unavailable = 1
    return surge, min(unavailable, wanted)


def bare(template: Object) -> Object:
    """The template without the hash that ReplicaSets add."""
    meta = dict(template.get("metadata") or {})
    labels = {k: v for k, v in (meta.get("labels") or {}).items() if k != TEMPLATE_HASH}
    rest = {k: v for k, v in meta.items() if v not in (None, {}, [])}
    return {**template, "metadata": {**rest, "labels": labels}}


def copied_annotations(obj: Object) -> Object:
    """What a ReplicaSet has of its Deployment's annotations."""
    own = obj["metadata"].get("annotations") or {}
    return {k: v for k, v in own.items() if k not in NOT_COPIED}


def size_annotations(obj: Object) -> Object:
    """How large the Deployment was when a ReplicaSet was scaled."""
    return {DESIRED: str(replicas(obj)), MAX_REPLICAS: str(replicas(obj) + bounds(obj)[0])}


def changed_annotations(obj: Object, new: Object, number: int) -> Object:
    """The annotations that the newest ReplicaSet lacks; `number`: the least revision it may have.

    A ReplicaSet that is wanted again remembers its earlier revisions.
    """
    known = new["metadata"].get("annotations") or {}
    wanted = copied_annotations(obj)
    before = number_of(new, REVISION)
    if before < number:
        wanted[REVISION] = str(number)
        if REVISION in known:
            wanted[HISTORY] = _history(str(known.get(HISTORY) or ""), known[REVISION])
    return {k: v for k, v in wanted.items() if known.get(k) != v}


def _history(text: str, revision: str) -> str:
    if not text:
        return revision
    parts = text.split(",")
    length = len(text) + len(revision) + 1
    while parts and length > HISTORY_LENGTH_MAX:
        length -= len(parts.pop(0)) + 1
    return ",".join((*parts, revision)) if length <= HISTORY_LENGTH_MAX else text


def build_set(obj: Object, old: list[Object], number: int) -> Object:
    """The ReplicaSet of the Deployment's template, as large as it may be beside the old ones."""
    spec = obj["spec"]
    hashed = hash_of([spec["template"], get_count(obj, "collisionCount")])
    meta = spec["template"].get("metadata") or {}
    labels = {**(meta.get("labels") or {}), TEMPLATE_HASH: hashed}
    selector = spec["selector"]
    match = {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: hashed}
    annotations = {**copied_annotations(obj), **size_annotations(obj), REVISION: str(number)}
    return {
        "metadata": {
            "name": f"{name_of(obj)[: NAME_LENGTH_MAX - 1 - len(hashed)]}-{hashed}",
            "namespace": namespace_of(obj),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [reference_to(obj, "deployments")],
        },
        "spec": {
            "replicas": grown(obj, sum(map(replicas, old)), 0),
            "minReadySeconds": min_ready_s(obj),
            "selector": {**selector, "matchLabels": match},
            "template": {**spec["template"], "metadata": {**meta, "labels": labels}},
        },
    }


def grown(obj: Object, total: int, size: int) -> int:
    """How large the newest ReplicaSet may be: with a surge, never above what is wanted.

    `total`: the sizes of all; `size`: of the newest (NewRSNewReplicas).
    """
    wanted = replicas(obj)
    if not is_rolling(obj):
        return wanted
    room = wanted + bounds(obj)[0] - total
    return size if room <= 0 else size + min(room, wanted - size)


def is_saturated(obj: Object, new: Object | None) -> bool:
    """The newest ReplicaSet has all pods that are wanted, and they are available."""
    if new is None or DESIRED not in (new["metadata"].get("annotations") or {}):
        return False
    wanted = replicas(obj)
    available = get_count(new, "availableReplicas")
    return (replicas(new), number_of(new, DESIRED), available) == (wanted,) * 3


def proportional_sizes(obj: Object, active: list[Object]) -> dict[str, int]:
    """The sizes, by name, of ReplicaSets that share what a Deployment grows or shrinks by; the
    largest takes the rest. `active`: those that have pods."""
    wanted = replicas(obj)
    allowed = wanted + bounds(obj)[0] if wanted else 0
    more = allowed - sum(map(replicas, active))
    ranked = sorted(active, key=age, reverse=more > 0)
    ranked.sort(key=replicas, reverse=True)
    sizes = {name_of(one): replicas(one) for one in ranked}
    left = more
    for one in ranked:
        share = _share(obj, one) if left else 0
        share = min(share, left) if more > 0 else max(share, left)
        sizes[name_of(one)] += share
        left -= share
    if ranked and left:
        first = name_of(ranked[0])
        sizes[first] = max(0, sizes[first] + left)
    return sizes


def _share(obj: Object, one: Object) -> int:
    """By how much a ReplicaSet would grow with the Deployment; less than 0 where it shrinks."""
    if not replicas(obj):
        return -replicas(one)
    before = number_of(one, MAX_REPLICAS) or get_count(obj, "replicas")
    if not before:
        return 0
    most = replicas(obj) + bounds(obj)[0]
    # Rounded to the nearest, half away from zero.
    return (2 * replicas(one) * most + before) // (2 * before) - replicas(one)
