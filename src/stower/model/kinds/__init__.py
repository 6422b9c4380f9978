"""One API kind per file, listed in KINDS: what is not listed is not scheduled with."""

from typing import Final, get_args

import msgspec

from stower.model.kinds.controllers import ReplicaSet, ReplicationController, StatefulSet
from stower.model.kinds.namespace import Namespace
from stower.model.kinds.node import Node
from stower.model.kinds.pod import Pod
from stower.model.kinds.priority_class import PriorityClass
from stower.model.kinds.service import Service


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
    Kind("v1", "Namespace", "namespaces", False, Namespace),
    Kind("v1", "Service", "services", True, Service),
    Kind("v1", "ReplicationController", "replicationcontrollers", True, ReplicationController),
    Kind("apps/v1", "ReplicaSet", "replicasets", True, ReplicaSet),
    Kind("apps/v1", "StatefulSet", "statefulsets", True, StatefulSet),
)

KIND_BY_NAME: Final = {(kind.api_version, kind.name): kind for kind in KINDS}

# Whom a controller or a service selects, and what a namespace is called.
Selecting = Namespace | Service | ReplicationController | ReplicaSet | StatefulSet
SELECTING: Final = get_args(Selecting)
ApiObject = Node | Pod | PriorityClass | Selecting

__all__ = [
    "KINDS",
    "KIND_BY_NAME",
    "SELECTING",
    "ApiObject",
    "Kind",
    "Namespace",
    "Node",
    "Pod",
    "PriorityClass",
    "ReplicaSet",
    "ReplicationController",
    "Selecting",
    "Service",
    "StatefulSet",
]  # fmt: skip
