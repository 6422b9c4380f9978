"""Pictures of what-if, devices and warm pools: the same for the same, and labelled."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stower.cli.main import app
from tests.unit.cli.test_cluster_inputs import node, pod

SLICE = {
    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
    "spec": {
        "driver": "d.example.com", "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "allowMultipleAllocations": True,
                     "capacity": {"memory": {"value": "40Gi"}}}, {"name": "gpu-1"}],
    },
}  # fmt: skip
RESULT = {"request": "r", "driver": "d.example.com", "pool": "n1", "device": "gpu-0",
          "shareID": "a1", "consumedCapacity": {"memory": "10Gi"}}  # fmt: skip
CLAIM = {
    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
    "metadata": {"name": "<b>$x_1$", "namespace": "default", "uid": "c"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
    "status": {"allocation": {"devices": {"results": [RESULT]}}},
}  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    pytest.importorskip("matplotlib")
    path = tmp_path / "cluster.json"
    pool = {"apiVersion": "stower.dev/v1", "kind": "WarmPool",
            "metadata": {"name": "users", "namespace": "default"},
            "spec": {"users": {"matchLabels": {"app": "hub"}}}}  # fmt: skip
    objects = [
        node("n1"),
        node("n2"),
        pod("a-1", "3", on="n1"),
        pod("b-1", "3"),
        SLICE,
        CLAIM,
        pool,
    ]
    path.write_text("\n".join(json.dumps(o) for o in objects))
    return path


def drawn(path: Path, *arguments: str) -> str:
    ran = CliRunner().invoke(app, [*arguments, "--plot", str(path)])
    assert 0 == ran.exit_code, ran.stderr
    return path.read_text()


def test_nothing_to_draw_is_said_in_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(node("n1")))
    assert "No warm pools." in drawn(tmp_path / "warm.SVG", "warm", "all", str(path))
    assert "No devices." in drawn(tmp_path / "devices.svg", "devices", "all", str(path))


@pytest.mark.parametrize(
    ("verb", "more", "said"),
    [
        ("what-if", ("--remove-node", "n2"), ("% of allocatable", "before", "after", "pending")),
        ("devices", (), ("% of the device", "gpu-0", "gpu-1", "x_1$")),
        ("warm", (), ("slots", "users", "placeholders", "default/users")),
    ],
)
def test_a_picture_is_labelled_and_always_the_same(
    cluster: Path, tmp_path: Path, verb: str, more: tuple[str, ...], said: tuple[str, ...]
) -> None:
    inputs = (str(cluster),) if verb == "what-if" else ("all", str(cluster))
    first = drawn(tmp_path / "a.svg", verb, *inputs, *more)
    assert first == drawn(tmp_path / "b.svg", verb, *inputs, *more)
    for text in said:
        assert f"<!-- {text}" in first or text in first, f"{text} is not in the picture"
    for name, why in (("a.pdf", "ends in .svg or .png"), ("no/a.svg", "No such file")):
        ran: Any = CliRunner().invoke(app, [verb, *inputs, *more, "--plot", str(tmp_path / name)])
        assert (2, True) == (ran.exit_code, why in ran.stderr)
