"""Reads what `stower fit` is asked about: mixes of pods, and the node that is added."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from stower.cli.configuration_files import InputError
from stower.cli.inputs import LoadedWorkload, load
from stower.model.kinds import Background, PersistentVolumeClaim, Pod, ResourceClaim
from stower.sim.capacity import make_pending
from stower.sim.claim_lifecycle import copy_volume_claims, recreate_with_claims
from stower.sim.node_demand import NodeTemplate
from stower.sim.workload import Arrival, Workload
from stower.sim.world import AnyClaim

COPIES_MAX: Final = 100_000

Mix = list[tuple[Pod, int]]


def read_mix(texts: Sequence[str], cluster: LoadedWorkload) -> tuple[Mix, tuple[Background, ...]]:
    """Returns the pods of FILE or FILE=N, each with its number of copies, and what comes with them.
    Raises InputError."""
    mix: Mix = []
    related: list[Background] = []
    for text in texts:
        name, count = _split(text)
        found = load([name], beside=cluster).workload
        given = [*(arrival.pod for arrival in found.arrivals), *found.placed]
        owners = {_owner_of(pod) for pod in given}
        if len(given) != 1 and (len(owners) != 1 or not all(owners)):
            raise InputError(f"{name}: got {len(given)} pods, want one, or one workload object")
        mix.append((given[0], count))
        related += found.related
    keys = [pod.key for pod, _ in mix]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(f"--pod: got two pods {key}, want pods of different names")
    return mix, tuple(related)


def _split(text: str) -> tuple[str, int]:
    name, sign, count = text.rpartition("=")
    if not sign or Path(text).exists():
        return text, 1
    if not (count.isascii() and count.isdecimal()) or not 0 < int(count[:9]) <= COPIES_MAX:
        raise InputError(f"--pod: got {text!r}, want FILE or FILE=N, N to {COPIES_MAX:,}")
    return name, int(count)


def _owner_of(pod: Pod) -> str:
    owner = pod.metadata.controller
    return f"{owner.kind}/{owner.name}" if owner is not None else ""


def read_node_template(text: str, cluster: LoadedWorkload) -> NodeTemplate:
    """Returns the node of a manifest, or the node of the cluster of this name. Raises
    InputError."""
    work = cluster.workload
    known = {node.metadata.name: node for node in work.nodes}
    pods = (*work.placed, *(arrival.pod for arrival in work.arrivals))
    if text in known:
        return NodeTemplate(known[text], pods, work.related)
    if not Path(text).exists():
        raise InputError(f"--node-template: got {text!r}, want a file, or a node of the cluster")
    found = load([text], beside=cluster).workload
    if len(found.nodes) != 1:
        raise InputError(f"{text}: got {len(found.nodes)} nodes, want one")
    own = (*found.placed, *(arrival.pod for arrival in found.arrivals))
    return NodeTemplate(found.nodes[0], own, found.related)


def with_copies(work: Workload, mix: Mix, related: Sequence[Background]) -> Workload:
    """Returns the workload with copies of the pods that wait after its own."""
    arrivals, more = list(work.arrivals), list[AnyClaim]()
    claims = {obj.metadata.key: obj for obj in related if isinstance(obj, ResourceClaim)}
    of_volumes = {obj.key: obj for obj in related if isinstance(obj, PersistentVolumeClaim)}
    for pod, count in mix:
        for i in range(count):
            name = f"{pod.metadata.name}-copy-{i}"
            copy = make_pending(pod, name, f"{pod.metadata.namespace}/{name}")
            copy, made = recreate_with_claims(pod, copy, claims)  # each has its own
            more += (*made, *copy_volume_claims(pod, copy, of_volumes))
            arrivals.append(Arrival(copy))
    return msgspec.structs.replace(
        work, arrivals=tuple(arrivals), related=(*work.related, *related, *more)
    )
