"""Creates PodGroups for pods that request a group with the scheduling gate stower.dev/pod-group,
and for pods of kinds that are gangs (model/gang_kinds.py), where the scheduler holds these.

For pods of workload controllers that do not create groups themselves. A pod is not scheduled before
it is in its group. The controller creates the groups, adds the label that links the pod to its
group, and removes the gate. A group is deleted with the object that it was created for; a group
created for labels alone, with its last pod.
"""

from collections.abc import Iterable
from typing import Final

from stower.controllers.group_plans import GroupPlan, GroupPlanError, count_of, plan_of
from stower.controllers.objects import (
    Object,
    ObjectStore,
    created_ns,
    is_ending,
    key_of,
    name_of,
    namespace_of,
    owner_of,
    uid_of,
)
from stower.controllers.pods import is_finished
from stower.controllers.runtime import MERGE, BaseController, ReconcileResult
from stower.model.gang_kinds import gang_kind
from stower.model.kinds.pod import POD_GROUP
from stower.model.times import SECOND_NS

GATE: Final = POD_GROUP
MADE: Final = "stower.dev/made-for-pods"
# So long, a group may be without pods: the first ones are about to be linked to it.
EMPTY_NS: Final = 30 * SECOND_NS


class PodGroupMaker(BaseController):
    """A pod that asks, or a group that was made, is a key: its kind and namespace/name."""

    name = "pod-group-maker"
    kinds = ("pods", "jobs", "podgroups", "compositepodgroups")

    def __init__(self, gang_kinds: Iterable[str] = ()) -> None:
        """gang_kinds: of which pods get a group without asking."""
        self._gang_kinds = frozenset(gang_kinds)
        self._told: dict[str, str] = {}  # by pod: why it gets no group

    def _asks(self, pod: Object) -> bool:
        if _has_gate(pod):
            return True
        if not self._gang_kinds or pod["spec"].get("nodeName") or _is_linked(pod):
            return False
        meta, owner = pod["metadata"], owner_of(pod)
        kind = gang_kind(
            meta.get("labels") or {},
            meta.get("annotations") or {},
            str(owner["kind"]) if owner is not None else "",
        )
        return kind in self._gang_kinds

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """Whoever asks; whoever waits for what is there now; groups that may be empty."""
        namespace = namespace_of(obj)
        if kind == "pods":
            was_told = key_of(obj) in self._told
            found = [f"pods {key_of(obj)}"] if self._asks(obj) or was_told else []
            names = dict.fromkeys(_group_name_of(one) for one in (old, obj) if one is not None)
            return [*found, *(f"podgroups {namespace}/{name}" for name in names if name)]
        found = [
            f"pods {key_of(pod)}"
            for pod in seen.list_namespace("pods", namespace)
            if self._asks(pod)
        ]
        return [*found, f"podgroups {key_of(obj)}"] if kind != "compositepodgroups" else found

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Link a pod, or let a group go."""
        kind, _, key = key.partition(" ")
        obj = seen.get(kind, key)
        if kind == "pods" and (obj is None or not self._asks(obj)):
            self._told.pop(key, None)
        if obj is None or is_ending(obj):
            return
        if kind == "pods":
            self._link(seen, obj, todo)
        elif MADE in (obj["metadata"].get("labels") or {}):
            self._reconcile_group(seen, obj, todo)

    def _link(self, seen: ObjectStore, pod: Object, todo: ReconcileResult) -> None:
        if not self._asks(pod) or is_finished(pod):
            return
        owner = owner_of(pod)
        version = str(owner.get("apiVersion", "")) if owner is not None else ""
        # Others have a kind of that name too.
        is_of_job = owner is not None and owner["kind"] == "Job" and version.startswith("batch/")
        job = seen.get("jobs", f"{namespace_of(pod)}/{owner['name']}") if owner else None
        if is_of_job and job is None:
            return  # it comes
        try:
            plan = plan_of(pod, job if is_of_job else None)
        except GroupPlanError as error:
            why = f"No PodGroup was created: {error}"
            if self._told.get(key_of(pod)) != why:
                self._told[key_of(pod)] = why
                todo.warn(pod, "NoPodGroup", why, self.name)
            return
        if _make(seen, plan, todo):
            return
        patch: Object = {"metadata": {"labels": {POD_GROUP: plan.own}}}
        if _has_gate(pod):
            patch["spec"] = {"schedulingGates": [{"$patch": "delete", "name": GATE}]}
        todo.patch("pods", pod, patch)

    def _reconcile_group(self, seen: ObjectStore, group: Object, todo: ReconcileResult) -> None:
        """One of a Job needs as many pods as that runs; one that nobody owns goes with its pods."""
        if group["metadata"].get("ownerReferences"):
            self._follow(seen, group, todo)
            return
        for pod in seen.list_namespace("pods", namespace_of(group)):
            if _group_name_of(pod) == name_of(group) or self._asks(pod):
                return
        due_ns = created_ns(group) + EMPTY_NS
        if todo.now_ns < due_ns:
            todo.requeue_at(due_ns)
        else:
            todo.delete("podgroups", group)

    def _follow(self, seen: ObjectStore, group: Object, todo: ReconcileResult) -> None:
        """Where the Job needs fewer pods or more; v1alpha2 cannot be changed."""
        job = seen.get("jobs", key_of(group))
        references = group["metadata"].get("ownerReferences") or ()
        if job is None or uid_of(job) not in {r.get("uid") for r in references}:
            return
        if todo.versions.get("podgroups", "").endswith("/v1alpha2"):
            return
        count, gang = count_of(job), group["spec"]["schedulingPolicy"].get("gang")
        if gang is not None and count is not None and gang.get("minCount") != count:
            patch = {"spec": {"schedulingPolicy": {"gang": {"minCount": count}}}}
            todo.patch("podgroups", group, patch, form=MERGE)


def _make(seen: ObjectStore, plan: GroupPlan, todo: ReconcileResult) -> bool:
    """Make the first group that is not there: the next comes when it is seen. Whether one was."""
    for kind, obj in plan.groups:
        if seen.get(kind, key_of(obj)) is None:
            labels = {MADE: "true"}
            todo.create(kind, {**obj, "metadata": {**obj["metadata"], "labels": labels}})
            return True
    return False


def _group_name_of(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(POD_GROUP) or "")


def _is_linked(pod: Object) -> bool:
    return bool(
        _group_name_of(pod) or (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    )


def _has_gate(pod: Object) -> bool:
    return any(g.get("name") == GATE for g in pod["spec"].get("schedulingGates") or ())
