"""The StatefulSets of placeholders that hubs keep where the scheduler makes none itself."""

from collections.abc import Callable, Mapping
from typing import Final

from stower.model.kinds import Pod
from stower.model.kinds.warm_pool import Placeholders
from stower.model.times import time_text
from stower.sim.agenda import Agenda
from stower.sim.server import Server
from stower.warm.target import count_wanted

NAME: Final = "user-placeholder"


class PlaceholderSet:
    """One of them: as many as are wanted, each made again under its name."""

    def __init__(
        self,
        server: Server,
        agenda: Agenda,
        namespace: str,
        settings: Placeholders,
        make: Callable[[int, str, str, str], Pod],
        users: Callable[[str], tuple[Mapping[str, Pod], Mapping[str, int]]],
    ) -> None:
        """`users`: those of a namespace and when they came, by uid; asked where the number follows
        them. Nobody learns a profile of the day for it."""
        self._server, self._agenda = server, agenda
        self._namespace = namespace
        self._settings = settings
        self._make_pod = make
        self._users = users
        self._count = 0

    def keep(self) -> None:
        """As many as are wanted now."""
        settings = self._settings
        follows = (
            settings.lectures
            or settings.surge.hold_seconds
            or settings.percent_of_users
            or settings.readiness_seconds
        )
        users, came_ns = self._users(self._namespace) if follows else ({}, {})
        self._count = count_wanted(settings, users, came_ns, self._agenda.now_ns)
        pods = [*self._server.all(Pod).values()]
        there = {p.metadata.name: p for p in pods if self._is_mine(p)}
        for i in range(self._count):
            if f"{NAME}-{i}" not in there:
                self._make(i)
        for name, pod in there.items():
            if _number(name) >= self._count:
                self._server.remove(pod)

    def handle_deleted(self, pod: Pod) -> None:
        """It is made again, if it was one of these."""
        i = _number(pod.metadata.name) if self._is_mine(pod) else -1

        def make() -> None:
            if i < self._count and self._server.get(Pod, pod.metadata.key) is None:
                self._make(i)

        if i >= 0:
            self._agenda.schedule_at(self._agenda.now_ns, make)

    def _is_mine(self, pod: Pod) -> bool:
        owner, namespace = pod.metadata.controller, pod.metadata.namespace
        return namespace == self._namespace and owner is not None and owner.name == NAME

    def _make(self, i: int) -> None:
        at = time_text(self._agenda.now_ns)
        uid = f"{self._namespace}-placeholder-{i}-{self._server.revision}"
        self._server.put(self._make_pod(i, uid, at, self._namespace))


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
