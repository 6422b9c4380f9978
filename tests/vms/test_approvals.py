"""What VMs ask for is approved, taken back and counted, through an engine."""

import re
from typing import Any

import msgspec
import pytest

from stower.framework.events import Hold, Listed, Observed, WatchType
from stower.framework.writes import Bind
from stower.model.errors import InvalidObject
from stower.vms.amounts import read_resources
from tests.builders import make_node, make_pod
from tests.vms.rig import APPROVED, Rig, amount, changed, virtual_machine, vm_pod

GI = 1 << 30


@pytest.mark.behaviour("S4.2", "S4.19")
def test_more_is_granted_in_whole_units_up_to_what_is_free() -> None:
    rig = Rig(make_node("n1", cpu="4", memory="8Gi")).start(
        vm_pod("vm1", node="n1", use=(1, 2), requested=(6, 3)),
        make_pod("other", node="n1", cpu="1100m", memory="1Gi"),
    )
    # 4000 - 1100 - 1000 = 1900: seven units of 250.
    assert amount(2.75, 3) == rig.approved()
    assert (2750 + 1100, 4 * GI) == rig.reserved()


@pytest.mark.behaviour("S4.19")
def test_who_got_less_is_looked_at_again_when_there_is_more() -> None:
    other = make_pod("other", node="n1", cpu="2", memory="1Gi")
    rig = Rig().start(vm_pod(node="n1", use=(1, 2), requested=(4, 2)), other)
    assert amount(2, 2) == rig.approved()
    rig.drop(other.metadata.uid)
    assert amount(2, 2) == rig.approved()
    assert amount(4, 2) == rig.advance(5).approved()


@pytest.mark.behaviour("S4.20")
def test_less_is_granted_at_once() -> None:
    pod = vm_pod(node="n1", use=(1, 2), requested=(4, 4), approved=(4, 4))
    rig = Rig().start(pod)
    assert (4000, 4 * GI) == rig.reserved()
    rig.put(changed(pod, requested=amount(1, 2)))
    assert amount(1, 2) == rig.approved()
    assert (1000, 2 * GI) == rig.reserved()


@pytest.mark.behaviour("S4.20")
def test_less_of_one_resource_is_granted_at_once_where_another_is_short() -> None:
    rig = Rig(make_node("n1", cpu="10", memory="10Gi"))
    pod = vm_pod(node="n1", use=(4, 8), requested=(4, 20), approved=(4, 8))
    rig.start(pod)
    assert amount(4, 10) == rig.approved()
    rig.advance(0.2).put(changed(rig.pod(pod.metadata.uid), requested=amount(2, 20)))
    assert amount(2, 10) == rig.advance(0.8).approved(), "a second after the last patch"
    rig.advance(60)
    rig.put(changed(rig.pod(pod.metadata.uid), requested=amount(1, 20)))
    assert amount(1, 10) == rig.approved()


@pytest.mark.behaviour("S4.20")
def test_less_of_one_resource_is_granted_on_a_node_that_is_over_full_in_another() -> None:
    """Memory was granted by a write without an answer; then a stranger took the room."""
    rig = Rig(make_node("n1", cpu="10", memory="10Gi"))
    rig.fails = [504]
    pod = vm_pod(node="n1", use=(4, 4), requested=(4, 8), approved=(4, 4))
    rig.start(pod)
    rig.put(make_pod("stranger", node="n1", cpu="1", memory="4Gi"))
    rig.advance(5).put(changed(pod, requested=amount(2, 8)))
    assert 2000 == read_resources(rig.approved() or "").cpu
    approved = read_resources(rig.advance(6).approved() or "")
    assert (2000, 6 * GI) == (approved.cpu, approved.memory), "what is free is granted"


