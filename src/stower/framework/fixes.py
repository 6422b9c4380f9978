"""Fix: a small change of API objects that would lift a plugin's rejection, with a description.

A plugin proposes fixes (`Plugin.fixes`). Whether a fix helps is found out by applying it in a trial
of the state. Must not know how a fix is tried.
"""

from typing import Final

import msgspec

from stower.model.kinds import Node, Pod, Storage
from stower.model.selectors import Requirement
from stower.state.pod_entry import PodEntry

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


def with_labels(node: Node, labels: dict[str, str]) -> Node:
    """Returns the node with its labels replaced by these."""
    meta = msgspec.structs.replace(node.metadata, labels=labels)
    return msgspec.structs.replace(node, metadata=meta)
