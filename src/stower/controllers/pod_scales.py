"""Finds the scale of what controls a pod, as PodDisruptionBudgets count it.

Source: the finders of pkg/controller/disruption, Kubernetes 1.36. Scales are read from the objects
that were seen, those of custom resources at the paths that their definition names.
"""

from collections.abc import Iterable
from typing import Any, Final

from stower.api.scale import found_at
from stower.controllers.custom_kinds import DEFINITIONS
from stower.controllers.objects import Object, ObjectStore, name_of, namespace_of, owner_of, uid_of

SCALED: Final = ("replicasets", "deployments", "statefulsets", "replicationcontrollers")


class ScaleError(Exception):
    """The scale of what controls a pod is not known; the text is upstream's."""


def find_scales(seen: ObjectStore, pods: Iterable[Object]) -> tuple[int, list[str]]:
    """Returns the sum of the scales of the pods' controllers, and the names of the pods that have
    no controller. Raises ScaleError."""
    scales: dict[str, int] = {}
    unmanaged: list[str] = []
    known: dict[str, None] = {}  # uids of controllers
    for pod in pods:
        owner = owner_of(pod)
        if owner is None:
            unmanaged.append(name_of(pod))
        elif owner["uid"] not in known:
            known[owner["uid"]] = None
            uid, scale = _find_scale(seen, pod, owner)
            scales[uid] = scale
    return sum(scales.values()), unmanaged


def _find_scale(seen: ObjectStore, pod: Object, reference: Object) -> tuple[str, int]:
    version, kind_name = reference.get("apiVersion", ""), reference.get("kind", "")
    kind = seen.find_kind(version, kind_name)
    if kind is None:
        raise ScaleError(f'no matches for kind "{kind_name}" in version "{version}"')
    path = ".spec.replicas" if kind in SCALED else _scale_path(seen, kind)
    if not path:
        group, plural = version.rpartition("/")[0], seen.resource(kind).plural
        raise ScaleError(f"{plural}.{group} does not implement the scale subresource")
    found = _controller(seen, kind, reference, namespace_of(pod))
    if found is None:
        raise ScaleError(f'found no controllers for pod "{name_of(pod)}"')
    above = owner_of(found) or {}
    if kind == "replicasets" and above.get("kind") == "Deployment":
        deployment = _controller(seen, "deployments", above, namespace_of(pod))
        found = deployment or found
    replicas: Any = found_at(found, path)
    return uid_of(found), replicas if isinstance(replicas, int) else 0


def _controller(seen: ObjectStore, kind: str, reference: Object, namespace: str) -> Object | None:
    found = seen.get(kind, f"{namespace}/{reference['name']}")
    return found if found is not None and uid_of(found) == reference["uid"] else None


def _scale_path(seen: ObjectStore, kind: str) -> str:
    """Where a custom resource says its scale; "" if it has none."""
    resource, definition = seen.custom.get(kind), seen.get(DEFINITIONS, kind)
    if resource is None or definition is None:
        return ""
    name = resource.api_version.rpartition("/")[2]
    for version in definition["spec"]["versions"]:
        if version["name"] == name:
            scale = (version.get("subresources") or {}).get("scale") or {}
            return str(scale.get("specReplicasPath") or "")
    return ""
