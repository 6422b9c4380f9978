"""Fix: a small change of API objects that would lift a plugin's rejection, with a description.

A plugin proposes fixes (`Plugin.fixes`). Whether a fix helps is found out by applying it in a trial
of the state. Must not know how a fix is tried.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from stower.model.kinds import Node, Pod, Storage
from stower.model.kinds.pod import Container, ResourceRequirements
from stower.model.quantity import Quantity
from stower.model.resources import CPU, PODS, amounts, is_scalar, parse_list
from stower.model.selectors import Requirement
from stower.state.pod_entry import PodEntry

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
    """Returns the pod with requests that are smaller by these amounts, those of its largest
    containers first; None where its containers do not request so much."""
    containers = list(pod.spec.containers)
    for name, missing in lacking.items():
        left = missing
        asked = {i: _requested(one.resources, name) for i, one in enumerate(containers)}
        for i, amount in sorted(asked.items(), key=lambda item: -item[1]):
            taken = min(left, amount)
            if taken:
                containers[i] = _with_request(containers[i], name, amount - taken)
                left -= taken
        if left:
            return None
    return with_spec(pod, containers=tuple(containers))


def _requested(resources: ResourceRequirements | None, name: str) -> int:
    found = resources.requests if resources is not None else None
    return amounts(parse_list(found)).get(name, 0)


def _with_request(container: Container, name: str, amount: int) -> Container:
    before = container.resources or ResourceRequirements()
    text = str(Quantity.of_milli(amount)) if name == CPU else str(amount)
    requests, limits = {**(before.requests or {}), name: text}, before.limits
    if limits and name in limits and is_scalar(name):  # the API wants both to be the same
        limits = {**limits, name: text}
    resources = msgspec.structs.replace(before, requests=requests, limits=limits)
    return msgspec.structs.replace(container, resources=resources)


def with_labels(node: Node, labels: dict[str, str]) -> Node:
    """Returns the node with its labels replaced by these."""
    meta = msgspec.structs.replace(node.metadata, labels=labels)
    return msgspec.structs.replace(node, metadata=meta)
