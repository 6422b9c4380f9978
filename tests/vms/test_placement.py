"""Where VMs, and pods beside them, are placed."""

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from stower.cli.main import app
from tests.builders import make_node, make_pod
from tests.vms.rig import SCHEDULER, Rig, amount, changed, configuration, vm_pod


def placed(rig: Rig, name: str = "vm1") -> str:
    """The node of a VM."""
    return rig.pod(f"uid-of-default-{name}-pod").spec.node_name


@pytest.mark.behaviour("S4.26")
def test_a_vm_goes_where_there_is_room_for_what_it_holds() -> None:
    """Its pod asks for next to nothing: what the VM has is what counts."""
    rig = Rig(make_node("n1", cpu="4"), make_node("n2", cpu="4")).start(
        vm_pod("vm1", node="n1", use=(3, 2)),
        vm_pod("vm2", use=(2, 2)),
    )
    assert "n2" == placed(rig, "vm2")
    assert "" == placed(rig.put(vm_pod("vm3", use=(3, 2))), "vm3")
    rig.put(vm_pod("vm1", node="n1", use=(1, 2))).advance(20)
    assert "n1" == placed(rig, "vm3")


@pytest.mark.behaviour("S4.26")
def test_room_that_an_approval_gives_back_wakes_who_waits() -> None:
    pod = vm_pod("vm1", node="n1", use=(1, 2), requested=(3, 2), approved=(3, 2))
    rig = Rig().start(pod, vm_pod("vm2", use=(2, 2)))
    assert "" == placed(rig, "vm2")
    rig.put(changed(pod, requested=amount(1, 2))).advance(2)
    assert "n1" == placed(rig, "vm2")


@pytest.mark.behaviour("S4.26")
def test_a_waiting_vm_that_becomes_smaller_is_tried_again() -> None:
    rig = Rig().start(vm_pod("vm1", use=(5, 2)))
    assert "" == placed(rig)
    assert "n1" == placed(rig.put(vm_pod("vm1", use=(4, 2))).advance(2))


@pytest.mark.behaviour("S4.26")
def test_the_fullest_node_below_the_peak_is_best_and_above_it_the_emptiest() -> None:
    flat = {"minUsageScore": 0.5, "maxUsageScore": 0.0, "scorePeak": 0.8, "randomize": False}
    nodes = [make_node(f"n{i}", cpu="10", memory="10Gi") for i in range(3)]

    def chosen(*use: float) -> str:
        held = [vm_pod(f"old{i}", node=f"n{i}", use=(cpu, round(cpu))) for i, cpu in enumerate(use)]
        rig = Rig(*nodes, scoring=flat).start(*held)
        return placed(rig.put(vm_pod("vm1", use=(1, 1))))

    assert "n1" == chosen(2, 6, 4)
    assert "n2" == chosen(9, 8, 2)


@pytest.mark.behaviour("S4.26")
def test_scores_are_drawn_from_the_seed() -> None:
    """Any from 1 to the score: the better node is chosen more often, and each seed has its own."""
    nodes = [make_node(f"n{i}", cpu="10", memory="10Gi") for i in range(2)]
    old = vm_pod("old", node="n0", use=(6, 6))

    def chosen(seed: int) -> str:
        rig = Rig(*nodes, seed=seed).start(old)
        return placed(rig.put(vm_pod("vm1", use=(1, 1))))

    counts = Counter(chosen(seed) for seed in range(60))
    assert chosen(7) == chosen(7)
    assert 60 > counts["n0"] > counts["n1"] > 0


@pytest.mark.behaviour("S4.27")
def test_ignored_namespaces_count_in_filters_and_nowhere_else() -> None:
    over = make_pod("over", node="n1", namespace="overprovisioning", cpu="3", memory="1Gi",
                    priority=-10, schedulerName=SCHEDULER)  # fmt: skip
    rig = Rig(ignoredNamespaces=["overprovisioning"])
    rig.start(over, vm_pod("vm1", node="n1", use=(1, 1), requested=(4, 1)))
    assert amount(4, 1) == rig.approved()  # they are no VM's concern
    assert (4000, 1 << 30) == rig.reserved()


