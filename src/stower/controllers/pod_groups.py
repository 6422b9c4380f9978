"""Pod group protection: removes the finalizer of a deleted group when none of its pods needs it.

A group of groups is released after the groups below it. The finalizers are set at admission.

Source: kube-controller-manager pkg/controller/scheduling/podgroupprotection; KEP-4671 "PodGroup
Deletion Protection"; KEP-6012 "Object ownership and garbage collection".
"""

from collections.abc import Iterable
from typing import Final

from stower.controllers.objects import Object, ObjectStore, is_ending, key_of, name_of, namespace_of
from stower.controllers.pods import is_finished
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.model.kinds.pod import POD_GROUP
from stower.model.kinds.pod_group import PARENT_GROUP

PROTECTION: Final = {
    "podgroups": "scheduling.k8s.io/podgroup-protection",
    "compositepodgroups": "scheduling.k8s.io/compositepodgroup-protection",
}


class PodGroupProtectionController(BaseController):
    """One group is one key: its kind and namespace/name."""

    name = "podgroup-protection"
    kinds = ("podgroups", "compositepodgroups", "pods")

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The group, and the one around it; or that of a pod that has ended."""
        around = "podgroups" if kind == "pods" else "compositepodgroups"
        names = dict.fromkeys(_group_name_of(kind, one) for one in (old, obj) if one is not None)
        found = [f"{around} {namespace_of(obj)}/{name}" for name in names if name]
        return found if kind == "pods" else [f"{kind} {key_of(obj)}", *found]

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Let it go."""
        kind, _, key = key.partition(" ")
        group = seen.get(kind, key)
        if group is None or not is_ending(group):
            return
        above = _lineage(seen, kind, group)
        inside = ("pods",) if kind == "podgroups" else ("podgroups", "compositepodgroups")
        for inner in inside:
            for obj in seen.list_namespace(inner, namespace_of(group)):
                if _group_name_of(inner, obj) != name_of(group) or _has_ended(inner, obj):
                    continue
                if inner != "compositepodgroups" or name_of(obj) not in above:
                    return
        todo.unprotect(kind, group, PROTECTION[kind])


def _lineage(seen: ObjectStore, kind: str, group: Object) -> dict[str, None]:
    """Names of the groups that it is in, and of itself: in a cycle they do not hold each other."""
    found: dict[str, None] = {}
    while kind == "compositepodgroups" and name_of(group) not in found:
        found[name_of(group)] = None
        around = seen.get(kind, f"{namespace_of(group)}/{_group_name_of(kind, group)}")
        if around is None:
            break
        group = around
    return found


def _has_ended(kind: str, obj: Object) -> bool:
    return kind == "pods" and is_finished(obj)


def _group_name_of(kind: str, obj: Object) -> str:
    """The name of the group that an object is in, "" for none."""
    if kind == "pods":
        linked = (obj["metadata"].get("labels") or {}).get(POD_GROUP)
        return str((obj["spec"].get("schedulingGroup") or {}).get("podGroupName") or linked or "")
    label = (obj["metadata"].get("labels") or {}).get(PARENT_GROUP)
    return str(obj["spec"].get("parentCompositePodGroupName") or label or "")
