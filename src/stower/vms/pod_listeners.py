"""Agents' requests that wait until a pod changes, or for a time."""

from heapq import heappop, heappush
from typing import Generic, TypeVar

from stower.vms.agent import PodWait

Task = TypeVar("Task")


class PodListeners(Generic[Task]):
    """What waits for which pod, in the order in which it began to wait."""

    def __init__(self) -> None:
        self._heard: dict[str, int] = {}  # changes, by uid of the pods that are listened to
        self._by_pod: dict[str, list[tuple[int, Task]]] = {}
        self._alarms: list[tuple[int, int, str]] = []
        self._waiting: dict[int, Task] = {}
        self._turn = 0

    def watch(self, uid: str) -> int:
        """Listens to a pod from now on. Returns how often it has changed since that began."""
        return self._heard.setdefault(uid, 0)

    def wait(self, task: Task, step: PodWait) -> bool:
        """Returns whether the task has to wait: False where the pod has changed already."""
        if self._heard.get(step.uid, 0) != step.heard:
            return False
        self._turn += 1
        self._waiting[self._turn] = task
        heappush(self._alarms, (step.until_ns, self._turn, step.uid))
        self._by_pod.setdefault(step.uid, []).append((self._turn, task))
        return True

    def notify(self, uid: str, exists: bool) -> list[Task]:
        """A pod has changed, or is gone. Returns the tasks that waited for that."""
        if uid not in self._heard:
            return []
        self._heard[uid] += 1
        waiting = [turn for turn, _ in self._by_pod.pop(uid, ()) if turn in self._waiting]
        if not exists:
            del self._heard[uid]
        return [self._waiting.pop(turn) for turn in waiting]

    def expire(self, now_ns: int) -> list[Task]:
        """Returns the tasks whose time is over."""
        found = []
        while self._alarms and self._alarms[0][0] <= now_ns:
            _, turn, uid = heappop(self._alarms)
            if turn not in self._waiting:
                continue
            found.append(self._waiting.pop(turn))
            others = [one for one in self._by_pod.pop(uid, ()) if one[0] != turn]
            if others:
                self._by_pod[uid] = others
        return found

    @property
    def next_ns(self) -> int | None:
        """When the next time is over."""
        return self._alarms[0][0] if self._alarms else None

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting
