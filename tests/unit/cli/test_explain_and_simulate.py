"""`stower explain --after-others` and `stower simulate` say the same of the same input."""

import random
from pathlib import Path
from typing import Any

import pytest

from stower.cli.inputs import load
from stower.cli.reason_text import without_preemption
from stower.cli.verbs.explain import _engine
from stower.engine.explain.probe import explain_pod
from stower.sim.simulation import Options, simulate
from tests.unit.cli.test_cluster_inputs import node, pod
from tests.unit.cli.test_what_if import stower
from tests.unit.cli.test_workload_objects import write
from tests.unit.engine.explain.planted import plant

Object = dict[str, Any]


def drawn(seed: int) -> list[Object]:
    """A cluster with a pod that is kept from its node by what is known, and others."""
    draw = random.Random(seed)
    objects = plant(seed, 1 + seed % 3).cluster.documents
    for i in range(draw.randrange(1, 6)):
        other = pod(f"w{i}", draw.choice(("500m", "1", "3", "99")))
        other["metadata"]["labels"] = {"app": draw.choice(("asked", "friend", "rival"))}
        if draw.random() < 0.4:
            other["spec"]["topologySpreadConstraints"] = [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                 "labelSelector": {"matchLabels": other["metadata"]["labels"]}}
            ]  # fmt: skip
        objects.append(other)
    return objects


@pytest.mark.parametrize("seed", range(60))
def test_the_same_pods_wait_for_the_same_reasons(seed: int, tmp_path: Path) -> None:
    workload = load([write(tmp_path / "cluster.json", *drawn(seed))]).workload
    report = simulate(workload, "default", None, Options())
    engine, pods = _engine(workload, None, False, True)
    waits = {pod.key: explain_pod(engine, pod) for pod in pods if not pod.spec.node_name}
    assert report.pending == len(waits)
    said = {waiting.example: waiting.message for waiting in report.waiting}
    for key, message in said.items():
        assert key in waits
        if waits[key].verdict == "refused" and message.startswith("0/"):
            assert without_preemption(message) == without_preemption(waits[key].message)
        elif waits[key].verdict == "refused":
            assert message in waits[key].message


def test_who_is_placed_before_is_told_and_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path / "c.json", node("n1"), pod("first", "3"), pod("second", "3"))
    run = stower("explain", "pod", "second", path)
    assert run.stdout.startswith("default/second can be scheduled")
    assert "1 other pod waits, too: default/second is explained as if it were next" in run.stderr
    run = stower("explain", "pod", "second", path, "--after-others")
    assert run.stdout.startswith("default/second waits: 0/1 nodes are available")
    assert "" == run.stderr
    run = stower("simulate", path)
    assert "preemption" not in run.stdout
    assert "1 Insufficient cpu" in run.stdout
