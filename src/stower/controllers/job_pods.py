"""Builds the pods of Jobs. Source: pkg/controller/job/job_controller.go, indexed_job_utils.go."""

from typing import Final

from stower.controllers.job_indexes import FAILURES, IGNORED_FAILURES, INDEX
from stower.controllers.job_sync import TRACKING, JobSync
from stower.controllers.objects import Object, name_of, uid_of
from stower.controllers.pods import pod_of

LABELS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
NAMES: Final = ("batch.kubernetes.io/job-name", "job-name")
GENERATED_NAME_MAX: Final = 58  # the API server appends 5 letters to at most as many
INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"


def build_pod(job: Object) -> Object:
    """A pod of a Job that is not Indexed."""
    labels: Object = {}
    if not job["spec"].get("manualSelector"):  # the API server puts them into the template
        labels = {**dict.fromkeys(LABELS, uid_of(job)), **dict.fromkeys(NAMES, name_of(job))}
    pod = pod_of(job["spec"]["template"], job, "jobs", "", labels)
    finalizers = pod["metadata"].get("finalizers") or []
    if TRACKING not in finalizers:
        finalizers = [*finalizers, TRACKING]
    return {**pod, "metadata": {**pod["metadata"], "finalizers": finalizers}}


def build_indexed_pod(sync: JobSync, index: int) -> Object:
    """The next pod of an index, with the number of failures before it where these are limited."""
    job, number = sync.job, str(index)
    pod = build_pod(job)
    meta = pod["metadata"]
    notes = {**(meta.get("annotations") or {}), INDEX: number}
    if sync.limit_per_index is not None:
        counted, ignored = sync.next_failures(index)
        notes[FAILURES] = str(counted)
        if ignored:
            notes[IGNORED_FAILURES] = str(ignored)
    suffix = f"-{number}-"
    return {
        "metadata": {
            **meta,
            "annotations": notes,
            "labels": {**meta["labels"], INDEX: number},
            "generateName": f"{name_of(job)[: GENERATED_NAME_MAX - len(suffix)]}{suffix}",
        },
        "spec": _with_index_variable(
            {**pod["spec"], "hostname": f"{name_of(job)}-{number}"}
        ),
    }  # fmt: skip


def _with_index_variable(spec: Object) -> Object:
    reference = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    variable = {"name": INDEX_VARIABLE, "valueFrom": reference}
    for field in ("initContainers", "containers"):
        if spec.get(field):
            spec[field] = [
                container
                if any(v.get("name") == INDEX_VARIABLE for v in container.get("env") or ())
                else {**container, "env": [*(container.get("env") or ()), variable]}
                for container in spec[field]
            ]
    return spec
