"""Drops fields of pods whose feature gates are off in Kubernetes 1.36, unless they are in use.

Source: DropDisabledPodFields in pkg/api/pod. Fields of groups of pods are kept: their gates are on.
"""

from collections.abc import Iterator
from typing import Any, Final

Object = dict[str, Any]
# Sources of projected volumes: behind ClusterTrustBundleProjection and PodCertificateRequest.
PROJECTIONS: Final = ("clusterTrustBundle", "podCertificate")
CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
CLAIMED: Final = "nodeAllocatableResourceClaimStatuses"  # behind DRANodeAllocatableResources


def drop_from_spec(spec: Object, old: Object | None = None) -> None:
    """Drops the fields from the spec of a pod or of a template; `old`: the spec before a change."""
    if any("projected" in volume for volume in spec.get("volumes") or ()):
        known = [*_sources(old)] if old is not None else []
        for kind in PROJECTIONS:
            if not any(kind in source for source in known):
                for source in _sources(spec):
                    source.pop(kind, None)
    if old is None or not any("stopSignal" in hooks for _, hooks in _lifecycles(old)):
        for container, hooks in _lifecycles(spec):
            if hooks.pop("stopSignal", None) is not None and not hooks:
                del container["lifecycle"]


def drop_from_status(status: Object, old: Object) -> None:
    """Drops the fields from the status of a pod; `old`: the status before the change."""
    if not old.get(CLAIMED):
        status.pop(CLAIMED, None)
    if not any("volumeStatus" in mount for mount in _mounts(old)):
        for mount in _mounts(status):
            mount.pop("volumeStatus", None)  # behind ImageVolumeWithDigest


def _sources(spec: Object) -> Iterator[Object]:
    for volume in spec.get("volumes") or ():
        yield from (volume.get("projected") or {}).get("sources") or ()


def _lifecycles(spec: Object) -> Iterator[tuple[Object, Object]]:
    for field in CONTAINERS:
        for container in spec.get(field) or ():
            if "lifecycle" in container:
                yield container, container["lifecycle"]


def _mounts(status: Object) -> Iterator[Object]:
    for field in STATUSES:
        for container in status.get(field) or ():
            yield from container.get("volumeMounts") or ()
