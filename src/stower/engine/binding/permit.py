"""Pods that are bound together: none before all of them may be.

What keeps one of them from being bound gives all of them up, as long as none is being bound.
"""

from collections.abc import Callable, Iterable

from stower.engine.queue.entities import QueuedPod


class Team:
    """Pods of one attempt for a tree of groups."""

    __slots__ = ("is_dissolved", "members", "ready")

    def __init__(self, members: Iterable[QueuedPod]) -> None:
        self.members = {queued.uid: queued for queued in members}
        self.ready: dict[str, tuple[QueuedPod, str]] = {}
        self.is_dissolved = False


class Together:
    """All teams whose pods are not being bound yet."""

    def __init__(self, bind: Callable[[QueuedPod, str], None]) -> None:
        self._bind = bind
        self._teams: dict[str, Team] = {}

    def uids(self) -> list[str]:
        """Who waits for others."""
        return list(self._teams)

    def team(self, uid: str) -> list[QueuedPod]:
        """The pod and those that it waits for; nobody where it waits for none."""
        team = self._teams.get(uid)
        return list(team.members.values()) if team is not None else []

    def begin(self, members: Iterable[QueuedPod]) -> Team:
        """These wait for each other."""
        team = Team(members)
        for uid in team.members:
            self._teams[uid] = team
        return team

    def ready(self, queued: QueuedPod, node_name: str) -> None:
        """Nothing but others of its team keeps the pod from being bound to the node."""
        team = self._teams.get(queued.uid) if self._teams else None
        if team is None:
            self._bind(queued, node_name)
            return
        team.ready[queued.uid] = (queued, node_name)
        if len(team.ready) == len(team.members):
            for uid in team.members:
                del self._teams[uid]
            for one, name in team.ready.values():
                self._bind(one, name)

    def dissolve(self, uid: str) -> list[QueuedPod]:
        """The pod is not bound: who is not to be bound either."""
        team = self._teams.get(uid)
        if team is None:
            return []
        team.is_dissolved = True
        for member in team.members:
            del self._teams[member]
        return [queued for queued in team.members.values() if queued.uid != uid]
