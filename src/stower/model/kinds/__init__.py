"""One API kind per file, listed in KINDS: what is not listed is not scheduled with."""

from typing import Final

import msgspec

from stower.model.kinds.node import Node
from stower.model.kinds.pod import Pod
from stower.model.kinds.priority_class import PriorityClass


class Kind(msgspec.Struct, frozen=True):
    """One API kind: its group, version and name, whether it is namespaced, its typed view."""

    api_version: str
    name: str
    plural: str
    namespaced: bool
    view: type


KINDS: Final = (
    Kind("v1", "Node", "nodes", False, Node),
    Kind("v1", "Pod", "pods", True, Pod),
    Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", False, PriorityClass),
)

KIND_BY_NAME: Final = {(kind.api_version, kind.name): kind for kind in KINDS}

ApiObject = Node | Pod | PriorityClass

__all__ = ["KINDS", "KIND_BY_NAME", "ApiObject", "Kind", "Node", "Pod", "PriorityClass"]
