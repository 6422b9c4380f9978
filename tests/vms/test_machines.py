"""VMs on a whole cluster in memory: their pods, sizes and moves, by the actors of `stower up`."""

from typing import Any

import msgspec
import pytest

from tests.unit.controllers.cluster import Cluster, Object, pools
from tests.vms.rig import APPROVED, AUTOSCALING, MOVES, RESOURCES, SCHEDULER, configuration

NAME = "vm.neon.tech/name"
VM, MIGRATION = "VirtualMachine", "VirtualMachineMigration"


def machine(name: str = "vm1", use: int = 1, labels: Object | None = None, **spec: Any) -> Object:
    """A VM of so many CPUs and GiB, which may have four times that."""
    guest = {
        "cpus": {"min": use, "use": use, "max": 4 * use},
        "memorySlotSize": "1Gi",
        "memorySlots": {"min": use, "use": use, "max": 4 * use},
        "rootDisk": {"image": "postgres:17", "size": "8Gi"},
    }
    return {
        "apiVersion": "vm.neon.tech/v1",
        "kind": VM,
        "metadata": {"name": name, "labels": labels or {}, "annotations": {}},
        "spec": {"schedulerName": SCHEDULER, "guest": guest, **spec},
    }


def cluster(nodes: int = 2, **args: Any) -> Cluster:
    made = Cluster(
        pools(nodes, capacity={"cpu": "8", "memory": "32Gi", "pods": "20"}),
        configuration=configuration(**args),
    )
    made.advance(2)
    return made


def owners(pod: Object) -> list[tuple[str, bool]]:
    """Kinds, and whether they control it."""
    refs = pod["metadata"].get("ownerReferences") or ()
    return [(ref["kind"], ref.get("controller", False)) for ref in refs]


def status(found: Cluster, name: str = "vm1") -> Object:
    return dict(found.one("virtualmachines", name).get("status") or {})


def running(nodes: int = 2, **args: Any) -> Cluster:
    """With one VM that runs."""
    found = cluster(nodes, **args)
    found.create("virtualmachines", machine(labels={AUTOSCALING: "true"}))
    found.until(lambda: status(found).get("phase") == "Running" and "cpus" in status(found))
    return found


@pytest.mark.behaviour("S4.2")
def test_a_vm_gets_a_pod_that_says_what_it_has() -> None:
    found = running()
    (pod,) = found.all("pods").values()
    has = status(found)
    assert (pod["metadata"]["name"], 1, "1Gi") == (has["podName"], has["cpus"], has["memorySize"])
    assert pod["spec"]["nodeName"] == has["node"]
    assert [(VM, True)] == owners(pod)
    assert "vm1" == pod["metadata"]["labels"][NAME]
    told = msgspec.json.decode(pod["metadata"]["annotations"][RESOURCES])
    assert {"min": 1, "max": 4, "use": 1} == told["cpus"]
    vm = found.one("virtualmachines", "vm1")
    assert '{"vCPUs":1,"mem":"1Gi"}' == vm["metadata"]["annotations"][APPROVED]
    assert '{"vCPUs":1,"mem":"1Gi"}' == pod["metadata"]["annotations"][APPROVED]


@pytest.mark.behaviour("S4.29")
def test_labels_and_annotations_come_to_a_pod_that_still_waits() -> None:
    found = cluster()
    found.create("virtualmachines", machine(use=16))  # larger than any node
    (name,) = found.phases()
    found.patch("virtualmachines", "vm1", {"metadata": {"labels": {"a": "b"}}})
    assert "b" == found.one("pods", name)["metadata"]["labels"]["a"]
    found.patch("virtualmachines", "vm1", {"metadata": {"labels": {"a": None}}})
    assert "a" not in found.one("pods", name)["metadata"]["labels"]
    assert "Pending" == found.phases()[name]


def test_a_vm_grows_when_its_spec_does() -> None:
    found = running()
    found.patch("virtualmachines", "vm1", {"spec": {"guest": {"cpus": {"use": "1500m"}}}})
    assert "Scaling" == status(found)["phase"]
    found.advance(2)
    assert ("Running", "1500m") == (status(found)["phase"], status(found)["cpus"])


@pytest.mark.parametrize(("policy", "again"), [("Always", True), ("Never", False)])
def test_a_vm_whose_pod_is_lost_begins_again(policy: str, again: bool) -> None:
    found = cluster()
    found.create("virtualmachines", machine(restartPolicy=policy))
    found.until(lambda: status(found).get("phase") == "Running")
    (first,) = found.phases()
    found.delete("pods", first, gracePeriodSeconds=0)
    found.advance(30)
    pods = [name for name in found.phases() if name != first]
    assert again == (status(found)["phase"] == "Running") == bool(pods)
    assert (1 if again else None) == status(found).get("restartCount")


def test_a_vm_that_is_deleted_takes_its_pod_with_it() -> None:
    found = running()
    found.delete("virtualmachines", "vm1")
    found.advance(40)
    assert ({}, {}) == (found.all("virtualmachines"), found.all("pods"))


def migrate(found: Cluster, **spec: Any) -> str:
    """Have vm1 leave; the name of the pod that it is in."""
    source = str(status(found)["podName"])
    body = {
        "apiVersion": "vm.neon.tech/v1",
        "kind": MIGRATION,
        "metadata": {"name": "m1"},
        "spec": {"vmName": "vm1", **spec},
    }
    found.create("virtualmachinemigrations", body)
    return source


