"""CompositePodGroup (scheduling.k8s.io/v1alpha3): pod groups scheduled together (KEP-6012)."""

from typing import Any

import msgspec

from stower.model.kinds.pod_group import (
    DisruptionMode,
    GroupCondition,
    GroupConstraints,
    WorkloadReference,
)
from stower.model.meta import ObjectMeta
from stower.model.numbers import Int32


class GangOfGroups(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """At least so many of its groups at once."""

    min_group_count: Int32 = 0


class CompositePolicy(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Basic: as many groups as there is room for; gang: a minimum or none."""

    basic: dict[str, Any] | None = None
    gang: GangOfGroups | None = None


class CompositePodGroupSpec(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True
):
    """What the group has for all below it."""

    parent_composite_pod_group_name: str = ""
    workload_ref: WorkloadReference | None = None
    scheduling_policy: CompositePolicy = CompositePolicy()
    scheduling_constraints: GroupConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None


class CompositePodGroupStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True
):
    """What became of it."""

    conditions: tuple[GroupCondition, ...] | None = None


class CompositePodGroup(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Groups that belong together."""

    metadata: ObjectMeta
    spec: CompositePodGroupSpec = CompositePodGroupSpec()
    status: CompositePodGroupStatus = CompositePodGroupStatus()

    @property
    def minimum(self) -> int:
        """So many of its groups, or none; one where the policy is basic."""
        gang = self.spec.scheduling_policy.gang
        return max(gang.min_group_count, 1) if gang is not None else 1

    @property
    def is_gang(self) -> bool:
        """Whether it has a minimum of its own."""
        return self.spec.scheduling_policy.gang is not None

    @property
    def workload_name(self) -> str:
        """The Workload that it was made from, "" for none."""
        return self.spec.workload_ref.workload_name if self.spec.workload_ref is not None else ""
