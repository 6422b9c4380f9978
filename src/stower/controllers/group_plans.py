"""Derives the pod groups of a pod from its Job, JobSet or LeaderWorkerSet, or from its labels.

Must not know how groups are written. Source of the keys: JobSet api/jobset/v1alpha2,
LeaderWorkerSet api/leaderworkerset/v1, scheduler-plugins apis/scheduling, Kueue
pkg/controller/jobs/pod/constants and apis/kueue/v1beta2 (topology).
"""

from typing import Any, Final, NamedTuple

from stower.controllers.objects import Object, name_of, namespace_of, owner_of
from stower.model import names
from stower.model.gang_kinds import BY_LABEL, JOB_SET, KUEUE, LWS, PYTORCH
from stower.model.kinds.pod_group import PREFERRED

MIN_COUNT: Final = "stower.dev/min-count"
MIN_GROUP_COUNT: Final = "stower.dev/min-group-count"
COUNT_MAX: Final = 2**31 - 1

# Where the number of pods in a group is.
KUEUE_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
LABEL_COUNT: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
LWS_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
# A replica has a domain of this key for itself: its pods say so by affinity. Its workers come
# once its leader has a node, with that one's domain as their node selector.
LWS_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
JOB_SET_JOBS: Final = "jobset.sigs.k8s.io/global-replicas"
# Of a PyTorchJob: the number of its pods, in the environment that its operator gives them.
PYTORCH_COUNT: Final = "PET_NNODES"
REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
WISHED: Final = "kueue.x-k8s.io/podset-preferred-topology"


class Group(NamedTuple):
    """One group to make: its kind (the plural) and the object without its apiVersion."""

    kind: str
    obj: Object


class GroupPlan(NamedTuple):
    """Groups, parents first; the last is the pod's own."""

    groups: tuple[Group, ...]

    @property
    def own(self) -> str:
        """The name of the pod's PodGroup."""
        return name_of(self.groups[-1].obj)


class GroupPlanError(Exception):
    """The pod does not say in which group it is, or how many there are in it."""


def plan_of(pod: Object, job: Object | None) -> GroupPlan:
    """The groups of a pod. `job`: the Job that made it, where one did. Raises NoPlan."""
    meta = pod["metadata"]
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    if KUEUE in labels:
        return _plan_single_group(pod, labels[KUEUE], _count(notes, KUEUE_COUNT, notes))
    for key in BY_LABEL:
        if key in labels:
            return _plan_single_group(pod, labels[key], _count(labels, LABEL_COUNT, notes))
    if LWS in labels:
        name = f"{labels[LWS]}-{labels.get(LWS_INDEX, '0')}"
        count = _count(notes, LWS_SIZE, notes)
        if LWS_EXCLUSIVE in notes and MIN_COUNT not in notes:
            count = 1  # a gang would wait for pods that wait for it
        return _plan_single_group(pod, name, count)
    if PYTORCH in labels:
        values = _environment(pod)
        if PYTORCH_COUNT in values:  # of an elastic one, "least:most"
            values[PYTORCH_COUNT] = values[PYTORCH_COUNT].partition(":")[0]
        return _plan_single_group(pod, labels[PYTORCH], _count(values, PYTORCH_COUNT, notes))
    if job is None:
        raise GroupPlanError(
            f"the pod has no Job as controller, nor a label {KUEUE}, {BY_LABEL[0]} or {LWS}"
        )
    count = _number(notes, MIN_COUNT) or _of_job(job)
    if JOB_SET not in labels:
        return _plan_single_group(pod, name_of(job), count, job)
    root = str(labels[JOB_SET])
    jobs = _number(notes, MIN_GROUP_COUNT) or _number({**notes, **labels}, JOB_SET_JOBS)
    if not jobs:
        raise GroupPlanError(
            f"no label or annotation {JOB_SET_JOBS} gives the number of Jobs in the JobSet: "
            f"set the annotation {MIN_GROUP_COUNT}"
        )
    whole = _composite(pod, root, jobs, owner_of(job))
    return GroupPlan((whole, _pods(pod, name_of(job), count, owner_of(pod), root)))


def _environment(pod: Object) -> Object:
    """The values that a pod's containers have in their environment, by name."""
    return {
        str(one.get("name")): str(one.get("value"))
        for container in pod["spec"].get("containers") or ()
        for one in container.get("env") or ()
        if "value" in one
    }


def _plan_single_group(pod: Object, name: str, count: int, job: Object | None = None) -> GroupPlan:
    return GroupPlan((_pods(pod, str(name), count, owner_of(pod) if job is not None else None),))


def _of_job(job: Object) -> int:
    """So many pods of it run at once, from now on."""
    spec = job["spec"]
    parallelism = int(spec.get("parallelism", 1))
    if spec.get("completions") is None:
        return max(1, parallelism)
    done = int((job.get("status") or {}).get("succeeded") or 0)
    return max(1, min(parallelism, int(spec["completions"]) - done))


def count_of(job: Object) -> int | None:
    """So many pods the group of a Job needs; None where its pods say it themselves."""
    meta = (job["spec"].get("template") or {}).get("metadata") or {}
    return None if MIN_COUNT in (meta.get("annotations") or {}) else _of_job(job)


def _count(where: Object, key: str, notes: Object) -> int:
    found = _number(notes, MIN_COUNT) or _number(where, key)
    if not found:
        raise GroupPlanError(
            f"{key} does not give the number of pods in the group: set the annotation {MIN_COUNT}"
        )
    return found


def _number(where: Object, key: str) -> int:
    """A number of pods or groups; 0 where it is not there. Raises NoPlan where it is none."""
    text = where.get(key)
    if text is None:
        return 0
    number = int(text) if text.isdecimal() and text.isascii() and len(text) < 11 else 0
    if not 0 < number <= COUNT_MAX:
        raise GroupPlanError(f'{key}: got "{text}", want a number from 1 to {COUNT_MAX:,}')
    return number


def _pods(pod: Object, name: str, count: int, owner: Object | None, parent: str = "") -> Group:
    spec: Object = {"schedulingPolicy": {"gang": {"minCount": count}}}
    notes = pod["metadata"].get("annotations") or {}
    for key in (REQUIRED, WISHED, LWS_EXCLUSIVE):
        for fault in names.qualified_name_faults(notes.get(key, "x")):
            raise GroupPlanError(f'{key}: got "{notes[key]}": {fault}')
    if topology := notes.get(REQUIRED) or notes.get(LWS_EXCLUSIVE):
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    if parent:
        spec["parentCompositePodGroupName"] = parent
        spec["workloadRef"] = {"workloadName": parent, "templateName": "job"}
    return Group("podgroups", _object(pod, name, spec, owner))


def _composite(pod: Object, name: str, count: int, owner: Object | None) -> Group:
    spec = {
        "schedulingPolicy": {"gang": {"minGroupCount": count}},
        "workloadRef": {"workloadName": name, "templateName": "jobset"},
    }
    return Group("compositepodgroups", _object(pod, name, spec, owner))


def _object(pod: Object, name: str, spec: Object, owner: Object | None) -> Object:
    for fault in names.long_name_faults(name):
        raise GroupPlanError(f'"{name}" is no valid name for the group: {fault}')
    notes = pod["metadata"].get("annotations") or {}
    made: dict[str, Any] = {"name": name, "namespace": namespace_of(pod)}
    if WISHED in notes and "parentCompositePodGroupName" not in spec:
        made["annotations"] = {PREFERRED: notes[WISHED]}
    if owner is not None:
        made["ownerReferences"] = [owner]
    return {"metadata": made, "spec": spec}
