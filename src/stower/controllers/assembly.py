"""All actors of a cluster."""

from collections.abc import Sequence

from stower.controllers.cluster import Cluster
from stower.controllers.cron_job import CronJobs
from stower.controllers.daemon_set import DaemonSets
from stower.controllers.deployment import Deployments
from stower.controllers.device_taints import DeviceTaints
from stower.controllers.disruption import Disruptions
from stower.controllers.garbage import GarbageCollector
from stower.controllers.group_makers import GroupMakers
from stower.controllers.job import Jobs
from stower.controllers.kubelet import Kubelets
from stower.controllers.namespaces import Namespaces, collections_of
from stower.controllers.node_lifecycle import NodeLifecycle
from stower.controllers.objects import versions_of
from stower.controllers.pod_groups import PodGroups
from stower.controllers.preset_nodes import PresetNodes
from stower.controllers.replica_set import ReplicaSets
from stower.controllers.resource_claims import ResourceClaims
from stower.controllers.runtime import Actors
from stower.controllers.service_accounts import ServiceAccounts
from stower.controllers.stateful_set import StatefulSets
from stower.controllers.virtual_machines import VirtualMachines
from stower.controllers.vm_agents import VmAgents
from stower.controllers.vm_migrations import VmMigrations
from stower.controllers.volumes import Volumes


def build_group_makers(served: Sequence[tuple[str, str]]) -> Actors:
    """What makes groups for pods that ask for it, for clusters that have controllers."""
    return Actors((GroupMakers(),), versions_of(served))


def build_vm_controllers() -> Actors:
    """VMs and their migrations, and what clears up after them."""
    kinds = ("pods", "virtualmachines", "virtualmachinemigrations")
    return Actors((VirtualMachines(), VmMigrations(), GarbageCollector(kinds)))


def build_vm_agents() -> Actors:
    """What scales VMs."""
    return Actors((VmAgents(),))


def build_actors(cluster: Cluster, served: Sequence[tuple[str, str]]) -> Actors:
    """Kubelets for the cluster's nodes, and every controller.

    `served`: apiVersion and plural of all kinds in namespaces.
    """
    return Actors(
        (
            Kubelets(cluster),
            NodeLifecycle(),
            Deployments(),
            ReplicaSets(),
            StatefulSets(),
            DaemonSets(),
            Jobs(),
            CronJobs(),
            Volumes(),
            ResourceClaims(),
            GroupMakers(),
            PodGroups(),
            PresetNodes(),
            DeviceTaints(),
            VirtualMachines(),
            VmMigrations(),
            VmAgents(),
            Disruptions(),
            GarbageCollector(),
            Namespaces(collections_of(served)),
            ServiceAccounts(),
        ),
        versions_of(served),
    )
