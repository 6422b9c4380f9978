"""VMs leave nodes that run over, as many as it takes and no more."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from stower.framework.writes import CreateObject
from stower.model.kinds import Node, Pod, VirtualMachineMigration
from tests.builders import make_node
from tests.vms.rig import AUTOSCALING, Rig, vm_pod


def node() -> Node:
    """Ten CPUs, of which nine lie below the watermark."""
    return make_node("n1", cpu="10", memory="100Gi")


SPARE = make_node("spare", cpu="100", memory="1000Gi")  # for all that leave


@pytest.mark.behaviour("S4.13", "S4.14")
def test_the_oldest_leave_until_the_node_is_below_its_watermark() -> None:
    pods = [vm_pod(f"vm{i}", node="n1", use=(2, 1), moves=True, created=10 - i) for i in range(5)]
    rig = Rig(node(), SPARE).start(*pods)
    assert ["schedplugin-vm4-pod"] == rig.migrations()  # 10 CPUs: one of 2 is enough
    assert [] == rig.advance(20).migrations()


@pytest.mark.behaviour("S4.13")
def test_nobody_leaves_a_node_that_is_not_above_its_watermark() -> None:
    rig = Rig(node(), SPARE).start(
        *(vm_pod(f"vm{i}", node="n1", use=(3, 1), moves=True) for i in range(3))
    )
    assert [] == rig.migrations()
    rig.put(vm_pod("vm3", node="n1", use=(0.25, 1), created=59))
    assert ["schedplugin-vm0-pod"] == rig.migrations()


@pytest.mark.behaviour("S4.13")
def test_what_already_moves_counts_as_gone() -> None:
    moving = vm_pod("vm1", node="n1", use=(4, 1), migration="m1", moves=True)
    rig = Rig(node(), SPARE).start(moving, vm_pod("vm2", node="n1", use=(6, 1), moves=True))
    assert [] == rig.migrations()


def test_a_pod_that_its_vm_has_left_is_not_asked_to_leave() -> None:
    """The migration would move the VM, and not the pod."""
    left = vm_pod("vm1", node="n1", use=(5, 1), moves=True, controlled=True)
    rig = Rig(node(), SPARE).start(
        left, vm_pod("vm2", node="n1", use=(5, 1), moves=True, created=5)
    )
    assert ["schedplugin-vm2-pod"] == rig.migrations()


@pytest.mark.behaviour("S4.14")
def test_one_that_is_too_big_for_any_node_stays() -> None:
    rig = Rig(node(), SPARE).start(
        vm_pod("vm1", node="n1", use=(9.5, 1), moves=True),
        vm_pod("vm2", node="n1", use=(0.25, 1), moves=True, created=5),
    )
    assert ["schedplugin-vm2-pod"] == rig.migrations()


@pytest.mark.behaviour("S4.15")
def test_only_those_with_the_label_leave() -> None:
    rig = Rig(node(), SPARE).start(
        vm_pod("vm1", node="n1", use=(5, 1)), vm_pod("vm2", node="n1", use=(5, 1))
    )
    assert [] == rig.migrations()


@pytest.mark.behaviour("S4.16", "S4.17")
def test_a_target_is_never_moved_and_a_source_once() -> None:
    target = vm_pod("vm1", node="n1", use=(5, 1), moves=True, migration="m1", controlled=True)
    source = vm_pod("vm2", node="n1", use=(5, 1), moves=True, migration="m2")
    rig = Rig(node(), SPARE).start(target, source)
    assert [] == rig.migrations()
    known = rig.enforcer.nodes["n1"].node
    assert 5000 == known.cpu.migrating
    # The migration is over: the VM controls what was the target.
    rig.put(vm_pod("vm1", node="n1", use=(5, 1), moves=True))
    rig.put(vm_pod("vm2", node="n1", use=(5, 1), moves=True))
    assert 1 == len(rig.migrations())


@pytest.mark.behaviour("S4.17")
def test_a_migration_that_nothing_came_of_is_made_again() -> None:
    pods = [vm_pod("vm1", node="n1", use=(5, 1), moves=True), vm_pod("vm2", node="n1", use=(5, 1))]
    rig = Rig(node(), SPARE).start(*pods)
    assert ["schedplugin-vm1-pod"] == rig.migrations()
    rig.drop("m/schedplugin-vm1-pod")
    assert ["schedplugin-vm1-pod"] == rig.advance(5).migrations()


@pytest.mark.behaviour("S4.17")
def test_a_vm_whose_migration_failed_rests_and_others_leave_meanwhile() -> None:
    rig = Rig(node(), SPARE, migrationsPerNodeMax=1).start(
        vm_pod("vm1", node="n1", use=(5, 1), moves=True),
        vm_pod("vm2", node="n1", use=(5, 1), moves=True, created=1),
    )
    assert ["schedplugin-vm1-pod"] == rig.migrations()
    _end(rig, "vm1", "Failed")
    assert ["schedplugin-vm2-pod"] == rig.advance(5).migrations()
    _end(rig, "vm2", "Failed")
    assert [] == rig.advance(4).migrations()
    assert ["schedplugin-vm1-pod"] == rig.advance(6).migrations()


@pytest.mark.behaviour("S4.17")
def test_a_vm_rests_longer_with_each_failure() -> None:
    pods = [vm_pod("vm1", node="n1", use=(5, 1), moves=True), vm_pod("vm2", node="n1", use=(5, 1))]
    rig = Rig(node(), SPARE).start(*pods)
    assert ["schedplugin-vm1-pod"] == rig.migrations()
    for rests_s in (10, 20, 40, 80, 160, 320, 600, 600):
        _end(rig, "vm1", "Failed")
        rig.put(pods[0])  # what the pod shows does not end the rest
        assert [] == rig.advance(rests_s - 1).migrations()
        assert ["schedplugin-vm1-pod"] == rig.advance(6).migrations()
    _end(rig, "vm1", "Succeeded")
    rig.put(pods[0])
    assert [] == rig.advance(290).migrations(), "after a move it rests, too"
    assert ["schedplugin-vm1-pod"] == rig.advance(20).migrations()


def _end(rig: Rig, vm: str, phase: str) -> None:
    """The migration of a VM is seen, ends and goes."""
    name = f"schedplugin-{vm}-pod"
    label = {"autoscaling.neon.tech/created-by-scheduler": "true"}
    meta = {"name": name, "namespace": "default", "uid": f"m/{name}", "labels": label}
    for now in ("", phase):
        made = {"metadata": meta, "spec": {"vmName": vm}, "status": {"phase": now}}
        rig.put(msgspec.convert(made, VirtualMachineMigration))
    rig.migrations()
    if f"m/{name}" in rig.objects:
        rig.drop(f"m/{name}")


@pytest.mark.behaviour("S4.17")
def test_who_may_not_leave_any_more_is_let_alone() -> None:
    """The label is taken away between the choice and the write."""
    rig = Rig(node(), SPARE, migrationsPerNodeMax=1).start(
        vm_pod("vm1", node="n1", use=(5, 1), moves=True),
        vm_pod("vm2", node="n1", use=(5, 1), moves=True, created=1),
        vm_pod("vm3", node="n1", use=(5, 1), created=2),
    )
    assert ["schedplugin-vm1-pod"] == rig.migrations()
    rig.put(vm_pod("vm2", node="n1", use=(5, 1), created=1))
    rig.drop("m/schedplugin-vm1-pod").drop("uid-of-default-vm1-pod")
    assert [] == rig.advance(20).migrations()


@pytest.mark.behaviour("S4.18")
def test_what_a_migration_says() -> None:
    rig = Rig(node(), SPARE).start(vm_pod("vm1", node="n1", use=(5, 1), moves=True),
                            vm_pod("vm2", node="n1", use=(5, 1)))  # fmt: skip
    (made,) = [write for write in rig.writes if isinstance(write, CreateObject)]
    expected: dict[str, Any] = {
        "vmName": "vm1", "preventMigrationToSameHost": True, "completionTimeout": 3600,
        "incremental": True, "autoConverge": True, "maxBandwidth": "1Gi", "allowPostCopy": False,
    }  # fmt: skip
    assert expected == made.body["spec"]
    assert "ownerReferences" not in made.body["metadata"]
    assert {"autoscaling.neon.tech/created-by-scheduler": "true"} == made.body["metadata"]["labels"]


@pytest.mark.behaviour("S4.17")
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_migrations_that_have_ended_are_cleared_away_if_they_are_ours(phase: str) -> None:
    rig = Rig(node(), SPARE).start()
    label = {"autoscaling.neon.tech/created-by-scheduler": "true"}
    for name, labels in (("ours", label), ("theirs", {AUTOSCALING: "true"})):
        meta = {"name": name, "namespace": "default", "uid": f"m/{name}", "labels": labels}
        made = {"metadata": meta, "spec": {"vmName": "vm1"}, "status": {"phase": phase}}
        rig.put(msgspec.convert(made, VirtualMachineMigration))
    assert ["m/theirs"] == [uid for uid in rig.objects if uid.startswith("m/")]


@pytest.mark.behaviour("S4.13")
def test_a_full_node_begins_so_many_migrations_at_a_time() -> None:
    pods = [vm_pod(f"vm{i}", node="n1", use=(2, 1), moves=True, created=i) for i in range(10)]
    rig = Rig(node(), SPARE, migrationsPerNodeMax=2).start(*pods)
    assert ["schedplugin-vm0-pod", "schedplugin-vm1-pod"] == rig.migrations()
    assert [] == rig.advance(20).migrations()
    rig.drop("uid-of-default-vm0-pod").drop("m/schedplugin-vm0-pod")
    assert ["schedplugin-vm2-pod"] == rig.advance(5).migrations()


@pytest.mark.behaviour("S4.13")
def test_a_cluster_begins_so_many_migrations_at_a_time() -> None:
    nodes = [make_node(name, cpu="4", memory="64Gi") for name in ("a", "b", "c")]
    pods = [
        vm_pod(f"{n.metadata.name}{i}", node=n.metadata.name, use=(2, 1), moves=True)
        for n in nodes
        for i in range(2)
    ]
    rig = Rig(*nodes, SPARE, migrationsMax=2).start(*pods)
    assert 2 == len(rig.migrations())
    assert [] == rig.advance(30).migrations()
    rig = Rig(*nodes, SPARE, migrationsMax=0).start(*pods)
    assert 3 == len(rig.migrations())


@pytest.mark.behaviour("S4.15")
def test_a_label_for_tests_lets_a_vm_leave_too() -> None:
    label = {"autoscaling.neon.tech/testing-only-always-migrate": "true"}
    stays, leaves = (vm_pod(name, node="n1", use=(5, 1)) for name in ("vm1", "vm2"))
    meta = msgspec.structs.replace(
        leaves.metadata, labels={**(leaves.metadata.labels or {}), **label}
    )
    rig = Rig(node(), SPARE).start(stays, msgspec.structs.replace(leaves, metadata=meta))
    assert ["schedplugin-vm2-pod"] == rig.migrations()


# Where VMs go


def vms_on(node: str, sizes: Sequence[float], moves: bool = True) -> list[Pod]:
    """VMs of so many CPUs, the oldest first."""
    return [
        vm_pod(f"{node}-{i}", node=node, use=(cpus, 1), moves=moves, created=i)
        for i, cpus in enumerate(sizes)
    ]


def ten_cpus(name: str, cpu: str = "10", **fields: Any) -> Node:
    return make_node(name, cpu=cpu, memory="100Gi", **fields)


def test_nothing_moves_where_no_node_would_stay_below_its_watermark() -> None:
    """Each would send the other a VM that makes it send one back."""
    pods = [*vms_on("n1", [2, 2, 2, 2, 1.7]), *vms_on("n2", [2, 2, 2, 2])]
    rig = Rig(ten_cpus("n1"), ten_cpus("n2")).start(*pods)
    assert [] == rig.advance(120).migrations()
    told = [text for _, text, about in rig.notes if about == "n1" and "Nowhere to go" in text]
    wants = "needs CPU 2, at most 1 is free below the watermark of another node"
    assert [f"Nowhere to go for VirtualMachine default/n1-0: {wants}"] == told, "said once"
    (metric,) = [m for m in rig.scheduling.metrics() if m.name == "stower_vms_nowhere_to_go"]
    assert [({"node": "n1"}, 1)] == [(dict(s.labels), s.value) for s in metric.samples]
    rig.drop(pods[-1].metadata.uid)
    assert ["schedplugin-n1-0-pod"] == rig.advance(15).migrations()
    (metric,) = [m for m in rig.scheduling.metrics() if m.name == "stower_vms_nowhere_to_go"]
    assert [] == metric.samples


def test_a_smaller_vm_goes_where_the_oldest_cannot() -> None:
    pods = [*vms_on("n1", [4, 3, 1.5, 1]), *vms_on("n2", [8])]
    rig = Rig(ten_cpus("n1"), ten_cpus("n2")).start(*pods)
    assert ["schedplugin-n1-3-pod"] == rig.advance(30).migrations()


def test_what_is_on_its_way_to_a_node_counts_there() -> None:
    """Two nodes send a VM each: there is room for one of them."""
    pods = [*vms_on("n1", [2, 8]), *vms_on("n2", [2, 8]), *vms_on("n3", [6])]
    rig = Rig(*(ten_cpus(name) for name in ("n1", "n2", "n3"))).start(*pods)
    assert 1 == len(rig.advance(60).migrations())


def test_a_vm_goes_to_no_node_that_its_pod_cannot_go_to() -> None:
    taint = {"key": "full", "effect": "NoSchedule"}
    pods = vms_on("n1", [2, 8])
    rig = Rig(ten_cpus("n1"), ten_cpus("n2", taints=[taint])).start(*pods)
    assert [] == rig.advance(60).migrations()
    assert any("no other node" in text for _, text, _ in rig.notes)


def test_the_target_of_a_migration_stays_below_the_watermark_of_its_node() -> None:
    """Of one that the scheduler has made; users may move VMs wherever there is room."""
    rig = Rig(ten_cpus("n2")).start(*vms_on("n2", [8], moves=False))
    rig.put(vm_pod("a", use=(1.5, 1), migration="schedplugin-a-pod", controlled=True))
    rig.put(vm_pod("b", use=(1.5, 1), migration="by-hand", controlled=True))
    rig.advance(5)
    assert ["", "n2"] == [rig.pod(f"uid-of-default-{n}-pod").spec.node_name for n in "ab"]


def test_what_is_on_its_way_counts_after_a_restart() -> None:
    """The migration says which node was planned, before its target pod is there."""
    pods = [*vms_on("n1", [2, 8]), *vms_on("n2", [8], moves=False), *vms_on("n3", [6])]
    rig = Rig(*(ten_cpus(name) for name in ("n1", "n2", "n3"))).start(*pods)
    (made,) = [write for write in rig.writes if isinstance(write, CreateObject)]
    assert {"stower.dev/planned-node": "n3"} == made.body["metadata"]["annotations"]
    rig.migrations()
    rig.restart()
    rig.put(vm_pod("late", node="n2", use=(2, 1), moves=True, created=5))
    assert [] == rig.advance(60).migrations(), "n3 has room for one"
    rig.drop("m/schedplugin-n1-0-pod").drop("uid-of-default-n1-0-pod")
    assert 1 == len(rig.advance(60).migrations())


def test_a_migration_ends_whose_target_gets_no_node() -> None:
    """Its planned node was filled meanwhile: the VM rests, and is tried again later."""
    rig = Rig(ten_cpus("n1"), ten_cpus("n2")).start(*vms_on("n1", [2, 7.5]))
    assert ["schedplugin-n1-0-pod"] == rig.migrations()
    rig.put(vm_pod("other", node="n2", use=(8, 1)))
    made = rig.objects["m/schedplugin-n1-0-pod"]
    assert isinstance(made, VirtualMachineMigration)
    status = msgspec.structs.replace(made.status, phase="Pending", target_pod_name="n1-0x-pod")
    rig.put(msgspec.structs.replace(made, status=status))
    rig.put(vm_pod("n1-0x", use=(2, 1), migration="schedplugin-n1-0-pod", controlled=True))
    rig.advance(55)
    assert made.metadata.uid in rig.objects
    rig.advance(10)
    assert made.metadata.uid not in rig.objects
    assert any("has no node after 60 s" in text for _, text, _ in rig.notes)
    assert [] == rig.advance(300).migrations(), "there is no room for it"
    rig.drop("uid-of-default-n1-0x-pod").drop("uid-of-default-other-pod")
    assert ["schedplugin-n1-0-pod"] == rig.advance(30).migrations()


def test_a_plan_goes_with_its_pod() -> None:
    """Also where dealing with it fails, or its node goes first."""
    for gone in ("uid-of-default-n1-0-pod", "uid-of-n1"):
        rig = Rig(ten_cpus("n1"), ten_cpus("n2"), ten_cpus("n3")).start(
            *vms_on("n1", [2, 8]), *vms_on("n3", [8.5], moves=False)
        )
        rig.migrations()
        for uid in (gone, "m/schedplugin-n1-0-pod"):
            rig.drop(uid)
        rig.put(vm_pod("big", node="n3", use=(1, 1), moves=True, created=1))
        assert ["schedplugin-big-pod"] == rig.advance(60).migrations()
