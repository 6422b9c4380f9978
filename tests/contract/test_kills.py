"""One minute of the run that kills every process of `stower up` (kills/); `make long ROWS=kills`
takes ten. The laws of its watcher are tested on answers that a server must not give."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contract.kills import final_laws
from tests.contract.kills.amounts import quantity
from tests.contract.kills.client import Ledger, resource_of
from tests.contract.kills.run import run
from tests.contract.kills.watcher import ENDED, EXCESS_SECONDS_MAX, Findings, Watcher

Object = dict[str, Any]
LOADED = """
import sys
import tests.contract.kills.run, tests.contract.kills.__main__
print([name for name in sys.modules if name.partition('.')[0] == 'stower'])
"""


@pytest.mark.more
@pytest.mark.behaviour("X4")
def test_nothing_is_lost_and_nothing_done_twice_whatever_is_killed(tmp_path: Path) -> None:
    report = run(tmp_path, 60, seed=4)
    print("\n".join(report.lines()))
    assert [] == report.findings
    assert report.kills.total() >= 5
    assert len(report.kills) >= 3, "processes of most kinds were killed"
    assert report.bound >= 67, "the campus was placed"


def test_watcher_imports_nothing_of_the_product() -> None:
    """The one that judges shares no code with what it judges."""
    command = [sys.executable, "-c", LOADED]
    root = Path(__file__).parents[2]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert "[]" == ran.stdout.strip()


class World:
    """A watcher without a server: objects are put into it as answers would be."""

    def __init__(self) -> None:
        self.ledger, self.findings = Ledger(), Findings()
        self.watcher = Watcher(Path("none"), self.ledger, self.findings)
        self.version = 0
        self.put(make("nodes", "n", status=node_status("4", "8Gi")))

    def put(self, obj: Object, kind: str = "") -> Object:
        """An event; returns the object with a version."""
        self.version += 1
        obj = json.loads(json.dumps(obj))
        obj["metadata"]["resourceVersion"] = str(self.version)
        resource = obj.pop("resource")
        known = self.watcher.alive[resource]
        key = f"default/{obj['metadata']['name']}"
        found = kind or (
            "MODIFIED" if key in known or obj["metadata"]["name"] in known else "ADDED"
        )
        self.watcher._apply_event(resource, found, obj)
        return {**obj, "resource": resource}

    def acknowledge(self, obj: Object) -> Object:
        """An object that a writer has created."""
        made = self.put(obj)
        key = f"default/{made['metadata']['name']}"
        self.ledger.created[made["resource"], key] = made["metadata"]["uid"]
        self.ledger.acknowledge(made)
        return made

    def relist(self, resource: str, *objects: Object) -> None:
        """A list after a break."""
        wanted = {k: u for (r, k), u in self.ledger.created.items() if r == resource}
        self.watcher._apply_list(resource, list(objects), dict(self.ledger.versions), wanted)

    def laws(self) -> set[str]:
        """The laws that are broken so far."""
        return {text.partition(":")[0] for text in self.findings.texts}

    def past(self) -> set[str]:
        """The laws that what has happened breaks."""
        return {law for law, _ in final_laws.past(self.watcher)}

    def end(self) -> set[str]:
        """The laws that the state breaks."""
        return {law for law, _ in final_laws.unsettled(self.watcher)}


def node_status(cpu: str, memory: str) -> Object:
    ready = {"type": "Ready", "status": "True"}
    return {"allocatable": {"cpu": cpu, "memory": memory, "pods": "10"}, "conditions": [ready]}


def make(resource: str, name: str, owner: Object | None = None, **parts: Any) -> Object:
    meta: Object = {"name": name, "uid": parts.pop("uid", f"uid-{resource}-{name}")}
    if resource != "nodes":
        meta["namespace"] = "default"
    if owner is not None:
        meta["ownerReferences"] = [{"uid": owner["metadata"]["uid"], "controller": True}]
    if "annotations" in parts:
        meta["annotations"] = parts.pop("annotations")
    return {"resource": resource, "metadata": meta, "spec": {}, **parts}


def pod(name: str, node: str = "n", phase: str = "Running", cpu: str = "1", **more: Any) -> Object:
    spec: Object = {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    if node:
        spec["nodeName"] = node
    return make("pods", name, spec=spec, status={"phase": phase}, **more)


def claim(name: str, device: str = "", used: str = "", **more: Any) -> Object:
    result: Object = {"driver": "d", "pool": "p", "device": device}
    if used:
        result["consumedCapacity"] = {"memory": used}
    status: Object = {"allocation": {"devices": {"results": [result]}}} if device else {}
    return make("resourceclaims", name, status=status, **more)


def test_quiet_world_breaks_no_law() -> None:
    world = World()
    made = world.acknowledge(pod("a", node="", phase="Pending"))
    made["spec"]["nodeName"], made["status"]["phase"] = "n", "Running"
    made = world.put(made)
    world.relist("pods", made)
    assert (set(), set(), set()) == (world.laws(), world.past(), world.end())


def test_acknowledged_object_that_is_gone_is_seen() -> None:
    """In the list after a restart, and at the end."""
    world = World()
    world.acknowledge(pod("a"))
    world.relist("pods")
    assert {"lost"} == world.laws()
    assert {"lost"} == world.end()
    assert {"vanished"} == world.past()


def test_deletion_that_nobody_asked_for_is_seen() -> None:
    world = World()
    world.put(world.put(pod("a")), "DELETED")
    assert {"vanished"} == world.past()
    world.ledger.deletions_sent.add(("pods", "default/a"))
    assert set() == world.past()


def test_deletion_that_was_not_carried_out_is_seen() -> None:
    world = World()
    world.acknowledge(pod("a"))
    world.ledger.deletions_sent.add(("pods", "default/a"))
    world.ledger.deletions.add(("pods", "default/a"))
    assert {"lost"} == world.end()


def test_object_that_is_back_is_seen() -> None:
    world = World()
    made = world.put(pod("a"))
    world.put(made, "DELETED")
    world.put(made, "ADDED")
    assert {"lost"} == world.laws()


def test_older_object_is_seen() -> None:
    world = World()
    old = world.put(pod("a"))
    world.put(old)
    world.relist("pods", old)
    assert {"version"} == world.laws()


def test_lost_field_is_seen() -> None:
    """The last acknowledged value is there."""
    world = World()
    world.acknowledge(make("podgroups", "g", spec={"a": {"b": 0}}))
    world.ledger.fields["podgroups", "default/g"] = {("spec", "a", "b"): 0}
    assert set() == world.end()
    for path, value in ((("spec", "a", "b"), 1), (("spec", "a", "c"), 0), (("spec", "b", "c"), 0)):
        world.ledger.fields["podgroups", "default/g"] = {path: value}
        assert {"lost"} == world.end()


@pytest.mark.parametrize("node", ["m", ""])
def test_pod_that_moves_is_seen(node: str) -> None:
    world = World()
    world.put(pod("a"))
    world.put(pod("a", node=node))
    assert {"moved"} == world.laws()


@pytest.mark.parametrize("ended", ENDED)
def test_pod_that_runs_again_is_seen(ended: str) -> None:
    world = World()
    world.put(pod("a", phase=ended))
    world.put(pod("a"))
    assert {"phase"} | ({"failed"} if ended == "Failed" else set()) == world.laws()


def test_overfull_node_is_seen() -> None:
    """By requests, and by what a VM has."""
    world = World()
    world.put(pod("a", cpu="3500m"))
    assert set() == world.laws()
    usage = {"vm.neon.tech/usage": '{"cpu": "1", "memory": "1Gi"}'}
    world.put(pod("b", cpu="0", annotations=usage))
    assert {"overfull"} == world.laws()


def test_approvals_beyond_a_node_are_seen_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    own = {
        "vm.neon.tech/usage": '{"cpu": "1", "memory": "1Gi"}',
        "internal.autoscaling.neon.tech/resources-approved": '{"vCPUs": 5, "mem": "1Gi"}',
    }
    world.put(pod("a", cpu="0", annotations=own))
    pass_time(world, monkeypatch)
    assert {"excess"} == world.laws()


def test_more_replicas_than_wanted_are_seen_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    replica_set = world.put(make("replicasets", "r", spec={"replicas": 1}))
    world.put(pod("a", owner=replica_set))
    world.put(pod("b", owner=replica_set))
    pass_time(world, monkeypatch)
    assert {"excess"} == world.laws()


def pass_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two samples, one long after the other."""
    for at in (1.0, 2.0 + EXCESS_SECONDS_MAX):
        monkeypatch.setattr("time.monotonic", lambda at=at: at)
        assert set() == world.laws()
        world.watcher.sample()


