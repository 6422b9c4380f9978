"""stower explain: in words, for programs, of dumps and of recordings."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate  # type: ignore[import-untyped]
from typer.testing import CliRunner, Result

from stower.cli.main import app
from tests.unit.cli.test_cluster_inputs import node, pod
from tests.unit.cli.test_what_if import history  # noqa: F401  (a fixture)
from tests.unit.engine.explain.planted import plant

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


def stower(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    objects = [node("n1"), node("n2"), pod("big", "9"), pod("there", "1", on="n1"), pod("new", "1")]
    path.write_text("\n".join(json.dumps(o) for o in objects))
    return str(path)


def test_words_first(cluster: str) -> None:
    run = stower("explain", "pod", "default/big", cluster)
    assert 0 == run.exit_code
    lines = run.stdout.splitlines()
    assert "default/big waits: 0/2 nodes are available: 2 Insufficient cpu." == lines[0]
    assert lines[1].startswith("Class never: no node would take it, whatever other pods leave")
    assert ["  the pod requests 9 cpu (n2 has 4)", "  -> n2"] == lines[4:6]
    assert "NodeResourcesFit" in run.stdout
    (again,) = (line for line in lines if line.startswith("The scheduler retries the pod on: "))
    assert "node added, node allocatable" in again
    run = stower("explain", "pod", "there", cluster)
    assert run.stdout.startswith(
        "default/there is on n1. As a new pod it would fit on 2 of 2 nodes."
    )
    assert "Score differences between n1 and n2" in run.stdout
    run = stower("explain", "pod", "new", cluster)
    assert run.stdout.startswith("default/new can be scheduled: it would be placed on n2.")


def test_for_programs(cluster: str) -> None:
    run = stower("explain", "pod", "big", cluster, "--output", "json")
    found = json.loads(run.stdout)
    assert ("never", ["InsufficientResource"]) == (found["class"], found["refused"][0]["codes"])
    change = found["changes"][0]
    assert ("refused", ["the pod requests 9 cpu (n2 has 4)"]) == (found["verdict"], change["what"])
    field = "spec.containers[0].resources.requests.cpu"
    step = {"code": "ChangeRequest", "kind": "Pod", "object": "default/big", "field": field}
    assert [{**step, "from": "9", "to": "4000m"}] == change["steps"]


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_what_is_printed_is_as_the_schema_says(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    documents = plant(seed, 1 + seed % 3).cluster.documents
    path.write_text("\n".join(json.dumps(obj) for obj in documents))
    run = stower("explain", "pod", "asked", str(path), "--output", "json")
    assert 0 == run.exit_code, run.stderr
    validate(json.loads(run.stdout), schema("explain-pod"))


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def test_groups_what_if_fit_and_drain_check_are_as_their_schemas_say(tmp_path: Path) -> None:
    path, asked = tmp_path / "cluster.json", tmp_path / "asked.json"
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
             "metadata": {"name": "gang"},
             "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}  # fmt: skip
    members = [pod(f"m-{i}", "3") for i in range(2)]
    for member in members:
        member["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
    objects = [node("n1"), pod("there", "1", on="n1"), group, *members]
    path.write_text("\n".join(json.dumps(o) for o in objects))
    asked.write_text(json.dumps(pod("new", "1")))
    for name, arguments in (
        ("explain-group", ("explain", "group", "gang", str(path))),
        ("what-if", ("what-if", str(path), "--add-nodes", "1")),
        ("fit", ("fit", str(asked), str(path))),
        ("drain-check", ("drain-check", "n1", str(path))),
    ):
        run = stower(*arguments, "--output", "json")
        found = json.loads(run.stdout)
        validate(found, schema(name))
        assert "objects" not in run.stdout  # whole objects, where fields do


def test_a_scheduler_of_which_nothing_is_seen_is_none(tmp_path: Path) -> None:
    """One that has placed a pod, or refused one, is there: its defaults are kube-scheduler's."""
    path = tmp_path / "cluster.json"
    new, there = pod("new", "1"), pod("there", "1")
    for one in (new, there):
        one["spec"]["schedulerName"] = "other"

    def class_() -> tuple[str, bool]:
        path.write_text("\n".join(json.dumps(o) for o in (node("n1"), new, there)))
        run = stower("explain", "pod", "new", str(path), "--output", "json")
        return json.loads(run.stdout)["class"], "no configuration of other" in run.stderr

    assert ("never", False) == class_()
    there["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }
    assert ("ready", True) == class_()
    there["status"], there["spec"]["nodeName"] = {"phase": "Running"}, "n1"
    assert ("ready", True) == class_()


def test_of_a_recording_at_its_end_and_before(history: Path) -> None:  # noqa: F811
    run = stower("explain", "pod", "c", str(history))
    assert run.stdout.startswith("default/c is on n0.")
    run = stower("explain", "pod", "c", str(history), "--at", "4.5")
    assert run.stdout.startswith("default/c waits: 0/1 nodes are available: 1 Insufficient cpu.")
    run = stower("explain", "pod", "c", str(history), "--at", "0.5")
    assert (2, True) == (run.exit_code, "there is no pod default/c" in run.stderr)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["pod", "nobody"], 2, "there is no pod default/nobody"),
        (["pod", "ther"], 2, "or it has ended; did you mean there?"),
        (["node", "n1"], 2, "got 'node', want pod"),
        (["pod", "big", "--at", "3"], 2, "--at: want a recording"),
        (["pod", "big", "--port", "1"], 2, "--port and --token-file"),
        (["pod", "big", "--port", "1", "--token-file", "none"], 2, "--token-file none"),
        (["pod", "big", "--config", "none.yaml"], 2, "none.yaml: cannot be read"),
    ],
)
def test_wrong_use_is_one_line(cluster: str, arguments: list[str], code: int, said: str) -> None:
    run = stower("explain", *arguments[:2], cluster, *arguments[2:])
    assert (code, True) == (run.exit_code, said in run.stderr)
    assert 1 == run.stderr.count("\n")
