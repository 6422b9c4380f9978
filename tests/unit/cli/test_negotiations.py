"""Negotiated devices for people: stower negotiations and stower explain."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from stower.cli.main import app
from stower.model.kinds import KIND_BY_VIEW
from tests.negotiation_cluster import DRIVER, Cluster, Counting, nodes
from tests.unit.cli.test_cluster_inputs import node

BETA = "beta.example.com"


def stower(*arguments: str, code: int = 0) -> str:
    run = CliRunner().invoke(app, list(arguments))
    assert code == run.exit_code, (run.output, run.exception)
    return run.stdout if code in (0, 1) and run.stdout else run.stderr


def shown(*arguments: str, code: int = 0) -> Any:
    """What programs are told."""
    return json.loads(stower(*arguments, "--output", "json", code=code))


def cluster(fabric: dict[str, int], beta: dict[str, int]) -> Cluster:
    """Three nodes and two drivers that have so many devices."""
    made = Cluster(nodes("n1", "n2", "n3"))
    made.add_driver(Counting(DRIVER, fabric))
    made.add_driver(Counting(BETA, beta))
    made.start()
    return made


def dumped(of: Cluster, tmp_path: Path) -> str:
    """All its objects in a file."""
    path = tmp_path / "dump.json"
    with path.open("w") as file:
        for obj in of.server.list_objects():
            kind = KIND_BY_VIEW[type(obj)]
            type_meta = {"apiVersion": kind.api_version, "kind": kind.name}
            file.write(json.dumps({**type_meta, **msgspec.to_builtins(obj)}) + "\n")
    return str(path)


@pytest.fixture
def silent(tmp_path: Path) -> str:
    """One of a pod's two drivers is down; another pod runs with the one device of n2."""
    made = cluster({"n1": 1, "n2": 1}, {"n1": 1})
    made.claim("c0")
    made.pod("runs", "c0")
    made.settle()
    made.drivers[BETA].stop()
    made.claim("c1")
    made.claim("c2", "beta")
    made.pod("web", "c1", "c2")
    made.settle()
    assert ("n2", "") == (made.node_of("runs"), made.node_of("web"))
    return dumped(made, tmp_path)


def crowded(tmp_path: Path) -> str:
    """The only device is somebody's."""
    made = cluster({"n1": 1}, {})
    made.claim("c0")
    made.pod("runs", "c0")
    made.settle()
    made.claim("c1")
    made.pod("web", "c1")
    made.advance(40)
    return dumped(made, tmp_path)


@pytest.fixture
def full(tmp_path: Path) -> str:
    return crowded(tmp_path)


# stower negotiations


def test_pods_claims_and_whom_they_wait_for(silent: str) -> None:
    told = stower("negotiations", "all", silent)
    for text in ("default/web", "1 of 3 nodes left", "answered: 2 unsuitable", "silent", "round 1",
                 f"{BETA} to answer about round 1", "Other claims", "allocated on n2",
                 "default/runs"):  # fmt: skip
        assert text in told


def test_the_same_for_programs(silent: str) -> None:
    found = shown("negotiations", "web", silent)
    ((negotiation,), others) = found["negotiations"], found["claims"]
    assert ("default/web", 3, 1, 1, []) == (
        negotiation["pod"], negotiation["candidates"], negotiation["left"], negotiation["round"],
        others,
    )  # fmt: skip
    assert [
        ("default/c1", DRIVER, "answered", f"{BETA} to answer about round 1"),
        ("default/c2", BETA, "silent", f"{BETA} to answer about round 1"),
    ] == [(c["claim"], c["driver"], c["state"], c["awaits"]) for c in negotiation["claims"]]
    assert ["default/c0"] == [c["claim"] for c in shown("negotiations", "runs", silent)["claims"]]


def test_what_may_help_one_pod_is_told(full: str) -> None:
    told = stower("negotiations", "web", full)
    assert f"a node that {DRIVER} does not refuse" in told
    hint = f"delete default/runs and default/c0: then {DRIVER} may allocate default/c1 on n1"
    assert f"  {hint}" == told.splitlines()[-1]


def test_nothing_to_tell(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(node("n1")))
    assert "There are no negotiations.\n" == stower("negotiations", "all", str(path))


