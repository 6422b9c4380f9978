"""Finds the groups around a pod, and their root, in the API's objects."""

from stower.model.kinds import CompositePodGroup, GroupObject, Pod, PodGroup
from stower.sim.server import Server


def groups_around(server: Server, pod: Pod) -> list[GroupObject]:
    """Returns the groups that exist around a pod, its own first. Of groups that form a cycle, each
    once."""
    namespace = pod.metadata.namespace
    above: GroupObject | None = None
    if pod.group_name:
        above = server.get(PodGroup, f"{namespace}/{pod.group_name}")
    found: dict[str, GroupObject] = {}
    while above is not None and above.metadata.uid not in found:
        found[above.metadata.uid] = above
        parent = above.spec.parent_composite_pod_group_name
        above = server.get(CompositePodGroup, f"{namespace}/{parent}") if parent else None
    return [*found.values()]


def root_group(server: Server, pod: Pod) -> GroupObject | None:
    """Returns the topmost group that exists above a pod, None for a pod without a group. Of groups
    that form a cycle, any."""
    return next(reversed(groups_around(server, pod)), None)