@pytest.mark.behaviour("S4.16")
def test_who_controls_pods_tells_source_from_target() -> None:
    found = running()
    source = migrate(found, maxBandwidth="256Mi")
    found.until(lambda: found.one("virtualmachinemigrations", "m1")["status"]["phase"] == "Running")
    pods = found.all("pods")
    (target,) = (name for name in pods if name != source)
    assert [(VM, True), (MIGRATION, False)] == owners(pods[source])
    assert [(MIGRATION, True), (VM, False)] == owners(pods[target])
    assert pods[source]["spec"]["nodeName"] != pods[target]["spec"]["nodeName"]
    assert "Migrating" == status(found)["phase"]
    found.until(lambda: status(found)["podName"] == target)
    assert [(VM, True)] == owners(found.one("pods", target))
    found.advance(40)
    moved = found.one("virtualmachinemigrations", "m1")["status"]
    assert ("Succeeded", "completed") == (moved["phase"], moved["info"]["status"])
    assert [target] == [*found.phases()]
    assert ("Running", pods[target]["spec"]["nodeName"]) == (
        status(found)["phase"], status(found)["node"],
    )  # fmt: skip


@pytest.mark.behaviour("S4.18")
def test_a_vm_that_can_go_nowhere_else_stays_until_the_timeout() -> None:
    found = running(nodes=1)
    source = migrate(found, completionTimeout=60)
    found.advance(50)
    assert "PreMigrating" == status(found)["phase"]
    found.advance(30)
    assert "Failed" == found.one("virtualmachinemigrations", "m1")["status"]["phase"]
    assert ("Running", [source]) == (status(found)["phase"], [*found.phases()])
    assert [(VM, True)] == owners(found.one("pods", source))


def test_a_transfer_that_fails_leaves_the_vm_where_it_is() -> None:
    found = running()
    fails = {"metadata": {"annotations": {"stower.dev/migrations-fail": "1"}}}
    found.patch("virtualmachines", "vm1", fails)
    source = migrate(found)
    found.advance(60)
    assert "Failed" == found.one("virtualmachinemigrations", "m1")["status"]["phase"]
    assert ("Running", source, [source]) == (
        status(found)["phase"], status(found)["podName"], [*found.phases()],
    )  # fmt: skip


def test_a_migration_that_is_deleted_is_undone() -> None:
    found = running()
    source = migrate(found, maxBandwidth="1Mi")
    found.until(lambda: status(found)["phase"] == "Migrating")
    found.delete("virtualmachinemigrations", "m1")
    found.advance(40)
    assert {} == found.all("virtualmachinemigrations")
    assert ("Running", [source]) == (status(found)["phase"], [*found.phases()])


def test_a_target_that_is_lost_fails_the_migration() -> None:
    found = running()
    source = migrate(found, maxBandwidth="1Mi")
    found.until(lambda: status(found)["phase"] == "Migrating")
    (target,) = (name for name in found.phases() if name != source)
    found.delete("pods", target, gracePeriodSeconds=0)
    found.advance(10)
    assert "Failed" == found.one("virtualmachinemigrations", "m1")["status"]["phase"]
    assert ("Running", source) == (status(found)["phase"], status(found)["podName"])


def test_of_two_migrations_of_a_vm_the_second_waits() -> None:
    found = running(nodes=3)
    migrate(found, maxBandwidth="64Mi")
    body = {
        "apiVersion": "vm.neon.tech/v1",
        "kind": MIGRATION,
        "metadata": {"name": "m2"},
        "spec": {"vmName": "vm1"},
    }
    found.create("virtualmachinemigrations", body)
    found.until(lambda: status(found)["phase"] == "Migrating")
    phases = {n: m["status"].get("phase") for n, m in found.all("virtualmachinemigrations").items()}
    assert {"m1": "Running", "m2": None} == phases
    found.advance(90)
    phases = {n: m["status"].get("phase") for n, m in found.all("virtualmachinemigrations").items()}
    assert ({"m1": "Succeeded", "m2": "Succeeded"}, 1) == (phases, len(found.phases()))


@pytest.mark.behaviour("S4.13", "S4.34", "U40")
def test_vms_grow_with_their_load_and_leave_a_node_that_is_too_full() -> None:
    """Three VMs on one node, to which another comes; nobody asks anybody over HTTP."""
    found = cluster(1, watermark=0.9)
    load = {"low": 1.0, "high": 1.0, "periodSeconds": 60}
    for i in range(2):
        vm = machine(f"vm{i}", labels={AUTOSCALING: "true", MOVES: "true"})
        vm["metadata"]["annotations"]["stower.dev/load"] = msgspec.json.encode(load).decode()
        found.create("virtualmachines", vm)
    found.advance(30)
    assert [4, 4] == [status(found, f"vm{i}")["cpus"] for i in range(2)]
    found.create(
        "nodes",
        {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "other", "labels": {"kubernetes.io/os": "linux",
                                                     "kubernetes.io/hostname": "other"}},
            "spec": {"providerID": "stower://other"},
            "status": {"capacity": {"cpu": "8", "memory": "32Gi", "pods": "20"},
                       "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "20"}},
        }, "",
    )  # fmt: skip
    found.advance(120)
    nodes = {status(found, f"vm{i}")["node"] for i in range(2)}
    assert 2 == len(nodes)
    assert [4, 4] == [status(found, f"vm{i}")["cpus"] for i in range(2)]
    assert {} == found.all("virtualmachinemigrations")  # cleared away