def test_what_is_not_there_and_a_path_for_a_name_are_errors(silent: str) -> None:
    wanted = "got 'nobody', want the name of a pod, a claim or a driver"
    assert wanted in stower("negotiations", "nobody", silent, code=2)
    assert f"want stower negotiations all {silent}" in stower("negotiations", silent, code=2)


# stower explain


def test_a_pod_that_waits_for_drivers_does_not_fit_yet(silent: str) -> None:
    told = stower("explain", "pod", "web", silent)
    assert told.startswith(
        "default/web is not placed yet: waiting for resource driver to provide information: "
        f"default/c1 of {DRIVER}, default/c2 of {BETA}. "
        "1 of 3 nodes meet its other requirements."
    )
    for text in (f"{BETA} to answer about round 1", f"check that {BETA} runs",
                 f"{DRIVER}: unsuitable for default/c1 (round 1)",
                 "The scheduler retries the pod on: negotiation changed"):  # fmt: skip
        assert text in told
    found = shown("explain", "pod", "web", silent)
    assert ("settling", "", ["default/c1", "default/c2"]) == (
        found["verdict"], found["node"], [c["claim"] for c in found["negotiation"]["claims"]],
    )  # fmt: skip


def test_the_selected_node_is_told(tmp_path: Path) -> None:
    made = cluster({"n1": 1}, {})
    made.drivers[DRIVER].stop()
    made.claim("c0")
    made.pod("web", "c0")
    made.settle()
    selected = made.said("web")
    assert selected is not None
    found = shown("explain", "pod", "web", dumped(made, tmp_path))
    name = selected.spec.selected_node
    waits = f"{DRIVER} to allocate default/c0 on {name}"
    assert ("settling", name, name, waits) == (
        found["verdict"], found["node"], found["negotiation"]["selectedNode"],
        found["negotiation"]["claims"][0]["awaits"],
    )  # fmt: skip


def test_a_pod_that_every_driver_refuses_says_so(full: str) -> None:
    found = shown("explain", "pod", "web", full)
    (refused,) = found["refused"]
    assert ("refused", [], 3) == (found["verdict"], found["changes"], refused["nodes"])
    unsuitable = f"{DRIVER}: unsuitable for default/c1 (round 1)"
    assert [unsuitable, "  its devices are allocated to default/c0 for runs"] == refused["details"]
    assert "No change was found that makes the pod schedulable." in stower(
        "explain", "pod", "web", full
    )


def test_pods_whose_claims_are_allocated_fit_or_are_placed(tmp_path: Path, full: str) -> None:
    assert "default/runs is on n1." in stower("explain", "pod", "runs", full)
    made = cluster({"n2": 1}, {})
    made.claim("c0", allocation_mode="Immediate")
    made.settle()
    made.scheduler.stop()
    made.pod("web", "c0")
    found = shown("explain", "pod", "web", dumped(made, tmp_path))
    assert ("fits", "n2") == (found["verdict"], found["node"])


def test_a_change_that_leads_to_drivers_says_that_it_does(tmp_path: Path) -> None:
    made = cluster({"n1": 1}, {})
    made.claim("c0")
    made.pod("big", "c0", cpu="5")
    made.pod("gated", "c0", schedulingGates=[{"name": "hold"}])
    made.settle()
    # Of drivers nothing is said: nobody has asked them.
    assert (
        "0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate, preemption: "
        "0/3 nodes are available: 3 Preemption is not helpful for scheduling."
        == made.message("big")
    )
    path = dumped(made, tmp_path)
    told = stower("explain", "pod", "big", path)
    assert told.startswith("default/big waits: 0/3 nodes are available: 3 Insufficient cpu.\n")
    assert "The smallest change to continue the negotiation" in told
    waits = f"waiting for resource driver to allocate resource: default/c0 of {DRIVER} on"
    (change, *_) = shown("explain", "pod", "big", path)["changes"]
    assert f"{waits} {change['node']}" == change["waits"]
    told = stower("explain", "pod", "gated", path)
    assert (
        f"It has scheduling gates: hold. Without them it would not be placed yet: {waits}" in told
    )
