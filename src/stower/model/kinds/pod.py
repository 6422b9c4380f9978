"""Pod (core/v1): the fields that scheduling reads. All other fields stay in the raw bytes."""

from typing import Final

import msgspec

from stower.model.meta import ObjectMeta
from stower.model.numbers import Int32, Int64
from stower.model.selectors import LabelSelector, NodeSelector, PreferredSchedulingTerm
from stower.model.taints import Toleration

# A quantity as JSON has it: text, or a bare number. Parsed by whoever adds it up.
ResourceList = dict[str, str | Int64 | float]


class ContainerClaim(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An entry of the pod's claims that a container uses."""

    name: str = ""


class ResourceRequirements(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Requests and limits of a container or a whole pod, and the claims that a container uses."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None
    claims: tuple[ContainerClaim, ...] | None = None


class ContainerPort(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A port of a container; only one with a host port matters to scheduling."""

    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class RestartRule(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What is done when a container exits (KEP-5307)."""

    action: str = ""


class Container(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A container; restart_policy Always makes an init container a sidecar (KEP-753)."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[RestartRule, ...] | None = None


class NodeAffinity(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Which nodes a pod must have and would like."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredSchedulingTerm, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Other pods, and the topology domain in which to meet or avoid them."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class WeightedPodAffinityTerm(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A pod affinity term that counts `weight` (1-100) towards a score."""

    weight: Int32
    pod_affinity_term: PodAffinityTerm


class PodAffinity(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Which other pods a pod must be near (or, as anti-affinity, away from)."""

    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """All affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True
):
    """How evenly matching pods must lie over the domains of a topology key."""

    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


class PodSchedulingGate(msgspec.Struct, frozen=True, gc=False):
    """While a pod has one, it is not scheduled (KEP-3521)."""

    name: str


class ImageVolume(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An image mounted as a volume (KEP-4639)."""

    reference: str = ""


class ClaimSource(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A claim of the pod's namespace."""

    claim_name: str = ""


class EphemeralSource(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A claim that is made for the pod (KEP-1698)."""


class DiskID(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A disk by its id: AWS EBS, Cinder, Portworx."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class GCEDiskSource(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A GCE persistent disk."""

    pd_name: str = ""
    read_only: bool = False


class AzureDiskSource(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An Azure data disk."""

    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str = ""


class ISCSISource(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """An iSCSI disk."""

    iqn: str = ""
    read_only: bool = False


class RBDSource(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A Ceph block device."""

    monitors: tuple[str, ...] = ()
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class CSIVolumeSource(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A volume that a CSI driver makes for the pod."""

    driver: str = ""


class Volume(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A volume; those sources that scheduling knows."""

    name: str = ""
    image: ImageVolume | None = None
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    csi: CSIVolumeSource | None = None
    gce_persistent_disk: GCEDiskSource | None = None
    aws_elastic_block_store: DiskID | None = None
    azure_disk: AzureDiskSource | None = None
    cinder: DiskID | None = None
    portworx_volume: DiskID | None = None
    iscsi: ISCSISource | None = None
    rbd: RBDSource | None = None


class PodResourceClaim(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A claim for devices, by its name or by the template that it is made from."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGroup(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The PodGroup that the pod belongs to (KEP-4671)."""

    pod_group_name: str | None = None


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What is asked for."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] | None = None
    active_deadline_seconds: int | None = None
    overhead: ResourceList | None = None
    resources: ResourceRequirements | None = None
    volumes: tuple[Volume, ...] | None = None
    host_network: bool = False
    host_users: bool | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None
    scheduling_group: SchedulingGroup | None = None


class PodCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One condition of a pod."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What a container has been given, which differs from its spec during a resize (KEP-1287)."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList | None = None


class PodResourceClaimStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True
):
    """The claim that was made for an entry of the pod; without a name, none was needed."""

    name: str = ""
    resource_claim_name: str | None = None


class ExtendedResourceRequest(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True
):
    """A container's extended resource, and the request of the claim that it is met by."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedResourceClaimStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True
):
    """The claim that was made for the pod's extended resources (KEP-5004)."""

    request_mappings: tuple[ExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class ClaimedResources(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What the devices of a claim take of their node's own resources, and which containers use the
    claim (NodeAllocatableResourceClaimStatus; KEP-5517)."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: ResourceList = {}


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What has become of the pod."""

    phase: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    conditions: tuple[PodCondition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList | None = None
    start_time: str | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] | None = None
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None
    node_allocatable_resource_claim_statuses: tuple[ClaimedResources, ...] | None = None


# Phases of pods that have ended.
TERMINAL: Final = ("Succeeded", "Failed")
# Which PodGroup a pod belongs to, where its spec does not say.
POD_GROUP: Final = "stower.dev/pod-group"
# The condition of a pod, or of a group, that somebody has to go.
DISRUPTION_TARGET: Final = "DisruptionTarget"
PREEMPT_NEVER: Final = "Never"  # the preemptionPolicy of pods and groups that evict nobody


class Pod(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def priority(self) -> int:
        """0 where none was resolved at admission."""
        return self.spec.priority or 0

    @property
    def group_name(self) -> str:
        """The PodGroup of its namespace that it belongs to, or "". Where the API has no field for
        it, or the pod comes from somebody who cannot set it, it is a label."""
        group = self.spec.scheduling_group
        if group is not None:
            return group.pod_group_name or ""
        labels = self.metadata.labels
        return labels.get(POD_GROUP, "") if labels else ""

    @property
    def is_terminal(self) -> bool:
        """Ended: it holds no room any more."""
        return self.status.phase in TERMINAL

    def condition(self, type: str) -> PodCondition | None:
        """The condition of that type, or None."""
        for condition in self.status.conditions or ():
            if condition.type == type:
                return condition
        return None