@pytest.mark.behaviour("S4.21")
def test_a_patch_says_what_it_was_worked_out_from() -> None:
    rig = Rig().start(vm_pod(node="n1", requested=(2, 2)))
    (patch,) = rig.patches()
    path = "/metadata/annotations/"
    ops = [(op["op"], op["path"].removeprefix(path)) for op in patch.operations]
    assert [
        ("test", "autoscaling.neon.tech~1scaling-unit"),
        ("test", "internal.autoscaling.neon.tech~1resources-requested"),
        ("replace", "internal.autoscaling.neon.tech~1resources-approved"),
    ] == ops


@pytest.mark.behaviour("S4.21", "S4.22")
def test_a_refused_patch_is_tried_again_and_its_room_stays_reserved() -> None:
    rig = Rig()
    rig.fails = [422]
    rig.start(vm_pod(node="n1", use=(1, 2), requested=(3, 2)))
    assert (None, (3000, 2 * GI)) == (rig.approved(), rig.reserved())
    assert amount(3, 2) == rig.advance(1.1).approved()


@pytest.mark.behaviour("S4.22")
@pytest.mark.parametrize("shows", [False, True])
def test_a_write_without_an_answer_is_not_repeated_on_a_node_that_is_over_full_by_now(
    shows: bool,
) -> None:
    """Another profile has filled the node meanwhile. The room stays reserved for as long as the
    write may yet show; what the VM shows was approved, and need not be written again."""
    rig = Rig()
    rig.fails = [504]
    rig.start(vm_pod(node="n1", use=(1, 1), requested=(3, 1), approved=(1, 1)))
    assert 1 == len(rig.patches())
    rig.put(make_pod("p", node="n1", cpu="2"))
    if shows:
        rig.put(virtual_machine("vm1", approved=(3, 1)))
        assert [] == rig.advance(60).patches()
        assert 5000 == rig.reserved()[0]
        return
    assert [] == rig.advance(20).patches()
    assert 5000 == rig.reserved()[0]
    assert [amount(2, 1)] == [p.operations[-1]["value"] for p in rig.advance(30).patches()]
    assert 4000 == rig.reserved()[0]


@pytest.mark.behaviour("S4.22")
def test_what_is_given_back_counts_until_the_pod_shows_it() -> None:
    pod = vm_pod(node="n1", use=(1, 2), requested=(4, 4), approved=(4, 4))
    rig = Rig().start(pod)
    rig.copies = False
    rig.put(changed(pod, requested=amount(1, 2)))
    assert 1 == len(rig.patches())
    assert (4000, 4 * GI) == rig.reserved()
    rig.put(changed(pod, requested=amount(1, 2), approved=amount(1, 2)))
    assert (1000, 2 * GI) == rig.reserved()


@pytest.mark.behaviour("S4.22", "S4.36")
def test_what_was_written_counts_before_the_pod_shows_it() -> None:
    """Another event of the pod, on which the approval does not show yet, gives nothing back."""
    pod = vm_pod(node="n1", use=(1, 2), requested=(3, 2))
    rig = Rig()
    rig.copies = False
    rig.start(pod)
    rig.put(changed(pod, resources=pod.metadata.annotations["vm.neon.tech/resources"] + " "))
    assert (3000, 2 * GI) == rig.reserved()
    rig.put(vm_pod("vm2", node="n1", use=(0.5, 1), requested=(2, 1)))
    assert (4000, 3 * GI) == rig.reserved()


@pytest.mark.behaviour("S4.22")
def test_of_a_write_that_never_shows_nobody_waits_for_ever() -> None:
    rig = Rig()
    rig.copies = False
    rig.start(vm_pod(node="n1", use=(1, 2), requested=(3, 2)))
    assert 1 == len(rig.patches())
    assert 1 == len(rig.advance(31).patches())  # written again, and reserved all the time
    assert (3000, 2 * GI) == rig.reserved()