@pytest.mark.behaviour("S4.27", "S4.33")
def test_whoever_holds_room_in_advance_is_evicted_for_a_vm() -> None:
    """What would be if pods left is tried, and leaves no trace where they stay."""
    over = make_pod("over", node="n1", namespace="overprovisioning", cpu="3", memory="1Gi",
                    priority=-10, schedulerName=SCHEDULER)  # fmt: skip
    rig = Rig(ignoredNamespaces=["overprovisioning"]).start(over)
    before = rig.scheduling.ledger.cpu.tolist()
    rig.put(vm_pod("vm1", use=(5, 1), priority=0))
    assert before == rig.scheduling.ledger.cpu.tolist()
    assert "" == placed(rig)
    rig.put(vm_pod("vm2", use=(2, 1), priority=0))
    evicted = [w.name for w in rig.writes if type(w).__name__ == "DeletePod"]
    assert ["over"] == evicted
    rig.drop(over.metadata.uid).advance(1)
    assert "n1" == placed(rig, "vm2")


@pytest.mark.behaviour("S4.26")
def test_a_pod_that_cannot_be_read_waits_and_says_why() -> None:
    rig = Rig().start()
    rig.put(vm_pod("vm1", annotations={"vm.neon.tech/resources": "{"}))
    assert "" == placed(rig)
    decision = rig.engine.drain()[-1]
    assert "Error extracting local information for Pod" in decision.message
    assert "n1" == placed(rig.put(vm_pod("vm1", use=(1, 1))).advance(10))


def test_explain_says_what_a_node_lacks_for_a_vm(tmp_path: Path) -> None:
    config, objects = tmp_path / "scheduler.json", tmp_path / "objects.json"
    config.write_text(json.dumps(configuration()))
    made = [("Node", make_node("n1")), ("Pod", vm_pod("vm1", node="n1", use=(3, 2))),
            ("Pod", vm_pod("vm2", use=(2, 2)))]  # fmt: skip
    items = [{"apiVersion": "v1", "kind": kind, **msgspec.to_builtins(obj)} for kind, obj in made]
    objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    told = CliRunner().invoke(
        app, ["explain", "pod", "default/vm2-pod", str(objects), "--config", str(config)]
    )
    assert "n1 lacks 1 cpu for VMs" in told.stdout
    assert "cpu: needs 2000m, 3000m of 4000m are reserved" in told.stdout


def test_room_that_was_emptied_for_a_vm_is_kept_from_pods_of_other_profiles() -> None:
    """Those pods' own filters do not read what the VM holds."""
    old = make_pod("old", node="n1", cpu="2", priority=-10)
    rig = Rig(make_node("n1", cpu="4")).start(old, vm_pod("vm1", use=(3, 2), cpu=None))
    nominated = rig.pod("uid-of-default-vm1-pod")
    status = msgspec.structs.replace(nominated.status, nominated_node_name="n1")
    rig.put(msgspec.structs.replace(nominated, status=status))
    leaving = msgspec.structs.replace(old.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    rig.put(msgspec.structs.replace(old, metadata=leaving))
    small = "uid-of-default-small"
    rig.put(make_pod("small", cpu="2", priority=-10)).advance(20)
    assert "" == rig.pod(small).spec.node_name
    rig.drop("uid-of-default-old").advance(20)
    assert ("n1", "n1") == (placed(rig), rig.pod(small).spec.node_name)


def test_a_pod_of_higher_priority_takes_the_room_that_a_vm_is_nominated_to() -> None:
    rig = Rig(make_node("n1", cpu="4")).start(make_pod("old", node="n1", cpu="2", priority=9))
    waiting = vm_pod("vm1", use=(3, 2), cpu=None)
    status = msgspec.structs.replace(waiting.status, nominated_node_name="n1")
    rig.put(msgspec.structs.replace(waiting, status=status))
    rig.put(make_pod("important", cpu="2", priority=10)).put(make_pod("equal", cpu="1"))
    nodes = [rig.pod(f"uid-of-default-{name}").spec.node_name for name in ("important", "equal")]
    assert ["n1", ""] == nodes
