"""Groups of pods from files: `stower simulate` places trees as a whole."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stower.cli.main import app
from tests.unit.cli.test_simulate import invoke, reports

EXAMPLE = Path(__file__).parents[3] / "examples" / "groups" / "two-blocks.yaml"


@pytest.mark.behaviour("S3.12")
def test_the_example_of_two_blocks_is_placed_in_the_second(tmp_path: Path) -> None:
    file = tmp_path / "placed.ndjson"
    assert 0 == invoke(EXAMPLE, "--objects", file)[0]
    racks: dict[str, set[str]] = {}
    for line in file.read_text().splitlines():
        obj = json.loads(line)
        if obj["kind"] == "Pod":
            group = obj["spec"]["schedulingGroup"]["podGroupName"]
            racks.setdefault(group, set()).add(obj["spec"]["nodeName"][:2])
    assert [{"b1"}, {"b2"}] == sorted(racks.values(), key=sorted)


def test_a_pod_that_waits_for_its_group_is_explained_so(tmp_path: Path) -> None:
    """One rack of block b is missing: each group would fit, not both in one block."""
    documents = EXAMPLE.read_text().split("\n---\n")
    file = tmp_path / "less.yaml"
    file.write_text("\n---\n".join(d for d in documents if "name: b2-" not in d))
    ran = CliRunner().invoke(app, ["explain", "pod", "default/workers-0-0", str(file)])
    assert "waits for its group" in ran.output
    assert "needs 2 of its 2 groups in one example.com/block" in ran.output.replace("\n", " ")


def shown(*arguments: str) -> Any:
    ran = CliRunner().invoke(app, ["groups", *arguments])
    assert 0 == ran.exit_code, ran.output
    return ran.output


def test_trees_are_drawn_with_their_domains(tmp_path: Path) -> None:
    file = tmp_path / "placed.ndjson"
    assert 0 == invoke(EXAMPLE, "--objects", file)[0]
    found = json.loads(shown("job", str(file), "--output", "json"))
    assert [
        ("default/job", 0, 2, 2, "placed", "example.com/block=b"),
        ("default/workers-0", 1, 5, 5, "placed"),
        ("default/workers-1", 1, 5, 5, "placed"),
    ] == [
        (g["name"], g.get("level", 0), g["minimum"], g["have"], g["state"], g["domain"])[
            : 5 if g["name"] != "default/job" else 6
        ]
        for g in found
    ]
    assert {"example.com/rack=b1", "example.com/rack=b2"} == {g["domain"] for g in found[1:]}
    assert "└ workers-0" in shown("all", str(file))


def test_what_waits_says_for_what(tmp_path: Path) -> None:
    """Two of the pods are not there, and the second group is missing its object."""
    documents = EXAMPLE.read_text().split("\n---\n")
    file = tmp_path / "less.yaml"
    odd = ("name: workers-0-3", "name: workers-0-4", "kind: PodGroup\nmetadata: {name: workers-1")
    file.write_text("\n---\n".join(d for d in documents if not any(o in d for o in odd)))
    found = {g["name"]: g for g in json.loads(shown("all", str(file), "--output", "json"))}
    assert "missing" == found["default/workers-1"]["state"]
    assert (0, 3, "waiting") == tuple(
        found["default/workers-0"].get(k, 0) for k in ("have", "count", "state")
    )
    want = 'waiting for composite pod group "job" tree to meet quorum'
    assert want == found["default/workers-0"]["message"]


def test_what_a_simulated_tree_waits_for_is_reported(tmp_path: Path) -> None:
    documents = EXAMPLE.read_text().split("\n---\n")
    file = tmp_path / "less.yaml"
    file.write_text("\n---\n".join(d for d in documents if "name: workers-0-4" not in d))
    (report,) = reports(file)
    (waiting,) = report["waiting"]
    want = ('waiting for composite pod group "job" tree to meet quorum', 9)
    assert want == (waiting["message"], waiting["pods"])


def test_a_group_that_is_not_there_is_an_error() -> None:
    ran = CliRunner().invoke(app, ["groups", "nope", str(EXAMPLE)])
    assert 2 == ran.exit_code


def test_a_tree_of_which_a_part_is_on_nodes_is_shown_so(tmp_path: Path) -> None:
    file, part = tmp_path / "placed.ndjson", tmp_path / "part.ndjson"
    assert 0 == invoke(EXAMPLE, "--objects", file)[0]
    lost = {"workers-0-3", "workers-0-4"}
    objects = map(json.loads, file.read_text().splitlines())
    kept = [o for o in objects if o["kind"] != "Pod" or o["metadata"]["name"] not in lost]
    part.write_text("\n".join(map(json.dumps, kept)))
    found = {g["name"]: g["state"] for g in json.loads(shown("all", str(part), "-o", "json"))}
    assert {
        "default/job": "partially bound",
        "default/workers-0": "partially bound",
        "default/workers-1": "placed",
    } == found