@pytest.mark.behaviour("S4.1", "S4.22")
def test_what_a_vm_shows_as_approved_counts_after_a_restart() -> None:
    """The controller of VMs stands still: the pods show neither approval, and the second VM must
    not be given what the scheduler approved for the first before it was killed."""
    first, second = (
        vm_pod(name, node="n1", use=(1, 1), requested=(3, 1), approved=(1, 1))
        for name in ("vm1", "vm2")
    )
    rig = Rig()
    rig.copies = False
    rig.objects["vm/vm1"] = virtual_machine("vm1", approved=(3, 1))
    rig.start(second, first)
    assert (4000, 2 * GI) == rig.reserved()
    assert [] == [p for p in rig.patches() if p.name == "vm2"]


@pytest.mark.behaviour("S4.22")
def test_an_approval_counts_as_soon_as_the_vm_shows_it_whoever_wrote_it() -> None:
    rig = Rig().start(vm_pod(node="n1", use=(1, 1), requested=(1, 1), approved=(1, 1)))
    assert (1000, GI) == rig.reserved()
    rig.copies = False
    rig.put(virtual_machine("vm1", approved=(3, 2)))
    assert (3000, 2 * GI) == rig.reserved()
    rig.put(virtual_machine("vm1", approved=(1, 1)))
    assert (1000, GI) == rig.reserved()


@pytest.mark.behaviour("S4.22")
def test_an_approval_that_cannot_be_read_or_of_another_vm_counts_nothing() -> None:
    rig = Rig().start(vm_pod(node="n1", use=(1, 1), requested=(1, 1), approved=(1, 1)))
    bad = virtual_machine("vm1", approved=(3, 2))
    notes = {APPROVED: "much"}
    rig.put(msgspec.structs.replace(
        bad, metadata=msgspec.structs.replace(bad.metadata, annotations=notes)
    ))  # fmt: skip
    assert (1000, GI) == rig.reserved()
    rig.put(virtual_machine("vm1", approved=(3, 2), uid="another"))
    assert (1000, GI) == rig.reserved()
    rig.put(virtual_machine("vm1", approved=(2, 1)))
    rig.drop("another")
    rig.drop("vm/vm1")
    assert (1000, GI) == rig.reserved()


