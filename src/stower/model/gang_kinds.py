"""Which pods are gangs by what made them, and so get a pod group without asking for one.

A pod says by the annotation stower.dev/gang whether it is one: "false" for those whose maker starts
them one after another's readiness (a gang waits for all of them), "true" for those of a Job, most
of which are none.

Source of the labels: JobSet api/jobset/v1alpha2, LeaderWorkerSet api/leaderworkerset/v1,
training-operator pkg/apis/kubeflow.org/v1, scheduler-plugins apis/scheduling, Kueue
pkg/controller/jobs/pod/constants.
"""

from collections.abc import Mapping
from typing import Final

JOB_SET: Final = "jobset.sigs.k8s.io/jobset-name"
LWS: Final = "leaderworkerset.sigs.k8s.io/name"
PYTORCH: Final = "training.kubeflow.org/job-name"
# Of plain pods: the label that names the group.
KUEUE: Final = "kueue.x-k8s.io/pod-group-name"
BY_LABEL: Final = (
    "scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
)  # fmt: skip
GANG: Final = "stower.dev/gang"  # an annotation, or a label: "true" or "false"

BY_KIND: Final[Mapping[str, tuple[str, ...]]] = {
    "jobset": (JOB_SET,),
    "leaderworkerset": (LWS,),
    "pytorchjob": (PYTORCH,),
    "pod-group": (KUEUE, *BY_LABEL),
    "job": (),
}
KINDS: Final = tuple(BY_KIND)


def gang_kind(labels: Mapping[str, str], notes: Mapping[str, str], owner_kind: str) -> str:
    """Returns one of KINDS, or "" for a pod that is no gang's. owner_kind: of its controller."""
    said = notes.get(GANG) or labels.get(GANG, "")
    if said == "false":
        return ""
    for kind, keys in BY_KIND.items():
        if any(key in labels for key in keys):
            return "" if kind == "pytorchjob" and owner_kind != "PyTorchJob" else kind
    return "job" if said == "true" and owner_kind == "Job" else ""
