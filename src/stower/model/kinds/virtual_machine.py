"""VirtualMachine and VirtualMachineMigration (vm.neon.tech/v1): VMs in pods, and their migrations.

Source: neondatabase/autoscaling neonvm/apis/neonvm/v1.
"""

from typing import Any, Final

import msgspec

from stower.model.meta import ObjectMeta

API_VERSION: Final = "vm.neon.tech/v1"


class VirtualMachine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A VM. What is scheduled is the pod that it runs in; its annotations are copied there."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class MigrationSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Which VM moves, and how. Only the controller of migrations reads the other fields."""

    vm_name: str = ""
    prevent_migration_to_same_host: Any = None
    completion_timeout: Any = None
    max_bandwidth: Any = None


class MigrationStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """How far it is: Pending, Running, Succeeded or Failed; and to which pod. Only the controller
    of migrations reads the other fields."""

    phase: str = ""
    target_pod_name: str = ""
    source_pod_name: Any = None
    source_node: Any = None
    target_node: Any = None
    conditions: Any = None
    info: Any = None


class VirtualMachineMigration(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A move of a VM from the pod that it runs in to another."""

    metadata: ObjectMeta
    spec: MigrationSpec = MigrationSpec()
    status: MigrationStatus = MigrationStatus()