@pytest.mark.behaviour("S4.22")
@pytest.mark.parametrize("order", ["pod first", "VM first", "listed"])
def test_a_pod_takes_no_more_than_it_requests_until_the_vm_that_it_names_exists(order: str) -> None:
    """Whoever may create pods could else fill nodes by annotations, and keep others waiting."""
    rig = Rig()
    rig.has_vms = False
    other, vm = virtual_machine("other"), virtual_machine("vm1")
    pod = vm_pod(node="n1", use=(60, 60))
    rig.objects[other.metadata.uid] = other
    if order == "listed":
        rig.objects[vm.metadata.uid] = vm
        rig.start(pod)
    else:
        rig.start()
        for obj in (pod, vm) if order == "pod first" else (vm, pod):
            rig.put(obj)
            if obj is pod and order == "pod first":
                assert (100, GI // 8) == rig.reserved()
                assert (100, GI // 8) == (int(rig.scheduling.ledger.cpu[0]), GI // 8)
    assert (60_000, 60 * GI) == rig.reserved()
    assert 60_000 == int(rig.scheduling.ledger.cpu[0])
    rig.drop(vm.metadata.uid)
    assert (100, GI // 8) == rig.reserved()
    assert 100 == int(rig.scheduling.ledger.cpu[0])


@pytest.mark.behaviour("S4.1")
@pytest.mark.parametrize("has_vms", [True, False])
def test_the_log_says_where_virtual_machines_cannot_be_read(has_vms: bool) -> None:
    rig = Rig()
    rig.has_vms = has_vms
    rig.start(vm_pod(node="n1", use=(1, 1)))
    rig.restart()
    told = [
        text for level, text, _ in rig.notes if level == "warn" and "VirtualMachine can" in text
    ]
    assert (0 if has_vms else 2) == len(told), "once at each start"


@pytest.mark.behaviour("S4.23")
def test_a_vm_is_written_once_a_second_at_most() -> None:
    pod = vm_pod(node="n1", use=(1, 2), requested=(2, 2))
    rig = Rig().start(pod)
    assert 1 == len(rig.patches())
    rig.put(changed(rig.pod(pod.metadata.uid), requested=amount(3, 2)))
    assert [] == rig.advance(0.9).patches()
    assert 1 == len(rig.advance(0.2).patches())


@pytest.mark.behaviour("S4.24")
def test_a_vm_that_does_not_scale_counts_what_it_uses_and_is_not_written() -> None:
    rig = Rig().start(vm_pod(node="n1", use=(2, 3), scaled=False))
    assert ([], (2000, 3 * GI)) == (rig.patches(), rig.reserved())


@pytest.mark.behaviour("S4.24")
@pytest.mark.parametrize("first", ["use", "label"])
def test_use_and_autoscaling_may_change_together(first: str) -> None:
    """Fields `use` are set while autoscaling is switched on, in one write or in two."""
    before = vm_pod(node="n1", use=(2, 3), scaled=False)
    between = vm_pod(node="n1", use=(1, 2), scaled=False)
    if first == "label":
        between = vm_pod(node="n1", use=(2, 3))
    after = vm_pod(node="n1", use=(1, 2))
    rig = Rig().start(before).put(between).advance(2).put(after).advance(2)
    assert (amount(1, 2), (1000, 2 * GI)) == (rig.approved(), rig.reserved())
    # And at once, upwards.
    rig = Rig().start(before).put(vm_pod(node="n1", use=(3, 4)))
    assert (amount(3, 4), (3000, 4 * GI)) == (rig.approved(), rig.reserved())


@pytest.mark.behaviour("S4.25")
def test_use_is_discounted_by_what_may_be_overcommitted() -> None:
    half = {"vm.neon.tech/overcommit": '{"cpu":"2"}'}
    rig = Rig().start(vm_pod(node="n1", use=(1, 2), requested=(8, 2), annotations=half))
    # 3500 are free beside half of what it has: as much again as that, for whom half counts.
    assert amount(8, 2) == rig.approved()
    assert 4000 == rig.reserved()[0]


@pytest.mark.behaviour("S4.3", "S4.35")
def test_nothing_is_approved_before_all_pods_were_looked_at() -> None:
    """One of two pods of the node cannot be read: what it holds is not known."""
    rig = Rig()
    bad = vm_pod("vm2", node="n1", annotations={"vm.neon.tech/resources": "{"})
    rig.start(vm_pod("vm1", node="n1", use=(1, 2), requested=(4, 2)), bad)
    assert ([], False) == (rig.advance(10).patches(), rig.enforcer.is_started)
    rig.put(vm_pod("vm2", node="n1", use=(2, 2)))
    assert rig.enforcer.is_started
    assert amount(2, 2) == rig.approved()


@pytest.mark.behaviour("S4.4")
def test_what_cannot_be_read_holds_up_the_start_for_so_long_and_is_told() -> None:
    rig = Rig(startupEventHandlingTimeoutSeconds=15)
    bad = vm_pod("bad", node="n1", annotations={"vm.neon.tech/resources": "{"})
    rig.start(bad, vm_pod("vm1", node="n1", requested=(2, 2)))
    rig.advance(14)
    assert rig.approved() is None
    rig.notes.clear()
    rig.advance(2)
    assert any("not handled after 15 s" in text for _, text, _ in rig.notes)
    assert amount(2, 2) == rig.approved()
    rig.put(vm_pod("bad", node="n1", use=(1, 2)))
    assert (3000, 4 * GI) == rig.reserved()


@pytest.mark.behaviour("S4.3")
def test_a_node_that_is_registered_again_knows_its_pods_before_it_grants() -> None:
    """Under the same name, as another object."""
    pods = [vm_pod(f"vm{i}", node="n1", use=(1, 1), requested=(1, 1)) for i in (1, 2)]
    rig = Rig().start(*pods, vm_pod("vm3", node="n1", use=(2, 1), requested=(2, 1))).advance(2)
    assert 4000 == rig.reserved()[0]
    again = make_node("n1")
    meta = msgspec.structs.replace(again.metadata, uid="another")
    rig.drop(again.metadata.uid)
    rig.put(msgspec.structs.replace(again, metadata=meta))
    assert 4000 == rig.reserved()[0]
    rig.put(changed(rig.pod(pods[0].metadata.uid), requested=amount(3, 1))).advance(10)
    assert (amount(1, 1), 4000) == (rig.approved("vm1"), rig.reserved()[0])


@pytest.mark.behaviour("S4.6")
def test_objects_come_and_go_while_all_workers_are_busy() -> None:
    """A pod and a node that go and are shown again, by a list that is a little old."""
    busy, other = vm_pod("busy", node="n1", requested=(2, 2)), vm_pod("other", node="n2")
    rig = Rig(make_node("n1"), make_node("n2"), reconcileWorkers=1).start()
    rig.holds = True
    rig.put(busy)
    rig.put(other)
    node = rig.objects["uid-of-n2"]
    for kind in (WatchType.DELETED, WatchType.ADDED, WatchType.DELETED, WatchType.MODIFIED):
        rig.step(Observed(kind, node))
    rig.step(Observed(WatchType.DELETED, other))
    rig.step(Listed(tuple(rig.objects.values())))
    rig.step(Observed(WatchType.MODIFIED, other))
    rig.holds = False
    rig.carry_out(rig.held.pop())
    rig.advance(60)
    assert (1000, 2 * GI) == rig.reserved("n2")


@pytest.mark.behaviour("S4.6")
def test_an_event_that_is_late_brings_no_pod_back() -> None:
    pod = vm_pod("vm1", node="n1", use=(3, 2))
    rig = Rig().start(pod).drop(pod.metadata.uid)
    rig.step(Observed(WatchType.MODIFIED, pod))
    assert (0, 0) == rig.advance(60).reserved()


@pytest.mark.behaviour("S4.5")
def test_a_pod_is_reserved_for_when_its_node_is_looked_at() -> None:
    rig = Rig(reconcileWorkers=1).start()
    rig.holds = True
    rig.put(vm_pod("busy", node="n1", requested=(2, 2)))
    rig.put(make_node("n2", cpu="8"))
    rig.put(virtual_machine("vm1"))
    writes = rig.engine.step(Observed(WatchType.ADDED, vm_pod("vm1", use=(5, 1))), rig.now_ns)
    assert ["n2"] == [write.node_name for write in writes if isinstance(write, Bind)]
    rig.holds = False
    rig.carry_out(rig.held.pop())
    assert 5000 == rig.settle().reserved("n2")[0]


def test_nothing_new_begins_while_the_engine_is_held() -> None:
    rig = Rig().start()
    rig.step(Hold(True))
    rig.put(vm_pod("vm1", node="n1", requested=(2, 2)))
    assert ([], None) == (rig.advance(5).patches(), rig.engine.next_wake_ns)
    rig.step(Hold(False))
    assert amount(2, 2) == rig.settle().approved()


def test_an_engine_is_settled_when_all_that_it_approved_shows() -> None:
    pod = vm_pod("vm1", node="n1", use=(1, 2), requested=(2, 2))
    rig = Rig()
    rig.copies = False
    rig.start(pod)
    assert not rig.engine.is_settled
    rig.put(changed(pod, approved=amount(2, 2)))
    assert rig.engine.is_settled


@pytest.mark.parametrize("label", ["name", "ignored_namespace", "node", "a-b c", "1st"])
def test_labels_of_metrics_may_be_called_anything(label: str) -> None:
    rig = Rig(nodeMetricLabels={label: "zone"}).start(vm_pod("vm1", node="n1", use=(3, 2)))
    rig.enforcer.reserve(vm_pod("vm2", use=(3, 2)), "n1")
    found = {
        name for metric in rig.scheduling.metrics() for s in metric.samples for name in s.labels
    }
    assert all(re.fullmatch(r"[a-zA-Z_]\w*", name) for name in found)


@pytest.mark.parametrize("args", [{"watermark": float("nan")}, {"scoring": [1]}, {"scoring": 1}])
def test_what_cannot_be_configured_is_refused(args: Any) -> None:
    with pytest.raises(InvalidObject):
        Rig(**args)


@pytest.mark.behaviour("S4.3")
def test_a_pod_that_is_gone_is_not_waited_for() -> None:
    rig = Rig()
    bad = vm_pod("vm2", node="n1", annotations={"vm.neon.tech/resources": "{"})
    rig.start(vm_pod("vm1", node="n1", requested=(2, 2)), bad)
    rig.drop(bad.metadata.uid)
    assert amount(2, 2) == rig.approved()


@pytest.mark.behaviour("S4.5")
def test_a_pod_that_was_given_a_node_counts_before_that_shows() -> None:
    rig = Rig().start()
    writes = rig.engine.step(Observed(WatchType.ADDED, vm_pod("vm1", use=(3, 2))), rig.now_ns)
    assert [Bind] == [type(write) for write in writes]
    assert (3000, 2 * GI) == rig.reserved()


def test_a_pod_that_another_profile_places_counts_before_that_shows() -> None:
    rig = Rig(make_node("n1", cpu="4", memory="8Gi")).start(vm_pod("vm1", node="n1", use=(1, 2)))
    other = make_pod("other", cpu="2", memory="1Gi")
    writes = rig.engine.step(Observed(WatchType.ADDED, other), rig.now_ns)
    assert ["n1"] == [write.node_name for write in writes if isinstance(write, Bind)]
    assert (3000, 3 * GI) == rig.reserved()
    rig.put(vm_pod("vm1", node="n1", use=(1, 2), requested=(4, 2))).advance(10)
    assert amount(2, 2) == rig.approved()


@pytest.mark.behaviour("S4.5")
def test_room_is_free_again_when_a_pod_is_deleted() -> None:
    rig = Rig().start(vm_pod("vm1", use=(3, 2)))
    assert "n1" == rig.pod("uid-of-default-vm1-pod").spec.node_name
    assert {} == rig.enforcer.tentative
    assert (0, 0) == rig.drop("uid-of-default-vm1-pod").reserved()


@pytest.mark.behaviour("S4.1", "S4.33")
def test_a_new_engine_knows_the_same_from_nodes_and_pods() -> None:
    pods = [
        vm_pod("vm1", node="n1", use=(1, 2), requested=(2, 2)),
        vm_pod("vm2", node="n1", use=(0.5, 1), requested=(1, 1), approved=(0.5, 1), moves=True),
        vm_pod("vm3", node="n1", use=(1, 1), scaled=False, migration="m1", moves=True),
        make_pod("plain", node="n1", cpu="250m", memory="64Mi"),
    ]
    rig = Rig(make_node("n1", cpu="8")).start(*pods).advance(3)

    def known() -> object:
        return {
            name: (k.node.cpu.reserved, k.node.memory.reserved, k.node.cpu.migrating, k.node.pods)
            for name, k in rig.enforcer.nodes.items()
        }

    before, probe = known(), vm_pod("vm9", use=(1, 1))
    rig.writes.clear()
    assert before == (rig.restart(), known())[1]
    assert [] == rig.patches()
    assert "n1" == rig.put(probe).pod(probe.metadata.uid).spec.node_name


@pytest.mark.behaviour("S4.6", "S4.9")
def test_an_object_is_looked_at_as_it_is_last() -> None:
    """What changes while a write is under way is looked at when that has ended, once."""
    pod = vm_pod(node="n1", use=(1, 2), requested=(2, 2))
    rig = Rig()
    rig.holds = True
    rig.start(pod)
    rig.put(changed(pod, requested=amount(3, 2))).put(changed(pod, requested=amount(4, 2)))
    assert 1 == len(rig.patches())
    rig.holds = False
    # The write was for what was asked before: the VM has changed, and it is worked out anew.
    rig.carry_out(rig.held.pop())
    rig.advance(1.1)
    assert amount(4, 2) == rig.approved()


@pytest.mark.behaviour("S4.7", "S4.30")
def test_who_fails_is_looked_at_less_and_less_often_and_told_of() -> None:
    rig = Rig().start()
    rig.put(vm_pod("vm1", node="n1", annotations={"vm.neon.tech/resources": "{"}))
    rig.advance(600)
    failed = [text for level, text, _ in rig.notes if text.startswith("Failed to reconcile")]
    # 0.1 s growing by 2.03 to 60 s: 11 looks within 117 s, then one a minute.
    assert 19 == len(failed)
    told = [text for level, text, _ in rig.notes if "times in a row" in text]
    assert ["Pod has failed to reconcile >=10 times in a row: 10"] == told[:1]
    assert 1 == sum(
        sample.value
        for metric in rig.scheduling.metrics()
        if metric.name == "autoscaling_plugin_reconcile_failing_objects"
        for sample in metric.samples
    )


@pytest.mark.behaviour("S4.8")
def test_no_more_objects_than_workers_are_looked_at_at_once() -> None:
    rig = Rig(make_node("n1", cpu="64", memory="256Gi"), reconcileWorkers=3)
    rig.start()
    rig.holds = True
    for i in range(5):
        rig.put(vm_pod(f"vm{i}", node="n1", requested=(2, 2)))
    assert ["vm0", "vm1", "vm2"] == [write.name for write in rig.held]
    rig.carry_out(rig.held.pop(0))
    rig.settle()
    assert ["vm1", "vm2", "vm3"] == [write.name for write in rig.held]


@pytest.mark.behaviour("S4.12")
def test_a_node_is_looked_at_after_its_pods() -> None:
    nodes = [make_node(name, cpu="4", memory="64Gi") for name in ("n1", "n2")]
    rig = Rig(*nodes).start()
    rig.put(vm_pod("vm1", node="n1", use=(2, 2), moves=True))
    rig.put(vm_pod("vm2", node="n1", use=(1.8, 2), moves=True, created=1))
    assert ["schedplugin-vm1-pod"] == rig.migrations()


@pytest.mark.behaviour("S4.36")
def test_a_node_that_is_over_full_grants_nothing_and_goes_on() -> None:
    """It has shrunk, or a stranger was put there."""
    rig = Rig().start(vm_pod(node="n1", use=(3, 2), approved=(3, 2), requested=(3, 2)))
    rig.put(make_pod("stranger", node="n1", cpu="3", memory="1Gi"))
    rig.put(changed(rig.pod("uid-of-default-vm1-pod"), requested=amount(4, 2)))
    assert (amount(3, 2), (6000, 3 * GI)) == (rig.approved(), rig.reserved())
    assert rig.put(vm_pod("vm2", use=(0.25, 1))).pod("uid-of-default-vm2-pod").spec.node_name == ""


@pytest.mark.behaviour("S4.10")
def test_listed_objects_are_told_apart_by_kind() -> None:
    """A node and a pod of one name and uid are two."""
    rig = Rig(make_node("default/vm1-pod")).start()
    rig.put(vm_pod("vm1", node="default/vm1-pod", use=(2, 2)))
    assert (2000, 2 * GI) == rig.reserved("default/vm1-pod")
    rig.restart()
    assert (2000, 2 * GI) == rig.reserved("default/vm1-pod")


def test_nothing_is_approved_for_the_pod_that_a_vm_has_left() -> None:
    """Its writes would fail for ever: the VirtualMachine shows what the VM's new pod requests."""
    rig = Rig().start(vm_pod("vm1", node="n1", requested=(2, 3), controlled=True))
    rig.advance(60)
    assert [] == rig.patches()