def test_device_of_two_claims_is_seen() -> None:
    world = World()
    world.put(claim("a", "gpu-0"))
    world.put(claim("b", "gpu-1"))
    assert set() == world.laws()
    world.put(claim("c", "gpu-1"))
    assert {"devices"} == world.laws()


def test_shared_device_beyond_its_capacity_is_seen() -> None:
    world = World()
    capacity = {"memory": {"value": "10Gi"}}
    device = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": capacity}
    spec = {"driver": "d", "pool": {"name": "p"}, "devices": [device]}
    world.put(make("resourceslices", "s", spec=spec))
    world.put(claim("a", "gpu-0", "6Gi"))
    world.put(claim("b", "gpu-0", "4Gi"))
    assert set() == world.laws()
    world.put(claim("c", "gpu-0", "1"))
    assert {"devices"} == world.laws()


def test_claim_that_changes_its_device_is_seen() -> None:
    world = World()
    world.put(claim("a", "gpu-0"))
    world.put(claim("a", "gpu-1"))
    assert {"moved"} == world.laws()


def test_reservation_for_a_pod_that_is_gone_is_seen() -> None:
    world = World()
    made = claim("a", "gpu-0")
    made["status"]["reservedFor"] = [{"uid": "none", "name": "a"}]
    world.put(made)
    assert {"end"} == world.end()


