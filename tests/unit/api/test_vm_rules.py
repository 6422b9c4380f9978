"""Rules for VMs and migrations, as neon's webhooks have them."""

import copy
from typing import Any

import pytest

from tests.unit.api.test_device_rules import Client
from tests.vms.test_machines import machine

Object = dict[str, Any]
VMS = "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines"
MIGRATIONS = "/apis/vm.neon.tech/v1/namespaces/default/virtualmachinemigrations"


def with_guest(**fields: Any) -> Object:
    vm = machine()
    vm["spec"]["guest"] |= fields
    return vm


@pytest.fixture
def client() -> Client:
    return Client()


def test_a_vm_has_the_defaults_of_its_definition(client: Client) -> None:
    _, made = client.send("POST", VMS, with_guest(cpus={"min": 0.25, "use": "250m", "max": 1.25}))
    spec = made["spec"]
    assert ("Always", True, 20_183, 5) == (
        spec["restartPolicy"], spec["enableSSH"], spec["qmp"],
        spec["terminationGracePeriodSeconds"],
    )  # fmt: skip
    assert "IfNotPresent" == spec["guest"]["rootDisk"]["imagePullPolicy"]


@pytest.mark.parametrize(
    ("vm", "field"),
    [
        (with_guest(cpus={"min": 1, "use": "500m", "max": 2}), "spec.guest.cpus.use"),
        (with_guest(cpus={"min": 1, "use": 3, "max": 2}), "spec.guest.cpus.use"),
        (with_guest(cpus={"min": 1, "use": "many", "max": 2}), "spec.guest.cpus.use"),
        (with_guest(cpus={"min": 1, "max": 2}), "spec.guest.cpus.use"),
        (with_guest(memorySlots={"min": 2, "use": 1, "max": 3}), "spec.guest.memorySlots.use"),
        (with_guest(memorySlots={"min": 2, "use": 4, "max": 3}), "spec.guest.memorySlots.use"),
        (with_guest(memorySlotSize="1001Ki"), "spec.guest.memorySlotSize"),
        (with_guest(ports=[{"port": 1, "name": "qmp"}]), "spec.guest.ports[0].name"),
        (machine(disks=[{"name": "tls", "mountPath": "/a"}]), "spec.disks[0].name"),
        (machine(disks=[{"name": "d" * 33, "mountPath": "/a"}]), "spec.disks[0].name"),
        (machine(restartPolicy="Sometimes"), "spec.restartPolicy"),
    ],
)
def test_what_no_vm_can_be(client: Client, vm: Object, field: str) -> None:
    assert {field} == {name for name, _ in client.faults("POST", VMS, vm)}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"guest": {"cpus": {"use": 4}}}, ""),
        ({"guest": {"memorySlots": {"use": 2}}}, ""),
        ({"guest": {"cpus": {"min": "1000m"}}}, ""),  # the same amount
        ({"guest": {"cpus": {"use": 5}}}, "spec.guest.cpus.use"),
        ({"guest": {"cpus": {"max": 8}}}, "spec.guest.cpus.max"),
        ({"guest": {"rootDisk": {"image": "other"}}}, "spec.guest.rootDisk"),
        ({"enableSSH": False}, "spec.enableSSH"),
        ({"cpuScalingMode": "SysfsScaling"}, "spec.cpuScalingMode"),
        ({"overcommit": {"cpu": 2}}, ""),
    ],
)
def test_of_its_size_what_a_vm_uses_may_change(client: Client, changes: Object, field: str) -> None:
    client.send("POST", VMS, copy.deepcopy(machine(cpuScalingMode="QmpScaling")))
    found = client.faults("PATCH", f"{VMS}/vm1", {"spec": changes})
    assert ({field} if field else set()) == {name for name, _ in found}


def test_what_a_migration_is_for_stays(client: Client) -> None:
    body = {"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration",
            "metadata": {"name": "m1"}, "spec": {"vmName": "vm1"}}  # fmt: skip
    _, made = client.send("POST", MIGRATIONS, body)
    spec = made["spec"]
    assert (3600, "1Gi", True) == (
        spec["completionTimeout"], spec["maxBandwidth"], spec["incremental"],
    )  # fmt: skip
    assert {("spec", "Invalid")} == {
        (name, why)
        for name, why in client.faults(
            "PATCH", f"{MIGRATIONS}/m1", {"spec": {"incremental": False}}
        )
    }
    bad = {**body, "metadata": {"name": "m2"}, "spec": {"vmName": ""}}
    assert {"spec.vmName"} == {name for name, _ in client.faults("POST", MIGRATIONS, bad)}
