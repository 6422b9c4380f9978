"""Decides which pods of a DaemonSet a rolling update deletes, and where it makes new ones first.

Without maxSurge a pod is deleted and then made anew; with it the new pod is made first. In both
cases pods that are not available are replaced at once.

Source: pkg/controller/daemon/update.go.
"""

from collections.abc import Callable, Mapping

import msgspec

from stower.controllers.objects import Object, is_ending


class Rollout(msgspec.Struct, gc=False):
    """A rolling update of pods by node; `on` has an empty list for a node that misses its pod."""

    on: Mapping[str, list[Object]]
    is_updated: Callable[[Object], bool]
    is_available: Callable[[Object], bool]
    delete: list[Object] = []
    create: list[str] = []  # nodes

    def replace(self, unavailable_max: int) -> None:
        """Delete old pods, so that no more than these are unavailable."""
        unavailable, candidates = 0, []
        for pods in self.on.values():
            found = self._split(pods)
            if found is None:
                unavailable += 1
                continue
            new, old = found
            if (old is None) == (new is None):
                unavailable += 1  # one is made or deleted elsewhere
            elif new is not None:
                unavailable += not self.is_available(new)
            elif old is not None and not self.is_available(old):
                self.delete.append(old)
                unavailable += 1
            elif old is not None:
                candidates.append(old)
        self.delete += candidates[: max(0, unavailable_max - unavailable)]

    def surge(self, surge_max: int, wanted: int, may_start: Callable[[str], bool]) -> None:
        """Make new pods beside old ones, and delete the old where the new are available.

        `wanted`: on how many nodes pods are to be; `may_start`: whether a node is one of them.
        """
        surging, available = 0, 0
        candidates, misplaced = [], []
        for node, pods in self.on.items():
            found = self._split(pods)
            if found is None:
                surging += 1
                continue
            new, old = found
            first = old if old is not None else new
            available += first is not None and self.is_available(first)
            if old is None:
                continue
            if new is not None:
                if self.is_available(new):
                    self.delete.append(old)
                else:
                    surging += 1
            elif not self.is_available(old):
                if may_start(node):
                    self.create.append(node)
                else:
                    self.delete.append(old)
            elif may_start(node):
                candidates.append(node)
            else:
                misplaced.append(old)
        self.delete += misplaced[: max(0, available - wanted)]
        self.create += candidates[: max(0, surge_max - surging)]

    def _split(self, pods: list[Object]) -> tuple[Object | None, Object | None] | None:
        """The new and the old pod of a node; None where there are more of one."""
        staying = [pod for pod in pods if not is_ending(pod)]
        new = [pod for pod in staying if self.is_updated(pod)]
        old = [pod for pod in staying if not self.is_updated(pod)]
        if len(new) > 1 or len(old) > 1:
            return None
        return (new[0] if new else None, old[0] if old else None)
