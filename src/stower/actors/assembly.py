"""All actors of a cluster."""

from collections.abc import Sequence

from stower.actors.cluster import Cluster
from stower.actors.cron_job import CronJobs
from stower.actors.daemon_set import DaemonSets
from stower.actors.deployment import Deployments
from stower.actors.device_taints import DeviceTaints
from stower.actors.disruption import Disruptions
from stower.actors.garbage import GarbageCollector
from stower.actors.group_makers import GroupMakers
from stower.actors.job import Jobs
from stower.actors.kubelet import Kubelets
from stower.actors.namespaces import Namespaces, collections_of
from stower.actors.node_lifecycle import NodeLifecycle
from stower.actors.objects import versions_of
from stower.actors.pod_groups import PodGroups
from stower.actors.preset_nodes import PresetNodes
from stower.actors.replica_set import ReplicaSets
from stower.actors.resource_claims import ResourceClaims
from stower.actors.runtime import Actors
from stower.actors.service_accounts import ServiceAccounts
from stower.actors.stateful_set import StatefulSets
from stower.actors.virtual_machines import VirtualMachines
from stower.actors.vm_agents import VmAgents
from stower.actors.vm_migrations import VmMigrations
from stower.actors.volumes import Volumes


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
