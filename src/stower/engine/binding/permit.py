"""Holds the bindings of a pod group until every pod of the group can be bound (Permit).

A pod of the group that cannot be bound releases all others, as long as none is being bound.
Must not know writes or the queue.
"""

from collections.abc import Iterable

from stower.engine.queue.entities import QueuedPod


class PermitGroup:
    """The pods of one attempt for a pod group tree, and the nodes of those that may be bound."""

    __slots__ = ("allowed", "is_rejected", "members")

    def __init__(self, members: Iterable[QueuedPod]) -> None:
        self.members = {queued.uid: queued for queued in members}
        self.allowed: dict[str, tuple[QueuedPod, str]] = {}
        self.is_rejected = False


class Permit:
    """Holds pods that wait because another pod of their group cannot be bound yet."""

    def __init__(self) -> None:
        # By the uid of each waiting pod.
        self.groups: dict[str, PermitGroup] = {}

    def waiting_pods(self) -> list[str]:
        """Returns the uids of all pods that wait for others of their group."""
        return list(self.groups)

    def members(self, uid: str) -> list[QueuedPod]:
        """Returns the pod and the pods that it waits for; empty if the pod does not wait."""
        group = self.groups.get(uid)
        return list(group.members.values()) if group is not None else []

    def allowed_pods(self) -> list[str]:
        """Returns the uids of the waiting pods that nothing but their group keeps from being bound.
        A waiting pod that is not among them is in PreBind, or its attempt has failed."""
        return [uid for uid, group in self.groups.items() if uid in group.allowed]

    def wait(self, members: Iterable[QueuedPod]) -> PermitGroup:
        """Makes these pods wait for each other."""
        group = PermitGroup(members)
        for uid in group.members:
            self.groups[uid] = group
        return group

    def allow(self, queued: QueuedPod, node_name: str) -> list[tuple[QueuedPod, str]]:
        """Records that nothing but its group keeps a waiting pod from being bound to the node.
        Returns the pods to bind now, with their nodes: the whole group with its last pod, else
        none."""
        group = self.groups[queued.uid]
        group.allowed[queued.uid] = (queued, node_name)
        if len(group.allowed) < len(group.members):
            return []
        for uid in group.members:
            del self.groups[uid]
        return list(group.allowed.values())

    def reject(self, uid: str) -> list[QueuedPod]:
        """Records that the pod is not bound. Returns the others of its group, which are not to be
        bound either."""
        group = self.groups.get(uid)
        if group is None:
            return []
        group.is_rejected = True
        for member in group.members:
            del self.groups[member]
        return [queued for queued in group.members.values() if queued.uid != uid]
