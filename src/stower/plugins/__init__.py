"""The in-tree plugins, one per file. PLUGINS lists their classes."""

from typing import Final

from stower.framework.plugin import Plugin
from stower.plugins.autoscale_enforcer import AutoscaleEnforcer
from stower.plugins.default_binder import DefaultBinder
from stower.plugins.default_preemption import DefaultPreemption
from stower.plugins.dynamic_resources import DynamicResources
from stower.plugins.fragmentation import Fragmentation
from stower.plugins.group_making import GroupMaking
from stower.plugins.image_locality import ImageLocality
from stower.plugins.image_readiness import ImageReadiness
from stower.plugins.inter_pod_affinity import InterPodAffinity
from stower.plugins.negotiated_resources import NegotiatedResources
from stower.plugins.node_affinity import NodeAffinity
from stower.plugins.node_declared_features import NodeDeclaredFeatures
from stower.plugins.node_name import NodeName
from stower.plugins.node_ports import NodePorts
from stower.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from stower.plugins.node_resources_fit import NodeResourcesFit
from stower.plugins.node_unschedulable import NodeUnschedulable
from stower.plugins.node_volume_limits import NodeVolumeLimits
from stower.plugins.nominated_vms import NominatedVms
from stower.plugins.pending_class import PendingClass
from stower.plugins.pod_topology_spread import PodTopologySpread
from stower.plugins.priority_sort import PrioritySort
from stower.plugins.scheduling_gates import SchedulingGates
from stower.plugins.taint_toleration import TaintToleration
from stower.plugins.volume_binding import VolumeBinding
from stower.plugins.volume_restrictions import VolumeRestrictions
from stower.plugins.volume_zone import VolumeZone
from stower.plugins.warm_capacity import WarmCapacity

PLUGINS: Final[tuple[type[Plugin], ...]] = (
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    NegotiatedResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    NodeDeclaredFeatures,
    Fragmentation,
    AutoscaleEnforcer,
    NominatedVms,
    ImageReadiness,
    WarmCapacity,
    GroupMaking,
    PendingClass,
)
