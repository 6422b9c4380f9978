"""Negotiated devices where there are no drivers: in simulations and questions about room."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.negotiation_cluster import DRIVER
from tests.unit.api.test_negotiation_rules import resource_class
from tests.unit.cli.test_claims import TEMPLATE, claiming
from tests.unit.cli.test_cluster_inputs import node
from tests.unit.cli.test_negotiations import cluster, crowded, dumped, shown, stower

ALONE = "drivers are not simulated"


@pytest.fixture
def full(tmp_path: Path) -> str:
    return crowded(tmp_path)


@pytest.fixture
def waiting(tmp_path: Path) -> list[Any]:
    """A cluster in which the class gpu is negotiated, and a template of claims for it."""
    return [node("n1"), node("n2"), resource_class(), TEMPLATE]


def written(tmp_path: Path, *objects: Any) -> str:
    path = tmp_path / "cluster.json"
    path.write_text("\n".join(map(json.dumps, objects)))
    return str(path)


WAITS = "waiting for resource driver to allocate resource: default/{}-gpu of gpu.example.com on "


@pytest.mark.behaviour("S0.38")
@pytest.mark.parametrize("more", [(), ("--timed",)])
def test_simulated_pods_wait_for_drivers(
    tmp_path: Path, waiting: list[Any], more: tuple[str, ...]
) -> None:
    path = written(tmp_path, *waiting, claiming("a"), claiming("b"))
    (report,) = shown("simulate", path, *more)["reports"]
    # Each of them once more at the end.
    assert (0, 2, 4) == (report["placed"], report["pending"], report["attempts"])
    (first, second) = sorted(each["message"] for each in report["waiting"])
    assert (True, True, True) == (
        first.startswith(WAITS.format("a")), first.endswith(f"; {ALONE}"),
        second.startswith(WAITS.format("b")),
    )  # fmt: skip


def test_a_simulation_uses_what_is_said_and_allocated_already(tmp_path: Path, full: str) -> None:
    (report,) = shown("simulate", full)["reports"]
    (waits,) = report["waiting"]
    assert (
        f"0/3 nodes are available: 3 node(s) on which {DRIVER} cannot allocate default/c1. {ALONE}"
        == waits["message"]
    )
    made = cluster({"n2": 1}, {})
    made.claim("c0", allocation_mode="Immediate")
    made.settle()
    made.scheduler.stop()
    made.pod("web", "c0")
    (report,) = shown("simulate", dumped(made, tmp_path))["reports"]
    assert {"default/web": "n2"} == report["assignments"]


def test_what_is_recorded_of_a_simulation_is_played_back(tmp_path: Path, full: str) -> None:
    recording = str(tmp_path / "run.ndjson")
    stower("simulate", full, "--record", recording)
    assert "byte for byte" in stower("replay", recording)


def test_copies_of_a_pod_that_needs_a_driver_do_not_fit(tmp_path: Path, waiting: list[Any]) -> None:
    pod = tmp_path / "pod.json"
    pod.write_text(json.dumps(claiming("more")))
    found = shown("fit", str(pod), written(tmp_path, *waiting), code=1)
    assert (0, True) == (found["fits"], found["message"].endswith(ALONE))


def test_a_pod_that_leaves_its_node_would_have_to_ask_its_driver(full: str) -> None:
    found = shown("drain-check", "n1", full, code=1)
    message = found["stuck"]["default/runs"]
    text = f"waiting for resource driver to allocate resource: default/c0 of {DRIVER} on"
    assert (True, True) == (message.startswith(text), message.endswith(ALONE))
    compared = shown("what-if", full, "--remove-node", "n1")
    (pending,) = compared["newlyPending"]
    refused = f"{DRIVER} cannot allocate default/c0"
    assert ("default/runs", True) == (pending["pod"], refused in pending["why"])
