"""Feature gates of Dynamic Resource Allocation, with the defaults of Kubernetes 1.36."""

from typing import NamedTuple


class DeviceGates(NamedTuple):
    """Feature gates of resource.k8s.io/v1: whether each feature is enabled."""

    admin_access: bool = True  # DRAAdminAccess
    prioritized_list: bool = True  # DRAPrioritizedList
    partitionable: bool = True  # DRAPartitionableDevices
    taints: bool = True  # DRADeviceTaints
    binding: bool = True  # DRADeviceBindingConditions and DRAResourceClaimDeviceStatus
    consumable: bool = True  # DRAConsumableCapacity
    list_attributes: bool = False  # DRAListTypeAttributes
    extended_resources: bool = True  # DRAExtendedResource
    group_claims: bool = False  # DRAWorkloadResourceClaims
    node_allocatable: bool = False  # DRANodeAllocatableResources
