"""PodGroup (scheduling.k8s.io): pods that are scheduled together, and the claims that they share.

One view of all versions: v1alpha2 (Kubernetes 1.36) has no parent, names its template in
`podGroupTemplateRef` and its disruption mode by a word; v1beta1 and v1alpha3 (1.37) have a parent,
`workloadRef` and a struct. Source: KEP-4671, 5732, 5710, 5729, 6012.
"""

from typing import Any, Final

import msgspec

from stower.model.kinds.pod import PodResourceClaim, PodResourceClaimStatus
from stower.model.meta import ObjectMeta
from stower.model.numbers import Int32, Int64

API_GROUP: Final = "scheduling.k8s.io"
RESOURCE: Final = "podgroups"
# The parent of a group, where its version has no field for it: a label.
PARENT_GROUP: Final = "stower.dev/parent-group"
# The node label whose value all pods of a group should rather share: an annotation.
PREFERRED: Final = "stower.dev/preferred-topology"


class GangPolicy(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """At least so many pods at once."""

    min_count: Int32 = 0


class PodGroupPolicy(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Basic: as many as there is room for; gang: a minimum or none."""

    basic: dict[str, Any] | None = None
    gang: GangPolicy | None = None


class TopologyConstraint(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """All pods in one domain of this node label."""

    key: str = ""


class GroupConstraints(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Where the pods of a group may be, with regard to each other."""

    topology: tuple[TopologyConstraint, ...] | None = None

    @property
    def key(self) -> str:
        """The one key, "" for none."""
        return self.topology[0].key if self.topology else ""


class WorkloadReference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The template that a group was made from."""

    workload_name: str = ""
    template_name: str = ""


class WorkloadTemplate(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The same in v1alpha2."""

    workload_name: str = ""
    pod_group_template_name: str = ""


class TemplateReference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The same in v1alpha2."""

    workload: WorkloadTemplate | None = None


# A word in v1alpha2, a struct with one member since.
DisruptionMode = str | dict[str, Any]


def is_whole(mode: DisruptionMode | None) -> bool:
    """Whether who is disrupted is disrupted as a whole."""
    return mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode)


class PodGroupSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What the group has for all its pods."""

    parent_composite_pod_group_name: str = ""
    workload_ref: WorkloadReference | None = None
    pod_group_template_ref: TemplateReference | None = None
    scheduling_policy: PodGroupPolicy = PodGroupPolicy()
    scheduling_constraints: GroupConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None


class GroupCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """metav1.Condition."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: Int64 = 0


class PodGroupStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What became of it, and the claims that were made for it."""

    conditions: tuple[GroupCondition, ...] | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] | None = None


class PodGroup(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Pods that belong together."""

    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def minimum(self) -> int:
        """So many pods, or none; one where the policy is basic."""
        gang = self.spec.scheduling_policy.gang
        return max(gang.min_count, 1) if gang is not None else 1

    @property
    def is_gang(self) -> bool:
        """Whether it has a minimum of its own."""
        return self.spec.scheduling_policy.gang is not None

    @property
    def workload_name(self) -> str:
        """The Workload that it was made from, "" for none."""
        if self.spec.workload_ref is not None:
            return self.spec.workload_ref.workload_name
        old = self.spec.pod_group_template_ref
        return old.workload.workload_name if old is not None and old.workload is not None else ""
