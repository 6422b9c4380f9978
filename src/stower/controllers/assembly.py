"""Builds the controller managers of a cluster: kubelets, controllers, VMs, agents, pod groups."""

from collections.abc import Iterable, Sequence

from stower.controllers.cluster import Cluster
from stower.controllers.cron_job import CronJobController
from stower.controllers.daemon_set import DaemonSetController
from stower.controllers.deployment import DeploymentController
from stower.controllers.device_taints import DeviceTaintEvictionController
from stower.controllers.disruption import DisruptionController
from stower.controllers.endpoint_slices import EndpointSliceController
from stower.controllers.endpoints import EndpointsController
from stower.controllers.ephemeral_volumes import EphemeralVolumeController
from stower.controllers.garbage import GarbageCollector
from stower.controllers.group_makers import PodGroupMaker
from stower.controllers.job import JobController
from stower.controllers.kubelet import Kubelets
from stower.controllers.namespaces import NamespaceController, collections_of
from stower.controllers.node_lifecycle import NodeLifecycleController
from stower.controllers.objects import versions_of
from stower.controllers.pod_groups import PodGroupProtectionController
from stower.controllers.preset_nodes import PresetNodeController
from stower.controllers.replica_set import ReplicaSetController
from stower.controllers.resource_claims import ResourceClaimController
from stower.controllers.resource_quota import ResourceQuotaController
from stower.controllers.root_ca import RootCaPublisher
from stower.controllers.runtime import ControllerManager
from stower.controllers.service_accounts import ServiceAccountController
from stower.controllers.stateful_set import StatefulSetController
from stower.controllers.virtual_machines import VirtualMachineController
from stower.controllers.vm_agents import VmAgentController
from stower.controllers.vm_migrations import VmMigrationController
from stower.controllers.volume_expansion import VolumeExpansionController
from stower.controllers.volumes import PersistentVolumeController


def build_group_makers(
    served: Sequence[tuple[str, str]], gang_kinds: Iterable[str] = ()
) -> ControllerManager:
    """What makes groups for pods that ask for it, and for those of these kinds, for clusters that
    have controllers."""
    return ControllerManager((PodGroupMaker(gang_kinds),), versions_of(served))


def build_vm_controllers() -> ControllerManager:
    """VMs and their migrations, and what clears up after them."""
    kinds = ("pods", "virtualmachines", "virtualmachinemigrations")
    return ControllerManager(
        (VirtualMachineController(), VmMigrationController(), GarbageCollector(kinds))
    )


def build_vm_agents() -> ControllerManager:
    """What scales VMs."""
    return ControllerManager((VmAgentController(),))


def build_controllers(
    cluster: Cluster,
    served: Sequence[tuple[str, str]],
    gang_kinds: Iterable[str] = (),
    authority: str = "",
    version: str = "",
) -> ControllerManager:
    """Kubelets for the cluster's nodes, and every controller.

    `served`: apiVersion and plural of all kinds in namespaces; `gang_kinds`: of which pods get a
    group without asking; `authority`: certificates of the API server's authorities in PEM;
    `version`: the API server's, which its nodes have too.
    """
    return ControllerManager(
        (
            Kubelets(cluster, version),
            NodeLifecycleController(),
            DeploymentController(),
            ReplicaSetController(),
            ReplicaSetController("replicationcontrollers", "replicationcontroller-controller"),
            StatefulSetController(),
            DaemonSetController(),
            JobController(),
            CronJobController(),
            PersistentVolumeController(),
            VolumeExpansionController(),
            EphemeralVolumeController(),
            ResourceClaimController(),
            PodGroupMaker(gang_kinds),
            PodGroupProtectionController(),
            PresetNodeController(),
            DeviceTaintEvictionController(),
            VirtualMachineController(),
            VmMigrationController(),
            VmAgentController(),
            DisruptionController(),
            ResourceQuotaController(),
            EndpointsController(),
            EndpointSliceController(),
            GarbageCollector(),
            NamespaceController(collections_of(served)),
            ServiceAccountController(),
            RootCaPublisher(authority),
        ),
        versions_of(served),
    )
