"""What would lift a plugin's refusal: a change of objects, small and said in words.

A plugin proposes (`Plugin.fixes`); whether it helps is found out by trying it on the state.
"""

from typing import Final

import msgspec

from stower.model.kinds import Node, Pod, Storage
from stower.model.selectors import Requirement
from stower.state.pod_entry import PodEntry

NODE_FIELD: Final = "{node}"  # in a text: where the name of the node goes


class Fix(msgspec.Struct, frozen=True):
    """One change. `text`: what stands in the way, in a few words, NODE for the node's name; `cost`:
    how large the change is, about 1 for one field of one object. What is None or empty stays as it
    is.

    pod: the pod as it would be; node: the node; put: storage objects; gone: pods that leave.
    """

    text: str
    cost: float = 1.0
    pod: Pod | None = None
    node: Node | None = None
    objects: tuple[Storage, ...] = ()
    removed_pods: tuple[PodEntry, ...] = ()


def format_pods(entries: tuple[PodEntry, ...]) -> str:
    """Pods in words: one by name, or one and how many more."""
    first, more = entries[0].pod.key, len(entries) - 1
    return f"{first} and {more} more" if more else first


def format_requirement(requirement: Requirement) -> str:
    """A condition in words."""
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
    """The pod with these fields of its spec."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **fields))


def with_labels(node: Node, labels: dict[str, str]) -> Node:
    """The node with these labels and no others."""
    meta = msgspec.structs.replace(node.metadata, labels=labels)
    return msgspec.structs.replace(node, metadata=meta)
