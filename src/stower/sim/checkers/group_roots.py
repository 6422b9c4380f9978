"""Finds the root of a pod's groups in the API's objects."""

from stower.model.kinds import CompositePodGroup, Pod, PodGroup
from stower.sim.server import Server


def root_group(server: Server, pod: Pod) -> PodGroup | CompositePodGroup | None:
    """Returns the topmost group that exists above a pod, None for a pod without a group. Of groups
    that form a cycle, any."""
    namespace = pod.metadata.namespace
    found: PodGroup | CompositePodGroup | None = None
    above: PodGroup | CompositePodGroup | None = None
    if pod.group_name:
        above = server.get(PodGroup, f"{namespace}/{pod.group_name}")
    seen: set[str] = set()
    while above is not None and above.metadata.uid not in seen:
        found = above
        seen.add(above.metadata.uid)
        parent = above.spec.parent_composite_pod_group_name
        above = server.get(CompositePodGroup, f"{namespace}/{parent}") if parent else None
    return found
