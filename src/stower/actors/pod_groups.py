"""PodGroups: one that is deleted goes when none of its pods runs any more.

Source: kube-controller-manager pkg/controller/scheduling/podgroupprotection; KEP-4671 "PodGroup
Deletion Protection". The finalizer is set at admission.
"""

from collections.abc import Iterable
from typing import Final

from stower.actors.objects import Object, Objects, is_ending, key_of, name_of, namespace_of
from stower.actors.pods import is_finished
from stower.actors.runtime import Base, Todo

PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"


class PodGroups(Base):
    """One group is one key."""

    name = "podgroup-protection"
    kinds = ("podgroups", "pods")

    def keys(self, seen: Objects, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The group, or that of a pod that has ended."""
        if kind == "podgroups":
            return (key_of(obj),)
        name = _group_of(obj)
        return (f"{namespace_of(obj)}/{name}",) if name else ()

    def reconcile(self, seen: Objects, key: str, todo: Todo) -> None:
        """Let it go."""
        group = seen.get("podgroups", key)
        if group is None or not is_ending(group):
            return
        pods = seen.within("pods", namespace_of(group))
        if not any(_group_of(pod) == name_of(group) and not is_finished(pod) for pod in pods):
            todo.unprotect("podgroups", group, PROTECTION)


def _group_of(pod: Object) -> str:
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")