def test_second_claim_for_one_pod_is_seen() -> None:
    world = World()
    owner = world.put(pod("a"))
    for name in ("one", "two"):
        own = {"resource.kubernetes.io/pod-claim-name": "gpu"}
        world.put(claim(name, owner=owner, annotations=own))
    assert {"twice"} == world.past()


def test_second_pod_for_one_place_of_a_job_is_seen() -> None:
    """Also when the surplus pod was deleted."""
    world = World()
    job = world.put(make("jobs", "j", spec={"completions": 1}, status={"succeeded": 1}))
    world.put(pod("a", owner=job, phase="Succeeded"))
    assert (set(), set()) == (world.past(), world.end())
    world.put(world.put(pod("b", owner=job)), "DELETED")
    assert {"twice", "vanished"} == world.past()
    world.put(pod("c", owner=job))
    assert {"twice"} == world.end()


def test_surplus_pod_of_a_deployment_is_seen() -> None:
    """Scaling down explains a deletion, and not that a pod more was made."""
    world = World()
    deployment = world.put(make("deployments", "d", spec={"replicas": 1},
                                status={"readyReplicas": 1}))  # fmt: skip
    world.ledger.replicas_sent["default/d"] = [1, 2, 1]
    replica_set = world.put(make("replicasets", "r", owner=deployment, spec={"replicas": 1}))
    world.put(pod("a", owner=replica_set))
    world.put(world.put(pod("b", owner=replica_set)), "DELETED")
    assert (set(), set()) == (world.past(), world.end())
    world.put(world.put(pod("c", owner=replica_set)), "DELETED")
    assert {"twice"} == world.past()
    world.put(pod("e", owner=replica_set))
    assert {"twice"} == world.end()


def test_pod_that_does_not_run_at_the_end_is_seen() -> None:
    world = World()
    world.put(pod("a", node="", phase="Pending"))
    world.put(pod("huge", node="", phase="Pending"))
    assert [("end", "pod default/a on no node is Pending: ")] == list(
        final_laws.unsettled(world.watcher)
    )


def test_accelerator_that_is_attached_twice_is_seen(tmp_path: Path) -> None:
    world = World()
    world.put(claim("a", uid="u1"))
    file = tmp_path / "fabric.json"
    file.write_text(json.dumps({"attached": {"u1/0": ["r", "acc-0"], "u2/0": ["r", "acc-0"]}}))
    texts = [text for _, text in final_laws.fabric(world.watcher, file)]
    assert ["attached 2 times" in texts[0], "u2/0" in texts[1]] == [True, True]


@pytest.mark.parametrize(("kind", "resource"), [("Pod", "pods"), ("DeviceClass", "deviceclasses")])
def test_kinds_have_their_paths(kind: str, resource: str) -> None:
    assert resource == resource_of(kind)


@pytest.mark.parametrize(
    ("text", "value"), [("500m", 0.5), ("2", 2), ("1Ki", 1024), (0.25, 0.25), ("1k", 1000)]
)
def test_quantities(text: str, value: float) -> None:
    assert value == quantity(text)
