"""Fix: a small change of API objects that would lift a plugin's rejection, with a description.

A plugin proposes fixes (`Plugin.fixes`). Whether a fix helps is found out by applying it in a trial
of the state. Must not know how a fix is tried.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from stower.model.kinds import Node, Pod, Storage
from stower.model.kinds.pod import Container, ResourceRequirements
from stower.model.resources import (
    CPU,
    PODS,
    amount_text,
    amounts,
    is_scalar,
    parse_list,
    pod_requests,
)
from stower.model.selectors import Requirement
from stower.state.pod_entry import PodEntry

ALWAYS: Final = "Always"  # the restartPolicy of a sidecar
MILLI_MAX: Final = 10_000  # of a CPU: more is told in CPUs
NODE_FIELD: Final = "{node}"  # stands for the node's name in the text of a fix


class Fix(msgspec.Struct, frozen=True):
    """One change of objects. A field that is None or empty leaves its objects as they are.

    text: the obstacle, in a few words, with NODE_FIELD for the node's name; cost: the size of the
    change, about 1 for one field of one object; pod, node, objects: the pod, the node and storage
    objects after the change; removed_pods: pods that are removed from the node.
    """

    text: str
    cost: float = 1.0
    pod: Pod | None = None
    node: Node | None = None
    objects: tuple[Storage, ...] = ()
    removed_pods: tuple[PodEntry, ...] = ()


def format_pods(entries: tuple[PodEntry, ...]) -> str:
    """Returns pods as text: the name of the first, and the number of the others."""
    first, other_count = entries[0].pod.key, len(entries) - 1
    return f"{first} and {other_count} more" if other_count else first


def format_requirement(requirement: Requirement) -> str:
    """Returns a requirement of a selector as text."""
    key, values = requirement.key, requirement.values or ()
    match requirement.operator:
        case "In" if len(values) == 1:
            return f"{key}={values[0]}"
        case "In":
            return f"{key} in ({', '.join(values)})"
        case "NotIn":
            return f"{key} not in ({', '.join(values)})"
        case "Exists":
            return f"{key}"
        case "DoesNotExist":
            return f"no {key}"
        case "Gt" | "Lt":
            return f"{key} {'>' if requirement.operator == 'Gt' else '<'} {' '.join(values)}"
    return f"{key} {requirement.operator} {' '.join(values)}"


def with_spec(pod: Pod, **fields: object) -> Pod:
    """Returns the pod with these fields of its spec replaced."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **fields))


def format_amount(name: str, amount: int) -> str:
    """Returns the amount in common units, never rounded down."""
    if name == CPU and (amount % 1000 == 0 or amount > MILLI_MAX):
        whole, milli = divmod(amount, 1000)
        return f"{whole}.{milli:03d}".rstrip("0").rstrip(".")
    if name == CPU:
        return f"{amount}m"
    if name == PODS or "/" in name or not amount:
        return str(amount)
    for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount % size == 0:
            return f"{amount // size}{unit}"
    return f"{amount} bytes of"


def with_smaller_requests(pod: Pod, lacking: Mapping[str, int]) -> Pod | None:
    """Returns the pod with requests that are smaller by these amounts: of the pod as a whole, else
    of its largest containers, else its overhead. None where that is not enough."""
    for name, missing in lacking.items():
        target = amounts(pod_requests(pod)).get(name, 0) - missing
        for smaller in (_smaller_pod_level, _smaller_containers, _smaller_overhead):
            pod = smaller(pod, name, target)
        if amounts(pod_requests(pod)).get(name, 0) > target:
            return None
    return pod


def _smaller_pod_level(pod: Pod, name: str, target: int) -> Pod:
    """Lowers the request of the pod as a whole, if it has one."""
    own = pod.spec.resources
    if own is None or name not in (own.requests or {}):
        return pod
    room = max(0, target - amounts(parse_list(pod.spec.overhead)).get(name, 0))
    asked = amounts(parse_list(own.requests))[name]
    return with_spec(pod, resources=_with_request(own, name, min(asked, room)))


def _smaller_containers(pod: Pod, name: str, target: int) -> Pod:
    """Lowers requests of containers, the largest first, then of init containers."""
    room = max(0, target - amounts(parse_list(pod.spec.overhead)).get(name, 0))
    containers, init = list(pod.spec.containers), list(pod.spec.init_containers or ())
    running = [*containers, *(one for one in init if one.restart_policy == ALWAYS)]
    left = sum(_requested(one.resources, name) for one in running) - room
    for part in (containers, init):
        sizes = {i: _requested(one.resources, name) for i, one in enumerate(part)}
        for i, amount in sorted(sizes.items(), key=lambda item: -item[1]):
            taken = min(left, amount)
            if taken > 0 and (part is containers or part[i].restart_policy == ALWAYS):
                part[i] = _smaller(part[i], name, amount - taken)
                left -= taken
    beside = 0  # what sidecars take that start before
    for i, one in enumerate(init):
        amount = _requested(one.resources, name)
        if one.restart_policy == ALWAYS:
            beside += amount
        elif amount + beside > room:
            init[i] = _smaller(one, name, max(0, room - beside))
    if containers == [*pod.spec.containers] and init == [*(pod.spec.init_containers or ())]:
        return pod
    return with_spec(pod, containers=tuple(containers), init_containers=tuple(init) or None)


def _smaller_overhead(pod: Pod, name: str, target: int) -> Pod:
    """Lowers the overhead that the pod's RuntimeClass adds, where the rest is not enough."""
    over = amounts(pod_requests(pod)).get(name, 0) - target
    overhead = amounts(parse_list(pod.spec.overhead)).get(name, 0)
    if over <= 0 or not overhead:
        return pod
    text = amount_text(name, max(0, overhead - over))
    return with_spec(pod, overhead={**(pod.spec.overhead or {}), name: text})


def _requested(resources: ResourceRequirements | None, name: str) -> int:
    found = resources.requests if resources is not None else None
    return amounts(parse_list(found)).get(name, 0)


def _smaller(container: Container, name: str, amount: int) -> Container:
    before = container.resources or ResourceRequirements()
    return msgspec.structs.replace(container, resources=_with_request(before, name, amount))


def _with_request(before: ResourceRequirements, name: str, amount: int) -> ResourceRequirements:
    text = amount_text(name, amount)
    requests, limits = {**(before.requests or {}), name: text}, before.limits
    if limits and name in limits and is_scalar(name):  # the API wants both to be the same
        limits = {**limits, name: text}
    return msgspec.structs.replace(before, requests=requests, limits=limits)


def with_labels(node: Node, labels: dict[str, str]) -> Node:
    """Returns the node with its labels replaced by these."""
    meta = msgspec.structs.replace(node.metadata, labels=labels)
    return msgspec.structs.replace(node, metadata=meta)
