"""stower devices: what is there, who has it, what is left."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from stower.cli.main import app

PARTED = Path(__file__).parents[3] / "examples" / "devices"
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}


def held(name: str, device: str, pods: tuple[str, ...], **more: Any) -> dict[str, Any]:
    """A claim of a device of the parted GPU."""
    result = {"request": "r", "driver": "parted.example.com", "pool": "node-1", "device": device}
    users = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
    status = {"allocation": {"devices": {"results": [{**result, **more}]}}, "reservedFor": users}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name}, "status": status}  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    """The examples' slices, the left part of a GPU shared by two, and a look at it."""
    (parted,) = (path for path in PARTED.glob("*.yaml") if "whole" in path.read_text())
    documents = [
        *yaml.safe_load_all(parted.read_text()),
        NODE,
        held("a", "left", ("p1", "p2"), shareID="1", consumedCapacity={"memory": "3Gi"}),
        held("b", "left", (), shareID="2", consumedCapacity={"memory": "1Gi"}),
        held("look", "right", ("p3",), adminAccess=True),
    ]
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def shown(*arguments: str) -> dict[str, Any]:
    """What it tells programs."""
    run = CliRunner().invoke(app, ["devices", *arguments, "--output", "json"])
    assert 0 == run.exit_code, run.stderr
    told: dict[str, Any] = json.loads(run.stdout)
    return told


def test_shares_what_is_left_and_what_is_withdrawn(cluster: str) -> None:
    told = shown("node-1", cluster)
    devices = {device["device"]: device for device in told["devices"]}
    left = devices["left"]
    assert ["default/a", "default/b"] == [holder["claim"] for holder in left["holders"]]
    assert ["p1", "p2"] == left["holders"][0]["pods"]
    assert {"total": "8Gi", "left": "4Gi"} == left["capacity"]["memory"]
    # The left part took 6 of 8 cores, once: the whole is withdrawn, the right part is free.
    assert "2 of 8 cores is free in counter set gpu-0" == devices["whole"]["blocked"]
    right = devices["right"]
    assert ("", True) == (right["blocked"], right["holders"][0]["admin"])
    assert {"total": "2Gi", "left": "2Gi"} == right["capacity"]["memory"]
    assert {"total": "8", "left": "2"} == told["pools"][0]["counters"]["gpu-0/cores"]


@pytest.mark.parametrize("which", ["all", "node-1", "parted.example.com/node-1"])
def test_nodes_and_pools_are_named(cluster: str, which: str) -> None:
    assert {"whole", "left", "right"} == {d["device"] for d in shown(which, cluster)["devices"]}


def test_tables_are_for_people(cluster: str) -> None:
    run = CliRunner().invoke(app, ["devices", "all", cluster])
    assert 0 == run.exit_code
    for text in ("default/a: 3Gi memory for p1, p2", "4Gi of 8Gi memory", "(admin)"):
        assert text in run.stdout


def test_what_is_not_there_is_an_error(cluster: str) -> None:
    run = CliRunner().invoke(app, ["devices", "node-7", cluster])
    assert (2, True) == (run.exit_code, "'node-7', want a node or a pool" in run.stderr)


SLICE = {
    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
    "spec": {
        "driver": "parted.example.com", "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "allowMultipleAllocations": True,
                     "capacity": {"memory": {"value": "8Gi"}}}],
    },
}  # fmt: skip


def dump(tmp_path: Path, *objects: Any) -> str:
    path = tmp_path / "dump.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def test_slices_and_claims_alone_will_do(tmp_path: Path) -> None:
    """As kubectl dumps them. What a claim holds without a share is all of a shared device."""
    told = shown("all", dump(tmp_path, SLICE, held("a", "gpu-0", ("p1",))))
    (device,) = told["devices"]
    assert ("default/a", "0") == (
        device["holders"][0]["claim"], device["capacity"]["memory"]["left"],
    )  # fmt: skip


def test_who_holds_what_is_not_published_any_more_is_told(tmp_path: Path) -> None:
    told = shown("all", dump(tmp_path, SLICE, held("a", "gone", ())))
    assert [("gone", "no longer published")] == [
        (device["device"], device["blocked"]) for device in told["devices"] if device["holders"]
    ]


def test_what_was_agreed_on_with_a_driver_was_never_published(tmp_path: Path) -> None:
    claim = held("a", "port-1", ())
    claim["metadata"]["finalizers"] = ["parted.example.com/allocated"]
    told = shown("all", dump(tmp_path, SLICE, claim))
    assert [("port-1", "negotiated with its driver")] == [
        (device["device"], device["blocked"]) for device in told["devices"] if device["holders"]
    ]


def test_other_versions_and_a_path_for_a_name_are_told(tmp_path: Path) -> None:
    path = dump(tmp_path, {**SLICE, "apiVersion": "resource.k8s.io/v1beta2"}, NODE)
    run = CliRunner().invoke(app, ["devices", "all", path])
    assert "ignored, want resource.k8s.io/v1: 1 ResourceSlice" in run.stderr
    run = CliRunner().invoke(app, ["devices", path])
    assert (2, True) == (run.exit_code, f"want stower devices all {path}" in run.stderr)
